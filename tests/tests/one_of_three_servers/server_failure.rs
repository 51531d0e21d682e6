//! The failures of one server, and their end.

use std::{
    process::Command,
    sync::{
        Arc,
        atomic::{AtomicBool, Ordering},
    },
    time::Duration,
};

use vvm_tests::processes::{KilledServer, SuspendedProcesses};

/// How a server fails.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum ServerFailure {
    /// The server is suspended: its connections stay open, and no answers come.
    Frozen,
    /// The server answers only after up to half a second.
    Slow,
    /// The server is killed: its connections break, and new connections are refused.
    Killed,
    /// All packets to the server are lost on the way, without an error.
    CutOff,
    /// As `CutOff`, but only the packets of the other servers are lost. Clients reach the server.
    CutOffFromPeers,
}

/// A failure that lasts until this value is dropped.
pub(crate) enum ActiveFailure {
    Frozen { _stopped: SuspendedProcesses },
    Slow { stop: Arc<AtomicBool>, thread: Option<std::thread::JoinHandle<()>> },
    Killed { _killed: KilledServer },
    CutOff { _routes: Vec<BlackholeRoute> },
}

impl ActiveFailure {
    pub(crate) fn begin(failure: ServerFailure, server: &str) -> ActiveFailure {
        match failure {
            ServerFailure::Frozen => {
                ActiveFailure::Frozen { _stopped: SuspendedProcesses::nodes_at(&[server]).unwrap() }
            }
            ServerFailure::Killed => {
                ActiveFailure::Killed { _killed: KilledServer::node_at(server).unwrap() }
            }
            ServerFailure::CutOff => {
                let routes = [server.to_owned(), of_peers(server)];
                ActiveFailure::CutOff {
                    _routes: routes.iter().map(|at| BlackholeRoute::new(at).unwrap()).collect(),
                }
            }
            ServerFailure::CutOffFromPeers => ActiveFailure::CutOff {
                _routes: vec![BlackholeRoute::new(&of_peers(server)).unwrap()],
            },
            ServerFailure::Slow => {
                let stop = Arc::new(AtomicBool::new(false));
                let (stopped, server) = (Arc::clone(&stop), server.to_owned());
                let thread = std::thread::spawn(move || {
                    while !stopped.load(Ordering::SeqCst) {
                        let still = SuspendedProcesses::nodes_at(&[&server]).unwrap();
                        std::thread::sleep(Duration::from_millis(500));
                        drop(still);
                        std::thread::sleep(Duration::from_millis(50));
                    }
                });
                ActiveFailure::Slow { stop, thread: Some(thread) }
            }
        }
    }
}

/// The address where the other servers reach a server. Clients reach it at the given address.
/// `cargo xtask` starts the servers with two addresses each.
fn of_peers(server: &str) -> String {
    server.replacen("127.0.0.", "127.0.1.", 1)
}

/// A route that drops all packets to an address of this machine, until this value is dropped.
pub(crate) struct BlackholeRoute(String);

impl BlackholeRoute {
    pub(crate) fn new(server: &str) -> Result<BlackholeRoute, String> {
        let (ip, _) = server.rsplit_once(':').ok_or_else(|| format!("{server} has no port"))?;
        route("add", ip)?;
        Ok(BlackholeRoute(ip.to_owned()))
    }
}

impl Drop for BlackholeRoute {
    fn drop(&mut self) {
        if let Err(error) = route("del", &self.0) {
            eprintln!("{} stays cut off: {error}", self.0);
        }
    }
}

/// Changes a route. Only root may do so, and only on Linux.
fn route(what: &str, ip: &str) -> Result<(), String> {
    let arguments = ["route", what, "blackhole", &format!("{ip}/32"), "table", "local"];
    let status = Command::new("ip").args(arguments).status();
    match status {
        Ok(status) if status.success() => Ok(()),
        other => Err(format!("ip {}: {other:?}", arguments.join(" "))),
    }
}

impl Drop for ActiveFailure {
    fn drop(&mut self) {
        if let ActiveFailure::Slow { stop, thread } = self {
            stop.store(true, Ordering::SeqCst);
            thread.take().map(std::thread::JoinHandle::join);
        }
    }
}
