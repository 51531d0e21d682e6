//! The admin endpoint: the status of the node, and the actions of an operator.

use std::{
    io::Write,
    thread::sleep,
    time::{Duration, Instant},
};

use serde_json::{Value, json};
use shop::http_client::request;
use vvm::{Problem, isequencer::standard::FIRST_CRECORD_ID};

use crate::support::{Answer, PATIENCE, ROW, TestNode, WS, code, connect};

/// The routes of the admin endpoint that need a token.
pub(crate) const ADMIN: [(&str, &str); 17] = [
    ("GET", "/readyz?verbose"),
    ("GET", "/status"),
    ("GET", "/cluster"),
    ("GET", "/cluster/events"),
    ("GET", "/sequences"),
    ("GET", "/repairs"),
    ("GET", "/inspect/apps"),
    ("POST", "/cluster/move"),
    ("POST", "/cluster/pause"),
    ("POST", "/cluster/resume"),
    ("POST", "/cluster/drain"),
    ("POST", "/drain"),
    ("POST", "/step-down"),
    ("POST", "/repairs/mark"),
    ("POST", "/repairs/remove"),
    ("POST", "/repairs/number"),
    ("POST", "/backup"),
];

/// The paths of all actions of the admin endpoint.
pub(crate) fn actions() -> impl Iterator<Item = &'static str> {
    ADMIN.into_iter().filter(|(method, _)| *method == "POST").map(|(_, path)| path)
}

fn get(node: &TestNode, path: &str) -> Answer {
    let mut stream = connect(node.admin);
    write!(stream, "GET {path} HTTP/1.1\r\nHost: localhost\r\n\r\n").unwrap();
    let answer = Answer::read(&mut stream).unwrap();
    assert_eq!(answer.status, 200, "{path}: {answer:?}");
    answer
}

#[test]
fn probes_and_metrics_are_texts() {
    let node = TestNode::start();
    for (path, body) in [
        ("/livez", "ok\n"),
        ("/livez?x=1", "ok\n"),
        ("/readyz", "ready\n"),
        ("/readyz?quiet", "ready\n"),
    ] {
        let answer = get(&node, path);
        assert_eq!(answer.body, body, "{path}");
        assert_eq!(answer.header("content-type"), Some("text/plain; charset=utf-8"), "{path}");
    }
    let metrics = get(&node, "/metrics");
    assert_eq!(metrics.header("content-type"), Some("text/plain; charset=utf-8"));
    // The node may not have noticed yet that the connections of the other requests ended.
    assert!(metrics.body.contains("\nhttpapi_connections{service=\"admin\"} "), "{metrics:?}");
    node.stop();
}

#[test]
fn the_status_is_json_with_the_version_and_the_leaders() {
    let node = TestNode::start();
    for path in ["/readyz?verbose", "/readyz?verbose=1", "/status"] {
        let answer = get(&node, path);
        assert_eq!(answer.header("content-type"), Some("application/json"), "{path}");
        let status: Value = serde_json::from_str(&answer.body).unwrap();
        let status = match path {
            "/status" => {
                assert_eq!(status["version"], "1.2.3");
                &status["node"]
            }
            _ => &status,
        };
        assert_eq!(status["stage"], "leading", "{path}: {status}");
        assert_eq!(status["leaders"]["1"], node.api.to_string());
        let partitions = status["apps"][0]["here"].as_array().unwrap();
        assert_eq!(partitions[WS as usize]["nextOffset"], 2, "{status}");
    }
    node.stop();
}

#[test]
fn a_step_down_is_accepted_once_and_ends_the_node() {
    let node = TestNode::start();
    let (status, answer) = request(node.admin, "POST", "/step-down", &[], "");
    assert_eq!((status, &answer["steppingDown"]), (202, &true.into()), "{answer}");
    let problem = node.end().unwrap_err();
    assert!(matches!(*problem, Problem::SteppedDown), "{problem}");
}

#[test]
fn a_standby_is_alive_and_not_ready_and_has_nothing_to_step_down_from() {
    let leader = TestNode::start();
    let standby = leader.start_standby();
    let ask = |method, path| request(standby.admin, method, path, &[], "");
    assert_eq!(ask("GET", "/livez").0, 200);
    assert_eq!(ask("GET", "/readyz"), (503, "not ready\n".into()));
    let (status, verbose) = ask("GET", "/readyz?verbose");
    assert_eq!((status, &verbose["stage"]), (503, &"waiting".into()), "{verbose}");
    assert_eq!(code(ask("POST", "/step-down")), (409, "not_leading".to_owned()));
    // The leader closes the storage of both.
    leader.stop();
    let _ = standby.end();
}

/// Only an event that cannot be read is marked, and only by the owner of its partition.
#[test]
fn an_event_that_can_be_read_is_not_marked() {
    let leader = TestNode::start();
    let standby = leader.start_standby();
    let (status, list) = request(leader.admin, "GET", "/repairs", &[], "");
    let expected = json!({
        "stage": "leading", "partitions": 10, "stuck": [], "repairs": [], "repairsError": null,
    });
    assert_eq!((status, &list), (200, &expected));
    let mark = |node: &TestNode, query: &str| {
        code(request(node.admin, "POST", &format!("/repairs/mark?{query}"), &[], ""))
    };
    let (_, status) = request(leader.admin, "GET", "/status", &[], "");
    let app = status["node"]["apps"][0]["app"].as_str().unwrap();
    let event = format!("app={app}&partition={WS}&event=1&ws={WS}&offset=1");
    for (query, expected) in [
        (event.clone(), (409, "event_readable")),
        (event.replace("event=1&", "event=9&"), (409, "row_missing")),
        (event.replace(&format!("ws={WS}"), "ws=2"), (422, "other_partition")),
        (event.replace(app, "no/app"), (404, "not_found")),
        (event.replace(&format!("partition={WS}"), "partition=10"), (404, "not_found")),
        (event.replace("&event=1", ""), (400, "bad_request")),
        (event.replace("event=1&", "event=x&"), (400, "bad_request")),
        (format!("{event}&numbers=7"), (400, "bad_request")),
        (format!("{event}&fencing=true"), (400, "bad_request")),
        (format!("app={app}&partition={WS}&event=1&fencing=true"), (409, "event_readable")),
        (format!("{event}&dryrun=true"), (400, "bad_request")),
    ] {
        assert_eq!(mark(&leader, &query), (expected.0, expected.1.to_owned()), "{query}");
    }
    let remove = |query: &str| {
        let path = format!("/repairs/remove?app={app}&partition={WS}{query}");
        code(request(leader.admin, "POST", &path, &[], ""))
    };
    assert_eq!(remove("&dryRun=true"), (409, "no_row".to_owned()));
    assert_eq!(remove(""), (400, "bad_request".to_owned()), "the digest is missing");
    assert_eq!(mark(&standby, &event), (503, "not_owner".to_owned()));
    leader.stop();
    let _ = standby.end();
}

/// The stored numbers trail the issued ones by the flush delay of 100 ms.
#[test]
fn the_leader_lists_the_stored_numbers_of_a_workspace() {
    let leader = TestNode::start();
    let standby = leader.start_standby();
    let (_, status) = request(leader.admin, "GET", "/status", &[], "");
    let app = status["node"]["apps"][0]["app"].as_str().unwrap();
    for _ in 0..2 {
        let (status, answer) = leader.command(WS, "sys.CUD", ROW);
        assert_eq!(status, 200, "{answer}");
    }
    let path = format!("/sequences?app={app}&ws={WS}");
    let row = |workspace: u64, name: &str, last: u64| json!({ "partition": WS, "workspace": workspace, "name": name, "last": last });
    let expected = json!({
        "app": app,
        "storedIn": "the system keyspace",
        "sequences": [
            row(0, "sys.PLogOffsetSeq", 3),
            row(WS, "sys.WLogOffsetSeq", 3),
            row(WS, "sys.CRecIDSeq", FIRST_CRECORD_ID + 1),
        ],
    });
    let start = Instant::now();
    loop {
        let (status, answer) = request(leader.admin, "GET", &path, &[], "");
        assert_eq!(status, 200, "{answer}");
        if answer == expected {
            break;
        }
        assert!(start.elapsed() < PATIENCE, "{answer}");
        sleep(Duration::from_millis(10));
    }
    let ask = |node: &TestNode, path: &str| code(request(node.admin, "GET", path, &[], ""));
    for (path, expected) in [
        (path.replace(app, "no/app"), (404, "not_found")),
        (format!("/sequences?app={app}&ws=2"), (404, "not_found")),
        (format!("/sequences?app={app}"), (400, "bad_request")),
        (format!("/sequences?app={app}&ws=x"), (400, "bad_request")),
        (format!("/sequences?app=shop&ws={WS}"), (400, "bad_request")),
        (format!("{path}&seq=1"), (400, "bad_request")),
    ] {
        assert_eq!(ask(&leader, &path), (expected.0, expected.1.to_owned()), "{path}");
    }
    assert_eq!(ask(&standby, &path), (503, "not_owner".to_owned()));
    leader.stop();
    let _ = standby.end();
}

/// `POST /step-down?dryRun` ended the leadership.
#[test]
fn an_action_with_an_unknown_parameter_does_nothing() {
    let node = TestNode::start();
    for action in actions() {
        let answer = request(node.admin, "POST", &format!("{action}?x"), &[], "");
        let reason = answer.1["reason"].as_str().unwrap_or_default().to_owned();
        assert_eq!(code(answer), (400, "bad_request".to_owned()), "{action}: {reason}");
        assert!(reason.contains("`x` is unknown"), "{action}: {reason}");
    }
    for shown in ["/status?x", "/cluster?x", "/sequences?x", "/repairs?x"] {
        assert_eq!(request(node.admin, "GET", shown, &[], "").0, 400, "{shown}");
    }
    assert_eq!(request(node.admin, "GET", "/readyz", &[], "").0, 200, "it still leads");
    node.stop();
}

/// A browser kept the documents of one user on its disk, and a proxy could show them to another.
#[test]
fn no_cache_stores_what_a_node_answers() {
    let node = TestNode::start();
    let log = format!("{}/wlog", shop::http_client::workspace_path(WS));
    let none = "/api/v2/apps/demo/shop/workspaces/1/docs/shop.Bill/1";
    for (address, path) in [
        (node.api, log.as_str()),
        (node.api, none),
        (node.api, "/api/v2/"),
        (node.admin, "/"),
        (node.admin, "/status"),
        (node.admin, "/metrics"),
        (node.admin, "/none"),
    ] {
        let mut stream = connect(address);
        write!(stream, "GET {path} HTTP/1.1\r\nHost: localhost\r\n\r\n").unwrap();
        let answer = Answer::read_head(&mut stream).unwrap();
        assert_eq!(answer.header("cache-control"), Some("no-store"), "{path}: {answer:?}");
    }
    node.stop();
}
