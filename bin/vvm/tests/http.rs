//! Clients that are slow, broken or many, or that ask for impossible things.

#![allow(clippy::unwrap_used, clippy::disallowed_methods)]

#[path = "support/in_memory.rs"]
mod in_memory;
#[path = "support/node.rs"]
mod node;

use std::{
    io::{Read, Write},
    net::TcpStream,
    thread::sleep,
    time::{Duration, Instant},
};

use in_memory::{WS, node_with};
use node::{answer, command_path, request, try_request, workspace_path};
use rustix::process::{Pid, Signal, kill_process};

fn code(answer: (u16, serde_json::Value)) -> (u16, String) {
    (answer.0, answer.1["code"].as_str().unwrap_or_else(|| panic!("{}", answer.1)).to_owned())
}

#[test]
fn each_invalid_command_gets_its_code_and_changes_nothing() {
    let (_folder, node) = node_with("body_bytes = 10000");
    let cud = |body: &str| code(node.command(WS, "sys.CUD", body));
    let row = |rest: &str| format!(r#"{{"rows":[{{"id":1,"table":"shop.Article"{rest}}}]}}"#);
    for (body, status, expected) in [
        ("{", 400, "bad_request"),
        ("[]", 400, "bad_request"),
        (r#"{"rows":[]}"#, 400, "invalid"),
        (r#"{"row":[]}"#, 400, "bad_request"),
        (&row(r#","fields":{"nane":"x"}"#), 400, "bad_request"),
        (&row(r#","fields":{"name":1}"#), 400, "bad_request"),
        (&row(r#","fields":{"cents":1,"cents":2}"#), 400, "bad_request"),
        (&row(r#","fields":{"cents":1.5}"#), 400, "bad_request"),
        (&row(r#","version":{"epoch":1,"offset":1}"#), 400, "bad_request"),
        (r#"{"rows":[{"id":1,"table":"shop.None"}]}"#, 400, "bad_request"),
        (r#"{"rows":[{"id":0,"table":"shop.Article"}]}"#, 400, "invalid"),
        // The fields are given by position, which serde would accept for a struct.
        (r#"[null,[{"id":1,"table":"shop.Article"}]]"#, 400, "bad_request"),
        (r#"{"rows":[[1,"shop.Article"]]}"#, 400, "bad_request"),
        (
            r#"{"rows":[{"id":322685000131072,"table":"shop.Line","parent":{"id":1,"container":"lines"}}]}"#,
            400,
            "bad_request",
        ),
        (&row(r#","parent":[1,"lines"]"#), 400, "bad_request"),
        (
            r#"{"rows":[{"id":322685000131072,"table":"shop.Article","version":[1,1]}]}"#,
            400,
            "bad_request",
        ),
        (r#"{"rows":[{"id":99999,"table":"shop.Article"}]}"#, 404, "not_found"),
        (&"[".repeat(5_000), 400, "bad_request"),
        (&row(&format!(r#","fields":{{"name":"{}"}}"#, "x".repeat(20_000))), 413, "body_too_large"),
    ] {
        assert_eq!(cud(body), (status, expected.to_owned()), "{}", &body[..body.len().min(99)]);
    }
    let by_position = node.command(98, "sys.CreateWorkspace", r#"{"args":["Shop","n"]}"#);
    assert_eq!(code(by_position), (400, "invalid".to_owned()));
    let unknown = code(node.command(99, "sys.CUD", &row("")));
    assert_eq!(unknown, (404, "not_found".to_owned()));
    assert_eq!(node.logged(WS).len(), 1, "nothing was written");
    node.stop();
}

#[test]
fn each_invalid_request_for_documents_or_logs_gets_its_code_and_changes_nothing() {
    let (_folder, node) = node_with("");
    let docs = |method, rest: &str, headers: &[(&str, &str)]| {
        code(request(node.api, method, &format!("{}/{rest}", workspace_path(WS)), headers, ""))
    };
    for (rest, expected) in [
        ("wlog?limit=0", "bad_request"),
        ("cdocs/shop.Article?limit=1001", "bad_request"),
        ("wlog?limit=x", "bad_request"),
        ("wlog?from=0", "bad_request"),
        ("wlog?form=1", "bad_request"),
        ("wlog?from=1&from=2", "bad_request"),
        ("docs/shop.Article/322685000131072?limit=1", "bad_request"),
    ] {
        assert_eq!(docs("GET", rest, &[]), (400, expected.to_owned()), "{rest}");
    }
    for rest in ["wlog", "cdocs/shop.Article", "docs/shop.Article/322685000131072"] {
        let path = format!("{}/{rest}", workspace_path(99));
        let answer = request(node.api, "GET", &path, &[], "");
        assert_eq!(code(answer), (404, "not_found".to_owned()), "{rest} of no workspace");
    }
    let not_found = (404, "not_found".to_owned());
    assert_eq!(docs("GET", "docs/shop.Article/322685000131072", &[]), not_found);
    assert_eq!(docs("DELETE", "docs/shop.Article/322685000131072", &[]), not_found);
    // A request without any change is a mistake, and its event could never be undone.
    for (method, rest) in
        [("POST", "docs/shop.Article"), ("PATCH", "docs/shop.Article/322685000131072")]
    {
        assert_eq!(docs(method, rest, &[]).0, 400, "{method} {rest}");
    }
    let made_inactive = request(
        node.api,
        "POST",
        &format!("{}/docs/shop.Article", workspace_path(WS)),
        &[],
        r#"{"isActive":false}"#,
    );
    assert_eq!(code(made_inactive), (400, "bad_request".to_owned()));
    assert_eq!(docs("GET", "none", &[]), not_found);
    assert_eq!(docs("PUT", "docs/shop.Article", &[]).0, 405);
    assert_eq!(docs("GET", "wlog?from=0", &[]).0, 400);
    assert_eq!(docs("GET", "wlog?limit=x", &[]).0, 400);
    assert_eq!(docs("GET", "cdocs/shop.Bill", &[]).0, 400);
    assert_eq!(docs("DELETE", "docs/shop.Article/1", &[("if-match", "1.2")]).0, 400);
    let elsewhere = code(request(node.api, "GET", "/api/v2/apps/a/b/workspaces/1/wlog", &[], ""));
    assert_eq!(elsewhere, not_found);
    assert_eq!(node.logged(WS).len(), 1, "nothing was written");
    node.stop();
}

/// The node wrote such a change although the record was in another table, and could even deactivate
/// an article as a bill.
#[test]
fn a_record_is_changed_only_by_the_name_of_its_own_table() {
    let (_folder, node) = node_with("");
    let article = r#"{"rows":[{"id":1,"table":"shop.Article"}]}"#;
    let id = node.command(WS, "sys.CUD", article).1["newIds"]["1"].as_u64().unwrap();
    let not_found = (404, "not_found".to_owned());
    for rest in
        [r#""table":"shop.Bill","isActive":false"#, r#""table":"shop.Line","fields":{"cents":1}"#]
    {
        let answer = node.command(WS, "sys.CUD", &format!(r#"{{"rows":[{{"id":{id},{rest}}}]}}"#));
        assert_eq!(code(answer), not_found, "{rest}");
    }
    let (path, body) =
        (format!("{}/docs/shop.Bill/{id}", workspace_path(WS)), r#"{"isActive":false}"#);
    assert_eq!(code(request(node.api, "PATCH", &path, &[], body)), not_found);
    assert_eq!(code(request(node.api, "DELETE", &path, &[], "")), not_found);
    // This id is one above the raw ids of new rows in a command.
    let answer = node.command(WS, "sys.CUD", r#"{"rows":[{"id":65536,"table":"shop.Article"}]}"#);
    assert!(answer.1.to_string().contains("shop.Article 65536"), "{}", answer.1);
    assert_eq!(code(answer), not_found);
    assert_eq!(node.logged(WS).len(), 2);
    node.stop();
}

/// An HTTP/1.0 answer ends with its connection. So a log that was cut would look like a complete
/// one.
#[test]
fn a_log_is_refused_to_a_client_that_cannot_see_its_end() {
    let (_folder, node) = node_with("");
    let mut old = TcpStream::connect(node.api).unwrap();
    let head = format!("GET {}/wlog HTTP/1.0\r\nhost: localhost\r\n\r\n", workspace_path(WS));
    old.write_all(head.as_bytes()).unwrap();
    let (status, text) = answer(&mut old).unwrap();
    assert!(status == 505 && text.contains("proxy_http_version"), "{status} {text}");
    node.stop();
}

#[test]
fn a_document_is_created_read_changed_listed_and_deactivated() {
    let (_folder, node) = node_with("");
    let at = |rest: &str| format!("{}/{rest}", workspace_path(WS));
    let article = r#"{"fields":{"name":"Tea","cents":500}}"#;
    let (status, made) = request(node.api, "POST", &at("docs/shop.Article"), &[], article);
    assert_eq!(status, 201, "{made}");
    let id = made["newIds"]["1"].as_u64().unwrap();
    let doc = at(&format!("docs/shop.Article/{id}"));
    let (status, read) = request(node.api, "GET", &doc, &[], "");
    assert_eq!((status, read["fields"]["name"].as_str()), (200, Some("Tea")));
    let tag = format!("\"{}.{}\"", read["version"]["epoch"], read["version"]["offset"]);
    let change = |body| request(node.api, "PATCH", &doc, &[("if-match", &tag)], body);
    assert_eq!(change(r#"{"fields":{"cents":null}}"#).0, 200);
    assert_eq!(code(change(r#"{"fields":{"cents":1}}"#)), (409, "conflict".to_owned()));
    let list = || request(node.api, "GET", &at("cdocs/shop.Article?limit=1"), &[], "").1;
    let listed = list();
    assert_eq!(listed["docs"][0]["id"].as_u64(), Some(id));
    assert!(listed["docs"][0]["fields"].get("cents").is_none(), "{listed}");
    let next = listed["next"].as_u64().unwrap();
    let rest =
        request(node.api, "GET", &at(&format!("cdocs/shop.Article?after={next}")), &[], "").1;
    assert_eq!((rest["docs"].as_array().unwrap().len(), rest["next"].as_u64()), (0, None));
    // The same id is not found among the bills.
    let other = at(&format!("docs/shop.Bill/{id}"));
    assert_eq!(request(node.api, "GET", &other, &[], "").0, 404);
    assert_eq!(request(node.api, "DELETE", &doc, &[("if-match", &tag)], "").0, 409);
    assert_eq!(request(node.api, "DELETE", &doc, &[], "").0, 200);
    assert_eq!(list()["docs"].as_array().unwrap().len(), 0);
    assert_eq!(request(node.api, "GET", &doc, &[], "").1["isActive"], false);
    node.stop();
}

#[test]
fn a_key_makes_a_command_that_can_be_sent_again() {
    let (_folder, node) = node_with("");
    let path = command_path(WS, "sys.CUD");
    let body = r#"{"rows":[{"id":1,"table":"shop.Article","fields":{"name":"Tea"}}]}"#;
    let key = [("idempotency-key", "k"), ("x-request-id", "first")];
    let (status, first) = request(node.api, "POST", &path, &key, body);
    assert_eq!(status, 200);
    let again = [("idempotency-key", "k"), ("x-request-id", "second")];
    let (status, second) = request(node.api, "POST", &path, &again, body);
    assert_eq!((status, &second["newIds"]), (200, &first["newIds"]));
    assert_eq!(second["repeated"], true);
    let (status, _) = request(node.api, "POST", &path, &key, r#"{"rows":[]}"#);
    assert_eq!(status, 422);
    // With the same key and body, another path, method or version makes another request.
    let docs = format!("{}/docs/shop.Article", workspace_path(WS));
    let key = [("idempotency-key", "doc")];
    let (_, made) = request(node.api, "POST", &docs, &key, r#"{"fields":{}}"#);
    let bills = format!("{}/docs/shop.Bill", workspace_path(WS));
    assert_eq!(request(node.api, "POST", &bills, &key, r#"{"fields":{}}"#).0, 422);
    let one = format!("{docs}/{}", made["newIds"]["1"]);
    let (key, named) = ([("idempotency-key", "named")], r#"{"fields":{"name":"Tea"}}"#);
    assert_eq!(request(node.api, "POST", &docs, &key, named).0, 201);
    assert_eq!(request(node.api, "PATCH", &one, &key, named).0, 422);
    let tag = |tag| [("idempotency-key", "tag"), ("if-match", tag)];
    let change = r#"{"fields":{"name":"Tea"}}"#;
    assert_eq!(request(node.api, "PATCH", &one, &tag("\"9.9\""), change).0, 409);
    let (_, read) = request(node.api, "GET", &one, &[], "");
    let now = format!("\"{}.{}\"", read["version"]["epoch"], read["version"]["offset"]);
    assert_eq!(request(node.api, "PATCH", &one, &tag(&now), change).0, 200);
    assert_eq!(request(node.api, "PATCH", &one, &[("idempotency-key", "tag")], change).0, 422);
    // With two keys it is unclear which one counts. A version that the request would not check is
    // refused.
    let twice = [("idempotency-key", "a"), ("idempotency-key", "b")];
    assert_eq!(request(node.api, "POST", &docs, &twice, "").0, 400);
    assert_eq!(request(node.api, "POST", &docs, &[("if-match", &now)], "").0, 400);
    assert_eq!(node.logged(WS)[1], "first");
    assert_eq!(node.logged(WS).len(), 5);
    node.stop();
}

/// The size of its documents limits a page, however few documents that allows: 1,000 of the largest
/// would be 1 GB.
#[test]
fn a_page_of_large_documents_is_short_and_the_last_id_is_the_end() {
    let (_folder, node) = node_with("");
    let text = "x".repeat(600_000);
    for _ in 0..5 {
        let body = format!(r#"{{"fields":{{"name":"{text}"}}}}"#);
        let docs = format!("{}/docs/shop.Article", workspace_path(WS));
        assert_eq!(request(node.api, "POST", &docs, &[], &body).0, 201);
    }
    let list = |after: u64| {
        let path = format!("{}/cdocs/shop.Article?limit=1000&after={after}", workspace_path(WS));
        let (status, list) = request(node.api, "GET", &path, &[], "");
        assert_eq!(status, 200, "{list}");
        (list["docs"].as_array().unwrap().len(), list["next"].as_u64())
    };
    let (mut after, mut counts) = (Some(0), Vec::new());
    while let Some(from) = after {
        let (count, next) = list(from);
        counts.push(count);
        after = next;
    }
    assert_eq!(counts, [2, 2, 1]);
    // The node searched behind the last id for ever.
    for last in [u64::MAX, u64::MAX - 1, 1 << 63] {
        assert_eq!(list(last), (0, None));
    }
    node.stop();
}

/// One answer looks at 10,000 documents at most, however many inactive documents the list skips.
#[test]
fn a_page_of_deactivated_documents_may_be_empty_and_has_a_next_page() {
    const LOOKED_AT: u64 = 10_000;
    let (_folder, node) = node_with("");
    let many = |row: &dyn Fn(u64) -> String, ids: std::ops::Range<u64>| {
        let rows: Vec<String> = ids.map(row).collect();
        let body = format!(r#"{{"rows":[{}]}}"#, rows.join(","));
        let (status, answer) = node.command(WS, "sys.CUD", &body);
        assert_eq!(status, 200, "{answer}");
        answer
    };
    let new = |raw| format!(r#"{{"id":{raw},"table":"shop.Article"}}"#);
    let first = many(&new, 1..4_001)["newIds"]["1"].as_u64().unwrap();
    many(&new, 1..4_001);
    many(&new, 1..2_002);
    let out_of_use = |id| format!(r#"{{"id":{id},"table":"shop.Article","isActive":false}}"#);
    for begin in (0..LOOKED_AT).step_by(2_500) {
        many(&out_of_use, first + begin..first + begin + 2_500);
    }
    let list = |after: u64| {
        let path = format!("{}/cdocs/shop.Article?after={after}", workspace_path(WS));
        let list = request(node.api, "GET", &path, &[], "").1;
        let ids = list["docs"].as_array().unwrap().iter().map(|doc| doc["id"].as_u64().unwrap());
        (ids.collect::<Vec<_>>(), list["next"].as_u64())
    };
    let last_looked_at = first + LOOKED_AT - 1;
    assert_eq!(list(0), (vec![], Some(last_looked_at)));
    assert_eq!(list(last_looked_at), (vec![last_looked_at + 1], None));
    node.stop();
}

/// A browser sends such requests for any page that its user opens.
#[test]
fn web_pages_of_other_sites_are_refused() {
    let (_folder, node) = node_with("");
    let docs = format!("{}/docs/shop.Article", workspace_path(WS));
    let evil = [("origin", "https://evil.example"), ("content-type", "text/plain")];
    let refused = (403, "foreign".to_owned());
    assert_eq!(code(request(node.api, "POST", &docs, &evil, "{}")), refused);
    assert_eq!(code(request(node.admin, "POST", "/step-down", &evil, "")), refused);
    let own = [("origin", "http://localhost:3000")];
    assert_eq!(request(node.api, "POST", &docs, &own, "{}").0, 201);
    node.stop();
}

#[test]
fn slow_clients_are_disconnected_and_do_not_delay_others() {
    let (_folder, node) = node_with("head_seconds = 0.5\nbody_seconds = 0.5\n");
    let start = Instant::now();
    let mut head = TcpStream::connect(node.api).unwrap();
    head.write_all(b"POST / HTTP/1.1\r\nhost:").unwrap();
    let mut body = TcpStream::connect(node.api).unwrap();
    let path = command_path(WS, "sys.CUD");
    let text = format!("POST {path} HTTP/1.1\r\nhost: localhost\r\ncontent-length: 9\r\n\r\n{{");
    body.write_all(text.as_bytes()).unwrap();
    // Meanwhile other clients get their answers.
    assert_eq!(node.logged(WS).len(), 1);
    let (status, text) = answer(&mut body).unwrap();
    assert_eq!(status, 408, "{text}");
    let mut rest = Vec::new();
    // The node closes the connection, with or without an answer.
    let _ = head.read_to_end(&mut rest);
    assert!(start.elapsed() < Duration::from_secs(5), "{:?}", start.elapsed());
    node.stop();
}

/// A client asks for a log, and does not take the answer.
#[test]
fn a_client_that_does_not_receive_its_answer_is_disconnected() {
    let (_folder, node) = node_with("head_seconds = 0.5\n");
    let text = "x".repeat(900_000);
    for _ in 0..20 {
        let body = format!(
            r#"{{"rows":[{{"id":1,"table":"shop.Article","fields":{{"name":"{text}"}}}}]}}"#
        );
        assert_eq!(node.command(WS, "sys.CUD", &body).0, 200);
    }
    let open = || {
        let (_, metrics) = request(node.admin, "GET", "/metrics", &[], "");
        let metrics = metrics.as_str().unwrap().to_owned();
        let line =
            metrics.lines().find(|line| line.starts_with("httpapi_connections{service=\"api\"}"));
        line.unwrap().ends_with(" 1")
    };
    let mut reads_nothing = TcpStream::connect(node.api).unwrap();
    let head = format!("GET {}/wlog HTTP/1.1\r\nhost: localhost\r\n\r\n", workspace_path(WS));
    reads_nothing.write_all(head.as_bytes()).unwrap();
    let start = Instant::now();
    while !open() {
        assert!(start.elapsed() < Duration::from_secs(5), "it is not counted");
    }
    while open() {
        assert!(start.elapsed() < Duration::from_secs(20), "it is still there");
        sleep(Duration::from_millis(50));
    }
    node.stop();
}

/// Connections waited in the queue of the kernel when the node stopped. The node accepted some of
/// them and cut off the rest.
#[test]
fn a_connection_that_waits_to_be_accepted_is_answered_at_a_stop() {
    const CLIENTS: usize = 400;
    let (_folder, mut node) = node_with("[node]\nstop_seconds = 40");
    node.signal(Signal::STOP);
    let body = r#"{"rows":[{"id":1,"table":"shop.Article"}]}"#;
    let asks = |_| {
        let mut stream = TcpStream::connect(node.api).unwrap();
        let head = format!(
            "POST {} HTTP/1.1\r\nhost: localhost\r\nconnection: close\r\ncontent-length: {}\r\n\r\n{body}",
            command_path(WS, "sys.CUD"),
            body.len()
        );
        stream.write_all(head.as_bytes()).unwrap();
        stream
    };
    let clients: Vec<_> = (0..CLIENTS).map(asks).collect();
    node.signal(Signal::TERM);
    node.signal(Signal::CONT);
    for mut stream in clients {
        let answer = answer(&mut stream);
        assert!(matches!(answer, Ok((200, _))), "{answer:?}");
    }
    assert_eq!(node.ended().code(), Some(0), "{}", node.log_text());
}

#[test]
fn broken_clients_do_not_harm_others() {
    let (_folder, node) = node_with("");
    for text in [
        "\r\n\r\n",
        "GET\r\n\r\n",
        "\0\u{1}\u{2}\u{ff}",
        "POST / HTTP/1.1\r\ncontent-length: 99999999999999999999\r\n\r\n",
        "POST / HTTP/1.1\r\ntransfer-encoding: chunked\r\n\r\nzz\r\n",
        "GET / HTTP/9.9\r\n\r\n",
    ] {
        let mut stream = TcpStream::connect(node.api).unwrap();
        stream.write_all(text.as_bytes()).unwrap();
        drop(stream);
    }
    let long = format!("GET /{} HTTP/1.1\r\nhost: localhost\r\n\r\n", "x".repeat(1 << 20));
    let mut stream = TcpStream::connect(node.api).unwrap();
    // The node may hang up before the whole request is sent.
    let _ = stream.write_all(long.as_bytes());
    assert_eq!(node.logged(WS).len(), 1);
    node.stop();
}

#[test]
fn the_admin_endpoint_reports_the_state_of_the_node() {
    let (_folder, node) = node_with("");
    let get = |path| request(node.admin, "GET", path, &[], "");
    assert_eq!(get("/livez").0, 200);
    let (status, verbose) = get("/readyz?verbose");
    assert_eq!((status, verbose["stage"].as_str()), (200, Some("leading")));
    let (_, status) = get("/status");
    let node_status = &status["node"];
    assert_eq!(status["version"], env!("CARGO_PKG_VERSION"));
    assert_eq!(node_status["lead"]["slot"], 1);
    assert!(node_status["lead"]["left_ms"].as_u64().unwrap() > 0, "{status}");
    assert_eq!(node_status["leaders"]["1"], node.api.to_string());
    let storage = &node_status["storage"];
    assert_eq!((&storage["driver"], &storage["answers"]), (&"mem".into(), &true.into()));
    assert_eq!(storage["system_keyspace"], "sysvvm");
    let here = node_status["apps"][0]["here"].as_array().unwrap();
    assert_eq!(here.len(), 10);
    for (number, partition) in here.iter().enumerate() {
        // Only the partition of the one workspace has an event. The numbers of that event may or
        // may not be stored.
        let next = if number as u64 == WS { 2 } else { 1 };
        assert_eq!(partition["number"], number);
        assert_eq!((&partition["status"], &partition["waiting"]), (&"ready".into(), &0.into()));
        assert_eq!(partition["next_offset"], next, "{partition}");
        assert!(partition["unflushed_events"].as_u64().unwrap() < next, "{partition}");
    }
    assert_eq!(get("/none").0, 404);
    let output = std::process::Command::new(env!("CARGO_BIN_EXE_vvm"))
        .args(["status", "--admin", &node.admin.to_string()])
        .output()
        .unwrap();
    let output = String::from_utf8(output.stdout).unwrap();
    assert!(output.contains("leads slot 1") && output.contains("demo/shop: 10 of 10"), "{output}");
    let output = std::process::Command::new(env!("CARGO_BIN_EXE_vvm"))
        .arg("status")
        .env("VVM__ADMIN__LISTEN", node.admin.to_string())
        // The command needs no settings from the file of the node, so this variable must not matter
        // to it.
        .env("VVM__STORAGE__CASSANDRA__CONSISTENCY", "quorum")
        .output()
        .unwrap();
    assert_eq!(output.status.code(), Some(0), "{}", String::from_utf8_lossy(&output.stderr));
    let head = try_request(node.admin, "HEAD", "/readyz", &[], "").unwrap();
    assert_eq!(head, (200, String::new()));
    // The API is no admin endpoint, and the command reports that.
    let wrong = std::process::Command::new(env!("CARGO_BIN_EXE_vvm"))
        .args(["status", "--admin", &node.api.to_string()])
        .output()
        .unwrap();
    assert_eq!(wrong.status.code(), Some(4));
    let wrong = String::from_utf8(wrong.stderr).unwrap();
    assert!(wrong.contains("admin.listen"), "{wrong}");
    node.stop();
}

/// Each metric is explained in the documents, and each metric in the documents exists.
#[test]
fn each_documented_metric_exists_and_each_metric_is_documented() {
    let (_folder, node) = node_with("");
    let docs = ["operations", "commands", "sequencing", "elections"].map(|name| {
        let path = format!("{}/../../docs/{name}.md", env!("CARGO_MANIFEST_DIR"));
        std::fs::read_to_string(path).unwrap()
    });
    let (_, metrics) = request(node.admin, "GET", "/metrics", &[], "");
    let metrics = metrics.as_str().unwrap();
    let there: Vec<&str> = metrics
        .lines()
        .filter_map(|line| line.strip_prefix("# TYPE ")?.split(' ').next())
        .collect();
    for name in &there {
        assert!(docs.iter().any(|text| text.contains(&format!("`{name}"))), "{name} means nothing");
    }
    // The check leaves out metrics of things that have not happened.
    let operations = &docs[0];
    let table = operations.split("### Metrics").nth(1).unwrap().split("Worth an alarm").next();
    let named = table.unwrap().split('`').filter(|name| name.contains('_') && !name.contains('…'));
    let is_metric =
        |name: &&str| ["httpapi_", "processor_", "istorage_"].iter().any(|of| name.starts_with(of));
    for name in named.filter(is_metric) {
        assert!(there.contains(&name), "{name} is not there: {there:?}");
    }
    for stage in ["wait", "run", "log", "apply"] {
        let partition = format!("partition=\"demo/shop/{WS}\"");
        let is_it = |line: &&str| {
            line.starts_with("processor_stage_seconds_count")
                && line.contains(&partition)
                && line.contains(&format!("stage=\"{stage}\""))
        };
        let line = metrics.lines().find(is_it).unwrap();
        assert!(line.ends_with(" 1"), "{line}");
    }
    // The upkeep service runs, so metrics that no client reads do not fill the memory.
    assert!(node.log_text().contains("\"metrics\""), "{}", node.log_text());
    node.stop();
}

#[test]
fn the_bench_measures_a_node_that_runs() {
    let (_folder, node) = node_with("");
    let bench = |rest: &[&str]| {
        let output = std::process::Command::new(env!("CARGO_BIN_EXE_vvm"))
            .args(["bench", "--json", "--seconds", "1", "--node", &node.api.to_string()])
            .args(rest)
            .output()
            .unwrap();
        let text = String::from_utf8_lossy(&output.stderr).into_owned();
        assert_eq!(output.status.code(), Some(0), "{text}");
        serde_json::from_slice::<serde_json::Value>(&output.stdout).unwrap()
    };
    let closed = bench(&["--clients", "4", "--workspaces", "3"]);
    let done = closed["done"].as_u64().unwrap();
    let logged: usize = (1..=3).map(|ws| node.logged(ws).len() - 1).sum();
    assert_eq!(done, logged as u64, "the bench counts other commands than the log has");
    // Each of the four clients waits for its answers. So the times of all commands add up to nearly
    // the time of all clients.
    let mean = closed["micros"]["mean"].as_f64().unwrap();
    let sum = mean * done as f64 / 4_000_000.0;
    assert!((0.8..=1.01 * closed["seconds"].as_f64().unwrap()).contains(&sum), "{closed}");
    let open = bench(&["--clients", "4", "--rate", "200", "--zipf", "1", "--records", "1"]);
    let done = open["done"].as_u64().unwrap();
    assert_eq!(done + open["unsent"].as_u64().unwrap(), 200, "{open}");
    assert!(done > 20, "{open}");
    // A bench that is stopped reports the commands until then.
    let long = std::process::Command::new(env!("CARGO_BIN_EXE_vvm"))
        .args([
            "bench",
            "--json",
            "--seconds",
            "600",
            "--rate",
            "100",
            "--node",
            &node.api.to_string(),
        ])
        .stdout(std::process::Stdio::piped())
        .stderr(std::process::Stdio::null())
        .spawn()
        .unwrap();
    let before = node.logged(1).len();
    while node.logged(1).len() < before + 10 {
        sleep(Duration::from_millis(20));
    }
    kill_process(Pid::from_child(&long), Signal::INT).unwrap();
    let report = long.wait_with_output().unwrap();
    assert_eq!(report.status.code(), Some(0));
    let report: serde_json::Value = serde_json::from_slice(&report.stdout).unwrap();
    assert!(report["done"].as_u64().unwrap() >= 10, "{report}");
    assert!(
        report["unsent"].as_u64().unwrap() < 1_000,
        "commands that were not due are counted as unsent: {report}"
    );
    let unreachable = std::process::Command::new(env!("CARGO_BIN_EXE_vvm"))
        .args(["bench", "--node", "127.0.0.1:1"])
        .output()
        .unwrap();
    assert_eq!(unreachable.status.code(), Some(4));
    let other = std::process::Command::new(env!("CARGO_BIN_EXE_vvm"))
        .args(["bench", "--app", "demo/none", "--node", &node.api.to_string()])
        .output()
        .unwrap();
    assert_eq!(other.status.code(), Some(1), "it was reached");
    let other = String::from_utf8(other.stderr).unwrap();
    assert!(other.contains("this node has no application demo/none"), "{other}");
    node.stop();
}

/// A node that stands still accepts connections and answers nothing. The bench waited 30 s for each
/// request.
#[test]
fn the_bench_ends_after_a_second_if_the_node_does_not_answer() {
    let silent = std::net::TcpListener::bind("127.0.0.1:0").unwrap();
    let address = silent.local_addr().unwrap().to_string();
    let start = Instant::now();
    let bench = std::process::Command::new(env!("CARGO_BIN_EXE_vvm"))
        .args(["bench", "--node", &address])
        .output()
        .unwrap();
    let (took, text) = (start.elapsed(), String::from_utf8(bench.stderr).unwrap());
    assert_eq!(bench.status.code(), Some(4), "{text}");
    assert!(text.contains(&address) && text.contains("within 1s"), "{text}");
    assert!(took < Duration::from_secs(5), "{took:?}");
}
