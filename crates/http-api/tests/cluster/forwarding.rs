//! Requests to a node that does not own the partition: the client gets the answer of the owner.

use std::io::{Read as _, Write as _};

use http_api::HttpApiSettings;
use serde_json::Value;
use shop::{
    http_client::{command_path, logged, request, try_request, workspace_path},
    processor::MOST_RESULT_BYTES,
};

use crate::support::{Answer, NodeOptions, ROW, TestCluster, WS, connect};

fn docs(rest: &str) -> String {
    format!("{}/docs/shop.Article{rest}", workspace_path(WS))
}

#[test]
fn each_operation_is_done_by_the_owner() {
    let (owner, entry) = TestCluster::owner_and_entry(None);
    let served_by = owner.api.to_string();
    let path = command_path(WS, "sys.CUD");
    let done = entry.ask("POST", &path, "x-request-id: one\r\n", ROW);
    assert_eq!((done.status, done.header("x-vvm-served-by")), (200, Some(&*served_by)));
    assert_eq!(done.header("x-request-id"), Some("one"));
    assert_eq!(done.header("content-type"), Some("application/json"));
    let id = done.json()["newIds"]["1"].as_u64().unwrap();
    let made = entry.ask("POST", &docs(""), "", r#"{"fields":{}}"#);
    assert_eq!(made.status, 201, "{made:?}");
    let read = entry.ask("GET", &docs(&format!("/{id}")), "", "");
    assert_eq!((read.status, read.json()["id"].as_u64()), (200, Some(id)));
    let tag = read.header("etag").unwrap();
    let expected = format!("if-match: {tag}\r\n");
    let body = r#"{"isActive":false}"#;
    let changed = entry.ask("PATCH", &docs(&format!("/{id}")), &expected, body);
    assert_eq!(changed.status, 200, "{changed:?}");
    let again = entry.ask("PATCH", &docs(&format!("/{id}")), &expected, body);
    assert_eq!((again.status, again.code().as_str()), (409, "conflict"));
    assert_eq!(entry.ask("DELETE", &docs(&format!("/{id}")), "", "").status, 200);
    let list =
        entry.ask("GET", &format!("{}/cdocs/shop.Article?limit=5", workspace_path(WS)), "", "");
    assert_eq!(list.status, 200, "{list:?}");
    let draw = format!("{}/numbers/order/next", workspace_path(WS));
    let drawn = entry.ask("POST", &draw, "", r#"{"count":2}"#);
    assert_eq!((drawn.status, drawn.header("x-vvm-served-by")), (200, Some(&*served_by)));
    // The answers of both nodes are the same, but for the date.
    for path in
        ["/numbers", "/numbers/order", "/numbers/order/peek", "/numbers/order/gaps", "/none"]
    {
        let path = workspace_path(WS) + path;
        let [here, there] =
            [&owner, &entry].map(|node| node.ask("GET", &path, "x-request-id: x\r\n", ""));
        let body = |answer: &Answer| (answer.status, answer.body.clone());
        assert_eq!(body(&here), body(&there), "{path}");
    }
    // No connection is wasted: one connection did all this.
    assert_eq!(
        owner.metric("httpapi_connections{service=\"cluster\"}"),
        1.0,
        "{}",
        owner.metrics()
    );
    assert!(entry.metrics().contains("httpapi_peer_connections{peer="), "{}", entry.metrics());
    entry.stop();
    owner.stop();
}

#[test]
fn the_head_of_an_answer_is_that_of_the_owner() {
    let (owner, entry) = TestCluster::owner_and_entry(None);
    let (_, made) = request(owner.api, "POST", &docs(""), &[], r#"{"fields":{}}"#);
    let path = docs(&format!("/{}", made["newIds"]["1"]));
    for path in [path, workspace_path(WS) + "/wlog", docs("/70000")] {
        let [here, there] = [&owner, &entry].map(|node| {
            let mut stream = connect(node.api);
            let head = format!(
                "HEAD {path} HTTP/1.1\r\nhost: localhost\r\nx-request-id: h\r\nconnection: close\r\n\r\n"
            );
            stream.write_all(head.as_bytes()).unwrap();
            let mut text = String::new();
            stream.read_to_string(&mut text).unwrap();
            let mut lines: Vec<_> = text.lines().filter(|line| !line.starts_with("date")).collect();
            lines.sort_unstable();
            lines.join("\n")
        });
        assert_eq!(here, there, "{path}");
    }
    entry.stop();
    owner.stop();
}

#[test]
fn a_log_is_passed_on_while_it_arrives() {
    const EVENTS: usize = 300;
    let (owner, entry) = TestCluster::owner_and_entry(None);
    // Events of 32 KiB: the log is much larger than the buffers between the nodes.
    let text = "x".repeat(1_000);
    let rows: Vec<_> = (1..=32)
        .map(|id| format!(r#"{{"id":{id},"table":"shop.Article","fields":{{"name":"{text}"}}}}"#))
        .collect();
    let body = format!("{{\"rows\":[{}]}}", rows.join(","));
    for _ in 0..EVENTS {
        assert_eq!(entry.command(WS, "sys.CUD", &body).0, 200);
    }
    let path = format!("{}/wlog?limit=1000000", workspace_path(WS));
    let read = |api| try_request(api, "GET", &path, &[], "").unwrap();
    let [here, there] = [read(owner.api), read(entry.api)];
    assert!(here.1.len() > 8 << 20, "{}", here.1.len());
    assert!(here == there, "the logs differ: {} and {} bytes", here.1.len(), there.1.len());
    assert_eq!(logged(entry.api, WS).len(), EVENTS + 1);
    // A client that reads slowly holds the log back at the owner.
    let mut slow = connect(entry.api);
    let head = format!("GET {path} HTTP/1.1\r\nhost: localhost\r\n\r\n");
    slow.write_all(head.as_bytes()).unwrap();
    slow.read_exact(&mut [0; 100]).unwrap();
    // The answer before it may still be on its way out.
    entry.wait_for(|entry| entry.metric("httpapi_memory_reserved_bytes{of=\"answers\"}") == 0.0);
    assert_eq!(entry.command(WS, "sys.CUD", ROW).0, 200, "a slow log is in nobody's way");
    drop(slow);
    entry.stop();
    owner.stop();
}

#[test]
fn large_bodies_and_answers_are_forwarded() {
    let (owner, entry) = TestCluster::owner_and_entry(None);
    let text = "é".repeat(300_000);
    let body = format!(r#"{{"fields":{{"name":"{text}"}}}}"#);
    let made = entry.ask("POST", &docs(""), "", &body);
    assert_eq!(made.status, 201, "{:.300}", made.body);
    let path = docs(&format!("/{}", made.json()["newIds"]["1"]));
    let read = entry.ask("GET", &path, "", "");
    assert_eq!(read.json()["fields"]["name"].as_str().unwrap(), text);
    let large = "x".repeat((1 << 20) + 1);
    assert_eq!(entry.ask("POST", &docs(""), "", &large).code(), "body_too_large");
    assert_eq!(entry.metric("httpapi_memory_reserved_bytes{of=\"bodies\"}"), 0.0);
    assert_eq!(owner.metric("httpapi_memory_reserved_bytes{of=\"bodies\"}"), 0.0);
    entry.stop();
    owner.stop();
}

/// A node without a seat has not opened the storage of the application. It refused such a read,
/// although the owner can answer.
#[test]
fn a_node_without_a_seat_forwards_a_read_that_any_node_may_answer() {
    let (owner, entry) = TestCluster::owner_and_entry(None);
    let (_, made) = request(owner.api, "POST", &docs(""), &[], r#"{"fields":{}}"#);
    let path = docs(&format!("/{}?consistency=eventual", made["newIds"]["1"]));
    let read = entry.ask("GET", &path, "", "");
    assert_eq!(read.status, 200, "{read:?}");
    assert_eq!(read.header("x-vvm-served-by"), Some(&*owner.api.to_string()));
    entry.stop();
    owner.stop();
}

#[test]
fn one_document_can_be_read_from_the_storage() {
    let cluster = TestCluster::new();
    let options = || NodeOptions { seats: Some(2), ..Default::default() };
    let owner = cluster.owner(options());
    let other = cluster.beside(&owner, options());
    let (_, made) = request(owner.api, "POST", &docs(""), &[], r#"{"fields":{}}"#);
    let path = docs(&format!("/{}", made["newIds"]["1"]));
    let own = other.api.to_string();
    // A node need not ask the owner.
    let forwarded = "httpapi_forwarded_total{outcome=\"answered\"}";
    let before = other.metric(forwarded);
    let read = other.ask("GET", &format!("{path}?consistency=eventual"), "", "");
    assert_eq!(
        (read.status, read.header("x-vvm-consistency")),
        (200, Some("eventual")),
        "{read:?}"
    );
    assert_eq!(read.header("x-vvm-served-by"), Some(&*own));
    assert_eq!(other.metric(forwarded), before);
    // A 404 of the storage looked like one of the owner.
    let none = docs("/322685000131999");
    for (query, consistency) in [("?consistency=eventual", Some("eventual")), ("", None)] {
        let read = other.ask("GET", &format!("{none}{query}"), "", "");
        assert_eq!((read.status, read.header("x-vvm-consistency")), (404, consistency), "{read:?}");
    }
    let before = other.metric(forwarded);
    let strong = other.ask("GET", &path, "", "");
    assert_eq!((strong.header("x-vvm-consistency"), &strong.body), (None, &read.body));
    assert_eq!(other.metric(forwarded), before + 1.0);
    for path in [
        format!("{path}?consistency=strong"),
        format!("{}/cdocs/shop.Article?consistency=eventual", workspace_path(WS)),
        format!("{}/wlog?consistency=eventual", workspace_path(WS)),
    ] {
        let refused = other.ask("GET", &path, "", "");
        assert_eq!((refused.status, refused.code().as_str()), (400, "bad_request"), "{path}");
    }
    let absent = other.ask("GET", &docs("/70000?consistency=eventual"), "", "");
    assert_eq!(absent.status, 404, "{absent:?}");
    other.stop();
    owner.stop();
}

/// The node that forwarded to the owner accepted no large answers. A command with a large result
/// was done, and its client got a 504 at each try.
#[test]
fn the_answer_to_a_write_comes_through_whatever_its_size() {
    let cluster = TestCluster::new();
    let owner = cluster.owner(NodeOptions::default());
    // This limit is for the answers to reads.
    let change: fn(&mut HttpApiSettings) = |settings| settings.answers_bytes = 32 << 10;
    let entry = cluster.entry(NodeOptions { change: Some(change), ..NodeOptions::default() });
    let args =
        |bytes: usize| format!(r#""args":{bytes},"rows":[{{"id":1,"table":"shop.Article"}}]"#);
    let path = command_path(WS, "shop.Result");
    let send =
        |headers: &str, bytes| entry.ask("POST", &path, headers, &format!("{{{}}}", args(bytes)));
    let result = |json: &Value| json["result"].as_str().map(str::len);
    let largest = Some(MOST_RESULT_BYTES - 2);
    for headers in ["", "idempotency-key: large\r\n", "idempotency-key: large\r\n"] {
        let done = send(headers, MOST_RESULT_BYTES);
        assert_eq!((done.status, result(&done.json())), (200, largest), "{headers}");
    }
    let draw = format!("{}/numbers/order/next", workspace_path(WS));
    let drawn = entry.ask("POST", &draw, "", r#"{"count":1000}"#);
    assert_eq!((drawn.status, drawn.json()["numbers"].as_array().unwrap().len()), (200, 1_000));
    // A larger result is refused before anything is written.
    let events = logged(owner.api, WS).len();
    assert_eq!(events, 1 + 2);
    for (node, headers) in [(&entry, ""), (&entry, "idempotency-key: larger\r\n"), (&owner, "")] {
        let body = format!("{{{}}}", args(MOST_RESULT_BYTES + 1));
        let refused = node.ask("POST", &path, headers, &body);
        assert_eq!((refused.status, refused.code().as_str()), (413, "too_large"), "{refused:?}");
    }
    assert_eq!(logged(owner.api, WS).len(), events);
    entry.stop();
    owner.stop();
}

/// Each command of a batch could have the largest result. Both nodes kept the answer of the batch
/// in memory, of up to 1.8 GB.
#[test]
fn the_commands_of_a_batch_share_the_room_of_one_result() {
    let (owner, entry) = TestCluster::owner_and_entry(None);
    let path = format!("{}/commands", workspace_path(WS));
    let send = |id: &str, results: &[usize]| {
        let commands = results.iter().map(|bytes| {
            let row = r#"[{"id":1,"table":"shop.Article"}]"#;
            format!(r#"{{"command":"shop.Result","args":{bytes},"rows":{row}}}"#)
        });
        let body = format!(r#"{{"commands":[{}]}}"#, commands.collect::<Vec<_>>().join(","));
        let headers = format!("x-request-id: {id}\r\nidempotency-key: {id}\r\n");
        let answer = entry.ask("POST", &path, &headers, &body);
        assert_eq!(answer.status, 200, "{id}: {:.300}", answer.body);
        answer.json()["answers"].as_array().unwrap().clone()
    };
    let results = |answers: &[Value]| -> Vec<_> {
        let result = |answer: &Value| answer["result"].as_str().map(|text| text.len() + 2);
        answers.iter().map(|answer| (answer["status"].as_u64().unwrap(), result(answer))).collect()
    };
    let most = MOST_RESULT_BYTES / 3;
    // The second time the results are those that are stored.
    for _ in 0..2 {
        let answers = send("three", &[most, most + 1, most]);
        let expected = [(200, Some(most)), (413, None), (200, Some(most))];
        assert_eq!(results(&answers), expected);
        assert_eq!(answers[1]["code"], "too_large");
        let reason = answers[1]["reason"].as_str().unwrap();
        let why = format!("has {} bytes, and at most {most} are allowed here; ", most + 1);
        assert!(reason.contains(&why) && reason.ends_with("in a smaller batch"), "{reason}");
    }
    let one = send("one", &[MOST_RESULT_BYTES]);
    assert_eq!(results(&one), [(200, Some(MOST_RESULT_BYTES))]);
    let most = MOST_RESULT_BYTES / 100;
    let all = send("many", &[most; 100]);
    assert_eq!(results(&all), vec![(200, Some(most)); 100]);
    let events = logged(owner.api, WS);
    let count = |id| events.iter().filter(|event| *event == id).count();
    assert_eq!([count("three"), count("one"), count("many")], [2, 1, 100]);
    entry.stop();
    owner.stop();
}
