//! The clients that write events at a steady rate.

use std::{collections::HashMap, net::SocketAddr, time::Duration};

use clock::{Clock, Instant};
use shop::http_client::command_path;
use tokio::task::JoinSet;
use vvm_tests::bench::{BenchError, KeptConnection, request_bytes};

/// The workspace that is followed.
pub(crate) const WS: u64 = 1;

/// The number of connections. An event does not wait for the one before.
const CONNECTIONS: usize = 64;

/// When the commands were sent and answered, by the ids of their requests.
pub(crate) type Sent = HashMap<u64, (Instant, Instant)>;

/// The clients that write events.
pub(crate) struct Writers {
    connections: Vec<KeptConnection>,
    clock: Clock,
    /// The id of the next request.
    next: u64,
}

impl Writers {
    /// Connects to a new node, and makes the workspace.
    pub(crate) async fn connect(node: SocketAddr, clock: &Clock) -> Result<Writers, BenchError> {
        let mut connections = Vec::new();
        for _ in 0..CONNECTIONS {
            connections.push(KeptConnection::connect(node).await?);
        }
        let workspace = post("sys.CreateWorkspace", 0, r#"{"args":{"kind":"Shop"}}"#);
        connections[0].ask(&workspace).await?;
        Ok(Writers { connections, clock: clock.clone(), next: 1 })
    }

    /// Writes events for a time. The events are spread evenly, whatever each of them takes.
    pub(crate) async fn write(
        &mut self,
        per_second: u32,
        span: Duration,
    ) -> Result<Sent, BenchError> {
        let count = u64::from(per_second) * span.as_secs();
        let (first, start) = (self.next, self.clock.now());
        self.next += count;
        let mut running = JoinSet::new();
        for (number, mut connection) in (0..).zip(self.connections.drain(..)) {
            let clock = self.clock.clone();
            running.spawn(async move {
                let mut sent = Sent::new();
                for event in (number..count).step_by(CONNECTIONS) {
                    let at = span.mul_f64(event as f64 / count as f64);
                    clock.sleep_until(start + at).await;
                    let id = first + event;
                    let row = r#"{"rows":[{"id":1,"table":"shop.Article"}]}"#;
                    let command = post("sys.CUD", id, row);
                    let began = clock.now();
                    connection.ask(&command).await?;
                    sent.insert(id, (began, clock.now()));
                }
                Ok::<_, BenchError>((connection, sent))
            });
        }
        let mut all = Sent::new();
        while let Some(writer) = running.join_next().await {
            let (connection, sent) = writer??;
            self.connections.push(connection);
            all.extend(sent);
        }
        Ok(all)
    }
}

fn post(command: &str, id: u64, body: &str) -> Vec<u8> {
    request_bytes("POST", &command_path(WS, command), &format!("x-request-id: {id}\r\n"), body)
}
