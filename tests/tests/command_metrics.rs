//! The metrics of partitions, and the set of partitions that run on a node.

#![allow(clippy::unwrap_used)]

use std::{num::NonZeroU16, sync::Arc, time::Duration};

use clock::Clock;
use eventlog::{Epoch, Log, SingleNodeFence, TrustLevel};
use istorage::{KeyspaceName, mem::MemDriver};
use metrics_util::{
    CompositeKey,
    debugging::{DebugValue, DebuggingRecorder, Snapshotter},
};
use processor::{
    Busy, NotDeployable, PartitionEnd, PartitionSettings, Partitions, Refused, Status,
};
use seqstorage::PartitionStorage;
use shop::{ShopDatabase, ShopNodeSettings, article, create_workspace, cud};

async fn shop_db() -> ShopDatabase {
    let clock = Clock::system();
    let driver = Arc::new(MemDriver::new(clock.clone()));
    let system = KeyspaceName::new("sysvvm").unwrap();
    ShopDatabase::new(driver, system, NonZeroU16::new(10).unwrap(), clock).await
}

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
            let shop_db = shop_db().await;
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

#[tokio::test]
async fn a_partition_is_deployed_again_only_after_its_end_is_proved() {
    let shop_db = shop_db().await;
    let count = NonZeroU16::new(10).unwrap();
    let node = Partitions::new(Arc::clone(&shop_db.application), count, shop_db.clock.clone());
    let deploy = |partition: u16, epoch: u64| {
        let settings = eventlog::LogSettings::new(count);
        let (storage, clock) = (Arc::clone(&shop_db.app.storage), shop_db.clock.clone());
        let lead = Arc::new(SingleNodeFence(Epoch(epoch)));
        let log = Arc::new(Log::new(storage, clock, lead, partition, settings));
        let numbers = shop_db.system.numbers(&shop_db.app.entry);
        let numbers = PartitionStorage::in_system(numbers, Arc::clone(&log));
        node.deploy(log, Arc::new(numbers), PartitionSettings::new(format!("{partition}")))
    };
    let ready = async |partition: u16| {
        while node.commands(partition).unwrap().status() != Status::Ready {
            shop_db.clock.sleep(Duration::from_millis(1)).await;
        }
    };
    assert_eq!(node.of(eventlog::WsId(27)), 7);
    assert!(node.commands(7).is_none(), "partition 7 is not deployed yet");
    assert_eq!(deploy(10, 1), Err(NotDeployable::Unknown(10, count)));
    deploy(7, 1).unwrap();
    assert_eq!(deploy(7, 1), Err(NotDeployable::Twice(7)));
    deploy(3, 1).unwrap();
    for partition in [7, 3] {
        ready(partition).await;
    }
    assert_eq!(node.status(), [(3, Status::Ready), (7, Status::Ready)]);
    node.commands(7).unwrap().run(create_workspace(27, shop_db.soon())).await.unwrap();
    // The partition was stopped in order, so it may go on in the same epoch.
    assert_eq!(node.undeploy(7, shop_db.soon()).await, PartitionEnd::Stopped);
    deploy(7, 1).unwrap();
    ready(7).await;
    node.commands(7).unwrap().run(cud(27, article("a"), shop_db.soon())).await.unwrap();
    // The partition had no time to stop in order, so writes of the partition may still be under
    // way.
    let ended = node.undeploy(7, shop_db.clock.now()).await;
    assert!(matches!(ended, PartitionEnd::Late | PartitionEnd::Unproved(_)), "{ended:?}");
    let again = node.undeploy(7, shop_db.soon()).await;
    assert!(
        matches!(again, PartitionEnd::Unproved(_)),
        "that it is gone proves nothing: {again:?}"
    );
    assert_eq!(deploy(7, 1), Err(NotDeployable::Open(7, Epoch(1))));
    deploy(7, 2).unwrap();
    ready(7).await;
    node.commands(7).unwrap().run(cud(27, article("b"), shop_db.soon())).await.unwrap();
    assert_eq!(node.undeploy(7, shop_db.soon()).await, PartitionEnd::Stopped);
    assert_eq!(node.undeploy(9, shop_db.soon()).await, PartitionEnd::Stopped, "it never was");
}
