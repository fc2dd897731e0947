//! Keeps WASI out of components that do not need it.
//!
//! The standard library imports four functions of WASI in every component: two for the environment, which is always
//! empty here, one to end the program, and one to write a panic's message. The linker then adds an adapter, a module
//! with twenty imports that every turn instantiates: 7 % of the computing time of a small turn.
//! [`without_wasi!`](crate::without_wasi) puts the four functions into the component itself. What is printed becomes a log
//! line: at `info` from the standard output, and at `error` from the standard error, which has the messages of panics.
//! `describe` has no log, so there the message is lost.
//!
//! The four names are wasi-libc's own, not a documented interface; they were checked with the one in Debian's Rust. If
//! another wasi-libc names them differently, nothing breaks: the component carries the adapter as before.
//!
//! The macro is for components that compute and call the contract's imports. A component that opens files, calls
//! `std::thread::sleep` or reads the clock imports those functions as before, and gains nothing.

use crate::log;

/// A buffer to be written, as WASI passes it.
#[doc(hidden)]
#[repr(C)]
pub struct Buffer {
    start: *const u8,
    length: usize,
}

/// The standard output.
const STDOUT: i32 = 1;

/// Writes buffers to the log.
///
/// # Safety
/// `buffers` points to `count` buffers, and each to as many bytes as it says, which is WASI's own contract.
#[doc(hidden)]
pub unsafe fn write(file: i32, buffers: *const Buffer, count: usize) -> usize {
    // SAFETY: the caller promises it.
    let buffers = unsafe { core::slice::from_raw_parts(buffers, count) };
    let mut bytes = Vec::new();
    for buffer in buffers.iter().filter(|buffer| buffer.length > 0) {
        // SAFETY: the caller promises it.
        bytes.extend_from_slice(unsafe { core::slice::from_raw_parts(buffer.start, buffer.length) });
    }
    let text = String::from_utf8_lossy(&bytes);
    if !text.trim().is_empty() {
        let level = if file == STDOUT { log::Level::Info } else { log::Level::Error };
        log::write(level, text.trim(), None);
    }
    bytes.len()
}

/// Keeps WASI out of a component that does not need it, which makes its turns cheaper. See the module's documentation.
#[macro_export]
macro_rules! without_wasi {
    () => {
        #[cfg(target_arch = "wasm32")]
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
                file: i32,
                buffers: *const $crate::wasi::Buffer,
                count: usize,
                written: *mut usize,
            ) -> i32 {
                // SAFETY: all three are what WASI's contract says.
                unsafe { *written = $crate::wasi::write(file, buffers, count) };
                0
            }

            #[unsafe(no_mangle)]
            extern "C" fn __imported_wasi_snapshot_preview1_proc_exit(_: i32) -> ! {
                ::core::arch::wasm32::unreachable()
            }
        };
    };
}
