//! The write that stays, and the answer to a write that was refused.

use bytes::Bytes;
use clock::{Clock, Instant, ManualClock};
use istorage::{
    AppStorageExt, Conditional, Conflict, Consistency, Key, Order, OrderedPut, Outcome,
    StorageDriver,
};
use istorage_cassandra::CassandraDriver;

use crate::support::{CassandraCluster, soon};

pub(crate) async fn every_failed_condition_is_reported_and_no_other(cluster: CassandraCluster) {
    let scratch = cluster.scratch().await;
    let storage = &scratch.storage;
    for (ccols, value) in [("a", "1"), ("b", "2"), ("empty", "")] {
        let insert =
            storage.insert_if_not_exists(Key::new("p", ccols), value.into(), None, soon()).await;
        assert_eq!(insert.unwrap(), Outcome::Applied);
    }
    let insert = |ccols: &'static str| Conditional::Insert {
        ccols: ccols.into(),
        value: "x".into(),
        ttl: None,
    };
    let swap = |ccols: &'static str, old: &'static str| Conditional::Swap {
        ccols: ccols.into(),
        old: old.into(),
        new: "x".into(),
        ttl: None,
    };
    let delete = |ccols: &'static str, old: &'static str| Conditional::Delete {
        ccols: ccols.into(),
        old: old.into(),
    };
    let conflict =
        |op, actual: Option<&'static str>| Conflict { op, actual: actual.map(Bytes::from) };

    // Fails, would pass, fails, would pass, fails, fails.
    let ops = vec![
        insert("b"),
        swap("a", "1"),
        swap("none", "1"),
        insert("free"),
        delete("gone", ""),
        insert("empty"),
    ];
    let conflicts =
        vec![conflict(0, Some("2")), conflict(2, None), conflict(4, None), conflict(5, Some(""))];
    let outcome = storage.write_if("p".into(), ops, soon()).await.unwrap();
    assert_eq!(outcome, Outcome::NotApplied(conflicts));

    // A single operation gets an answer in another form.
    for (op, value) in [
        (insert("a"), Some("1")),
        (swap("a", "2"), Some("1")),
        (swap("none", "2"), None),
        (delete("a", "2"), Some("1")),
        (delete("none", ""), None),
        (swap("empty", "2"), Some("")),
    ] {
        let outcome = storage.write_if("p".into(), vec![op], soon()).await.unwrap();
        assert_eq!(outcome, Outcome::NotApplied(vec![conflict(0, value)]));
    }
    assert_eq!(
        storage.get(&Key::new("p", "free"), Consistency::Plain, soon()).await.unwrap(),
        None
    );
    scratch.drop().await;
}

pub(crate) async fn a_wall_clock_that_is_behind_does_not_matter_to_ordered_rows(
    cluster: CassandraCluster,
) {
    const AN_HOUR_MS: i64 = 3_600_000;
    let scratch = cluster.scratch().await;
    let behind = cluster.driver_with(Clock::system().with_wall_offset(-AN_HOUR_MS)).await;
    let behind = behind.open(&scratch.name, soon()).await.unwrap().unwrap();
    let put = |ccols: &'static str, order: u64, value: &'static str| {
        let (key, order) = (Key::new("p", ccols), Order::new(order).unwrap());
        vec![OrderedPut { key, value: value.into(), order, ttl: None }]
    };
    // If timestamps were equal, the greater value would win.
    scratch.storage.put_ordered(put("a", 1, "zzz"), soon()).await.unwrap();
    behind.put_ordered(put("a", 2, "higher order"), soon()).await.unwrap();
    behind.put_ordered(put("b", 2, "higher order"), soon()).await.unwrap();
    scratch.storage.put_ordered(put("b", 1, "zzz"), soon()).await.unwrap();
    for ccols in ["a", "b"] {
        let value = behind.get(&Key::new("p", ccols), Consistency::Plain, soon()).await.unwrap();
        assert_eq!(value, Some("higher order".into()), "{ccols}");
    }
    scratch.drop().await;
}

pub(crate) async fn a_later_put_stays_when_the_wall_clock_steps_back(cluster: CassandraCluster) {
    let scratch = cluster.scratch().await;
    let manual = ManualClock::new(0);
    let config = cluster.config();
    let driver =
        CassandraDriver::connect(config, manual.clock(), Instant::FAR_FUTURE).await.unwrap();
    // The time of this clock does not pass by itself, and has another beginning.
    let never = Instant::FAR_FUTURE;
    let storage = driver.open(&scratch.name, never).await.unwrap().unwrap();
    let key = Key::new("p", "c");
    for value in ["1", "2", "3"] {
        storage.put(key.clone(), value.into(), never).await.unwrap();
        manual.step_wall(-10_000);
    }
    assert_eq!(storage.get(&key, Consistency::Plain, never).await.unwrap(), Some("3".into()));
    scratch.drop().await;
}

/// A driver cannot prevent this, so callers read back what they wrote over rows of other programs.
pub(crate) async fn a_row_with_a_time_that_is_ahead_hides_what_a_condition_allowed(
    cluster: CassandraCluster,
) {
    let scratch = cluster.scratch().await;
    let storage = &scratch.storage;
    // In the year 2100.
    let ahead = "USING TIMESTAMP 4102444800000000";
    // The bytes of "p", of "row" and "gone", and of "foreign".
    let foreign = format!(
        "UPDATE {{table}} {ahead} SET value = 0x666f726569676e WHERE p_key = 0x70 AND c_col = 0x726f77"
    );
    scratch.run(&foreign).await;
    scratch
        .run(&format!("DELETE FROM {{table}} {ahead} WHERE p_key = 0x70 AND c_col = 0x676f6e65"))
        .await;
    let (row, gone) = (Key::new("p", "row"), Key::new("p", "gone"));
    let swap =
        storage.compare_and_swap(row.clone(), "foreign".into(), "mine".into(), None, soon()).await;
    assert_eq!(swap.unwrap(), Outcome::Applied);
    let insert = storage.insert_if_not_exists(gone.clone(), "mine".into(), None, soon()).await;
    assert_eq!(insert.unwrap(), Outcome::Applied);
    let deleted = storage.compare_and_delete(row.clone(), "foreign".into(), soon()).await;
    assert_eq!(deleted.unwrap(), Outcome::Applied);
    assert_eq!(storage.get_linearizable(&row, soon()).await.unwrap(), Some("foreign".into()));
    assert_eq!(storage.get_linearizable(&gone, soon()).await.unwrap(), None);
    scratch.drop().await;
}
