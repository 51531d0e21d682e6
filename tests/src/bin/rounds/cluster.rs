//! The nodes of a run.

use std::{
    path::{Path, PathBuf},
    sync::{Arc, Mutex},
    time::Duration,
};

use clock::Clock;
use ielections::Timing;
use rustix::process::Signal;
use tck::trial::free_address;
use tokio::task::JoinSet;
use vvm_tests::bench::BenchError;

use crate::{
    api::{self, ANSWER_TIMEOUT, HttpRequest},
    network::{Link, Traffic},
    node::{Node, NodeExit, NodeParts},
    recorder::Recorder,
    storage::{RunStorage, StorageKind},
};

/// The lease of the nodes, without the time that level 2 adds for late writes. A short one makes
/// more of the faults longer than a lease.
pub(crate) const LEASE: Duration = Duration::from_secs(8);

/// The split of the lease of nodes with `late_write` for late writes. Its other parts are those of
/// [`LEASE`]. So a node that cannot renew its lease loses its leadership as soon as without late
/// writes, and each fault has the same effect. Only the others wait longer for the lease. The usual
/// split of a lease grows with the lease: a takeover would take more than two minutes on Cassandra.
fn timing(late_write: Duration) -> Option<Timing> {
    let usual = Timing { late_write: Duration::ZERO, ..Timing::of(LEASE) };
    match late_write.is_zero() {
        true => Some(usual),
        false => Timing::shortest_of(|duration| {
            let clock_skew = Timing::of(duration).clock_skew;
            Timing { duration, late_write, clock_skew, ..usual }
        }),
    }
}

/// The keys of a node that configure its lease.
fn lease_keys(late_write: Duration) -> Result<String, BenchError> {
    let timing = timing(late_write).ok_or("no lease is long enough for late writes")?;
    let Timing { duration, renew_every, retry_for, call_timeout, stop_grace, .. } = timing;
    let keys = [
        ("lease_seconds", duration),
        ("renew_seconds", renew_every),
        ("renew_retry_seconds", retry_for),
        ("renew_call_seconds", call_timeout),
        ("stop_grace_seconds", stop_grace),
        ("call_seconds", LEASE / 10),
    ];
    Ok(keys.map(|(key, value)| format!("{key} = {:?}\n", value.as_secs_f64())).concat())
}

/// All nodes, and their supervisors.
pub(crate) struct Cluster {
    pub(crate) nodes: Vec<Arc<Node>>,
    pub(crate) storage: RunStorage,
    /// Whether clocks and disks can be faulty.
    pub(crate) has_shim: bool,
    exits: Arc<Mutex<Vec<NodeExit>>>,
    supervisors: JoinSet<Result<(), BenchError>>,
}

/// What the cluster is made of.
pub(crate) struct ClusterParts<'a> {
    pub(crate) folder: &'a Path,
    pub(crate) binary: PathBuf,
    pub(crate) count: usize,
    pub(crate) level: u8,
    /// The time that the lease reserves for late writes.
    pub(crate) late_write: Duration,
    pub(crate) storage: RunStorage,
    /// The library that makes clocks and disks faulty.
    pub(crate) shim: Option<PathBuf>,
}

impl Cluster {
    /// Starts all nodes under supervisors.
    pub(crate) async fn start(
        parts: ClusterParts<'_>,
        recorder: &Arc<Recorder>,
        clock: &Clock,
    ) -> Result<Cluster, BenchError> {
        let mut nodes = Vec::new();
        for number in 1..=parts.count {
            nodes.push(Arc::new(make_node(&parts, number, clock).await?));
        }
        let (exits, mut supervisors) = (Arc::default(), JoinSet::new());
        for node in &nodes {
            let (recorder, exits) = (Arc::clone(recorder), Arc::clone(&exits));
            supervisors.spawn(Arc::clone(node).supervise(recorder, clock.clone(), exits));
        }
        let (storage, has_shim) = (parts.storage, parts.shim.is_some());
        Ok(Cluster { nodes, storage, has_shim, exits, supervisors })
    }

    /// The processes that ended so far.
    pub(crate) fn exits(&self) -> Vec<NodeExit> {
        self.exits.lock().map(|exits| exits.clone()).unwrap_or_default()
    }

    /// Waits until all nodes are ready, or the time is over. Returns those that are not.
    ///
    /// # Errors
    /// If a node cannot be started at all.
    pub(crate) async fn ready(
        &mut self,
        clock: &Clock,
        within: Duration,
    ) -> Result<Vec<String>, BenchError> {
        let deadline = clock.now() + within;
        loop {
            if let Some(ended) = self.supervisors.try_join_next() {
                ended??;
            }
            let mut missing = Vec::new();
            for node in &self.nodes {
                if !is_ready(node, clock).await {
                    missing.push(node.name.clone());
                }
            }
            if missing.is_empty() || clock.now() >= deadline {
                return Ok(missing);
            }
            clock.sleep(Duration::from_millis(50)).await;
        }
    }

    /// The links between nodes and the storage without a connection so far, as text.
    pub(crate) fn unused_storage_links(&self) -> Vec<String> {
        let links = self
            .nodes
            .iter()
            .flat_map(|node| node.storage_links.iter().map(move |link| (node, link)));
        let unused = links.filter(|(_, link)| !link.was_used());
        unused.map(|(node, link)| format!("{} to {}", node.name, link.server)).collect()
    }

    /// Lets all bytes pass on all links, and sets all clocks and disks right.
    pub(crate) fn heal(&self) -> std::io::Result<()> {
        for node in &self.nodes {
            let links = std::iter::once(&node.client_link)
                .chain(&node.peer_link)
                .chain(&node.storage_links);
            links.for_each(|link| link.set(Traffic::WHOLE));
            node.faults.set_full(None)?;
            node.faults.set_clock(Duration::ZERO, true)?;
        }
        Ok(())
    }

    /// Stops all nodes in order. Returns those that did not end in time, and were killed.
    pub(crate) async fn stop(&self, clock: &Clock) -> Vec<String> {
        let mut left = Vec::new();
        for node in &self.nodes {
            if !node.stop(clock).await {
                node.signal(Signal::KILL);
                left.push(node.name.clone());
            }
        }
        left
    }

    /// Ends the supervisors, and with them all processes that still run.
    pub(crate) async fn end(mut self) {
        self.supervisors.shutdown().await;
    }
}

async fn is_ready(node: &Node, clock: &Clock) -> bool {
    let request = HttpRequest::get("/readyz".to_owned());
    api::send(clock, node.admin, &request, ANSWER_TIMEOUT)
        .await
        .is_ok_and(|answer| answer.status == 200)
}

async fn make_node(
    parts: &ClusterParts<'_>,
    number: usize,
    clock: &Clock,
) -> Result<Node, BenchError> {
    let (api, admin, peer) = (free_address(), free_address(), free_address());
    let mut storage_links = Vec::new();
    for server in parts.storage.behind_links(parts.shim.is_some())? {
        storage_links.push(Link::start(server, clock).await?);
    }
    let is_alone = parts.storage.kind == StorageKind::Redb;
    let peer_link = if is_alone { None } else { Some(Link::start(peer, clock).await?) };
    let client_link = Link::start(api, clock).await?;
    let mut config = parts.storage.config(&storage_links);
    config += &format!(
        "[node]\n{}acquire_seconds = 0\nfolder = \"data\"\nadvertised = \"{}\"\n\
         [http]\nlisten = \"{api}\"\n[admin]\nlisten = \"{admin}\"\n\
         [sequences]\ntrust_level = {}\n",
        lease_keys(parts.late_write)?,
        client_link.address,
        parts.level,
    );
    if let Some(link) = &peer_link {
        config += &format!("[cluster]\nlisten = \"{peer}\"\nadvertised = \"{}\"\n", link.address);
    }
    let name = format!("node {number}");
    let folder = parts.folder.join(format!("node-{number}"));
    let (binary, shim) = (parts.binary.clone(), parts.shim.clone());
    Node::new(NodeParts {
        place: number - 1,
        name,
        folder,
        binary,
        shim,
        api,
        admin,
        client_link,
        peer_link,
        storage_links,
        config,
    })
}

#[cfg(test)]
mod tests {
    use eventlog::TrustLevel;
    use istorage_cassandra::CAPABILITIES;
    use vvm::NodeSettings;

    use super::*;

    /// The nodes refused to start: their lease was too short for late writes.
    #[test]
    fn nodes_accept_their_lease_at_level_2() {
        let late_write = CAPABILITIES.late_write;
        let timing = timing(late_write).unwrap();
        assert_eq!(timing.duration, Duration::from_secs(34));
        let mut settings = NodeSettings::new(([127, 0, 0, 1], 1).into());
        settings.lease = timing;
        settings.request_call_timeout = LEASE / 10;
        settings.check(&[]).unwrap();
        assert_eq!(settings.lease_for([TrustLevel::Two], late_write), Ok(timing));
        let shorter = timing.duration - Duration::from_secs(1);
        settings.lease = Timing { duration: shorter, ..timing };
        assert!(settings.lease_for([TrustLevel::Two], late_write).is_err(), "it is the shortest");
    }

    #[test]
    fn without_late_writes_the_lease_has_its_usual_parts() {
        let keys = lease_keys(Duration::ZERO).unwrap();
        for key in ["lease_seconds = 8.0", "renew_seconds = 2.0", "renew_call_seconds = 0.4"] {
            assert!(keys.contains(key), "{keys}");
        }
        assert!(lease_keys(Duration::from_millis(27_100)).unwrap().contains("_seconds = 34.0"));
        assert!(lease_keys(Duration::MAX).is_err());
    }
}
