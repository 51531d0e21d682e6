//! What a sequencer reports.

#![allow(clippy::unwrap_used)]

mod common;

use std::{collections::BTreeMap, sync::atomic::Ordering};

use common::{command, failing, params, sequencer, until};
use isequencer::{MemStorage, Params};
use metrics_util::debugging::{DebugValue, DebuggingRecorder};

#[test]
fn what_it_does_is_reported() {
    let recorder = DebuggingRecorder::new();
    let snapshotter = recorder.snapshotter();
    let told = || -> BTreeMap<String, Vec<f64>> {
        let entries = snapshotter.snapshot().into_vec().into_iter();
        let told = entries.map(|(key, _, _, value)| {
            let labels: Vec<_> = key.key().labels().map(|label| label.value()).collect();
            assert_eq!(labels, ["1"], "the partition");
            let values = match value {
                DebugValue::Counter(count) => vec![count as f64],
                DebugValue::Gauge(value) => vec![value.0],
                DebugValue::Histogram(values) => values.into_iter().map(|value| value.0).collect(),
            };
            (key.key().name().to_owned(), values)
        });
        told.collect()
    };
    metrics::with_local_recorder(&recorder, || {
        let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build().unwrap();
        runtime.block_on(async {
            let mem = MemStorage::new();
            let (hooked, fails) = failing(&mem);
            let mut sequencer = sequencer(Params { cached_numbers: 4, ..params() }, &hooked);
            sequencer.ready().await.unwrap();
            fails.store(true, Ordering::Release);
            for ws in [1, 2, 1, 3] {
                command(&mut sequencer, &mem, ws).await;
            }
            until(|| sequencer.monitor().trouble().is_some()).await;
            let first = told();
            assert_eq!(first["isequencer_cache_hits_total"], [1.0]);
            assert_eq!(first["isequencer_cache_misses_total"], [3.0]);
            assert_eq!(first["isequencer_unflushed_numbers"], [3.0]);
            assert_eq!(first["isequencer_actualization_seconds"].len(), 1);
            assert_eq!(first["isequencer_unflushed_events"], [4.0]);
            assert!(first["isequencer_retries_total"][0] >= 1.0);
            assert!(first["isequencer_flush_numbers"].is_empty());

            fails.store(false, Ordering::Release);
            until(|| sequencer.monitor().unflushed().numbers == 0).await;
            let then = told();
            assert_eq!(then["isequencer_unflushed_numbers"], [0.0]);
            assert_eq!(then["isequencer_flush_numbers"], [3.0]);
            assert_eq!(then["isequencer_flush_seconds"].len(), 1);
        });
    });
}
