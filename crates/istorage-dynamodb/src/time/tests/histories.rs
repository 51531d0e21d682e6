//! Random histories of a leader and a standby. Some connections lead to servers with wrong clocks,
//! and the service's clock may be stepped.

use super::*;

/// Longer than [`LEASE_MIN`], so that the nodes must learn it.
const LEASE: Duration = Duration::from_secs(60);

/// How long the work of a leader goes on after its last good renewal was sent.
const WORKS: Duration = Duration::from_secs(45);

/// How much later than others a server may follow a step of the service's clock.
const LAGS: Duration = Duration::from_secs(15);

struct World {
    manual: ManualClock,
    clock: Clock,
    /// What the dates of right servers are ahead.
    ahead: Duration,
    /// When there was a step, and what the dates were ahead before.
    step: Option<(Instant, Duration)>,
}

impl World {
    /// Of 100.
    fn chance(&self, percent: u64) -> bool {
        self.clock.random() % 100 < percent
    }

    fn between(&self, low: Duration, high: Duration) -> Duration {
        low + Duration::from_nanos(self.clock.random() % (high - low).as_nanos() as u64)
    }

    /// What the dates of a server are ahead that follows a step so much later.
    fn ahead_by(&self, lags: Duration) -> Duration {
        match self.step {
            Some((at, before)) if self.clock.now() < at + lags => before,
            _ => self.ahead,
        }
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
    /// How much later than others the server follows a step.
    lags: Duration,
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
        let lags = if world.chance(30) { LAGS } else { Duration::ZERO };
        Open { port: self.ports, wrong, lags }
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
        let date = world.date_of(open.wrong.unwrap_or_else(|| world.ahead_by(open.lags)));
        world.manual.advance(world.between(MILLI, 40 * MILLI));
        // Several requests may share a connection.
        let answers = if world.chance(10) { CONNECTIONS } else { 1 };
        let mut closes = false;
        for _ in 0..answers {
            closes |= self.followed.learn(sent, date, connection(open.port));
        }
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
    let mut world = World { manual, clock, ahead: 5 * HOUR, step: None };
    let (mut leader, mut standby) = (Node::new(&world), Node::new(&world));
    for node in [&mut leader, &mut standby] {
        while node.followed.is_in_doubt() {
            node.asks(&world);
        }
    }
    let (start, mut renewal) = (world.clock.now(), world.clock.now());
    let mut lease: Option<Lease> = None;
    let steps = world.between(LEASE, 3 * LEASE);
    while world.clock.now() < start + 9 * LEASE {
        let now = world.clock.now();
        if world.step.is_none() && now >= start + steps && world.chance(50) {
            world.step = Some((now, world.ahead));
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
    // A step is believed when it has lasted for two leases, and nothing else is. Only a wrong date of
    // the last answers may be in doubt.
    for node in [&mut leader, &mut standby] {
        let mut asks = 0;
        while node.followed.is_in_doubt() {
            node.asks(&world);
            asks += 1;
            assert!(asks < 100, "seed {seed}: the doubt never ends");
        }
        let (known, truth) = (node.followed.now().unwrap(), world.clock.wall() + world.ahead);
        let is_true = known.earliest <= truth && truth <= known.latest;
        let is_exact = known.width() < Duration::from_secs(2);
        assert!(is_true && is_exact, "seed {seed}: {truth:?} {known:?}");
    }
}

#[test]
fn no_history_takes_a_lease_from_a_leader_that_works() {
    for seed in 0..60 {
        history(seed);
    }
}
