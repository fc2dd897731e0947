//! Ports for programs that must be told one before they listen.

use std::net::TcpListener;
use std::sync::atomic::{AtomicU16, Ordering};

/// Below those that the kernel gives to outgoing connections and to whoever asks for any: a port from there could be taken between
/// the look and the use, and with hundreds of tests it now and then was.
const FIRST: u16 = 20_000;
const SPAN: u16 = 12_000;
/// Ports between those of one test's process and the next one's.
const STRIDE: u32 = 97;

/// A port on loopback that nobody listens on. It is not held, but another test looks elsewhere.
///
/// # Panics
/// When all are taken.
#[must_use]
pub fn free_port() -> u16 {
    static NEXT: AtomicU16 = AtomicU16::new(0);
    let own = std::process::id().wrapping_mul(STRIDE) % u32::from(SPAN);
    let own = u16::try_from(own).unwrap_or_default();
    (0..SPAN)
        .map(|_| FIRST + (own + NEXT.fetch_add(1, Ordering::Relaxed) % SPAN) % SPAN)
        .find(|port| TcpListener::bind(("127.0.0.1", *port)).is_ok())
        .expect("a free port")
}
