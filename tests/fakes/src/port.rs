//! Ports that no two tests share.
//!
//! A test must tell the program that it starts which port to use, and a fake that goes down must come back at the same
//! port. Ports that the kernel chose allow neither: once closed, the kernel may give the port to any other process.
//!
//! So ports are taken from below the kernel's range and reserved for the life of this process by a UDP socket of the same
//! number. TCP is not affected; other tests, also in other processes, see the reservation and look elsewhere. The
//! reservation ends with the process, however that ends.

use std::net::{Ipv4Addr, TcpListener, UdpSocket};
use std::sync::{Mutex, PoisonError};

/// The first port. Linux by default hands out ports from 32768 on.
const FIRST: u16 = 20_000;
const SPAN: u16 = 12_000;
/// The distance between the first candidates of two processes, so that they rarely meet.
const STRIDE: u32 = 97;

static RESERVED: Mutex<Reserved> = Mutex::new(Reserved { next: None, sockets: Vec::new() });

struct Reserved {
    next: Option<u16>,
    sockets: Vec<UdpSocket>,
}

/// Returns a free port on loopback that no other test gets while this process runs.
///
/// # Panics
/// If all ports are in use.
#[must_use]
pub fn free_port() -> u16 {
    let mut reserved = RESERVED.lock().unwrap_or_else(PoisonError::into_inner);
    for _ in 0..SPAN {
        let own =
            u16::try_from(std::process::id().wrapping_mul(STRIDE) % u32::from(SPAN)).unwrap_or_default();
        let offset = reserved.next.unwrap_or(own);
        reserved.next = Some((offset + 1) % SPAN);
        let address = (Ipv4Addr::LOCALHOST, FIRST + offset);
        if let Ok(socket) = UdpSocket::bind(address)
            && TcpListener::bind(address).is_ok()
        {
            reserved.sockets.push(socket);
            return FIRST + offset;
        }
    }
    panic!("every port from {FIRST} to {} is in use", FIRST + SPAN - 1)
}

/// Listens on such a port. After the listener is dropped, the port refuses connections until this process listens again.
pub(crate) async fn listen() -> tokio::net::TcpListener {
    let port = free_port();
    match tokio::net::TcpListener::bind((Ipv4Addr::LOCALHOST, port)).await {
        Ok(listener) => listener,
        Err(error) => panic!("port {port} was reserved but is in use: {error}"),
    }
}

#[cfg(test)]
mod tests {
    use std::collections::BTreeSet;

    use super::*;

    #[test]
    fn a_port_is_handed_out_once_and_can_be_listened_on() {
        let ports: Vec<u16> = (0..50).map(|_| free_port()).collect();
        assert_eq!(BTreeSet::from_iter(ports.clone()).len(), ports.len());
        for port in ports {
            TcpListener::bind((Ipv4Addr::LOCALHOST, port)).unwrap();
        }
    }

    #[test]
    fn a_port_that_another_process_reserved_is_not_free() {
        let port = free_port();
        // Another process would get the same error.
        let taken = UdpSocket::bind((Ipv4Addr::LOCALHOST, port)).unwrap_err();
        assert_eq!(taken.kind(), std::io::ErrorKind::AddrInUse);
    }
}
