//! A connection to a node.

use std::{net::SocketAddr, time::Duration};

use bytes::Bytes;
use http_body_util::{BodyExt, Full};
use hyper::{
    Request, StatusCode,
    client::conn::http1::{self, SendRequest},
    header::{CONTENT_TYPE, HOST, HeaderValue},
};
use hyper_util::rt::TokioIo;
use tokio::{net::TcpStream, task::JoinHandle};

/// The most time to wait for an answer.
pub(super) const ANSWER_TIMEOUT: Duration = Duration::from_secs(30);

type ClientError = Box<dyn std::error::Error + Send + Sync>;

/// A connection to a node. One request follows another.
pub(super) struct NodeClient {
    sender: SendRequest<Full<Bytes>>,
    host: HeaderValue,
    connection: JoinHandle<()>,
}

impl NodeClient {
    pub(super) async fn connect(address: SocketAddr) -> Result<NodeClient, ClientError> {
        let stream = TcpStream::connect(address).await?;
        stream.set_nodelay(true)?;
        let (sender, connection) = http1::handshake(TokioIo::new(stream)).await?;
        // If the connection fails, the request under way returns the error.
        #[expect(clippy::disallowed_methods, reason = "the client owns the task and ends it")]
        let connection = tokio::spawn(async move { drop(connection.await) });
        Ok(NodeClient { sender, host: HeaderValue::from_str(&address.to_string())?, connection })
    }

    /// Sends a request, and reads the whole answer.
    pub(super) async fn post(
        &mut self,
        path: &str,
        body: Bytes,
    ) -> Result<NodeAnswer, ClientError> {
        self.sender.ready().await?;
        let request = Request::post(path)
            .header(HOST, &self.host)
            .header(CONTENT_TYPE, "application/json")
            .body(Full::new(body))?;
        let answer = self.sender.send_request(request).await?;
        let status = answer.status();
        let body = answer.into_body().collect().await?.to_bytes();
        Ok(NodeAnswer { status, body })
    }
}

/// The answer of a node.
pub(super) struct NodeAnswer {
    pub(super) status: StatusCode,
    body: Bytes,
}

impl NodeAnswer {
    /// Returns the status, with the field `key` of the problem if the answer has one.
    pub(super) fn problem(&self, key: &str) -> String {
        let problem: serde_json::Value = serde_json::from_slice(&self.body).unwrap_or_default();
        match problem[key].as_str() {
            Some(what) => format!("{}: {what}", self.status),
            None => self.status.to_string(),
        }
    }
}

impl Drop for NodeClient {
    fn drop(&mut self) {
        self.connection.abort();
    }
}
