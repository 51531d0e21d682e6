//! The stream of a connection. It notes the bytes that the client takes.

use std::{
    io,
    pin::Pin,
    sync::{
        Arc,
        atomic::{AtomicBool, AtomicU64, Ordering},
    },
    task::{Context, Poll},
    time::Duration,
};

use clock::Clock;
use hyper::rt::{Read, ReadBufCursor, Write};
use hyper_util::rt::TokioIo;

use super::active_requests::{ActiveRequest, ActiveRequests, WaitingPiece};
use crate::stream::NodeStream;

/// The state that the stream of a connection and its requests share.
#[derive(Debug, Default)]
pub(super) struct ConnectionState {
    pub(super) under_way: ActiveRequests,
    /// The number of requests that have arrived.
    requests: AtomicU64,
    /// Whether the connection ends before a request.
    ends_here: AtomicBool,
    /// Whether a body was left unread.
    is_unread: AtomicBool,
    /// Whether the kernel gave up sending.
    is_timed_out: AtomicBool,
    /// The number of bytes that were sent.
    sent: AtomicU64,
    /// Whether the port has let the client in.
    is_let_in: AtomicBool,
    /// Whether the client speaks plain HTTP to a port with TLS.
    lacks_tls: bool,
}

impl ConnectionState {
    pub(super) fn new(lacks_tls: bool, is_let_in: bool) -> ConnectionState {
        let is_let_in = AtomicBool::new(is_let_in);
        ConnectionState { is_let_in, lacks_tls, ..ConnectionState::default() }
    }

    pub(super) fn lacks_tls(&self) -> bool {
        self.lacks_tls
    }

    /// Notes that a request has arrived.
    pub(super) fn begin(&self) -> ActiveRequest {
        self.requests.fetch_add(1, Ordering::AcqRel);
        self.under_way.begin()
    }

    /// Whether the connection has had a request.
    pub(super) fn has_request(&self) -> bool {
        self.requests.load(Ordering::Acquire) > 0
    }

    /// Whether the connection has had more than one request.
    pub(super) fn has_next_request(&self) -> bool {
        self.requests.load(Ordering::Acquire) > 1
    }

    /// Ends the connection in favour of a new one, before a request that is not answered.
    pub(super) fn end_here(&self) {
        self.ends_here.store(true, Ordering::Release);
    }

    pub(super) fn ends_here(&self) -> bool {
        self.ends_here.load(Ordering::Acquire)
    }

    /// Notes that the rest of a body will not be read.
    pub(super) fn leave_unread(&self) {
        self.is_unread.store(true, Ordering::Release);
    }

    /// Whether the client may still be sending bytes that are not read.
    pub(super) fn is_unread(&self) -> bool {
        self.is_unread.load(Ordering::Acquire)
    }

    /// Notes that the port lets the client in.
    pub(super) fn let_in(&self) {
        self.is_let_in.store(true, Ordering::Release);
    }

    pub(super) fn is_let_in(&self) -> bool {
        self.is_let_in.load(Ordering::Acquire)
    }

    /// The wait for the client, if the node waits for the client.
    pub(super) fn client_wait(&self) -> Option<ClientWait> {
        self.under_way.wait_for_client().then(|| ClientWait {
            sent: self.sent.load(Ordering::Acquire),
            patience: match self.is_let_in() && !self.under_way.is_idle() {
                true => ANSWER_PATIENCE,
                false => Duration::ZERO,
            },
        })
    }

    /// Whether the kernel ended the connection because the client took nothing of an answer. Before
    /// the first request the client has only bytes of TLS to take.
    pub(super) fn is_not_taken(&self) -> bool {
        self.has_request() && self.is_timed_out.load(Ordering::Acquire)
    }
}

/// How long a client that the port let in may take nothing of its answer while other connections
/// wait for a place.
const ANSWER_PATIENCE: Duration = Duration::from_secs(10);

/// A wait for the client. As soon as the client takes a byte, the wait is another one.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct ClientWait {
    sent: u64,
    /// How long the wait lasts before the connection gives way to a new one.
    pub(super) patience: Duration,
}

/// The stream of a connection.
#[derive(Debug)]
pub(super) struct Transport {
    stream: TokioIo<NodeStream>,
    exchange: Arc<ConnectionState>,
    /// Holds the request while TLS has bytes of its answer that the kernel has not taken.
    unsent: Option<WaitingPiece>,
    clock: Clock,
}

impl Transport {
    pub(super) fn new(
        stream: NodeStream,
        exchange: Arc<ConnectionState>,
        clock: Clock,
    ) -> Transport {
        let stream = TokioIo::new(stream);
        Transport { stream, exchange, unsent: None, clock }
    }

    /// The stream itself, after hyper has finished with it.
    pub(super) fn stream(&mut self) -> &mut NodeStream {
        self.stream.inner_mut()
    }

    /// Notes the bytes that were sent, and whether TLS holds bytes that the kernel has not taken.
    /// To hyper these bytes are written, and hyper drops the pieces of the answer. Without this
    /// note, the connection would be idle while its client still waits for them.
    fn note_sent(&mut self, written: &Poll<io::Result<usize>>) {
        if let Poll::Ready(Ok(bytes)) = written {
            self.exchange.sent.fetch_add(*bytes as u64, Ordering::AcqRel);
        }
        if !self.stream.inner().has_unsent() {
            self.unsent = None;
        } else if self.unsent.is_none() {
            let begun = Arc::new(self.exchange.under_way.begin());
            self.unsent = Some(WaitingPiece::new(begun, self.clock.clone()));
        }
    }

    /// Notes whether the kernel gave up sending. hyper does not tell: it reports an orderly end if
    /// the kernel has the whole answer.
    fn note_timeout<T>(&self, outcome: &Poll<io::Result<T>>) {
        if matches!(outcome, Poll::Ready(Err(error)) if error.kind() == io::ErrorKind::TimedOut) {
            self.exchange.is_timed_out.store(true, Ordering::Release);
        }
    }
}

impl Read for Transport {
    fn poll_read(
        mut self: Pin<&mut Self>,
        context: &mut Context<'_>,
        buffer: ReadBufCursor<'_>,
    ) -> Poll<io::Result<()>> {
        let read = Pin::new(&mut self.stream).poll_read(context, buffer);
        self.note_timeout(&read);
        read
    }
}

impl Write for Transport {
    fn poll_write(
        mut self: Pin<&mut Self>,
        context: &mut Context<'_>,
        bytes: &[u8],
    ) -> Poll<io::Result<usize>> {
        let written = Pin::new(&mut self.stream).poll_write(context, bytes);
        self.note_sent(&written);
        self.note_timeout(&written);
        written
    }

    fn poll_write_vectored(
        mut self: Pin<&mut Self>,
        context: &mut Context<'_>,
        slices: &[io::IoSlice<'_>],
    ) -> Poll<io::Result<usize>> {
        let written = Pin::new(&mut self.stream).poll_write_vectored(context, slices);
        self.note_sent(&written);
        self.note_timeout(&written);
        written
    }

    fn is_write_vectored(&self) -> bool {
        self.stream.is_write_vectored()
    }

    fn poll_flush(mut self: Pin<&mut Self>, context: &mut Context<'_>) -> Poll<io::Result<()>> {
        let flushed = Pin::new(&mut self.stream).poll_flush(context);
        self.note_sent(&Poll::Ready(Ok(0)));
        self.note_timeout(&flushed);
        flushed
    }

    fn poll_shutdown(mut self: Pin<&mut Self>, context: &mut Context<'_>) -> Poll<io::Result<()>> {
        Pin::new(&mut self.stream).poll_shutdown(context)
    }
}

#[cfg(test)]
mod tests {
    use std::{future::poll_fn, time::Duration};

    use clock::ManualClock;
    use futures::FutureExt;
    use hyper::rt::ReadBuf;
    use rcgen::generate_simple_self_signed;
    use tokio::{
        io::{AsyncReadExt, AsyncWriteExt},
        net::{TcpListener, TcpStream},
    };
    use tokio_rustls::{
        TlsAcceptor, TlsConnector,
        rustls::{ClientConfig, RootCertStore, ServerConfig, crypto::aws_lc_rs},
    };

    use super::*;

    /// Both ends of a connection with TLS.
    async fn connected() -> (NodeStream, NodeStream) {
        let signed = generate_simple_self_signed(["node".to_owned()]).unwrap();
        let mut roots = RootCertStore::empty();
        roots.add(signed.cert.der().clone()).unwrap();
        let provider = Arc::new(aws_lc_rs::default_provider());
        let key = signed.signing_key.serialize_der().try_into().unwrap();
        let server = ServerConfig::builder_with_provider(Arc::clone(&provider))
            .with_safe_default_protocol_versions()
            .unwrap()
            .with_no_client_auth()
            .with_single_cert(vec![signed.cert.der().clone()], key)
            .unwrap();
        let client = ClientConfig::builder_with_provider(provider)
            .with_safe_default_protocol_versions()
            .unwrap()
            .with_root_certificates(roots)
            .with_no_client_auth();
        let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
        let stream = TcpStream::connect(listener.local_addr().unwrap()).await.unwrap();
        let connector = TlsConnector::from(Arc::new(client));
        let (accepted, _) = listener.accept().await.unwrap();
        let acceptor = TlsAcceptor::from(Arc::new(server));
        let name = "node".try_into().unwrap();
        let (server, client) =
            tokio::join!(acceptor.accept(accepted), connector.connect(name, stream));
        let [server, client] = [server.unwrap().into(), client.unwrap().into()];
        (NodeStream::Tls(Box::new(server)), NodeStream::Tls(Box::new(client)))
    }

    /// TLS takes up to 64 KiB more than the kernel. To hyper these bytes are written, so the
    /// connection was idle: it could give way to a new one, and a stop could end it, while its
    /// client still received. The time of the client did not run.
    #[tokio::test]
    async fn a_connection_is_busy_until_the_kernel_has_what_tls_took() {
        let manual = ManualClock::new(0);
        let (server, mut client) = connected().await;
        let exchange = Arc::new(ConnectionState::new(false, true));
        let mut transport = Transport::new(server, Arc::clone(&exchange), manual.clock());
        // A request. hyper has written its answer.
        drop(exchange.begin());
        let chunk = vec![0; 10_000];
        let mut sent = 0;
        loop {
            let written = poll_fn(|context| Pin::new(&mut transport).poll_write(context, &chunk));
            match written.now_or_never() {
                Some(written) => sent += written.unwrap(),
                None => break,
            }
        }
        assert!(!exchange.under_way.is_idle(), "{sent} bytes, of which TLS holds the last");
        manual.advance(Duration::from_secs(3));
        assert_eq!(exchange.under_way.taken(manual.clock().now()), Duration::from_secs(3));
        let receive = async {
            let mut received = vec![0; sent];
            client.read_exact(&mut received).await.unwrap();
        };
        let flush = poll_fn(|context| Pin::new(&mut transport).poll_flush(context));
        tokio::join!(async { flush.await.unwrap() }, receive);
        assert!(exchange.under_way.is_idle());
    }

    /// A cut whose answer the kernel had taken was neither logged nor counted: hyper takes the
    /// failed read of an idle connection for an orderly end.
    #[tokio::test]
    async fn a_client_that_takes_nothing_is_known_by_the_failed_read() {
        let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
        let client = TcpStream::connect(listener.local_addr().unwrap()).await.unwrap();
        let (mut accepted, _) = listener.accept().await.unwrap();
        rustix::net::sockopt::set_tcp_user_timeout(&accepted, 100).unwrap();
        // More than the client has room for.
        while accepted.write(&[0; 10_000]).now_or_never().is_some() {}
        let exchange = Arc::new(ConnectionState::new(false, true));
        let clock = ManualClock::new(0).clock();
        let mut transport =
            Transport::new(NodeStream::Plain(accepted), Arc::clone(&exchange), clock);
        assert!(!exchange.is_not_taken());
        let mut scrap = [0; 10];
        let mut scrap = ReadBuf::new(&mut scrap);
        let read = poll_fn(|context| Pin::new(&mut transport).poll_read(context, scrap.unfilled()));
        assert_eq!(read.await.unwrap_err().kind(), io::ErrorKind::TimedOut);
        assert!(!exchange.is_not_taken(), "there was no request, so there is no answer");
        drop(exchange.begin());
        assert!(exchange.is_not_taken());
        drop(client);
    }
}
