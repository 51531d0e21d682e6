//! A history: random faults, then calm, and the checks of the state after the calm.

use std::{collections::BTreeSet, hash::Hasher};

use ownership::PartitionId;

use crate::world::{Mistake, Settings, World};

/// After the last change of nodes every partition works within this time.
const OWNED_WITHIN: u64 = 25_000;
/// The same if partitions failed to start: a node tries again after a minute.
const OWNED_AFTER_REFUSAL: u64 = 200_000;
/// After the last change of nodes the loads are even within this time.
const EVEN_WITHIN: u64 = 60_000;

/// What a history measured, in milliseconds.
#[derive(Clone, Copy, Debug, Default)]
pub(crate) struct Outcome {
    /// From the last change of nodes until every partition worked.
    pub(crate) owned: u64,
    /// The same if partitions failed to start.
    pub(crate) owned_after_refusal: u64,
    /// From the last change of nodes until the loads were even.
    pub(crate) even: u64,
    pub(crate) moves: usize,
    pub(crate) takes: u64,
    pub(crate) digest: u64,
}

impl Outcome {
    fn with_counts(self, world: &World) -> Outcome {
        let (moves, takes) = (world.moves.len(), world.takes);
        Outcome { moves, takes, digest: world.digest.finish(), ..self }
    }
}

/// The faults of a history.
#[derive(Debug)]
struct Faults {
    end: u64,
    mass_restart_at: Option<u64>,
    has_orders: bool,
    stays_paused: bool,
}

fn settings(seed: u64, mistake: Option<Mistake>) -> Settings {
    let mut random = fastrand::Rng::with_seed(seed);
    let nodes = random.usize(2..=5);
    let count = random.u16(1..=14);
    let second = if random.bool() { random.u16(..=count) } else { 0 };
    let partitions = (0..count)
        .map(|partition| PartitionId { app: 1 + u32::from(partition < second), partition });
    let is_mixed = random.u8(..4) == 0;
    let apps = (0..nodes).map(|node| {
        let all = node == 0 || !is_mixed || random.bool();
        if all { BTreeSet::from([1, 2]) } else { BTreeSet::from([1]) }
    });
    let apps = apps.collect();
    Settings {
        mistake,
        apps,
        partitions: partitions.collect(),
        trouble: [0, 5, 20][random.usize(..3)],
        has_faults: true,
        refuses: random.u8(..12) == 0,
        tells: random.bool(),
        told: Vec::new(),
        ordered: BTreeSet::new(),
        members_fail: false,
        longest_stop: [100, 400, 1_500][random.usize(..3)],
        random,
    }
}

/// Runs the history of a seed.
pub(crate) fn run(seed: u64, mistake: Option<Mistake>) -> Result<Outcome, String> {
    let mut world = World::new(settings(seed, mistake));
    let random = &mut world.settings.random;
    let faults = Faults {
        end: random.u64(20_000..60_000),
        mass_restart_at: (random.u8(..4) == 0).then(|| random.u64(10_000..50_000)),
        has_orders: random.u8(..8) == 0,
        stays_paused: random.u8(..8) == 0,
    };
    for seat in 0..world.seats.len() {
        let random = &mut world.settings.random;
        let is_flapping = seat > 0 && random.u8(..40) == 0;
        let (counts, start) = (random.bool(), random.u64(..15_000));
        world.seats[seat].is_flapping = is_flapping;
        if counts {
            world.count_starts(seat);
        }
        world.start(seat, if seat == 0 { 0 } else { start }, true);
    }
    while world.now < faults.end {
        cause_faults(&mut world, &faults);
        world.step()?;
    }
    end_faults(&mut world, &faults);
    calm(world, &faults)
}

fn cause_faults(world: &mut World, faults: &Faults) {
    let now = world.now;
    if faults.mass_restart_at.is_some_and(|at| at / 100 == now / 100) {
        let comes_back = world.settings.random.bool();
        for seat in 0..world.seats.len() {
            world.crash(seat);
            let in_ms = world.settings.random.u64(1_000..5_000);
            world.start(seat, in_ms, comes_back);
        }
    }
    match world.settings.random.u32(..3_000) {
        0 => world.pause(true),
        1 => world.pause(false),
        2 => world.settings.members_fail = true,
        3..7 => world.settings.members_fail = false,
        7..20 if faults.has_orders => {
            let partition = world.settings.random.usize(..world.settings.partitions.len());
            let seat = world.settings.random.usize(..world.seats.len());
            let partition = world.settings.partitions.iter().nth(partition).copied();
            world.order(partition.unwrap(), seat);
        }
        _ => {}
    }
    for seat in 0..world.seats.len() {
        let is_flapping = world.seats[seat].is_flapping;
        let random = &mut world.settings.random;
        let in_ms = random.u64(500..15_000);
        match random.u32(..1_000) {
            0 => {
                let comes_back = random.bool();
                let returns = seat == 0 || random.u8(..3) > 0;
                world.crash(seat);
                if returns {
                    world.start(seat, in_ms, comes_back);
                }
            }
            1 => world.freeze(seat, in_ms * 2 / 3),
            2 => {
                world.drain(seat, None);
                if seat == 0 || random_bool(world) {
                    world.start(seat, 1_000, false);
                }
            }
            3 => world.drain(seat, Some(in_ms * 2)),
            4..20 if is_flapping => {
                world.crash(seat);
                world.start(seat, 1_000, true);
            }
            _ => {}
        }
    }
}

fn random_bool(world: &mut World) -> bool {
    world.settings.random.bool()
}

fn end_faults(world: &mut World, faults: &Faults) {
    world.settings.has_faults = false;
    world.settings.members_fail = world.settings.random.u8(..8) == 0;
    world.settings.trouble = world.settings.trouble.min(5);
    if world.seats[0].process.is_none() {
        world.start(0, 0, false);
    }
    world.pause(faults.stays_paused);
    world.store.orders.clear();
    // The faults end: stalls, pauses and failing writes.
    world.last_change = world.last_change.max(world.now);
}

fn run_for(world: &mut World, millis: u64) -> Result<(), String> {
    let until = world.now + millis;
    while world.now < until {
        world.step()?;
    }
    Ok(())
}

/// Steps until a condition holds.
fn wait(
    world: &mut World,
    until: u64,
    what: &str,
    is_met: fn(&World) -> bool,
) -> Result<(), String> {
    while !is_met(world) {
        if world.now > until {
            return Err(format!("at {} still not {what}: {:?}", world.now, world.loads()));
        }
        world.step()?;
    }
    Ok(())
}

fn calm(mut world: World, faults: &Faults) -> Result<Outcome, String> {
    let mut outcome = Outcome::default();
    let begin = world.now;
    let refused = world.settings.refuses;
    let within = if refused { OWNED_AFTER_REFUSAL } else { OWNED_WITHIN };
    // Nodes that were stopped start within 15 s, and one that stood still may lose its lease.
    wait(&mut world, begin + 30_000 + within, "owned", World::all_work)?;
    let owned = if refused { &mut outcome.owned_after_refusal } else { &mut outcome.owned };
    *owned = world.now.saturating_sub(world.last_change);
    if *owned > within {
        return Err(format!("owned only {owned} ms after the last change"));
    }
    if world.settings.members_fail {
        world.settings.members_fail = false;
        world.last_change = world.now;
    }
    let until = world.now + within + 60_000;
    if faults.has_orders || faults.stays_paused {
        // A node may still see an order, or not see yet that moves are paused.
        run_for(&mut world, 5_000)?;
    }
    wait(&mut world, until, "settled", World::is_settled)?;
    world.settings.ordered.clear();
    world.moves.clear();
    if faults.stays_paused {
        run_for(&mut world, 30_000)?;
        if !world.moves.is_empty() {
            return Err(format!("moves while paused: {:?}", world.moves));
        }
        world.pause(false);
        world.last_change = world.now;
    }
    if refused {
        world.last_change = world.now;
    }
    let fewest = world.fewest_moves();
    // A node that flapped is left alone for ten minutes, and its load may differ until then.
    let may_flap = world.may_flap();
    if may_flap && world.settings.random.u8(..8) > 0 {
        // Only some histories wait that long.
        return Ok(outcome.with_counts(&world));
    }
    if may_flap {
        run_for(&mut world, 620_000)?;
        world.last_change = world.now;
    }
    let until = world.last_change + EVEN_WITHIN;
    wait(&mut world, until, "even", |world| world.useful_move().is_none())?;
    outcome.even = if may_flap { 0 } else { world.now.saturating_sub(world.last_change) };
    run_for(&mut world, 15_000)?;
    check_moves(&world, fewest, may_flap)?;
    Ok(outcome.with_counts(&world))
}

fn check_moves(world: &World, fewest: usize, may_flap: bool) -> Result<(), String> {
    if let Some(step) = world.useful_move() {
        return Err(format!("the loads are not even any more: {step}"));
    }
    let moves = world.moves.len();
    let moved: BTreeSet<_> = world.moves.iter().collect();
    // After refusals the phases of a history follow each other more quickly, and nodes begin to
    // move partitions at different times. Then two owners can give to the same node at once, and
    // one of 100,000 histories needs a move more.
    if !may_flap && !world.settings.refuses && moved.len() < moves {
        return Err(format!("a partition moved twice: {:?}", world.moves));
    }
    let all_alike = world.settings.apps.iter().all(|apps| apps.len() == 2);
    if all_alike && !may_flap && !world.settings.refuses && moves != fewest {
        return Err(format!("{moves} moves where {fewest} do: {:?}", world.loads()));
    }
    Ok(())
}
