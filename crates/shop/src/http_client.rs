//! Requests to the HTTP API and to the admin endpoint of a node, each on a connection of its own.
//!
//! The paths are those of the application `demo/shop` (`config/demo.toml`).

use std::{
    io::{self, Read, Write},
    net::{SocketAddr, TcpStream},
    time::Duration,
};

use serde_json::Value;

/// Returns the path of a workspace of the application `demo/shop`.
#[must_use]
pub fn workspace_path(ws: u64) -> String {
    format!("/api/v2/apps/demo/shop/workspaces/{ws}")
}

/// Returns the path of a command in a workspace.
#[must_use]
pub fn command_path(ws: u64, name: &str) -> String {
    format!("{}/commands/{name}", workspace_path(ws))
}

/// Sends a request like [`try_request`], and returns the body as JSON, or else as a string.
///
/// # Panics
/// If there is no whole answer.
pub fn request(
    address: SocketAddr,
    method: &str,
    path: &str,
    headers: &[(&str, &str)],
    body: &str,
) -> (u16, Value) {
    let answer = try_request(address, method, path, headers, body);
    let (status, body) = answer.expect("the node answers");
    (status, serde_json::from_str(&body).unwrap_or(Value::String(body)))
}

/// Sends a request on a new connection, and returns the status and the body of the answer.
///
/// # Errors
/// If the connection fails, or if the head or a chunk of the answer is cut.
pub fn try_request(
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

/// Reads an answer until the end of the connection, and returns its status and its body.
///
/// # Errors
/// If the connection fails, or if the head or a chunk of the answer is cut.
pub fn answer(stream: &mut impl Read) -> io::Result<(u16, String)> {
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

/// Returns the content of the chunks of a body. `None` if the last chunk is missing.
#[must_use]
pub fn unchunked(mut text: &str) -> Option<String> {
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

/// Returns the ids of the requests in the log of a workspace.
///
/// # Panics
/// If the node does not send the log.
#[must_use]
pub fn logged(api: SocketAddr, ws: u64) -> Vec<String> {
    let path = format!("{}/wlog?limit=1000000", workspace_path(ws));
    let (status, log) = try_request(api, "GET", &path, &[], "").expect("the node answers");
    assert_eq!(status, 200, "{log}");
    let request = |line| {
        let event: Value = serde_json::from_str(line).expect("an event is JSON");
        event["requestId"].as_str().expect("an event has an id").to_owned()
    };
    log.lines().map(request).collect()
}
