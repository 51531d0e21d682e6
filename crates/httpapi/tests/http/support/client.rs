//! Requests over sockets, and their answers.

use std::{
    io::{self, Read, Write},
    net::{SocketAddr, TcpStream},
    time::Duration,
};

use serde_json::Value;

use super::WS;

pub(crate) fn workspace_path(ws: u64) -> String {
    format!("/api/v2/apps/demo/shop/workspaces/{ws}")
}

pub(crate) fn command_path(ws: u64, name: &str) -> String {
    format!("{}/commands/{name}", workspace_path(ws))
}

/// The status of an answer, and the code of its problem.
pub(crate) fn code(answer: (u16, Value)) -> (u16, String) {
    (answer.0, answer.1["code"].as_str().unwrap_or_else(|| panic!("{}", answer.1)).to_owned())
}

/// Sends one request on a new connection, and reads the answer as JSON.
pub(crate) fn request(
    address: SocketAddr,
    method: &str,
    path: &str,
    headers: &[(&str, &str)],
    body: &str,
) -> (u16, Value) {
    let (status, body) = try_request(address, method, path, headers, body).unwrap();
    (status, serde_json::from_str(&body).unwrap_or(Value::String(body)))
}

pub(crate) fn try_request(
    address: SocketAddr,
    method: &str,
    path: &str,
    headers: &[(&str, &str)],
    body: &str,
) -> io::Result<(u16, String)> {
    let mut stream = TcpStream::connect_timeout(&address, Duration::from_secs(5))?;
    stream.set_read_timeout(Some(Duration::from_secs(30)))?;
    let mut head = format!("{method} {path} HTTP/1.1\r\nhost: {address}\r\nconnection: close\r\n");
    for (name, value) in headers {
        head += &format!("{name}: {value}\r\n");
    }
    head += &format!("content-length: {}\r\n\r\n", body.len());
    stream.write_all(head.as_bytes())?;
    stream.write_all(body.as_bytes())?;
    answer(&mut stream)
}

/// Reads an answer until the end of the connection.
pub(crate) fn answer(stream: &mut TcpStream) -> io::Result<(u16, String)> {
    let mut bytes = Vec::new();
    stream.read_to_end(&mut bytes)?;
    let text = String::from_utf8_lossy(&bytes);
    let cut = || io::Error::other(format!("no whole answer: {text}"));
    let (head, body) = text.split_once("\r\n\r\n").ok_or_else(cut)?;
    let status = head.split(' ').nth(1).and_then(|status| status.parse().ok()).ok_or_else(cut)?;
    let is_chunked = head.to_ascii_lowercase().contains("transfer-encoding: chunked");
    let body = if is_chunked { unchunked(body).ok_or_else(cut)? } else { body.to_owned() };
    Ok((status, body))
}

fn unchunked(mut text: &str) -> Option<String> {
    let mut body = String::new();
    loop {
        let (size, rest) = text.split_once("\r\n")?;
        let size = usize::from_str_radix(size, 16).ok()?;
        if size == 0 {
            return Some(body);
        }
        body.push_str(rest.get(..size)?);
        text = rest.get(size + 2..)?;
    }
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
