//! Requests over sockets, and their answers.

use std::{
    io::{self, Read, Write},
    net::{SocketAddr, TcpStream},
    time::Duration,
};

use serde_json::Value;
use shop::http_client::workspace_path;

use super::WS;

/// The status of an answer, and the code of its problem.
pub(crate) fn code(answer: (u16, Value)) -> (u16, String) {
    (answer.0, answer.1["code"].as_str().unwrap_or_else(|| panic!("{}", answer.1)).to_owned())
}

/// An answer that ends where its head says.
#[derive(Debug)]
pub(crate) struct Answer {
    pub(crate) status: u16,
    pub(crate) head: String,
    pub(crate) body: String,
}

impl Answer {
    pub(crate) fn read(stream: &mut impl Read) -> io::Result<Answer> {
        let mut answer = Answer::read_head(stream)?;
        let length = answer.header("content-length").unwrap_or_else(|| panic!("{answer:?}"));
        let mut body = vec![0; length.parse().unwrap()];
        stream.read_exact(&mut body)?;
        answer.body = String::from_utf8(body).unwrap();
        Ok(answer)
    }

    /// Reads an answer without a body.
    pub(crate) fn read_head(stream: &mut impl Read) -> io::Result<Answer> {
        let (mut head, mut byte) = (Vec::new(), [0]);
        while !head.ends_with(b"\r\n\r\n") {
            if stream.read(&mut byte)? == 0 {
                let text = format!("no whole answer: {:?}", String::from_utf8_lossy(&head));
                return Err(io::Error::new(io::ErrorKind::UnexpectedEof, text));
            }
            head.push(byte[0]);
        }
        let head = String::from_utf8(head).unwrap().to_ascii_lowercase();
        if head.starts_with("http/1.1 100 ") {
            return Answer::read_head(stream);
        }
        let status = head.split(' ').nth(1).unwrap().parse().unwrap();
        Ok(Answer { status, head, body: String::new() })
    }

    pub(crate) fn closes(&self) -> bool {
        self.head.contains("\r\nconnection: close\r\n")
    }

    /// Returns the value of a header.
    pub(crate) fn header(&self, name: &str) -> Option<&str> {
        let mut headers = self.head.lines().filter_map(|line| line.split_once(": "));
        headers.find(|(key, _)| *key == name).map(|(_, value)| value)
    }

    pub(crate) fn json(&self) -> Value {
        serde_json::from_str(&self.body).unwrap_or_else(|_| panic!("{self:?}"))
    }

    /// Returns the code of a problem. The problem must repeat the status.
    pub(crate) fn code(&self) -> String {
        assert_eq!(self.header("content-type"), Some("application/problem+json"), "{self:?}");
        let problem = self.json();
        assert_eq!(problem["status"], self.status, "{self:?}");
        assert!(!problem["reason"].as_str().unwrap().is_empty(), "{self:?}");
        problem["code"].as_str().unwrap().to_owned()
    }
}

pub(crate) fn connect(address: SocketAddr) -> TcpStream {
    let stream = TcpStream::connect(address).unwrap();
    stream.set_nodelay(true).unwrap();
    stream.set_read_timeout(Some(Duration::from_secs(20))).unwrap();
    stream
}

/// Sends bytes on a new connection, and returns the answer.
pub(crate) fn answer_to(address: SocketAddr, request: &str) -> Answer {
    let mut stream = connect(address);
    stream.write_all(request.as_bytes()).unwrap();
    Answer::read(&mut stream).unwrap_or_else(|error| panic!("{request:?}: {error}"))
}

/// A request with the answer 200. These headers replace `Host`.
pub(crate) fn get(headers: &str) -> String {
    format!("GET {}/cdocs/shop.Article HTTP/1.1\r\n{headers}\r\n", workspace_path(WS))
}
