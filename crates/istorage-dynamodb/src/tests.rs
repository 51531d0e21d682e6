//! A service that answers by a script, for answers that DynamoDB Local never gives.

use std::{
    collections::{BTreeMap, VecDeque},
    future,
    sync::{Arc, Mutex},
    time::Duration,
};

use aws_credential_types::Credentials;
use aws_sdk_dynamodb::{
    config::{self, BehaviorVersion, Region, SharedHttpClient},
    primitives::{DateTime, DateTimeFormat},
};
use aws_smithy_runtime_api::client::{
    connection::{CaptureSmithyConnection, ConnectionMetadata},
    http::{HttpConnector, HttpConnectorFuture, SharedHttpConnector, http_client_fn},
    orchestrator::{HttpRequest, HttpResponse},
    result::ConnectorError,
};
use aws_smithy_types::{base64, body::SdkBody};
use clock::{Clock, Instant, ManualClock, WallTime};
use istorage::{Guarded, SharedStorage, StorageDriver};
use serde_json::{Value, json};

use crate::{DynamoDbConfig, DynamoDbDriver, storage::DynamoDbStorage, table::KeyspaceTable};

/// The service's reaction to a request.
#[derive(Clone, Debug)]
pub(crate) enum ScriptedReply {
    /// A successful answer.
    Answer(Value),
    /// An answer with a status and a text, which need not come from DynamoDB.
    Raw(u16, String),
    /// The connection breaks before an answer comes.
    Lost,
    /// No answer ever comes.
    Never,
    /// A gateway on the way answers, by a clock that is an hour ahead.
    Gateway,
    /// An answer after this time, with a status.
    Slow(Duration, u16, Value),
}

/// An error of the service with this code.
pub(crate) fn refused(code: &str) -> ScriptedReply {
    let body = json!({ "__type": format!("com.amazonaws.dynamodb.v20120810#{code}") });
    ScriptedReply::Raw(400, body.to_string())
}

/// A failure inside the service.
pub(crate) fn broken() -> ScriptedReply {
    ScriptedReply::Raw(500, json!({ "__type": "InternalServerError" }).to_string())
}

/// A condition that did not hold, with the present item.
pub(crate) fn condition_failed(item: Option<Value>) -> ScriptedReply {
    let body = json!({ "__type": "ConditionalCheckFailedException", "Item": item });
    ScriptedReply::Raw(400, body.to_string())
}

/// An answer that contains nothing but success.
pub(crate) fn done() -> ScriptedReply {
    ScriptedReply::Answer(json!({}))
}

/// A binary attribute.
pub(crate) fn binary(bytes: &[u8]) -> Value {
    json!({ "B": base64::encode(bytes) })
}

/// A range key.
pub(crate) fn columns(ccols: &str) -> Value {
    binary(&[b"\0", ccols.as_bytes()].concat())
}

/// A request as the service got it.
#[derive(Clone, Debug)]
pub(crate) struct SentRequest {
    pub(crate) operation: String,
    pub(crate) body: Value,
}

/// The service: its next answers, and the requests that it got.
#[derive(Clone, Debug)]
pub(crate) struct ScriptedDynamoDb {
    state: Arc<Mutex<ServiceState>>,
    pub(crate) time: ManualClock,
}

#[derive(Debug)]
struct ServiceState {
    replies: VecDeque<ScriptedReply>,
    sent: Vec<SentRequest>,
    /// The port of the open connection. Closing the connection opens the next one.
    port: u16,
    /// The total of the steps of the service's clock.
    clock_ahead: Duration,
    /// The rows that answer requests when the script has no answers left.
    rows: Option<SharedTable>,
    /// How far the dates of the first connections are ahead.
    dates_ahead: Vec<Duration>,
}

/// The rows of a table that several nodes share, by range key.
pub(crate) type SharedTable = Arc<Mutex<BTreeMap<String, Value>>>;

/// The answer of a table to a request.
fn serve(rows: &SharedTable, sent: &SentRequest) -> ScriptedReply {
    let (mut rows, body) = (rows.lock().unwrap(), &sent.body);
    let key = |item: &Value| item["c"]["B"].as_str().unwrap().to_owned();
    match sent.operation.as_str() {
        "Query" => ScriptedReply::Answer(json!({ "Items": rows.values().collect::<Vec<_>>() })),
        "GetItem" => ScriptedReply::Answer(json!({ "Item": rows.get(&key(&body["Key"])) })),
        "PutItem" => {
            let key = key(&body["Item"]);
            let there = rows.get(&key);
            if !condition_holds(body, there) {
                return condition_failed(there.cloned());
            }
            rows.insert(key, body["Item"].clone());
            done()
        }
        "DeleteItem" => {
            let key = key(&body["Key"]);
            let there = rows.get(&key);
            if !condition_holds(body, there) {
                return condition_failed(there.cloned());
            }
            rows.remove(&key);
            done()
        }
        _ => done(),
    }
}

/// Whether the condition of a write holds.
fn condition_holds(write: &Value, there: Option<&Value>) -> bool {
    let values = &write["ExpressionAttributeValues"];
    let expired = there.is_some_and(|there| there["n"] == values[":expired"]);
    match write["ConditionExpression"].as_str().unwrap() {
        "attribute_not_exists(p) OR n = :expired" => there.is_none() || expired,
        "v = :old AND (attribute_not_exists(n) OR n <> :expired)" => {
            there.is_some_and(|there| there["v"] == values[":old"]) && !expired
        }
        other => panic!("a condition that the table does not know: {other}"),
    }
}

impl ScriptedDynamoDb {
    pub(crate) fn new(replies: impl IntoIterator<Item = ScriptedReply>) -> ScriptedDynamoDb {
        let state = ServiceState {
            replies: replies.into_iter().collect(),
            sent: Vec::new(),
            port: 1_000,
            clock_ahead: Duration::ZERO,
            rows: None,
            dates_ahead: Vec::new(),
        };
        ScriptedDynamoDb { state: Arc::new(Mutex::new(state)), time: ManualClock::new(7) }
    }

    /// A service over shared rows. The first connections of the node lead to servers with wrong
    /// clocks.
    pub(crate) fn with_rows(
        rows: &SharedTable,
        time: ManualClock,
        dates_ahead: Vec<Duration>,
    ) -> ScriptedDynamoDb {
        let service = ScriptedDynamoDb { time, ..ScriptedDynamoDb::new([]) };
        {
            let mut state = service.state.lock().unwrap();
            (state.rows, state.dates_ahead) = (Some(Arc::clone(rows)), dates_ahead);
        }
        service
    }

    pub(crate) fn driver(&self) -> DynamoDbDriver {
        self.driver_with(DynamoDbConfig {
            table_prefix: "pre.".to_owned(),
            ..DynamoDbConfig::default()
        })
    }

    pub(crate) fn driver_with(&self, config: DynamoDbConfig) -> DynamoDbDriver {
        self.with_known_time(DynamoDbDriver::with_sdk(
            sdk(self.http_client()),
            config,
            self.time.clock(),
        ))
    }

    /// A driver that has had no answer yet.
    pub(crate) fn new_driver(&self) -> DynamoDbDriver {
        let config =
            DynamoDbConfig { table_prefix: "pre.".to_owned(), ..DynamoDbConfig::default() };
        DynamoDbDriver::with_sdk(sdk(self.http_client()), config, self.time.clock())
    }

    /// A driver over a client with changed settings.
    pub(crate) fn driver_over(
        &self,
        change: impl FnOnce(config::Builder) -> config::Builder,
    ) -> DynamoDbDriver {
        let sdk = change(sdk(self.http_client()));
        self.with_known_time(DynamoDbDriver::with_sdk(
            sdk,
            DynamoDbConfig::default(),
            self.time.clock(),
        ))
    }

    /// Returns the driver after it has had answers of this service over several connections.
    fn with_known_time(&self, driver: DynamoDbDriver) -> DynamoDbDriver {
        let (connection, now) = (driver.connection(), self.time.clock().now());
        for port in 1..=3 {
            let address = Some(([127, 0, 0, 1], port).into());
            connection.service_clock().add_answer(now, self.date(), address);
        }
        driver
    }

    /// Steps the service's clock so that it is ahead by this time in all.
    pub(crate) fn set_clock_ahead(&self, ahead: Duration) {
        self.state.lock().unwrap().clock_ahead = ahead;
    }

    /// Steps the service's clock ahead by this time.
    pub(crate) fn step_clock(&self, by: Duration) {
        self.state.lock().unwrap().clock_ahead += by;
    }

    /// The number of connections that were closed.
    pub(crate) fn closed(&self) -> u16 {
        self.state.lock().unwrap().port - 1_000
    }

    /// The service's time, an hour ahead of the node's wall clock.
    fn date(&self) -> WallTime {
        let wall = self.time.clock().wall() + self.state.lock().unwrap().clock_ahead;
        let millis = wall.as_millis() + 3_600_000;
        WallTime::from_millis(millis / 1_000 * 1_000)
    }

    /// The earliest and the latest possible millisecond of the service's time, for a driver with
    /// one new answer.
    pub(crate) fn bounds(&self) -> (u64, u64) {
        (self.date().as_millis(), self.date().as_millis() + 1_000)
    }

    /// The keyspace `test`, opened without a check that its table exists.
    pub(crate) fn storage(&self) -> SharedStorage {
        storage_of(&self.driver(), self.time.clock())
    }

    fn http_client(&self) -> SharedHttpClient {
        let connector = SharedHttpConnector::new(self.clone());
        http_client_fn(move |_, _| connector.clone())
    }

    /// Adds an answer to the script.
    pub(crate) fn add_reply(&self, reply: ScriptedReply) {
        self.state.lock().unwrap().replies.push_back(reply);
    }

    /// All requests so far.
    pub(crate) fn sent(&self) -> Vec<SentRequest> {
        self.state.lock().unwrap().sent.clone()
    }

    pub(crate) fn operations(&self) -> Vec<String> {
        self.sent().into_iter().map(|sent| sent.operation).collect()
    }

    /// The one request that the service got.
    pub(crate) fn only_request(&self) -> SentRequest {
        let sent = self.sent();
        assert_eq!(sent.len(), 1, "{sent:?}");
        sent.into_iter().next().unwrap()
    }

    pub(crate) fn soon(&self) -> Instant {
        self.time.clock().now() + Duration::from_secs(10)
    }

    /// Lets time pass while a call waits.
    pub(crate) async fn patiently<T>(&self, call: impl Future<Output = T>) -> T {
        let mut call = std::pin::pin!(call);
        loop {
            tokio::select! {
                biased;
                output = &mut call => return output,
                () = tokio::task::yield_now() => self.time.advance(Duration::from_millis(1)),
            }
        }
    }
}

impl ScriptedDynamoDb {
    /// How far the date of the connection is ahead.
    fn date_ahead(&self) -> Duration {
        let state = self.state.lock().unwrap();
        state.dates_ahead.get(usize::from(state.port - 1_000)).copied().unwrap_or_default()
    }

    /// Lets the driver see, and close, the connection of a request.
    fn show_connection(&self, request: &HttpRequest) {
        let Some(capture) = request.extension::<CaptureSmithyConnection>() else { return };
        let (state, port) = (Arc::clone(&self.state), self.state.lock().unwrap().port);
        let connection = ConnectionMetadata::builder()
            .proxied(false)
            .local_addr(([127, 0, 0, 1], port).into())
            .poison_fn(move || {
                let mut state = state.lock().unwrap();
                state.port = state.port.max(port + 1);
            })
            .build();
        capture.set_connection_retriever(move || Some(connection.clone()));
    }

    fn response(&self, status: u16, body: String, ahead: Duration) -> HttpResponse {
        let date = DateTime::from_millis((self.date() + ahead).as_millis() as i64);
        let date = date.fmt(DateTimeFormat::HttpDate).unwrap();
        let mut response = HttpResponse::new(status.try_into().unwrap(), SdkBody::from(body));
        response.headers_mut().insert("date", date);
        response.headers_mut().insert("x-amzn-requestid", "ID");
        response
    }
}

impl HttpConnector for ScriptedDynamoDb {
    fn call(&self, request: HttpRequest) -> HttpConnectorFuture {
        let target = request.headers().get("x-amz-target").unwrap();
        let operation = target.rsplit('.').next().unwrap().to_owned();
        let body = serde_json::from_slice(request.body().bytes().unwrap()).unwrap();
        self.show_connection(&request);
        let reply = {
            let mut state = self.state.lock().unwrap();
            let sent = SentRequest { operation, body };
            let reply = state.replies.pop_front();
            let reply = reply.or_else(|| state.rows.as_ref().map(|rows| serve(rows, &sent)));
            state.sent.push(sent);
            reply.unwrap_or_else(|| panic!("a request too many: {:?}", state.sent.last()))
        };
        let respond = |status, body| {
            let response = self.response(status, body, self.date_ahead());
            HttpConnectorFuture::ready(Ok(response))
        };
        match reply {
            ScriptedReply::Answer(body) => respond(200, body.to_string()),
            ScriptedReply::Raw(status, body) => respond(status, body),
            ScriptedReply::Lost => {
                HttpConnectorFuture::ready(Err(ConnectorError::io("the connection broke".into())))
            }
            ScriptedReply::Never => HttpConnectorFuture::new(future::pending()),
            ScriptedReply::Gateway => {
                let text = "<html>no healthy upstream</html>".to_owned();
                let mut response = self.response(503, text, Duration::from_secs(3_600));
                response.headers_mut().remove("x-amzn-requestid");
                HttpConnectorFuture::ready(Ok(response))
            }
            ScriptedReply::Slow(time, status, body) => {
                let clock = self.time.clock();
                let response = self.response(status, body.to_string(), Duration::ZERO);
                HttpConnectorFuture::new(async move {
                    clock.sleep(time).await;
                    Ok(response)
                })
            }
        }
    }
}

/// A client of DynamoDB for tests, over any HTTP client.
pub(crate) fn sdk(http: SharedHttpClient) -> config::Builder {
    config::Builder::new()
        .behavior_version(BehaviorVersion::latest())
        .region(Region::new("test"))
        .credentials_provider(Credentials::new("id", "secret", None, None, "test"))
        .http_client(http)
}

/// The keyspace `test` of a driver, opened without a check that its table exists.
pub(crate) fn storage_of(driver: &DynamoDbDriver, clock: Clock) -> SharedStorage {
    assert_eq!(driver.name(), "dynamodb");
    let table = KeyspaceTable::new(driver.connection(), "pre.test".to_owned());
    Arc::new(Guarded::new(Arc::new(DynamoDbStorage(table)), clock))
}
