//! The messages of a node to its supervisor, over a real `NOTIFY_SOCKET`.

#![allow(clippy::unwrap_used, clippy::disallowed_methods)]

#[allow(dead_code, reason = "this suite needs a part of it")]
#[path = "support/fixture.rs"]
mod fixture;
#[allow(dead_code, reason = "this suite needs a part of it")]
#[path = "support/node.rs"]
mod node;
#[path = "support/trials.rs"]
mod trials;

use std::{
    io,
    os::{
        linux::net::SocketAddrExt,
        unix::net::{SocketAddr as UnixAddress, UnixDatagram},
    },
    path::Path,
    process::Command,
    time::{Duration, Instant},
};

use fixture::StorageFixture;
use node::{NodeProcess, PATIENCE, free};
use rustix::process::Signal;
use shop::http_client::request;

const MEM: &str = "[storage]\ndriver = \"mem\"\n";

/// A supervisor: a socket, and the messages that have arrived.
struct Manager {
    socket: UnixDatagram,
    address: String,
    lines: Vec<String>,
}

impl Manager {
    fn at_path(folder: &Path) -> Manager {
        let path = folder.join("notify");
        let socket = UnixDatagram::bind(&path).unwrap();
        Manager::new(socket, path.to_str().unwrap().to_owned())
    }

    fn at_abstract_name() -> Manager {
        let name = format!("vvm-manager-{}", std::process::id());
        let address = UnixAddress::from_abstract_name(&name).unwrap();
        Manager::new(UnixDatagram::bind_addr(&address).unwrap(), format!("@{name}"))
    }

    fn new(socket: UnixDatagram, address: String) -> Manager {
        socket.set_nonblocking(true).unwrap();
        Manager { socket, address, lines: Vec::new() }
    }

    /// Starts a node with its variables.
    fn start(&self, folder: &Path, config: &str, watchdog: Option<Duration>) -> NodeProcess {
        let mut command = Command::new(env!("CARGO_BIN_EXE_vvm"));
        command.env("NOTIFY_SOCKET", &self.address).env_remove("WATCHDOG_PID");
        match watchdog {
            Some(watchdog) => command.env("WATCHDOG_USEC", watchdog.as_micros().to_string()),
            None => command.env_remove("WATCHDOG_USEC"),
        };
        NodeProcess::spawn(command, folder, config, free(), free())
    }

    /// Reads the messages that are there.
    fn read(&mut self) {
        let mut message = [0; 4096];
        loop {
            match self.socket.recv(&mut message) {
                Ok(length) => {
                    let text = str::from_utf8(&message[..length]).unwrap();
                    self.lines.extend(text.lines().map(str::to_owned));
                }
                Err(error) if error.kind() == io::ErrorKind::WouldBlock => return,
                Err(error) => panic!("{error}"),
            }
        }
    }

    /// Waits for a line.
    fn until(&mut self, line: &str) {
        let start = Instant::now();
        while !self.has(line) {
            assert!(start.elapsed() < PATIENCE, "no {line}: {:?}", self.lines);
            std::thread::sleep(Duration::from_millis(10));
        }
    }

    fn has(&mut self, line: &str) -> bool {
        self.read();
        self.lines.iter().any(|there| there == line)
    }

    /// Returns the lines that begin with a word.
    fn all(&mut self, word: &str) -> Vec<&str> {
        self.read();
        self.lines.iter().filter_map(|line| line.strip_prefix(word)).collect()
    }
}

/// A node says once that it is ready, and then that it stops, in this order.
fn start_and_stop(mut manager: Manager) {
    let folder = tempfile::tempdir().unwrap();
    let mut node = manager.start(folder.path(), "", None);
    manager.until("READY=1");
    let (ready, _) = request(node.admin, "GET", "/readyz", &[], "");
    assert_eq!(ready, 200, "the node was not ready when it said so");
    manager.until("STATUS=leading seat 1");
    node.signal(Signal::TERM);
    assert_eq!(node.ended().code(), Some(0), "{}", node.log_text());
    manager.until("STOPPING=1");
    // 30 s for the drain, 10 s for the stop, and 5 s.
    assert_eq!(manager.all("EXTEND_TIMEOUT_USEC=").last(), Some(&"45000000"));
    assert_eq!(manager.all("READY=1").len(), 1, "{:?}", manager.lines);
    assert!(manager.all("WATCHDOG=").is_empty(), "there is no watchdog");
    let at = |line: &str| manager.lines.iter().position(|there| there == line);
    assert!(at("READY=1") < at("STOPPING=1"), "{:?}", manager.lines);
}

fn by_path() {
    let folder = tempfile::tempdir().unwrap();
    start_and_stop(Manager::at_path(folder.path()));
}

fn by_abstract_name() {
    start_and_stop(Manager::at_abstract_name());
}

/// A node that cannot start says why, and is never ready.
fn failure() {
    let folder = tempfile::tempdir().unwrap();
    let mut manager = Manager::at_path(folder.path());
    let taken = std::net::TcpListener::bind("127.0.0.1:0").unwrap();
    let config = format!("{MEM}[cluster]\nlisten = \"{}\"\n", taken.local_addr().unwrap());
    let mut node = manager.start(folder.path(), &config, None);
    assert_eq!(node.ended().code(), Some(3), "{}", node.log_text());
    let told = manager.all("STATUS=failed: ").concat();
    assert!(told.contains("cluster.listen"), "{:?}", manager.lines);
    assert!(!manager.has("READY=1"));
}

/// The lease of a killed node is still in the storage, and the proof that this node is gone is
/// lost. So the next node stands by, and is ready for its supervisor.
fn standby() {
    let folder = tempfile::tempdir().unwrap();
    let mut manager = Manager::at_path(folder.path());
    let config = "[node]\nlease_seconds = 8\n";
    let mut killed = NodeProcess::start(folder.path(), config).ready();
    killed.signal(Signal::KILL);
    killed.ended();
    std::fs::remove_file(folder.path().join("data/lease.lock")).unwrap();
    let node = manager.start(folder.path(), config, None);
    manager.until("STATUS=standing by: waiting for leadership");
    manager.until("READY=1");
    assert_eq!(request(node.admin, "GET", "/readyz", &[], "").0, 503);
    assert!(!manager.has("STATUS=leading seat 1"));
    manager.until("STATUS=leading seat 1");
    node.stop();
}

/// An operator drains a node, and the node goes on. This is no stop.
fn drain_by_an_operator() {
    let folder = tempfile::tempdir().unwrap();
    let mut manager = Manager::at_path(folder.path());
    let node = manager.start(folder.path(), MEM, None);
    manager.until("STATUS=leading seat 1");
    request(node.admin, "POST", "/drain", &[], "");
    manager.until("STATUS=draining: the partitions move to other nodes");
    manager.lines.clear();
    request(node.admin, "POST", "/drain?cancel=true", &[], "");
    manager.until("STATUS=leading seat 1");
    assert!(!manager.has("STOPPING=1") && !manager.has("READY=1"), "{:?}", manager.lines);
    node.stop();
}

/// A node that stands still is not alive for its supervisor. It is again when it goes on.
fn watchdog() {
    const WATCHDOG: Duration = Duration::from_millis(500);
    let folder = tempfile::tempdir().unwrap();
    let mut manager = Manager::at_path(folder.path());
    let node = manager.start(folder.path(), MEM, Some(WATCHDOG));
    manager.until("READY=1");
    manager.lines.clear();
    let span = 8 * WATCHDOG;
    std::thread::sleep(span);
    let beats = manager.all("WATCHDOG=1").len();
    // The interval is half of the time of the watchdog.
    assert!((9..=17).contains(&beats), "{beats} beats in {span:?}");
    assert!(manager.all("EXTEND_TIMEOUT_USEC=").is_empty(), "{:?}", manager.lines);
    node.signal(Signal::STOP);
    manager.read();
    std::thread::sleep(Duration::from_millis(100));
    manager.read();
    manager.lines.clear();
    std::thread::sleep(2 * WATCHDOG);
    assert!(!manager.has("WATCHDOG=1"), "a node that stands still is alive");
    node.signal(Signal::CONT);
    manager.until("WATCHDOG=1");
    node.stop();
}

/// Nobody reads the socket, and soon it is full. The node still starts, works and stops.
fn unread() {
    let folder = tempfile::tempdir().unwrap();
    let mut manager = Manager::at_path(folder.path());
    let node = manager.start(folder.path(), MEM, Some(Duration::from_millis(2))).ready();
    // More beats than any queue of the kernel takes.
    let full = Instant::now();
    let probe = UnixDatagram::unbound().unwrap();
    probe.set_nonblocking(true).unwrap();
    while probe.send_to(b"STATUS=probe\n", &manager.address).is_ok() {
        assert!(full.elapsed() < PATIENCE, "the queue does not fill");
    }
    std::thread::sleep(Duration::from_millis(500));
    node.create_workspace(1);
    assert_eq!(node.logged(1).len(), 1);
    let start = Instant::now();
    node.stop();
    assert!(start.elapsed() < Duration::from_secs(3), "{:?}", start.elapsed());
    assert!(manager.has("WATCHDOG=1"));
}

/// Each reload has a beginning and an end for the supervisor. The node uses the new certificate
/// from the end on.
fn reload() {
    let folder = tempfile::tempdir().unwrap();
    let mut manager = Manager::at_path(folder.path());
    let path = |file: &str| folder.path().join(file);
    let sign = || {
        let own = rcgen::generate_simple_self_signed(["localhost".to_owned()]).unwrap();
        std::fs::write(path("node.pem"), own.cert.pem()).unwrap();
        std::fs::write(path("node-key.pem"), own.signing_key.serialize_pem()).unwrap();
    };
    sign();
    let tls = "[http.tls]\ncert_file = \"node.pem\"\nkey_file = \"node-key.pem\"\n";
    let node = manager.start(folder.path(), &format!("{MEM}{tls}"), None);
    manager.until("STATUS=leading seat 1");
    let exchanged = || node.log_text().matches("certificate exchanged").count();
    let reload = |manager: &mut Manager| {
        manager.lines.clear();
        node.signal(Signal::USR1);
        manager.until("RELOADING=1");
        manager.until("READY=1");
        let at = |line: &str| manager.lines.iter().position(|there| there == line);
        assert!(at("RELOADING=1") < at("READY=1"), "{:?}", manager.lines);
        let times = manager.all("MONOTONIC_USEC=");
        let [time] = times[..] else { panic!("{times:?}") };
        assert!(time.parse::<u64>().unwrap() > 0, "{time}");
    };
    reload(&mut manager);
    assert_eq!(exchanged(), 0, "nothing has changed");
    sign();
    reload(&mut manager);
    assert_eq!(exchanged(), 1, "{}", node.log_text());
    let refused = "STATUS=leading seat 1; the last reload was refused: the log has the reason";
    assert!(!manager.has(refused));
    std::fs::write(path("node-key.pem"), "no key").unwrap();
    reload(&mut manager);
    manager.until(refused);
    sign();
    reload(&mut manager);
    manager.until("STATUS=leading seat 1");
    assert_eq!(exchanged(), 2, "{}", node.log_text());
    node.stop();
}

/// The supervisor has gone. The node says so once, and works.
fn gone() {
    let folder = tempfile::tempdir().unwrap();
    let manager = Manager::at_path(folder.path());
    std::fs::remove_file(&manager.address).unwrap();
    let node = manager.start(folder.path(), MEM, Some(Duration::from_millis(20))).ready();
    std::thread::sleep(Duration::from_millis(300));
    let log = node.log_text();
    assert_eq!(log.matches("supervisor not reached").count(), 1, "{log}");
    node.stop();
}

/// The first of two nodes gives its partitions away before it stops. The supervisor knows the
/// time that this takes from the beginning.
fn drain_before_a_stop(fixture: &StorageFixture) {
    let folder = tempfile::tempdir().unwrap();
    let mut manager = Manager::at_path(folder.path());
    let of_node = |name: &str| {
        let folder = folder.path().join(name);
        std::fs::create_dir_all(&folder).unwrap();
        let cluster = format!("seats = 2\ndrain_seconds = 70\nlisten = \"{}\"\n", free());
        (folder, format!("{}[cluster]\n{cluster}", fixture.config(&fixture.storage)))
    };
    let ((first, config), (second, other)) = (of_node("first"), of_node("second"));
    let mut first = manager.start(&first, &config, None);
    manager.until("READY=1");
    let second = NodeProcess::start(&second, &other).ready();
    until_shared(&first);
    first.signal(Signal::TERM);
    assert_eq!(first.ended().code(), Some(0), "{}", first.log_text());
    manager.until("STOPPING=1");
    assert_eq!(manager.all("EXTEND_TIMEOUT_USEC=").last(), Some(&"85000000"));
    assert!(manager.has("STATUS=draining: the partitions move to other nodes"));
    second.stop();
}

/// Waits until each of two nodes owns partitions.
fn until_shared(node: &NodeProcess) {
    let start = Instant::now();
    loop {
        let (_, status) = request(node.admin, "GET", "/cluster", &[], "");
        let members = status["members"].as_array().unwrap();
        let owning = members.iter().filter(|member| member["partitions"].as_u64() > Some(0));
        if owning.count() == 2 {
            return;
        }
        assert!(start.elapsed() < PATIENCE, "{status}");
        std::thread::sleep(Duration::from_millis(50));
    }
}

fn main() {
    let alone: [(&str, fn()); 9] = [
        ("a_node_tells_its_start_and_its_stop_by_path", by_path),
        ("a_node_tells_its_start_and_its_stop_by_abstract_name", by_abstract_name),
        ("a_node_that_cannot_start_tells_why", failure),
        ("a_standby_is_ready", standby),
        ("a_drain_by_an_operator_is_no_stop", drain_by_an_operator),
        ("a_node_that_stands_still_does_not_feed_the_watchdog", watchdog),
        ("a_socket_that_is_not_read_delays_nothing", unread),
        ("a_socket_that_is_gone_is_told_once", gone),
        ("a_reload_has_a_beginning_and_an_end", reload),
    ];
    let alone = alone.map(|(name, run)| (name, run, true));
    trials::run(alone, ("a_stop_tells_the_time_of_its_drain", drain_before_a_stop))
}
