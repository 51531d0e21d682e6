//! Probes that ask a server whether it is ready, in its own protocol.

use std::{
    io::{self, Read, Write},
    net::{SocketAddr, TcpStream},
    time::Duration,
};

const CONNECT_TIMEOUT: Duration = Duration::from_secs(1);
const ANSWER_TIMEOUT: Duration = Duration::from_secs(10);

/// Opcodes and levels of Cassandra's native protocol, version 4.
const VERSION_REQUEST: u8 = 0x04;
const STARTUP: u8 = 0x01;
const READY: u8 = 0x02;
const OPTIONS: u8 = 0x05;
const SUPPORTED: u8 = 0x06;
const QUERY: u8 = 0x07;
const RESULT: u8 = 0x08;
const CONSISTENCY_ALL: u16 = 0x0005;

/// A read of a keyspace that every Cassandra has, with three replicas. At the level ALL the read
/// needs three live nodes that the asked node sees as live.
const READ_OF_THREE: &str = "SELECT id FROM system_distributed.repair_history LIMIT 1";

/// Returns whether a Cassandra node answers drivers.
pub(crate) fn cassandra_is_ready(address: SocketAddr) -> bool {
    let ask = || -> io::Result<bool> {
        let mut connection = connect(address)?;
        Ok(exchange(&mut connection, OPTIONS, &[])? == SUPPORTED)
    };
    ask().unwrap_or(false)
}

/// Returns whether a Cassandra node sees three nodes, including itself, and all of them answer it.
pub(crate) fn cassandra_sees_three(address: SocketAddr) -> bool {
    let ask = || -> io::Result<bool> {
        let mut connection = connect(address)?;
        if exchange(&mut connection, STARTUP, &startup_body())? != READY {
            return Ok(false);
        }
        Ok(exchange(&mut connection, QUERY, &query_body(READ_OF_THREE, CONSISTENCY_ALL))? == RESULT)
    };
    ask().unwrap_or(false)
}

/// Returns whether a server answers HTTP, with any answer.
pub(crate) fn http_is_ready(address: SocketAddr) -> bool {
    let ask = || -> io::Result<bool> {
        let mut connection = connect(address)?;
        connection.write_all(b"GET / HTTP/1.0\r\n\r\n")?;
        let mut start = [0; 5];
        connection.read_exact(&mut start)?;
        Ok(&start == b"HTTP/")
    };
    ask().unwrap_or(false)
}

fn connect(address: SocketAddr) -> io::Result<TcpStream> {
    let connection = TcpStream::connect_timeout(&address, CONNECT_TIMEOUT)?;
    connection.set_read_timeout(Some(ANSWER_TIMEOUT))?;
    connection.set_write_timeout(Some(ANSWER_TIMEOUT))?;
    Ok(connection)
}

/// Sends one frame, and returns the opcode of the answer.
fn exchange(connection: &mut (impl Read + Write), opcode: u8, body: &[u8]) -> io::Result<u8> {
    let length = u32::try_from(body.len()).map_err(io::Error::other)?;
    let (flags, stream) = (0, [0, 0]);
    let mut frame = vec![VERSION_REQUEST, flags, stream[0], stream[1], opcode];
    frame.extend(length.to_be_bytes());
    frame.extend(body);
    connection.write_all(&frame)?;

    let mut header = [0; 9];
    connection.read_exact(&mut header)?;
    let [_, _, _, _, opcode, length @ ..] = header;
    let length = u64::from(u32::from_be_bytes(length));
    io::copy(&mut connection.take(length), &mut io::sink())?;
    Ok(opcode)
}

fn startup_body() -> Vec<u8> {
    let mut body = 1_u16.to_be_bytes().to_vec();
    for text in ["CQL_VERSION", "3.0.0"] {
        body.extend((text.len() as u16).to_be_bytes());
        body.extend(text.as_bytes());
    }
    body
}

fn query_body(query: &str, consistency: u16) -> Vec<u8> {
    let mut body = (query.len() as u32).to_be_bytes().to_vec();
    body.extend(query.as_bytes());
    body.extend(consistency.to_be_bytes());
    let flags = 0;
    body.push(flags);
    body
}

#[cfg(test)]
mod tests {
    use std::{io::Cursor, net::TcpListener};

    use super::*;

    #[test]
    fn a_whole_frame_is_sent_and_a_whole_answer_is_read() {
        struct FakePeer {
            sent: Vec<u8>,
            answer: Cursor<Vec<u8>>,
        }
        impl Read for FakePeer {
            fn read(&mut self, buffer: &mut [u8]) -> io::Result<usize> {
                self.answer.read(buffer)
            }
        }
        impl Write for FakePeer {
            fn write(&mut self, bytes: &[u8]) -> io::Result<usize> {
                self.sent.write(bytes)
            }
            fn flush(&mut self) -> io::Result<()> {
                Ok(())
            }
        }
        let answer = vec![0x84, 0, 0, 0, SUPPORTED, 0, 0, 0, 3, 1, 2, 3, 0xff];
        let mut peer = FakePeer { sent: Vec::new(), answer: Cursor::new(answer) };
        assert_eq!(exchange(&mut peer, OPTIONS, b"ab").unwrap(), SUPPORTED);
        assert_eq!(peer.sent, [4, 0, 0, 0, OPTIONS, 0, 0, 0, 2, b'a', b'b']);
        assert_eq!(peer.answer.position(), 12, "the next answer starts after this one");
    }

    #[test]
    fn bodies_have_the_bytes_of_the_protocol() {
        assert_eq!(startup_body(), b"\0\x01\0\x0bCQL_VERSION\0\x053.0.0");
        assert_eq!(query_body("Q", CONSISTENCY_ALL), b"\0\0\0\x01Q\0\x05\0");
    }

    #[test]
    fn a_server_that_does_not_listen_is_not_ready() {
        let listener = TcpListener::bind("127.0.0.1:0").unwrap();
        let address = listener.local_addr().unwrap();
        drop(listener);
        assert!(
            !cassandra_is_ready(address)
                && !cassandra_sees_three(address)
                && !http_is_ready(address)
        );
    }
}
