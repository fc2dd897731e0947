//! For components that need nothing of WASI, and whose turns should not pay for it.
//!
//! The standard library asks for four functions of WASI, whoever uses it: two for an environment that is always empty
//! here, one to end the program, and one to write a panic's message. The linker then adds an adapter, a module with
//! twenty imports that every turn instantiates: 7 % of what a small turn computes. [`without_wasi!`](crate::without_wasi) has the four
//! in the component itself. A panic's message becomes a line in the log, at the level of errors; `describe` has no log, so
//! there it is lost.
//!
//! The four names are wasi-libc's own for what it imports, not a documented interface: checked with the one in
//! Debian's Rust. Where another one names them differently, nothing breaks: the component carries the adapter as before.
//!
//! It is for components that compute and call the contract's imports. One that opens files, sleeps by
//! `std::thread::sleep` or asks for the time imports those functions as before, and gains nothing.

use crate::log;

/// A buffer to be written, as WASI hands it over.
#[doc(hidden)]
#[repr(C)]
pub struct Buffer {
    start: *const u8,
    length: usize,
}

/// Writes buffers to the log.
///
/// # Safety
/// `buffers` points to `count` buffers, and each to as many bytes as it says, which is WASI's own contract.
#[doc(hidden)]
pub unsafe fn write(buffers: *const Buffer, count: usize) -> usize {
    // SAFETY: the caller's promise.
    let buffers = unsafe { core::slice::from_raw_parts(buffers, count) };
    let mut bytes = Vec::new();
    for buffer in buffers.iter().filter(|buffer| buffer.length > 0) {
        // SAFETY: the caller's promise.
        bytes.extend_from_slice(unsafe { core::slice::from_raw_parts(buffer.start, buffer.length) });
    }
    let text = String::from_utf8_lossy(&bytes);
    if !text.trim().is_empty() {
        log::write(log::Level::Error, text.trim(), None);
    }
    bytes.len()
}

/// Keeps WASI out of a component that needs nothing of it, which makes its turns cheaper. See the module's head.
#[macro_export]
macro_rules! without_wasi {
    () => {
        const _: () = {
            #[unsafe(no_mangle)]
            extern "C" fn __imported_wasi_snapshot_preview1_environ_get(_: usize, _: usize) -> i32 {
                0
            }

            #[unsafe(no_mangle)]
            unsafe extern "C" fn __imported_wasi_snapshot_preview1_environ_sizes_get(
                count: *mut usize,
                bytes: *mut usize,
            ) -> i32 {
                // SAFETY: both point to a number, by WASI's contract.
                unsafe { (*count, *bytes) = (0, 0) };
                0
            }

            #[unsafe(no_mangle)]
            unsafe extern "C" fn __imported_wasi_snapshot_preview1_fd_write(
                _file: i32,
                buffers: *const $crate::wasi::Buffer,
                count: usize,
                written: *mut usize,
            ) -> i32 {
                // SAFETY: all three are what WASI's contract says.
                unsafe { *written = $crate::wasi::write(buffers, count) };
                0
            }

            #[unsafe(no_mangle)]
            extern "C" fn __imported_wasi_snapshot_preview1_proc_exit(_: i32) -> ! {
                ::core::arch::wasm32::unreachable()
            }
        };
    };
}
