//! A client that costs little CPU, so that the figures of a bench are those of the nodes.

use std::net::SocketAddr;

use tokio::{
    io::{AsyncReadExt, AsyncWriteExt},
    net::TcpStream,
};

use super::BenchError;

/// A connection that is used for one request after another.
#[derive(Debug)]
pub struct KeptConnection {
    stream: TcpStream,
    read: Vec<u8>,
}

impl KeptConnection {
    /// Connects to a node.
    ///
    /// # Errors
    /// If the node does not accept the connection.
    pub async fn connect(at: SocketAddr) -> Result<KeptConnection, BenchError> {
        let stream = TcpStream::connect(at).await?;
        stream.set_nodelay(true)?;
        Ok(KeptConnection { stream, read: Vec::new() })
    }

    /// Sends a request, and waits for its answer, which must be a success.
    ///
    /// # Errors
    /// If the connection fails, and any other answer.
    pub async fn ask(&mut self, request: &[u8]) -> Result<(), BenchError> {
        let answer = self.ask_anything(request).await?;
        match answer.starts_with("HTTP/1.1 200 ") {
            true => Ok(()),
            false => Err(answer.into()),
        }
    }

    /// Sends a request, and returns the head of its answer, or the whole answer if it is an error.
    ///
    /// # Errors
    /// If the connection fails.
    pub async fn ask_anything(&mut self, request: &[u8]) -> Result<String, BenchError> {
        self.stream.write_all(request).await?;
        self.read.clear();
        loop {
            if self.stream.read_buf(&mut self.read).await? == 0 {
                return Err("the node hung up".into());
            }
            if let Some(head) = whole_answer(&self.read) {
                let is_done = self.read.starts_with(b"HTTP/1.1 200 ");
                let shown = if is_done { &self.read[..head] } else { &self.read[..] };
                return Ok(String::from_utf8_lossy(shown).into_owned());
            }
        }
    }
}

/// The bytes of a request. `headers` are lines with their ends.
pub fn request_bytes(method: &str, path: &str, headers: &str, body: &str) -> Vec<u8> {
    let length = body.len();
    let head =
        format!("{method} {path} HTTP/1.1\r\nhost: localhost\r\ncontent-length: {length}\r\n");
    format!("{head}{headers}\r\n{body}").into()
}

/// The length of the head, if the answer is whole.
fn whole_answer(bytes: &[u8]) -> Option<usize> {
    let head = bytes.windows(4).position(|end| end == b"\r\n\r\n")?;
    let text = std::str::from_utf8(&bytes[..head]).ok()?;
    let length = text.split("\r\n").find_map(|line| line.strip_prefix("content-length: "))?;
    (bytes.len() >= head + 4 + length.parse::<usize>().ok()?).then_some(head)
}
