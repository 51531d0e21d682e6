//! Tests of the metrics of a sequencer.

use std::{
    collections::{BTreeMap, HashMap},
    sync::{
        Arc, Mutex,
        atomic::{AtomicU64, Ordering},
    },
};

use isequencer::{MemSeqStorage, Params, WsId};
use metrics::{Counter, Gauge, Histogram, Key, KeyName, Metadata, Recorder, SharedString, Unit};
use metrics_util::debugging::{DebugValue, DebuggingRecorder};

use crate::common::{KIND, command, failing, params, sequencer, until};

#[test]
fn the_metrics_report_hits_reads_and_flushes() {
    let recorder = DebuggingRecorder::new();
    let snapshotter = recorder.snapshotter();
    let snapshot = || -> BTreeMap<String, Vec<f64>> {
        let entries = snapshotter.snapshot().into_vec().into_iter();
        let snapshot = entries.map(|(key, _, _, value)| {
            let labels: Vec<_> = key.key().labels().map(|label| label.value()).collect();
            assert_eq!(labels, ["1"], "the partition");
            let values = match value {
                DebugValue::Counter(count) => vec![count as f64],
                DebugValue::Gauge(value) => vec![value.0],
                DebugValue::Histogram(values) => values.into_iter().map(|value| value.0).collect(),
            };
            (key.key().name().to_owned(), values)
        });
        snapshot.collect()
    };
    metrics::with_local_recorder(&recorder, || {
        let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build().unwrap();
        runtime.block_on(async {
            let mem = MemSeqStorage::new();
            let (hooked, fails) = failing(&mem);
            let mut sequencer = sequencer(Params { cached_numbers: 4, ..params() }, &hooked);
            sequencer.ready().await.unwrap();
            fails.store(true, Ordering::Release);
            for ws in [1, 2, 1, 3] {
                command(&mut sequencer, &mem, ws).await;
            }
            until(|| sequencer.monitor().last_error().is_some()).await;
            let first = snapshot();
            assert_eq!(first["isequencer_cache_hits_total"], [1.0]);
            assert_eq!(first["isequencer_cache_misses_total"], [3.0]);
            assert_eq!(first["isequencer_unflushed_numbers"], [3.0]);
            assert_eq!(first["isequencer_actualization_seconds"].len(), 1);
            assert_eq!(first["isequencer_unflushed_events"], [4.0]);
            assert!(first["isequencer_retries_total"][0] >= 1.0);
            assert!(first["isequencer_flush_numbers"].is_empty());

            fails.store(false, Ordering::Release);
            until(|| sequencer.monitor().unflushed().numbers == 0).await;
            let then = snapshot();
            assert_eq!(then["isequencer_unflushed_numbers"], [0.0]);
            assert_eq!(then["isequencer_flush_numbers"], [3.0]);
            assert_eq!(then["isequencer_flush_seconds"].len(), 1);

            let mut transaction = sequencer.start().unwrap();
            transaction.read_ahead([(KIND, WsId(4)), (KIND, WsId(5))]).await;
            assert_eq!(snapshot()["isequencer_cache_misses_total"], [2.0], "two reads");
            drop(transaction.join(KIND, WsId(4)).await.unwrap());
            let joined = snapshot();
            assert_eq!(joined["isequencer_cache_hits_total"], [1.0], "the numbers were read ahead");
            assert_eq!(joined["isequencer_cache_misses_total"], [0.0]);
        });
    });
}

/// A recorder of the values of gauges. (A snapshot of the debugging recorder would reset gauges to
/// 0.)
#[derive(Clone, Default)]
struct Gauges(Arc<Mutex<HashMap<String, Arc<AtomicU64>>>>);

impl Gauges {
    fn numbers(&self) -> f64 {
        let gauges = self.0.lock().unwrap();
        f64::from_bits(gauges["isequencer_unflushed_numbers"].load(Ordering::Relaxed))
    }
}

impl Recorder for Gauges {
    fn describe_counter(&self, _: KeyName, _: Option<Unit>, _: SharedString) {}
    fn describe_gauge(&self, _: KeyName, _: Option<Unit>, _: SharedString) {}
    fn describe_histogram(&self, _: KeyName, _: Option<Unit>, _: SharedString) {}

    fn register_counter(&self, _: &Key, _: &Metadata<'_>) -> Counter {
        Counter::noop()
    }

    fn register_gauge(&self, key: &Key, _: &Metadata<'_>) -> Gauge {
        let mut gauges = self.0.lock().unwrap();
        Gauge::from_arc(Arc::clone(gauges.entry(key.name().to_owned()).or_default()))
    }

    fn register_histogram(&self, _: &Key, _: &Metadata<'_>) -> Histogram {
        Histogram::noop()
    }
}

#[test]
fn the_gauges_follow_the_unflushed_numbers() {
    let gauges = Gauges::default();
    metrics::with_local_recorder(&gauges, || {
        let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build().unwrap();
        runtime.block_on(async {
            let mem = MemSeqStorage::new();
            let (hooked, fails) = failing(&mem);
            let mut one = sequencer(params(), &hooked);
            one.ready().await.unwrap();
            fails.store(true, Ordering::Release);
            for ws in 1..=3 {
                command(&mut one, &mem, ws).await;
            }
            until(|| gauges.numbers() == 3.0).await;
            fails.store(false, Ordering::Release);
            until(|| one.monitor().unflushed().numbers == 0).await;
            tokio::task::yield_now().await;
            assert_eq!(gauges.numbers(), 0.0, "all is stored");

            fails.store(true, Ordering::Release);
            command(&mut one, &mem, 1).await;
            until(|| gauges.numbers() == 1.0).await;
            drop(one);
            until(|| gauges.numbers() == 0.0).await;
        });
    });
}
