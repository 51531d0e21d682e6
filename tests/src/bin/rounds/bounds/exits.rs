//! The ends of processes, and the faults that explain them.

use std::{
    collections::BTreeSet, os::unix::process::ExitStatusExt, process::ExitStatus, time::Duration,
};

use super::{Bounds, Round, reach};
use crate::{
    cluster::LEASE,
    faults::{Fault, FaultEffect, FaultKind},
    node::NodeExit,
};

/// A link that makes answers late by less than this explains no end.
const SHORT_DELAY: Duration = Duration::from_millis(100);

impl Bounds {
    /// Finds ends of processes that neither a fault of that node or of a server explains, nor an
    /// order to all nodes to stop.
    pub(crate) fn check_exits(&mut self, exits: &[NodeExit]) {
        let mut used = BTreeSet::new();
        let unexplained = exits.iter().filter(|exit| !self.is_explained(exit, &mut used));
        let found = unexplained.map(|exit| {
            format!(
                "{} ended with {} at {:.2} s, which nothing explains",
                exit.node,
                exit.status,
                exit.at as f64 / 1e6
            )
        });
        let found: Vec<String> = found.collect();
        self.violations.extend(found);
    }

    /// Whether something explains an end. `used` has the faults that have ended their process, by
    /// their places: each one ends it once.
    fn is_explained(&self, exit: &NodeExit, used: &mut BTreeSet<(usize, usize)>) -> bool {
        let kinds = explaining(exit.status);
        let was_stopped = self.stops.iter().any(|(begin, end)| (*begin..=*end).contains(&exit.at));
        if was_stopped && kinds.contains(&FaultKind::Stop) {
            return true;
        }
        for (place, round) in self.rounds.iter().chain(&self.proofs).enumerate() {
            for (of_round, fault) in round.faults.iter().enumerate() {
                let kind = fault.kind();
                let until = if is_end(kind) { round.end } else { self.explains_until(round) };
                let explains = (round.begin..=until).contains(&exit.at)
                    && kinds.contains(&kind)
                    && !is_short_delay(fault)
                    && self.hits(&round.faults, fault, exit.place);
                if explains && (!is_end(kind) || used.insert((place, of_round))) {
                    return true;
                }
            }
        }
        false
    }

    /// Whether a fault of a round reaches the node at this place. A node that loses one server of
    /// three ends no leadership, so it does not end.
    fn hits(&self, faults: &[Fault], fault: &Fault, place: usize) -> bool {
        match fault.kind() {
            FaultKind::StorageLink | FaultKind::KillServer | FaultKind::PauseServer => {
                !reach::keeps_storage(faults, place, self.servers)
            }
            _ => fault.target == place,
        }
    }

    /// The last moment when a process may end because of a round. A node that could not renew its
    /// lease leads for a lease after the last fault at most. Then it stops within the time that it
    /// prints.
    fn explains_until(&self, round: &Round) -> u64 {
        let stop = self.printed.map_or(Duration::ZERO, |printed| printed.stop);
        let after = u64::try_from((LEASE + stop).as_micros()).unwrap_or(u64::MAX);
        round.end.max(round.healed.saturating_add(after))
    }
}

/// Whether a fault only makes the answers of the storage late, and by little. A node has seconds to
/// renew its lease, so it goes on.
fn is_short_delay(fault: &Fault) -> bool {
    let FaultEffect::StorageLink { traffic, .. } = fault.effect else { return false };
    traffic.delay().is_some_and(|delay| delay < SHORT_DELAY)
}

/// Whether a fault ends a process itself, and at once.
fn is_end(kind: FaultKind) -> bool {
    matches!(kind, FaultKind::Kill | FaultKind::Stop | FaultKind::StepDown)
}

/// The kinds of faults that explain an end. `docs/operations.md` has the codes.
fn explaining(status: ExitStatus) -> &'static [FaultKind] {
    use FaultKind::{FullDisk, Kill, KillServer, Pause, PauseServer, StepDown, Stop, StorageLink};
    match (status.code(), status.signal()) {
        (None, Some(9)) => &[Kill],
        // A signal may come before the process listens for it.
        (Some(0), _) | (None, Some(15)) => &[Stop],
        (Some(11), _) => &[StepDown],
        // The storage stopped working.
        (Some(4), _) => &[StorageLink, KillServer, PauseServer, FullDisk],
        // The leadership did not come in time or was lost, or work did not end in time. A node
        // that stands still notices this later.
        (Some(6 | 7 | 9 | 10), _) => &[Pause, StorageLink, KillServer, PauseServer, FullDisk],
        _ => &[],
    }
}

#[cfg(test)]
mod tests {
    use super::{
        super::tests::{fault, printed, storage_link_to},
        *,
    };
    use crate::network::{Flow, Traffic};

    const SECOND: u64 = 1_000_000;

    fn status(code: i32) -> ExitStatus {
        ExitStatus::from_raw(code << 8)
    }

    fn signal(signal: i32) -> ExitStatus {
        ExitStatus::from_raw(signal)
    }

    fn exit(place: usize, at: u64, status: ExitStatus) -> NodeExit {
        NodeExit { place, node: format!("node {}", place + 1), at: at * SECOND, status }
    }

    /// The violations after a round from 20 s to 30 s, with its last fault at an end at 28 s, and
    /// after an ordered stop from 100 s to 110 s. The nodes print a stop of 6 s.
    fn found_with(servers: usize, faults: &[Fault], exits: &[NodeExit]) -> usize {
        let round = Round {
            faults: faults.to_vec(),
            begin: 20 * SECOND,
            healed: 28 * SECOND,
            end: 30 * SECOND,
            takeover: None,
        };
        let printed = Some(printed());
        let mut bounds = Bounds { nodes: 3, servers, printed, ..Bounds::default() };
        bounds.stops.push((100 * SECOND, 110 * SECOND));
        bounds.add_round(round, None);
        bounds.check_exits(exits);
        bounds.violations.len()
    }

    /// The violations with one server.
    fn found(faults: &[Fault], exits: &[NodeExit]) -> usize {
        found_with(1, faults, exits)
    }

    #[test]
    fn a_fault_explains_only_the_ends_of_its_own_node() {
        for (kind, status) in [
            (FaultKind::Kill, signal(9)),
            (FaultKind::Stop, status(0)),
            (FaultKind::Stop, signal(15)),
            (FaultKind::StepDown, status(11)),
            (FaultKind::Pause, status(7)),
            (FaultKind::StorageLink, status(10)),
            (FaultKind::FullDisk, status(4)),
        ] {
            let faults = [fault(kind, 0)];
            assert_eq!(found(&faults, &[exit(0, 25, status)]), 0, "{kind} {status}");
            assert_eq!(found(&faults, &[exit(1, 25, status)]), 1, "{kind} {status}");
            assert_eq!(found(&[], &[exit(0, 25, status)]), 1, "{status}");
        }
    }

    #[test]
    fn a_fault_of_the_only_server_explains_the_ends_of_all_nodes() {
        for kind in [FaultKind::KillServer, FaultKind::PauseServer] {
            let exits = [4, 7, 9, 10].map(|code| exit(2, 25, status(code)));
            assert_eq!(found(&[fault(kind, 0)], &exits), 0, "{kind}");
            assert_eq!(found(&[fault(kind, 0)], &[exit(0, 25, signal(9))]), 1, "{kind}");
        }
    }

    /// One server of three that had failed excused every end of every node.
    #[test]
    fn a_node_that_still_reaches_other_servers_has_no_reason_to_end() {
        let of_one_server = storage_link_to(1, 0);
        for code in [4, 7, 10] {
            let exits = [exit(0, 25, status(code))];
            let of = |faults: &[Fault]| found_with(3, faults, &exits);
            assert_eq!(of(&[of_one_server]), 1, "{code}");
            for kind in [FaultKind::KillServer, FaultKind::PauseServer] {
                assert_eq!(of(&[fault(kind, 2)]), 1, "{kind} {code}");
                assert_eq!(of(&[of_one_server, fault(kind, 2)]), 0, "two servers, {kind} {code}");
                assert_eq!(of(&[of_one_server, fault(kind, 1)]), 1, "one server, {kind} {code}");
            }
            assert_eq!(of(&[fault(FaultKind::StorageLink, 0)]), 0, "{code}");
        }
    }

    /// A node that ended because of any delay at all was excused.
    #[test]
    fn a_short_delay_explains_no_end() {
        let late = |millis| Flow::Late(Duration::from_millis(millis));
        let found = |traffic| {
            let effect = FaultEffect::StorageLink { server: None, traffic };
            let link = Fault { effect, ..fault(FaultKind::StorageLink, 0) };
            found(&[link], &[exit(0, 25, status(7))])
        };
        assert_eq!(found(Traffic::Flows { to_server: late(90), to_client: Flow::Whole }), 1);
        assert_eq!(found(Traffic::both(late(50))), 0);
        for traffic in [Traffic::Cut, Traffic::Refused, Traffic::both(Flow::Slow(200))] {
            assert_eq!(found(traffic), 0, "{traffic:?}");
        }
        assert_eq!(found(Traffic::Flows { to_server: late(20), to_client: Flow::Stalled }), 0);
    }

    /// A node that ended again by itself was excused by the fault that had ended it before.
    #[test]
    fn an_order_explains_one_end() {
        for (kind, status) in [
            (FaultKind::Kill, signal(9)),
            (FaultKind::Stop, status(0)),
            (FaultKind::StepDown, status(11)),
        ] {
            let ends = |times: &[u64]| {
                let exits: Vec<NodeExit> = times.iter().map(|at| exit(0, *at, status)).collect();
                found(&[fault(kind, 0)], &exits)
            };
            assert_eq!((ends(&[21]), ends(&[21, 27])), (0, 1), "{kind}");
            assert_eq!(ends(&[35]), 1, "{kind}: after the round");
        }
        let paused = [exit(0, 21, status(7)), exit(0, 27, status(7))];
        assert_eq!(found(&[fault(FaultKind::Pause, 0)], &paused), 0);
    }

    #[test]
    fn a_fault_explains_only_ends_of_its_kind() {
        let ends = |kind, status| found(&[fault(kind, 0)], &[exit(0, 25, status)]);
        assert_eq!(ends(FaultKind::Pause, signal(9)), 1, "it was killed by somebody else");
        assert_eq!(ends(FaultKind::Kill, status(0)), 1);
        assert_eq!(ends(FaultKind::Kill, signal(6)), 1, "it aborted");
        assert_eq!(ends(FaultKind::Stop, status(11)), 1);
        for harmless in [FaultKind::ClientLink, FaultKind::PeerLink, FaultKind::Clock] {
            assert_eq!(ends(harmless, status(7)), 1, "{harmless}");
        }
        for wrong in [1, 2, 3, 5, 8, 12, 101] {
            assert_eq!(ends(FaultKind::Pause, status(wrong)), 1, "{wrong}");
        }
    }

    #[test]
    fn a_fault_explains_ends_until_the_lease_is_over_and_the_node_has_stopped() {
        let ends = |at| found(&[fault(FaultKind::Pause, 0)], &[exit(0, at, status(7))]);
        assert_eq!(ends(19), 1, "before the round");
        assert_eq!(ends(42), 0, "8 s of the lease and 6 s to stop after the fault");
        assert_eq!(ends(43), 1);
    }

    #[test]
    fn an_order_to_all_nodes_explains_that_they_stop() {
        assert_eq!(found(&[], &[exit(0, 105, status(0)), exit(2, 110, signal(15))]), 0);
        assert_eq!(found(&[], &[exit(0, 105, status(7))]), 1);
        assert_eq!(found(&[], &[exit(0, 111, status(0))]), 1, "between two orders");
    }

    #[test]
    fn a_fault_just_before_an_order_to_stop_explains_another_end() {
        let mut bounds = Bounds::default();
        bounds.stops.push((29 * SECOND, 35 * SECOND));
        let round = Round {
            faults: vec![fault(FaultKind::Pause, 1)],
            begin: 20 * SECOND,
            healed: 28 * SECOND,
            end: 28 * SECOND,
            takeover: None,
        };
        bounds.add_round(round, None);
        bounds.check_exits(&[exit(1, 30, status(7)), exit(0, 31, status(0))]);
        assert!(bounds.violations.is_empty(), "{:?}", bounds.violations);
        bounds.check_exits(&[exit(0, 30, status(7))]);
        assert_eq!(bounds.violations.len(), 1);
    }

    #[test]
    fn a_proof_explains_ends_and_is_no_round() {
        let faults = vec![fault(FaultKind::StorageLink, 1)];
        let (begin, healed, end) = (20 * SECOND, 21 * SECOND, 22 * SECOND);
        let proof = Round { faults, begin, healed, end, takeover: None };
        let mut bounds = Bounds { proofs: vec![proof], ..Bounds::default() };
        bounds.check_exits(&[exit(1, 22, status(7))]);
        assert!(bounds.violations.is_empty(), "{:?}", bounds.violations);
        bounds.check_exits(&[exit(0, 22, status(7))]);
        bounds.check_rounds();
        assert_eq!(bounds.violations.len(), 2, "{:?}", bounds.violations);
    }
}
