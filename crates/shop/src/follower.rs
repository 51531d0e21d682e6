//! A client that follows a log.

use std::{
    io::{self, BufRead, BufReader, Read, Write},
    net::{SocketAddr, TcpStream},
    time::Duration,
};

/// The longest wait for a byte.
const PATIENCE: Duration = Duration::from_secs(30);

/// The most empty lines and comments in a wait. A node sends one when 15 s have passed.
const MOST_EMPTY: usize = 4;

/// An answer that has no end: its lines are read one by one.
#[derive(Debug)]
pub struct Follower {
    stream: BufReader<TcpStream>,
    /// The bytes of the present chunk that are not read yet.
    left: usize,
    /// The status of the answer.
    pub status: u16,
    /// The head of the answer, in lower case.
    pub head: String,
}

impl Follower {
    /// Sends a request, and reads the head of the answer.
    ///
    /// # Errors
    /// If the connection fails, or if the head is cut.
    pub fn open(address: SocketAddr, path: &str, headers: &[(&str, &str)]) -> io::Result<Follower> {
        let mut stream = TcpStream::connect_timeout(&address, Duration::from_secs(5))?;
        stream.set_read_timeout(Some(PATIENCE))?;
        let mut head = format!("GET {path} HTTP/1.1\r\nhost: {address}\r\n");
        for (name, value) in headers {
            head += &format!("{name}: {value}\r\n");
        }
        stream.write_all(format!("{head}\r\n").as_bytes())?;
        let mut stream = BufReader::with_capacity(1 << 10, stream);
        let mut head = String::new();
        while !head.ends_with("\r\n\r\n") {
            if stream.read_line(&mut head)? == 0 {
                return Err(io::Error::other(format!("no whole head: {head}")));
            }
        }
        let status = head.split(' ').nth(1).and_then(|status| status.parse().ok());
        let status = status.ok_or_else(|| io::Error::other(format!("no status: {head}")))?;
        Ok(Follower { stream, left: 0, status, head: head.to_ascii_lowercase() })
    }

    /// Waits for the next line that is neither empty nor a comment of server-sent events, without
    /// its end. `None` at the end of the answer.
    ///
    /// # Errors
    /// If the answer is cut, or if no byte, or only empty lines, come for a time.
    pub fn line(&mut self) -> io::Result<Option<String>> {
        let (mut line, mut empty) = (Vec::new(), 0);
        loop {
            if self.left == 0 && !self.begin_chunk()? {
                return Ok(None);
            }
            let mut byte = [0];
            self.stream.read_exact(&mut byte)?;
            self.left -= 1;
            if self.left == 0 {
                self.stream.read_exact(&mut [0; 2])?;
            }
            match byte {
                [b'\n'] if line.is_empty() || line == b":" => {
                    empty += 1;
                    line.clear();
                    if empty > MOST_EMPTY {
                        return Err(io::ErrorKind::TimedOut.into());
                    }
                }
                [b'\n'] => return String::from_utf8(line).map(Some).map_err(io::Error::other),
                _ => line.extend_from_slice(&byte),
            }
        }
    }

    /// Reads the size of the next chunk. Returns false at the end of the answer.
    fn begin_chunk(&mut self) -> io::Result<bool> {
        let mut size = String::new();
        self.stream.read_line(&mut size)?;
        self.left = usize::from_str_radix(size.trim_end(), 16)
            .map_err(|_| io::Error::other(format!("not the size of a chunk: {size:?}")))?;
        Ok(self.left > 0)
    }
}
