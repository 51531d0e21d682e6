//! What a run must not exceed, beside its history: times, memory, files, and exit codes.

use std::{
    collections::{BTreeMap, BTreeSet},
    fs,
    time::Duration,
};

use serde_json::Value;

use crate::{
    cluster::Cluster,
    faults::{Fault, FaultKind},
    history::{History, Outcome},
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

/// A round explains the end of a process for so long after its own end, in microseconds.
const EXPLAINED_FOR: u64 = 30_000_000;

/// The time without a command, beside the takeover that the nodes print: the faults of a round
/// begin one after another, and clients wait for answers of nodes that stand still.
const GAP_SLACK: Duration = Duration::from_secs(8);

/// What a run has measured.
#[derive(Debug, Default)]
pub(crate) struct Bounds {
    pub(crate) violations: Vec<String>,
    pub(crate) memory: u64,
    pub(crate) files: usize,
    /// From the end of the last fault of a round until all nodes were ready and all workspaces
    /// had a command done, by the kinds of faults.
    pub(crate) ready_after: BTreeMap<String, Vec<Duration>>,
    /// The longest time without a command done in any workspace, for the rounds that leave a whole
    /// node, by the kinds of faults.
    pub(crate) gaps: BTreeMap<String, Vec<Duration>>,
    pub(crate) rounds: Vec<Round>,
}

/// A round that is over.
#[derive(Clone, Debug)]
pub(crate) struct Round {
    /// The faults that had an effect.
    pub(crate) faults: Vec<Fault>,
    /// From the begin of the first fault until everything worked again, in microseconds.
    pub(crate) begin: u64,
    pub(crate) end: u64,
    /// The bound of a takeover, if the faults left a whole node and the storage alone.
    pub(crate) takeover: Option<Duration>,
}

impl Round {
    fn name(&self) -> String {
        let mut names: Vec<String> =
            self.faults.iter().map(|fault| fault.kind.to_string()).collect();
        names.sort_unstable();
        names.join(" + ")
    }
}

/// The bound of a takeover as the nodes print it. `None` if these faults leave no whole node, or a
/// link is bad: a node behind a slow link keeps its partitions.
pub(crate) fn takeover(cluster: &Cluster, faults: &[Fault]) -> Option<Duration> {
    let is_of_node = |fault: &Fault| {
        use FaultKind::{Clock, Drain, Kill, Pause, StepDown, Stop};
        matches!(fault.kind, Kill | Pause | Stop | StepDown | Drain | Clock)
    };
    let hit: BTreeSet<usize> = faults.iter().map(|fault| fault.target).collect();
    if hit.len() >= cluster.nodes.len() || !faults.iter().all(is_of_node) {
        return None;
    }
    cluster.nodes.iter().filter_map(|node| printed(&node.log(), &["takeover"])).max()
}

/// The time in which a cluster works again after a round, by what its nodes print.
pub(crate) fn ready_within(cluster: &Cluster, faults: &[Fault]) -> Duration {
    let names = ["failover", "failover_of_slow"];
    let failover = cluster.nodes.iter().filter_map(|node| printed(&node.log(), &names)).max();
    let of_servers = faults.iter().any(|fault| fault.kind == FaultKind::KillServer);
    let server = if of_servers { SERVER_START } else { Duration::ZERO };
    failover.unwrap_or_default() + START_TIME + server
}

/// The longest of these bounds, as a node printed them when it last began to wait for leadership.
fn printed(log: &std::path::Path, names: &[&str]) -> Option<Duration> {
    let text = fs::read_to_string(log).ok()?;
    let line = text.lines().rev().find(|line| line.contains("failover_of_slow"))?;
    let fields: Value = serde_json::from_str(line).ok()?;
    let bound = |name: &str| {
        let bound = fields["fields"][name].as_str()?.strip_suffix('s')?.parse().ok()?;
        Some(Duration::from_secs_f64(bound))
    };
    names.iter().filter_map(|name| bound(name)).max()
}

/// The longest time between two commands that were done, of the times that overlap a round.
fn longest_gap(done: &[u64], round: &Round) -> Duration {
    let before = done.iter().copied().filter(|at| *at <= round.begin).max();
    let after = done.iter().copied().filter(|at| *at >= round.end).min();
    let within = done.iter().copied().filter(|at| (round.begin..round.end).contains(at));
    let mut times: Vec<u64> = within.collect();
    times.extend([before.unwrap_or(round.begin), after.unwrap_or(round.end)]);
    times.sort_unstable();
    let longest = times.windows(2).map(|pair| pair[1] - pair[0]).max();
    Duration::from_micros(longest.unwrap_or(0))
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

    /// Takes a round that is over. `took` is the time from the end of its last fault until
    /// everything worked, or `None` if it does not. A round without an effect proves nothing.
    pub(crate) fn add_round(&mut self, round: Round, took: Option<Duration>) {
        if round.faults.is_empty() {
            return;
        }
        if let Some(took) = took {
            self.ready_after.entry(round.name()).or_default().push(took);
        }
        self.rounds.push(round);
    }

    /// Compares the times without a command in each workspace with the takeovers that the nodes
    /// print.
    pub(crate) fn check_gaps(&mut self, history: &History) {
        let mut done: BTreeMap<u64, Vec<u64>> = BTreeMap::new();
        for operation in &history.operations {
            if matches!(operation.outcome, Outcome::Written(_)) {
                done.entry(operation.ws).or_default().push(operation.end);
            }
        }
        for round in &self.rounds {
            let Some(takeover) = round.takeover else { continue };
            let gaps = done.iter().map(|(ws, done)| (longest_gap(done, round), *ws));
            let Some((gap, ws)) = gaps.max() else { continue };
            self.gaps.entry(round.name()).or_default().push(gap);
            if gap > takeover + GAP_SLACK {
                self.violations.push(format!(
                    "workspace {ws} had no command done for {gap:.1?} in the round of {} at {:.2} s, \
                     and the nodes print a takeover of {takeover:.1?}",
                    round.name(),
                    round.begin as f64 / 1e6
                ));
            }
        }
    }

    /// Finds ends of processes that no fault explains.
    pub(crate) fn check_exits(&mut self, exits: &[NodeExit]) {
        for exit in exits {
            let rounds = self.rounds.iter().filter(|round| {
                exit.at >= round.begin && exit.at <= round.end.saturating_add(EXPLAINED_FOR)
            });
            let faults = rounds.flat_map(|round| &round.faults);
            let faults: Vec<FaultKind> = faults.map(|fault| fault.kind).collect();
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
        // A signal may come before the process listens for it.
        (Some(0), _) | (None, Some(15)) => has(FaultKind::Stop),
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
    use crate::{
        history::{Operation, Request, Version, Written},
        network::Traffic,
    };

    fn round_of_a_kill(takeover: Option<Duration>) -> Round {
        let fault = Fault {
            kind: FaultKind::Kill,
            target: 0,
            traffic: Traffic::WHOLE,
            jump: Duration::ZERO,
            is_ahead: true,
            delay: Duration::ZERO,
            lasts: Duration::from_secs(1),
        };
        Round { faults: vec![fault], begin: 20_000_000, end: 60_000_000, takeover }
    }

    /// A history with commands that were done at these seconds.
    fn done_at(seconds: &[u64]) -> History {
        let operations = seconds.iter().enumerate().map(|(number, second)| Operation {
            number: number as u64,
            client: 1,
            begin: 0,
            end: second * 1_000_000,
            ws: 3,
            request: Request::Log { from: 1 },
            outcome: Outcome::Written(Written {
                wlog: 1,
                version: Version { epoch: 1, offset: 1 },
                ids: Vec::new(),
                repeated: false,
                served_by: None,
            }),
        });
        History { operations: operations.collect(), ..History::default() }
    }

    fn violations(takeover: Option<u64>, done: &[u64]) -> usize {
        let mut bounds = Bounds::default();
        let round = round_of_a_kill(takeover.map(Duration::from_secs));
        bounds.add_round(round, Some(Duration::ZERO));
        bounds.check_gaps(&done_at(done));
        bounds.violations.len()
    }

    #[test]
    fn a_workspace_that_stands_still_for_longer_than_a_takeover_is_found() {
        assert_eq!(violations(Some(10), &[19, 21, 38, 55, 61]), 0);
        assert_eq!(violations(Some(10), &[19, 21, 40, 55, 61]), 1, "19 s");
        assert_eq!(violations(Some(10), &[15, 35, 45, 61]), 1, "it began before the round");
        assert_eq!(violations(Some(10), &[19, 35, 50, 70]), 1, "it ended after the round");
        assert_eq!(violations(Some(10), &[1, 19, 30, 45, 60, 90]), 0, "not of the round");
        assert_eq!(violations(None, &[19, 61]), 0, "no node was whole");
    }

    #[test]
    fn a_round_without_an_effect_does_not_count() {
        let mut bounds = Bounds::default();
        let round = Round { faults: Vec::new(), ..round_of_a_kill(None) };
        bounds.add_round(round, Some(Duration::ZERO));
        assert!(bounds.rounds.is_empty());
    }

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
