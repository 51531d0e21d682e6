use std::time::Duration;

use clock::ManualClock;

use super::{
    timelines::{CONNECTIONS, STEP_LASTS, TIMELINES_MAX},
    *,
};

const MILLI: Duration = Duration::from_millis(1);
const HOUR: Duration = Duration::from_secs(3_600);

/// How far the service's clock is ahead of the node's clock. The node never needs to know.
const AHEAD: Duration = Duration::from_millis(123_456_789);

/// The time between two answers of the service.
const LOOKS_EVERY: Duration = Duration::from_millis(200);

struct SimulatedService {
    manual: ManualClock,
    clock: Clock,
    followed: ServiceClock,
    /// The connection of the next answer. A new connection replaces a closed one.
    port: u16,
    closed: u32,
}

impl SimulatedService {
    /// A node that has just started.
    fn new() -> SimulatedService {
        let manual = ManualClock::new(5);
        let clock = manual.clock();
        let followed = ServiceClock::new(clock.clone());
        SimulatedService { manual, followed, clock, port: 0, closed: 0 }
    }

    /// A node that has had right answers over enough connections.
    fn trusted() -> SimulatedService {
        let mut service = SimulatedService::new();
        for _ in 0..CONNECTIONS {
            service.ask(MILLI, MILLI);
        }
        service.closed = 0;
        service
    }

    fn time(&self) -> WallTime {
        self.clock.wall() + AHEAD
    }

    fn date(&self) -> WallTime {
        cut_off(self.time())
    }

    /// Notes an answer with this date to a request of this moment.
    fn hear(&mut self, sent: Instant, date: WallTime) {
        if self.followed.add_answer(sent, date, connection(self.port)) {
            self.closed += 1;
            self.port += 1;
        }
    }

    /// Sends a request that the service answers after `there`. The answer takes `back`.
    fn ask(&mut self, there: Duration, back: Duration) {
        let sent = self.clock.now();
        self.manual.advance(there);
        let date = self.date();
        self.manual.advance(back);
        self.hear(sent, date);
    }

    /// Notes an answer with a date that is ahead by this time.
    fn hear_ahead(&mut self, ahead: Duration) {
        self.hear(self.clock.now(), cut_off(self.time() + ahead));
    }

    fn earliest(&self) -> WallTime {
        self.followed.now().unwrap().earliest
    }

    /// Checks that the true time lies within the bounds. Returns the distance of the bounds.
    fn check(&self) -> Duration {
        let (known, truth) = (self.followed.now().unwrap(), self.time());
        assert!(known.earliest <= truth && truth <= known.latest, "{truth:?} is not in {known:?}");
        known.width()
    }

    /// Answers come from a clock that is an hour ahead, for this time. Returns whether the node
    /// believed that clock.
    fn is_ahead_for(&mut self, long: Duration) -> bool {
        let end = self.clock.now() + long;
        while self.clock.now() < end {
            self.hear_ahead(HOUR);
            if self.earliest() > self.time() + HOUR / 2 {
                return true;
            }
            self.manual.advance(LOOKS_EVERY);
        }
        false
    }
}

fn connection(port: u16) -> LocalAddress {
    Some(([127, 0, 0, 1], port).into())
}

fn cut_off(time: WallTime) -> WallTime {
    WallTime::from_millis(time.as_millis() / 1_000 * 1_000)
}

fn before(time: WallTime, by: Duration) -> WallTime {
    WallTime::from_millis(time.as_millis() - by.as_millis() as u64)
}

#[test]
fn nothing_is_known_before_the_first_answer() {
    assert!(SimulatedService::new().followed.now().is_none());
}

#[test]
fn the_true_time_lies_between_the_bounds_and_the_bounds_narrow() {
    let mut service = SimulatedService::trusted();
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
    assert_eq!(service.closed, 0);
}

#[test]
fn the_order_in_which_answers_are_noted_does_not_matter() {
    let mut service = SimulatedService::trusted();
    let (at, known) = (service.clock.now(), service.followed.now().unwrap());
    // An answer came before the known bounds were last changed, and is noted afterwards, with a
    // time that has passed.
    {
        let mut known_now = lock(&service.followed.known);
        known_now.at = at + 30 * MILLI;
        known_now.timelines[0].time = known.after(30 * MILLI);
    }
    service.hear(at, service.date());
    service.manual.advance(30 * MILLI);
    service.check();
    assert!(service.earliest() >= known.after(30 * MILLI).earliest);
}

#[test]
fn a_long_silence_widens_the_bounds_around_the_true_time() {
    let mut service = SimulatedService::trusted();
    service.manual.advance(HOUR);
    let width = service.check();
    assert!(width > Duration::from_secs(10) && width < Duration::from_secs(20), "{width:?}");
    service.ask(MILLI, MILLI);
    assert!(service.check() <= 1_010 * MILLI);
}

#[test]
fn a_clock_that_drifts_within_the_limit_stays_within_the_bounds() {
    // The service's clock is slow by 500 in a million. The node's clock is never slowed down or
    // sped up by more.
    let service = SimulatedService::trusted();
    let (start, passed) = (service.time(), Duration::from_secs(1_000));
    service.manual.advance(passed);
    let truth = start + (passed - Duration::from_millis(500));
    let known = service.followed.now().unwrap();
    assert!(known.earliest <= truth && truth <= known.latest);
}

#[test]
fn the_wall_clock_of_the_node_does_not_matter() {
    let service = SimulatedService::trusted();
    let before = service.earliest();
    service.manual.step_wall(-7_200_000);
    assert_eq!(service.earliest(), before);
}

/// The node believed the first date although it was only one answer. If that date was an hour
/// ahead, a node that had just started did not see stored answers of idempotency keys. The right
/// answers were in doubt, so their connections were closed, and the connection with the wrong date
/// was kept.
#[test]
fn a_first_date_that_is_wrong_makes_no_row_expire() {
    for wrong in [HOUR, 2 * HOUR] {
        let mut service = SimulatedService::new();
        service.hear_ahead(wrong);
        assert_eq!(service.closed, 1, "the connection with the wrong date is not used again");
        for _ in 0..CONNECTIONS {
            assert_eq!(service.earliest(), WallTime::from_millis(0), "no row has expired yet");
            service.ask(MILLI, MILLI);
            service.check();
        }
        assert!(service.check() <= 1_010 * MILLI, "the wrong date is forgotten");
        assert_eq!(service.closed, 3);
    }
}

/// A server with a wrong clock may answer many requests over one connection.
#[test]
fn answers_over_one_connection_are_never_enough() {
    let service = SimulatedService::new();
    for _ in 0..100 {
        service.followed.add_answer(service.clock.now(), service.date(), connection(7));
        service.followed.add_answer(service.clock.now(), service.date(), None);
    }
    assert_eq!(service.earliest(), WallTime::from_millis(0));
    let service = SimulatedService::trusted();
    for n in 0..100 {
        let port = n % (CONNECTIONS as u16 - 1);
        let date = service.date() + HOUR;
        assert!(service.followed.add_answer(service.clock.now(), date, connection(100 + port)));
        service.manual.advance(LASTS / 50);
        service.check();
    }
    assert!(service.check() > HOUR / 2);
}

/// The node believed the newer of two answers. One answer with a wrong date moved the time forward
/// by an hour, and rows expired an hour early.
#[test]
fn one_wrong_date_makes_no_row_expire() {
    let mut service = SimulatedService::trusted();
    for wrong in [service.date() + HOUR, before(service.date(), HOUR)] {
        service.closed = 0;
        service.hear(service.clock.now(), wrong);
        for _ in 0..CONNECTIONS {
            // Rows are judged by the earliest time and written by the latest time.
            assert!(service.check() > HOUR / 2, "both timelines count");
            service.manual.advance(LOOKS_EVERY);
            service.ask(MILLI, MILLI);
        }
        assert!(service.check() <= 1_010 * MILLI, "the wrong date is forgotten");
        assert_eq!(service.closed, 3, "the wrong one, and two more to hear others");
    }
}

/// One right answer ended each doubt. That answer could even come over a connection to a server
/// that had not followed the step and still told the old time. So the node never believed any other
/// server.
#[test]
fn a_connection_that_lags_behind_ends_no_doubt() {
    let mut service = SimulatedService::trusted();
    let lagging = connection(service.port);
    for _ in 0..10 {
        service.hear_ahead(HOUR);
        service.followed.add_answer(service.clock.now(), service.date(), lagging);
        assert!(service.check() > HOUR / 2, "both timelines count");
        assert!(service.followed.now().unwrap().latest >= service.time() + HOUR);
    }
}

const LASTS: Duration = STEP_LASTS;

#[test]
fn a_step_is_followed_when_it_has_lasted() {
    let mut service = SimulatedService::trusted();
    assert!(!service.is_ahead_for(LASTS - LOOKS_EVERY));
    assert_eq!(service.closed, 2, "few connections are closed");
    assert!(!service.followed.needs_answers(), "only time ends the doubt");
    assert!(service.is_ahead_for(2 * LOOKS_EVERY));
    // A step back is followed, too: the time of the hour before is now the other timeline.
    service.ask(MILLI, MILLI);
    assert!(service.followed.now().unwrap().latest >= service.time() + HOUR);
}

#[test]
fn a_step_that_few_answers_show_is_not_followed() {
    let mut service = SimulatedService::trusted();
    for _ in 1..CONNECTIONS {
        service.manual.advance(2 * LASTS);
        service.hear_ahead(HOUR);
        service.check();
    }
}

#[test]
fn an_answer_of_the_old_time_starts_the_wait_again() {
    let mut service = SimulatedService::trusted();
    for _ in 0..10 {
        assert!(!service.is_ahead_for(LASTS - LOOKS_EVERY));
        service.ask(MILLI, MILLI);
        service.check();
    }
}

/// One of many servers may have a wrong clock forever.
#[test]
fn a_wrong_date_does_not_start_the_wait_for_a_step_again() {
    let mut service = SimulatedService::trusted();
    let end = service.clock.now() + LASTS;
    for answer in 0.. {
        service.hear_ahead(if answer % 10 == 9 { 7 * HOUR } else { HOUR });
        let is_believed = service.earliest() > service.time() + HOUR / 2;
        assert!(!is_believed || service.clock.now() >= end);
        if is_believed {
            return;
        }
        assert!(service.clock.now() < end + Duration::from_secs(2), "the step is never believed");
        service.manual.advance(LOOKS_EVERY);
    }
}

/// Each answer contradicts the answer before it, so no timeline lasts.
#[test]
fn answers_that_never_agree_are_never_trusted() {
    let mut service = SimulatedService::trusted();
    for hour in 1..1_000 {
        service.manual.advance(LOOKS_EVERY);
        service.hear_ahead(hour * HOUR);
        service.check();
    }
    for _ in 0..CONNECTIONS {
        service.ask(MILLI, MILLI);
    }
    assert!(service.check() <= 1_010 * MILLI);
}

/// When there were too many timelines, a node that had just started took the first timeline for the
/// trusted one. So the node kept its first answer forever, even if that answer was wrong.
#[test]
fn a_node_that_trusts_no_timeline_replaces_a_wrong_first_date_by_newer_ones() {
    let mut service = SimulatedService::new();
    let may_be_late = |service: &SimulatedService| {
        service.followed.now().unwrap().latest > service.time() + 999 * HOUR
    };
    service.hear_ahead(1_000 * HOUR);
    for hour in 1..=TIMELINES_MAX as u32 {
        assert!(may_be_late(&service), "before answer {hour}");
        service.hear_ahead(hour * HOUR);
    }
    assert!(!may_be_late(&service));
}

/// The date is cut off to a second, so many answers agree with both timelines.
#[test]
fn a_small_step_is_followed_and_closes_few_connections() {
    for step in [20, 100, 500, 900].map(Duration::from_millis) {
        let mut service = SimulatedService::trusted();
        for _ in 0..1_000 {
            service.ask(MILLI, MILLI);
            service.manual.advance(17 * MILLI);
        }
        let end = service.clock.now() + 10 * LASTS;
        while service.clock.now() < end {
            service.hear_ahead(step);
            service.manual.advance(LOOKS_EVERY + 17 * MILLI);
        }
        let (known, truth) = (service.followed.now().unwrap(), service.time() + step);
        assert!(known.earliest <= truth && truth <= known.latest, "{step:?} {known:?}");
        assert!(known.width() < step + 50 * MILLI, "{step:?} {known:?}");
        assert!(service.closed <= 3, "{step:?}: {}", service.closed);
    }
}
