//! A connection to a node.

use std::net::SocketAddr;

use bytes::Bytes;
use http_body_util::{BodyExt, Full};
use hyper::{
    Request, StatusCode,
    client::conn::http1::{self, SendRequest},
    header::{CONTENT_TYPE, HOST, HeaderValue},
};
use hyper_util::rt::TokioIo;
use tokio::{net::TcpStream, task::JoinHandle};

type Failed = Box<dyn std::error::Error + Send + Sync>;

/// A connection to a node, on which one request follows another.
pub(super) struct Client {
    sender: SendRequest<Full<Bytes>>,
    host: HeaderValue,
    connection: JoinHandle<()>,
}

impl Client {
    pub(super) async fn connect(address: SocketAddr) -> Result<Client, Failed> {
        let stream = TcpStream::connect(address).await?;
        stream.set_nodelay(true)?;
        let (sender, connection) = http1::handshake(TokioIo::new(stream)).await?;
        // Its failure is that of the request under way.
        #[expect(clippy::disallowed_methods, reason = "the client owns the task and ends it")]
        let connection = tokio::spawn(async move { drop(connection.await) });
        Ok(Client { sender, host: HeaderValue::from_str(&address.to_string())?, connection })
    }

    /// Sends a request, and reads all of the answer.
    pub(super) async fn post(&mut self, path: &str, body: Bytes) -> Result<Answer, Failed> {
        self.sender.ready().await?;
        let request = Request::post(path)
            .header(HOST, &self.host)
            .header(CONTENT_TYPE, "application/json")
            .body(Full::new(body))?;
        let answer = self.sender.send_request(request).await?;
        let status = answer.status();
        let body = answer.into_body().collect().await?.to_bytes();
        Ok(Answer { status, body })
    }
}

/// What a node answered.
pub(super) struct Answer {
    pub(super) status: StatusCode,
    body: Bytes,
}

impl Answer {
    /// What went wrong, if it says so.
    pub(super) fn problem(&self, key: &str) -> String {
        let problem: serde_json::Value = serde_json::from_slice(&self.body).unwrap_or_default();
        match problem[key].as_str() {
            Some(what) => format!("{}: {what}", self.status),
            None => self.status.to_string(),
        }
    }
}

impl Drop for Client {
    fn drop(&mut self) {
        self.connection.abort();
    }
}
