//! Addresses for the servers of suites.

use std::{
    net::{SocketAddr, TcpListener},
    sync::atomic::{AtomicU32, Ordering},
};

/// Returns an address of this machine that is free now. No second call of this process returns it
/// soon.
///
/// The system gives ports from 32768 on to the sockets of clients. A node could not start on such a
/// port, because a connection to Cassandra had taken it. So the port is a lower one.
pub fn free_address() -> SocketAddr {
    const FIRST: u16 = 10_000;
    const PORTS: u32 = 18_000;
    static TAKEN: AtomicU32 = AtomicU32::new(0);
    loop {
        // Suites that run at the same time are other processes, and begin at other ports.
        let taken = TAKEN.fetch_add(1, Ordering::Relaxed);
        let next = std::process::id().wrapping_mul(97).wrapping_add(taken) % PORTS;
        let address = SocketAddr::from(([127, 0, 0, 1], FIRST + next as u16));
        if TcpListener::bind(address).is_ok() {
            return address;
        }
    }
}
