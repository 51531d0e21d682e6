//! A node as a process, with a supervisor that starts it again.

use std::{
    fs::{self, File},
    net::SocketAddr,
    path::PathBuf,
    process::{ExitStatus, Stdio},
    sync::{
        Arc,
        atomic::{AtomicBool, AtomicI32, Ordering},
    },
    time::Duration,
};

use clock::Clock;
use rustix::process::{Pid, Signal, kill_process};
use tokio::process::{Child, Command};
use vvm_tests::bench::BenchError;

use crate::{
    network::Link,
    recorder::Recorder,
    shim::{self, ShimFile},
};

/// The pause of the supervisor before it starts a node again.
const RESTART_DELAY: Duration = Duration::from_secs(1);

/// The longest time for a node to end in order.
const STOP_TIMEOUT: Duration = Duration::from_secs(90);

/// A node, its addresses, and the links to it and from it.
pub(crate) struct Node {
    /// The place in the cluster, from 0.
    place: usize,
    pub(crate) name: String,
    folder: PathBuf,
    binary: PathBuf,
    shim: Option<PathBuf>,
    /// The address of the API without a link.
    pub(crate) api: SocketAddr,
    pub(crate) admin: SocketAddr,
    /// From clients to the API.
    pub(crate) client_link: Link,
    /// From other nodes to the cluster port.
    pub(crate) peer_link: Option<Link>,
    /// From the node to each server of its storage.
    pub(crate) storage_links: Vec<Link>,
    /// The clock and the disk of the process.
    pub(crate) faults: ShimFile,
    /// The process, or 0.
    pid: AtomicI32,
    /// Whether the supervisor leaves the node down.
    pub(crate) stays_down: AtomicBool,
}

/// The end of a process.
#[derive(Clone, Debug)]
pub(crate) struct NodeExit {
    pub(crate) place: usize,
    pub(crate) node: String,
    pub(crate) at: u64,
    pub(crate) status: ExitStatus,
}

/// What the process of a node uses.
#[derive(Clone, Copy, Debug)]
pub(crate) struct NodeUsage {
    pub(crate) pid: i32,
    /// The resident memory in bytes.
    pub(crate) memory: u64,
    /// The number of open files.
    pub(crate) files: usize,
}

/// What a new node needs.
pub(crate) struct NodeParts {
    pub(crate) place: usize,
    pub(crate) name: String,
    pub(crate) folder: PathBuf,
    pub(crate) binary: PathBuf,
    pub(crate) shim: Option<PathBuf>,
    pub(crate) api: SocketAddr,
    pub(crate) admin: SocketAddr,
    pub(crate) client_link: Link,
    pub(crate) peer_link: Option<Link>,
    pub(crate) storage_links: Vec<Link>,
    pub(crate) config: String,
}

impl Node {
    pub(crate) fn new(parts: NodeParts) -> Result<Node, BenchError> {
        let NodeParts { place, name, folder, binary, shim, .. } = parts;
        fs::create_dir_all(&folder)?;
        fs::write(folder.join("vvm.toml"), parts.config)?;
        let faults = ShimFile::create(&folder.join("faults"))?;
        Ok(Node {
            place,
            name,
            folder,
            binary,
            shim,
            api: parts.api,
            admin: parts.admin,
            client_link: parts.client_link,
            peer_link: parts.peer_link,
            storage_links: parts.storage_links,
            faults,
            pid: AtomicI32::new(0),
            stays_down: AtomicBool::new(false),
        })
    }

    /// Starts the node again and again, until it must stay down for good.
    pub(crate) async fn supervise(
        self: Arc<Node>,
        recorder: Arc<Recorder>,
        clock: Clock,
        exits: Arc<std::sync::Mutex<Vec<NodeExit>>>,
    ) -> Result<(), BenchError> {
        loop {
            while self.stays_down.load(Ordering::SeqCst) {
                clock.sleep(Duration::from_millis(50)).await;
            }
            let mut child = self.spawn()?;
            self.pid.store(child.id().map_or(0, |pid| pid.cast_signed()), Ordering::SeqCst);
            let status = child.wait().await?;
            let (place, node) = (self.place, self.name.clone());
            let exit = NodeExit { place, node, at: recorder.now(), status };
            recorder.note(format!("{} ended: {status}", self.name));
            if let Ok(mut exits) = exits.lock() {
                exits.push(exit);
            }
            // After the exit, so that a node without a process has its last exit in the list.
            self.pid.store(0, Ordering::SeqCst);
            clock.sleep(RESTART_DELAY).await;
        }
    }

    fn spawn(&self) -> Result<Child, BenchError> {
        let log = File::options().create(true).append(true).open(self.log())?;
        let mut command = Command::new(&self.binary);
        command.args(["serve", "--config", "vvm.toml"]).current_dir(&self.folder);
        if let Some(shim) = &self.shim {
            command.env("LD_PRELOAD", shim).env(shim::FAULTS, self.faults.path());
            command.env(shim::LINKS, shim::redirections(&self.storage_links));
        }
        command.env_remove("RUST_LOG").stdin(Stdio::null()).stdout(Stdio::null()).stderr(log);
        Ok(command.kill_on_drop(true).spawn()?)
    }

    pub(crate) fn log(&self) -> PathBuf {
        self.folder.join("node.log")
    }

    /// The process, if the node runs.
    pub(crate) fn pid(&self) -> Option<Pid> {
        Pid::from_raw(self.pid.load(Ordering::SeqCst))
    }

    /// Whether the node has a process, also one that stands still.
    pub(crate) fn runs(&self) -> bool {
        self.pid().is_some_and(|pid| !has_ended(pid))
    }

    /// Sends a signal. Returns whether there was a process to take it. A process that has ended
    /// takes signals until its supervisor knows of the end.
    pub(crate) fn signal(&self, signal: Signal) -> bool {
        self.pid().is_some_and(|pid| !has_ended(pid) && kill_process(pid, signal).is_ok())
    }

    /// Stops the node in order, and leaves it down. Returns whether it ended in time.
    pub(crate) async fn stop(&self, clock: &Clock) -> bool {
        self.stays_down.store(true, Ordering::SeqCst);
        let pid = self.pid();
        self.signal(Signal::TERM);
        self.ended(pid, clock).await
    }

    /// Waits until a process that was told to end has ended. Returns whether it ended in time.
    pub(crate) async fn ended(&self, pid: Option<Pid>, clock: &Clock) -> bool {
        let deadline = clock.now() + STOP_TIMEOUT;
        while pid.is_some() && self.pid() == pid {
            if clock.now() >= deadline {
                return false;
            }
            clock.sleep(Duration::from_millis(20)).await;
        }
        true
    }

    /// What the process uses. `None` if the node does not run.
    pub(crate) fn usage(&self) -> Option<NodeUsage> {
        let pid = self.pid()?.as_raw_nonzero();
        let status = fs::read_to_string(format!("/proc/{pid}/status")).ok()?;
        let resident = status.lines().find_map(|line| line.strip_prefix("VmRSS:"))?;
        let resident: u64 = resident.trim().strip_suffix(" kB")?.trim().parse().ok()?;
        let files = fs::read_dir(format!("/proc/{pid}/fd")).ok()?.count();
        Some(NodeUsage { pid: pid.get(), memory: resident << 10, files })
    }
}

/// Whether a process has ended, even if its parent has not asked for its status.
fn has_ended(pid: Pid) -> bool {
    let stat = fs::read_to_string(format!("/proc/{}/stat", pid.as_raw_nonzero()));
    // The state is after the name of the program, which is in parentheses.
    let state = stat.ok().and_then(|stat| stat.rsplit_once(") ")?.1.chars().next());
    matches!(state, None | Some('Z' | 'X'))
}

#[cfg(test)]
mod tests {
    use rustix::process::getpid;

    use super::*;

    #[tokio::test]
    async fn a_process_that_has_ended_takes_no_signal_before_its_parent_knows() {
        let (clock, folder) = (Clock::system(), tempfile::tempdir().unwrap());
        let address = SocketAddr::from(([127, 0, 0, 1], 9));
        let node = Node::new(NodeParts {
            place: 0,
            name: "node 1".to_owned(),
            folder: folder.path().to_owned(),
            binary: PathBuf::new(),
            shim: None,
            api: address,
            admin: address,
            client_link: Link::start(address, &clock).await.unwrap(),
            peer_link: None,
            storage_links: Vec::new(),
            config: String::new(),
        });
        let node = node.unwrap();
        assert!(!node.runs() && !node.signal(Signal::CONT), "there is no process");
        node.pid.store(getpid().as_raw_nonzero().get(), Ordering::SeqCst);
        assert!(node.runs() && node.signal(Signal::CONT));
        let mut child = std::process::Command::new("true").spawn().unwrap();
        let pid = Pid::from_child(&child);
        node.pid.store(pid.as_raw_nonzero().get(), Ordering::SeqCst);
        let deadline = clock.now() + Duration::from_secs(10);
        while node.runs() && clock.now() < deadline {
            clock.sleep(Duration::from_millis(10)).await;
        }
        assert!(kill_process(pid, Signal::TERM).is_ok(), "the system takes the signal");
        assert!(!node.runs() && !node.signal(Signal::TERM));
        child.wait().unwrap();
        assert!(!node.runs());
    }
}
