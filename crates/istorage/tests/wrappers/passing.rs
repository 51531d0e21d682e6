//! The calls that a wrapper does not change, and the cost of a wrapper.

use std::{sync::Arc, time::Duration};

use clock::Instant;
use futures::{FutureExt, TryStreamExt};
use istorage::{
    AppStorage, AppStorageExt, AtomicBatch, Call, CallAnswer, Consistency, ErrorKind, Guarded, Key,
    Metered, Order, OrderedPut, Outcome, Put, Range, Result, SharedStorage, StorageWrapper,
};

use crate::fixture::Fixture;

/// A wrapper that changes no call.
#[derive(Debug)]
struct Unchanged(SharedStorage);

impl StorageWrapper for Unchanged {
    fn inner(&self) -> &SharedStorage {
        &self.0
    }
}

/// A wrapper that answers each call as if it were a write.
#[derive(Debug)]
struct Confused(SharedStorage);

impl StorageWrapper for Confused {
    fn inner(&self) -> &SharedStorage {
        &self.0
    }

    async fn call(&self, _call: Call<'_>, _deadline: Instant) -> Result<CallAnswer> {
        Ok(Outcome::Applied.into())
    }
}

#[tokio::test]
async fn calls_that_a_wrapper_does_not_change_reach_the_storage() {
    let fixture = Fixture::new().await;
    let (right, soon) = (&fixture.storage, fixture.soon());
    let storage = Unchanged(Arc::clone(right));
    assert_eq!(AppStorage::capabilities(&storage), right.capabilities());

    let [a, b, c, d] = ["a", "b", "c", "d"].map(|ccols| Key::new("p", ccols));
    let ttl = Some(Duration::from_secs(60));
    let order = Order::new(1).unwrap();
    storage.put(a.clone(), "1".into(), soon).await.unwrap();
    let ordered = OrderedPut { key: b.clone(), value: "2".into(), order, ttl };
    storage.put_ordered(vec![ordered], soon).await.unwrap();
    let insert = || storage.insert_if_not_exists(c.clone(), "3".into(), None, soon);
    assert_eq!(insert().await.unwrap(), Outcome::Applied);
    assert!(!insert().await.unwrap().is_applied());
    let puts = vec![Put { key: d.clone(), value: "4".into() }];
    let batch = AtomicBatch { puts, ..AtomicBatch::default() };
    assert_eq!(storage.write_atomic(batch, soon).await.unwrap(), Outcome::Applied);

    let stored = ["1", "2", "3", "4"].map(|value| Some(value.into()));
    let keys = [a, b.clone(), c.clone(), d];
    assert_eq!(right.get_values(&keys, soon).await.unwrap(), stored);
    assert_eq!(storage.get_values(&keys, soon).await.unwrap(), stored);
    assert_eq!(storage.get_linearizable(&c, soon).await.unwrap(), stored[2]);
    let (all, timeout) = (Range::all(), Duration::from_secs(1));
    let rows = AppStorage::read(&storage, "p".into(), all, Consistency::Plain, timeout);
    assert_eq!(rows.try_collect::<Vec<_>>().await.unwrap().len(), 4);
    assert_eq!(storage.query_ttl(&b, timeout).await.unwrap(), Some(ttl));
    assert_eq!(storage.server_time(soon).await.unwrap(), right.server_time(soon).await.unwrap());

    AppStorage::close(&storage).await;
    let closed = right.get(&c, Consistency::Plain, soon).await;
    assert_eq!(closed.unwrap_err().kind(), ErrorKind::Closed);
}

/// Each call of a node passes through two wrappers: one that guards, and one that measures.
#[tokio::test]
async fn a_wrapper_costs_one_allocation_for_each_call() {
    let fixture = Fixture::new().await;
    let inner = || Arc::clone(&fixture.storage);
    let metered: SharedStorage = Arc::new(Metered::new(inner(), "mem", fixture.clock.clone()));
    let guarded: SharedStorage = Arc::new(Guarded::new(inner(), fixture.clock.clone()));
    let (key, soon) = (Key::new("p", "a"), fixture.soon());
    let allocations = |storage: &SharedStorage| {
        let get = || storage.get(&key, Consistency::Plain, soon).now_or_never().unwrap();
        assert_eq!(get().unwrap(), None);
        allocation_counter::measure(|| assert_eq!(get().unwrap(), None)).count_total
    };
    let bare = allocations(&fixture.storage);
    assert_eq!([&metered, &guarded].map(allocations), [bare + 1; 2]);
}

#[tokio::test]
#[should_panic(expected = "gave the answer `Outcome` to a call of another kind")]
async fn an_answer_to_a_call_of_another_kind_is_not_returned() {
    let fixture = Fixture::new().await;
    let storage = Confused(Arc::clone(&fixture.storage));
    drop(storage.get(&Key::new("p", "a"), Consistency::Plain, fixture.soon()).await);
}
