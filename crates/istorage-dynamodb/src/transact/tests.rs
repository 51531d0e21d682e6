use std::time::Duration;

use istorage::{
    AtomicBatch, Conditional, Conflict, ErrorKind, Key, Order, OrderedPut, Outcome, Put,
};
use serde_json::{Value, json};

use crate::tests::{
    ScriptedDynamoDb, ScriptedReply, SentRequest, binary, broken, columns, refused,
};

fn insert(ccols: &'static str) -> Conditional {
    Conditional::Insert { ccols: ccols.into(), value: "v".into(), ttl: None }
}

fn delete(ccols: &'static str) -> Conditional {
    Conditional::Delete { ccols: ccols.into(), old: "old".into() }
}

fn ordered(ccols: &'static str) -> OrderedPut {
    let order = Order::new(5).unwrap();
    OrderedPut { key: Key::new("o", ccols), value: "v".into(), order, ttl: None }
}

fn put(ccols: &'static str) -> Put {
    Put { key: Key::new("p", ccols), value: "v".into() }
}

/// Two conditional rows, two ordered rows and a plain row.
fn batch() -> AtomicBatch {
    AtomicBatch {
        conditionals: vec![("a".into(), insert("0")), ("b".into(), delete("1"))],
        ordered: vec![ordered("2"), ordered("3")],
        puts: vec![put("4")],
    }
}

fn because(code: &str) -> Value {
    json!({ "Code": code })
}

fn condition_failed(value: &str, order: Option<&str>) -> Value {
    let mut item = json!({ "v": binary(value.as_bytes()) });
    if let Some(order) = order {
        item["o"] = json!({ "N": order });
    }
    json!({ "Code": "ConditionalCheckFailed", "Item": item })
}

fn cancelled(reasons: impl Into<Vec<Value>>) -> ScriptedReply {
    let body = json!({
        "__type": "TransactionCanceledException",
        "CancellationReasons": reasons.into()
    });
    ScriptedReply::Raw(400, body.to_string())
}

fn token(sent: &SentRequest) -> &str {
    sent.body["ClientRequestToken"].as_str().unwrap()
}

/// The range keys of a transaction's rows.
fn rows(sent: &SentRequest) -> Vec<Value> {
    let columns = |write: &Value| match (&write["Put"], &write["Delete"]) {
        (Value::Null, delete) => delete["Key"]["c"].clone(),
        (put, _) => put["Item"]["c"].clone(),
    };
    sent.body["TransactItems"].as_array().unwrap().iter().map(columns).collect()
}

async fn write(service: &ScriptedDynamoDb, batch: AtomicBatch) -> istorage::Result<Outcome> {
    let storage = service.storage();
    service.patiently(storage.write_atomic(batch, service.soon())).await
}

#[tokio::test]
async fn all_rows_go_in_one_request_each_with_its_condition() {
    let service = ScriptedDynamoDb::new([ScriptedReply::Answer(json!({}))]);
    assert_eq!(write(&service, batch()).await.unwrap(), Outcome::Applied);
    let sent = service.only_request();
    assert_eq!(sent.operation, "TransactWriteItems");
    assert_eq!(rows(&sent), ["0", "1", "2", "3", "4"].map(columns));
    let condition = |n: usize, kind| sent.body["TransactItems"][n][kind].clone();
    let insert = condition(0, "Put");
    assert_eq!(insert["ConditionExpression"], "attribute_not_exists(p) OR n = :expired");
    assert_eq!(insert["ReturnValuesOnConditionCheckFailure"], "ALL_OLD");
    let delete = condition(1, "Delete");
    assert_eq!(
        delete["ConditionExpression"],
        "v = :old AND (attribute_not_exists(n) OR n <> :expired)"
    );
    assert_eq!(delete["ReturnValuesOnConditionCheckFailure"], "ALL_OLD");
    let ordered = condition(2, "Put");
    assert_eq!(ordered["ConditionExpression"], "attribute_not_exists(p) OR o < :order");
    assert_eq!(ordered["ReturnValuesOnConditionCheckFailure"], "ALL_OLD");
    assert_eq!(condition(4, "Put")["ConditionExpression"], Value::Null);
    assert_eq!(token(&sent).len(), 32);
}

#[tokio::test]
async fn several_operations_of_a_partition_are_a_transaction() {
    let service = ScriptedDynamoDb::new([ScriptedReply::Answer(json!({}))]);
    let ops = vec![insert("0"), insert("1")];
    let outcome = service.storage().write_if("p".into(), ops, service.soon()).await;
    assert_eq!(outcome.unwrap(), Outcome::Applied);
    assert_eq!(service.operations(), ["TransactWriteItems"]);
}

#[tokio::test]
async fn failed_conditions_are_reported_in_order() {
    let reasons = [
        condition_failed("there", None),
        condition_failed("other", None),
        // A row that is superseded or busy changes nothing about the outcome.
        condition_failed("newer", Some("9")),
        because("TransactionConflict"),
        because("None"),
    ];
    let service = ScriptedDynamoDb::new([cancelled(reasons)]);
    let conflicts = vec![
        Conflict { op: 0, actual: Some("there".into()) },
        Conflict { op: 1, actual: Some("other".into()) },
    ];
    assert_eq!(write(&service, batch()).await.unwrap(), Outcome::NotApplied(conflicts));
}

#[tokio::test]
async fn an_expired_row_that_refuses_a_write_is_reported_as_absent() {
    let service = ScriptedDynamoDb::new([]);
    let storage = service.storage();
    let mut lease = condition_failed("old", None);
    (lease["Item"]["l"], lease["Item"]["n"]) = (json!({ "N": "5000" }), json!({ "N": "7" }));
    for actual in [Some("old".into()), None] {
        let none = || because("None");
        service.add_reply(cancelled([none(), lease.clone(), none(), none(), none()]));
        let outcome = storage.write_atomic(batch(), service.soon()).await.unwrap();
        assert_eq!(outcome, Outcome::NotApplied(vec![Conflict { op: 1, actual }]));
        service.time.advance(Duration::from_secs(5));
    }
    let delete = &service.sent()[1].body["TransactItems"][1]["Delete"];
    assert_eq!(delete["ExpressionAttributeValues"][":expired"]["N"], "7");
}

#[tokio::test]
async fn superseded_rows_are_left_out_of_the_next_attempt() {
    let none = || because("None");
    let newer = || condition_failed("newer", Some("9"));
    let service = ScriptedDynamoDb::new([
        cancelled([none(), none(), none(), newer(), none()]),
        cancelled([none(), none(), newer(), none()]),
        ScriptedReply::Answer(json!({})),
    ]);
    let start = service.time.clock().now();
    assert_eq!(write(&service, batch()).await.unwrap(), Outcome::Applied);
    assert_eq!(service.time.clock().now(), start, "there is nothing to wait for");
    let sent = service.sent();
    assert_eq!(rows(&sent[0]), ["0", "1", "2", "3", "4"].map(columns));
    assert_eq!(rows(&sent[1]), ["0", "1", "2", "4"].map(columns));
    assert_eq!(rows(&sent[2]), ["0", "1", "4"].map(columns));
    assert!(token(&sent[0]) != token(&sent[1]) && token(&sent[1]) != token(&sent[2]));
}

#[tokio::test]
async fn when_every_row_is_superseded_nothing_is_left_to_send() {
    let newer = condition_failed("newer", Some("9"));
    let service = ScriptedDynamoDb::new([cancelled([newer.clone(), newer])]);
    let batch = AtomicBatch { ordered: vec![ordered("0"), ordered("1")], ..AtomicBatch::default() };
    assert_eq!(write(&service, batch).await.unwrap(), Outcome::Applied);
    assert_eq!(service.sent().len(), 1);
}

#[tokio::test]
async fn an_equal_order_with_another_value_is_invalid() {
    let none = || because("None");
    let equal = condition_failed("another", Some("5"));
    let service = ScriptedDynamoDb::new([cancelled([none(), none(), equal, none(), none()])]);
    assert_eq!(write(&service, batch()).await.unwrap_err().kind(), ErrorKind::Invalid);
}

#[tokio::test]
async fn a_transaction_that_conflicts_with_another_is_sent_again_with_a_new_token() {
    for code in ["TransactionConflict", "ProvisionedThroughputExceeded", "ThrottlingError"] {
        let none = || because("None");
        let service = ScriptedDynamoDb::new([
            cancelled([
                none(),
                because(code),
                condition_failed("newer", Some("9")),
                none(),
                none(),
            ]),
            ScriptedReply::Answer(json!({})),
        ]);
        let start = service.time.clock().now();
        assert_eq!(write(&service, batch()).await.unwrap(), Outcome::Applied, "{code}");
        assert!(service.time.clock().now() > start, "the second attempt did not wait");
        let sent = service.sent();
        assert_eq!(rows(&sent[0]), rows(&sent[1]));
        assert_ne!(token(&sent[0]), token(&sent[1]));
    }
}

#[tokio::test]
async fn a_conflict_that_lasts_is_unavailable() {
    let reasons = [because("TransactionConflict"), because("None")];
    let service = ScriptedDynamoDb::new(vec![cancelled(reasons); 100]);
    let batch = AtomicBatch { puts: vec![put("0"), put("1")], ..AtomicBatch::default() };
    assert_eq!(write(&service, batch).await.unwrap_err().kind(), ErrorKind::Unavailable);
}

#[tokio::test]
async fn a_row_that_can_never_be_written_is_invalid() {
    let none = || because("None");
    let reasons = [none(), none(), none(), none(), because("ValidationError")];
    let service = ScriptedDynamoDb::new([cancelled(reasons)]);
    assert_eq!(write(&service, batch()).await.unwrap_err().kind(), ErrorKind::Invalid);
}

#[tokio::test]
async fn a_cancellation_without_reasons_is_definite() {
    let service = ScriptedDynamoDb::new([cancelled([])]);
    assert_eq!(write(&service, batch()).await.unwrap_err().kind(), ErrorKind::Unavailable);
}

#[tokio::test]
async fn a_transaction_without_a_definite_answer_is_never_sent_again() {
    let twice = refused("TransactionInProgressException");
    for reply in [broken(), ScriptedReply::Lost, ScriptedReply::Never, twice] {
        let service = ScriptedDynamoDb::new([reply.clone()]);
        let error = write(&service, batch()).await.unwrap_err();
        assert_eq!(error.kind(), ErrorKind::OutcomeUnknown, "{reply:?}");
        assert_eq!(service.sent().len(), 1);
    }
}

/// An ordered row without its item was judged superseded, and was left out of the second attempt.
#[tokio::test]
async fn a_row_that_was_refused_without_its_item_is_neither_lost_nor_superseded() {
    let failed = || because("ConditionalCheckFailed");
    let none = || because("None");
    for reasons in
        [[none(), none(), failed(), none(), none()], [failed(), none(), none(), none(), none()]]
    {
        let service = ScriptedDynamoDb::new([cancelled(reasons)]);
        let written = service.storage().write_atomic(batch(), service.soon()).await;
        assert_eq!(written.unwrap_err().kind(), ErrorKind::Unavailable);
    }
}
