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
        TcpListener, TcpSocket, TcpStream,
        tcp::{OwnedReadHalf, OwnedWriteHalf},
    },
    sync::watch,
    task::JoinSet,
};

/// The connections that wait for a link to accept them.
const BACKLOG: u32 = 1_024;

/// The pause until a link that cannot listen tries again.
const LISTEN_AGAIN: Duration = Duration::from_millis(20);

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

    fn ends_connections(self) -> bool {
        matches!(self, Traffic::Cut | Traffic::Refused)
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
        tasks.spawn(accept(listen(address)?, server, watched));
        Ok(Link { address, server, seen, traffic, _port: port, _tasks: tasks })
    }

    /// Whether there was a connection over this link.
    pub(crate) fn was_used(&self) -> bool {
        self.seen.connection.load(Ordering::SeqCst)
    }

    /// Whether the last traffic that was not whole hit a connection or a byte. Nobody sees the
    /// connections that are refused, so they always count as hit.
    pub(crate) fn was_hit(&self) -> bool {
        self.seen.hit.load(Ordering::SeqCst)
    }

    pub(crate) fn set(&self, traffic: Traffic) {
        if traffic != Traffic::WHOLE {
            self.seen.hit.store(traffic == Traffic::Refused, Ordering::SeqCst);
        }
        self.traffic.send_replace(traffic);
    }
}

/// A socket with an address that several sockets of this user may have at the same time.
fn bound(address: SocketAddr) -> io::Result<TcpSocket> {
    let socket = TcpSocket::new_v4()?;
    socket.set_reuseport(true)?;
    socket.bind(address)?;
    Ok(socket)
}

fn listen(address: SocketAddr) -> io::Result<TcpListener> {
    bound(address)?.listen(BACKLOG)
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

async fn accept(listener: TcpListener, server: SocketAddr, mut watched: Watched) {
    let Ok(address) = listener.local_addr() else { return };
    let (mut listening, mut connections) = (Some(listener), JoinSet::new());
    loop {
        let now = *watched.traffic.borrow_and_update();
        match now {
            Traffic::Refused => listening = None,
            // Another socket has the port, so a failure is one of this moment.
            _ if listening.is_none() => listening = listen(address).ok(),
            _ => {}
        }
        let is_late = listening.is_none() && now != Traffic::Refused;
        tokio::select! {
            Some(accepted) = next(listening.as_ref()) => {
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

/// The next connection. `None` at once if nothing listens.
async fn next(listener: Option<&TcpListener>) -> Option<io::Result<(TcpStream, SocketAddr)>> {
    Some(listener?.accept().await)
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
                // The other side hears of the end as late as of bytes.
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
            loop {
                let (mut stream, _) = listener.accept().await.unwrap();
                let (mut read, mut write) = stream.split();
                // The link may be cut.
                let _ = io::copy(&mut read, &mut write).await;
            }
        });
        let link = Link::start(server, clock).await.unwrap();
        let stream = TcpStream::connect(link.address).await.unwrap();
        (tasks, link, stream)
    }

    #[tokio::test]
    async fn bytes_that_stall_pass_when_the_fault_is_over() {
        let clock = Clock::system();
        for traffic in [
            Traffic::Flows { to_server: Flow::Stalled, to_client: Flow::Whole },
            Traffic::Flows { to_server: Flow::Whole, to_client: Flow::Stalled },
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
    async fn a_link_that_is_cut_or_refused_closes_its_connections() {
        let clock = Clock::system();
        for traffic in [Traffic::Cut, Traffic::Refused] {
            let (_server, link, mut stream) = connected(&clock).await;
            stream.write_all(b"a").await.unwrap();
            stream.read_exact(&mut [0]).await.unwrap();
            link.set(traffic);
            let mut byte = [0];
            let read = stream.read(&mut byte);
            let read = clock.timeout_at(clock.now() + SOON, read).await.unwrap();
            assert!(matches!(read, Ok(0) | Err(_)), "{traffic}: {read:?}");
        }
    }

    #[tokio::test]
    async fn new_connections_are_refused_at_once_until_the_fault_is_over() {
        let clock = Clock::system();
        let (_server, link, stream) = connected(&clock).await;
        drop(stream);
        let is_refused = async || {
            let connected = TcpStream::connect(link.address).await;
            connected.is_err_and(|error| error.kind() == io::ErrorKind::ConnectionRefused)
        };
        for _ in 0..3 {
            let deadline = clock.now() + SOON;
            link.set(Traffic::Refused);
            // The link may still take a connection that comes at the same moment.
            while !is_refused().await && clock.now() < deadline {}
            for _ in 0..5 {
                assert!(is_refused().await);
            }
            let taken = TcpListener::bind(link.address).await;
            assert!(taken.is_err(), "the port stays that of the link");
            link.set(Traffic::WHOLE);
            let mut stream = loop {
                match TcpStream::connect(link.address).await {
                    Ok(stream) => break stream,
                    Err(error) => assert!(clock.now() < deadline, "{error}"),
                }
            };
            stream.write_all(b"a").await.unwrap();
            let mut byte = [0];
            let read = stream.read_exact(&mut byte);
            clock.timeout_at(deadline, read).await.unwrap().unwrap();
        }
    }

    #[tokio::test]
    async fn bad_traffic_without_a_connection_or_a_byte_hits_nothing() {
        let clock = Clock::system();
        let (_server, link, mut stream) = connected(&clock).await;
        let mut byte = [0];
        let bad = [Traffic::both(Flow::Stalled), Traffic::both(Flow::Slow(1_000)), Traffic::Cut];
        for traffic in bad {
            stream.write_all(b"a").await.unwrap();
            stream.read_exact(&mut byte).await.unwrap();
            link.set(traffic);
            let is_cut = traffic == Traffic::Cut;
            if !is_cut {
                clock.sleep(SHORT).await;
                assert!(!link.was_hit(), "{traffic}: nobody sends anything");
                stream.write_all(b"a").await.unwrap();
            }
            let deadline = clock.now() + SOON;
            while !link.was_hit() && clock.now() < deadline {
                clock.sleep(Duration::from_millis(10)).await;
            }
            link.set(Traffic::WHOLE);
            assert!(link.was_hit(), "{traffic}");
            if !is_cut {
                stream.read_exact(&mut byte).await.unwrap();
            }
        }
        link.set(Traffic::Cut);
        clock.sleep(SHORT).await;
        assert!(!link.was_hit(), "there is no connection any more");
        drop(TcpStream::connect(link.address).await);
        let deadline = clock.now() + SOON;
        while !link.was_hit() && clock.now() < deadline {
            clock.sleep(Duration::from_millis(10)).await;
        }
        assert!(link.was_hit(), "a new connection was cut");
    }

    #[tokio::test]
    async fn the_end_of_a_connection_stalls_like_its_bytes() {
        let clock = Clock::system();
        let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
        let link = Link::start(listener.local_addr().unwrap(), &clock).await.unwrap();
        let client = TcpStream::connect(link.address).await.unwrap();
        let (mut server, _) = listener.accept().await.unwrap();
        link.set(Traffic::both(Flow::Stalled));
        drop(client);
        let mut byte = [0];
        let read = server.read(&mut byte);
        assert!(clock.timeout_at(clock.now() + SHORT, read).await.is_err(), "it heard of the end");
        link.set(Traffic::WHOLE);
        let read = server.read(&mut byte);
        assert_eq!(clock.timeout_at(clock.now() + SOON, read).await.unwrap().unwrap(), 0);
    }

    #[tokio::test]
    async fn slow_bytes_come_one_after_another() {
        let clock = Clock::system();
        let (_server, link, mut stream) = connected(&clock).await;
        link.set(Traffic::Flows { to_server: Flow::Slow(200), to_client: Flow::Whole });
        let start = clock.now();
        stream.write_all(&[7; 50]).await.unwrap();
        stream.read_exact(&mut [0; 50]).await.unwrap();
        assert!(clock.now() - start > Duration::from_millis(150));
    }
}
