//! Documents, lists of documents and logs.

use std::{io::Write, net::TcpStream};

use serde_json::json;
use shop::http_client::{answer, request, workspace_path};

use crate::support::{TestNode, WS, code};

#[test]
fn a_document_is_created_read_changed_listed_and_deactivated() {
    let node = TestNode::start();
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
fn each_invalid_request_for_documents_or_logs_gets_its_code_and_changes_nothing() {
    let node = TestNode::start();
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
    assert_eq!(elsewhere, (404, "not_deployed".to_owned()));
    assert_eq!(node.logged(WS).len(), 1, "nothing was written");
    node.stop();
}

#[test]
fn a_number_field_is_shown_as_text_and_refused_in_requests() {
    let node = TestNode::start();
    let bills = format!("{}/docs/shop.Bill", workspace_path(WS));
    for number in ["BILL-0000", "BILL-0001"] {
        let (status, made) = request(node.api, "POST", &bills, &[], r#"{"fields":{}}"#);
        assert_eq!(status, 201, "{made}");
        let bill = format!("{bills}/{}", made["newIds"]["1"]);
        let (_, read) = request(node.api, "GET", &bill, &[], "");
        assert_eq!(read["fields"]["number"], number);
        for (body, reason) in [
            (r#"{"fields":{"number":"BILL-0009"}}"#, "bad_request"),
            (r#"{"fields":{"number":9}}"#, "bad_request"),
            (r#"{"fields":{"number":null}}"#, "invalid"),
        ] {
            let answer = request(node.api, "PATCH", &bill, &[], body);
            assert!(answer.1.to_string().contains("the series `bill`"), "{}", answer.1);
            assert_eq!(code(answer), (400, reason.to_owned()), "{body}");
        }
        let sent = r#"{"fields":{"number":"BILL-0009"}}"#;
        let answer = request(node.api, "POST", &bills, &[], sent);
        assert_eq!(code(answer), (400, "bad_request".to_owned()));
    }
    assert_eq!(node.logged(WS).len(), 3, "the workspace, and two bills");
    node.stop();
}

/// An HTTP/1.0 answer ends with its connection. So a log that was cut would look like a complete
/// one.
#[test]
fn a_log_is_refused_to_a_client_that_cannot_see_its_end() {
    let node = TestNode::start();
    let mut old = TcpStream::connect(node.api).unwrap();
    let head = format!("GET {}/wlog HTTP/1.0\r\nhost: localhost\r\n\r\n", workspace_path(WS));
    old.write_all(head.as_bytes()).unwrap();
    let (status, text) = answer(&mut old).unwrap();
    assert!(status == 505 && text.contains("proxy_http_version"), "{status} {text}");
    node.stop();
}

/// The size of its documents limits a page, even to a few documents: 1,000 of the largest would be
/// 1 GB.
#[test]
fn a_page_of_large_documents_is_short_and_the_last_id_is_the_end() {
    let node = TestNode::start();
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
    // The node searched past the last id for ever.
    for last in [u64::MAX, u64::MAX - 1, 1 << 63] {
        assert_eq!(list(last), (0, None));
    }
    node.stop();
}

/// An answer looked at 10,000 documents at most. So it was empty after 10,000 inactive documents,
/// although the list went on, and a client that did not look at `next` took that for the end.
#[test]
fn a_page_behind_many_deactivated_documents_has_the_next_active_one() {
    const LOOKED_AT: u64 = 10_000;
    let node = TestNode::start();
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
    let active = first + LOOKED_AT;
    assert_eq!(list(0), (vec![active], Some(active)), "it goes on until it has a document");
    assert_eq!(list(active), (vec![], None));
    node.stop();
}

/// A new document has the raw id 1 in its command. So `{"article": 1}` stored the id of the new
/// document itself, although its sender meant article 1.
#[test]
fn a_reference_of_a_single_document_is_refused_below_the_ids_of_records() {
    let node = TestNode::start();
    let slips = format!("{}/docs/shop.Slip", workspace_path(WS));
    let send = |method, path: &str, id: u64| {
        let body = format!(r#"{{"fields":{{"article":{id}}}}}"#);
        request(node.api, method, path, &[], &body)
    };
    let (status, made) = send("POST", &slips, 65_536);
    assert_eq!(status, 201, "65536 is the id of a record, the descriptor: {made}");
    let slip = format!("{slips}/{}", made["newIds"]["1"]);
    for (method, path) in [("POST", &slips), ("PATCH", &slip)] {
        for id in [0, 1, 65_535] {
            let answer = send(method, path, id);
            let reason = format!(
                "the field `article` of shop.Slip refers to record {id}, and the ids of records \
                 begin at 65536: send the id that an answer gave. Only rows of a command refer to \
                 new rows by the ids from 1 to 65535"
            );
            assert_eq!(answer.1["reason"], reason, "{method} {id}");
            assert_eq!(code(answer), (400, "bad_request".to_owned()), "{method} {id}");
        }
    }
    assert_eq!(send("PATCH", &slip, 65_536).0, 200);
    assert_eq!(code(send("PATCH", &slip, 65_537)), (422, "rule".to_owned()), "no such record");
    let long = r#"{"rows":[{"id":1,"table":"shop.Article"},
        {"id":2,"table":"shop.Slip","fields":{"article":1}}]}"#;
    let (status, made) = node.command(WS, "sys.CUD", long);
    assert_eq!(status, 200, "{made}");
    let read = request(node.api, "GET", &format!("{slips}/{}", made["newIds"]["2"]), &[], "").1;
    assert_eq!(read["fields"]["article"], made["newIds"]["1"], "a row refers to a new row");
    node.stop();
}

/// A client did not learn the number of its own bill without a second request, and could not print
/// the bill if that request failed.
#[test]
fn a_write_answers_with_the_numbers_that_the_node_drew() {
    let node = TestNode::start();
    let bills = format!("{}/docs/shop.Bill", workspace_path(WS));
    let key = |key| [("idempotency-key", key)];
    let body = r#"{"fields":{"customer":"Ann"}}"#;
    let post = |key: &[(&str, &str)]| request(node.api, "POST", &bills, key, body);
    let (status, made) = post(&key("one"));
    assert_eq!((status, &made["drawn"]), (201, &json!({ "1": { "number": "BILL-0000" } })));
    let (_, again) = post(&key("one"));
    assert_eq!((&again["repeated"], &again["drawn"]), (&json!(true), &made["drawn"]), "{again}");
    let rows = r#"{"rows":[{"id":7,"table":"shop.Bill"},{"id":3,"table":"shop.Article"},
        {"id":5,"table":"shop.Delivery"},{"id":1,"table":"shop.Bill"}]}"#;
    let drawn = json!({
        "7": { "number": "BILL-0001" }, "5": { "number": 1 }, "1": { "number": "BILL-0002" },
    });
    let command = |rows: &str| {
        let path = format!("{}/commands/sys.CUD", workspace_path(WS));
        request(node.api, "POST", &path, &key("two"), rows).1
    };
    for repeated in [json!(null), json!(true)] {
        let done = command(rows);
        assert_eq!((&done["drawn"], &done["repeated"]), (&drawn, &repeated), "{done}");
    }
    let batch = r#"{"commands":[{"command":"sys.CUD","rows":[{"id":1,"table":"shop.Bill"}]},
        {"command":"sys.CUD","rows":[{"id":1,"table":"shop.Article"}]}]}"#;
    let path = format!("{}/commands", workspace_path(WS));
    for _ in 0..2 {
        let answers = request(node.api, "POST", &path, &key("three"), batch).1["answers"].clone();
        assert_eq!(answers[0]["drawn"], json!({ "1": { "number": "BILL-0003" } }), "{answers}");
        assert_eq!(answers[1].get("drawn"), None, "an article has no number: {answers}");
    }
    let bill = format!("{bills}/{}", made["newIds"]["1"]);
    let (status, changed) =
        request(node.api, "PATCH", &bill, &[], r#"{"fields":{"customer":"B"}}"#);
    assert_eq!((status, changed.get("drawn")), (200, None), "{changed}");
    let failed = r#"{"fields":{"customer":1}}"#;
    assert_eq!(request(node.api, "POST", &bills, &[], failed).0, 400);
    node.stop();
}
