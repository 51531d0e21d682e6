use clock::ManualClock;

use super::*;

const MILLI: Duration = Duration::from_millis(1);

/// How far the service's clock is ahead of the node's; the node never needs to know.
const AHEAD: Duration = Duration::from_millis(123_456_789);

struct Service {
    manual: ManualClock,
    clock: Clock,
    followed: ServiceClock,
}

impl Service {
    fn new() -> Service {
        let manual = ManualClock::new(5);
        let clock = manual.clock();
        Service { manual, followed: ServiceClock::new(clock.clone()), clock }
    }

    fn time(&self) -> WallTime {
        self.clock.wall() + AHEAD
    }

    fn date(&self) -> WallTime {
        WallTime::from_millis(self.time().as_millis() / 1_000 * 1_000)
    }

    /// A request that is answered after `there`, and whose answer takes `back`.
    fn ask(&self, there: Duration, back: Duration) {
        let sent = self.clock.now();
        self.manual.advance(there);
        let date = self.date();
        self.manual.advance(back);
        self.followed.learn(sent, date);
    }

    fn earliest(&self) -> WallTime {
        self.followed.now().unwrap().earliest
    }

    /// That the truth lies within the bounds; returns how wide they are.
    fn check(&self) -> Duration {
        let (known, truth) = (self.followed.now().unwrap(), self.time());
        assert!(known.earliest <= truth && truth <= known.latest, "{truth:?} is not in {known:?}");
        known.width()
    }
}

#[test]
fn nothing_is_known_before_the_first_answer() {
    assert!(Service::new().followed.now().is_none());
}

#[test]
fn the_truth_always_lies_between_the_bounds_and_they_close_in() {
    let service = Service::new();
    service.ask(3 * MILLI, 2 * MILLI);
    assert!(service.check() <= 1_010 * MILLI);
    let mut last = service.earliest();
    for _ in 0..1_000 {
        let random = service.clock.random();
        service.ask(MILLI * (random % 20) as u32, MILLI * (random >> 32 & 15) as u32);
        service.check();
        service.manual.advance(MILLI * (random >> 40 & 255) as u32);
        service.check();
        assert!(service.earliest() >= last, "time goes back");
        last = service.earliest();
    }
    service.ask(MILLI, MILLI);
    assert!(service.check() < 100 * MILLI, "{:?}", service.check());
}

#[test]
fn answers_that_are_noted_in_another_order_than_they_came_tell_the_same() {
    let service = Service::new();
    service.ask(MILLI, MILLI);
    let (at, known) = (service.clock.now(), service.followed.now().unwrap());
    // It came before, and is noted after: at a moment that has passed.
    let before =
        ServiceClock { known: Arc::clone(&service.followed.known), clock: service.clock.clone() };
    *before.known.lock().unwrap() = Some((at + 30 * MILLI, known.after(30 * MILLI)));
    before.learn(at, service.date());
    service.manual.advance(30 * MILLI);
    service.check();
    assert!(before.now().unwrap().earliest >= known.after(30 * MILLI).earliest);
}

#[test]
fn a_long_silence_costs_certainty_and_not_truth() {
    let service = Service::new();
    service.ask(MILLI, MILLI);
    service.manual.advance(Duration::from_secs(3_600));
    let width = service.check();
    assert!(width > Duration::from_secs(10) && width < Duration::from_secs(20), "{width:?}");
    service.ask(MILLI, MILLI);
    assert!(service.check() <= 1_010 * MILLI);
}

#[test]
fn a_clock_that_drifts_as_much_as_clocks_do_stays_within_the_bounds() {
    // The service's clock is slow by 500 in a million: the node's is never slowed down or sped up by more.
    let service = Service::new();
    service.ask(MILLI, MILLI);
    let (start, passed) = (service.time(), Duration::from_secs(1_000));
    service.manual.advance(passed);
    let truth = start + (passed - Duration::from_millis(500));
    let known = service.followed.now().unwrap();
    assert!(known.earliest <= truth && truth <= known.latest);
}

/// An answer with a wrong date once took every lease, and was believed for ever.
#[test]
fn a_contradiction_is_settled_by_the_newer_answer() {
    let service = Service::new();
    service.ask(MILLI, MILLI);
    let (right, now) = (service.date(), service.clock.now());
    let hour = Duration::from_secs(3_600);
    for wrong in [right + hour, WallTime::from_nanos(right.as_nanos() - hour.as_nanos() as u64)] {
        service.followed.learn(now, wrong);
        assert_eq!(service.earliest(), wrong);
        service.followed.learn(now, right);
        assert_eq!(service.earliest(), right);
        service.check();
    }
}

#[test]
fn the_calendar_of_the_node_does_not_matter() {
    let service = Service::new();
    service.ask(MILLI, MILLI);
    let before = service.earliest();
    service.manual.step_wall(-7_200_000);
    assert_eq!(service.earliest(), before);
}
