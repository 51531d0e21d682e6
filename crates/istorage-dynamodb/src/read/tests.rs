use std::time::Duration;

use clock::WallTime;
use futures::TryStreamExt;
use istorage::{
    AppStorage, AppStorageExt, Consistency, ErrorKind, ExpiringRow, Key, Range, Row, ServerTime,
};
use serde_json::{Value, json};

use crate::tests::{ScriptedDynamoDb, ScriptedReply, binary, broken, columns, refused};

fn key(ccols: &'static str) -> Key {
    Key::new("p", ccols)
}

fn item(ccols: &str) -> Value {
    json!({ "p": binary(b"p"), "c": columns(ccols), "v": binary(ccols.as_bytes()) })
}

fn expiring(ccols: &str, moment: u64) -> Value {
    let mut item = item(ccols);
    item["x"] = json!({ "N": moment.to_string() });
    item
}

fn page(items: impl Into<Vec<Value>>, last: Option<&str>) -> ScriptedReply {
    let last = last.map(|last| json!({ "p": binary(b"p"), "c": columns(last) }));
    ScriptedReply::Answer(json!({ "Items": items.into(), "LastEvaluatedKey": last }))
}

fn row(ccols: &'static str) -> Row {
    Row { ccols: ccols.into(), value: ccols.into() }
}

/// The service's time, at the earliest.
fn millis(service: &ScriptedDynamoDb) -> u64 {
    service.bounds().0
}

async fn read(storage: &dyn AppStorage, range: Range) -> istorage::Result<Vec<Row>> {
    let timeout = Duration::from_secs(10);
    storage.read("p".into(), range, Consistency::Plain, timeout).try_collect().await
}

#[tokio::test]
async fn every_get_is_consistent() {
    for consistency in [Consistency::Plain, Consistency::Linearizable] {
        let service = ScriptedDynamoDb::new([ScriptedReply::Answer(json!({ "Item": item("c") }))]);
        let value = service.storage().get(&key("c"), consistency, service.soon()).await;
        assert_eq!(value.unwrap(), Some("c".into()));
        let expected = json!({
            "TableName": "pre.test",
            "Key": { "p": binary(b"p"), "c": columns("c") },
            "ConsistentRead": true,
            "ProjectionExpression": "v, x, l, n"
        });
        assert_eq!(service.only_request().body, expected);
    }
}

#[tokio::test]
async fn a_row_is_absent_from_its_expiry_on() {
    let service = ScriptedDynamoDb::new([]);
    let storage = service.storage();
    for (moment, expected) in [(millis(&service) + 1, Some("c".into())), (millis(&service), None)] {
        service.add_reply(ScriptedReply::Answer(json!({ "Item": expiring("c", moment) })));
        let value = storage.get(&key("c"), Consistency::Plain, service.soon()).await;
        assert_eq!(value.unwrap(), expected);
    }
}

#[tokio::test]
async fn a_read_is_sent_again_until_it_is_answered() {
    let failures = [
        refused("ThrottlingException"),
        broken(),
        ScriptedReply::Lost,
        ScriptedReply::Raw(502, "<html>".to_owned()),
        ScriptedReply::Raw(200, "{\"It".to_owned()),
    ];
    for failure in failures {
        let service = ScriptedDynamoDb::new([failure, ScriptedReply::Answer(json!({}))]);
        let storage = service.storage();
        let key = key("c");
        let call = storage.get(&key, Consistency::Plain, service.soon());
        assert_eq!(service.patiently(call).await.unwrap(), None);
        assert_eq!(service.sent().len(), 2);
    }
}

#[tokio::test]
async fn a_read_that_is_never_answered_is_unavailable() {
    for replies in [vec![broken(); 100], vec![ScriptedReply::Never]] {
        let service = ScriptedDynamoDb::new(replies);
        let storage = service.storage();
        let key = key("c");
        let call = storage.get(&key, Consistency::Plain, service.soon());
        let error = service.patiently(call).await.unwrap_err();
        assert_eq!(error.kind(), ErrorKind::Unavailable);
    }
}

#[tokio::test]
async fn a_batch_is_split_and_answered_in_any_order() {
    let keys: Vec<Key> = (0..150).map(|n| Key::new("p", format!("{n:03}"))).collect();
    let answer = |ccols: &[&str]| {
        let items: Vec<_> = ccols.iter().map(|ccols| item(ccols)).collect();
        ScriptedReply::Answer(json!({ "Responses": { "pre.test": items }, "UnprocessedKeys": {} }))
    };
    let service = ScriptedDynamoDb::new([answer(&["099", "007"]), answer(&["149"])]);
    let values = service.storage().get_values(&keys, service.soon()).await.unwrap();
    let found: Vec<_> = values.iter().enumerate().filter(|(_, value)| value.is_some()).collect();
    let found: Vec<_> = found.into_iter().map(|(n, value)| (n, value.clone().unwrap())).collect();
    assert_eq!(found, [(7, "007".into()), (99, "099".into()), (149, "149".into())]);
    let asked = |n: usize| service.sent()[n].body["RequestItems"]["pre.test"].clone();
    let count = |n: usize| asked(n)["Keys"].as_array().unwrap().len();
    assert_eq!((count(0), count(1)), (100, 50));
    assert_eq!(asked(1)["ConsistentRead"], true);
}

#[tokio::test]
async fn unprocessed_keys_are_read_again_consistently() {
    let left = json!({ "pre.test": { "Keys": [{ "p": binary(b"p"), "c": columns("b") }] } });
    let service = ScriptedDynamoDb::new([
        ScriptedReply::Answer(json!({
            "Responses": { "pre.test": [item("a")] }, "UnprocessedKeys": left
        })),
        ScriptedReply::Answer(json!({ "Responses": { "pre.test": [item("b")] } })),
    ]);
    let storage = service.storage();
    let keys = [key("a"), key("b")];
    let values = service.patiently(storage.get_values(&keys, service.soon())).await.unwrap();
    assert_eq!(values, [Some("a".into()), Some("b".into())]);
    let again = &service.sent()[1].body["RequestItems"]["pre.test"];
    assert_eq!(again["Keys"], left["pre.test"]["Keys"]);
    assert_eq!(again["ConsistentRead"], true);
}

#[tokio::test]
async fn pages_are_followed_to_the_end() {
    let service = ScriptedDynamoDb::new([
        page([item("a"), item("b")], Some("b")),
        page([], Some("bb")),
        page([item("c")], Some("c")),
        page([], None),
    ]);
    let rows = read(&*service.storage(), Range::all()).await.unwrap();
    assert_eq!(rows, [row("a"), row("b"), row("c")]);
    let sent = service.sent();
    assert_eq!(sent[0].body["KeyConditionExpression"], "p = :p AND c >= :start");
    assert_eq!(sent[0].body["ExclusiveStartKey"], Value::Null);
    assert_eq!(sent[3].body["ExclusiveStartKey"]["c"], columns("c"));
    assert!(sent.iter().all(|sent| sent.body["ConsistentRead"] == true));
    assert!(sent.iter().all(|sent| sent.body["Limit"] == 1_000));
}

#[tokio::test]
async fn a_page_is_fetched_when_the_rows_before_it_are_taken() {
    let service = ScriptedDynamoDb::new([page([item("a"), item("b")], Some("b")), page([], None)]);
    let timeout = Duration::from_secs(10);
    let mut rows = service.storage().read("p".into(), Range::all(), Consistency::Plain, timeout);
    for _ in 0..2 {
        assert!(rows.try_next().await.unwrap().is_some());
        assert_eq!(service.sent().len(), 1);
    }
    assert!(rows.try_next().await.unwrap().is_none());
    assert_eq!(service.sent().len(), 2);
}

#[tokio::test]
async fn the_row_at_the_end_of_a_range_is_not_in_it() {
    let service = ScriptedDynamoDb::new([page([item("a"), item("b")], None)]);
    let rows = read(&*service.storage(), Range::between("a", "b")).await.unwrap();
    assert_eq!(rows, [row("a")]);
    let sent = service.only_request();
    assert_eq!(sent.body["KeyConditionExpression"], "p = :p AND c BETWEEN :start AND :end");
    let values = &sent.body["ExpressionAttributeValues"];
    assert_eq!(
        values,
        &json!({ ":p": binary(b"p"), ":start": columns("a"), ":end": columns("b") })
    );
}

#[tokio::test]
async fn a_read_of_ttls_shows_the_rest_of_each_ttl_and_no_expired_row() {
    let service = ScriptedDynamoDb::new([]);
    let now = millis(&service);
    service.add_reply(page([expiring("a", now), expiring("b", now + 250), item("c")], None));
    let timeout = Duration::from_secs(10);
    let rows = service.storage().ttl_read("p".into(), Range::all(), timeout);
    let rows: Vec<_> = rows.try_collect().await.unwrap();
    let left = |ccols: &'static str, ttl| {
        let Row { ccols, value } = row(ccols);
        ExpiringRow { ccols, value, ttl }
    };
    assert_eq!(rows, [left("b", Some(Duration::from_millis(250))), left("c", None)]);
}

#[tokio::test]
async fn a_foreign_item_is_corrupt() {
    let foreign = json!({ "c": binary(b"no prefix"), "v": binary(b"v") });
    let service = ScriptedDynamoDb::new([page([foreign], None)]);
    let error = read(&*service.storage(), Range::all()).await.unwrap_err();
    assert_eq!(error.kind(), ErrorKind::Corrupt);
}

#[tokio::test]
async fn the_time_of_the_server_is_the_date_of_an_answer() {
    let service = ScriptedDynamoDb::new([ScriptedReply::Answer(json!({}))]);
    let time = service.storage().server_time(service.soon()).await.unwrap();
    let at = WallTime::from_millis(millis(&service));
    assert_eq!(time, Some(ServerTime { at, uncertainty: Duration::from_secs(1) }));
}

#[tokio::test]
async fn the_ttl_of_one_row_can_be_read() {
    let service = ScriptedDynamoDb::new([]);
    service.add_reply(page([expiring("a", millis(&service) + 1_000)], None));
    let ttl = service.storage().query_ttl(&key("a"), Duration::from_secs(10)).await.unwrap();
    assert_eq!(ttl, Some(Some(Duration::from_secs(1))));
}

/// Rows that have expired stay in the table for days. A read waited for the next living row behind
/// many expired rows, and its timeout passed.
#[tokio::test]
async fn pages_of_expired_rows_have_a_timeout_each() {
    let slow = |page: ScriptedReply| match page {
        ScriptedReply::Answer(body) => ScriptedReply::Slow(Duration::from_millis(300), 200, body),
        other => other,
    };
    let service = ScriptedDynamoDb::new([]);
    let gone = millis(&service) - 1;
    for n in ["1", "2", "3", "4"] {
        service.add_reply(slow(page([expiring("c", gone)], Some(n))));
    }
    service.add_reply(slow(page([item("z")], None)));
    let timeout = Duration::from_secs(1);
    let rows = service.storage().read("p".into(), Range::all(), Consistency::Plain, timeout);
    let rows: Vec<Row> = service.patiently(rows.try_collect()).await.unwrap();
    assert_eq!(rows, [row("z")]);
}
