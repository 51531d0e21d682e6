//! The reports of the metrics wrapper, read through a real recorder.

use std::{sync::Arc, time::Duration};

use crate::fixture::Fixture;
use futures::TryStreamExt;
use istorage::{AppStorage, AppStorageExt, Consistency, Key, Metered, Put, Range};
use metrics_util::debugging::{DebugValue, DebuggingRecorder, Snapshotter};

/// The number of calls or rows under these labels.
fn count(snapshot: &[(String, Vec<String>, u64)], name: &str, labels: &[&str]) -> u64 {
    let matching = |(metric, having, _): &&(String, Vec<String>, u64)| {
        metric == name && labels.iter().all(|label| having.iter().any(|has| has == label))
    };
    snapshot.iter().filter(matching).map(|(_, _, count)| count).sum()
}

fn take(snapshotter: &Snapshotter) -> Vec<(String, Vec<String>, u64)> {
    let entry = |(key, _, _, value): (metrics_util::CompositeKey, _, _, DebugValue)| {
        let labels = key.key().labels().map(|label| label.value().to_owned()).collect();
        let count = match value {
            DebugValue::Counter(count) => count,
            DebugValue::Histogram(values) => values.len() as u64,
            DebugValue::Gauge(_) => 0,
        };
        (key.key().name().to_owned(), labels, count)
    };
    snapshotter.snapshot().into_vec().into_iter().map(entry).collect()
}

#[tokio::test]
async fn calls_are_counted_by_operation_and_result() {
    let recorder = DebuggingRecorder::new();
    let snapshotter = recorder.snapshotter();
    recorder.install().unwrap();

    let fixture = Fixture::new().await;
    let storage = Metered::new(Arc::clone(&fixture.storage), "mem", fixture.clock.clone());
    let put = |n: u8| Put { key: Key::new("p", vec![n]), value: "v".into() };
    storage.put_batch((0..10).map(put).collect(), fixture.soon()).await.unwrap();
    for _ in 0..2 {
        let key = Key::new("q", "a");
        let _ = storage.insert_if_not_exists(key, "v".into(), None, fixture.soon()).await.unwrap();
    }
    storage.get(&Key::new("", "a"), Consistency::Linearizable, fixture.soon()).await.unwrap_err();
    let rows = storage.read("p".into(), Range::all(), Consistency::Plain, Duration::from_secs(1));
    assert_eq!(rows.try_collect::<Vec<_>>().await.unwrap().len(), 10);

    let seen = take(&snapshotter);
    assert_eq!(count(&seen, "istorage_call_seconds", &["mem", "put_batch", "ok"]), 1);
    assert_eq!(count(&seen, "istorage_rows_total", &["mem", "put_batch"]), 10);
    assert_eq!(count(&seen, "istorage_call_seconds", &["write_if", "ok"]), 1);
    assert_eq!(count(&seen, "istorage_call_seconds", &["write_if", "not_applied"]), 1);
    assert_eq!(count(&seen, "istorage_call_seconds", &["get_linearizable", "invalid"]), 1);
    assert_eq!(count(&seen, "istorage_call_seconds", &["read", "ok"]), 1);
    assert_eq!(count(&seen, "istorage_rows_total", &["read"]), 10);
}
