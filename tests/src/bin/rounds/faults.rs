//! The faults of a run, and how each begins and ends.

mod possible;
#[cfg(test)]
mod tests;

use std::{any::Any, fmt, io, slice, sync::atomic::Ordering, time::Duration};

use clap::ValueEnum;
use clock::Clock;
use hyper::{
    Method,
    header::{HeaderName, HeaderValue},
};
use rustix::process::{Pid, Signal};
use vvm_tests::{bench::BenchError, processes::KilledServer};

pub(crate) use self::possible::{Setting, choose};
use crate::{
    api::{self, ANSWER_TIMEOUT, HttpRequest},
    cluster::Cluster,
    network::{Link, Traffic},
    node::Node,
    shim::FullDisk,
    storage::value_name,
};

/// The time for a node to end its drain. Other faults of the round may last for this long.
const CANCEL_TIMEOUT: Duration = Duration::from_secs(90);

/// The time for a node to answer an order. A node that stands still obeys when it goes on, and then
/// its answer must still be read: other faults of the round may last for this long.
const ORDER_TIMEOUT: Duration = Duration::from_secs(90);

/// The pause between two looks at the process of a node.
const LOOK_PAUSE: Duration = Duration::from_millis(20);

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

/// What a fault does, with everything that its kind needs.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum FaultEffect {
    Kill,
    Pause,
    Stop,
    StepDown,
    Drain,
    /// `server` is the place of the only server with bad connections. `None` if the connections to
    /// all servers are bad.
    StorageLink {
        server: Option<usize>,
        traffic: Traffic,
    },
    ClientLink(Traffic),
    PeerLink(Traffic),
    KillServer,
    PauseServer,
    FullDisk(FullDisk),
    Clock {
        jump: Duration,
        is_ahead: bool,
    },
}

/// A fault, the node or the server that it hits, and its times.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Fault {
    pub(crate) effect: FaultEffect,
    /// The place of the node or the server.
    pub(crate) target: usize,
    /// From the begin of the round to the fault.
    pub(crate) delay: Duration,
    /// The time until the fault ends. 0 if the end of the process is its end.
    pub(crate) lasts: Duration,
}

impl FaultEffect {
    fn kind(self) -> FaultKind {
        match self {
            FaultEffect::Kill => FaultKind::Kill,
            FaultEffect::Pause => FaultKind::Pause,
            FaultEffect::Stop => FaultKind::Stop,
            FaultEffect::StepDown => FaultKind::StepDown,
            FaultEffect::Drain => FaultKind::Drain,
            FaultEffect::StorageLink { .. } => FaultKind::StorageLink,
            FaultEffect::ClientLink(_) => FaultKind::ClientLink,
            FaultEffect::PeerLink(_) => FaultKind::PeerLink,
            FaultEffect::KillServer => FaultKind::KillServer,
            FaultEffect::PauseServer => FaultKind::PauseServer,
            FaultEffect::FullDisk(_) => FaultKind::FullDisk,
            FaultEffect::Clock { .. } => FaultKind::Clock,
        }
    }
}

impl fmt::Display for FaultKind {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        value_name(self, f)
    }
}

impl fmt::Display for Fault {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let (kind, target, lasts) = (self.kind(), self.target + 1, self.lasts);
        match self.effect {
            FaultEffect::KillServer | FaultEffect::PauseServer => {
                write!(f, "{kind} of server {target}")?
            }
            FaultEffect::StorageLink { server: Some(server), traffic } => {
                write!(f, "{kind} of node {target} to server {} ({traffic})", server + 1)?;
            }
            FaultEffect::StorageLink { server: None, traffic }
            | FaultEffect::ClientLink(traffic)
            | FaultEffect::PeerLink(traffic) => write!(f, "{kind} of node {target} ({traffic})")?,
            FaultEffect::Clock { jump, is_ahead } => {
                let sign = if is_ahead { "+" } else { "-" };
                write!(f, "{kind} of node {target} ({sign}{jump:?})")?;
            }
            FaultEffect::FullDisk(full) => write!(f, "{kind} of node {target} ({full})")?,
            _ => write!(f, "{kind} of node {target}")?,
        }
        if lasts.is_zero() { Ok(()) } else { write!(f, " for {lasts:.1?}") }
    }
}

/// A fault that has begun.
struct Begun {
    /// Whether there was something that the fault could hit, or an order was obeyed.
    was_taken: bool,
    /// The process that the fault ends, if the fault ends with the process.
    ending: Option<Pid>,
    /// A value that ends the fault when it is dropped, if the fault needs one.
    undo: Option<Box<dyn Any>>,
}

impl Begun {
    fn until_dropped(undo: impl Any) -> Begun {
        Begun { was_taken: true, ending: None, undo: Some(Box::new(undo)) }
    }
}

impl Fault {
    pub(crate) fn kind(&self) -> FaultKind {
        self.effect.kind()
    }

    /// Whether the fault leaves the node all servers of the storage but one. The driver goes on
    /// with them.
    pub(crate) fn leaves_other_servers(&self) -> bool {
        matches!(self.effect, FaultEffect::StorageLink { server: Some(_), .. })
    }

    /// Lets the fault happen, from its begin to its end. Returns whether it had an effect: an order
    /// may reach no node that can obey it, a link may have no connection, and a node may be down
    /// for the whole time.
    pub(crate) async fn play(
        &self,
        cluster: &Cluster,
        clock: &Clock,
        note: &(dyn Fn(String) + Sync),
    ) -> Result<bool, BenchError> {
        let node = self.node(cluster);
        clock.sleep(self.delay).await;
        note(format!("begin {self}"));
        let Begun { was_taken, ending, undo } = self.begin(cluster, clock).await?;
        let ran = was_taken && self.last(node, clock).await;
        if !node.ended(ending.filter(|_| was_taken), clock).await {
            let kind = self.kind();
            return Err(format!("{} did not end in time after {kind}", node.name).into());
        }
        drop(undo);
        self.end(cluster, clock).await?;
        note(format!("end {self}"));
        let has_effect = was_taken && self.was_felt(node, ran)?;
        if !has_effect {
            note(format!("without effect: {self}"));
        }
        Ok(has_effect)
    }

    /// Waits until the fault must end. Returns whether the node ran at some time.
    async fn last(&self, node: &Node, clock: &Clock) -> bool {
        let (end, mut ran) = (clock.now() + self.lasts, node.runs());
        while clock.now() < end {
            clock.sleep(end.saturating_since(clock.now()).min(LOOK_PAUSE)).await;
            ran |= node.runs();
        }
        ran
    }

    /// Whether something noticed the fault, which is over. `ran` says whether the node ran at some
    /// time: clients try to reach a node that is down, too.
    fn was_felt(&self, node: &Node, ran: bool) -> io::Result<bool> {
        Ok(match self.effect {
            FaultEffect::StorageLink { server, .. } => ran && were_hit(storage_links(node, server)),
            FaultEffect::ClientLink(_) => ran && node.client_link.was_hit(),
            FaultEffect::PeerLink(_) => ran && were_hit(node.peer_link.as_slice()),
            FaultEffect::FullDisk(_) => node.faults.has_refused()?,
            FaultEffect::Clock { .. } => node.faults.clock_was_read()?,
            // Signals and orders were taken.
            _ => true,
        })
    }

    async fn begin(&self, cluster: &Cluster, clock: &Clock) -> Result<Begun, BenchError> {
        let node = self.node(cluster);
        let mut ending = None;
        let was_taken = match self.effect {
            FaultEffect::Kill => {
                node.stays_down.store(true, Ordering::SeqCst);
                node.signal(Signal::KILL)
            }
            FaultEffect::Pause => node.signal(Signal::STOP),
            FaultEffect::Stop => {
                ending = node.pid();
                node.signal(Signal::TERM)
            }
            FaultEffect::StepDown => {
                ending = node.pid();
                is_obeyed(node, clock, "/step-down", ORDER_TIMEOUT).await
            }
            FaultEffect::Drain => is_obeyed(node, clock, "/drain", ORDER_TIMEOUT).await,
            FaultEffect::StorageLink { server, traffic } => {
                set_links(storage_links(node, server), traffic);
                true
            }
            FaultEffect::ClientLink(traffic) => {
                node.client_link.set(traffic);
                true
            }
            FaultEffect::PeerLink(traffic) => {
                set_links(node.peer_link.as_slice(), traffic);
                true
            }
            FaultEffect::KillServer => {
                let server = &cluster.storage.servers[self.target];
                return Ok(Begun::until_dropped(KilledServer::node_at(server)?));
            }
            FaultEffect::PauseServer => {
                return Ok(Begun::until_dropped(cluster.storage.suspend(self.target)?));
            }
            FaultEffect::FullDisk(full) => {
                node.faults.set_full(Some(full))?;
                true
            }
            FaultEffect::Clock { jump, is_ahead } => {
                node.faults.set_clock(jump, is_ahead)?;
                true
            }
        };
        Ok(Begun { was_taken, ending, undo: None })
    }

    fn node<'a>(&self, cluster: &'a Cluster) -> &'a Node {
        &cluster.nodes[self.target % cluster.nodes.len()]
    }

    async fn end(&self, cluster: &Cluster, clock: &Clock) -> Result<(), BenchError> {
        let node = self.node(cluster);
        match self.effect {
            FaultEffect::Kill => node.stays_down.store(false, Ordering::SeqCst),
            FaultEffect::Pause => {
                node.signal(Signal::CONT);
            }
            FaultEffect::Stop | FaultEffect::StepDown | FaultEffect::PauseServer => {}
            FaultEffect::Drain => cancel_drain(node, clock).await?,
            FaultEffect::StorageLink { server, .. } => {
                set_links(storage_links(node, server), Traffic::WHOLE);
            }
            FaultEffect::ClientLink(_) => node.client_link.set(Traffic::WHOLE),
            FaultEffect::PeerLink(_) => set_links(node.peer_link.as_slice(), Traffic::WHOLE),
            FaultEffect::KillServer => cluster.storage.wait_for_server(self.target, clock).await?,
            FaultEffect::FullDisk(_) => node.faults.set_full(None)?,
            FaultEffect::Clock { .. } => node.faults.set_clock(Duration::ZERO, true)?,
        }
        Ok(())
    }
}

/// The links to one server, or to all.
fn storage_links(node: &Node, server: Option<usize>) -> &[Link] {
    match server {
        None => &node.storage_links,
        Some(server) => slice::from_ref(&node.storage_links[server]),
    }
}

fn were_hit(links: &[Link]) -> bool {
    links.iter().any(Link::was_hit)
}

fn set_links(links: &[Link], traffic: Traffic) {
    links.iter().for_each(|link| link.set(traffic));
}

/// Orders something at the admin endpoint, and returns whether the node obeys. A node that does not
/// lead cannot.
async fn is_obeyed(node: &Node, clock: &Clock, path: &str, patience: Duration) -> bool {
    let headers = vec![(HeaderName::from_static("x-vvm-admin"), HeaderValue::from_static("1"))];
    let (path, body) = (path.to_owned(), String::new());
    let request = HttpRequest { method: Method::POST, path, headers, body };
    let answer = api::send(clock, node.admin, &request, patience).await;
    answer.is_ok_and(|answer| answer.status == 202)
}

/// Cancels the drain of a node. A node that stands still or is down answers later: a drain that
/// lasts would leave it without partitions for the rest of the run.
async fn cancel_drain(node: &Node, clock: &Clock) -> Result<(), BenchError> {
    let deadline = clock.now() + CANCEL_TIMEOUT;
    while !is_obeyed(node, clock, "/drain?cancel=true", ANSWER_TIMEOUT).await {
        if clock.now() >= deadline {
            let name = &node.name;
            return Err(format!("{name} did not end its drain in {CANCEL_TIMEOUT:?}").into());
        }
        clock.sleep(Duration::from_millis(200)).await;
    }
    Ok(())
}

#[cfg(test)]
impl From<FaultKind> for FaultEffect {
    /// An effect of a kind.
    fn from(kind: FaultKind) -> FaultEffect {
        match kind {
            FaultKind::Kill => FaultEffect::Kill,
            FaultKind::Pause => FaultEffect::Pause,
            FaultKind::Stop => FaultEffect::Stop,
            FaultKind::StepDown => FaultEffect::StepDown,
            FaultKind::Drain => FaultEffect::Drain,
            FaultKind::StorageLink => {
                FaultEffect::StorageLink { server: None, traffic: Traffic::Cut }
            }
            FaultKind::ClientLink => FaultEffect::ClientLink(Traffic::Cut),
            FaultKind::PeerLink => FaultEffect::PeerLink(Traffic::Cut),
            FaultKind::KillServer => FaultEffect::KillServer,
            FaultKind::PauseServer => FaultEffect::PauseServer,
            FaultKind::FullDisk => FaultEffect::FullDisk(FullDisk::Blocks),
            FaultKind::Clock => {
                FaultEffect::Clock { jump: Duration::from_secs(60), is_ahead: true }
            }
        }
    }
}
