//! The port of a service, and the queue of connections that wait to be accepted.

use std::{io, net::SocketAddr};

use tokio::net::{TcpListener, TcpSocket, TcpStream};

/// The number of connections that may wait in the kernel to be accepted. If the queue is full, the
/// client tries again after a second.
const BACKLOG: u32 = 1_024;

/// The number of accepted connections that wait for a place. Each is an open file.
pub(super) const WAITING: usize = 16;

/// The room for bytes that a client sends, and for those that wait to be sent to a client. Without
/// a bound Linux gives megabytes to each connection that its client does not read.
///
/// Bytes that are on their way to the client do not count: fast lines need many of them. They take
/// memory only until the kernel of the client says that it has them.
const RECEIVED_BYTES: u32 = 64 << 10;
const UNSENT_BYTES: u32 = 32 << 10;

/// The memory that the kernel takes for a connection that nobody reads. Linux takes twice as
/// much as it gives room, and notices up to 64 KiB too late that enough bytes wait to be sent.
const SOCKET_BYTES: usize = 2 * (RECEIVED_BYTES + UNSENT_BYTES) as usize + (64 << 10);

/// The most memory that the kernel takes for a port with this many places, if nobody takes the
/// answers. It includes the connections that wait for a place and have sent requests already.
pub fn most_socket_bytes(connections: usize) -> usize {
    const OF_WAITING: usize = (WAITING + BACKLOG as usize) * 2 * RECEIVED_BYTES as usize;
    connections.saturating_mul(SOCKET_BYTES).saturating_add(OF_WAITING)
}

/// Takes a port. The listener belongs to no runtime until [`serve`](super::Server::serve) is called
/// on a runtime.
pub fn bind(address: SocketAddr) -> io::Result<std::net::TcpListener> {
    let listen = || {
        let socket = if address.is_ipv4() { TcpSocket::new_v4()? } else { TcpSocket::new_v6()? };
        // Connections of a former process may still hold the port.
        socket.set_reuseaddr(true)?;
        // The connections of the listener inherit both.
        socket.set_recv_buffer_size(RECEIVED_BYTES)?;
        set_unsent_bytes(&socket)?;
        socket.bind(address)?;
        socket.listen(BACKLOG)?.into_std()
    };
    listen().map_err(|error| io::Error::new(error.kind(), format!("{address}: {error}")))
}

#[cfg(target_os = "linux")]
fn set_unsent_bytes(socket: &TcpSocket) -> io::Result<()> {
    socket2::SockRef::from(socket).set_tcp_notsent_lowat(UNSENT_BYTES)
}

#[cfg(not(target_os = "linux"))]
fn set_unsent_bytes(socket: &TcpSocket) -> io::Result<()> {
    socket.set_send_buffer_size(UNSENT_BYTES)
}

/// The connections that wait to be accepted. This function asks the kernel, because the runtime
/// learns of connections a moment later, and only of some at a time.
pub(super) fn pending_connections(
    listener: TcpListener,
) -> impl Iterator<Item = (TcpStream, SocketAddr)> {
    let accept = |listener: &std::net::TcpListener| {
        let (stream, peer) = listener.accept()?;
        stream.set_nonblocking(true)?;
        Ok::<_, io::Error>((TcpStream::from_std(stream)?, peer))
    };
    let listener = listener.into_std().ok();
    let all = std::iter::from_fn(move || listener.as_ref().map(accept));
    all.take(BACKLOG as usize)
        .filter(|next| {
            // The connection is gone already.
            !matches!(next, Err(error) if error.kind() == io::ErrorKind::ConnectionAborted)
        })
        .map_while(Result::ok)
}
