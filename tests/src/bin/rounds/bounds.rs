//! What a run must not exceed, beside its history: times, memory, files, and exit codes.

mod exits;
mod gaps;
mod printed;
mod reach;
mod usage;

use std::{collections::BTreeMap, time::Duration};

pub(crate) use self::{printed::Printed, usage::Usage};
use crate::faults::{Fault, FaultKind};

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
    /// The number of nodes, and of the servers of their storage.
    pub(crate) nodes: usize,
    pub(crate) servers: usize,
    /// The time that the lease of the nodes reserves for late writes.
    pub(crate) late_write: Duration,
    pub(crate) violations: Vec<String>,
    pub(crate) memory: u64,
    pub(crate) files: usize,
    /// From the end of the last fault of a round until all nodes were ready, and all nodes and
    /// workspaces had a command done, by the kinds of faults.
    pub(crate) ready_after: BTreeMap<String, Vec<Duration>>,
    /// The longest time during which commands waited and none was done in any workspace, for the
    /// rounds with a bound, by the kinds of faults.
    pub(crate) gaps: BTreeMap<String, Vec<Duration>>,
    pub(crate) rounds: Vec<Round>,
    /// Faults before the first round. They explain ends of processes, and prove nothing.
    pub(crate) proofs: Vec<Round>,
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
            self.faults.iter().map(|fault| fault.kind().to_string()).collect();
        names.sort_unstable();
        names.join(" + ")
    }
}

/// The time within which a cluster must work again after a round, by what its nodes print.
pub(crate) fn ready_within(printed: &Printed, faults: &[Fault]) -> Duration {
    let of_servers = faults.iter().any(|fault| fault.kind() == FaultKind::KillServer);
    let server = if of_servers { SERVER_START } else { Duration::ZERO };
    printed.failover.max(printed.failover_of_slow) + START_TIME + server
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

    /// A run without a fault that had an effect proves nothing.
    pub(crate) fn check_rounds(&mut self) {
        if self.rounds.is_empty() {
            self.violations.push("no fault had an effect, so the run proves nothing".to_owned());
        }
    }

    /// Without a measurement nothing is judged.
    pub(crate) fn check_measured(&mut self) {
        if self.memory == 0 || self.files == 0 {
            self.violations.push("the memory and the files of no node were measured".to_owned());
        }
    }

    /// Takes the bounds that the nodes print. From now on they judge the run.
    pub(crate) fn set_printed(&mut self, printed: Printed) {
        self.violations.extend(printed.excess(self.late_write));
        self.printed = Some(printed);
    }

    /// The kinds of faults that had no effect in any round.
    pub(crate) fn without_effect(&self, kinds: &[FaultKind]) -> Vec<FaultKind> {
        let had_effect = |kind: &FaultKind| {
            let mut faults = self.rounds.iter().flat_map(|round| &round.faults);
            faults.any(|fault| fault.kind() == *kind)
        };
        kinds.iter().copied().filter(|kind| !had_effect(kind)).collect()
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::{faults::FaultEffect, network::Traffic};

    /// A fault of the node or the server at a place.
    pub(super) fn fault(kind: FaultKind, target: usize) -> Fault {
        Fault { effect: kind.into(), target, delay: Duration::ZERO, lasts: Duration::from_secs(1) }
    }

    /// A bad link from the node at a place to one of several servers.
    pub(super) fn storage_link_to(server: usize, target: usize) -> Fault {
        let effect = FaultEffect::StorageLink { server: Some(server), traffic: Traffic::Cut };
        Fault { effect, ..fault(FaultKind::StorageLink, target) }
    }

    pub(super) fn printed() -> Printed {
        let seconds = Duration::from_secs;
        Printed {
            failover: seconds(13),
            failover_of_slow: seconds(17),
            takeover: seconds(22),
            stop: seconds(6),
        }
    }

    /// A round without a bound from 20 s to 60 s.
    pub(super) fn round_of(faults: &[Fault]) -> Round {
        Round {
            faults: faults.to_vec(),
            begin: 20_000_000,
            healed: 55_000_000,
            end: 60_000_000,
            takeover: None,
        }
    }

    #[test]
    fn a_round_without_an_effect_does_not_count() {
        let mut bounds = Bounds::default();
        bounds.add_round(round_of(&[]), Some(Duration::ZERO));
        assert!(bounds.rounds.is_empty());
    }

    #[test]
    fn a_run_without_rounds_is_broken() {
        let mut bounds = Bounds::default();
        bounds.check_rounds();
        assert_eq!(bounds.violations.len(), 1);
        // A node that goes on without a server shows something, too.
        let of_one_server = storage_link_to(1, 0);
        for fault in [fault(FaultKind::Kill, 0), of_one_server] {
            let mut bounds = Bounds::default();
            bounds.add_round(round_of(&[fault]), Some(Duration::ZERO));
            bounds.check_rounds();
            assert!(bounds.violations.is_empty());
        }
    }

    #[test]
    fn a_run_that_measured_no_node_is_broken() {
        for (memory, files, broken) in [(0, 0, 1), (0, 9, 1), (9, 0, 1), (9, 9, 0)] {
            let mut bounds = Bounds { memory, files, ..Bounds::default() };
            bounds.check_measured();
            assert_eq!(bounds.violations.len(), broken, "{memory} {files}");
        }
    }

    #[test]
    fn kinds_of_faults_without_an_effect_are_known() {
        let mut bounds = Bounds::default();
        bounds.add_round(round_of(&[fault(FaultKind::Kill, 0)]), None);
        let asked = [FaultKind::Kill, FaultKind::FullDisk];
        assert_eq!(bounds.without_effect(&asked), [FaultKind::FullDisk]);
    }

    #[test]
    fn a_cluster_works_again_after_a_failover_and_a_start() {
        let within = ready_within(&printed(), &[fault(FaultKind::Kill, 0)]);
        assert_eq!(within, Duration::from_secs(17) + START_TIME);
        let of_server = ready_within(&printed(), &[fault(FaultKind::KillServer, 0)]);
        assert_eq!(of_server, within + SERVER_START);
    }
}
