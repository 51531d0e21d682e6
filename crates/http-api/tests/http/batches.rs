//! Batches of commands.

use serde_json::{Value, json};
use shop::http_client::{request, workspace_path};

use crate::support::{TestNode, WS, code};

/// The statuses of the answers to the commands of a batch.
pub(crate) fn statuses(answer: &Value) -> Vec<u64> {
    let answers = answer["answers"].as_array().unwrap_or_else(|| panic!("{answer}"));
    answers.iter().map(|answer| answer["status"].as_u64().unwrap()).collect()
}

/// A command that creates an article.
pub(crate) fn article(name: &str) -> Value {
    let row = json!({ "id": 1, "table": "shop.Article", "fields": { "name": name } });
    json!({ "command": "sys.CUD", "rows": [row] })
}

fn send(node: &TestNode, headers: &[(&str, &str)], body: &Value) -> (u16, Value) {
    let path = format!("{}/commands", workspace_path(WS));
    request(node.api, "POST", &path, headers, &body.to_string())
}

#[test]
fn the_commands_of_a_batch_are_done_in_order_or_refused_one_by_one() {
    let node = TestNode::start();
    let delivery = json!({ "id": 1, "table": "shop.Delivery" });
    let commands: Vec<_> = (0..100)
        .map(|place| match place {
            10 => json!({ "command": "sys.CUD", "rows": [{ "id": 1, "table": "shop.None" }] }),
            20 => json!({ "command": "sys.CUD", "rows": [{ "id": 99_999, "table": "shop.Line" }] }),
            30 => json!({ "command": "no name" }),
            40 => json!({ "command": "shop.None", "args": { "a": 1 } }),
            _ => json!({ "command": "sys.CUD", "rows": [delivery] }),
        })
        .collect();
    let (status, answer) =
        send(&node, &[("x-request-id", "batch")], &json!({ "commands": commands }));
    assert_eq!(status, 200, "{answer}");
    let answers = answer["answers"].as_array().unwrap();
    let mut done = Vec::new();
    for (place, answer) in answers.iter().enumerate() {
        let expected = match place {
            10 | 30 => (400, json!("bad_request")),
            20 | 40 => (404, json!("not_found")),
            _ => (200, json!(null)),
        };
        assert_eq!((answer["status"].as_u64().unwrap(), answer["code"].clone()), expected);
        match answer["status"] == 200 {
            true => done.push(answer),
            false => assert!(answer["reason"].is_string(), "{answer}"),
        }
    }
    assert_eq!(done.len(), 96);
    for (number, answer) in (1..).zip(done) {
        assert_eq!(answer["wlogOffset"], number + 1, "{answer}");
        let path = format!("{}/docs/shop.Delivery/{}", workspace_path(WS), answer["newIds"]["1"]);
        let (_, read) = request(node.api, "GET", &path, &[], "");
        assert_eq!(read["fields"]["number"], number, "the order of the batch: {read}");
    }
    assert_eq!(node.logged(WS)[1..], vec!["batch"; 96]);
    node.stop();
}

#[test]
fn a_batch_that_is_sent_again_gets_the_same_answers() {
    let node = TestNode::start();
    let taken = json!({ "command": "sys.CreateWorkspace", "args": { "kind": "Shop" } });
    let batch = json!({ "commands": [article("Tea"), taken, article("Milk")] });
    let key = [("idempotency-key", "k")];
    let (status, first) = send(&node, &key, &batch);
    assert_eq!((status, statuses(&first)), (200, vec![200, 409, 200]), "{first}");
    let (status, second) = send(&node, &key, &batch);
    assert_eq!((status, statuses(&second)), (200, vec![200, 409, 200]), "{second}");
    for place in [0, 2] {
        let mut expected = first["answers"][place].clone();
        expected["repeated"] = true.into();
        assert_eq!(second["answers"][place], expected);
    }
    // The place of a command counts, and a key belongs to one body.
    let other = json!({ "commands": [article("Tea"), article("Tea")] });
    let (_, answer) = send(&node, &key, &other);
    assert_eq!(answer["answers"][0]["code"], "key_reused", "{answer}");
    let (_, twice) = send(&node, &[("idempotency-key", "l")], &other);
    assert_eq!(statuses(&twice), [200, 200]);
    assert_ne!(twice["answers"][0]["newIds"], twice["answers"][1]["newIds"], "{twice}");
    // The same key names another request at the path of a single command.
    let path = format!("{}/commands/sys.CUD", workspace_path(WS));
    let body = json!({ "rows": article("Tea")["rows"] }).to_string();
    assert_eq!(request(node.api, "POST", &path, &key, &body).0, 200);
    node.stop();
}

#[test]
fn a_malformed_batch_changes_nothing() {
    let node = TestNode::start();
    let many: Vec<_> = (0..101).map(|_| article("Tea")).collect();
    for batch in [
        json!({}),
        json!({ "commands": [] }),
        json!({ "commands": many }),
        json!({ "commands": {} }),
        json!([[article("Tea")]]),
        json!({ "commands": [article("Tea"), ["sys.CUD"]] }),
        json!({ "commands": [article("Tea"), {}] }),
        json!({ "commands": [article("Tea"), { "command": "sys.CUD", "row": [] }] }),
        json!({ "commands": [article("Tea")], "rows": [] }),
    ] {
        assert_eq!(code(send(&node, &[], &batch)), (400, "bad_request".to_owned()), "{batch}");
    }
    let batch = json!({ "commands": [article("Tea")] });
    let versioned = send(&node, &[("if-match", "\"1.1\"")], &batch);
    assert_eq!(code(versioned), (400, "bad_request".to_owned()));
    assert_eq!(node.logged(WS).len(), 1, "nothing was written");
    node.stop();
}
