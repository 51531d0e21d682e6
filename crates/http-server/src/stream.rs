//! The stream of a connection: plain TCP, or TLS over TCP.

use std::{
    io,
    pin::Pin,
    task::{Context, Poll},
    time::Duration,
};

use futures::FutureExt;
use tokio::{
    io::{AsyncRead, AsyncWrite, AsyncWriteExt, ReadBuf},
    net::TcpStream,
};
use tokio_rustls::TlsStream;
use tracing::debug;

/// The stream of a connection.
#[derive(Debug)]
pub enum NodeStream {
    /// Without TLS.
    Plain(TcpStream),
    /// With TLS.
    Tls(Box<TlsStream<TcpStream>>),
}

impl NodeStream {
    pub(crate) fn is_plain(&self) -> bool {
        matches!(self, NodeStream::Plain(_))
    }

    /// Whether TLS has taken bytes that the kernel has not taken from it.
    pub(crate) fn has_unsent(&self) -> bool {
        match self {
            NodeStream::Plain(_) => false,
            NodeStream::Tls(stream) => stream.get_ref().1.wants_write(),
        }
    }

    /// The connection below TLS.
    pub(crate) fn tcp(&self) -> &TcpStream {
        match self {
            NodeStream::Plain(stream) => stream,
            NodeStream::Tls(stream) => stream.get_ref().0,
        }
    }

    /// Tells a client with TLS that the connection ends, if the kernel takes the message at once.
    /// Without the message the client could not tell the end from a cut.
    pub(crate) fn hang_up(&mut self) {
        if let NodeStream::Tls(stream) = self {
            let _ = stream.shutdown().now_or_never();
        }
    }

    /// Makes the kernel reset the connection when the stream is dropped. The kernel forgets the
    /// bytes that the client has not taken, and the client can tell the cut from an orderly end.
    pub fn reset(&self) {
        let linger = rustix::net::sockopt::set_socket_linger(self.tcp(), Some(Duration::ZERO));
        if let Err(error) = linger {
            debug!(%error, "SO_LINGER could not be set");
        }
    }
}

impl AsyncRead for NodeStream {
    fn poll_read(
        self: Pin<&mut Self>,
        context: &mut Context<'_>,
        buffer: &mut ReadBuf<'_>,
    ) -> Poll<io::Result<()>> {
        match self.get_mut() {
            NodeStream::Plain(stream) => Pin::new(stream).poll_read(context, buffer),
            NodeStream::Tls(stream) => Pin::new(stream).poll_read(context, buffer),
        }
    }
}

impl AsyncWrite for NodeStream {
    fn poll_write(
        self: Pin<&mut Self>,
        context: &mut Context<'_>,
        bytes: &[u8],
    ) -> Poll<io::Result<usize>> {
        match self.get_mut() {
            NodeStream::Plain(stream) => Pin::new(stream).poll_write(context, bytes),
            NodeStream::Tls(stream) => Pin::new(stream).poll_write(context, bytes),
        }
    }

    fn poll_write_vectored(
        self: Pin<&mut Self>,
        context: &mut Context<'_>,
        slices: &[io::IoSlice<'_>],
    ) -> Poll<io::Result<usize>> {
        match self.get_mut() {
            NodeStream::Plain(stream) => Pin::new(stream).poll_write_vectored(context, slices),
            NodeStream::Tls(stream) => Pin::new(stream).poll_write_vectored(context, slices),
        }
    }

    fn is_write_vectored(&self) -> bool {
        match self {
            NodeStream::Plain(stream) => stream.is_write_vectored(),
            NodeStream::Tls(stream) => stream.is_write_vectored(),
        }
    }

    fn poll_flush(self: Pin<&mut Self>, context: &mut Context<'_>) -> Poll<io::Result<()>> {
        match self.get_mut() {
            NodeStream::Plain(stream) => Pin::new(stream).poll_flush(context),
            NodeStream::Tls(stream) => Pin::new(stream).poll_flush(context),
        }
    }

    fn poll_shutdown(self: Pin<&mut Self>, context: &mut Context<'_>) -> Poll<io::Result<()>> {
        match self.get_mut() {
            NodeStream::Plain(stream) => Pin::new(stream).poll_shutdown(context),
            NodeStream::Tls(stream) => Pin::new(stream).poll_shutdown(context),
        }
    }
}
