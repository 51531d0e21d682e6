//! How a link takes new connections.

use std::{net::SocketAddr, time::Duration};

use clock::Clock;
use tokio::{
    io,
    net::{TcpListener, TcpSocket, TcpStream},
};

/// The connections that wait for a link to accept them.
const BACKLOG: u32 = 1_024;

/// The time for a connection of this program to itself.
const QUEUE_TIME: Duration = Duration::from_millis(50);

/// What a new connection meets.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Door {
    Open,
    /// No answer.
    Silent,
    /// A refusal.
    Closed,
}

/// A socket that listens, or none.
pub(super) enum Listening {
    Open(TcpListener),
    /// The queue of the listener is full, so the system drops what asks for a connection.
    Silent {
        _listener: TcpListener,
        _queued: Option<TcpStream>,
    },
    Closed,
}

impl Listening {
    pub(super) async fn start(
        door: Door,
        address: SocketAddr,
        clock: &Clock,
    ) -> io::Result<Listening> {
        Ok(match door {
            Door::Open => Listening::Open(bound(address)?.listen(BACKLOG)?),
            Door::Silent => {
                // The shortest queue has room for one connection.
                let listener = bound(address)?.listen(0)?;
                let queued = TcpStream::connect(address);
                // Without an answer, another connection was quicker.
                let queued = clock.timeout_at(clock.now() + QUEUE_TIME, queued).await;
                Listening::Silent { _listener: listener, _queued: queued.ok().transpose()? }
            }
            Door::Closed => Listening::Closed,
        })
    }

    pub(super) fn door(&self) -> Door {
        match self {
            Listening::Open(_) => Door::Open,
            Listening::Silent { .. } => Door::Silent,
            Listening::Closed => Door::Closed,
        }
    }

    /// The next connection. `None` at once if none is taken.
    pub(super) async fn next(&self) -> Option<io::Result<(TcpStream, SocketAddr)>> {
        match self {
            Listening::Open(listener) => Some(listener.accept().await),
            _ => None,
        }
    }
}

/// A socket with an address that several sockets of this user may have at the same time.
pub(super) fn bound(address: SocketAddr) -> io::Result<TcpSocket> {
    let socket = TcpSocket::new_v4()?;
    socket.set_reuseport(true)?;
    socket.bind(address)?;
    Ok(socket)
}
