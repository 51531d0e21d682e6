//! The port of a service, and the queue of connections that wait to be accepted.

use std::{io, net::SocketAddr};

use tokio::net::{TcpListener, TcpSocket, TcpStream};
use vvm::ServiceError;

/// The number of connections that may wait to be accepted. If the queue is full, the client tries
/// again after a second.
const BACKLOG: u32 = 4_096;

/// Takes a port. The listener belongs to no runtime until [`serve`](super::serve) is called on a
/// runtime.
pub(crate) fn bind(address: SocketAddr) -> Result<std::net::TcpListener, ServiceError> {
    let listen = || {
        let socket = if address.is_ipv4() { TcpSocket::new_v4()? } else { TcpSocket::new_v6()? };
        // Connections of a former process may still hold the port.
        socket.set_reuseaddr(true)?;
        socket.bind(address)?;
        socket.listen(BACKLOG)?.into_std()
    };
    listen().map_err(|error: io::Error| format!("{address}: {error}").into())
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
