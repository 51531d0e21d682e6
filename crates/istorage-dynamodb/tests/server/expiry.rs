//! Trials of expired items, which DynamoDB keeps for days.

use std::time::Duration;

use aws_sdk_dynamodb::types::{AttributeValue, Select};
use bytes::Bytes;
use clock::Clock;
use istorage::{AppStorageExt, AtomicBatch, Conditional, Conflict, Key, Outcome, Range};

use crate::support::{DynamoDbServer, get, insert, ordered, pass, read, soon};

const TTL: Duration = Duration::from_millis(300);
const EXPIRY_RESOLUTION: Duration = Duration::from_secs(2);

fn insert_for(ccols: &'static str, ttl: Duration) -> Conditional {
    Conditional::Insert { ccols: ccols.into(), value: "v".into(), ttl: Some(ttl) }
}

/// The number of items, whether their rows have expired or not.
async fn items(server: &DynamoDbServer, table: &str) -> i32 {
    let request = server
        .raw()
        .query()
        .table_name(table)
        .consistent_read(true)
        .select(Select::Count)
        .key_condition_expression("p = :p")
        .expression_attribute_values(":p", AttributeValue::B(b"p".to_vec().into()));
    request.send().await.unwrap().count()
}

pub(crate) async fn an_expired_item_stays_in_the_table_and_is_no_row(server: DynamoDbServer) {
    let scratch = server.scratch().await;
    let storage = &*scratch.storage;
    for ccols in ["inserted", "swapped", "deleted"] {
        let outcome = storage.write_if("p".into(), vec![insert_for(ccols, TTL)], soon()).await;
        assert!(outcome.unwrap().is_applied());
    }
    pass(TTL + 2 * EXPIRY_RESOLUTION).await;
    assert_eq!(items(&server, &scratch.table()).await, 3);
    assert_eq!(read(storage, "p", Range::all()).await, []);
    let key = |ccols: &'static str| Key::new("p", ccols);
    assert_eq!(get(storage, &key("inserted")).await, None);
    let keys = [key("inserted"), key("swapped")];
    assert_eq!(storage.get_values(&keys, soon()).await.unwrap(), [None, None]);

    let absent = Outcome::NotApplied(vec![Conflict { op: 0, actual: None }]);
    let swap = storage.compare_and_swap(key("swapped"), "v".into(), "w".into(), None, soon()).await;
    assert_eq!(swap.unwrap(), absent);
    let delete = storage.compare_and_delete(key("deleted"), "v".into(), soon()).await;
    assert_eq!(delete.unwrap(), absent);
    let again = storage.insert_if_not_exists(key("inserted"), "w".into(), None, soon()).await;
    assert!(again.unwrap().is_applied());
    assert_eq!(get(storage, &key("inserted")).await, Some("w".into()));
    scratch.remove().await;
}

pub(crate) async fn an_expired_item_is_replaced_by_a_transaction(server: DynamoDbServer) {
    let scratch = server.scratch().await;
    let storage = &*scratch.storage;
    let both = || vec![insert_for("a", TTL), insert_for("b", TTL)];
    assert!(storage.write_if("p".into(), both(), soon()).await.unwrap().is_applied());
    pass(TTL + 2 * EXPIRY_RESOLUTION).await;
    assert_eq!(items(&server, &scratch.table()).await, 2);
    let batch = AtomicBatch {
        conditionals: both().into_iter().map(|op| ("p".into(), op)).collect(),
        ..AtomicBatch::default()
    };
    assert!(storage.write_atomic(batch, soon()).await.unwrap().is_applied());
    scratch.remove().await;
}

/// A node with a wall clock that was ahead took leases over before they expired.
pub(crate) async fn the_wall_clocks_of_the_nodes_do_not_matter(server: DynamoDbServer) {
    let scratch = server.scratch().await;
    let (ahead, behind) = (scratch.node(&server, 5_000).await, scratch.node(&server, -5_000).await);
    let ours = &*scratch.storage;
    let ttl = Duration::from_secs(4);
    let write = || vec![insert_for("a", ttl)];
    for (pkey, writer) in [("by us", ours), ("by one ahead", &*ahead), ("by one behind", &*behind)]
    {
        let written = Clock::system().now();
        assert!(writer.write_if(pkey.into(), write(), soon()).await.unwrap().is_applied());
        for node in [ours, &*ahead, &*behind] {
            let again = node.write_if(pkey.into(), write(), soon()).await.unwrap();
            let passed = Clock::system().now() - written;
            assert!(passed >= ttl || !again.is_applied(), "{pkey}: taken after {passed:?}");
            let left = node.query_ttl(&Key::new(pkey, "a"), Duration::from_secs(10)).await;
            let left = left.unwrap().unwrap().unwrap();
            assert!(left >= ttl.saturating_sub(Clock::system().now() - written), "{left:?}");
            assert!(left <= ttl + 2 * EXPIRY_RESOLUTION, "{left:?}");
        }
    }
    scratch.remove().await;
}

pub(crate) async fn a_wall_clock_that_is_behind_does_not_matter_to_ordered_rows(
    server: DynamoDbServer,
) {
    let scratch = server.scratch().await;
    let behind = scratch.node(&server, -5_000).await;
    let key = || Key::new("p", "a");
    scratch.storage.put_ordered(vec![ordered(key(), "first", 1)], soon()).await.unwrap();
    behind.put_ordered(vec![ordered(key(), "second", 2)], soon()).await.unwrap();
    scratch.storage.put_ordered(vec![ordered(key(), "first", 1)], soon()).await.unwrap();
    assert_eq!(get(&*scratch.storage, &key()).await, Some("second".into()));

    let batch = AtomicBatch {
        conditionals: vec![("q".into(), insert("a", "v"))],
        ordered: vec![ordered(key(), "first", 1), ordered(Key::new("p", "b"), "b", 1)],
        ..AtomicBatch::default()
    };
    assert!(scratch.storage.write_atomic(batch, soon()).await.unwrap().is_applied());
    let rows = read(&*scratch.storage, "p", Range::all()).await;
    let values: Vec<Bytes> = rows.into_iter().map(|row| row.value).collect();
    assert_eq!(values, ["second", "b"]);
    scratch.remove().await;
}
