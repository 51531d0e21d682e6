//! A client that follows the log, and notes when each event came.

use std::{net::SocketAddr, time::Duration};

use clock::{Clock, Instant};
use shop::http_client::workspace_path;
use tokio::{
    io::{AsyncReadExt, AsyncWriteExt},
    net::TcpStream,
};
use vvm_tests::bench::{BenchError, request_bytes};

use crate::writers::{Sent, WS};

/// A client that follows the log from its end on.
pub(crate) struct BenchFollower {
    stream: TcpStream,
    read: Vec<u8>,
    clock: Clock,
}

/// The events that a client got.
#[derive(Default)]
pub(crate) struct Delivered {
    /// The offset of each event, the id of the request that wrote it, and when it came.
    events: Vec<(u64, u64, Instant)>,
}

impl BenchFollower {
    /// Connects, and waits for the head of the answer.
    pub(crate) async fn open(node: SocketAddr, clock: &Clock) -> Result<BenchFollower, BenchError> {
        let mut stream = TcpStream::connect(node).await?;
        let path = format!("{}/wlog?follow=true&from=end", workspace_path(WS));
        stream.write_all(&request_bytes("GET", &path, "", "")).await?;
        let mut follower = BenchFollower { stream, read: Vec::new(), clock: clock.clone() };
        while !follower.read.windows(4).any(|end| end == b"\r\n\r\n") {
            if follower.stream.read_buf(&mut follower.read).await? == 0 {
                return Err("the node hung up".into());
            }
        }
        match follower.read.starts_with(b"HTTP/1.1 200 ") {
            true => Ok(follower),
            false => Err(String::from_utf8_lossy(&follower.read).into()),
        }
    }

    /// Takes events until the node ends the answer.
    pub(crate) async fn run(mut self) -> Result<Delivered, BenchError> {
        let mut delivered = Delivered::default();
        while self.stream.read_buf(&mut self.read).await? > 0 {
            let now = self.clock.now();
            let Some(last) = self.read.iter().rposition(|byte| *byte == b'\n') else { continue };
            // The sizes of chunks are lines, too.
            for line in self.read[..last].split(|byte| *byte == b'\n') {
                if line.starts_with(b"{") {
                    let event: serde_json::Value = serde_json::from_slice(line)?;
                    let offset = event["wlogOffset"].as_u64().ok_or("an event without offset")?;
                    let id = event["requestId"].as_str().ok_or("an event without request")?;
                    delivered.events.push((offset, id.parse()?, now));
                }
            }
            self.read.drain(..=last);
        }
        Ok(delivered)
    }
}

impl Delivered {
    /// The number of events that did not come, or came twice or in a wrong order.
    pub(crate) fn wrong(&self, sent: &Sent) -> usize {
        let pairs = self.events.iter().zip(self.events.iter().skip(1));
        let breaks = pairs.filter(|(one, next)| next.0 != one.0 + 1).count();
        breaks + sent.len().abs_diff(self.events.len())
    }

    /// The time that each event took.
    pub(crate) fn times(&self, sent: &Sent) -> impl Iterator<Item = Duration> {
        self.events.iter().filter_map(|(_, id, came)| Some(*came - sent.get(id)?.0))
    }
}
