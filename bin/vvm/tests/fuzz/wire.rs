//! Sending requests byte by byte, and reading answers.

use std::{
    io::{self, BufRead, BufReader, ErrorKind, Read, Write},
    net::{Shutdown, SocketAddr, TcpStream},
    time::{Duration, Instant},
};

use crate::{generator::FuzzRequest, heads::Framing};

/// The most time for an answer, far above all times of the node.
const PATIENCE: Duration = Duration::from_secs(40);

/// A stream without an end is read until it is silent for this time.
const SILENCE: Duration = Duration::from_millis(15);

/// The client leaves after this many bytes of a stream.
const LEFT_AFTER: usize = 1 << 20;

/// A connection that rested longer is not used again. The admin endpoint ends one after 5 s.
const IDLE: Duration = Duration::from_secs(2);

/// A body of more bytes may be answered before all of it is sent.
const UNREAD_BODY: usize = 128 << 10;

/// An answer of the node.
#[derive(Clone, Debug, Default, PartialEq)]
pub(crate) struct Answer {
    pub(crate) status: u16,
    pub(crate) headers: Vec<(String, String)>,
    pub(crate) body: Vec<u8>,
    /// Whether the answer has an end. A stream has none.
    pub(crate) is_whole: bool,
}

impl Answer {
    pub(crate) fn header(&self, name: &str) -> Option<&str> {
        self.headers.iter().find(|(known, _)| known == name).map(|(_, value)| value.as_str())
    }
}

/// The result of sending a request.
#[derive(Debug, PartialEq)]
pub(crate) enum Sent {
    Answered(Answer),
    /// The node ended the connection without an answer.
    Closed,
}

/// A client with one connection that it keeps.
pub(crate) struct Client {
    address: SocketAddr,
    /// The connection, and when it was used last.
    kept: Option<(BufReader<TcpStream>, Instant)>,
}

impl Client {
    pub(crate) fn new(address: SocketAddr) -> Client {
        Client { address, kept: None }
    }

    /// Sends a request, and reads its answer.
    pub(crate) fn send(&mut self, request: &FuzzRequest) -> Result<Sent, String> {
        let is_clean = request.framing == Framing::Clean;
        let kept = self.kept.take().filter(|(_, used)| is_clean && used.elapsed() < IDLE);
        let mut stream = kept.map_or_else(|| self.connect(), |(stream, _)| Ok(stream))?;
        let writer = stream.get_mut();
        let bytes = [&request.head[..], &request.body].concat();
        let written = writer.write_all(&bytes);
        if request.framing == Framing::Head {
            // An error means that the node has ended the connection.
            let _ = writer.shutdown(Shutdown::Write);
        }
        let read = read(&mut stream, request);
        match read {
            Ok((answer, is_kept)) => {
                if is_clean && is_kept && written.is_ok() {
                    self.kept = Some((stream, Instant::now()));
                }
                Ok(Sent::Answered(answer))
            }
            Err(error) if may_be_closed(request, &error) => Ok(Sent::Closed),
            Err(error) => Err(format!("no whole answer: {error}")),
        }
    }

    fn connect(&self) -> Result<BufReader<TcpStream>, String> {
        let stream = TcpStream::connect_timeout(&self.address, PATIENCE);
        let stream = stream.map_err(|error| format!("no connection: {error}"))?;
        stream.set_nodelay(true).unwrap();
        stream.set_read_timeout(Some(PATIENCE)).unwrap();
        stream.set_write_timeout(Some(PATIENCE)).unwrap();
        Ok(BufReader::new(stream))
    }
}

/// Whether the node may end a connection without a whole answer.
fn may_be_closed(request: &FuzzRequest, error: &io::Error) -> bool {
    let is_end = matches!(
        error.kind(),
        ErrorKind::UnexpectedEof | ErrorKind::ConnectionReset | ErrorKind::BrokenPipe
    );
    let is_head = request.framing == Framing::Head;
    is_end && (is_head || request.body.len() + request.head.len() > UNREAD_BODY)
}

/// Reads an answer. Returns whether the connection stays open.
fn read(stream: &mut BufReader<TcpStream>, request: &FuzzRequest) -> io::Result<(Answer, bool)> {
    loop {
        let (status, version, headers) = read_head(stream)?;
        let mut answer = Answer { status, headers, body: Vec::new(), is_whole: true };
        if status / 100 == 1 {
            continue;
        }
        let is_closed = answer.header("connection").is_some_and(|text| text.contains("close"));
        let is_kept = !is_closed && version == "HTTP/1.1";
        if request.is_head_method || matches!(status, 204 | 304) {
            return Ok((answer, is_kept));
        }
        let length = answer.header("content-length").map(str::parse::<usize>);
        let is_chunked = answer.header("transfer-encoding") == Some("chunked");
        match (length, is_chunked) {
            (Some(Ok(length)), false) => {
                answer.body = vec![0; length];
                stream.read_exact(&mut answer.body)?;
            }
            (None, true) => {
                if request.may_stream {
                    stream.get_ref().set_read_timeout(Some(SILENCE))?;
                }
                answer.is_whole = read_chunks(stream, &mut answer.body, request.may_stream)?;
                stream.get_ref().set_read_timeout(Some(PATIENCE))?;
            }
            (None, false) if is_closed || version == "HTTP/1.0" => {
                stream.read_to_end(&mut answer.body)?;
                return Ok((answer, false));
            }
            other => return Err(bad(format!("an answer of length {other:?}"))),
        }
        let is_kept = is_kept && answer.is_whole;
        return Ok((answer, is_kept));
    }
}

fn bad(why: impl Into<String>) -> io::Error {
    io::Error::new(ErrorKind::InvalidData, why.into())
}

type Head = (u16, String, Vec<(String, String)>);

fn read_head(stream: &mut BufReader<TcpStream>) -> io::Result<Head> {
    let first = read_line(stream)?;
    let mut parts = first.splitn(3, ' ');
    let (version, status) = (parts.next().unwrap_or_default(), parts.next().unwrap_or_default());
    let status = status.parse().ok().filter(|status| (100..600).contains(status));
    let status = status.filter(|_| matches!(version, "HTTP/1.1" | "HTTP/1.0"));
    let status = status.ok_or_else(|| bad(format!("the line `{first}`")))?;
    let mut headers = Vec::new();
    loop {
        let line = read_line(stream)?;
        if line.is_empty() {
            return Ok((status, version.to_owned(), headers));
        }
        let (name, value) =
            line.split_once(": ").ok_or_else(|| bad(format!("the line `{line}`")))?;
        headers.push((name.to_ascii_lowercase(), value.to_owned()));
    }
}

fn read_line(stream: &mut BufReader<TcpStream>) -> io::Result<String> {
    let mut line = Vec::new();
    (&mut *stream).take(64 << 10).read_until(b'\n', &mut line)?;
    match line.strip_suffix(b"\r\n") {
        // A value of a request may come back in an answer.
        Some(line) => Ok(line.iter().map(|byte| char::from(*byte)).collect()),
        None if line.is_empty() => Err(ErrorKind::UnexpectedEof.into()),
        None => Err(bad("a line without its end")),
    }
}

/// Reads chunks until the last one, or until the client leaves. Returns whether the last one came.
fn read_chunks(
    stream: &mut BufReader<TcpStream>,
    body: &mut Vec<u8>,
    may_stream: bool,
) -> io::Result<bool> {
    loop {
        let size = match read_line(stream) {
            Err(error) if may_stream && is_silence(&error) => return Ok(false),
            size => size?,
        };
        let size = usize::from_str_radix(&size, 16);
        let size = size.map_err(|_| bad("a chunk without a size"))?;
        let start = body.len();
        body.resize(start + size, 0);
        match stream.read_exact(&mut body[start..]).and_then(|()| read_line(stream)) {
            // The client has a part of the chunk, or all of it without its end.
            Err(error) if may_stream && is_silence(&error) => {
                body.truncate(start);
                return Ok(false);
            }
            Ok(end) if end.is_empty() => {}
            Ok(_) => return Err(bad("a chunk without an end")),
            Err(error) => return Err(error),
        }
        if size == 0 {
            return Ok(true);
        }
        if may_stream && body.len() > LEFT_AFTER {
            return Ok(false);
        }
    }
}

fn is_silence(error: &io::Error) -> bool {
    matches!(error.kind(), ErrorKind::WouldBlock | ErrorKind::TimedOut)
}
