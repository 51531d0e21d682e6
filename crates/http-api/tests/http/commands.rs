//! Commands: those that are refused, and those that are sent again.

use shop::http_client::{command_path, request, workspace_path};

use crate::support::{ROW, TestNode, WS, code};

#[test]
fn each_invalid_command_gets_its_code_and_changes_nothing() {
    let node = TestNode::with(|settings| settings.limits.body_bytes = 10_000);
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

/// The node wrote a change although the record was in another table. A client could even deactivate
/// an article as a bill.
#[test]
fn a_record_is_changed_only_by_the_name_of_its_own_table() {
    let node = TestNode::start();
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

#[test]
fn a_key_makes_a_command_that_can_be_sent_again() {
    let node = TestNode::start();
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

#[test]
fn a_standby_names_the_leader() {
    let leader = TestNode::start();
    let standby = leader.start_standby();
    let path = command_path(WS, "sys.CUD");
    for (method, path) in [
        ("POST", path.clone()),
        ("GET", format!("{}/wlog", workspace_path(WS))),
        ("GET", format!("{}/cdocs/shop.Article", workspace_path(WS))),
        ("GET", format!("{}/docs/shop.Article/1", workspace_path(WS))),
    ] {
        let (status, problem) = request(standby.api, method, &path, &[], ROW);
        assert_eq!((status, &problem["code"]), (503, &"not_owner".into()), "{problem}");
        assert_eq!(problem["owner"], leader.api.to_string(), "{problem}");
    }
    let named =
        format!("POST {path} HTTP/1.1\r\nhost: {}\r\ncontent-length: 2\r\n\r\n{{}}", standby.api);
    let refused = crate::support::answer_to(standby.api, &named);
    assert_eq!(refused.header("retry-after"), Some("1"), "{refused:?}");
    // The command is refused before its row is looked at, so the same request suits the leader.
    assert_eq!(request(leader.api, "POST", &path, &[], ROW).0, 200);
    assert_eq!(leader.logged(WS).len(), 2);
    // The leader closes the storage of both.
    leader.stop();
    let _ = standby.end();
}
