use std::time::Duration;

use clock::Instant;
use futures::TryStreamExt;
use istorage::{
    AppStorageExt, AtomicBatch, Conditional, Consistency, ErrorKind, Key, KeyspaceName, Order,
    OrderedPut, Put, Range, SharedStorage, StorageDriver,
};
use serde_json::{Value, json};

use crate::{
    Billing, DynamoDbConfig,
    table::SHOWN_WITHIN,
    tests::{ScriptedDynamoDb, ScriptedReply, broken, done, refused},
};

const SECOND: Duration = Duration::from_secs(1);

fn keyspace() -> KeyspaceName {
    KeyspaceName::new("test").unwrap()
}

/// A description of this driver's table, with this status and identity.
fn table(status: &str, id: &str) -> Value {
    json!({
        "TableStatus": status,
        "TableId": id,
        "KeySchema": [
            { "AttributeName": "p", "KeyType": "HASH" },
            { "AttributeName": "c", "KeyType": "RANGE" }
        ],
        "AttributeDefinitions": [
            { "AttributeName": "c", "AttributeType": "B" },
            { "AttributeName": "p", "AttributeType": "B" }
        ]
    })
}

fn described(status: &str) -> ScriptedReply {
    ScriptedReply::Answer(json!({ "Table": table(status, "1") }))
}

fn described_as(status: &str, id: &str) -> ScriptedReply {
    ScriptedReply::Answer(json!({ "Table": table(status, id) }))
}

fn no_table() -> ScriptedReply {
    refused("ResourceNotFoundException")
}

fn ttl(status: &str, attribute: &str) -> ScriptedReply {
    let description = json!({ "TimeToLiveStatus": status, "AttributeName": attribute });
    ScriptedReply::Answer(json!({ "TimeToLiveDescription": description }))
}

fn no_ttl() -> ScriptedReply {
    ScriptedReply::Answer(json!({ "TimeToLiveDescription": { "TimeToLiveStatus": "DISABLED" } }))
}

async fn create(service: &ScriptedDynamoDb) -> istorage::Result<()> {
    let driver = service.driver();
    service.patiently(driver.create(&keyspace(), service.soon())).await
}

async fn is_there(service: &ScriptedDynamoDb) -> istorage::Result<bool> {
    let driver = service.driver();
    // The answer to the first read of a row.
    service.add_reply(done());
    let opened = service.patiently(driver.open(&keyspace(), service.soon())).await?;
    Ok(opened.is_some())
}

async fn remove(service: &ScriptedDynamoDb) -> istorage::Result<()> {
    let driver = service.driver();
    service.patiently(driver.drop_keyspace(&keyspace(), service.soon())).await
}

#[tokio::test]
async fn a_table_is_created_and_waited_for() {
    let service = ScriptedDynamoDb::new([
        no_table(),
        done(),
        // The description may be outdated.
        no_table(),
        refused("ResourceInUseException"),
        described("CREATING"),
        described("ACTIVE"),
        no_ttl(),
        done(),
    ]);
    create(&service).await.unwrap();
    let sent = service.sent();
    assert_eq!(sent[1].operation, "CreateTable");
    assert_eq!(
        sent[1].body,
        json!({
            "TableName": "pre.test",
            "KeySchema": table("", "")["KeySchema"],
            "AttributeDefinitions": [
                { "AttributeName": "p", "AttributeType": "B" },
                { "AttributeName": "c", "AttributeType": "B" }
            ],
            "BillingMode": "PAY_PER_REQUEST"
        })
    );
    assert_eq!(sent[7].operation, "UpdateTimeToLive");
    let setting = json!({ "Enabled": true, "AttributeName": "t" });
    assert_eq!(sent[7].body["TimeToLiveSpecification"], setting);
}

#[tokio::test]
async fn a_table_can_be_billed_by_capacity() {
    let service =
        ScriptedDynamoDb::new([no_table(), done(), described("ACTIVE"), ttl("ENABLED", "t")]);
    let billing = Billing::Provisioned { read_units: 3, write_units: 4 };
    let driver = service.driver_with(DynamoDbConfig { billing, ..DynamoDbConfig::default() });
    service.patiently(driver.create(&keyspace(), service.soon())).await.unwrap();
    let body = service.sent()[1].body.clone();
    assert_eq!(body["TableName"], "vvm.test");
    assert_eq!(body["BillingMode"], "PROVISIONED");
    let capacity = json!({ "ReadCapacityUnits": 3, "WriteCapacityUnits": 4 });
    assert_eq!(body["ProvisionedThroughput"], capacity);
}

#[tokio::test]
async fn an_existing_table_is_left_alone() {
    let service = ScriptedDynamoDb::new([described("ACTIVE"), ttl("ENABLING", "t")]);
    create(&service).await.unwrap();
    assert_eq!(service.operations(), ["DescribeTable", "DescribeTimeToLive"]);
}

#[tokio::test]
async fn a_table_that_is_being_removed_is_created_again_afterwards() {
    let service = ScriptedDynamoDb::new([
        described("DELETING"),
        no_table(),
        done(),
        described("ACTIVE"),
        ttl("ENABLED", "t"),
    ]);
    create(&service).await.unwrap();
    assert_eq!(service.operations()[2], "CreateTable");
}

#[tokio::test]
async fn a_lost_answer_does_not_keep_a_table_from_being_created() {
    for failure in [broken(), ScriptedReply::Lost, refused("LimitExceededException")] {
        let service = ScriptedDynamoDb::new([
            no_table(),
            failure,
            described("ACTIVE"),
            no_ttl(),
            ScriptedReply::Lost,
            ttl("ENABLING", "t"),
        ]);
        create(&service).await.unwrap();
    }
}

#[tokio::test]
async fn another_node_may_turn_the_expiry_on_first() {
    let service = ScriptedDynamoDb::new([
        described("ACTIVE"),
        no_ttl(),
        refused("ValidationException"),
        ttl("ENABLING", "t"),
    ]);
    create(&service).await.unwrap();
}

#[tokio::test]
async fn a_step_that_is_refused_until_the_deadline_is_reported() {
    let service = ScriptedDynamoDb::new([no_table(), refused("AccessDeniedException")]);
    let error = create(&service).await.unwrap_err();
    assert_eq!(error.kind(), ErrorKind::Unavailable);
    assert!(format!("{error:?}").contains("AccessDenied"), "{error:?}");
    let limited = [no_table(), refused("LimitExceededException")];
    let service = ScriptedDynamoDb::new((0..100).flat_map(|_| limited.clone()));
    let error = create(&service).await.unwrap_err();
    assert_eq!(error.kind(), ErrorKind::Unavailable);
    assert!(format!("{error:?}").contains("LimitExceeded"), "{error:?}");
}

#[tokio::test]
async fn a_foreign_table_is_not_touched() {
    let foreign = |change: fn(&mut Value)| {
        let mut table = table("ACTIVE", "1");
        change(&mut table);
        ScriptedReply::Answer(json!({ "Table": table }))
    };
    let changes: [fn(&mut Value); 4] = [
        |table| table["KeySchema"][0]["AttributeName"] = json!("id"),
        |table| drop(table["KeySchema"].as_array_mut().unwrap().pop()),
        |table| table["AttributeDefinitions"][0]["AttributeType"] = json!("S"),
        |table| {
            table["KeySchema"][0]["KeyType"] = json!("RANGE");
            table["KeySchema"][1]["KeyType"] = json!("HASH");
        },
    ];
    for change in changes {
        let service = ScriptedDynamoDb::new(vec![foreign(change); 3]);
        let kinds = [
            create(&service).await.unwrap_err().kind(),
            remove(&service).await.unwrap_err().kind(),
            is_there(&service).await.unwrap_err().kind(),
        ];
        assert_eq!(kinds, [ErrorKind::Corrupt; 3]);
        assert_eq!(service.operations(), ["DescribeTable"; 3]);
    }
}

#[tokio::test]
async fn a_table_with_another_ttl_attribute_is_foreign() {
    let service = ScriptedDynamoDb::new([described("ACTIVE"), ttl("ENABLED", "expires")]);
    assert_eq!(create(&service).await.unwrap_err().kind(), ErrorKind::Corrupt);
}

#[tokio::test]
async fn open_waits_for_a_table_that_is_being_created() {
    let service = ScriptedDynamoDb::new([
        described("CREATING"),
        described("CREATING"),
        described("UPDATING"),
    ]);
    assert!(is_there(&service).await.unwrap());
}

#[tokio::test]
async fn a_table_that_is_missing_or_being_removed_does_not_exist() {
    for missing in [no_table(), described("DELETING")] {
        assert!(!is_there(&ScriptedDynamoDb::new([missing])).await.unwrap());
    }
}

#[tokio::test]
async fn a_table_that_cannot_be_used_is_unavailable() {
    let service = ScriptedDynamoDb::new([described("INACCESSIBLE_ENCRYPTION_CREDENTIALS")]);
    assert_eq!(is_there(&service).await.unwrap_err().kind(), ErrorKind::Unavailable);
    let service = ScriptedDynamoDb::new(vec![described("CREATING"); 100]);
    assert_eq!(is_there(&service).await.unwrap_err().kind(), ErrorKind::Unavailable);
}

#[tokio::test]
async fn removing_waits_until_the_table_is_gone() {
    let service = ScriptedDynamoDb::new([
        described("CREATING"),
        described("ACTIVE"),
        refused("ResourceInUseException"),
        described("ACTIVE"),
        done(),
        // The description may be outdated.
        described("ACTIVE"),
        described("DELETING"),
        no_table(),
    ]);
    remove(&service).await.unwrap();
    let deletes = service.operations().iter().filter(|name| *name == "DeleteTable").count();
    assert_eq!(deletes, 2);
    assert!(service.sent().iter().all(|sent| sent.body["TableName"] == "pre.test"));
}

#[tokio::test]
async fn a_table_that_is_created_during_a_removal_stays() {
    let service = ScriptedDynamoDb::new([
        described_as("ACTIVE", "1"),
        done(),
        described_as("DELETING", "1"),
        described_as("ACTIVE", "2"),
    ]);
    remove(&service).await.unwrap();
}

#[tokio::test]
async fn removing_a_missing_table_succeeds() {
    let service = ScriptedDynamoDb::new([no_table(), described("ACTIVE"), no_table(), no_table()]);
    remove(&service).await.unwrap();
    // Another node has removed the table earlier.
    remove(&service).await.unwrap();
}

/// Right after a new table was active, another server answered that there is no such table. The
/// node judged its keyspace to be lost and ended with code 3. So nodes that started together did
/// not come up.
#[tokio::test]
async fn a_table_that_was_just_created_is_not_lost_because_a_server_does_not_know_it_yet() {
    let service = ScriptedDynamoDb::new([
        no_table(),
        done(),
        described("ACTIVE"),
        // Another server answers the request about expiry.
        no_table(),
        no_ttl(),
        no_table(),
        no_ttl(),
        done(),
    ]);
    let driver = service.driver();
    service.patiently(driver.create(&keyspace(), service.soon())).await.unwrap();
    // Another server describes the table, and a third server answers for rows.
    for reply in [no_table(), described("ACTIVE"), no_table(), no_table(), done()] {
        service.add_reply(reply);
    }
    let opened = service.patiently(driver.open(&keyspace(), service.soon())).await;
    let storage = opened.unwrap().unwrap();
    assert_eq!(service.operations()[10..], ["GetItem"; 3]);
    // The time comes from a server that does not know the table.
    service.add_reply(no_table());
    assert!(storage.server_time(service.soon()).await.unwrap().is_some());
}

/// Makes one call of each kind of call for rows.
async fn call(kind: usize, storage: &SharedStorage, deadline: Instant) -> istorage::Result<()> {
    let put = |ccols| Put { key: Key::new("p", ccols), value: "v".into() };
    let insert = || Conditional::Insert { ccols: "c".into(), value: "v".into(), ttl: None };
    let key = Key::new("p", "c");
    match kind {
        0 => storage.get(&key, Consistency::Plain, deadline).await.map(drop),
        1 => storage.get_values(&[key], deadline).await.map(drop),
        2 => {
            let rows = storage.ttl_read("p".into(), Range::all(), SECOND);
            rows.try_collect::<Vec<_>>().await.map(drop)
        }
        3 => storage.put_batch(vec![put("1")], deadline).await,
        4 => storage.put_batch(vec![put("1"), put("2")], deadline).await,
        5 => {
            let order = Order::new(1).unwrap();
            let put = OrderedPut { key, value: "v".into(), order, ttl: None };
            storage.put_ordered(vec![put], deadline).await
        }
        6 => storage.write_if("p".into(), vec![insert()], deadline).await.map(drop),
        7 => storage.compare_and_delete(key, "v".into(), deadline).await.map(drop),
        _ => {
            let conditionals = vec![("p".into(), insert())];
            let batch = AtomicBatch { conditionals, puts: vec![put("1")], ..Default::default() };
            storage.write_atomic(batch, deadline).await.map(drop)
        }
    }
}

/// One server of rows had answered for a new table. Then another server, which did not know the
/// table yet, answered the first look of the election. The node judged its keyspace to be lost and
/// ended.
#[tokio::test]
async fn a_table_is_not_lost_because_a_server_of_rows_does_not_know_it_yet() {
    for kind in 0..9 {
        let service = ScriptedDynamoDb::new([described("ACTIVE"), done()]);
        let driver = service.driver();
        let opened = service.patiently(driver.open(&keyspace(), service.soon())).await;
        let (storage, clock) = (opened.unwrap().unwrap(), service.time.clock());
        let opened = clock.now();
        for reply in [no_table(), no_table(), done()] {
            service.add_reply(reply);
        }
        let soon = clock.now() + SECOND;
        service.patiently(call(kind, &storage, soon)).await.unwrap();
        // A call that gets no other answer did nothing, and the table is not lost.
        (0..20).for_each(|_| service.add_reply(no_table()));
        let soon = clock.now() + SECOND;
        let error = service.patiently(call(kind, &storage, soon)).await.unwrap_err();
        assert_eq!(error.kind(), ErrorKind::Unavailable, "call {kind}: {error:?}");
        // Once every server must know the table, the table is lost.
        service.time.advance(opened + SHOWN_WITHIN - clock.now());
        let error = call(kind, &storage, clock.now() + SECOND).await.unwrap_err();
        assert_eq!(error.kind(), ErrorKind::Corrupt, "call {kind}: {error:?}");
    }
}

/// A deadline must not turn "not yet" into "lost".
#[tokio::test]
async fn a_new_table_that_is_never_shown_is_unavailable_at_the_deadline() {
    let service = ScriptedDynamoDb::new([described("ACTIVE"), ttl("ENABLED", "t")]);
    let driver = service.driver();
    service.patiently(driver.create(&keyspace(), service.soon())).await.unwrap();
    (0..100).for_each(|_| service.add_reply(no_table()));
    let soon = service.time.clock().now() + 5 * SECOND;
    let opened = service.patiently(driver.open(&keyspace(), soon)).await;
    assert_eq!(opened.unwrap_err().kind(), ErrorKind::Unavailable);
    // Another node has dropped the table. After some seconds the driver believes that the table is
    // gone.
    let opened = service.patiently(driver.open(&keyspace(), service.soon() + SHOWN_WITHIN)).await;
    assert!(opened.unwrap().is_none());
}
