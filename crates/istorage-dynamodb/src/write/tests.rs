use std::time::Duration;

use istorage::{AppStorageExt, Conflict, ErrorKind, Key, Order, OrderedPut, Outcome, Put};
use serde_json::{Value, json};

use crate::tests::{
    ScriptedDynamoDb, ScriptedReply, binary, broken, columns, condition_failed, done, refused,
};

fn key() -> Key {
    Key::new("p", "c")
}

fn puts(count: usize) -> Vec<Put> {
    let put = |n| Put { key: Key::new("p", format!("{n:03}")), value: "v".into() };
    (0..count).map(put).collect()
}

fn ordered(order: u64, value: &'static str) -> OrderedPut {
    let order = Order::new(order).unwrap();
    OrderedPut { key: key(), value: value.into(), order, ttl: None }
}

/// An item as the service shows it.
fn item(value: &str, more: Value) -> Value {
    let mut item = json!({ "p": binary(b"p"), "c": columns("c"), "v": binary(value.as_bytes()) });
    item.as_object_mut().unwrap().extend(more.as_object().unwrap().clone());
    item
}

#[tokio::test]
async fn a_put_has_no_condition() {
    let service = ScriptedDynamoDb::new([done()]);
    service.storage().put(key(), "v".into(), service.soon()).await.unwrap();
    let sent = service.only_request();
    assert_eq!(sent.operation, "PutItem");
    assert_eq!(sent.body, json!({ "TableName": "pre.test", "Item": item("v", json!({})) }));
}

#[tokio::test]
async fn a_batch_is_split() {
    let service = ScriptedDynamoDb::new([done(), done(), done()]);
    service.storage().put_batch(puts(60), service.soon()).await.unwrap();
    let rows = |sent: &Value| sent["RequestItems"]["pre.test"].as_array().unwrap().len();
    let sizes: Vec<_> = service.sent().iter().map(|sent| rows(&sent.body)).collect();
    assert_eq!(sizes, [25, 25, 10]);
    assert_eq!(service.operations(), ["BatchWriteItem"; 3]);
}

#[tokio::test]
async fn unprocessed_rows_are_sent_again_after_a_pause() {
    let unprocessed = |service: &ScriptedDynamoDb, from: usize| {
        let sent = &service.sent()[0].body["RequestItems"]["pre.test"];
        ScriptedReply::Answer(json!({
            "UnprocessedItems": { "pre.test": sent.as_array().unwrap()[from..].to_vec() }
        }))
    };
    // The unprocessed rows are taken from the request of a first run.
    let model = ScriptedDynamoDb::new([done()]);
    model.storage().put_batch(puts(10), model.soon()).await.unwrap();
    let service = ScriptedDynamoDb::new([
        unprocessed(&model, 4),
        refused("ProvisionedThroughputExceededException"),
        unprocessed(&model, 9),
        done(),
    ]);
    let start = service.time.clock().now();
    let storage = service.storage();
    service.patiently(storage.put_batch(puts(10), service.soon())).await.unwrap();
    let rows = |n: usize| service.sent()[n].body["RequestItems"]["pre.test"].clone();
    let all = model.sent()[0].body["RequestItems"]["pre.test"].as_array().unwrap().clone();
    assert_eq!(rows(1), json!(all[4..]));
    assert_eq!(rows(2), json!(all[4..]));
    assert_eq!(rows(3), json!(all[9..]));
    let waited = service.time.clock().now() - start;
    assert!((70..150).contains(&waited.as_millis()), "{waited:?}");
}

#[tokio::test]
async fn unprocessed_rows_are_given_up_at_the_deadline() {
    let left = json!([{ "PutRequest": { "Item": item("v", json!({})) } }]);
    let reply = ScriptedReply::Answer(json!({ "UnprocessedItems": { "pre.test": left } }));
    let service = ScriptedDynamoDb::new(vec![reply; 100]);
    let (storage, deadline) = (service.storage(), service.soon());
    let error = service.patiently(storage.put_batch(puts(2), deadline)).await.unwrap_err();
    assert_eq!(error.kind(), ErrorKind::Unavailable);
    assert!(service.time.clock().now() < deadline, "the write waited, although no time was left");
    assert!((10..30).contains(&service.sent().len()), "{}", service.sent().len());
}

#[tokio::test]
async fn a_lease_stores_its_duration_and_no_date() {
    let service = ScriptedDynamoDb::new([done()]);
    let ttl = Some(Duration::from_micros(4_999_001));
    let outcome =
        service.storage().insert_if_not_exists(key(), "v".into(), ttl, service.soon()).await;
    assert_eq!(outcome.unwrap(), Outcome::Applied);
    let sent = service.only_request();
    assert_eq!(sent.operation, "PutItem");
    let version = sent.body["Item"]["n"].clone();
    assert_ne!(version["N"], "0");
    assert_eq!(
        sent.body,
        json!({
            "TableName": "pre.test",
            "Item": item("v", json!({ "l": { "N": "5000" }, "n": version })),
            "ConditionExpression": "attribute_not_exists(p) OR n = :expired",
            "ExpressionAttributeValues": { ":expired": { "N": "0" } },
            "ReturnValuesOnConditionCheckFailure": "ALL_OLD"
        })
    );
}

#[tokio::test]
async fn a_swap_and_a_delete_compare_the_living_row() {
    let service = ScriptedDynamoDb::new([done(), done()]);
    let (storage, soon) = (service.storage(), service.soon());
    let swap = storage.compare_and_swap(key(), "old".into(), "new".into(), None, soon).await;
    assert_eq!(swap.unwrap(), Outcome::Applied);
    let delete = storage.compare_and_delete(key(), "old".into(), soon).await;
    assert_eq!(delete.unwrap(), Outcome::Applied);
    assert_eq!(service.operations(), ["PutItem", "DeleteItem"]);
    let [swap, delete] = [&service.sent()[0].body, &service.sent()[1].body];
    assert_eq!(swap["Item"], item("new", json!({})));
    assert_eq!(delete["Key"], json!({ "p": binary(b"p"), "c": columns("c") }));
    for body in [swap, delete] {
        let condition = "v = :old AND (attribute_not_exists(n) OR n <> :expired)";
        assert_eq!(body["ConditionExpression"], condition);
        assert_eq!(body["ExpressionAttributeValues"][":old"], binary(b"old"));
        assert_eq!(body["ReturnValuesOnConditionCheckFailure"], "ALL_OLD");
    }
}

#[tokio::test]
async fn a_conflict_shows_the_living_row() {
    let lease = |version: &str| json!({ "l": { "N": "5000" }, "n": { "N": version } });
    let service = ScriptedDynamoDb::new([]);
    let storage = service.storage();
    for (there, expected) in [
        (Some(item("other", json!({}))), Some("other".into())),
        (Some(item("other", lease("7"))), Some("other".into())),
        (None, None),
    ] {
        service.add_reply(condition_failed(there));
        let soon = service.soon();
        let outcome = storage.compare_and_delete(key(), "old".into(), soon).await.unwrap();
        assert_eq!(outcome, Outcome::NotApplied(vec![Conflict { op: 0, actual: expected }]));
    }
    // A lease that was seen for as long as it lasts is absent. A new version of the lease is not.
    service.time.advance(Duration::from_secs(5));
    for (version, expected) in [("7", None), ("8", Some("old".into()))] {
        service.add_reply(condition_failed(Some(item("old", lease(version)))));
        let soon = service.soon();
        let outcome = storage.compare_and_delete(key(), "old".into(), soon).await.unwrap();
        assert_eq!(outcome, Outcome::NotApplied(vec![Conflict { op: 0, actual: expected }]));
        let body = service.sent().pop().unwrap().body;
        assert_eq!(body["ExpressionAttributeValues"][":expired"]["N"], "7");
    }
}

#[tokio::test]
async fn a_node_that_was_idle_for_long_asks_for_the_time_before_it_writes_by_it() {
    let service = ScriptedDynamoDb::new([done(), done(), done()]);
    let storage = service.storage();
    service.time.advance(Duration::from_secs(3_600));
    for _ in 0..2 {
        let put = OrderedPut { ttl: Some(HOUR), ..ordered(7, "v") };
        storage.put_ordered(vec![put], service.soon()).await.unwrap();
    }
    assert_eq!(service.operations(), ["DescribeTable", "PutItem", "PutItem"]);
    let expires = &service.sent()[1].body["Item"]["x"]["N"];
    assert_eq!(expires, &(service.bounds().1 + 3_600_000).to_string());
}

#[tokio::test]
async fn a_refused_condition_is_tried_again_with_a_version_of_its_own() {
    for code in ["ThrottlingException", "TransactionConflictException", "RequestLimitExceeded"] {
        let service = ScriptedDynamoDb::new([refused(code), refused(code), done()]);
        let (storage, ttl) = (service.storage(), Some(HOUR));
        let insert = storage.insert_if_not_exists(key(), "v".into(), ttl, service.soon());
        assert_eq!(service.patiently(insert).await.unwrap(), Outcome::Applied);
        let version = |n: usize| service.sent()[n].body["Item"]["n"].clone();
        assert!(version(0) != version(1) && version(1) != version(2) && version(0) != version(2));
    }
}

#[tokio::test]
async fn a_write_without_a_definite_answer_is_never_sent_again() {
    for reply in [
        broken(),
        ScriptedReply::Lost,
        ScriptedReply::Raw(200, "{\"Attr".to_owned()),
        ScriptedReply::Never,
    ] {
        for write in 0..4 {
            let service = ScriptedDynamoDb::new([reply.clone()]);
            let (storage, soon) = (service.storage(), service.soon());
            let call = async {
                match write {
                    0 => storage.put(key(), "v".into(), soon).await,
                    1 => storage.put_batch(puts(2), soon).await,
                    2 => {
                        storage.insert_if_not_exists(key(), "v".into(), None, soon).await.map(drop)
                    }
                    _ => storage.put_ordered(vec![ordered(1, "v")], soon).await,
                }
            };
            let error = service.patiently(call).await.unwrap_err();
            assert_eq!(error.kind(), ErrorKind::OutcomeUnknown, "{reply:?} {write}");
            assert_eq!(service.sent().len(), 1);
        }
    }
}

#[tokio::test]
async fn an_ordered_put_carries_its_order() {
    let service = ScriptedDynamoDb::new([done()]);
    service.storage().put_ordered(vec![ordered(7, "v")], service.soon()).await.unwrap();
    let sent = service.only_request();
    assert_eq!(sent.operation, "PutItem");
    assert_eq!(sent.body["Item"], item("v", json!({ "o": { "N": "7" } })));
    assert_eq!(sent.body["ConditionExpression"], "attribute_not_exists(p) OR o < :order");
    assert_eq!(sent.body["ExpressionAttributeValues"], json!({ ":order": { "N": "7" } }));
    assert_eq!(sent.body["ReturnValuesOnConditionCheckFailure"], "ALL_OLD");
}

#[tokio::test]
async fn an_order_of_the_band_first_is_negative() {
    let service = ScriptedDynamoDb::new([done()]);
    let put = ordered(7, "v");
    let put = OrderedPut { order: put.order.first_wins(), ..put };
    service.storage().put_ordered(vec![put], service.soon()).await.unwrap();
    let sent = service.only_request();
    assert_eq!(sent.body["Item"], item("v", json!({ "o": { "N": "-7" } })));
    assert_eq!(sent.body["ExpressionAttributeValues"], json!({ ":order": { "N": "-7" } }));
}

#[tokio::test]
async fn a_superseded_put_is_a_success() {
    let there = |value, order: &str| Some(item(value, json!({ "o": { "N": order } })));
    for (there, expected) in [
        (there("other", "8"), Ok(())),
        (there("v", "7"), Ok(())),
        (there("other", "7"), Err(ErrorKind::Invalid)),
        // A row without an order hides the put.
        (Some(item("plain", json!({}))), Ok(())),
    ] {
        let service = ScriptedDynamoDb::new([condition_failed(there)]);
        let answer = service.storage().put_ordered(vec![ordered(7, "v")], service.soon()).await;
        assert_eq!(answer.map_err(|error| error.kind()), expected);
    }
}

/// A write with an unknown outcome is sent again. The row lives until the latest expiry that these
/// writes asked for.
#[tokio::test]
async fn an_ordered_put_that_is_sent_again_lives_longer() {
    let service = ScriptedDynamoDb::new([done()]);
    let put = OrderedPut { ttl: Some(Duration::from_secs(5)), ..ordered(7, "v") };
    service.storage().put_ordered(vec![put], service.soon()).await.unwrap();
    let sent = service.only_request().body;
    let condition = "attribute_not_exists(p) OR o < :order OR (o = :order AND x < :x)";
    assert_eq!(sent["ConditionExpression"], condition);
    assert_eq!(sent["ExpressionAttributeValues"][":x"], sent["Item"]["x"]);
}

/// A gateway answered instead of the service, with a clock that was an hour ahead. Rows then lived
/// for an hour too long.
#[tokio::test]
async fn the_date_of_a_gateway_is_not_the_services() {
    let service = ScriptedDynamoDb::new([ScriptedReply::Gateway, done()]);
    let storage = service.storage();
    assert!(storage.put(key(), "v".into(), service.soon()).await.is_err());
    let put = OrderedPut { ttl: Some(HOUR), ..ordered(7, "v") };
    storage.put_ordered(vec![put], service.soon()).await.unwrap();
    let expires = &service.sent()[1].body["Item"]["x"]["N"];
    assert_eq!(expires, &(service.bounds().1 + 3_600_000).to_string());
}

/// The write was reported as superseded, and so as a success, although the service had shown no
/// higher order.
#[tokio::test]
async fn an_ordered_put_that_was_refused_without_its_item_is_no_success() {
    let service = ScriptedDynamoDb::new([condition_failed(None)]);
    let put = service.storage().put_ordered(vec![ordered(7, "v")], service.soon()).await;
    assert_eq!(put.unwrap_err().kind(), ErrorKind::Unavailable);
}

/// The caller was told that no row is there, although only a row can refuse an insert.
#[tokio::test]
async fn an_insert_that_was_refused_without_its_item_is_no_answer() {
    let service = ScriptedDynamoDb::new([condition_failed(None)]);
    let insert =
        service.storage().insert_if_not_exists(key(), "v".into(), None, service.soon()).await;
    assert_eq!(insert.unwrap_err().kind(), ErrorKind::Unavailable);
}

const HOUR: Duration = Duration::from_secs(3_600);

/// Reads a row that does not exist, several times.
async fn read_absent_row(
    service: &ScriptedDynamoDb,
    storage: &dyn istorage::AppStorage,
    times: u32,
) {
    for _ in 0..times {
        service.add_reply(done());
        let row = storage.get(&key(), istorage::Consistency::Plain, service.soon()).await;
        assert_eq!(row.unwrap(), None);
        service.time.advance(Duration::from_millis(200));
    }
}

/// The stored answer of an idempotency key lives for a day. Each doubt about the time lasted for a
/// day, too. During the doubt each answer closed its connection and each write asked for the time.
#[tokio::test]
async fn an_ordered_row_that_lives_for_a_day_makes_no_doubt_last_for_a_day() {
    let service = ScriptedDynamoDb::new([done()]);
    let storage = service.storage();
    let put = || OrderedPut { ttl: Some(24 * HOUR), ..ordered(7, "v") };
    storage.put_ordered(vec![put()], service.soon()).await.unwrap();
    service.step_clock(2 * HOUR);
    read_absent_row(&service, &*storage, 10).await;
    assert_eq!(service.closed(), 2);
    // In doubt the row lives for longer, and the driver does not ask for the time.
    service.add_reply(done());
    storage.put_ordered(vec![put()], service.soon()).await.unwrap();
    assert_eq!(service.operations().last().unwrap(), "PutItem");
    read_absent_row(&service, &*storage, 200).await;
    assert_eq!(service.closed(), 2);
    let expired = (service.bounds().0 - 3_600_000).to_string();
    service.add_reply(ScriptedReply::Answer(
        json!({ "Item": item("v", json!({ "x": { "N": expired } })) }),
    ));
    let row = storage.get(&key(), istorage::Consistency::Plain, service.soon()).await;
    assert_eq!(row.unwrap(), None, "the step is believed");
}
