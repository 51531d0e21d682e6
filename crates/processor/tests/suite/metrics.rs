//! The metrics of a partition.

use eventlog::TrustLevel;
use metrics_util::{
    CompositeKey,
    debugging::{DebugValue, DebuggingRecorder, Snapshotter},
};
use processor::{Busy, PartitionEnd, Refused};
use shop::{ShopDatabase, ShopNodeSettings, article, create_workspace, cud};

/// The metrics that partition 1 reported since the last snapshot.
struct Reported(Vec<(CompositeKey, DebugValue)>);

impl Reported {
    fn since_last(snapshotter: &Snapshotter) -> Reported {
        let all = snapshotter.snapshot().into_vec().into_iter();
        Reported(all.map(|(key, _, _, value)| (key, value)).collect())
    }

    /// The value of a metric, with one more label if given.
    fn value(&self, name: &str, label: Option<(&str, &str)>) -> Option<&DebugValue> {
        let labels = [("partition", "1")].into_iter().chain(label);
        let is_it = |(key, _): &&(CompositeKey, DebugValue)| {
            let has = |(name, value)| {
                key.key().labels().any(|label| label.key() == name && label.value() == value)
            };
            key.key().name() == name && labels.clone().all(has)
        };
        self.0.iter().find(is_it).map(|(_, value)| value)
    }

    fn commands(&self, outcome: &str) -> Option<&DebugValue> {
        self.value("processor_commands_total", Some(("outcome", outcome)))
    }

    /// The values of a histogram.
    fn values(&self, name: &str, label: Option<(&str, &str)>) -> Vec<f64> {
        match self.value(name, label) {
            Some(DebugValue::Histogram(values)) => values.iter().map(|value| value.0).collect(),
            other => panic!("{name} is no histogram: {other:?}"),
        }
    }
}

#[test]
fn commands_are_counted_by_their_outcome() {
    let recorder = DebuggingRecorder::new();
    let snapshotter = recorder.snapshotter();
    // The task of the partition runs on this thread, and so sees the recorder.
    let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build().unwrap();
    metrics::with_local_recorder(&recorder, || {
        runtime.block_on(async {
            let shop_db = ShopDatabase::in_memory().await;
            let node = shop_db.node(1, ShopNodeSettings::at(TrustLevel::Zero));
            node.ready().await;
            let reported = || Reported::since_last(&snapshotter);
            let status = DebugValue::Gauge(1.0.into());
            assert_eq!(reported().value("processor_status", None), Some(&status));
            node.commands.run(create_workspace(1, shop_db.soon())).await.unwrap();
            node.commands.run(cud(1, article("a"), shop_db.soon())).await.unwrap();
            node.commands.run(cud(1, Vec::new(), shop_db.soon())).await.unwrap_err();
            let seen = reported();
            assert_eq!(seen.commands("done"), Some(&DebugValue::Counter(2)));
            assert_eq!(seen.values("processor_group_commands", None), [1.0, 1.0]);
            let bytes = seen.values("processor_group_bytes", None);
            assert!(bytes.iter().all(|bytes| (50.0..1_000.0).contains(bytes)), "{bytes:?}");
            // Three commands waited and ran. Two of them had something to write.
            for (stage, count) in [("wait", 3), ("run", 3), ("log", 2), ("apply", 2)] {
                let took = seen.values("processor_stage_seconds", Some(("stage", stage)));
                assert_eq!(took.len(), count, "{stage}: {took:?}");
                assert!(took.iter().all(|took| (0.0..10.0).contains(took)), "{stage}: {took:?}");
            }
            node.commands.run(cud(1, Vec::new(), shop_db.soon())).await.unwrap_err();
            assert_eq!(reported().commands("rejected"), Some(&DebugValue::Counter(1)));
            assert_eq!(node.stop().await, PartitionEnd::Stopped);
            let refused = node.commands.run(cud(1, article("a"), shop_db.soon())).await;
            assert_eq!(refused.unwrap_err(), Refused::Busy(Busy::Stopping));
            assert_eq!(reported().commands("busy"), Some(&DebugValue::Counter(1)));
        });
    });
}
