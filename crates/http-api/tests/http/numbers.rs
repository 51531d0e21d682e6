//! Document numbers.

use serde_json::{Value, json};
use shop::http_client::{request, workspace_path};

use crate::support::{TestNode, WS, code};

/// Sends a request about numbers of a workspace.
fn ask(node: &TestNode, ws: u64, method: &str, rest: &str, body: &str) -> (u16, Value) {
    let path = format!("{}/numbers{rest}", workspace_path(ws));
    request(node.api, method, &path, &[], body)
}

/// Draws numbers, and returns the answer.
fn draw(node: &TestNode, ws: u64, series: &str, body: &str) -> Value {
    let (status, answer) = ask(node, ws, "POST", &format!("/{series}/next"), body);
    assert_eq!(status, 200, "{answer}");
    answer
}

fn with_two_workspaces() -> TestNode {
    let node = TestNode::start();
    let (status, made) = node.command(WS + 1, "sys.CreateWorkspace", r#"{"args":{"kind":"Shop"}}"#);
    assert_eq!(status, 200, "{made}");
    node
}

#[test]
fn numbers_follow_one_another_in_each_workspace() {
    let node = with_two_workspaces();
    let first = json!({ "numbers": ["O-00000"], "counters": [0], "period": "all" });
    assert_eq!(draw(&node, WS, "order", ""), first);
    let more = draw(&node, WS, "order", r#"{"count":3}"#);
    assert_eq!(more["numbers"], json!(["O-00001", "O-00002", "O-00003"]));
    assert_eq!(more["counters"], json!([1, 2, 3]));
    assert_eq!(draw(&node, WS + 1, "order", "{}"), first, "each workspace counts on its own");
    for _ in 0..2 {
        let (status, next) = ask(&node, WS, "GET", "/order/peek", "");
        let expected =
            json!({ "number": "O-00004", "counter": 4, "period": "all", "nearlyFull": false });
        assert_eq!((status, next), (200, expected), "a peek draws nothing");
    }
    assert_eq!(draw(&node, WS, "order", "")["counters"], json!([4]));
    assert_eq!(draw(&node, WS, "ticket", "")["counters"], json!([0]));
    assert_eq!(draw(&node, WS + 1, "ticket", "")["counters"], json!([1]), "one counter for all");
    node.stop();
}

#[test]
fn a_number_is_drawn_once_by_many_clients() {
    const CLIENTS: usize = 8;
    const DRAWS: usize = 50;
    let node = TestNode::start();
    let mut all: Vec<u64> = std::thread::scope(|scope| {
        let client = || {
            let answers = (0..DRAWS).map(|_| draw(&node, WS, "order", r#"{"count":3}"#));
            answers.collect::<Vec<_>>()
        };
        let clients: Vec<_> = (0..CLIENTS).map(|_| scope.spawn(client)).collect();
        let answers = clients.into_iter().flat_map(|client| client.join().unwrap());
        let counters = answers.map(|answer| answer["counters"].as_array().unwrap().clone());
        counters.flatten().map(|counter| counter.as_u64().unwrap()).collect()
    });
    all.sort_unstable();
    let expected: Vec<u64> = (0..(CLIENTS * DRAWS * 3) as u64).collect();
    assert_eq!(all, expected, "each number once, and none is missing");
    node.stop();
}

/// `ISequenceService.GetNext: unknown key`, and other requests that draw nothing.
#[test]
fn a_request_that_draws_nothing_gets_its_code() {
    let node = TestNode::start();
    let draw =
        |ws, series: &str, body| code(ask(&node, ws, "POST", &format!("/{series}/next"), body));
    let not_found = (404, "not_found".to_owned());
    assert_eq!(draw(WS, "none", ""), not_found);
    assert_eq!(draw(99, "order", ""), not_found, "no such workspace");
    assert_eq!(draw(WS, "bill", ""), (409, "gapless".to_owned()));
    let bad = (400, "bad_request".to_owned());
    for body in [
        r#"{"count":0}"#,
        r#"{"count":1001}"#,
        r#"{"count":-1}"#,
        r#"{"count":4294967296}"#,
        r#"{"count":"1"}"#,
        r#"{"cuont":1}"#,
        "[1]",
        "1",
    ] {
        assert_eq!(draw(WS, "order", body), bad, "{body}");
    }
    // The body is held while the draw waits for the memory of its numbers.
    let too_large = format!("{:1025}", r#"{"count":1}"#);
    assert_eq!(draw(WS, "order", &too_large), (413, "body_too_large".to_owned()));
    assert_eq!(draw(WS, "order", &format!("{:1024}", r#"{"count":0}"#)), bad, "it fits");
    let path = format!("{}/numbers/order/next", workspace_path(WS));
    for header in [("idempotency-key", "a"), ("if-match", "\"1.1\"")] {
        assert_eq!(code(request(node.api, "POST", &path, &[header], "")), bad, "{header:?}");
    }
    for rest in ["", "/order", "/order/peek", "/order/gaps"] {
        assert_eq!(code(ask(&node, 99, "GET", rest, "")), not_found, "{rest} of no workspace");
    }
    for rest in ["/none", "/none/peek", "/none/gaps"] {
        assert_eq!(code(ask(&node, WS, "GET", rest, "")), not_found, "{rest}");
    }
    let (_, next) = ask(&node, WS, "GET", "/order/peek", "");
    assert_eq!(next["counter"], 0, "nothing was drawn");
    assert_eq!(ask(&node, WS, "POST", "/order/next", r#"{"count":1000}"#).0, 200, "the maximum");
    node.stop();
}

#[test]
fn a_full_counter_is_reported_before_and_when_it_is_full() {
    let node = TestNode::start();
    let nine = draw(&node, WS, "tiny", r#"{"count":9}"#);
    assert!(nine.get("nearlyFull").is_none(), "{nine}");
    let two = code(ask(&node, WS, "POST", "/tiny/next", r#"{"count":2}"#));
    assert_eq!(two, (409, "no_number".to_owned()), "all or nothing");
    let last = draw(&node, WS, "tiny", "");
    assert_eq!((&last["numbers"], &last["nearlyFull"]), (&json!(["N9"]), &json!(true)));
    let (status, full) = ask(&node, WS, "POST", "/tiny/next", "");
    assert_eq!((status, &full["code"]), (409, &json!("no_number")));
    assert!(full["reason"].as_str().unwrap().contains("let the counter widen"), "{full}");
    assert_eq!(code(ask(&node, WS, "GET", "/tiny/peek", "")).0, 409);
    node.stop();
}

/// A full fast series answered `no_number`, and a full gapless one `conflict`.
#[test]
fn a_full_gapless_series_answers_like_a_fast_one() {
    let node = TestNode::start();
    let slips = format!("{}/docs/shop.Slip", workspace_path(WS));
    let create = || request(node.api, "POST", &slips, &[], "{}");
    for _ in 0..2 {
        let (status, made) = create();
        assert_eq!(status, 201, "{made}");
    }
    for (status, full) in [create(), ask(&node, WS, "GET", "/slip/peek", "")] {
        assert_eq!((status, &full["code"]), (409, &json!("no_number")));
        assert!(full["reason"].as_str().unwrap().contains("let the counter widen"), "{full}");
    }
    node.stop();
}

#[test]
fn a_value_for_a_number_field_is_refused() {
    let node = TestNode::start();
    let bills = format!("{}/docs/shop.Bill", workspace_path(WS));
    let (status, made) = request(node.api, "POST", &bills, &[], "{}");
    assert_eq!(status, 201, "{made}");
    let id = made["newIds"]["1"].as_u64().unwrap();
    let bill = format!("{bills}/{id}");
    let value = json!({ "fields": { "number": "BILL-0007" } });
    let other = json!({ "fields": { "number": 7 } });
    let null = json!({ "fields": { "number": null } });
    let cud = |row: Value| {
        let rows = json!({ "rows": [row] }).to_string();
        node.command(WS, "sys.CUD", &rows)
    };
    let row = |id: u64, fields: &Value| json!({ "id": id, "table": "shop.Bill", "fields": fields });
    for (status, refused) in [
        request(node.api, "POST", &bills, &[], &value.to_string()),
        request(node.api, "POST", &bills, &[], &other.to_string()),
        request(node.api, "PATCH", &bill, &[], &value.to_string()),
        request(node.api, "PATCH", &bill, &[], &null.to_string()),
        cud(row(1, &value["fields"])),
        cud(row(id, &value["fields"])),
        cud(row(id, &null["fields"])),
    ] {
        let reason = refused["reason"].as_str().unwrap();
        assert!(status == 400 && reason.contains("leave the field out"), "{status} {refused}");
    }
    let (_, read) = request(node.api, "GET", &bill, &[], "");
    assert_eq!(read["fields"]["number"], "BILL-0000");
    assert_eq!(ask(&node, WS, "GET", "/bill/peek", "").1["counter"], 1, "nothing was drawn");
    node.stop();
}

#[test]
fn a_series_shows_its_definition_and_its_policy() {
    let node = TestNode::start();
    let (status, all) = ask(&node, WS, "GET", "", "");
    let ids: Vec<_> = all["series"]
        .as_array()
        .unwrap()
        .iter()
        .map(|one| one["series"].as_str().unwrap())
        .collect();
    assert_eq!((status, ids), (200, vec!["bill", "order", "slip", "ticket", "tiny"]));
    let (_, order) = ask(&node, WS, "GET", "/order", "");
    let expected = json!({
        "series": "order", "template": "O-{counter:5}", "reset": "never", "zone": "UTC", "start": 0,
        "step": 1, "overflow": "widen", "scope": "workspace", "warnAtPercent": 90,
        "policy": "fast", "range": 100, "refillBelow": 100, "maxCount": 1_000,
    });
    assert_eq!(order, expected);
    assert_eq!(all["series"][1], order);
    let (_, bill) = ask(&node, WS, "GET", "/bill", "");
    assert_eq!((&bill["policy"], &bill["record"]), (&json!("gapless"), &json!(65_601)));
    assert!(bill.get("range").is_none(), "{bill}");
    let (status, next) = ask(&node, WS, "GET", "/bill/peek", "");
    assert_eq!((status, &next["number"]), (200, &json!("BILL-0000")), "the first number");
    let made =
        request(node.api, "POST", &format!("{}/docs/shop.Bill", workspace_path(WS)), &[], "{}");
    assert_eq!(made.0, 201, "{}", made.1);
    let (_, next) = ask(&node, WS, "GET", "/bill/peek", "");
    let expected =
        json!({ "number": "BILL-0001", "counter": 1, "period": "all", "nearlyFull": false });
    assert_eq!(next, expected, "the bill has the first number");
    node.stop();
}

#[test]
fn ranges_that_are_not_all_issued_are_listed() {
    let node = with_two_workspaces();
    let gaps = |ws, rest: &str| {
        let (status, answer) = ask(&node, ws, "GET", rest, "");
        assert_eq!(status, 200, "{answer}");
        answer
    };
    let nothing = json!({
        "series": "order", "policy": "fast", "period": "all", "reserved": null, "gaps": [],
        "next": null,
    });
    assert_eq!(gaps(WS, "/order/gaps"), nothing);
    draw(&node, WS, "order", r#"{"count":10}"#);
    // The next range is reserved in the background.
    let listed = (0..500).map(|_| gaps(WS, "/order/gaps?period=all"));
    let listed = listed.into_iter().find(|listed| listed["reserved"] == 200).unwrap();
    let (first, second) = (&listed["gaps"][0], &listed["gaps"][1]);
    assert_eq!(
        (&first["first"], &first["last"], &first["count"]),
        (&json!(0), &json!(99), &json!(100))
    );
    assert_eq!((&second["first"], &second["last"]), (&json!(100), &json!(199)));
    assert_eq!((&first["state"], &listed["next"]), (&json!("in_use"), &Value::Null));
    let owner = first["owner"].as_str().unwrap();
    assert_eq!(owner, format!("{} seat 1 epoch 1", node.api));
    assert!(first["reservedAtMicros"].as_u64().unwrap() > 1_700_000_000_000_000, "{listed}");
    let page = gaps(WS, "/order/gaps?limit=1");
    assert_eq!((page["gaps"].as_array().unwrap().len(), &page["next"]), (1, &json!(100)));
    let page = gaps(WS, "/order/gaps?limit=1&from=100");
    assert_eq!(page["gaps"][0]["first"], 100);
    assert_eq!(gaps(WS + 1, "/order/gaps"), nothing, "another workspace has another counter");
    draw(&node, WS, "ticket", "");
    assert_eq!(gaps(WS + 1, "/ticket/gaps?limit=1")["gaps"][0]["first"], 0, "one counter for all");
    let bill = gaps(WS, "/bill/gaps");
    assert_eq!((&bill["policy"], &bill["gaps"]), (&json!("gapless"), &json!([])));
    assert!(bill["reason"].as_str().unwrap().contains("exactly when its event does"), "{bill}");
    node.stop();
}

#[test]
fn a_standby_names_the_leader_of_the_workspace() {
    let node = TestNode::start();
    let standby = node.start_standby();
    for (method, rest) in [
        ("GET", ""),
        ("GET", "/order"),
        ("POST", "/order/next"),
        ("GET", "/order/peek"),
        ("GET", "/order/gaps"),
    ] {
        let (status, problem) = ask(&standby, WS, method, rest, "");
        assert_eq!((status, &problem["code"]), (503, &json!("not_owner")), "{rest}");
        assert_eq!(problem["owner"], node.api.to_string(), "{rest}: {problem}");
    }
    // The leader closes the storage of both.
    node.stop();
    let _ = standby.end();
}
