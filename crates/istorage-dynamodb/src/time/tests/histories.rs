//! Random histories of a leader and a standby. Some connections lead to servers with wrong clocks,
//! and the service's clock may be stepped.

use super::*;

/// Longer than [`LEASE_MIN`], so that the nodes must learn it.
const LEASE: Duration = Duration::from_secs(30);

/// How long the work of a leader goes on after its last good renewal was sent.
const WORKS: Duration = Duration::from_millis(22_500);

struct World {
    manual: ManualClock,
    clock: Clock,
    /// What the dates of right servers are ahead.
    ahead: Duration,
    stepped_at: Option<Instant>,
}

impl World {
    /// Of 100.
    fn chance(&self, percent: u64) -> bool {
        self.clock.random() % 100 < percent
    }

    fn between(&self, low: Duration, high: Duration) -> Duration {
        low + Duration::from_nanos(self.clock.random() % (high - low).as_nanos() as u64)
    }

    fn date_of(&self, ahead: Duration) -> WallTime {
        cut_off(self.clock.wall() + ahead)
    }
}

/// A connection to a server, and what the server's dates are ahead if its clock is wrong.
#[derive(Clone, Copy)]
struct Open {
    port: u16,
    wrong: Option<Duration>,
}

struct Node {
    followed: ServiceClock,
    pool: Vec<Open>,
    ports: u16,
    /// How many of the last new connections had a wrong clock.
    wrong_in_a_row: usize,
}

impl Node {
    fn new(world: &World) -> Node {
        let followed = ServiceClock::new(world.clock.clone());
        Node { followed, pool: Vec::new(), ports: 0, wrong_in_a_row: 0 }
    }

    /// A new connection. Fewer than [`CONNECTIONS`] in a row lead to servers with wrong clocks.
    fn opens(&mut self, world: &World) -> Open {
        self.ports += 1;
        let is_wrong = self.wrong_in_a_row + 1 < CONNECTIONS && world.chance(20);
        self.wrong_in_a_row = if is_wrong { self.wrong_in_a_row + 1 } else { 0 };
        // Two wrong ones may agree.
        let wrong = is_wrong.then(|| HOUR * (world.clock.random() % 3 + 1) as u32);
        Open { port: self.ports, wrong }
    }

    /// A request and its answer, over a connection of the pool or a new one.
    fn asks(&mut self, world: &World) {
        let place = world.clock.random() as usize % (self.pool.len() + 1);
        let open = match self.pool.get(place) {
            Some(_) => self.pool.swap_remove(place),
            None => self.opens(world),
        };
        let sent = world.clock.now();
        world.manual.advance(world.between(MILLI, 40 * MILLI));
        let date = world.date_of(open.wrong.unwrap_or(world.ahead));
        world.manual.advance(world.between(MILLI, 40 * MILLI));
        let closes = self.followed.learn(sent, date, connection(open.port));
        if !closes && self.pool.len() < 4 {
            self.pool.push(open);
        }
    }

    /// As before a lease is written.
    fn asks_in_doubt(&mut self, world: &World) {
        for _ in 0..5 {
            if !self.followed.needs_answers() {
                return;
            }
            self.asks(world);
        }
    }
}

/// How the lease of the leader is stored, and when its last good renewal was sent.
struct Lease {
    expires: WallTime,
    sent: Instant,
}

/// The leader renews its lease; the standby looks, and judges whether the lease has expired.
fn history(seed: u64) {
    let manual = ManualClock::new(seed);
    let clock = manual.clock();
    let mut world = World { manual, clock, ahead: 5 * HOUR, stepped_at: None };
    let (mut leader, mut standby) = (Node::new(&world), Node::new(&world));
    for node in [&mut leader, &mut standby] {
        while node.followed.is_in_doubt() {
            node.asks(&world);
        }
    }
    let (start, mut renewal) = (world.clock.now(), world.clock.now());
    let mut lease: Option<Lease> = None;
    let steps = world.between(LEASE, 3 * LEASE);
    while world.clock.now() < start + 8 * LEASE {
        let now = world.clock.now();
        if world.stepped_at.is_none() && now >= start + steps && world.chance(50) {
            world.stepped_at = Some(now);
            let back = world.chance(30);
            let by = world.between(Duration::from_secs(2), 2 * HOUR);
            world.ahead = if back { world.ahead - by } else { world.ahead + by };
        }
        if now >= renewal {
            leader.followed.lease_is_written(LEASE);
            leader.asks_in_doubt(&world);
            let sent = world.clock.now();
            let time = leader.followed.now().unwrap();
            if time.width() <= LEASE {
                lease = Some(Lease { expires: time.latest + LEASE, sent });
            }
            leader.asks(&world);
            renewal = now + LEASE / 4;
        }
        standby.asks(&world);
        if let Some(lease) = &lease {
            let (now, time) = (world.clock.now(), standby.followed.now().unwrap());
            let is_expired = lease.expires <= time.earliest;
            let works = now - lease.sent < WORKS;
            assert!(
                !(is_expired && works),
                "seed {seed}: a lease is taken {:?} after it was sent",
                now - lease.sent
            );
            let left = lease.expires.as_nanos().saturating_sub(time.earliest.as_nanos());
            standby.followed.lease_is_read(Duration::from_nanos(left));
        }
        world.manual.advance(LOOKS_EVERY);
    }
    // A step is believed at last, and nothing else is.
    for node in [&mut leader, &mut standby] {
        for _ in 0..100 {
            node.asks(&world);
        }
        let truth = world.clock.wall() + world.ahead;
        let known = node.followed.now().unwrap();
        assert!(
            known.earliest <= truth && truth <= known.latest,
            "seed {seed}: {truth:?} {known:?}"
        );
    }
}

#[test]
fn no_history_takes_a_lease_from_a_leader_that_works() {
    for seed in 0..100 {
        history(seed);
    }
}
