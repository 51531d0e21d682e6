//! The time without a command in each workspace during a round.
//!
//! The time counts while commands wait one after another at working nodes, and none is done.
//!
//! So a time when nobody asks shows nothing. Clients send few commands to most workspaces, and each
//! client waits for its answer: all clients may wait at one node that stands still. A command that
//! waits there shows nothing either, because the other nodes may do its next try.

use std::{
    collections::{BTreeMap, BTreeSet},
    time::Duration,
};

use super::{Bounds, GAP_SLACK, Printed, Round, reach};
use crate::{
    faults::{Fault, FaultKind},
    history::{History, Operation, Outcome, Request},
};

/// The longest pause between two tries of a command, in microseconds. A command that waits again
/// after such a pause has waited all the time.
const PAUSE: u64 = 1_500_000;

/// The commands of a workspace, in the order of their ends.
#[derive(Default)]
struct Commands {
    /// The commands that were done. A repeated answer shows nothing new.
    done: Vec<Wait>,
    /// The tries that were not: without an answer, or refused because the node could not work.
    failed: Vec<Wait>,
}

/// The time from the begin of a command to its end, and the node that it was sent to.
#[derive(Clone, Copy)]
struct Wait {
    begin: u64,
    end: u64,
    node: Option<usize>,
}

impl Bounds {
    /// The bound of a takeover as the nodes print it. `None` if these faults leave no whole node,
    /// or a node has lost its storage: a node behind a slow link keeps its partitions.
    ///
    /// A node with one bad link can still be reached over the other one, so the partitions of this
    /// node have the same bound.
    pub(crate) fn takeover(&self, printed: &Printed, faults: &[Fault]) -> Option<Duration> {
        use FaultKind::{ClientLink, FullDisk, PeerLink};
        let has = |kind, target| {
            faults.iter().any(|fault| fault.kind() == kind && fault.target == target)
        };
        let hit = reach::hit(faults);
        let is_cut_off = hit.iter().any(|node| has(ClientLink, *node) && has(PeerLink, *node));
        let has_storage =
            (0..self.nodes).all(|node| reach::keeps_storage(faults, node, self.servers));
        let has_disk = faults.iter().all(|fault| fault.kind() != FullDisk);
        let has_bound = hit.len() < self.nodes && !is_cut_off && has_storage && has_disk;
        has_bound.then_some(printed.takeover)
    }

    /// Compares the times during which commands waited and none was done in a workspace with the
    /// takeovers that the nodes print.
    pub(crate) fn check_gaps(&mut self, history: &History) {
        let mut workspaces: BTreeMap<u64, Commands> = BTreeMap::new();
        for operation in &history.operations {
            workspaces.entry(operation.ws).or_default().add(operation);
        }
        for (place, round) in self.rounds.iter().enumerate() {
            let Some(takeover) = round.takeover else { continue };
            let nodes = Witnesses::of(&round.faults, self.nodes);
            // What waits after that, waits because of other faults.
            let until = self.rounds.get(place + 1).map_or(u64::MAX, |next| next.begin);
            let longest = |of: &Commands| of.longest_gap(round, until, &nodes);
            let gaps = workspaces.iter().map(|(ws, of)| (longest(of), *ws));
            let Some((gap, ws)) = gaps.max() else { continue };
            self.gaps.entry(round.name()).or_default().push(gap);
            if gap > takeover + GAP_SLACK {
                self.violations.push(format!(
                    "commands waited for {gap:.1?} in workspace {ws} and none was done, in the \
                     round of {} at {:.2} s, and the nodes print a takeover of {takeover:.1?}",
                    round.name(),
                    round.begin as f64 / 1e6
                ));
            }
        }
    }
}

/// The nodes that work and that clients reach during a round.
struct Witnesses {
    nodes: BTreeSet<usize>,
    /// Whether a workspace stands still only if commands wait at each of these nodes. If a node
    /// cannot be reached by others, only its own clients get answers of its workspaces.
    all: bool,
}

impl Witnesses {
    fn of(faults: &[Fault], nodes: usize) -> Witnesses {
        let (links, others): (Vec<Fault>, Vec<Fault>) =
            faults.iter().partition(|fault| fault.kind() == FaultKind::PeerLink);
        let hit = reach::hit(&others);
        let nodes = (0..nodes).filter(|node| !hit.contains(node)).collect();
        Witnesses { nodes, all: !links.is_empty() }
    }
}

impl Commands {
    fn add(&mut self, operation: &Operation) {
        let Operation { begin, end, node, .. } = *operation;
        let Request::Write { .. } = operation.request else { return };
        match &operation.outcome {
            Outcome::Written(written) if !written.repeated => {
                self.done.push(Wait { begin, end, node });
            }
            Outcome::Refused { status: 503, .. }
            | Outcome::Unknown { .. }
            | Outcome::Wrong { .. } => self.failed.push(Wait { begin, end, node }),
            _ => {}
        }
    }

    /// The longest gap of those that overlap a round, up to the begin of the next round. A gap lies
    /// between two commands that were done.
    fn longest_gap(&self, round: &Round, until: u64, nodes: &Witnesses) -> Duration {
        let done = self.done.iter().map(|wait| wait.end);
        let before = done.clone().filter(|at| *at <= round.begin).max().unwrap_or(round.begin);
        let after = done.clone().filter(|at| *at >= round.end).min().unwrap_or(u64::MAX).min(until);
        let mut times: Vec<u64> = done.filter(|at| (before..=after).contains(at)).collect();
        times.extend([before, after]);
        times.sort_unstable();
        let gaps = times.windows(2).map(|pair| self.gap((pair[0], pair[1]), nodes));
        Duration::from_micros(gaps.max().unwrap_or(0))
    }

    /// How long commands waited between two commands that were done.
    fn gap(&self, between: (u64, u64), nodes: &Witnesses) -> u64 {
        if !nodes.all {
            return self.wait(between, |node| nodes.nodes.contains(&node));
        }
        let waits = nodes.nodes.iter().map(|witness| self.wait(between, |node| node == *witness));
        waits.min().unwrap_or(0)
    }

    /// The longest time during which commands waited at these nodes one after another, with pauses
    /// of [`PAUSE`] at most. They are the commands that failed, and the one that is done at the end
    /// of the gap.
    fn wait(&self, (from, to): (u64, u64), is_at: impl Fn(usize) -> bool) -> u64 {
        let failed = self.failed.iter().filter(|wait| wait.begin < to && wait.end > from);
        let done = self.done.iter().filter(|wait| wait.end == to);
        let at_nodes = failed.chain(done).filter(|wait| wait.node.is_some_and(&is_at));
        let mut waits: Vec<(u64, u64)> =
            at_nodes.map(|wait| (wait.begin.max(from), wait.end.min(to))).collect();
        waits.sort_unstable();
        let mut longest = 0;
        let mut current: Option<(u64, u64)> = None;
        for (begin, end) in waits {
            let (first, last) = match current {
                Some((first, last)) if begin <= last.saturating_add(PAUSE) => {
                    (first, last.max(end))
                }
                _ => (begin, end),
            };
            longest = longest.max(last - first);
            current = Some((first, last));
        }
        longest
    }
}

#[cfg(test)]
mod tests {
    use super::{
        super::tests::{fault, printed, round_of, storage_link_to},
        *,
    };
    use crate::history::{Change, Version, Written};

    const SECOND: u64 = 1_000_000;

    /// A command from one second to another one at a node.
    fn command((begin, end): (u64, u64), node: usize, outcome: Outcome) -> Operation {
        let (id, rows) = ("c1".to_owned(), Vec::new());
        let (begin, end, node) = (begin * SECOND, end * SECOND, Some(node));
        let request =
            Request::Write { id, has_key: true, place: None, change: Change::Create, rows };
        Operation { number: 0, client: 1, node, begin, end, ws: 3, request, outcome }
    }

    fn done(at: (u64, u64), node: usize) -> Operation {
        let version = Version { epoch: 1, offset: 1 };
        let written =
            Written { wlog: 1, version, ids: Vec::new(), repeated: false, served_by: None };
        command(at, node, Outcome::Written(written))
    }

    fn failed(at: (u64, u64), node: usize) -> Operation {
        command(at, node, Outcome::Unknown { why: "no answer".into() })
    }

    /// The longest gap in the round of these faults from 20 s to 60 s, in seconds. The bound is
    /// 18 s.
    fn gap_of(faults: &[Fault], operations: Vec<Operation>) -> u64 {
        let mut bounds = Bounds { nodes: 3, servers: 3, ..Bounds::default() };
        let round = Round { takeover: Some(Duration::from_secs(10)), ..round_of(faults) };
        bounds.add_round(round, Some(Duration::ZERO));
        bounds.check_gaps(&History { operations, ..History::default() });
        let gap = bounds.gaps.values().flatten().max().map_or(0, Duration::as_secs);
        assert_eq!(bounds.violations.len(), usize::from(gap > 18), "{:?}", bounds.violations);
        gap
    }

    /// The longest gap while node 1 is down.
    fn gap(operations: Vec<Operation>) -> u64 {
        gap_of(&[fault(FaultKind::Kill, 0)], operations)
    }

    #[test]
    fn a_workspace_in_which_commands_wait_for_longer_than_a_takeover_is_found() {
        let tries = |from: u64, to: u64| (from..to).map(|at| failed((at, at + 1), 1));
        let of = |from, to| {
            let mut all = vec![done((18, 19), 1)];
            all.extend(tries(from, to));
            all.extend([done((to, to + 1), 1), done((60, 61), 1)]);
            gap(all)
        };
        assert_eq!(of(20, 37), 18);
        assert_eq!(of(20, 38), 19);
        assert_eq!(of(14, 38), 20, "from the command that was done before");
        assert_eq!(gap(vec![done((18, 19), 1), failed((22, 31), 1), failed((32, 44), 2)]), 22);
    }

    /// Two runs ended with such a violation: all clients waited at a node that stood still.
    #[test]
    fn a_time_in_which_nobody_asks_is_no_gap() {
        assert_eq!(gap(vec![done((18, 19), 1), done((58, 61), 1)]), 3);
        let waits_at_node_1 = [failed((20, 35), 0), failed((35, 50), 0), done((50, 51), 2)];
        assert_eq!(gap([&[done((18, 19), 1)], &waits_at_node_1[..]].concat()), 1);
        let early = vec![done((18, 19), 1), failed((20, 25), 1), done((55, 56), 1)];
        assert_eq!(gap(early), 5, "nobody asked after the takeover");
        let twice = vec![done((18, 19), 1), failed((22, 26), 1), failed((42, 44), 2)];
        assert_eq!(gap(twice), 4, "nobody asked between the two");
    }

    /// A run had such a violation: a server stood still soon after a node was killed.
    #[test]
    fn a_gap_ends_with_the_next_round() {
        let operations = vec![done((57, 58), 1), failed((59, 75), 1), failed((75, 90), 2)];
        let mut bounds = Bounds { nodes: 3, servers: 1, ..Bounds::default() };
        let next = Round { begin: 62 * SECOND, ..round_of(&[fault(FaultKind::PauseServer, 0)]) };
        let killed = round_of(&[fault(FaultKind::Kill, 0)]);
        for round in [Round { takeover: Some(Duration::from_secs(10)), ..killed }, next] {
            bounds.add_round(round, Some(Duration::ZERO));
        }
        bounds.check_gaps(&History { operations, ..History::default() });
        let gaps: Vec<Duration> = bounds.gaps.into_values().flatten().collect();
        assert_eq!(gaps, [Duration::from_secs(3)], "{:?}", bounds.violations);
    }

    #[test]
    fn only_a_new_command_that_is_done_ends_a_gap() {
        let written = |repeated| {
            let mut operation = done((35, 36), 1);
            if let Outcome::Written(written) = &mut operation.outcome {
                written.repeated = repeated;
            }
            operation
        };
        let of = |middle| gap(vec![failed((21, 36), 1), middle, failed((36, 45), 1)]);
        assert_eq!((of(written(false)), of(written(true))), (15, 24));
        let refused = |status| Outcome::Refused { status, code: "some".into() };
        assert_eq!(of(command((35, 36), 1, refused(412))), 24);
        assert_eq!(gap(vec![command((20, 30), 1, refused(412))]), 0, "it was answered");
        assert_eq!(gap(vec![command((20, 30), 1, refused(503))]), 10);
    }

    #[test]
    fn a_command_at_a_whole_node_proves_that_a_workspace_stands_still() {
        use FaultKind::{ClientLink, Clock, Pause, PauseServer, PeerLink};
        let at = |node| vec![failed((21, 31), node), failed((31, 45), node)];
        let of = |faults: &[Fault], node| gap_of(faults, at(node));
        for kind in [Pause, ClientLink] {
            assert_eq!((of(&[fault(kind, 0)], 0), of(&[fault(kind, 0)], 1)), (0, 24), "{kind}");
        }
        let to_one_server = storage_link_to(1, 0);
        for harmless in [fault(Clock, 0), to_one_server, fault(PauseServer, 0)] {
            assert_eq!(of(&[harmless], 0), 24, "{harmless}");
        }
        let link = [fault(PeerLink, 0)];
        assert_eq!((of(&link, 0), of(&link, 1)), (0, 0), "the owner may be node 1");
        let at_all = (0..3).flat_map(at).collect();
        assert_eq!(gap_of(&link, at_all), 24);
    }

    #[test]
    fn rounds_have_a_bound_while_all_partitions_can_be_reached() {
        use FaultKind::{
            ClientLink, Clock, FullDisk, Kill, KillServer, Pause, PauseServer, PeerLink,
            StorageLink,
        };
        let bound = |nodes, servers, faults: &[Fault]| {
            let bounds = Bounds { nodes, servers, ..Bounds::default() };
            bounds.takeover(&printed(), faults) == Some(printed().takeover)
        };
        let has_bound = |nodes, faults: &[(FaultKind, usize)]| {
            let faults: Vec<Fault> =
                faults.iter().map(|(kind, target)| fault(*kind, *target)).collect();
            bound(nodes, 1, &faults)
        };
        assert!(has_bound(3, &[(Kill, 0), (Pause, 1)]));
        assert!(!has_bound(3, &[(Kill, 0), (Pause, 1), (Kill, 2)]));
        assert!(has_bound(3, &[(Kill, 0), (Pause, 1), (Clock, 2)]), "a clock hits no node");
        assert!(has_bound(3, &[(ClientLink, 0)]) && has_bound(3, &[(PeerLink, 2)]));
        assert!(has_bound(3, &[(ClientLink, 0), (PeerLink, 1)]));
        assert!(!has_bound(3, &[(ClientLink, 0), (PeerLink, 0)]), "nothing reaches node 1");
        for other in [StorageLink, KillServer, PauseServer, FullDisk] {
            assert!(!has_bound(3, &[(other, 0)]), "{other}");
        }
        assert!(has_bound(1, &[(Clock, 0)]));
        assert!(!has_bound(1, &[(Kill, 0)]) && !has_bound(1, &[(Clock, 0), (Kill, 0)]));
        let of_one_server = storage_link_to(2, 0);
        assert!(bound(3, 3, &[of_one_server]));
        assert!(bound(3, 3, &[of_one_server, fault(Kill, 1), fault(Kill, 2)]), "node 1 is whole");
        assert!(bound(1, 3, &[of_one_server]));
        assert!(!bound(3, 3, &[of_one_server, fault(StorageLink, 1)]));
        for kind in [KillServer, PauseServer] {
            assert!(bound(3, 3, &[fault(kind, 0), fault(Kill, 1)]), "{kind}");
            assert!(!bound(3, 3, &[fault(kind, 0), of_one_server]), "{kind}");
        }
    }
}
