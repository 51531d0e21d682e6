use std::{future::poll_fn, pin::pin, sync::Arc, task::Poll, time::Duration};

use aws_credential_types::provider::{
    ProvideCredentials, error::CredentialsError, future::ProvideCredentials as Provided,
};
use aws_sdk_dynamodb::{
    config::Builder,
    primitives::{DateTime, DateTimeFormat},
};
use clock::{Clock, Instant};
use istorage::{AppStorageExt, Consistency, ErrorKind, Key, KeyspaceName, StorageDriver};
use serde_json::json;
use tokio::{
    io::{AsyncReadExt, AsyncWriteExt},
    net::{TcpListener, TcpStream},
};

use crate::{
    DynamoDbConfig, DynamoDbDriver,
    connection::Connection,
    tests::{ScriptedDynamoDb, ScriptedReply, binary, done, storage_of},
};

impl DynamoDbDriver {
    pub(crate) fn connection(&self) -> Arc<Connection> {
        Arc::clone(&self.connection)
    }
}

fn key() -> Key {
    Key::new("p", "c")
}

fn soon() -> Instant {
    Clock::system().now() + Duration::from_secs(10)
}

async fn local(address: std::net::SocketAddr) -> istorage::SharedStorage {
    let config = DynamoDbConfig::local(format!("http://{address}"));
    let driver = DynamoDbDriver::connect(config, Clock::system(), soon()).await.unwrap();
    storage_of(&driver, Clock::system())
}

#[tokio::test]
async fn a_server_that_is_not_there_is_unavailable_to_writes_too() {
    let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
    let address = listener.local_addr().unwrap();
    drop(listener);
    let storage = local(address).await;
    let error = storage.put(key(), "v".into(), soon()).await.unwrap_err();
    assert_eq!(error.kind(), ErrorKind::Unavailable, "{error:?}");
    let error = storage.get(&key(), Consistency::Plain, soon()).await.unwrap_err();
    assert_eq!(error.kind(), ErrorKind::Unavailable, "{error:?}");
}

#[tokio::test]
async fn a_server_that_hangs_up_leaves_the_outcome_unknown() {
    let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
    let storage = local(listener.local_addr().unwrap()).await;
    let hang_up = async {
        let (mut connection, _) = listener.accept().await.unwrap();
        let mut request = [0; 4096];
        assert!(connection.read(&mut request).await.unwrap() > 0);
    };
    let (written, ()) = tokio::join!(storage.put(key(), "v".into(), soon()), hang_up);
    let error = written.unwrap_err();
    assert_eq!(error.kind(), ErrorKind::OutcomeUnknown, "{error:?}");
}

#[derive(Debug)]
struct NoCredentials;

impl ProvideCredentials for NoCredentials {
    fn provide_credentials<'a>(&'a self) -> Provided<'a>
    where
        Self: 'a,
    {
        Provided::ready(Err(CredentialsError::not_loaded("there are none")))
    }
}

#[tokio::test]
async fn without_credentials_nothing_is_sent() {
    let service = ScriptedDynamoDb::new([]);
    let without = |sdk: Builder| sdk.credentials_provider(NoCredentials);
    let driver = service.driver_over(without);
    let storage = storage_of(&driver, service.time.clock());
    let error = storage.put(key(), "v".into(), service.soon()).await.unwrap_err();
    assert_eq!(error.kind(), ErrorKind::Unavailable, "{error:?}");
}

#[tokio::test]
async fn a_closed_driver_sends_nothing() {
    let service = ScriptedDynamoDb::new([]);
    let (driver, keyspace) = (service.driver(), KeyspaceName::new("test").unwrap());
    let storage = storage_of(&driver, service.time.clock());
    driver.close().await;
    driver.close().await;
    let soon = service.soon();
    let kinds = [
        driver.create(&keyspace, soon).await.unwrap_err().kind(),
        driver.open(&keyspace, soon).await.unwrap_err().kind(),
        driver.drop_keyspace(&keyspace, soon).await.unwrap_err().kind(),
        storage.put(key(), "v".into(), soon).await.unwrap_err().kind(),
        storage.get(&key(), Consistency::Plain, soon).await.unwrap_err().kind(),
        storage.server_time(soon).await.unwrap_err().kind(),
    ];
    assert_eq!(kinds, [ErrorKind::Closed; 6]);
}

#[tokio::test]
async fn closing_waits_for_requests_under_way() {
    let service = ScriptedDynamoDb::new([ScriptedReply::Never, done()]);
    let driver = service.driver();
    let storage = storage_of(&driver, service.time.clock());
    let mut call = pin!(storage.put(key(), "v".into(), service.soon()));
    let mut close = pin!(driver.close());
    poll_fn(|context| {
        assert!(call.as_mut().poll(context).is_pending());
        assert!(close.as_mut().poll(context).is_pending());
        Poll::Ready(())
    })
    .await;
    let error = service.patiently(call).await.unwrap_err();
    assert_eq!(error.kind(), ErrorKind::OutcomeUnknown);
    close.await;
    let error = storage.put(key(), "v".into(), service.soon()).await.unwrap_err();
    assert_eq!(error.kind(), ErrorKind::Closed);
}

#[tokio::test]
async fn a_deadline_that_has_passed_sends_nothing() {
    let service = ScriptedDynamoDb::new([]);
    let (driver, keyspace) = (service.driver(), KeyspaceName::new("test").unwrap());
    let error = driver.create(&keyspace, service.time.clock().now()).await.unwrap_err();
    assert_eq!(error.kind(), ErrorKind::Unavailable);
}

#[tokio::test]
async fn a_driver_without_an_answer_keeps_its_deadline() {
    let service = ScriptedDynamoDb::new([ScriptedReply::Never]);
    let (driver, keyspace) = (service.driver(), KeyspaceName::new("test").unwrap());
    let opened = service.patiently(driver.open(&keyspace, service.soon())).await;
    assert_eq!(opened.unwrap_err().kind(), ErrorKind::Unavailable);
}

#[tokio::test]
async fn a_configuration_that_cannot_work_is_invalid() {
    let half =
        DynamoDbConfig { secret_access_key: None, ..DynamoDbConfig::local("http://127.0.0.1:1") };
    let error = DynamoDbDriver::connect(half, Clock::system(), soon()).await.unwrap_err();
    assert_eq!(error.kind(), ErrorKind::Invalid);
}

/// Sends an empty answer to a request, with the date of a clock that is ahead.
async fn answer(connection: &mut TcpStream, ahead: Duration) {
    let mut request = Vec::new();
    // The request is complete when a read ends with `}`, the end of the body. No earlier read ends
    // with `}`.
    while request.last() != Some(&b'}') {
        assert!(connection.read_buf(&mut request).await.unwrap() > 0, "the connection is closed");
    }
    let time = Clock::system().wall() + ahead;
    let date = DateTime::from_millis(time.as_millis() as i64).fmt(DateTimeFormat::HttpDate);
    let head = format!(
        "HTTP/1.1 200 OK\r\nx-amzn-requestid: ID\r\ndate: {}\r\ncontent-length: 2\r\n\r\n{{}}",
        date.unwrap()
    );
    connection.write_all(head.as_bytes()).await.unwrap();
}

/// One connection may lead to one server with a wrong clock. Answers over that connection alone
/// prove nothing.
#[tokio::test]
async fn an_answer_in_doubt_is_followed_by_one_over_another_connection() {
    let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
    let storage = local(listener.local_addr().unwrap()).await;
    let key = key();
    let ask = || async { storage.get(&key, Consistency::Plain, soon()).await.unwrap() };
    let accept = async |ahead| {
        let (mut connection, _) = listener.accept().await.unwrap();
        answer(&mut connection, ahead).await;
        connection
    };
    // A driver that has just started needs answers over three connections, and keeps the last
    // connection.
    tokio::join!(accept(Duration::ZERO), ask());
    tokio::join!(accept(Duration::ZERO), ask());
    let (mut kept, _) = tokio::join!(accept(Duration::ZERO), ask());
    tokio::join!(answer(&mut kept, Duration::ZERO), ask());
    // An answer with a wrong date closes its connection.
    tokio::join!(answer(&mut kept, Duration::from_secs(3_600)), ask());
    tokio::join!(accept(Duration::ZERO), ask());
}

/// A driver that had just started believed the first answer. Now the driver judges no row to have
/// expired until three connections agree about the time. So the driver asks for the time before it
/// reads a row.
#[tokio::test]
async fn a_storage_is_opened_when_three_connections_agree_about_the_time() {
    let described = ScriptedReply::Answer(json!({ "Table": {
        "TableStatus": "ACTIVE",
        "KeySchema": [
            { "AttributeName": "p", "KeyType": "HASH" },
            { "AttributeName": "c", "KeyType": "RANGE" }
        ],
        "AttributeDefinitions": [
            { "AttributeName": "p", "AttributeType": "B" },
            { "AttributeName": "c", "AttributeType": "B" }
        ]
    } }));
    let service = ScriptedDynamoDb::new([described, done(), done()]);
    let (driver, keyspace) = (service.new_driver(), KeyspaceName::new("test").unwrap());
    let storage = driver.open(&keyspace, service.soon()).await.unwrap().unwrap();
    assert_eq!(service.operations(), ["DescribeTable", "GetItem", "DescribeTable"]);
    let gone = json!({ "v": binary(b"v"), "x": { "N": service.bounds().0.to_string() } });
    service.add_reply(ScriptedReply::Answer(json!({ "Item": gone })));
    let row = storage.get(&key(), Consistency::Plain, service.soon()).await;
    assert_eq!(row.unwrap(), None);
}
