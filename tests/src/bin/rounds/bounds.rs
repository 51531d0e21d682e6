//! What a run must not exceed, beside its history: times, memory, files, and exit codes.

use std::{collections::BTreeMap, fs, time::Duration};

use serde_json::Value;

use crate::{
    cluster::Cluster,
    faults::{Fault, FaultKind},
    node::NodeExit,
};

/// A node has at most so much resident memory, and so many open files.
const MEMORY_MAX: u64 = 512 << 20;
const FILES_MAX: usize = 1_000;

/// The time for a node to start, beside its failover: the pause of the supervisor, and the start
/// itself on a busy machine.
const START_TIME: Duration = Duration::from_secs(15);

/// The time for a server of Cassandra to start, and for the others to take it back.
const SERVER_START: Duration = Duration::from_secs(90);

/// A fault explains the end of a process for so long after its own end, in microseconds.
const EXPLAINED_FOR: u64 = 30_000_000;

/// What a run has measured.
#[derive(Debug, Default)]
pub(crate) struct Bounds {
    pub(crate) violations: Vec<String>,
    pub(crate) memory: u64,
    pub(crate) files: usize,
    /// From the end of the last fault of a round until all nodes were ready and all workspaces
    /// had a command done, by the kinds of faults.
    pub(crate) ready_after: BTreeMap<String, Vec<Duration>>,
    /// The faults, with their begins and ends in microseconds.
    faults: Vec<(Fault, u64, u64)>,
    pub(crate) rounds: u32,
}

/// The time in which a cluster works again after a round, by what its nodes print.
pub(crate) fn ready_within(cluster: &Cluster, faults: &[Fault]) -> Duration {
    let failover = cluster.nodes.iter().filter_map(|node| printed_failover(&node.log())).max();
    let of_servers = faults.iter().any(|fault| fault.kind == FaultKind::KillServer);
    let server = if of_servers { SERVER_START } else { Duration::ZERO };
    failover.unwrap_or_default() + START_TIME + server
}

/// The longest of the bounds that a node printed when it last began to wait for leadership.
fn printed_failover(log: &std::path::Path) -> Option<Duration> {
    let text = fs::read_to_string(log).ok()?;
    let line = text.lines().rev().find(|line| line.contains("failover_of_slow"))?;
    let fields: Value = serde_json::from_str(line).ok()?;
    let bound = |name: &str| {
        let bound = fields["fields"][name].as_str()?.strip_suffix('s')?.parse().ok()?;
        Some(Duration::from_secs_f64(bound))
    };
    bound("failover").max(bound("failover_of_slow"))
}

impl Bounds {
    /// Takes the memory and the files of all nodes.
    pub(crate) fn measure(&mut self, cluster: &Cluster) {
        for node in &cluster.nodes {
            let Some((memory, files)) = node.usage() else { continue };
            if memory > MEMORY_MAX {
                self.violations.push(format!("{} has {} MiB of memory", node.name, memory >> 20));
            }
            if files > FILES_MAX {
                self.violations.push(format!("{} has {files} open files", node.name));
            }
            self.memory = self.memory.max(memory);
            self.files = self.files.max(files);
        }
    }

    pub(crate) fn add_faults(&mut self, faults: &[Fault], begin: u64, end: u64) {
        self.faults.extend(faults.iter().map(|fault| (*fault, begin, end)));
    }

    pub(crate) fn add_recovery(&mut self, faults: &[Fault], took: Duration) {
        self.rounds += 1;
        let mut names: Vec<String> = faults.iter().map(|fault| fault.kind.to_string()).collect();
        names.sort_unstable();
        self.ready_after.entry(names.join(" + ")).or_default().push(took);
    }

    /// Finds ends of processes that no fault explains.
    pub(crate) fn check_exits(&mut self, exits: &[NodeExit]) {
        for exit in exits {
            let faults = self.faults.iter().filter(|(_, begin, end)| {
                exit.at >= *begin && exit.at <= end.saturating_add(EXPLAINED_FOR)
            });
            let faults: Vec<FaultKind> = faults.map(|(fault, _, _)| fault.kind).collect();
            if !is_explained(exit, &faults) {
                self.violations.push(format!(
                    "{} ended with {} at {:.2} s, which nothing explains",
                    exit.node,
                    exit.status,
                    exit.at as f64 / 1e6
                ));
            }
        }
    }
}

/// Whether one of these faults explains the end of a process. `docs/operations.md` has the codes.
fn is_explained(exit: &NodeExit, faults: &[FaultKind]) -> bool {
    use std::os::unix::process::ExitStatusExt;
    let has = |kind| faults.contains(&kind);
    match (exit.status.code(), exit.status.signal()) {
        (None, Some(9)) => has(FaultKind::Kill),
        (Some(0), _) => has(FaultKind::Stop),
        (Some(11), _) => has(FaultKind::StepDown),
        // The storage, the leadership, or the time for the work to stop.
        (Some(4 | 6 | 7 | 9 | 10), _) => !faults.is_empty(),
        _ => false,
    }
}

#[cfg(test)]
mod tests {
    use std::os::unix::process::ExitStatusExt;

    use super::*;

    #[test]
    fn ends_need_a_fault_that_explains_them() {
        let exit = |status| NodeExit {
            node: "node 1".into(),
            at: 0,
            status: std::process::ExitStatus::from_raw(status),
        };
        let code = |code: i32| exit(code << 8);
        assert!(is_explained(&exit(9), &[FaultKind::Kill]));
        assert!(!is_explained(&exit(9), &[FaultKind::Pause]), "it was killed by somebody else");
        assert!(is_explained(&code(7), &[FaultKind::Pause]));
        assert!(!is_explained(&code(7), &[]));
        assert!(!is_explained(&code(0), &[FaultKind::Kill]));
        for wrong in [1, 2, 3, 5, 8, 12, 101] {
            assert!(!is_explained(&code(wrong), &[FaultKind::Kill, FaultKind::Stop]), "{wrong}");
        }
        assert!(!is_explained(&exit(6), &[FaultKind::Kill]), "it aborted");
    }
}
