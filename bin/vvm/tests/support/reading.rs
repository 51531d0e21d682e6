//! A client that reads as much as it can get, and compares each answer with the expected one.

use std::{io, net::SocketAddr, str};

use tokio::{
    io::{AsyncReadExt, AsyncWriteExt},
    net::TcpStream,
};

/// The outcome of a read.
#[derive(Debug, PartialEq, Eq)]
pub(crate) enum ReadOutcome {
    /// The answer is complete and right.
    Whole,
    /// The answer is 503, with a request to try again after this many seconds.
    Full(u64),
    /// The answer is right as far as it came, and did not claim to be complete.
    Cut,
    /// The answer is wrong, or is not documented for the API.
    Wrong(String),
}

/// Reads a path on a new connection. A complete answer has exactly the expected bytes.
pub(crate) async fn read(api: SocketAddr, path: &str, expected: &[u8]) -> io::Result<ReadOutcome> {
    let mut stream = TcpStream::connect(api).await?;
    let head = format!("GET {path} HTTP/1.1\r\nhost: localhost\r\nconnection: close\r\n\r\n");
    stream.write_all(head.as_bytes()).await?;
    let mut head = Vec::new();
    let body_from = loop {
        if stream.read_buf(&mut head).await? == 0 {
            let why = format!("no head: {}", String::from_utf8_lossy(&head));
            return Ok(ReadOutcome::Wrong(why));
        }
        if let Some(at) = head.windows(4).position(|four| four == b"\r\n\r\n") {
            break at + 4;
        }
    };
    let mut bytes = head.split_off(body_from);
    let head = String::from_utf8_lossy(&head).to_ascii_lowercase();
    if !head.starts_with("http/1.1 200 ") {
        stream.read_to_end(&mut bytes).await?;
        return Ok(refused(&head, &String::from_utf8_lossy(&bytes)));
    }
    let mut body = Body::new(&head, expected);
    while body.take(&bytes) {
        bytes.resize(64 << 10, 0);
        let count = stream.read(&mut bytes).await?;
        if count == 0 {
            break;
        }
        bytes.truncate(count);
    }
    Ok(body.end())
}

fn refused(head: &str, body: &str) -> ReadOutcome {
    let codes = ["memory_full", "too_many_logs", "timed_out", "storage"];
    let says_so = codes.iter().any(|code| body.contains(&format!(r#""code":"{code}""#)));
    match header(head, "retry-after") {
        Some(seconds) if head.starts_with("http/1.1 503 ") && says_so => ReadOutcome::Full(seconds),
        _ => ReadOutcome::Wrong(format!("{head}{body}")),
    }
}

/// Returns the value of a header that is a number.
pub(crate) fn header(head: &str, name: &str) -> Option<u64> {
    let value = |line: &str| {
        let (key, value) = line.split_once(':')?;
        key.eq_ignore_ascii_case(name).then(|| value.trim().to_owned())
    };
    head.lines().find_map(value)?.parse().ok()
}

/// A body that is being received.
struct Body<'e> {
    expected: &'e [u8],
    /// The number of bytes that came and are right.
    right: usize,
    is_wrong: bool,
    chunks: Option<Chunks>,
}

/// The position within the chunks of a body.
#[derive(Default)]
struct Chunks {
    line: Vec<u8>,
    left: usize,
    is_over: bool,
}

impl<'e> Body<'e> {
    fn new(head: &str, expected: &'e [u8]) -> Body<'e> {
        let is_chunked = head.contains("\r\ntransfer-encoding: chunked\r\n");
        let length = header(head, "content-length");
        let is_wrong = !is_chunked && length != Some(expected.len() as u64);
        Body { expected, right: 0, is_wrong, chunks: is_chunked.then(Chunks::default) }
    }

    /// Takes the next bytes. Returns whether more may come.
    fn take(&mut self, mut bytes: &[u8]) -> bool {
        let Some(mut chunks) = self.chunks.take() else { return self.compare(bytes) };
        while let Some((&byte, rest)) = bytes.split_first()
            && !chunks.is_over
            && !self.is_wrong
        {
            if chunks.left > 0 {
                let (data, rest) = bytes.split_at(chunks.left.min(bytes.len()));
                chunks.left -= data.len();
                bytes = rest;
                self.compare(data);
                continue;
            }
            bytes = rest;
            if byte != b'\n' {
                chunks.line.push(byte);
                continue;
            }
            let line = str::from_utf8(&chunks.line).unwrap_or("?").trim();
            // The end of the former chunk leaves an empty line.
            if !line.is_empty() {
                let size = usize::from_str_radix(line, 16);
                self.is_wrong |= size.is_err();
                chunks.left = size.unwrap_or_default();
                chunks.is_over = chunks.left == 0;
            }
            chunks.line.clear();
        }
        self.chunks = Some(chunks);
        !self.is_wrong
    }

    fn compare(&mut self, bytes: &[u8]) -> bool {
        self.is_wrong |= !self.expected[self.right..].starts_with(bytes);
        if !self.is_wrong {
            self.right += bytes.len();
        }
        !self.is_wrong
    }

    fn end(self) -> ReadOutcome {
        let says_whole = self.chunks.is_none_or(|chunks| chunks.is_over);
        match (self.is_wrong, self.right == self.expected.len()) {
            (false, true) if says_whole => ReadOutcome::Whole,
            (false, _) if !says_whole => ReadOutcome::Cut,
            (false, false) if says_whole && self.right < self.expected.len() => ReadOutcome::Wrong(
                format!("it ended after {} bytes as if it were whole", self.right),
            ),
            _ => ReadOutcome::Wrong(format!("it differs after {} bytes", self.right)),
        }
    }
}
