//! A hundred partitions over one to five nodes. A partition needs 0.3 s to stop, and about as long
//! to start.

use std::{collections::BTreeSet, ops::Range};

use ownership::PartitionId;

use crate::world::{Settings, World};

/// The loads are even within this time after the last change of nodes.
const EVEN_WITHIN: u64 = 40_000;

/// How nodes leave.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Leave {
    Drain,
    Crash,
}

fn world(seed: u64, tells: bool) -> World {
    let partitions = (0..100).map(|partition| PartitionId { app: 1, partition }).collect();
    World::new(Settings {
        mistake: None,
        random: fastrand::Rng::with_seed(seed),
        partitions,
        apps: vec![BTreeSet::from([1]); 5],
        trouble: 0,
        has_faults: false,
        refuses: false,
        tells,
        told: Vec::new(),
        ordered: BTreeSet::new(),
        members_fail: false,
        longest_stop: 300,
    })
}

/// Runs until a condition holds for this number of nodes.
fn wait(world: &mut World, nodes: usize, is_met: fn(&World) -> bool) {
    let begin = world.now;
    while world.loads().len() != nodes || !is_met(world) {
        world.step().unwrap();
        assert!(world.now < begin + 120_000, "{nodes} nodes: {:?}", world.loads());
    }
}

/// Changes the number of nodes; returns the time from the last change until the loads were even,
/// and the number of moves.
fn change(world: &mut World, nodes: Range<usize>, leave: Leave) -> (u64, usize) {
    for seat in nodes.clone() {
        world.start(seat, 0, false);
    }
    for seat in nodes.end..nodes.start {
        match leave {
            Leave::Drain => world.drain(seat, None),
            Leave::Crash => world.crash(seat),
        }
    }
    wait(world, nodes.end, World::is_settled);
    let fewest = world.fewest_moves();
    world.moves.clear();
    wait(world, nodes.end, |world| world.useful_move().is_none() && world.is_settled());
    let took = world.now.saturating_sub(world.last_change);
    let calm_until = world.now + 15_000;
    while world.now < calm_until {
        world.step().unwrap();
    }
    assert_eq!(world.moves.len(), fewest, "{nodes:?} {leave:?}: {:?}", world.loads());
    (took, fewest)
}

#[test]
fn a_hundred_partitions_are_even_within_40_s_by_the_fewest_moves() {
    let one_by_one = &[1, 2, 3, 5, 3, 2, 1][..];
    let at_once = &[1, 2, 3, 5, 3, 2, 1, 5, 1, 3, 5][..];
    for (seed, tells, leave, counts) in [
        (1, true, Leave::Drain, at_once),
        (2, true, Leave::Crash, at_once),
        (3, false, Leave::Drain, one_by_one),
        (4, false, Leave::Crash, one_by_one),
    ] {
        let mut world = world(seed, tells);
        let mut report = Vec::new();
        let mut before = 0;
        for &nodes in counts {
            let (took, moves) = change(&mut world, before..nodes, leave);
            report.push(format!("{before} to {nodes} nodes: {took} ms, {moves} moves"));
            assert!(took <= EVEN_WITHIN, "{leave:?} {report:?}");
            before = nodes;
        }
        println!("{leave:?}, tells: {tells}: {report:#?}");
    }
}
