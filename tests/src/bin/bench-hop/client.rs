//! A connection that is used for one request after another. It costs little CPU, so that the
//! figures are those of the nodes.

use std::net::SocketAddr;

use shop::http_client::{command_path, workspace_path};
use tokio::{
    io::{AsyncReadExt, AsyncWriteExt},
    net::TcpStream,
};
use vvm_tests::bench::BenchError;

/// The record that each workspace has, and that reads ask for.
const RECORD: u64 = 322_685_000_131_072;

/// A connection to a node.
pub(crate) struct KeptConnection {
    stream: TcpStream,
    read: Vec<u8>,
}

impl KeptConnection {
    pub(crate) async fn connect(at: SocketAddr) -> Result<KeptConnection, BenchError> {
        let stream = TcpStream::connect(at).await?;
        stream.set_nodelay(true)?;
        Ok(KeptConnection { stream, read: Vec::new() })
    }

    /// Sends a request, and waits for its answer, which must be a success.
    pub(crate) async fn ask(&mut self, request: &[u8]) -> Result<(), BenchError> {
        let answer = self.ask_anything(request).await?;
        match answer.starts_with("HTTP/1.1 200 ") {
            true => Ok(()),
            false => Err(answer.into()),
        }
    }

    /// Sends a request, and returns the head of its answer, or the whole answer if it is an error.
    pub(crate) async fn ask_anything(&mut self, request: &[u8]) -> Result<String, BenchError> {
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

/// The length of the head, if the answer is whole.
fn whole_answer(bytes: &[u8]) -> Option<usize> {
    let head = bytes.windows(4).position(|end| end == b"\r\n\r\n")?;
    let text = std::str::from_utf8(&bytes[..head]).ok()?;
    let length = text.split("\r\n").find_map(|line| line.strip_prefix("content-length: "))?;
    (bytes.len() >= head + 4 + length.parse::<usize>().ok()?).then_some(head)
}

/// A command that makes a record.
pub(crate) fn command(ws: u64) -> Vec<u8> {
    post(&command_path(ws, "sys.CUD"), r#"{"rows":[{"id":1,"table":"shop.Article"}]}"#)
}

/// A command that makes a workspace.
pub(crate) fn new_workspace(ws: u64) -> Vec<u8> {
    post(&command_path(ws, "sys.CreateWorkspace"), r#"{"args":{"kind":"Shop"}}"#)
}

fn post(path: &str, body: &str) -> Vec<u8> {
    let length = body.len();
    format!("POST {path} HTTP/1.1\r\nhost: localhost\r\ncontent-length: {length}\r\n\r\n{body}")
        .into()
}

/// The reading of a record.
pub(crate) fn read(ws: u64) -> Vec<u8> {
    let path = format!("{}/docs/shop.Article/{RECORD}", workspace_path(ws));
    format!("GET {path} HTTP/1.1\r\nhost: localhost\r\n\r\n").into()
}
