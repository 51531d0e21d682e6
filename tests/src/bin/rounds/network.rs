//! Links between a node and the others: proxies that can be slow, silent, or cut.

mod listening;
#[cfg(test)]
mod tests;

use std::{
    fmt,
    net::SocketAddr,
    sync::{
        Arc,
        atomic::{AtomicBool, Ordering},
    },
    time::Duration,
};

use clock::Clock;
use serde::{Deserialize, Serialize};
use tokio::{
    io::{self, AsyncReadExt, AsyncWriteExt},
    net::{
        TcpSocket, TcpStream,
        tcp::{OwnedReadHalf, OwnedWriteHalf},
    },
    sync::watch,
    task::JoinSet,
};

use self::listening::{Door, Listening, bound};

/// The pause until a link that cannot listen tries again.
const LISTEN_AGAIN: Duration = Duration::from_millis(20);

/// What happens to the bytes in one direction.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub(crate) enum Flow {
    Whole,
    /// Each piece is late.
    Late(Duration),
    /// This many bytes in a second.
    Slow(u32),
    /// Nothing passes, and neither side is told. Nobody answers a new connection. What waits passes
    /// when the fault is over, as after a break in a network.
    Stalled,
}

/// What happens to the connections of a link.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub(crate) enum Traffic {
    /// The bytes of each direction pass in this way.
    Flows { to_server: Flow, to_client: Flow },
    /// Connections are closed, and new ones, too.
    Cut,
    /// Connections are closed, and nothing listens, as if the process of the server had ended.
    Refused,
}

impl Traffic {
    pub(crate) const WHOLE: Traffic = Traffic::both(Flow::Whole);

    pub(crate) const fn both(flow: Flow) -> Traffic {
        Traffic::Flows { to_server: flow, to_client: flow }
    }

    /// How much later an answer comes. `None` if the traffic does not just make it late.
    pub(crate) fn delay(self) -> Option<Duration> {
        let Traffic::Flows { to_server, to_client } = self else { return None };
        let delay = |flow| match flow {
            Flow::Whole => Some(Duration::ZERO),
            Flow::Late(delay) => Some(delay),
            Flow::Slow(_) | Flow::Stalled => None,
        };
        Some(delay(to_server)? + delay(to_client)?)
    }

    fn ends_connections(self) -> bool {
        matches!(self, Traffic::Cut | Traffic::Refused)
    }

    fn door(self) -> Door {
        match self {
            Traffic::Flows { to_server: Flow::Stalled, .. }
            | Traffic::Flows { to_client: Flow::Stalled, .. } => Door::Silent,
            Traffic::Flows { .. } | Traffic::Cut => Door::Open,
            Traffic::Refused => Door::Closed,
        }
    }
}

impl fmt::Display for Traffic {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Traffic::Flows { to_server, to_client } => {
                write!(f, "there {to_server:?}, back {to_client:?}")
            }
            Traffic::Cut => f.write_str("cut"),
            Traffic::Refused => f.write_str("refused"),
        }
    }
}

/// What a link has seen.
#[derive(Debug, Default)]
struct Seen {
    connection: AtomicBool,
    /// A connection or a byte that the last bad traffic hit.
    hit: AtomicBool,
}

/// A proxy in front of a server. Dropping it closes all its connections.
pub(crate) struct Link {
    pub(crate) address: SocketAddr,
    pub(crate) server: SocketAddr,
    seen: Arc<Seen>,
    traffic: watch::Sender<Traffic>,
    /// Keeps the port while nothing listens.
    _port: TcpSocket,
    _tasks: JoinSet<()>,
}

impl Link {
    pub(crate) async fn start(server: SocketAddr, clock: &Clock) -> io::Result<Link> {
        let port = bound(SocketAddr::from(([127, 0, 0, 1], 0)))?;
        let address = port.local_addr()?;
        let (traffic, watched) = watch::channel(Traffic::WHOLE);
        let seen = Arc::default();
        let mut tasks = JoinSet::new();
        let watched = Watched { traffic: watched, seen: Arc::clone(&seen), clock: clock.clone() };
        let listening = Listening::start(Door::Open, address, clock).await?;
        tasks.spawn(accept(listening, address, server, watched));
        Ok(Link { address, server, seen, traffic, _port: port, _tasks: tasks })
    }

    /// Whether there was a connection over this link.
    pub(crate) fn was_used(&self) -> bool {
        self.seen.connection.load(Ordering::SeqCst)
    }

    /// Whether the last traffic that was not whole hit a connection or a byte. Nobody sees the
    /// connections that are refused or get no answer, so they always count as hit.
    pub(crate) fn was_hit(&self) -> bool {
        self.seen.hit.load(Ordering::SeqCst)
    }

    pub(crate) fn set(&self, traffic: Traffic) {
        if traffic != Traffic::WHOLE {
            self.seen.hit.store(traffic.door() != Door::Open, Ordering::SeqCst);
        }
        self.traffic.send_replace(traffic);
    }
}

/// What the tasks of a link have.
#[derive(Clone)]
struct Watched {
    traffic: watch::Receiver<Traffic>,
    seen: Arc<Seen>,
    clock: Clock,
}

impl Watched {
    fn note_hit(&self) {
        self.seen.hit.store(true, Ordering::SeqCst);
    }
}

async fn accept(
    mut listening: Listening,
    address: SocketAddr,
    server: SocketAddr,
    mut watched: Watched,
) {
    let mut connections = JoinSet::new();
    loop {
        let door = watched.traffic.borrow_and_update().door();
        if listening.door() != door {
            // Two sockets that listen would share the connections.
            drop(listening);
            let started = Listening::start(door, address, &watched.clock).await;
            // Another socket has the port, so a failure is one of this moment.
            listening = started.unwrap_or(Listening::Closed);
        }
        let is_late = listening.door() != door;
        tokio::select! {
            Some(accepted) = listening.next() => {
                // A failed accept is that of one connection.
                let Ok((client, _)) = accepted else { continue };
                watched.seen.connection.store(true, Ordering::SeqCst);
                match watched.traffic.borrow().ends_connections() {
                    true => watched.note_hit(),
                    false => drop(connections.spawn(connect(client, server, watched.clone()))),
                }
            }
            Some(_) = connections.join_next(), if !connections.is_empty() => {}
            changed = watched.traffic.changed() => if changed.is_err() { return },
            () = watched.clock.sleep(LISTEN_AGAIN), if is_late => {}
        }
    }
}

/// Passes the bytes of a connection until it ends, or the link is cut.
async fn connect(client: TcpStream, server: SocketAddr, mut watched: Watched) {
    let (up, down, seen) = (watched.clone(), watched.clone(), watched.clone());
    let passing = async {
        let server = TcpStream::connect(server).await?;
        server.set_nodelay(true)?;
        client.set_nodelay(true)?;
        let ((from_client, to_client), (from_server, to_server)) =
            (client.into_split(), server.into_split());
        let up = Direction { watched: up, is_to_server: true };
        let down = Direction { watched: down, is_to_server: false };
        let (up, down) =
            tokio::join!(up.pass(from_client, to_server), down.pass(from_server, to_client));
        up.and(down)
    };
    tokio::select! {
        // The sides see the end of a connection by themselves.
        _ = passing => {}
        _ = watched.traffic.wait_for(|traffic| traffic.ends_connections()) => seen.note_hit(),
    }
}

/// One direction of a connection.
struct Direction {
    watched: Watched,
    is_to_server: bool,
}

impl Direction {
    async fn pass(mut self, mut from: OwnedReadHalf, mut to: OwnedWriteHalf) -> io::Result<()> {
        let mut bytes = vec![0; 64 << 10];
        loop {
            let count = from.read(&mut bytes).await.unwrap_or(0);
            if count == 0 {
                // The end reaches the other side as late as bytes do.
                self.allowed(1).await;
                return to.shutdown().await;
            }
            let mut left = &bytes[..count];
            while !left.is_empty() {
                let count = self.allowed(left.len()).await;
                to.write_all(&left[..count]).await?;
                left = &left[count..];
            }
        }
    }

    /// Waits until bytes may pass, and returns how many.
    async fn allowed(&mut self, count: usize) -> usize {
        loop {
            let flow = match *self.watched.traffic.borrow_and_update() {
                Traffic::Flows { to_server, .. } if self.is_to_server => to_server,
                Traffic::Flows { to_client, .. } => to_client,
                // The connection is about to end.
                Traffic::Cut | Traffic::Refused => Flow::Stalled,
            };
            if flow != Flow::Whole {
                self.watched.note_hit();
            }
            match flow {
                Flow::Whole => return count,
                Flow::Late(delay) => {
                    self.watched.clock.sleep(delay).await;
                    return count;
                }
                Flow::Slow(per_second) => {
                    let piece = (per_second / 20).max(1);
                    self.watched.clock.sleep(Duration::from_millis(50)).await;
                    return count.min(piece as usize);
                }
                Flow::Stalled => {}
            }
            if self.watched.traffic.changed().await.is_err() {
                return count;
            }
        }
    }
}
