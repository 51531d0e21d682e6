//! Requests to the API of a node, and what their answers say.

use std::{net::SocketAddr, str, time::Duration};

use clock::Clock;
use ctl::client::{AnswerPieces, ConnectionArgs, NodeAnswer, NodeClient, NodeRequest, NodeTarget};
use hyper::{
    HeaderMap, Method,
    header::{CONTENT_LENGTH, HeaderName, HeaderValue, TRANSFER_ENCODING},
};
use serde_json::Value;

use crate::history::{Event, Outcome, Parent, Record, Row, Version, Written};

/// The longest time that a client waits for an answer. It is longer than the node may take.
pub(crate) const ANSWER_TIMEOUT: Duration = Duration::from_secs(15);

/// A request of HTTP.
#[derive(Clone, Debug)]
pub(crate) struct HttpRequest {
    pub(crate) method: Method,
    pub(crate) path: String,
    pub(crate) headers: Vec<(HeaderName, HeaderValue)>,
    pub(crate) body: String,
}

const REQUEST_ID: HeaderName = HeaderName::from_static("x-request-id");
const IDEMPOTENCY_KEY: HeaderName = HeaderName::from_static("idempotency-key");

impl HttpRequest {
    pub(crate) fn get(path: String) -> HttpRequest {
        HttpRequest { method: Method::GET, path, headers: Vec::new(), body: String::new() }
    }

    /// The request with a request id, which also is its idempotency key if it has one.
    pub(crate) fn with_id(mut self, id: &str, has_key: bool) -> HttpRequest {
        let id = HeaderValue::from_str(id).expect("an id has no other characters");
        self.headers.push((REQUEST_ID, id.clone()));
        if has_key {
            self.headers.push((IDEMPOTENCY_KEY, id));
        }
        self
    }

    fn of_client(&self) -> NodeRequest<'_> {
        let HttpRequest { method, path, headers, body } = self;
        NodeRequest { method: method.clone(), path, headers, body: body.clone().into() }
    }
}

/// A whole answer.
#[derive(Debug)]
pub(crate) struct HttpAnswer {
    pub(crate) status: u16,
    pub(crate) headers: HeaderMap,
    pub(crate) body: String,
}

impl HttpAnswer {
    /// Fails if the end of the connection is the end of the answer: then it may be cut.
    fn of(NodeAnswer { status, headers, body }: NodeAnswer) -> Result<HttpAnswer, String> {
        if !headers.contains_key(CONTENT_LENGTH) && !headers.contains_key(TRANSFER_ENCODING) {
            return Err(format!("an answer without an end: {} bytes", body.len()));
        }
        let body = str::from_utf8(&body).map_err(|error| error.to_string())?.to_owned();
        Ok(HttpAnswer { status: status.as_u16(), headers, body })
    }

    fn header(&self, name: &str) -> Option<&str> {
        self.headers.get(name)?.to_str().ok()
    }
}

fn target(node: SocketAddr) -> Result<NodeTarget, String> {
    ConnectionArgs::default().target(node.into()).map_err(|error| error.to_string())
}

/// Sends a request on a connection of its own. Fails with a reason if no whole answer came, and
/// then nothing is known of the effect.
pub(crate) async fn send(
    clock: &Clock,
    node: SocketAddr,
    request: &HttpRequest,
    patience: Duration,
) -> Result<HttpAnswer, String> {
    let node = target(node)?;
    // The future of the client is large.
    let answer = Box::pin(NodeClient::try_ask(clock, &node, request.of_client(), patience));
    HttpAnswer::of(answer.await?)
}

/// Sends a request whose answer comes in pieces. Fails with a reason if no answer began.
pub(crate) async fn open(
    clock: &Clock,
    node: SocketAddr,
    request: &HttpRequest,
    patience: Duration,
) -> Result<Result<AnswerPieces, NodeAnswer>, String> {
    Box::pin(NodeClient::open(clock, &target(node)?, request.of_client(), patience)).await
}

/// If a request got the answer to another request, returns a made-up answer that the API does not
/// document. The node that a client asks puts the id of the request into the head. A problem also
/// has the id that the owner of the partition knows.
fn of_another(request: &HttpRequest, answer: &HttpAnswer) -> Option<HttpAnswer> {
    let (_, sent) = request.headers.iter().find(|(name, _)| *name == REQUEST_ID)?;
    let (sent, of_head) = (sent.to_str().ok()?, answer.header("x-request-id"));
    let problem: Value = serde_json::from_str(&answer.body).unwrap_or_default();
    let of_body = problem["requestId"].as_str();
    let other = of_head.into_iter().chain(of_body).find(|got| !got.eq_ignore_ascii_case(sent))?;
    let body = format!("request {sent} got the answer to request {other}");
    Some(HttpAnswer { status: 0, headers: HeaderMap::new(), body })
}

/// Sends a request, and reads the answer by `read`.
pub(crate) async fn ask<T>(
    clock: &Clock,
    node: SocketAddr,
    request: &HttpRequest,
    patience: Duration,
    read: impl FnOnce(Result<&HttpAnswer, String>) -> T,
) -> T {
    match send(clock, node, request, patience).await {
        Ok(answer) => read(Ok(of_another(request, &answer).as_ref().unwrap_or(&answer))),
        Err(why) => read(Err(why)),
    }
}

/// Reads the answer of a success by `read`, and any other answer as a problem.
fn outcome(
    answer: Result<&HttpAnswer, String>,
    success: &[u16],
    read: impl FnOnce(&HttpAnswer) -> Option<Outcome>,
) -> Outcome {
    let answer = match answer {
        Ok(answer) => answer,
        Err(why) => return Outcome::Unknown { why },
    };
    let read = match answer.status {
        status if success.contains(&status) => read(answer),
        status => problem(status, &serde_json::from_str(&answer.body).unwrap_or_default()),
    };
    read.unwrap_or_else(|| wrong(answer.status, &answer.body))
}

/// Reads a problem. `None` if no request of the program may get its status.
fn problem(status: u16, problem: &Value) -> Option<Outcome> {
    let code = problem["code"].as_str()?.to_owned();
    match (status, &*code) {
        (503 | 400..=499, _) => Some(Outcome::Refused { status, code }),
        // A command that is not applied is in the log. At level 2 a later leader may replace it.
        (504, "unknown") | (500, "not_applied") => {
            Some(Outcome::Unknown { why: format!("{status}: {problem}") })
        }
        _ => None,
    }
}

fn wrong(status: u16, body: &str) -> Outcome {
    let body: String = body.chars().take(500).collect();
    Outcome::Wrong { why: format!("{status}: {body}") }
}

/// The answer to a command.
pub(crate) fn written(answer: Result<&HttpAnswer, String>) -> Outcome {
    // 201 has a new document.
    outcome(answer, &[200, 201], |answer| {
        let body: Value = serde_json::from_str(&answer.body).ok()?;
        written_of(&body, served_by(answer)).map(Outcome::Written)
    })
}

/// The answers to the commands of a batch. If the batch was refused as a whole, each command was.
pub(crate) fn batch(answer: Result<&HttpAnswer, String>, count: usize) -> Vec<Outcome> {
    let answer = match answer {
        Ok(answer) if answer.status == 200 => answer,
        other => return vec![outcome(other, &[], |_| None); count],
    };
    let body: Value = serde_json::from_str(&answer.body).unwrap_or_default();
    match body["answers"].as_array() {
        Some(answers) if answers.len() == count => {
            answers.iter().map(|of| of_batch(of, served_by(answer))).collect()
        }
        _ => vec![wrong(answer.status, &answer.body); count],
    }
}

fn of_batch(of: &Value, served_by: Option<String>) -> Outcome {
    let status = of["status"].as_u64().and_then(|status| u16::try_from(status).ok()).unwrap_or(0);
    let read = match status {
        200 => written_of(of, served_by).map(Outcome::Written),
        _ => problem(status, of),
    };
    read.unwrap_or_else(|| wrong(status, &of.to_string()))
}

/// Reads the answer to a command. The keys of `newIds` are the raw ids.
fn written_of(body: &Value, served_by: Option<String>) -> Option<Written> {
    let ids = body["newIds"].as_object()?.iter();
    let ids = ids.map(|(raw, id)| Some((raw.parse().ok()?, id.as_u64()?)));
    let mut ids: Vec<(u64, u64)> = ids.collect::<Option<_>>()?;
    ids.sort_unstable();
    let version = Version { epoch: body["epoch"].as_u64()?, offset: body["plogOffset"].as_u64()? };
    Some(Written {
        wlog: body["wlogOffset"].as_u64()?,
        version,
        ids,
        repeated: body["repeated"].as_bool().unwrap_or(false),
        served_by,
    })
}

/// The node of a cluster that did the request.
fn served_by(answer: &HttpAnswer) -> Option<String> {
    answer.header("x-vvm-served-by").map(str::to_owned)
}

/// The answer to a read of a document. 404 `not_found` is that of no document.
pub(crate) fn document(answer: Result<&HttpAnswer, String>) -> Outcome {
    let says_eventual = answer.as_ref().is_ok_and(|answer| says_eventual(answer));
    let outcome = outcome(answer, &[200], |answer| {
        let record = record(&serde_json::from_str(&answer.body).ok()?)?;
        Some(Outcome::Document { record: Some(record), says_eventual })
    });
    match outcome {
        Outcome::Refused { status: 404, code } if code == "not_found" => {
            Outcome::Document { record: None, says_eventual }
        }
        outcome => outcome,
    }
}

fn says_eventual(answer: &HttpAnswer) -> bool {
    answer.header("x-vvm-consistency") == Some("eventual")
}

pub(crate) fn listed(answer: Result<&HttpAnswer, String>) -> Outcome {
    outcome(answer, &[200], |answer| {
        let body: Value = serde_json::from_str(&answer.body).ok()?;
        let documents = body["docs"].as_array()?.iter().map(record);
        let documents =
            documents.map(|record| record.map(|record| (record.row.id, record.version)));
        let next = body.get("next")?;
        if !next.is_null() && !next.is_u64() {
            return None;
        }
        Some(Outcome::Listed { documents: documents.collect::<Option<_>>()?, next: next.as_u64() })
    })
}

pub(crate) fn drawn(answer: Result<&HttpAnswer, String>) -> Outcome {
    outcome(answer, &[200], |answer| {
        let body: Value = serde_json::from_str(&answer.body).ok()?;
        let numbers = body["numbers"].as_array()?.iter();
        let numbers = numbers.map(|number| number.as_str().map(str::to_owned));
        Some(Outcome::Drawn { numbers: numbers.collect::<Option<_>>()? })
    })
}

pub(crate) fn log(answer: Result<&HttpAnswer, String>) -> Outcome {
    outcome(answer, &[200], |answer| {
        let events = answer.body.lines().filter(|line| !line.is_empty()).map(event);
        Some(Outcome::Events { events: events.collect::<Option<_>>()? })
    })
}

/// The outcome of a request to follow a log whose answer is no success.
pub(crate) fn refusal(answer: NodeAnswer) -> Outcome {
    let answer = HttpAnswer::of(answer);
    outcome(answer.as_ref().map_err(String::clone), &[], |_| None)
}

/// Reads a line of a log.
pub(crate) fn event(line: &str) -> Option<Event> {
    let value: Value = serde_json::from_str(line).ok()?;
    Some(Event {
        wlog: value["wlogOffset"].as_u64()?,
        version: Version { epoch: value["epoch"].as_u64()?, offset: value["plogOffset"].as_u64()? },
        request: value["requestId"].as_str()?.to_owned(),
        time_micros: Some(value["timeMicros"].as_u64()?),
        rows: value["rows"]
            .as_array()
            .map_or(Some(Vec::new()), |rows| rows.iter().map(row).collect())?,
    })
}

fn row(value: &Value) -> Option<Row> {
    Some(Row {
        id: value["id"].as_u64()?,
        table: value["table"].as_str()?.to_owned(),
        is_active: value["isActive"].as_bool()?,
        parent: parent(&value["parent"])?,
        fields: value["fields"].clone(),
    })
}

/// The parent, or `Some(None)` if there is none.
fn parent(value: &Value) -> Option<Option<Parent>> {
    if value.is_null() {
        return Some(None);
    }
    let (id, container) = (value["id"].as_u64()?, value["container"].as_str()?.to_owned());
    Some(Some(Parent { id, container }))
}

pub(crate) fn record(value: &Value) -> Option<Record> {
    let version = &value["version"];
    let version =
        Version { epoch: version["epoch"].as_u64()?, offset: version["offset"].as_u64()? };
    Some(Record { row: row(value)?, version })
}

#[cfg(test)]
mod tests {
    use tokio::{
        io::{AsyncReadExt, AsyncWriteExt},
        net::TcpListener,
    };

    use super::*;

    /// Sends a request to a node that gives these bytes as its answer.
    async fn sent(bytes: &[u8]) -> Result<String, String> {
        let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
        let node = listener.local_addr().unwrap();
        let serve = async {
            let (mut stream, _) = listener.accept().await.unwrap();
            assert!(stream.read(&mut [0; 4_096]).await.unwrap() > 0);
            stream.write_all(bytes).await.unwrap();
        };
        let (clock, request) = (Clock::system(), HttpRequest::get("/".to_owned()));
        let (answer, ()) = tokio::join!(send(&clock, node, &request, ANSWER_TIMEOUT), serve);
        answer.map(|answer| answer.body)
    }

    #[tokio::test]
    async fn only_whole_answers_are_answers() {
        let length = b"HTTP/1.1 200 OK\r\nContent-Length: 2\r\n\r\n{}";
        assert_eq!(sent(length).await.as_deref(), Ok("{}"));
        sent(&length[..length.len() - 1]).await.unwrap_err();
        let chunked = b"HTTP/1.1 200 OK\r\nTransfer-Encoding: chunked\r\n\r\n2\r\n{}\r\n0\r\n\r\n";
        assert_eq!(sent(chunked).await.as_deref(), Ok("{}"));
        sent(&chunked[..chunked.len() - 5]).await.unwrap_err();
        sent(b"HTTP/1.1 200 OK\r\n\r\n{}").await.unwrap_err();
    }

    fn answered(status: u16, body: &str) -> HttpAnswer {
        HttpAnswer { status, headers: HeaderMap::new(), body: body.to_owned() }
    }

    fn header(name: &'static str, value: &'static str) -> HeaderMap {
        HeaderMap::from_iter([(HeaderName::from_static(name), HeaderValue::from_static(value))])
    }

    /// A node that sends requests of many clients to another node must not mix up the answers.
    #[test]
    fn the_answer_to_another_request_is_wrong() {
        let request = HttpRequest::get("/".to_owned()).with_id("C7", true);
        for (status, id, body, is_right) in [
            (200, Some("c7"), "{}", true),
            (200, Some("c8"), "{}", false),
            (200, None, "{}", true),
            (503, Some("c7"), r#"{"requestId":"C7"}"#, true),
            (503, Some("c7"), r#"{"requestId":"c8"}"#, false),
        ] {
            let headers = id.map(|id| header("x-request-id", id)).unwrap_or_default();
            let answer = HttpAnswer { headers, ..answered(status, body) };
            let other = of_another(&request, &answer);
            assert_eq!(other.is_none(), is_right, "{status} {id:?} {body}");
            let Some(other) = other else { continue };
            let Outcome::Wrong { why } = written(Ok(&other)) else { panic!() };
            assert_eq!(why, "0: request C7 got the answer to request c8");
            assert!(matches!(batch(Ok(&other), 2)[..], [Outcome::Wrong { .. }, _]));
        }
        let request = HttpRequest::get("/".to_owned());
        let answer = HttpAnswer { headers: header("x-request-id", "c8"), ..answered(200, "{}") };
        assert!(of_another(&request, &answer).is_none(), "no id was sent");
    }

    #[test]
    fn an_answer_is_what_the_api_documents_or_wrong() {
        let outcome = |status, body: &str| written(Ok(&answered(status, body)));
        let done = r#"{"epoch":1,"plogOffset":2,"wlogOffset":3,"newIds":{"10":8,"9":7}}"#;
        let Outcome::Written(written) = outcome(200, done) else { panic!() };
        assert_eq!(written.ids, [(9, 7), (10, 8)]);
        let refused = Outcome::Refused { status: 409, code: "conflict".into() };
        assert_eq!(outcome(409, r#"{"code":"conflict"}"#), refused);
        assert!(matches!(outcome(504, r#"{"code":"unknown"}"#), Outcome::Unknown { .. }));
        for (status, body) in [
            (200, "{}"),
            (200, r#"{"epoch":1,"plogOffset":2,"wlogOffset":3,"newIds":{"a":8}}"#),
            (500, r#"{"code":"internal"}"#),
            (504, r#"{"code":"storage"}"#),
            (409, "{}"),
            (302, r#"{"code":"conflict"}"#),
        ] {
            assert!(matches!(outcome(status, body), Outcome::Wrong { .. }), "{status} {body}");
        }
    }

    #[test]
    fn only_a_command_is_answered_with_201() {
        let done = r#"{"epoch":1,"plogOffset":2,"wlogOffset":3,"newIds":{}}"#;
        assert!(matches!(written(Ok(&answered(201, done))), Outcome::Written(_)));
        let body = r#"{"docs":[],"next":null}"#;
        assert!(matches!(listed(Ok(&answered(200, body))), Outcome::Listed { .. }));
        assert!(matches!(listed(Ok(&answered(201, body))), Outcome::Wrong { .. }));
    }

    #[test]
    fn a_document_that_is_absent_says_what_the_node_said() {
        let mut answer = answered(404, r#"{"code":"not_found"}"#);
        let absent = |says_eventual| Outcome::Document { record: None, says_eventual };
        assert_eq!(document(Ok(&answer)), absent(false));
        answer.headers = header("x-vvm-consistency", "eventual");
        assert_eq!(document(Ok(&answer)), absent(true));
    }

    #[test]
    fn a_part_of_a_line_in_a_whole_log_is_wrong() {
        let line = r#"{"wlogOffset":1,"plogOffset":1,"epoch":1,"requestId":"a","timeMicros":17}"#;
        let Outcome::Events { events } = log(Ok(&answered(200, line))) else { panic!() };
        assert_eq!(events[0].time_micros, Some(17));
        let cut = format!("{line}\n{}", &line[..9]);
        assert!(matches!(log(Ok(&answered(200, &cut))), Outcome::Wrong { .. }));
    }

    #[test]
    fn each_command_of_a_batch_has_its_answer() {
        let done = r#"{"status":200,"epoch":1,"plogOffset":2,"wlogOffset":3,"newIds":{}}"#;
        let refused = r#"{"status":404,"code":"not_found"}"#;
        let body = format!(r#"{{"answers":[{done},{refused}]}}"#);
        let outcomes = batch(Ok(&answered(200, &body)), 2);
        assert!(matches!(outcomes[0], Outcome::Written(_)));
        assert!(matches!(outcomes[1], Outcome::Refused { status: 404, .. }));
        let outcomes = batch(Ok(&answered(200, &body)), 3);
        assert!(matches!(outcomes[..], [Outcome::Wrong { .. }, _, Outcome::Wrong { .. }]));
        let outcomes = batch(Ok(&answered(503, r#"{"code":"stopping"}"#)), 2);
        assert!(matches!(outcomes[..], [_, Outcome::Refused { status: 503, .. }]));
    }
}
