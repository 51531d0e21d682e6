use std::sync::atomic::{AtomicU64, Ordering};

use clock::ManualClock;
use futures::FutureExt;
use http_body_util::{BodyExt, Either};
use tokio::sync::watch;

use super::*;

/// A stream of a status that the test changes. The last digit of the status is no part of its key.
struct Shown {
    manual: ManualClock,
    stop: CancellationToken,
    streams: EventStreams,
    changes: watch::Sender<u64>,
    status: Arc<AtomicU64>,
}

impl Shown {
    fn new() -> Shown {
        let (manual, stop) = (ManualClock::new(0), CancellationToken::new());
        let streams = EventStreams::new(manual.clock(), stop.clone());
        Shown { manual, stop, streams, changes: watch::channel(0).0, status: Arc::default() }
    }

    fn open(&self) -> Result<Body, ProblemDetails> {
        let (status, changes) = (Arc::clone(&self.status), self.changes.clone());
        let status = move || {
            let status = status.load(Ordering::Relaxed);
            (status / 10, status.to_string().into_bytes())
        };
        // The wait begins at its first poll, as the wait of a node does.
        let changed = move || {
            let changes = changes.clone();
            async move { changes.subscribe().changed().await.unwrap() }
        };
        self.streams.open(status, changed, Instant::FAR_FUTURE).map(Response::into_body)
    }

    /// Changes the status, and says so.
    fn change(&self, by: u64) {
        self.status.fetch_add(by, Ordering::Relaxed);
        self.changes.send_modify(|version| *version += 1);
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
    let opened = shown.streams.open(|| (0, Vec::new()), std::future::pending, Instant::FAR_FUTURE);
    let Ok(response) = opened else { panic!("the stream was refused") };
    assert!(response.extensions().get::<Endless>().is_some());
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

/// A change while the status was read is sent, although no other change follows.
#[test]
fn no_change_is_lost() {
    let shown = Shown::new();
    let mut body = shown.open().unwrap();
    assert_eq!(next(&mut body), event(0));
    shown.change(10);
    shown.advance(250);
    assert_eq!(next(&mut body), event(10));
    shown.change(10);
    assert_eq!(next(&mut body), None);
    shown.advance(250);
    assert_eq!(next(&mut body), event(20));
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
