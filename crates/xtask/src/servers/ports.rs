//! Free ports for servers.

use std::net::TcpListener;

use crate::error::{Result, failed};

/// The ports to choose from. They are below the ports that systems give to outgoing connections. So
/// no outgoing connection takes a port between the choice and the start of the server.
const RANGE: std::ops::Range<u16> = 12_000..30_000;

/// Returns `count` different ports. Each is free on every one of the addresses.
pub(crate) fn free(addresses: &[&str], count: usize) -> Result<Vec<u16>> {
    let mut ports = Vec::new();
    for port in candidates() {
        if addresses.iter().all(|address| TcpListener::bind((*address, port)).is_ok()) {
            ports.push(port);
        }
        if ports.len() == count {
            return Ok(ports);
        }
    }
    failed(format!(
        "no port of {} to {} is free on {}; on macOS addresses other than 127.0.0.1 must be made first: \
         `sudo ifconfig lo0 alias 127.0.1.1`, and the same for the others",
        RANGE.start,
        RANGE.end,
        addresses.join(", ")
    ))
}

/// Returns all ports of the range, from a start that differs between processes and between calls.
/// So two searches at the same time do not find the same port.
fn candidates() -> impl Iterator<Item = u16> {
    use std::sync::atomic::{AtomicU32, Ordering};
    static CALLS: AtomicU32 = AtomicU32::new(0);
    let calls = CALLS.fetch_add(1, Ordering::Relaxed);
    let start = std::process::id().wrapping_mul(7_919).wrapping_add(calls * 101);
    let length = u32::from(RANGE.end - RANGE.start);
    (0..length)
        .filter_map(move |i| u16::try_from(start.wrapping_add(i) % length).ok())
        .map(|i| RANGE.start + i)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn ports_differ_and_a_taken_one_is_not_given() {
        // Tests of this process choose ports of 127.0.0.1 meanwhile, and one lost its port to the
        // 500 that are taken here.
        let address = "127.0.0.2";
        let ports = free(&[address], 3).unwrap();
        assert!(ports[0] != ports[1] && ports[1] != ports[2] && ports[0] != ports[2]);
        assert!(ports.iter().all(|port| RANGE.contains(port)));

        let taken =
            candidates().filter_map(|port| TcpListener::bind((address, port)).ok()).take(500);
        let listeners = taken.collect::<Vec<_>>();
        let port = free(&[address], 1).unwrap()[0];
        assert!(listeners.iter().all(|listener| listener.local_addr().unwrap().port() != port));
    }
}
