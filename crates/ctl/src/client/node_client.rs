//! A connection to a node.

use std::{fmt, time::Duration};

use base::with_causes;
use bytes::Bytes;
use clock::Clock;
use http_body_util::{BodyExt, Full};
use hyper::{
    Method, Request, Response,
    body::Incoming,
    client::conn::http1::{self, SendRequest},
    header::{AUTHORIZATION, CONTENT_TYPE, HOST, HeaderName, HeaderValue},
};
use hyper_util::rt::TokioIo;
use tokio::task::JoinHandle;

use super::{answer::NodeAnswer, no_answer::NoAnswer, target::NodeTarget};
use crate::CommandError;

/// A request to a node.
#[derive(Debug)]
pub struct NodeRequest<'r> {
    /// The method.
    pub method: Method,
    /// The path, and the query.
    pub path: &'r str,
    /// The headers besides those that every request has. They replace those of the same name.
    pub headers: &'r [(HeaderName, HeaderValue)],
    /// The body.
    pub body: Bytes,
}

impl<'r> NodeRequest<'r> {
    /// A request without a body.
    pub fn get(path: &'r str) -> NodeRequest<'r> {
        NodeRequest { method: Method::GET, ..NodeRequest::post(path, Bytes::new()) }
    }

    /// A request with this body.
    pub fn post(path: &'r str, body: Bytes) -> NodeRequest<'r> {
        NodeRequest { method: Method::POST, path, headers: &[], body }
    }
}

/// A connection to a node. One request follows another.
pub struct NodeClient {
    sender: SendRequest<Full<Bytes>>,
    host: HeaderValue,
    token: Option<HeaderValue>,
    peer: String,
    /// The task of the connection, until its end is known.
    connection: Option<JoinHandle<hyper::Result<()>>>,
}

impl NodeClient {
    /// Connects to a node, with TLS if the node has it.
    ///
    /// # Errors
    /// There is no connection.
    pub(crate) async fn connect(node: &NodeTarget) -> Result<NodeClient, NoAnswer> {
        let (stream, peer) = node.connect().await?;
        let (sender, connection) =
            http1::handshake(TokioIo::new(stream)).await.map_err(NoAnswer::not_sent)?;
        #[expect(clippy::disallowed_methods, reason = "the client owns the task and ends it")]
        let connection = tokio::spawn(connection);
        let (host, token) = (node.host.clone(), node.token.clone());
        Ok(NodeClient { sender, host, token, peer, connection: Some(connection) })
    }

    /// The IP and the port that the connection reached.
    pub(crate) fn peer(&self) -> &str {
        &self.peer
    }

    /// Sends one request on a connection of its own, and reads the whole answer.
    ///
    /// # Errors
    /// The reason why there is no whole answer in time.
    pub async fn try_ask(
        clock: &Clock,
        node: &NodeTarget,
        request: NodeRequest<'_>,
        timeout: Duration,
    ) -> Result<NodeAnswer, String> {
        let asked = async { NodeClient::connect(node).await?.send(request).await };
        within(clock, timeout, asked).await
    }

    /// Sends one request on a connection of its own, and waits for the beginning of the answer. The
    /// body of a successful answer comes in pieces. Any other answer is read to its end.
    ///
    /// # Errors
    /// The reason why there is no answer in time.
    pub async fn open(
        clock: &Clock,
        node: &NodeTarget,
        request: NodeRequest<'_>,
        timeout: Duration,
    ) -> Result<Result<AnswerPieces, NodeAnswer>, String> {
        let begin = async {
            let mut client = NodeClient::connect(node).await?;
            let answer = client.begin(request).await?;
            if answer.status().is_success() {
                return Ok(Ok(AnswerPieces { body: answer.into_body(), _client: client }));
            }
            NodeAnswer::read(answer).await.map(Err)
        };
        within(clock, timeout, begin).await
    }

    /// Sends one request on a connection of its own, for a command that fails without an answer.
    pub(crate) async fn ask(
        node: &NodeTarget,
        request: NodeRequest<'_>,
        timeout: Duration,
    ) -> Result<NodeAnswer, CommandError> {
        let answer = NodeClient::try_ask(&Clock::system(), node, request, timeout).await;
        answer.map_err(|why| node.unreachable(why))
    }

    /// The reason why a request failed. If the connection ended before, only its task knows why:
    /// with TLS 1.3, a node refuses a client that already believes it is connected.
    async fn end_of_connection(&mut self, error: hyper::Error) -> String {
        let is_over = error.is_closed() || error.is_canceled();
        let Some(task) = self.connection.take_if(|_| is_over) else { return with_causes(&error) };
        match task.await {
            Ok(Err(why)) => with_causes(&why),
            _ => with_causes(&error),
        }
    }

    /// Sends a request, and reads the whole answer.
    pub(crate) async fn send(&mut self, request: NodeRequest<'_>) -> Result<NodeAnswer, NoAnswer> {
        NodeAnswer::read(self.begin(request).await?).await
    }

    /// Sends a request, and reads the head of the answer. The body comes while this client lives.
    async fn begin(
        &mut self,
        NodeRequest { method, path, headers, body }: NodeRequest<'_>,
    ) -> Result<Response<Incoming>, NoAnswer> {
        if let Err(error) = self.sender.ready().await {
            return Err(NoAnswer::NotSent(self.end_of_connection(error).await));
        }
        let mut request = Request::new(Full::new(body));
        *request.method_mut() = method;
        *request.uri_mut() = path.parse().map_err(NoAnswer::not_sent)?;
        request.headers_mut().insert(HOST, self.host.clone());
        request.headers_mut().insert(CONTENT_TYPE, HeaderValue::from_static("application/json"));
        if let Some(token) = &self.token {
            request.headers_mut().insert(AUTHORIZATION, token.clone());
        }
        // `extend` would keep the headers from above beside those of the request.
        for (name, value) in headers {
            request.headers_mut().insert(name, value.clone());
        }
        match self.sender.try_send_request(request).await {
            Ok(answer) => Ok(answer),
            Err(mut failed) => {
                let is_sent = failed.take_message().is_none();
                let why = self.end_of_connection(failed.into_error()).await;
                Err(if is_sent { NoAnswer::Broken(why) } else { NoAnswer::NotSent(why) })
            }
        }
    }
}

impl Drop for NodeClient {
    fn drop(&mut self) {
        if let Some(connection) = &self.connection {
            connection.abort();
        }
    }
}

impl fmt::Debug for NodeClient {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "NodeClient({})", self.peer)
    }
}

/// The body of an answer, as it comes.
#[derive(Debug)]
pub struct AnswerPieces {
    body: Incoming,
    /// The connection lives as long as its client.
    _client: NodeClient,
}

impl AnswerPieces {
    /// Waits for the next piece; `None` at the end of a whole answer.
    ///
    /// # Errors
    /// The answer is cut.
    ///
    /// # Cancel safety
    /// No piece is lost if the call is dropped.
    pub async fn next(&mut self) -> Option<hyper::Result<Bytes>> {
        let piece = self.body.frame().await?;
        Some(piece.map(|piece| piece.into_data().unwrap_or_default()))
    }
}

/// Waits for an answer until its time is over. The error says why there is none.
async fn within<T>(
    clock: &Clock,
    timeout: Duration,
    answer: impl Future<Output = Result<T, NoAnswer>>,
) -> Result<T, String> {
    let answer = clock.timeout_at(clock.now() + timeout, answer).await;
    let answer = answer.map_err(|_| format!("no answer within {timeout:?}"))?;
    answer.map_err(|error| error.to_string())
}
