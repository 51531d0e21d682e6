//! Links between a node and the others: proxies that can be slow, silent, or cut.

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
        TcpListener, TcpStream,
        tcp::{OwnedReadHalf, OwnedWriteHalf},
    },
    sync::watch,
    task::JoinSet,
};

/// What happens to the bytes in one direction.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub(crate) enum Flow {
    Whole,
    /// Each piece is late.
    Late(Duration),
    /// So many bytes in a second.
    Slow(u32),
    /// Nothing passes, and neither side is told. What waits passes when the fault is over, as after
    /// a break in a network.
    Stalled,
}

/// What happens to the connections of a link.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub(crate) struct Traffic {
    pub(crate) to_server: Flow,
    pub(crate) to_client: Flow,
    /// Connections are closed, and new ones, too.
    pub(crate) is_cut: bool,
}

impl Traffic {
    pub(crate) const WHOLE: Traffic = Traffic::both(Flow::Whole);
    pub(crate) const CUT: Traffic = Traffic { is_cut: true, ..Traffic::WHOLE };

    pub(crate) const fn both(flow: Flow) -> Traffic {
        Traffic { to_server: flow, to_client: flow, is_cut: false }
    }
}

impl fmt::Display for Traffic {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let Traffic { to_server, to_client, is_cut } = self;
        if *is_cut { f.write_str("cut") } else { write!(f, "there {to_server:?}, back {to_client:?}") }
    }
}

/// A proxy in front of a server. Dropping it closes all its connections.
pub(crate) struct Link {
    pub(crate) address: SocketAddr,
    pub(crate) server: SocketAddr,
    was_used: Arc<AtomicBool>,
    traffic: watch::Sender<Traffic>,
    _tasks: JoinSet<()>,
}

impl Link {
    pub(crate) async fn start(server: SocketAddr, clock: &Clock) -> io::Result<Link> {
        let listener = TcpListener::bind("127.0.0.1:0").await?;
        let address = listener.local_addr()?;
        let (traffic, watched) = watch::channel(Traffic::WHOLE);
        let was_used = Arc::default();
        let mut tasks = JoinSet::new();
        let (used, clock) = (Arc::clone(&was_used), clock.clone());
        tasks.spawn(accept(listener, server, watched, used, clock));
        Ok(Link { address, server, was_used, traffic, _tasks: tasks })
    }

    /// Whether there was a connection over this link.
    pub(crate) fn was_used(&self) -> bool {
        self.was_used.load(Ordering::SeqCst)
    }

    pub(crate) fn set(&self, traffic: Traffic) {
        self.traffic.send_replace(traffic);
    }
}

async fn accept(
    listener: TcpListener,
    server: SocketAddr,
    traffic: watch::Receiver<Traffic>,
    was_used: Arc<AtomicBool>,
    clock: Clock,
) {
    let mut connections = JoinSet::new();
    loop {
        tokio::select! {
            accepted = listener.accept() => {
                // A failed accept is that of one connection.
                let Ok((client, _)) = accepted else { continue };
                was_used.store(true, Ordering::SeqCst);
                if !traffic.borrow().is_cut {
                    connections.spawn(connect(client, server, traffic.clone(), clock.clone()));
                }
            }
            Some(_) = connections.join_next(), if !connections.is_empty() => {}
        }
    }
}

/// Passes the bytes of a connection until it ends, or the link is cut.
async fn connect(
    client: TcpStream,
    server: SocketAddr,
    mut traffic: watch::Receiver<Traffic>,
    clock: Clock,
) {
    let (up, down) = (traffic.clone(), traffic.clone());
    let passing = async {
        let server = TcpStream::connect(server).await?;
        server.set_nodelay(true)?;
        client.set_nodelay(true)?;
        let ((from_client, to_client), (from_server, to_server)) =
            (client.into_split(), server.into_split());
        let up = Direction { traffic: up, of: |traffic| traffic.to_server, clock: clock.clone() };
        let down = Direction { traffic: down, of: |traffic| traffic.to_client, clock };
        let (up, down) =
            tokio::join!(up.pass(from_client, to_server), down.pass(from_server, to_client));
        up.and(down)
    };
    tokio::select! {
        // The sides see the end of a connection by themselves.
        _ = passing => {}
        _ = traffic.wait_for(|traffic| traffic.is_cut) => {}
    }
}

/// One direction of a connection.
struct Direction {
    traffic: watch::Receiver<Traffic>,
    of: fn(&Traffic) -> Flow,
    clock: Clock,
}

impl Direction {
    async fn pass(mut self, mut from: OwnedReadHalf, mut to: OwnedWriteHalf) -> io::Result<()> {
        let mut bytes = vec![0; 64 << 10];
        loop {
            let count = from.read(&mut bytes).await?;
            if count == 0 {
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
            let flow = (self.of)(&self.traffic.borrow_and_update());
            match flow {
                Flow::Whole => return count,
                Flow::Late(delay) => {
                    self.clock.sleep(delay).await;
                    return count;
                }
                Flow::Slow(per_second) => {
                    let piece = (per_second / 20).max(1);
                    self.clock.sleep(Duration::from_millis(50)).await;
                    return count.min(piece as usize);
                }
                Flow::Stalled => {}
            }
            if self.traffic.changed().await.is_err() {
                return count;
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const SOON: Duration = Duration::from_secs(10);
    const SHORT: Duration = Duration::from_millis(100);

    /// A server that sends back what it receives, a link to it, and a connection over the link.
    async fn connected(clock: &Clock) -> (JoinSet<()>, Link, TcpStream) {
        let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
        let server = listener.local_addr().unwrap();
        let mut tasks = JoinSet::new();
        tasks.spawn(async move {
            let (mut stream, _) = listener.accept().await.unwrap();
            let (mut read, mut write) = stream.split();
            // The link may be cut.
            let _ = io::copy(&mut read, &mut write).await;
        });
        let link = Link::start(server, clock).await.unwrap();
        let stream = TcpStream::connect(link.address).await.unwrap();
        (tasks, link, stream)
    }

    #[tokio::test]
    async fn bytes_that_stall_pass_when_the_fault_is_over() {
        let clock = Clock::system();
        for traffic in [
            Traffic { to_server: Flow::Stalled, ..Traffic::WHOLE },
            Traffic { to_client: Flow::Stalled, ..Traffic::WHOLE },
        ] {
            let (_server, link, mut stream) = connected(&clock).await;
            let mut byte = [0];
            stream.write_all(b"a").await.unwrap();
            stream.read_exact(&mut byte).await.unwrap();
            link.set(traffic);
            stream.write_all(b"b").await.unwrap();
            let read = stream.read_exact(&mut byte);
            assert!(clock.timeout_at(clock.now() + SHORT, read).await.is_err(), "{traffic:?}");
            link.set(Traffic::WHOLE);
            let read = stream.read_exact(&mut byte);
            clock.timeout_at(clock.now() + SOON, read).await.unwrap().unwrap();
            assert_eq!(byte, *b"b");
        }
    }

    #[tokio::test]
    async fn a_link_that_is_cut_closes_its_connections() {
        let clock = Clock::system();
        let (_server, link, mut stream) = connected(&clock).await;
        stream.write_all(b"a").await.unwrap();
        stream.read_exact(&mut [0]).await.unwrap();
        link.set(Traffic::CUT);
        let mut byte = [0];
        let read = stream.read(&mut byte);
        let read = clock.timeout_at(clock.now() + SOON, read).await.unwrap();
        assert!(matches!(read, Ok(0) | Err(_)), "{read:?}");
    }

    #[tokio::test]
    async fn slow_bytes_come_one_after_another() {
        let clock = Clock::system();
        let (_server, link, mut stream) = connected(&clock).await;
        link.set(Traffic { to_server: Flow::Slow(200), ..Traffic::WHOLE });
        let start = clock.now();
        stream.write_all(&[7; 50]).await.unwrap();
        stream.read_exact(&mut [0; 50]).await.unwrap();
        assert!(clock.now() - start > Duration::from_millis(150));
    }
}
