//! What a run must not exceed, beside its history: times, memory, files, and exit codes.

mod exits;
mod printed;
mod usage;

use std::{
    collections::{BTreeMap, BTreeSet},
    time::Duration,
};

pub(crate) use self::{printed::Printed, usage::Usage};
use crate::{
    faults::{Fault, FaultKind},
    history::{History, Outcome},
};

/// The time for a node to start, beside its failover: the pause of the supervisor, and the start
/// itself on a busy machine.
const START_TIME: Duration = Duration::from_secs(15);

/// The time for a server of Cassandra to start, and for the others to take it back.
const SERVER_START: Duration = Duration::from_secs(90);

/// The time without a command, beside the takeover that the nodes print: the faults of a round
/// begin one after another, and clients wait for answers of nodes that stand still.
pub(crate) const GAP_SLACK: Duration = Duration::from_secs(8);

/// What a run has measured.
#[derive(Debug, Default)]
pub(crate) struct Bounds {
    pub(crate) violations: Vec<String>,
    pub(crate) memory: u64,
    pub(crate) files: usize,
    /// From the end of the last fault of a round until all nodes were ready, and all nodes and
    /// workspaces had a command done, by the kinds of faults.
    pub(crate) ready_after: BTreeMap<String, Vec<Duration>>,
    /// The longest time without a command done in any workspace, for the rounds with a bound, by
    /// the kinds of faults.
    pub(crate) gaps: BTreeMap<String, Vec<Duration>>,
    pub(crate) rounds: Vec<Round>,
    /// When all nodes were told to stop, and when they had stopped, in microseconds.
    pub(crate) stops: Vec<(u64, u64)>,
    /// What the nodes print. `None` before they have started.
    pub(crate) printed: Option<Printed>,
}

/// A round that is over.
#[derive(Clone, Debug)]
pub(crate) struct Round {
    /// The faults that had an effect.
    pub(crate) faults: Vec<Fault>,
    /// The begin of the first fault, in microseconds.
    pub(crate) begin: u64,
    /// The end of the last fault.
    pub(crate) healed: u64,
    /// When everything worked again.
    pub(crate) end: u64,
    /// The bound of the time without a command, if the faults leave one.
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

/// The bound of a takeover as the nodes print it. `None` if these faults leave no whole node, or
/// the storage or the link of a node to it is bad: a node behind a slow link keeps its partitions.
/// A node that reaches the other servers of its storage has the bound.
///
/// A node with one bad link can still be reached over the other one, so the partitions of this node
/// have the same bound. Clocks hold no node up.
pub(crate) fn takeover(printed: &Printed, nodes: usize, faults: &[Fault]) -> Option<Duration> {
    use FaultKind::{ClientLink, Clock, Drain, Kill, Pause, PeerLink, StepDown, Stop};
    let is_of_node = |fault: &Fault| {
        let kind = fault.kind;
        matches!(kind, Kill | Pause | Stop | StepDown | Drain | Clock | ClientLink | PeerLink)
            || fault.leaves_other_servers()
    };
    let has =
        |kind, target| faults.iter().any(|fault| fault.kind == kind && fault.target == target);
    let hit: BTreeSet<usize> = faults.iter().map(|fault| fault.target).collect();
    let leaves_one = hit.len() < nodes || faults.iter().all(|fault| fault.kind == Clock);
    let is_cut_off = hit.iter().any(|node| has(ClientLink, *node) && has(PeerLink, *node));
    let has_bound = leaves_one && !is_cut_off && faults.iter().all(is_of_node);
    has_bound.then_some(printed.takeover)
}

/// The time in which a cluster works again after a round, by what its nodes print.
pub(crate) fn ready_within(printed: &Printed, faults: &[Fault]) -> Duration {
    let of_servers = faults.iter().any(|fault| fault.kind == FaultKind::KillServer);
    let server = if of_servers { SERVER_START } else { Duration::ZERO };
    printed.failover.max(printed.failover_of_slow) + START_TIME + server
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
    pub(crate) fn add_usage(&mut self, usage: Usage) {
        self.memory = self.memory.max(usage.memory);
        self.files = self.files.max(usage.files);
        self.violations.extend(usage.violations);
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

    /// A run without a fault that had an effect proves nothing.
    pub(crate) fn check_rounds(&mut self) {
        if self.rounds.is_empty() {
            self.violations.push("no fault had an effect, so the run proves nothing".to_owned());
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::{
        history::{Operation, Request, Version, Written},
        network::Traffic,
    };

    /// A fault of the node or the server at a place.
    pub(super) fn fault(kind: FaultKind, target: usize) -> Fault {
        Fault {
            kind,
            target,
            server: None,
            traffic: Traffic::WHOLE,
            jump: Duration::ZERO,
            is_ahead: true,
            delay: Duration::ZERO,
            lasts: Duration::from_secs(1),
        }
    }

    fn round_of_a_kill(takeover: Option<Duration>) -> Round {
        Round {
            faults: vec![fault(FaultKind::Kill, 0)],
            begin: 20_000_000,
            healed: 55_000_000,
            end: 60_000_000,
            takeover,
        }
    }

    /// A history with commands that were done at these seconds.
    fn done_at(seconds: &[u64]) -> History {
        let operations = seconds.iter().enumerate().map(|(number, second)| Operation {
            number: number as u64,
            client: 1,
            node: None,
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
    fn a_run_without_rounds_is_broken() {
        let mut bounds = Bounds::default();
        bounds.check_rounds();
        assert_eq!(bounds.violations.len(), 1);
        let mut bounds = Bounds::default();
        bounds.add_round(round_of_a_kill(None), Some(Duration::ZERO));
        bounds.check_rounds();
        assert!(bounds.violations.is_empty());
    }

    #[test]
    fn rounds_have_a_bound_while_all_partitions_can_be_reached() {
        use FaultKind::{
            ClientLink, Clock, FullDisk, Kill, KillServer, Pause, PeerLink, StorageLink,
        };
        let seconds = Duration::from_secs;
        let printed = Printed {
            failover: seconds(13),
            failover_of_slow: seconds(17),
            takeover: seconds(22),
            stop: seconds(6),
        };
        let has_bound = |nodes, faults: &[(FaultKind, usize)]| {
            let faults: Vec<Fault> =
                faults.iter().map(|(kind, target)| fault(*kind, *target)).collect();
            takeover(&printed, nodes, &faults) == Some(seconds(22))
        };
        assert!(has_bound(3, &[(Kill, 0), (Pause, 1)]));
        assert!(!has_bound(3, &[(Kill, 0), (Pause, 1), (Kill, 2)]));
        assert!(has_bound(3, &[(ClientLink, 0)]) && has_bound(3, &[(PeerLink, 2)]));
        assert!(has_bound(3, &[(ClientLink, 0), (PeerLink, 1)]));
        assert!(!has_bound(3, &[(ClientLink, 0), (PeerLink, 0)]), "nothing reaches node 1");
        for other in [StorageLink, KillServer, FullDisk] {
            assert!(!has_bound(3, &[(other, 0)]), "{other}");
        }
        let of_one_server = Fault { server: Some(2), ..fault(StorageLink, 0) };
        let bound = |faults: &[Fault]| takeover(&printed, 3, faults);
        assert_eq!(bound(&[of_one_server]), Some(seconds(22)));
        assert_eq!(bound(&[of_one_server, fault(StorageLink, 1)]), None);
        assert!(has_bound(1, &[(Clock, 0)]));
        assert!(!has_bound(1, &[(Kill, 0)]) && !has_bound(1, &[(Clock, 0), (Kill, 0)]));
        let within = ready_within(&printed, &[fault(Kill, 0)]);
        assert_eq!(within, seconds(17) + START_TIME);
        assert_eq!(ready_within(&printed, &[fault(KillServer, 0)]), within + SERVER_START);
    }
}
