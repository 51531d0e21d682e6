//! The faults of a run, and how each begins and ends.

mod possible;

use std::{any::Any, fmt, slice, sync::atomic::Ordering, time::Duration};

use clap::ValueEnum;
use clock::Clock;
use rustix::process::{Pid, Signal};
use vvm_tests::{bench::BenchError, processes::KilledServer};

pub(crate) use self::possible::{Setting, choose};
use crate::{
    api::{self, ANSWER_TIMEOUT, HttpRequest},
    cluster::Cluster,
    network::Traffic,
    node::Node,
    storage::value_name,
};

/// The time for a node to end its drain. Other faults of the round may last for so long.
const CANCEL_TIMEOUT: Duration = Duration::from_secs(90);

#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, ValueEnum)]
#[value(rename_all = "snake_case")]
pub(crate) enum FaultKind {
    /// A node is killed, and stays down for a while.
    Kill,
    /// A node stands still.
    Pause,
    /// A node is stopped in order, and started again at once.
    Stop,
    /// A node gives its leadership away.
    StepDown,
    /// A node gives its partitions away, and takes them again.
    Drain,
    /// The connections of a node to its storage are bad: to all servers, or to one of several.
    StorageLink,
    /// The connections of clients to a node are bad.
    ClientLink,
    /// The connections of other nodes to a node are bad.
    PeerLink,
    /// A server of the storage is killed, and started again.
    KillServer,
    /// A server of the storage stands still.
    PauseServer,
    /// The disk of a node is full.
    FullDisk,
    /// The wall clock of a node jumps, and jumps back.
    Clock,
}

/// A fault, the node or the server that it hits, and its times.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Fault {
    pub(crate) kind: FaultKind,
    /// The place of the node or the server.
    pub(crate) target: usize,
    /// The server to which the link of a node is bad. `None` if the links to all servers are.
    pub(crate) server: Option<usize>,
    /// What happens to a link.
    pub(crate) traffic: Traffic,
    /// How far a clock jumps.
    pub(crate) jump: Duration,
    pub(crate) is_ahead: bool,
    /// From the begin of the round to the fault.
    pub(crate) delay: Duration,
    /// The time until the fault ends. 0 if the end of the process is its end.
    pub(crate) lasts: Duration,
}

impl fmt::Display for FaultKind {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        value_name(self, f)
    }
}

impl fmt::Display for Fault {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let Fault { kind, traffic, jump, is_ahead, lasts, .. } = self;
        let target = self.target + 1;
        match kind {
            FaultKind::KillServer | FaultKind::PauseServer => {
                write!(f, "{kind} of server {target}")?
            }
            _ => write!(f, "{kind} of node {target}")?,
        }
        if let Some(server) = self.server {
            write!(f, " to server {}", server + 1)?;
        }
        match kind {
            FaultKind::StorageLink | FaultKind::ClientLink | FaultKind::PeerLink
                if traffic.is_cut =>
            {
                write!(f, " (cut)")?;
            }
            FaultKind::StorageLink | FaultKind::ClientLink | FaultKind::PeerLink => {
                write!(f, " (there {:?}, back {:?})", traffic.to_server, traffic.to_client)?;
            }
            FaultKind::Clock => write!(f, " ({}{jump:?})", if *is_ahead { "+" } else { "-" })?,
            _ => {}
        }
        if lasts.is_zero() { Ok(()) } else { write!(f, " for {lasts:.1?}") }
    }
}

/// A fault that has begun.
struct Begun {
    has_effect: bool,
    /// The process that the fault ends, if the fault ends with the process.
    ending: Option<Pid>,
    /// A value that ends the fault when it is dropped, if the fault needs one.
    undo: Option<Box<dyn Any>>,
}

impl Begun {
    fn until_dropped(undo: impl Any) -> Begun {
        Begun { has_effect: true, ending: None, undo: Some(Box::new(undo)) }
    }
}

impl Fault {
    /// Whether the fault leaves the node all servers of the storage but one. The driver goes on
    /// with them.
    pub(crate) fn leaves_other_servers(&self) -> bool {
        self.kind == FaultKind::StorageLink && self.server.is_some()
    }

    /// Lets the fault happen, from its begin to its end. Returns whether it had an effect: an order
    /// may reach no node that can obey it, and another fault no process.
    pub(crate) async fn play(
        &self,
        cluster: &Cluster,
        clock: &Clock,
        note: &(dyn Fn(String) + Sync),
    ) -> Result<bool, BenchError> {
        clock.sleep(self.delay).await;
        note(format!("begin {self}"));
        let Begun { has_effect, ending, undo } = self.begin(cluster, clock).await?;
        if has_effect {
            clock.sleep(self.lasts).await;
            let node = self.node(cluster);
            if !node.ended(ending, clock).await {
                return Err(format!("{} did not end in time after {}", node.name, self.kind).into());
            }
        }
        drop(undo);
        self.end(cluster, clock).await?;
        note(format!("end {self}"));
        if !has_effect {
            note(format!("without effect: {self}"));
        }
        Ok(has_effect)
    }

    async fn begin(&self, cluster: &Cluster, clock: &Clock) -> Result<Begun, BenchError> {
        let node = self.node(cluster);
        let pid = node.pid();
        let mut ending = None;
        let has_effect = match self.kind {
            FaultKind::Kill => {
                node.stays_down.store(true, Ordering::SeqCst);
                node.signal(Signal::KILL)
            }
            FaultKind::Pause => node.signal(Signal::STOP),
            FaultKind::Stop => {
                ending = pid;
                node.signal(Signal::TERM)
            }
            FaultKind::StepDown => {
                ending = pid;
                is_obeyed(node, clock, "/step-down").await
            }
            FaultKind::Drain => is_obeyed(node, clock, "/drain").await,
            FaultKind::StorageLink | FaultKind::ClientLink | FaultKind::PeerLink => {
                self.set_link(node, self.traffic);
                pid.is_some()
            }
            FaultKind::KillServer => {
                let server = &cluster.storage.servers[self.target];
                return Ok(Begun::until_dropped(KilledServer::node_at(server)?));
            }
            FaultKind::PauseServer => {
                return Ok(Begun::until_dropped(cluster.storage.suspend(self.target)?));
            }
            FaultKind::FullDisk => {
                node.faults.set_full(true)?;
                pid.is_some()
            }
            FaultKind::Clock => {
                node.faults.set_clock(self.jump, self.is_ahead)?;
                pid.is_some()
            }
        };
        Ok(Begun { has_effect, ending, undo: None })
    }

    fn node<'a>(&self, cluster: &'a Cluster) -> &'a Node {
        &cluster.nodes[self.target % cluster.nodes.len()]
    }

    async fn end(&self, cluster: &Cluster, clock: &Clock) -> Result<(), BenchError> {
        let node = self.node(cluster);
        match self.kind {
            FaultKind::Kill => node.stays_down.store(false, Ordering::SeqCst),
            FaultKind::Pause => {
                node.signal(Signal::CONT);
            }
            FaultKind::Stop | FaultKind::StepDown | FaultKind::PauseServer => {}
            FaultKind::Drain => cancel_drain(node, clock).await?,
            FaultKind::StorageLink | FaultKind::ClientLink | FaultKind::PeerLink => {
                self.set_link(node, Traffic::WHOLE);
            }
            FaultKind::KillServer => cluster.storage.wait_for_server(self.target, clock).await?,
            FaultKind::FullDisk => node.faults.set_full(false)?,
            FaultKind::Clock => node.faults.set_clock(Duration::ZERO, true)?,
        }
        Ok(())
    }

    fn set_link(&self, node: &Node, traffic: Traffic) {
        let links = match (self.kind, self.server) {
            (FaultKind::ClientLink, _) => slice::from_ref(&node.client_link),
            (FaultKind::PeerLink, _) => node.peer_link.as_slice(),
            (_, None) => &node.storage_links[..],
            (_, Some(server)) => slice::from_ref(&node.storage_links[server]),
        };
        links.iter().for_each(|link| link.set(traffic));
    }
}

/// Orders something at the admin endpoint, and returns whether the node obeys. A node that does not
/// lead cannot.
async fn is_obeyed(node: &Node, clock: &Clock, path: &str) -> bool {
    let headers = vec![("x-vvm-admin", "1".to_owned())];
    let (path, body) = (path.to_owned(), String::new());
    let request = HttpRequest { method: "POST", path, headers, body };
    let answer = api::send(clock, node.admin, &request, ANSWER_TIMEOUT).await;
    answer.is_ok_and(|answer| answer.status == 202)
}

/// Cancels the drain of a node. A node that stands still or is down answers later: a drain that
/// lasts would leave it without partitions for the rest of the run.
async fn cancel_drain(node: &Node, clock: &Clock) -> Result<(), BenchError> {
    let deadline = clock.now() + CANCEL_TIMEOUT;
    while !is_obeyed(node, clock, "/drain?cancel=true").await {
        if clock.now() >= deadline {
            let name = &node.name;
            return Err(format!("{name} did not end its drain in {CANCEL_TIMEOUT:?}").into());
        }
        clock.sleep(Duration::from_millis(200)).await;
    }
    Ok(())
}
