use std::sync::atomic::{AtomicU64, Ordering};

use clock::ManualClock;
use futures::FutureExt;
use http_body_util::{BodyExt, Either};
use http_server::{problem::ProblemDetails, response::Body};
use hyper::Response;
use tokio::sync::watch;

use super::*;

/// A status that changes.
struct Status {
    value: AtomicU64,
    changes: watch::Sender<u64>,
    /// The next read of the status changes the status by this much before the read returns.
    during_read: AtomicU64,
}

impl Status {
    /// Changes the status, and says so.
    fn change(&self, by: u64) {
        self.value.fetch_add(by, Ordering::Relaxed);
        self.changes.send_modify(|version| *version += 1);
    }

    fn read(&self) -> u64 {
        let value = self.value.load(Ordering::Relaxed);
        let by = self.during_read.swap(0, Ordering::Relaxed);
        if by > 0 {
            self.change(by);
        }
        value
    }
}

/// A stream of a status that the test changes. The last digit of the status is not part of its key.
struct Shown {
    manual: ManualClock,
    stop: CancellationToken,
    streams: EventStreams,
    status: Arc<Status>,
}

impl Shown {
    fn new() -> Shown {
        let (manual, stop) = (ManualClock::new(0), CancellationToken::new());
        let streams = EventStreams::new(manual.clock(), stop.clone());
        let changes = watch::channel(0).0;
        let status = Status { value: AtomicU64::new(0), changes, during_read: AtomicU64::new(0) };
        Shown { manual, stop, streams, status: Arc::new(status) }
    }

    fn open(&self) -> Result<Body, ProblemDetails> {
        self.open_until(TokenEnd::NEVER)
    }

    fn open_until(&self, token_end: TokenEnd) -> Result<Body, ProblemDetails> {
        let (status, changes) = (Arc::clone(&self.status), self.status.changes.clone());
        let status = move || {
            let status = status.read();
            (status / 10, status.to_string().into_bytes())
        };
        // The wait begins at its first poll, as the wait of a node does.
        let changed = move || {
            let changes = changes.clone();
            async move { changes.subscribe().changed().await.unwrap() }
        };
        self.streams.open(status, changed, token_end).map(Response::into_body)
    }

    fn change(&self, by: u64) {
        self.status.change(by);
    }

    /// Lets the status change during its next read. The read returns the former status.
    fn change_during_read(&self, by: u64) {
        self.status.during_read.store(by, Ordering::Relaxed);
    }

    fn advance(&self, millis: u64) {
        self.manual.advance(Duration::from_millis(millis));
    }
}

/// The next event, if it is there already.
fn next(body: &mut Body) -> Option<String> {
    let frame = body.frame().now_or_never()?;
    let frame = frame.map(|frame| frame.unwrap().into_data().unwrap());
    Some(frame.map_or_else(|| "end".to_owned(), |data| String::from_utf8(data.into()).unwrap()))
}

fn event(status: u64) -> Option<String> {
    Some(format!("data: {status}\n\n"))
}

#[test]
fn a_stream_begins_with_the_status_and_goes_on_with_changes() {
    let shown = Shown::new();
    let mut body = shown.open().unwrap();
    assert_eq!((next(&mut body), next(&mut body)), (event(0), None));
    shown.advance(1_000);
    shown.change(10);
    assert_eq!((next(&mut body), next(&mut body)), (event(10), None));
}

/// A page that took its events slowly was cut at last, because the times of all events added up.
#[test]
fn each_event_of_a_stream_has_a_time_of_its_own() {
    let shown = Shown::new();
    let opened = shown.streams.open(|| (0, Vec::new()), std::future::pending, TokenEnd::NEVER);
    let Ok(response) = opened else { panic!("the stream was refused") };
    assert!(response.extensions().get::<Endless>().is_some());
}

/// A status that had changed was sent after the end of the token.
#[test]
fn a_stream_ends_with_the_token_although_the_status_has_changed() {
    for is_calendar_set in [false, true] {
        let shown = Shown::new();
        let clock = shown.manual.clock();
        let token_end = TokenEnd::of(clock.wall().as_millis() / 1_000 + 5, &clock);
        let mut body = shown.open_until(token_end).unwrap();
        assert_eq!((next(&mut body), next(&mut body)), (event(0), None));
        shown.change(10);
        match is_calendar_set {
            true => {
                shown.advance(250);
                shown.manual.step_wall(4_750);
            }
            false => shown.advance(5_000),
        }
        assert_eq!(next(&mut body).as_deref(), Some("end"));
    }
}

#[test]
fn a_stream_has_at_most_four_events_in_a_second() {
    let shown = Shown::new();
    let mut body = shown.open().unwrap();
    let mut events = 0;
    for _ in 0..1_000 {
        shown.change(10);
        events += usize::from(next(&mut body).is_some());
        shown.advance(1);
    }
    assert_eq!(events, 4);
    // The last change of a burst is shown, too.
    shown.advance(250);
    assert_eq!((next(&mut body), next(&mut body)), (event(10_000), None));
}

/// The age of the status changes with each read of the node.
#[test]
fn a_quiet_stream_has_the_status_again_every_five_seconds() {
    let shown = Shown::new();
    let mut body = shown.open().unwrap();
    assert_eq!(next(&mut body), event(0));
    for times in 1..4 {
        shown.change(1);
        shown.advance(4_999);
        assert_eq!(next(&mut body), None);
        shown.advance(1);
        assert_eq!(next(&mut body), event(times));
    }
}

/// A change while the status is read is sent, although no other change follows. If the wait for
/// changes began after the read, the change would come with the next status, 5 s after the last
/// one.
#[test]
fn no_change_is_lost() {
    let shown = Shown::new();
    let mut body = shown.open().unwrap();
    // During the first read, during a read after a change, and during a read without a new key.
    shown.change_during_read(10);
    assert_eq!((next(&mut body), next(&mut body)), (event(0), None));
    shown.change_during_read(10);
    shown.advance(250);
    assert_eq!((next(&mut body), next(&mut body)), (event(10), None));
    shown.advance(250);
    assert_eq!((next(&mut body), next(&mut body)), (event(20), None));
    shown.advance(250);
    shown.change_during_read(10);
    shown.change(1);
    assert_eq!((next(&mut body), next(&mut body)), (event(31), None));
}

#[test]
fn a_stream_ends_at_the_stop_at_once() {
    let shown = Shown::new();
    let mut body = shown.open().unwrap();
    assert_eq!((next(&mut body), next(&mut body)), (event(0), None));
    shown.stop.cancel();
    assert_eq!(next(&mut body), Some("end".to_owned()));
}

#[test]
fn a_ninth_stream_is_refused_until_another_one_ends() {
    let shown = Shown::new();
    let mut open: Vec<_> = (0..STREAMS).map(|_| shown.open().unwrap()).collect();
    let Err(refused) = shown.open() else { panic!("a ninth stream was opened") };
    assert_eq!((refused.status().as_u16(), refused.code()), (503, "too_many_streams"));
    open.pop();
    assert!(matches!(shown.open(), Ok(Either::Right(_))));
}
