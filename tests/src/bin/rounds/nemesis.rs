//! The faults of each round, as the seed decides.

use std::time::Duration;

use fastrand::Rng;

use crate::{
    bounds::GAP_SLACK,
    cluster::LEASE,
    faults::{Fault, FaultEffect, FaultKind},
    network::{Flow, Traffic},
    shim::FullDisk,
};

/// The draws for each fault of a round, as a draw may give a fault that the round has already.
const TRIES: usize = 8;

/// What a run can break.
#[derive(Clone, Debug)]
pub(crate) struct Targets {
    pub(crate) nodes: usize,
    pub(crate) servers: usize,
    /// The kinds of faults that this run has.
    pub(crate) kinds: Vec<FaultKind>,
    /// The bound of a takeover that the nodes print.
    pub(crate) takeover: Duration,
}

/// Decides the faults of a round: mostly one, often two, sometimes three at the same time.
pub(crate) fn plan(rng: &mut Rng, targets: &Targets) -> Vec<Fault> {
    let count = match rng.u32(0..100) {
        0..55 => 1,
        55..90 => 2,
        _ => 3,
    };
    let mut faults: Vec<Fault> = Vec::new();
    // A run with few kinds of faults has fewer of them at the same time.
    for _ in 0..count * TRIES {
        if faults.len() == count {
            break;
        }
        let fault = one(rng, targets);
        let is_of_server = |kind| matches!(kind, FaultKind::KillServer | FaultKind::PauseServer);
        // A storage of several servers keeps its quorum: at most one server fails.
        let is_taken = |other: &Fault| {
            is_of_server(other.kind()) && is_of_server(fault.kind())
                || other.kind() == fault.kind() && other.target == fault.target
        };
        if !faults.iter().any(is_taken) {
            faults.push(fault);
        }
    }
    faults
}

fn one(rng: &mut Rng, targets: &Targets) -> Fault {
    let kind = targets.kinds[rng.usize(..targets.kinds.len())];
    let count = match kind {
        FaultKind::KillServer | FaultKind::PauseServer => targets.servers,
        _ => targets.nodes,
    };
    Fault {
        target: rng.usize(..count),
        effect: effect(rng, targets, kind),
        delay: Duration::from_millis(rng.u64(0..2_500)),
        lasts: lasts(rng, targets, kind),
    }
}

fn effect(rng: &mut Rng, targets: &Targets, kind: FaultKind) -> FaultEffect {
    match kind {
        FaultKind::Kill => FaultEffect::Kill,
        FaultKind::Pause => FaultEffect::Pause,
        FaultKind::Stop => FaultEffect::Stop,
        FaultKind::StepDown => FaultEffect::StepDown,
        FaultKind::Drain => FaultEffect::Drain,
        FaultKind::StorageLink => {
            // Half of these faults leave a node the other servers.
            let is_of_one = targets.servers > 1 && rng.bool();
            let server = is_of_one.then(|| rng.usize(..targets.servers));
            FaultEffect::StorageLink { server, traffic: traffic(rng) }
        }
        FaultKind::ClientLink => FaultEffect::ClientLink(traffic(rng)),
        FaultKind::PeerLink => FaultEffect::PeerLink(traffic(rng)),
        FaultKind::KillServer => FaultEffect::KillServer,
        FaultKind::PauseServer => FaultEffect::PauseServer,
        FaultKind::FullDisk => {
            FaultEffect::FullDisk(FullDisk::ALL[rng.usize(..FullDisk::ALL.len())])
        }
        FaultKind::Clock => {
            // Less than a day: a storage with the clock of the node forgets idempotency keys after
            // a day.
            let jumps = [Duration::from_millis(700), LEASE * 2, Duration::from_secs(3_600 * 5)];
            FaultEffect::Clock { jump: jumps[rng.usize(..jumps.len())], is_ahead: rng.bool() }
        }
    }
}

/// Some faults are shorter than a lease, and some are so long that other nodes take over and work
/// before the fault ends.
fn lasts(rng: &mut Rng, targets: &Targets, kind: FaultKind) -> Duration {
    // The end of the process is the end of the fault: the supervisor starts the node again.
    if matches!(kind, FaultKind::Stop | FaultKind::StepDown) {
        return Duration::ZERO;
    }
    // So long that a cluster that never takes over exceeds its bound.
    if may_outlast_takeover(targets, kind) && rng.u32(0..4) == 0 {
        return targets.takeover + GAP_SLACK + LEASE.mul_f64(0.2 + 0.4 * rng.f64());
    }
    match rng.u32(0..3) {
        0 => LEASE.mul_f64(0.1 + 0.4 * rng.f64()),
        1 => LEASE.mul_f64(0.5 + 0.7 * rng.f64()),
        _ => LEASE.mul_f64(1.2 + 1.4 * rng.f64()),
    }
}

/// Whether a fault leaves nodes that can take over, or a storage that goes on. A node alone cannot
/// be replaced, and neither can a single server.
fn may_outlast_takeover(targets: &Targets, kind: FaultKind) -> bool {
    use FaultKind::{ClientLink, Kill, KillServer, Pause, PauseServer, PeerLink, StorageLink};
    match kind {
        Kill | Pause | StorageLink | ClientLink | PeerLink => targets.nodes > 1,
        KillServer | PauseServer => targets.nodes > 1 && targets.servers > 1,
        _ => false,
    }
}

fn traffic(rng: &mut Rng) -> Traffic {
    let flow = match rng.u32(0..4) {
        0 | 1 => Flow::Stalled,
        2 => Flow::Late(Duration::from_millis(rng.u64(20..900))),
        _ => Flow::Slow(rng.u32(200..20_000)),
    };
    match rng.u32(0..5) {
        0 => Traffic::Cut,
        1 => Traffic::Refused,
        2 => Traffic::Flows { to_server: flow, to_client: Flow::Whole },
        3 => Traffic::Flows { to_server: Flow::Whole, to_client: flow },
        _ => Traffic::both(flow),
    }
}

#[cfg(test)]
mod tests {
    use std::collections::{BTreeMap, BTreeSet};

    use clap::ValueEnum;

    use super::*;

    fn targets(nodes: usize, kinds: Vec<FaultKind>) -> Targets {
        Targets { nodes, servers: 3, kinds, takeover: Duration::from_secs(22) }
    }

    #[test]
    fn a_seed_gives_the_same_faults_and_all_kinds_come() {
        let kinds = FaultKind::value_variants().to_vec();
        let targets = targets(3, kinds.clone());
        let rounds = |seed| {
            let mut rng = Rng::with_seed(seed);
            (0..500).map(|_| plan(&mut rng, &targets)).collect::<Vec<_>>()
        };
        assert_eq!(rounds(1), rounds(1));
        let seen: BTreeSet<FaultKind> = rounds(1).iter().flatten().map(Fault::kind).collect();
        assert_eq!(seen, kinds.into_iter().collect());
    }

    #[test]
    fn at_most_one_server_fails_at_a_time() {
        let kinds = vec![FaultKind::KillServer, FaultKind::PauseServer];
        let targets = targets(1, kinds);
        let mut rng = Rng::with_seed(7);
        assert!((0..500).all(|_| plan(&mut rng, &targets).len() == 1));
    }

    #[test]
    fn a_node_of_several_servers_loses_all_of_them_or_one() {
        let of = |servers| {
            let kinds = FaultKind::value_variants().to_vec();
            let targets = Targets { servers, ..targets(3, kinds) };
            let mut rng = Rng::with_seed(3);
            let faults: Vec<Fault> = (0..500).flat_map(|_| plan(&mut rng, &targets)).collect();
            let servers = faults.iter().filter_map(|fault| match fault.effect {
                FaultEffect::StorageLink { server, .. } => Some(server),
                _ => None,
            });
            servers.collect::<BTreeSet<_>>()
        };
        assert_eq!(of(3), [None, Some(0), Some(1), Some(2)].into());
        assert_eq!(of(1), [None].into());
    }

    #[test]
    fn some_faults_last_for_longer_than_a_takeover_may() {
        use FaultKind::{ClientLink, Kill, KillServer, Pause, PauseServer, PeerLink, StorageLink};
        let share = |nodes, servers, kind| {
            let targets = Targets { servers, ..targets(nodes, vec![kind]) };
            let mut rng = Rng::with_seed(3);
            let faults: Vec<Fault> = (0..1_000).flat_map(|_| plan(&mut rng, &targets)).collect();
            let is_long = |fault: &&Fault| fault.lasts > targets.takeover + GAP_SLACK;
            faults.iter().filter(is_long).count() as f64 / faults.len() as f64
        };
        let of_nodes = [Kill, Pause, StorageLink, ClientLink, PeerLink];
        let of_servers = [KillServer, PauseServer];
        for kind in of_nodes.iter().chain(&of_servers) {
            let share_of_three = share(3, 3, *kind);
            assert!((0.2..0.3).contains(&share_of_three), "{kind}: {share_of_three}");
            assert_eq!(share(1, 1, *kind), 0.0, "{kind}");
        }
        assert!(of_nodes.iter().all(|kind| share(3, 1, *kind) > 0.2), "the server is whole");
        assert!(of_servers.iter().all(|kind| share(3, 1, *kind) == 0.0), "the only server");
        assert_eq!(share(3, 3, FaultKind::Clock), 0.0);
    }

    #[test]
    fn a_node_that_is_started_again_at_once_has_no_duration() {
        let targets = targets(3, vec![FaultKind::Stop, FaultKind::StepDown]);
        let mut rng = Rng::with_seed(3);
        let mut faults = (0..100).flat_map(|_| plan(&mut rng, &targets));
        assert!(faults.all(|fault| fault.lasts.is_zero()));
    }

    /// What distinguishes faults of one kind.
    fn forms(fault: &Fault, targets: &Targets) -> Vec<String> {
        let (kind, target) = (fault.kind(), fault.target);
        let length = match fault.lasts {
            lasts if lasts.is_zero() => "as long as the process",
            lasts if lasts < LEASE / 2 => "short",
            lasts if lasts < LEASE.mul_f64(1.2) => "a lease",
            lasts if lasts < targets.takeover + GAP_SLACK => "longer than a lease",
            _ => "longer than a takeover",
        };
        let mut forms = vec![format!("{kind} {length}"), format!("{kind} {target}")];
        let name = |flow| match flow {
            Flow::Whole => "whole",
            Flow::Late(_) => "late",
            Flow::Slow(_) => "slow",
            Flow::Stalled => "stalled",
        };
        match fault.effect {
            FaultEffect::StorageLink { traffic, .. }
            | FaultEffect::ClientLink(traffic)
            | FaultEffect::PeerLink(traffic) => forms.push(match traffic {
                Traffic::Flows { to_server, to_client } => {
                    format!("{kind} there {} back {}", name(to_server), name(to_client))
                }
                Traffic::Cut | Traffic::Refused => format!("{kind} {traffic}"),
            }),
            FaultEffect::Clock { jump, is_ahead } => {
                forms.push(format!("{kind} {jump:?} {is_ahead}"))
            }
            FaultEffect::FullDisk(full) => forms.push(format!("{kind} {full}")),
            _ => {}
        }
        if let FaultEffect::StorageLink { server, .. } = fault.effect {
            forms.push(format!("{kind} to {server:?}"));
        }
        forms
    }

    /// The numbers of forms of a kind: lengths, targets, and those of its effect.
    fn forms_of(kind: FaultKind, targets: &Targets) -> usize {
        let is_cluster = targets.nodes > 1;
        // Each direction and both can stall, be late and be slow, and a link can be cut or refuse.
        let traffic = 3 * 3 + 2;
        match kind {
            FaultKind::Stop | FaultKind::StepDown => 1 + targets.nodes,
            FaultKind::Kill | FaultKind::Pause => 3 + usize::from(is_cluster) + targets.nodes,
            FaultKind::Drain => 3 + targets.nodes,
            FaultKind::ClientLink | FaultKind::PeerLink => {
                3 + usize::from(is_cluster) + targets.nodes + traffic
            }
            FaultKind::StorageLink => {
                let servers = if targets.servers > 1 { 1 + targets.servers } else { 1 };
                3 + usize::from(is_cluster) + targets.nodes + traffic + servers
            }
            FaultKind::KillServer | FaultKind::PauseServer => {
                3 + usize::from(is_cluster && targets.servers > 1) + targets.servers
            }
            FaultKind::FullDisk => 3 + targets.nodes + 3,
            FaultKind::Clock => 3 + targets.nodes + 6,
        }
    }

    /// The largest number of faults of a round that are there at the same time.
    fn together(faults: &[Fault]) -> usize {
        // The end of a process takes some time, too.
        let end = |fault: &Fault| fault.delay + fault.lasts.max(Duration::from_millis(100));
        let at_begin = |fault: &Fault| {
            let begun = faults.iter().filter(|other| other.delay <= fault.delay);
            begun.filter(|other| end(other) > fault.delay).count()
        };
        faults.iter().map(at_begin).max().unwrap_or(0)
    }

    #[test]
    fn a_thousand_rounds_have_each_fault_in_each_form_and_several_at_once() {
        use FaultKind::{ClientLink, Clock, FullDisk, Kill, Pause, Stop};
        let all = FaultKind::value_variants().to_vec();
        for (nodes, servers, kinds) in [
            (3, 1, all.clone()),
            (3, 3, all),
            (1, 1, vec![Kill, Pause, Stop, ClientLink, FullDisk, Clock]),
        ] {
            let targets = Targets { servers, ..targets(nodes, kinds) };
            let mut rng = Rng::with_seed(5);
            let rounds: Vec<Vec<Fault>> = (0..1_000).map(|_| plan(&mut rng, &targets)).collect();
            let mut seen: BTreeMap<FaultKind, BTreeSet<String>> = BTreeMap::new();
            for fault in rounds.iter().flatten() {
                seen.entry(fault.kind()).or_default().extend(forms(fault, &targets));
            }
            for kind in &targets.kinds {
                assert_eq!(seen[kind].len(), forms_of(*kind, &targets), "{:?}", seen[kind]);
            }
            let with = |count| rounds.iter().filter(|round| together(round) >= count).count();
            assert!(with(2) > 350 && with(3) > 50, "{} with two, {} with three", with(2), with(3));
        }
    }
}
