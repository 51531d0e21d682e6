//! The routes of the API and of the admin endpoint: each path and method, and refusals.

use std::{io::Write, net::SocketAddr};

use shop::http_client::workspace_path;

use crate::support::{Answer, TestNode, WS, connect};

/// Sends a request with the id `tea`.
fn ask(address: SocketAddr, method: &str, path: &str, body: &str) -> Answer {
    let mut stream = connect(address);
    let length = body.len();
    let headers = format!("Host: localhost\r\nX-Request-Id: tea\r\nContent-Length: {length}");
    write!(stream, "{method} {path} HTTP/1.1\r\n{headers}\r\n\r\n{body}").unwrap();
    match method {
        "HEAD" => Answer::read_head(&mut stream).unwrap(),
        _ => Answer::read(&mut stream).unwrap(),
    }
}

fn at(rest: &str) -> String {
    format!("{}/{rest}", workspace_path(WS))
}

#[test]
fn each_route_is_answered_and_counted_by_its_kind() {
    let node = TestNode::start();
    let article = r#"{"fields":{"name":"Tea"}}"#;
    let made = ask(node.api, "POST", &at("docs/shop.Article"), article);
    assert_eq!(made.status, 201, "{made:?}");
    let id = made.json()["newIds"]["1"].to_string();
    let doc = format!("docs/shop.Article/{id}");
    let (command, row) = ("commands/sys.CUD", r#"{"rows":[{"id":1,"table":"shop.Bill"}]}"#);
    let batch = format!(r#"{{"commands":[{{"command":"sys.CUD",{}]}}"#, &row[1..]);
    for (method, rest, body) in [
        ("POST", command, row),
        ("POST", "commands", &batch),
        ("GET", &format!("docs?ids={id}&keys=name"), ""),
        ("HEAD", &format!("docs?ids={id}&consistency=eventual"), ""),
        ("GET", &doc, ""),
        ("HEAD", &doc, ""),
        ("PATCH", &doc, article),
        ("DELETE", &doc, ""),
        ("GET", "cdocs/shop.Article", ""),
        ("HEAD", "cdocs/shop.Article?limit=1&after=1", ""),
        ("GET", "cdocs/shop.Article?&limit=1&", ""),
        ("GET", "cdocs/shop.Article?where=%7B%7D&keys=name&order=-id&after=1&limit=1", ""),
        ("HEAD", "wlog?&from=1&limit=9", ""),
        ("GET", "numbers", ""),
        ("HEAD", "numbers", ""),
        ("GET", "numbers/order", ""),
        ("POST", "numbers/order/next", ""),
        ("POST", "numbers/ORDER/next", r#"{"count":2}"#),
        ("GET", "numbers/order/peek", ""),
        ("GET", "numbers/order/gaps?period=all&from=0&limit=1", ""),
    ] {
        let answer = ask(node.api, method, &at(rest), body);
        assert_eq!(answer.status, 200, "{method} {rest}: {answer:?}");
        assert_eq!(answer.header("x-request-id"), Some("tea"), "{answer:?}");
    }
    // Refusals count as their operation, once that is known.
    for (path, status) in
        [("/none", 404), (&*at("wlog?x=1"), 400), ("/api/v2/apps/a/b/workspaces/1/wlog", 404)]
    {
        assert_eq!(ask(node.api, "GET", path, "").status, status, "{path}");
    }
    let metrics = node.metrics();
    let labels =
        |line| Some(str::strip_prefix(line, "httpapi_request_seconds_count{")?.split_once('}')?.0);
    let mut counted: Vec<&str> = metrics.lines().filter_map(labels).collect();
    counted.sort_unstable();
    let expected = [
        ("change_doc", 200),
        ("command", 200),
        ("command_batch", 200),
        ("create_doc", 201),
        ("deactivate_doc", 200),
        ("draw_numbers", 200),
        ("list_docs", 200),
        ("list_gaps", 200),
        ("list_series", 200),
        ("none", 404),
        ("peek_number", 200),
        ("read_doc", 200),
        ("read_docs", 200),
        ("read_series", 200),
        ("wlog", 200),
        ("wlog", 400),
        ("wlog", 404),
    ];
    let expected = expected.map(|(kind, status)| format!("kind=\"{kind}\",status=\"{status}\""));
    assert_eq!(counted, expected);
    for (code, count) in [("not_found", 1), ("not_deployed", 1), ("bad_request", 1)] {
        let line = format!("httpapi_problems_total{{code=\"{code}\"}} {count}");
        assert!(metrics.lines().any(|there| there == line), "{line}: {metrics}");
    }
    node.stop();
}

#[test]
fn a_path_without_a_route_is_refused() {
    let node = TestNode::start();
    let unknown = (404, "not_found");
    let elsewhere = (404, "not_deployed");
    let bad = (400, "bad_request");
    for (method, path, expected) in [
        ("GET", "/".to_owned(), unknown),
        ("GET", "/api/v2/apps".to_owned(), unknown),
        ("GET", workspace_path(WS), unknown),
        ("GET", at(""), unknown),
        ("GET", at("nothing"), unknown),
        ("GET", at("wlog/"), unknown),
        ("GET", at("/wlog"), unknown),
        ("GET", at("wlog/1/2/3/4/5"), unknown),
        ("GET", at("cdocs/"), bad),
        ("GET", at("docs/shop.Article/"), bad),
        ("GET", at("docs//1"), bad),
        ("GET", at("cdocs/shop%2EArticle"), bad),
        ("POST", at("docs/shop.Article%2F1"), bad),
        ("GET", at("docs/shop.Article/%31"), bad),
        ("GET", "/api/v2/apps/%64emo/shop/workspaces/1/wlog".to_owned(), elsewhere),
        ("GET", "/api/v2/apps/demo/none/workspaces/1/wlog".to_owned(), elsewhere),
        ("GET", "/api/v2/apps/demo/shop/workspaces/x/wlog".to_owned(), bad),
        ("GET", "/api/v2/apps/demo/shop/workspaces/-1/wlog".to_owned(), bad),
        // A resource has one path, and its number fits into 64 bits with a sign.
        ("GET", "/api/v2/apps/demo/shop/workspaces/07/wlog".to_owned(), bad),
        ("GET", "/api/v2/apps/demo/shop/workspaces/+7/wlog".to_owned(), bad),
        ("GET", "/api/v2/apps/demo/shop/workspaces/9223372036854775808/wlog".to_owned(), bad),
        ("GET", "/api/v2/apps/demo/shop/partitions/01/plog".to_owned(), bad),
        ("GET", at("docs/shop.Article/01"), bad),
        ("GET", at("docs/shop.Article/9223372036854775808"), bad),
        ("POST", at("commands/sys.CUD/1"), unknown),
        ("POST", at("commands/Bill"), bad),
        ("GET", at("cdocs/Bill"), bad),
        ("GET", at("docs/shop.Article/x"), bad),
        ("GET", at("docs/shop.Article/18446744073709551616"), bad),
    ] {
        let answer = ask(node.api, method, &path, "");
        assert_eq!((answer.status, &*answer.code()), expected, "{method} {path}");
        let problem = answer.json();
        assert_eq!(problem["requestId"], "tea", "{answer:?}");
        // The client may have been given the address of the admin endpoint.
        let port = (expected == unknown).then_some("api");
        assert_eq!(problem["port"].as_str(), port, "{method} {path}");
    }
    // A user who opens the port in a browser learns where the page is.
    for path in ["/", "/api", "/api/", "/api/v2", "/none", &*at("nothing")] {
        let answer = ask(node.api, "GET", path, "");
        assert_eq!((answer.status, &*answer.code()), unknown, "{path}");
        let reason = answer.json()["reason"].as_str().unwrap().to_owned();
        assert!(reason.contains("the page /api/v2/ lists the paths"), "{path}: {reason}");
    }
    for path in ["/index.html", "/livez/", "//livez", "/live%7A", "/none"] {
        let answer = ask(node.admin, "GET", path, "");
        assert_eq!((answer.status, &*answer.code()), unknown, "{path}");
        assert!(answer.body.contains("POST /step-down"), "{path}: {answer:?}");
        assert_eq!(answer.json()["port"], "admin", "{path}: {answer:?}");
    }
    node.stop();
}

#[test]
fn a_refused_method_is_answered_with_the_allowed_methods() {
    let node = TestNode::start();
    for (address, method, path, allow) in [
        (node.api, "PUT", at("commands/sys.CUD"), "POST"),
        (node.api, "GET", at("commands/sys.CUD"), "POST"),
        (node.api, "GET", at("docs/shop.Bill"), "POST"),
        (node.api, "HEAD", at("docs/shop.Bill"), "POST"),
        (node.api, "POST", at("docs/shop.Bill/1"), "GET, HEAD, PATCH, DELETE"),
        (node.api, "PUT", at("cdocs/shop.Bill"), "GET, HEAD"),
        (node.api, "DELETE", at("docs/sys.WorkspaceDescriptor/65536"), "GET, HEAD"),
        (node.api, "OPTIONS", at("wlog"), "GET, HEAD"),
        (node.api, "POST", at("numbers/order"), "GET, HEAD"),
        (node.api, "GET", at("numbers/order/next"), "POST"),
        (node.admin, "POST", "/livez".to_owned(), "GET, HEAD"),
        (node.admin, "DELETE", "/status".to_owned(), "GET, HEAD"),
        (node.admin, "GET", "/step-down".to_owned(), "POST"),
        (node.admin, "POST", "/repairs".to_owned(), "GET, HEAD"),
        (node.admin, "GET", "/repairs/mark".to_owned(), "POST"),
        (node.admin, "POST", "/sequences".to_owned(), "GET, HEAD"),
    ] {
        let answer = ask(address, method, &path, "");
        let allow = allow.to_ascii_lowercase();
        assert_eq!(
            (answer.status, answer.header("allow")),
            (405, Some(&*allow)),
            "{method} {path}"
        );
        if method != "HEAD" {
            assert_eq!(answer.code(), "method_not_allowed", "{method} {path}");
        }
    }
    node.stop();
}

#[test]
fn unknown_repeated_and_invalid_parameters_are_refused() {
    let node = TestNode::start();
    for (method, rest) in [
        ("GET", "cdocs/shop.Article?limt=1"),
        ("GET", "cdocs/shop.Article?limit=1&limit=2"),
        ("GET", "cdocs/shop.Article?from=1"),
        ("GET", "cdocs/shop.Article?limit"),
        ("GET", "cdocs/shop.Article?after=x"),
        ("GET", "docs/shop.Article/1?limit=1"),
        ("GET", "wlog?follow"),
        ("GET", "wlog?from="),
        ("GET", "wlog?limit=1000001"),
        ("POST", "commands/sys.CUD?dry"),
        ("POST", "docs/shop.Article?x=1"),
        ("PATCH", "docs/shop.Article/1?x=1"),
        ("DELETE", "docs/shop.Article/1?x=1"),
        ("GET", "numbers?limit=1"),
        ("POST", "numbers/order/next?count=2"),
        ("GET", "numbers/order/peek?count=2"),
        ("GET", "numbers/order/gaps?limit=0"),
        ("GET", "numbers/order/gaps?from=-1"),
        ("GET", "numbers/order/gaps?period=2026"),
        ("GET", "numbers/order/gaps?period=today"),
    ] {
        let answer = ask(node.api, method, &at(rest), "{}");
        assert_eq!((answer.status, &*answer.code()), (400, "bad_request"), "{method} {rest}");
    }
    assert_eq!(node.logged(WS).len(), 1, "nothing was written");
    node.stop();
}
