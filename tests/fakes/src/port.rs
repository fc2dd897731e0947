//! Ports that no two tests share.
//!
//! A program that is started by a test must be told its port before it listens, and a fake that goes down must be able to
//! come back where it was. A port that the kernel chose is neither: once it is let go, the kernel gives it to the next
//! socket that asks, in any process.
//!
//! So a port is taken from below the range that the kernel hands out, and reserved for the life of this process by a UDP
//! socket of the same number. TCP does not notice; other tests do, in other processes too, and look elsewhere. Nothing is
//! left behind, however the process ends.

use std::net::{Ipv4Addr, TcpListener, UdpSocket};
use std::sync::{Mutex, PoisonError};

/// Linux gives out ports from 32768 on, unless it is told otherwise.
const FIRST: u16 = 20_000;
const SPAN: u16 = 12_000;
/// Ports between where the search of one process begins and that of the next, which saves looking at taken ones.
const STRIDE: u32 = 97;

static RESERVED: Mutex<Reserved> = Mutex::new(Reserved { next: None, sockets: Vec::new() });

struct Reserved {
    next: Option<u16>,
    sockets: Vec<UdpSocket>,
}

/// A port on loopback that nobody listens on, and that no other test is given while this process lives.
///
/// # Panics
/// When all are taken.
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
    panic!("every port from {FIRST} to {} is taken", FIRST + SPAN - 1)
}

/// A listener on such a port: when it is gone, its port refuses connections until somebody in this process listens again.
pub(crate) async fn listen() -> tokio::net::TcpListener {
    let port = free_port();
    match tokio::net::TcpListener::bind((Ipv4Addr::LOCALHOST, port)).await {
        Ok(listener) => listener,
        Err(error) => panic!("port {port} was reserved, and is taken: {error}"),
    }
}

#[cfg(test)]
mod tests {
    use std::collections::BTreeSet;

    use super::*;

    #[test]
    fn a_port_is_given_once_and_can_be_listened_on() {
        let ports: Vec<u16> = (0..50).map(|_| free_port()).collect();
        assert_eq!(BTreeSet::from_iter(ports.clone()).len(), ports.len());
        for port in ports {
            TcpListener::bind((Ipv4Addr::LOCALHOST, port)).unwrap();
        }
    }

    #[test]
    fn a_port_that_another_process_reserved_is_passed_over() {
        let port = free_port();
        // What another process would find.
        let taken = UdpSocket::bind((Ipv4Addr::LOCALHOST, port)).unwrap_err();
        assert_eq!(taken.kind(), std::io::ErrorKind::AddrInUse);
    }
}
