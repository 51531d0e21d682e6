//! Listening: connections, and what each of them may cost.

use std::{
    convert::Infallible,
    future::Future,
    io,
    net::SocketAddr,
    pin::{Pin, pin},
    sync::{
        Arc,
        atomic::{AtomicBool, AtomicUsize, Ordering},
    },
    task::{Context, Poll},
    time::Duration,
};

use clock::Clock;
use hyper::{
    Request, Response,
    body::{Frame, Incoming, SizeHint},
    server::conn::http1,
    service::service_fn,
};
use hyper_util::rt::{TokioIo, TokioTimer};
use tokio::{
    net::{TcpListener, TcpSocket, TcpStream},
    sync::{OwnedSemaphorePermit, Semaphore},
    task::JoinSet,
};
use tokio_util::sync::CancellationToken;
use tracing::{debug, info, warn};
use vvm::Failure;

use crate::reply::Body;

/// What connections may cost.
#[derive(Clone, Copy, Debug)]
pub struct Limits {
    /// How many there may be. Others wait until one ends.
    pub connections: usize,
    /// How long a head of a request may take to come, and how long a connection may be idle, or not take what it is sent.
    pub head_time: Duration,
    /// How many bytes a head may have.
    pub head_bytes: usize,
    /// How long a body may take to come.
    pub body_time: Duration,
    /// How many bytes a body may have, at most [`ROOM_FOR_BODIES`](crate::ROOM_FOR_BODIES).
    pub body_bytes: usize,
    /// How long what is under way may take to end when the node stops.
    pub drain_time: Duration,
}

impl Default for Limits {
    /// 15,000 connections, 30 s and 16 KiB for a head, 10 s and 1 MiB for a body, 2 s to end.
    fn default() -> Limits {
        Limits {
            connections: 15_000,
            head_time: Duration::from_secs(30),
            head_bytes: 16 << 10,
            body_time: Duration::from_secs(10),
            body_bytes: 1 << 20,
            drain_time: Duration::from_secs(2),
        }
    }
}

/// Answers requests.
pub(crate) trait Answers: Send + Sync + 'static {
    fn answer(&self, request: Request<Incoming>) -> impl Future<Output = Response<Body>> + Send;
}

/// How many connections may wait to be accepted. One that finds no room is tried again by its client after a second.
const BACKLOG: u32 = 4_096;

/// A connection on which nothing is under way is closed so long after the node began to stop.
const QUIET: Duration = Duration::from_millis(200);

/// A request is under way until all of its answer is handed over.
struct UnderWay(Arc<AtomicUsize>);

impl UnderWay {
    fn new(count: &Arc<AtomicUsize>) -> UnderWay {
        count.fetch_add(1, Ordering::AcqRel);
        UnderWay(Arc::clone(count))
    }
}

impl Drop for UnderWay {
    fn drop(&mut self) {
        self.0.fetch_sub(1, Ordering::AcqRel);
    }
}

/// An answer that is under way as long as it is there.
struct Tracked {
    body: Body,
    _under_way: UnderWay,
}

impl hyper::body::Body for Tracked {
    type Data = <Body as hyper::body::Body>::Data;
    type Error = <Body as hyper::body::Body>::Error;

    fn poll_frame(
        mut self: Pin<&mut Self>,
        context: &mut Context<'_>,
    ) -> Poll<Option<Result<Frame<Self::Data>, Self::Error>>> {
        Pin::new(&mut self.body).poll_frame(context)
    }

    fn is_end_stream(&self) -> bool {
        self.body.is_end_stream()
    }

    fn size_hint(&self) -> SizeHint {
        self.body.size_hint()
    }
}

/// A port that is taken.
pub(crate) fn bind(address: SocketAddr) -> Result<TcpListener, Failure> {
    let listen = || {
        let socket = if address.is_ipv4() { TcpSocket::new_v4()? } else { TcpSocket::new_v6()? };
        // Connections of a former process may not be over.
        socket.set_reuseaddr(true)?;
        socket.bind(address)?;
        socket.listen(BACKLOG)
    };
    listen().map_err(|error: io::Error| format!("{address}: {error}").into())
}

/// Serves connections until `stop`, and then those requests that are under way.
pub(crate) async fn serve<A: Answers>(
    name: &'static str,
    listener: TcpListener,
    answers: A,
    limits: Limits,
    clock: &Clock,
    stop: &CancellationToken,
) {
    const PAUSE: Duration = Duration::from_millis(50);
    let (answers, room) = (
        Arc::new(answers),
        Arc::new(Semaphore::new(limits.connections.min(Semaphore::MAX_PERMITS))),
    );
    // Port 0 is any, and whoever asked for it wants to know which.
    if let Ok(address) = listener.local_addr() {
        info!(service = name, %address, "listens");
    }
    let open = metrics::gauge!("httpapi_connections", "service" => name);
    let mut connections = JoinSet::new();
    let begin = |connections: &mut JoinSet<()>, stream, permit: Option<OwnedSemaphorePermit>| {
        open.increment(1);
        let (answers, clock, stop) = (Arc::clone(&answers), clock.clone(), stop.clone());
        connections.spawn(async move {
            connection(stream, answers, limits, &clock, stop).await;
            drop(permit);
        });
    };
    loop {
        let accepted = async {
            let permit = Arc::clone(&room).acquire_owned().await;
            (permit, listener.accept().await)
        };
        tokio::select! {
            biased;
            () = stop.cancelled() => break,
            Some(_) = connections.join_next() => open.decrement(1),
            (permit, accepted) = accepted => match accepted {
                Ok((stream, _)) => begin(&mut connections, stream, permit.ok()),
                // A connection that is gone already; or there are no more file handles, which passes.
                Err(error) => {
                    warn!(service = name, %error, "a connection was not accepted");
                    clock.sleep(PAUSE).await;
                }
            },
        }
    }
    // Those that came before the end are answered too.
    waiting(listener).for_each(|stream| begin(&mut connections, stream, None));
    let all = async { while connections.join_next().await.is_some() {} };
    if clock.timeout_at(clock.now() + limits.drain_time, all).await.is_err() {
        warn!(
            service = name,
            left = connections.len(),
            "connections did not end in time, and are cut"
        );
    }
    open.set(0);
}

/// The connections that nobody has accepted yet. The kernel is asked: the runtime learns of them a moment later, and tells of some at a time.
fn waiting(listener: TcpListener) -> impl Iterator<Item = TcpStream> {
    let accept = |listener: &std::net::TcpListener| {
        let (stream, _) = listener.accept()?;
        stream.set_nonblocking(true)?;
        TcpStream::from_std(stream)
    };
    let listener = listener.into_std().ok();
    let all = std::iter::from_fn(move || listener.as_ref().map(accept));
    all.take(BACKLOG as usize)
        .filter(|next| {
            // It is gone already.
            !matches!(next, Err(error) if error.kind() == io::ErrorKind::ConnectionAborted)
        })
        .map_while(Result::ok)
}

async fn connection<A: Answers>(
    stream: TcpStream,
    answers: Arc<A>,
    limits: Limits,
    clock: &Clock,
    stop: CancellationToken,
) {
    if let Err(error) = stream.set_nodelay(true) {
        debug!(%error, "a connection answers with delay");
    }
    if let Err(error) = give_up_after(&stream, limits.head_time) {
        debug!(%error, "a connection that takes nothing stays");
    }
    let (under_way, has_asked) = (Arc::new(AtomicUsize::new(0)), AtomicBool::new(false));
    let service = service_fn(|request| {
        has_asked.store(true, Ordering::Release);
        let (answers, under_way) = (Arc::clone(&answers), UnderWay::new(&under_way));
        async move {
            let answer = answers.answer(request).await;
            Ok::<_, Infallible>(answer.map(|body| Tracked { body, _under_way: under_way }))
        }
    });
    let connection = http1::Builder::new()
        .timer(TokioTimer::new())
        .header_read_timeout(limits.head_time)
        .max_buf_size(limits.head_bytes.max(8_192))
        .serve_connection(TokioIo::new(stream), service);
    let mut connection = pin!(connection);
    let ended = tokio::select! {
        // A request that has come is begun before it is looked whether the node stops.
        biased;
        ended = connection.as_mut() => ended,
        () = stop.cancelled() => loop {
            // It would end at once if nothing is under way: but its first request may have come, and not be read yet.
            if has_asked.load(Ordering::Acquire) {
                connection.as_mut().graceful_shutdown();
            }
            match clock.timeout_at(clock.now() + QUIET, connection.as_mut()).await {
                Ok(ended) => break ended,
                // A head that does not come to its end is no request.
                Err(_) if under_way.load(Ordering::Acquire) == 0 => return,
                Err(_) => {}
            }
        },
    };
    if let Err(error) = ended {
        debug!(%error, "a connection broke");
    }
}

/// A client that does not take its answer is given up by the kernel. Nobody else knows how much of it is still under way.
#[cfg(target_os = "linux")]
fn give_up_after(stream: &TcpStream, time: Duration) -> io::Result<()> {
    let millis = u32::try_from(time.as_millis()).unwrap_or(u32::MAX);
    Ok(rustix::net::sockopt::set_tcp_user_timeout(stream, millis)?)
}

#[cfg(not(target_os = "linux"))]
fn give_up_after(_: &TcpStream, _: Duration) -> io::Result<()> {
    Err(io::ErrorKind::Unsupported.into())
}
