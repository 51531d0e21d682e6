//! Tests of the metrics of an election.

use std::{collections::BTreeSet, net::SocketAddr, sync::Arc, time::Duration};

use clock::Clock;
use ielections::{Elections, Seat, Timing};
use metrics_util::debugging::{DebugValue, DebuggingRecorder, Snapshotter};
use tck::elections::MemStore;

/// The duration of a lease. It is long, so that no leadership is lost on a busy machine.
const LEASE: Duration = Duration::from_secs(20);

fn snapshot(snapshotter: &Snapshotter) -> BTreeSet<String> {
    let entries = snapshotter.snapshot().into_vec();
    let shown = entries.into_iter().map(|(key, _, _, value)| {
        let labels = key.key().labels().map(|label| format!("{}={}", label.key(), label.value()));
        let labels = labels.collect::<Vec<_>>().join(",");
        let value = match value {
            DebugValue::Counter(count) => count.to_string(),
            DebugValue::Gauge(gauge) => gauge.to_string(),
            DebugValue::Histogram(values) => {
                let seconds = 0.0..LEASE.as_secs_f64();
                assert!(values.iter().all(|value| seconds.contains(&value.0)), "{values:?}");
                "times".to_owned()
            }
        };
        format!("{}{{{labels}}} {value}", key.key().name())
    });
    shown.collect()
}

#[test]
fn every_change_and_every_call_is_reported() {
    let recorder = DebuggingRecorder::new();
    let snapshotter = recorder.snapshotter();
    metrics::with_local_recorder(&recorder, || {
        let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build().unwrap();
        runtime.block_on(async {
            let (store, clock) = (Arc::new(MemStore::new(Clock::system())), Clock::system());
            let owner = SocketAddr::from(([10, 0, 0, 1], 1));
            // A short interval, so that the test does not wait long for a renewal.
            let timing = Timing { renew_every: Duration::from_millis(50), ..Timing::of(LEASE) };
            let node = Elections::new(store, clock.clone(), owner, timing).unwrap();
            let leadership = node.acquire(Seat::FIRST, clock.now() + LEASE).await.unwrap();
            let at_first = leadership.valid_until();
            while leadership.valid_until() == at_first {
                assert_eq!(leadership.lost(), None);
                clock.sleep(Duration::from_millis(10)).await;
            }
            let lines = snapshot(&snapshotter);
            let call = |op| format!("ielections_call_seconds{{op={op},result=ok}} times");
            let expected = [
                "ielections_acquired_total{seat=1} 1".to_owned(),
                "ielections_leads{seat=1} 1".to_owned(),
                "ielections_left_seconds{seat=1} times".to_owned(),
                call("look"),
                call("raise_epoch"),
                call("read_epoch"),
                call("renew"),
                call("take"),
            ];
            assert_eq!(lines, BTreeSet::from(expected));

            leadership.stopped(clock.now()).await.unwrap().release().await;
            let lines = snapshot(&snapshotter);
            for line in [
                "ielections_leads{seat=1} 0".to_owned(),
                "ielections_lost_total{seat=1,reason=released} 1".to_owned(),
                call("release"),
            ] {
                assert!(lines.contains(&line), "{line}: {lines:?}");
            }
        });
    });
}

/// A standby reports 0. So a sum over the nodes shows that no node leads, even when the leader no
/// longer reports.
#[test]
fn a_waiting_node_reports_that_it_leads_no_seat() {
    let (recorder, clock) = (DebuggingRecorder::new(), Clock::system());
    let snapshotter = recorder.snapshotter();
    let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build().unwrap();
    let store = Arc::new(MemStore::new(clock.clone()));
    let node = |port| {
        let owner = SocketAddr::from(([10, 0, 0, 1], port));
        let store = Arc::clone(&store);
        Elections::new(store, clock.clone(), owner, Timing::of(LEASE)).unwrap()
    };
    let (leader, two) = (node(1), Seat::new(2).unwrap());
    let _leaderships = runtime.block_on(async {
        let until = clock.now() + LEASE;
        [leader.acquire(two, until).await.unwrap(), leader.acquire(two, until).await.unwrap()]
    });
    metrics::with_local_recorder(&recorder, || {
        let waited = runtime.block_on(node(2).acquire(two, clock.now()));
        assert!(waited.is_err(), "{waited:?}");
    });
    let lines = snapshot(&snapshotter);
    for seat in 1..=2 {
        let line = format!("ielections_leads{{seat={seat}}} 0");
        assert!(lines.contains(&line), "{line}: {lines:?}");
    }
}

#[test]
fn a_leader_that_competes_for_another_seat_still_reports_the_first() {
    let (recorder, clock) = (DebuggingRecorder::new(), Clock::system());
    let snapshotter = recorder.snapshotter();
    let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build().unwrap();
    metrics::with_local_recorder(&recorder, || {
        runtime.block_on(async {
            let store = Arc::new(MemStore::new(clock.clone()));
            let owner = SocketAddr::from(([10, 0, 0, 1], 1));
            let node = Elections::new(store, clock.clone(), owner, Timing::of(LEASE)).unwrap();
            let until = clock.now() + LEASE;
            let _first = node.acquire(Seat::FIRST, until).await.unwrap();
            let second = node.acquire(Seat::new(3).unwrap(), until).await.unwrap();
            let lines = snapshot(&snapshotter);
            for seat in 1..=3 {
                let leads = u8::from(seat == 1 || seat == second.seat().get());
                let line = format!("ielections_leads{{seat={seat}}} {leads}");
                assert!(lines.contains(&line), "{line}: {lines:?}");
            }
        });
    });
}
