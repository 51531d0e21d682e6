//! A proxy between two nodes. It cuts a connection at a given byte, or holds back all bytes.

use std::{
    io::{Read, Write},
    net::{Shutdown, SocketAddr, TcpListener, TcpStream},
    sync::{
        Arc, Mutex,
        atomic::{AtomicBool, AtomicUsize, Ordering},
    },
    thread,
};

/// The direction of bytes.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Way {
    Request,
    Answer,
}

/// Where the next connection with traffic is cut.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Cut {
    pub(crate) way: Way,
    /// The number of bytes that pass before the cut.
    pub(crate) after: usize,
}

#[derive(Debug, Default)]
struct ProxyState {
    target: Mutex<Option<SocketAddr>>,
    cut: Mutex<Option<Cut>>,
    holds: AtomicBool,
    /// The answer that is sent instead of that of the server.
    false_answer: Mutex<Option<&'static str>>,
    /// The number of connections so far.
    accepted: AtomicUsize,
}

/// A proxy.
#[derive(Clone, Debug)]
pub(crate) struct Proxy {
    pub(crate) address: SocketAddr,
    state: Arc<ProxyState>,
}

impl Proxy {
    pub(crate) fn start() -> Proxy {
        let listener = TcpListener::bind("127.0.0.1:0").unwrap();
        let address = listener.local_addr().unwrap();
        let state = Arc::new(ProxyState::default());
        let shared = Arc::clone(&state);
        thread::spawn(move || {
            for client in listener.incoming() {
                shared.accepted.fetch_add(1, Ordering::SeqCst);
                let client = client.unwrap();
                let target = shared.target.lock().unwrap().expect("the proxy has a target");
                let Ok(server) = TcpStream::connect(target) else { continue };
                for (way, from, to) in
                    [(Way::Request, &client, &server), (Way::Answer, &server, &client)]
                {
                    to.set_nodelay(true).unwrap();
                    let (from, to) = (from.try_clone().unwrap(), to.try_clone().unwrap());
                    let state = Arc::clone(&shared);
                    thread::spawn(move || pass(way, from, to, &state));
                }
            }
        });
        Proxy { address, state }
    }

    pub(crate) fn leads_to(&self, target: SocketAddr) {
        *self.state.target.lock().unwrap() = Some(target);
    }

    /// Cuts the next connection at this place, and no later one.
    pub(crate) fn cut(&self, cut: Cut) {
        *self.state.cut.lock().unwrap() = Some(cut);
    }

    /// Whether the last cut was made. A cut that was not made is withdrawn.
    pub(crate) fn was_cut(&self) -> bool {
        self.state.cut.lock().unwrap().take().is_none()
    }

    /// Whether all bytes are held back, as a stopped process would do.
    pub(crate) fn hold(&self, holds: bool) {
        self.state.holds.store(holds, Ordering::SeqCst);
    }

    /// Sends this instead of each further answer of the server.
    pub(crate) fn answers(&self, answer: Option<&'static str>) {
        *self.state.false_answer.lock().unwrap() = answer;
    }

    pub(crate) fn accepted(&self) -> usize {
        self.state.accepted.load(Ordering::SeqCst)
    }
}

fn pass(way: Way, mut from: TcpStream, mut to: TcpStream, state: &ProxyState) {
    let mut buffer = vec![0; 64 << 10];
    while let Ok(read @ 1..) = from.read(&mut buffer) {
        while state.holds.load(Ordering::SeqCst) {
            thread::sleep(std::time::Duration::from_millis(1));
        }
        let false_answer = *state.false_answer.lock().unwrap();
        if let (Way::Answer, Some(answer)) = (way, false_answer) {
            let _ = to.write_all(answer.as_bytes());
            break;
        }
        let mut cut = state.cut.lock().unwrap();
        match &mut *cut {
            Some(Cut { way: at, after }) if *at == way && *after < read => {
                let _ = to.write_all(&buffer[..*after]);
                *cut = None;
                break;
            }
            Some(Cut { way: at, after }) if *at == way => *after -= read,
            _ => {}
        }
        drop(cut);
        if to.write_all(&buffer[..read]).is_err() {
            break;
        }
    }
    let _ = from.shutdown(Shutdown::Both);
    let _ = to.shutdown(Shutdown::Both);
}
