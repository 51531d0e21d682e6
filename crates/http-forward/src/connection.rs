//! A connection to a peer.
//!
//! No task drives the connection: the future of the request that uses it drives it. An unused
//! connection is not driven. Its end shows when it is [checked](PeerConnection::is_alive) before
//! the next request.
//!
//! Only the socket wakes the request. The same task polls the driver and the request, one after the
//! other, so a wake-up between them would only poll both once more. For the same reason an unused
//! connection wakes nobody.

use std::{
    future::poll_fn,
    pin::{Pin, pin},
    sync::atomic::{AtomicBool, Ordering},
    task::{Context, Poll, Waker},
};

use base::with_causes;
use bytes::{Bytes, BytesMut};
use http_body_util::Full;
use http_server::{stream::NodeStream, tls::is_refused_certificate};
use hyper::{
    Request, Response,
    body::{Body as _, Frame, Incoming},
    client::conn::http1::{self, Connection, SendRequest},
};
use hyper_util::rt::TokioIo;

/// The largest head of an answer, and the largest piece of a log.
const BUFFER_BYTES: usize = 64 << 10;

/// The reason why a peer did not answer a request.
#[derive(Debug, PartialEq, Eq)]
pub(crate) enum PeerFailure {
    /// The peer got no part of the request, or handled no part of it.
    NotSent(String),
    /// The peer may have handled the request.
    Broken(String),
}

/// A connection to a peer, with at most one request at a time.
#[derive(Debug)]
pub(crate) struct PeerConnection {
    sender: SendRequest<Full<Bytes>>,
    driver: Connection<TokioIo<NodeStream>, Full<Bytes>>,
    /// The driver must not be polled after it has ended.
    is_over: bool,
}

/// The result of sending: the head of the answer, or the reason why there is none, with the request
/// if the peer has not got it.
pub(crate) type Sent = Result<Response<Incoming>, (PeerFailure, Option<Request<Full<Bytes>>>)>;

impl PeerConnection {
    pub(crate) async fn begin(stream: NodeStream) -> hyper::Result<PeerConnection> {
        let mut builder = http1::Builder::new();
        builder.max_buf_size(BUFFER_BYTES);
        let (sender, driver) = builder.handshake(TokioIo::new(stream)).await?;
        Ok(PeerConnection { sender, driver, is_over: false })
    }

    /// Whether a request may be sent: the peer has not ended the connection.
    pub(crate) fn is_alive(&mut self) -> bool {
        self.drive(&mut silent());
        !self.is_over && self.sender.is_ready()
    }

    /// Sends a request, and waits for the head of its answer. Sets `is_sent` before the first byte
    /// can reach the peer, for a caller that drops this future.
    pub(crate) async fn send(
        &mut self,
        request: Request<Full<Bytes>>,
        is_sent: &AtomicBool,
    ) -> Sent {
        is_sent.store(true, Ordering::Release);
        let mut answer = pin!(self.sender.try_send_request(request));
        let (driver, is_over) = (&mut self.driver, &mut self.is_over);
        let answered = poll_fn(|context| {
            drive(driver, is_over, context);
            answer.as_mut().poll(&mut silent())
        });
        answered.await.map_err(|mut failed| {
            let request = failed.take_message();
            let error = failed.into_error();
            let text = with_causes(&error);
            let is_handled = request.is_none() && !is_refused_certificate(&error);
            is_sent.store(is_handled, Ordering::Release);
            let failure = if is_handled { PeerFailure::Broken } else { PeerFailure::NotSent };
            (failure(text), request)
        })
    }

    /// The next piece of the body of an answer.
    pub(crate) fn poll_frame(
        &mut self,
        body: &mut Incoming,
        context: &mut Context<'_>,
    ) -> Poll<Option<hyper::Result<Frame<Bytes>>>> {
        // The poll of the body asks the driver for the next piece. If there is none, the second
        // poll leaves the driver waiting for the socket.
        for _ in 0..2 {
            if let Poll::Ready(frame) = Pin::new(&mut *body).poll_frame(&mut silent()) {
                return Poll::Ready(frame);
            }
            self.drive(context);
        }
        Pin::new(body).poll_frame(&mut silent())
    }

    /// Receives a whole body.
    pub(crate) async fn collect(&mut self, body: &mut Incoming) -> Result<Bytes, PeerFailure> {
        let mut first = Bytes::new();
        let mut all = BytesMut::new();
        loop {
            let frame = poll_fn(|context| self.poll_frame(body, context)).await;
            match frame {
                None if all.is_empty() => return Ok(first),
                None => return Ok(all.freeze()),
                Some(Err(error)) => return Err(PeerFailure::Broken(with_causes(&error))),
                Some(Ok(frame)) => {
                    let Ok(data) = frame.into_data() else { continue };
                    // Most answers arrive in one piece, and are not copied.
                    if first.is_empty() {
                        first = data;
                        continue;
                    }
                    if all.is_empty() {
                        all.extend_from_slice(&first);
                    }
                    all.extend_from_slice(&data);
                }
            }
        }
    }

    /// Whether the connection takes another request, after a whole answer.
    pub(crate) fn is_reusable(&mut self) -> bool {
        self.drive(&mut silent());
        let is_ready = matches!(self.sender.poll_ready(&mut silent()), Poll::Ready(Ok(())));
        !self.is_over && is_ready
    }

    fn drive(&mut self, context: &mut Context<'_>) {
        drive(&mut self.driver, &mut self.is_over, context);
    }
}

/// A context that wakes nobody.
fn silent() -> Context<'static> {
    Context::from_waker(Waker::noop())
}

/// Reads and writes what is possible now. An error of the connection reaches the request, or the
/// body of the answer.
fn drive(
    driver: &mut Connection<TokioIo<NodeStream>, Full<Bytes>>,
    is_over: &mut bool,
    context: &mut Context<'_>,
) {
    if !*is_over {
        *is_over = Pin::new(driver).poll(context).is_ready();
    }
}
