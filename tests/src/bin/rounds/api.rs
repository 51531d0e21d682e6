//! Requests to the API of a node, and what their answers say.

use std::{net::SocketAddr, time::Duration};

use clock::Clock;
use serde_json::Value;
use shop::http_client::unchunked;
use tokio::{
    io::{AsyncReadExt, AsyncWriteExt},
    net::TcpStream,
};

use crate::history::{Event, Outcome, Parent, Record, Row, Version, Written};

/// A client waits so long for an answer at most. It is longer than the node may take.
pub(crate) const ANSWER_TIMEOUT: Duration = Duration::from_secs(15);

/// A request of HTTP.
#[derive(Clone, Debug)]
pub(crate) struct HttpRequest {
    pub(crate) method: &'static str,
    pub(crate) path: String,
    pub(crate) headers: Vec<(&'static str, String)>,
    pub(crate) body: String,
}

impl HttpRequest {
    pub(crate) fn get(path: String) -> HttpRequest {
        HttpRequest { method: "GET", path, headers: Vec::new(), body: String::new() }
    }

    pub(crate) fn bytes(&self, host: SocketAddr) -> Vec<u8> {
        let HttpRequest { method, path, headers, body } = self;
        let mut head = format!("{method} {path} HTTP/1.1\r\nhost: {host}\r\nconnection: close\r\n");
        for (name, value) in headers {
            head += &format!("{name}: {value}\r\n");
        }
        head += &format!("content-length: {}\r\n\r\n{body}", body.len());
        head.into_bytes()
    }
}

/// A whole answer.
#[derive(Debug)]
pub(crate) struct HttpAnswer {
    pub(crate) status: u16,
    /// The head in small letters.
    pub(crate) head: String,
    pub(crate) body: String,
}

/// Sends a request on a connection of its own. Fails with a reason if no whole answer came, and
/// then nothing is known of the effect.
pub(crate) async fn send(
    clock: &Clock,
    node: SocketAddr,
    request: &HttpRequest,
    patience: Duration,
) -> Result<HttpAnswer, String> {
    let exchange = async {
        let mut stream = TcpStream::connect(node).await?;
        stream.write_all(&request.bytes(node)).await?;
        let mut bytes = Vec::new();
        stream.read_to_end(&mut bytes).await?;
        Ok(bytes)
    };
    let deadline = clock.now() + patience;
    let bytes = match clock.timeout_at(deadline, exchange).await {
        Ok(Ok(bytes)) => bytes,
        Ok(Err(error)) => return Err::<_, String>(std::io::Error::to_string(&error)),
        Err(_) => return Err("no answer".to_owned()),
    };
    parse(&bytes).ok_or_else(|| format!("a part of an answer: {} bytes", bytes.len()))
}

/// Parses a whole answer. `None` if it is cut.
fn parse(bytes: &[u8]) -> Option<HttpAnswer> {
    let text = std::str::from_utf8(bytes).ok()?;
    let (head, body) = text.split_once("\r\n\r\n")?;
    let status = head.split(' ').nth(1)?.parse().ok()?;
    let head = head.to_ascii_lowercase();
    let length = head.lines().find_map(|line| line.strip_prefix("content-length: "));
    let body = match length {
        Some(length) => body.get(..length.parse().ok()?)?.to_owned(),
        None if head.contains("transfer-encoding: chunked") => unchunked(body)?,
        None => return None,
    };
    Some(HttpAnswer { status, head, body })
}

/// Sends a request, and reads the answer of a success by `read`.
pub(crate) async fn ask(
    clock: &Clock,
    node: SocketAddr,
    request: &HttpRequest,
    patience: Duration,
    read: impl FnOnce(&HttpAnswer) -> Option<Outcome>,
) -> Outcome {
    let answer = match send(clock, node, request, patience).await {
        Ok(answer) => answer,
        Err(why) => return Outcome::Unknown { why },
    };
    match answer.status {
        200 | 201 => read(&answer).unwrap_or_else(|| Outcome::Unknown {
            why: format!("an answer that makes no sense: {}", answer.body),
        }),
        500 | 502 | 504 => Outcome::Unknown { why: format!("{}: {}", answer.status, answer.body) },
        status => {
            let problem: Value = serde_json::from_str(&answer.body).unwrap_or_default();
            let code = problem["code"].as_str().unwrap_or("no code").to_owned();
            Outcome::Refused { status, code }
        }
    }
}

/// The answer to a command.
pub(crate) fn written(answer: &HttpAnswer) -> Option<Outcome> {
    let body: Value = serde_json::from_str(&answer.body).ok()?;
    written_of(&body, served_by(answer)).map(Outcome::Written)
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
    let name = "x-vvm-served-by: ";
    answer.head.lines().find_map(|line| line.strip_prefix(name)).map(str::to_owned)
}

pub(crate) fn document(answer: &HttpAnswer) -> Option<Outcome> {
    let record = record(&serde_json::from_str(&answer.body).ok()?)?;
    Some(Outcome::Document { record: Some(record), says_eventual: says_eventual(answer) })
}

pub(crate) fn says_eventual(answer: &HttpAnswer) -> bool {
    answer.head.lines().any(|line| line == "x-vvm-consistency: eventual")
}

pub(crate) fn listed(answer: &HttpAnswer) -> Option<Outcome> {
    let body: Value = serde_json::from_str(&answer.body).ok()?;
    let documents = body["docs"].as_array()?.iter().map(record);
    let documents = documents.map(|record| record.map(|record| (record.row.id, record.version)));
    Some(Outcome::Listed {
        documents: documents.collect::<Option<_>>()?,
        next: body["next"].as_u64(),
    })
}

pub(crate) fn drawn(answer: &HttpAnswer) -> Option<Outcome> {
    let body: Value = serde_json::from_str(&answer.body).ok()?;
    let numbers =
        body["numbers"].as_array()?.iter().map(|number| number.as_str().map(str::to_owned));
    Some(Outcome::Drawn { numbers: numbers.collect::<Option<_>>()? })
}

pub(crate) fn log(answer: &HttpAnswer) -> Option<Outcome> {
    let events = answer.body.lines().filter(|line| !line.is_empty()).map(event);
    Some(Outcome::Events { events: events.collect::<Option<_>>()? })
}

/// Reads a line of a log.
pub(crate) fn event(line: &str) -> Option<Event> {
    let value: Value = serde_json::from_str(line).ok()?;
    Some(Event {
        wlog: value["wlogOffset"].as_u64()?,
        version: Version { epoch: value["epoch"].as_u64()?, offset: value["plogOffset"].as_u64()? },
        request: value["requestId"].as_str()?.to_owned(),
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
    use super::*;

    #[test]
    fn only_whole_answers_are_answers() {
        let length = b"HTTP/1.1 200 OK\r\nContent-Length: 2\r\n\r\n{}";
        assert_eq!(parse(length).map(|answer| answer.body).as_deref(), Some("{}"));
        assert!(parse(&length[..length.len() - 1]).is_none());
        let chunked = b"HTTP/1.1 200 OK\r\nTransfer-Encoding: chunked\r\n\r\n2\r\n{}\r\n0\r\n\r\n";
        assert_eq!(parse(chunked).map(|answer| answer.body).as_deref(), Some("{}"));
        let cut = chunked.len() - 5;
        assert!(parse(&chunked[..cut]).is_none());
        assert!(parse(b"HTTP/1.1 200 OK\r\n\r\n").is_none());
    }
}
