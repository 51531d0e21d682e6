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
    pub(super) async fn post(&mut self, path: &str, body: Bytes) -> Result<StatusCode, Failed> {
        self.sender.ready().await?;
        let request = Request::post(path)
            .header(HOST, &self.host)
            .header(CONTENT_TYPE, "application/json")
            .body(Full::new(body))?;
        let answer = self.sender.send_request(request).await?;
        let status = answer.status();
        answer.into_body().collect().await?;
        Ok(status)
    }
}

impl Drop for Client {
    fn drop(&mut self) {
        self.connection.abort();
    }
}
