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
    let before = service.followed.clone();
    let noted = Known { at: at + 30 * MILLI, time: known.after(30 * MILLI), doubt: None };
    before.state().known = Some(noted);
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

const HOUR: Duration = Duration::from_secs(3_600);

/// How often a candidate looks.
const LOOKS_EVERY: Duration = Duration::from_millis(200);

fn before(time: WallTime, by: Duration) -> WallTime {
    WallTime::from_millis(time.as_millis() - by.as_millis() as u64)
}

impl Service {
    /// Answers come from a clock that is an hour ahead, for so long. Whether they were believed.
    fn is_ahead_for(&self, long: Duration) -> bool {
        let end = self.clock.now() + long;
        while self.clock.now() < end {
            let right = self.earliest();
            self.followed.learn(self.clock.now(), self.date() + HOUR);
            if self.earliest() > right + HOUR / 2 {
                return true;
            }
            self.manual.advance(LOOKS_EVERY);
        }
        false
    }
}

/// The newer of two answers was believed. One answer with a wrong date moved the time forward by an
/// hour, and the node took each lease from its holder.
#[test]
fn one_wrong_date_takes_no_lease_and_gives_none_too_little() {
    let service = Service::new();
    service.ask(MILLI, MILLI);
    for wrong in [service.date() + HOUR, before(service.date(), HOUR)] {
        assert!(service.followed.learn(service.clock.now(), wrong), "it is in doubt");
        // Rows are judged by the earliest time and written by the latest one.
        assert!(service.check() > HOUR / 2, "both stories count");
        service.manual.advance(LOOKS_EVERY);
        service.ask(MILLI, MILLI);
        assert!(service.check() <= 1_010 * MILLI, "the wrong date is forgotten");
    }
}

#[test]
fn a_step_counts_when_it_has_lasted_for_a_lease() {
    let service = Service::new();
    service.ask(MILLI, MILLI);
    assert!(!service.is_ahead_for(LASTS_MIN - LOOKS_EVERY));
    assert!(service.is_ahead_for(2 * LOOKS_EVERY));
    // A step back, too: the time of the hour before is now the other story.
    service.ask(MILLI, MILLI);
    assert!(service.followed.now().unwrap().latest >= service.time() + HOUR);
}

/// Another node may hold a lease that it wrote before the step.
#[test]
fn a_step_must_last_for_as_long_as_rows_live() {
    let service = Service::new();
    service.ask(MILLI, MILLI);
    service.followed.rows_live(HOUR);
    service.followed.rows_live(LASTS_MIN);
    assert!(!service.is_ahead_for(HOUR - LOOKS_EVERY));
    assert!(service.is_ahead_for(2 * LOOKS_EVERY));
}

#[test]
fn a_step_that_few_answers_tell_does_not_count() {
    let service = Service::new();
    service.ask(MILLI, MILLI);
    for _ in 1..ANSWERS {
        service.manual.advance(2 * LASTS_MIN);
        service.followed.learn(service.clock.now(), service.date() + HOUR);
        service.check();
    }
}

#[test]
fn one_right_answer_ends_the_doubt() {
    let service = Service::new();
    service.ask(MILLI, MILLI);
    for _ in 0..10 {
        assert!(!service.is_ahead_for(LASTS_MIN - LOOKS_EVERY));
        service.ask(MILLI, MILLI);
        service.check();
    }
}

/// Each answer contradicts the one before: no story lasts.
#[test]
fn answers_that_never_agree_are_never_believed() {
    let service = Service::new();
    service.ask(MILLI, MILLI);
    for hour in 1..1_000 {
        service.manual.advance(LOOKS_EVERY);
        service.followed.learn(service.clock.now(), service.date() + hour * HOUR);
        service.check();
    }
}

/// The date is cut off to a second, so about half of the answers agree with both stories.
#[test]
fn a_step_of_half_a_second_is_followed() {
    let service = Service::new();
    let step = Duration::from_millis(500);
    for _ in 0..1_000 {
        service.ask(MILLI, MILLI);
        service.manual.advance(17 * MILLI);
    }
    let stepped = |service: &Service| service.time() + step;
    let end = service.clock.now() + 2 * LASTS_MIN;
    while service.clock.now() < end {
        let date = WallTime::from_millis(stepped(&service).as_millis() / 1_000 * 1_000);
        service.followed.learn(service.clock.now(), date);
        service.manual.advance(LOOKS_EVERY + 17 * MILLI);
    }
    let known = service.followed.now().unwrap();
    assert!(known.earliest <= stepped(&service) && stepped(&service) <= known.latest, "{known:?}");
    assert!(known.width() < step, "{known:?}");
}

#[test]
fn the_calendar_of_the_node_does_not_matter() {
    let service = Service::new();
    service.ask(MILLI, MILLI);
    let before = service.earliest();
    service.manual.step_wall(-7_200_000);
    assert_eq!(service.earliest(), before);
}
