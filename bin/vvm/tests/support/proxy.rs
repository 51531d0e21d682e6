//! A proxy between a node and its storage, which can be slow, refuse, and be cut.

use std::{
    io::{Read, Write},
    net::{Shutdown, SocketAddr, TcpListener, TcpStream},
    sync::{Arc, Mutex},
    time::Duration,
};

/// What a proxy does with connections and bytes.
#[derive(Clone, Copy, Debug, PartialEq)]
pub(crate) enum Passing {
    /// All bytes pass at once.
    Whole,
    /// Bytes pass after a delay, in both directions.
    Late(Duration),
    /// No bytes pass, and neither side is told.
    Nothing,
    /// Connections are closed, and new ones too.
    Closed,
}

/// Passes bytes on to a server.
pub(crate) struct Proxy {
    pub(crate) address: SocketAddr,
    passing: Arc<Mutex<Passing>>,
    streams: Arc<Mutex<Vec<TcpStream>>>,
}

impl Proxy {
    pub(crate) fn start(server: &str) -> Proxy {
        let server = server.trim_start_matches("http://").to_owned();
        let listener = TcpListener::bind("127.0.0.1:0").unwrap();
        let address = listener.local_addr().unwrap();
        let passing = Arc::new(Mutex::new(Passing::Whole));
        let streams = Arc::new(Mutex::new(Vec::new()));
        let (now, kept) = (Arc::clone(&passing), Arc::clone(&streams));
        std::thread::spawn(move || {
            for client in listener.incoming() {
                // The lock is held until the streams are kept, so none is forgotten by `set`.
                let passing = now.lock().unwrap();
                if *passing == Passing::Closed {
                    continue;
                }
                let (Ok(client), Ok(server)) = (client, TcpStream::connect(&server)) else {
                    continue;
                };
                for (from, to) in [(&client, &server), (&server, &client)] {
                    let (from, to) = (from.try_clone().unwrap(), to.try_clone().unwrap());
                    let now = Arc::clone(&now);
                    std::thread::spawn(move || pass(from, to, &now));
                }
                kept.lock().unwrap().extend([client, server]);
            }
        });
        Proxy { address, passing, streams }
    }

    pub(crate) fn set(&self, passing: Passing) {
        *self.passing.lock().unwrap() = passing;
        if passing == Passing::Closed {
            self.close();
        }
    }

    fn close(&self) {
        for stream in self.streams.lock().unwrap().drain(..) {
            // The connection may be gone already.
            let _ = stream.shutdown(Shutdown::Both);
        }
    }
}

impl Drop for Proxy {
    fn drop(&mut self) {
        self.close();
    }
}

fn pass(mut from: TcpStream, mut to: TcpStream, passing: &Mutex<Passing>) {
    let mut bytes = vec![0; 64 << 10];
    while let Ok(count) = from.read(&mut bytes) {
        let passing = *passing.lock().unwrap();
        match passing {
            Passing::Nothing if count > 0 => continue,
            Passing::Late(delay) => std::thread::sleep(delay),
            _ => {}
        }
        if count == 0 || to.write_all(&bytes[..count]).is_err() {
            let _ = to.shutdown(Shutdown::Both);
            return;
        }
    }
}
