//! The rules of tables, and changes by operator, as a client meets them.

use serde_json::{Value, json};
use shop::http_client::{request, workspace_path};

use crate::support::{TestNode, WS, code};

fn ask(node: &TestNode, method: &str, rest: &str, body: &Value) -> (u16, Value) {
    let path = format!("{}/docs/{rest}", workspace_path(WS));
    let body = if body.is_null() { String::new() } else { body.to_string() };
    request(node.api, method, &path, &[], &body)
}

/// Makes a ware, and returns its path below `docs`.
fn ware(node: &TestNode, fields: &Value) -> String {
    let (status, made) = ask(node, "POST", "shop.Ware", &json!({ "fields": fields }));
    assert_eq!(status, 201, "{made}");
    format!("shop.Ware/{}", made["newIds"]["1"])
}

fn fields(node: &TestNode, ware: &str) -> Value {
    let (status, read) = ask(node, "GET", ware, &json!(null));
    assert_eq!(status, 200, "{read}");
    read["fields"].clone()
}

#[test]
fn a_command_that_breaks_a_rule_gets_422_and_its_reason() {
    let node = TestNode::start();
    let tea = ware(&node, &json!({ "name": "Tea" }));
    let read = fields(&node, &tea);
    assert_eq!((&read["stock"], &read["state"]), (&json!(0), &json!("new")), "defaults");
    assert_eq!(read["year"].as_str().map(str::len), Some(4), "{read}");
    let id = tea.rsplit('/').next().unwrap();
    for (method, path, sent, why) in [
        ("POST", "shop.Ware", json!({}), "`name` of shop.Ware must have a value"),
        (
            "POST",
            "shop.Ware",
            json!({ "name": "chamomile tea" }),
            "at most 10 characters, and has 13",
        ),
        ("PATCH", &tea, json!({ "stock": -7 }), "`stock` of shop.Ware must be at least 0"),
        ("PATCH", &tea, json!({ "stock": { "$add": -1 } }), "must be at least 0"),
        ("PATCH", &tea, json!({ "name": "Pear" }), "has a value already, and is immutable"),
        ("PATCH", &tea, json!({ "state": null }), "`state` of shop.Ware must have a value"),
        (
            "PATCH",
            &tea,
            json!({ "like": 999_999 }),
            "refers to record 999999, which does not exist",
        ),
        ("PATCH", &tea, json!({ "state": "odd" }), "must be one of `new`, `old`"),
    ] {
        let (status, problem) = ask(&node, method, path, &json!({ "fields": sent }));
        assert_eq!((status, &problem["code"]), (422, &json!("rule")), "{sent}: {problem}");
        let reason = problem["reason"].as_str().unwrap();
        assert!(reason.contains(why), "{sent}: {reason}");
        let named =
            if method == "POST" { "the new record 1".to_owned() } else { format!("record {id}") };
        assert!(reason.contains(&named), "{sent}: {reason}");
    }
    assert_eq!(fields(&node, &tea), read, "nothing was written");
    let sent = json!({ "fields": { "name": "Pear", "made": 1 } });
    assert_eq!(code(ask(&node, "POST", "shop.Ware", &sent)), (400, "bad_request".to_owned()));
    let sent = json!({ "fields": { "year": null } });
    assert_eq!(code(ask(&node, "PATCH", &tea, &sent)), (400, "invalid".to_owned()));

    let (_, entry) = ask(&node, "POST", "shop.Entry", &json!({ "fields": { "text": "paid" } }));
    let id = &entry["newIds"]["1"];
    let row = json!({ "rows": [{ "id": id, "table": "shop.Entry", "isActive": false }] });
    let deactivated = node.command(WS, "sys.CUD", &row.to_string());
    assert_eq!(code(deactivated), (422, "rule".to_owned()));
    let entry = format!("shop.Entry/{id}");
    assert_eq!(code(ask(&node, "DELETE", &entry, &json!(null))), (422, "rule".to_owned()));
    let sent = json!({ "fields": { "text": "never" } });
    let (status, problem) = ask(&node, "PATCH", &entry, &sent);
    assert_eq!(status, 422);
    assert!(problem["reason"].as_str().unwrap().ends_with("the table is append-only"), "{problem}");
    node.stop();
}

#[test]
fn an_operator_adds_to_what_is_there_and_an_event_has_the_sum() {
    let node = TestNode::start();
    let tea = ware(&node, &json!({ "name": "Tea", "stock": 100 }));
    let change =
        |change: Value| ask(&node, "PATCH", &tea, &json!({ "fields": { "stock": change } }));
    let (_, done) = change(json!({ "$add": -2 }));
    assert_eq!(fields(&node, &tea)["stock"], 98);
    let from = format!("{}/wlog?from={}", workspace_path(WS), done["wlogOffset"]);
    let (_, event) = request(node.api, "GET", &from, &[], "");
    assert_eq!(event["rows"][0]["fields"]["stock"], 98, "{event}");
    for (sent, why) in [
        (json!({ "$mul": 2 }), "`$mul` is unknown: the only operator is `$add`"),
        (json!({ "$add": 1, "$mul": 2 }), "`$mul` is unknown"),
        (json!({ "$add": 0.5 }), "`$add` needs a whole number of 64 bits"),
        (json!({ "$add": "1" }), "needs a whole number"),
        (json!({ "$add": null }), "needs a whole number"),
        (json!({}), "must be a whole number"),
        (json!({ "first": 1 }), "must be a whole number"),
    ] {
        let (status, problem) = change(sent.clone());
        assert_eq!((status, &problem["code"]), (400, &json!("bad_request")), "{sent}");
        let reason = problem["reason"].as_str().unwrap();
        assert!(reason.contains(why), "{sent}: {reason}");
    }
    let path = format!("{}/docs/{tea}", workspace_path(WS));
    let twice = r#"{"fields":{"stock":{"$add":-2,"$add":-3}}}"#;
    let (status, problem) = request(node.api, "PATCH", &path, &[], twice);
    assert_eq!(status, 400, "{problem}");
    assert!(problem["reason"].as_str().unwrap().contains("`$add` is there twice"), "{problem}");
    let of_text = json!({ "fields": { "name": { "$add": 1 } } });
    let (status, problem) = ask(&node, "PATCH", &tea, &of_text);
    assert_eq!(status, 400);
    assert!(
        problem["reason"].as_str().unwrap().contains("the field is of type string"),
        "{problem}"
    );
    let unknown = json!({ "fields": { "stok": { "$add": 1 } } });
    let (status, problem) = ask(&node, "PATCH", &tea, &unknown);
    assert_eq!((status, &problem["reason"]), (400, &json!("shop.Ware has no field `stok`")));
    let new = json!({ "fields": { "name": "Pear", "stock": { "$add": 1 } } });
    let (status, problem) = ask(&node, "POST", "shop.Ware", &new);
    assert_eq!(status, 400);
    assert!(problem["reason"].as_str().unwrap().contains("nothing to add to"), "{problem}");
    // The same request with its key adds once.
    let body = r#"{"fields":{"stock":{"$add":-8}}}"#;
    let send = || request(node.api, "PATCH", &path, &[("idempotency-key", "sale")], body);
    assert_eq!((send().0, send().1["repeated"].as_bool()), (200, Some(true)));
    assert_eq!(fields(&node, &tea)["stock"], 90);
    node.stop();
}

/// The client that reads the stock, and writes what is left, must retry whenever another one was
/// faster.
#[test]
fn many_clients_sell_exactly_what_is_there_and_nobody_retries() {
    const CLIENTS: usize = 8;
    let node = TestNode::start();
    let tea = ware(&node, &json!({ "name": "Tea", "stock": 100 }));
    let sold: usize = std::thread::scope(|scope| {
        let client = || {
            let sell =
                || ask(&node, "PATCH", &tea, &json!({ "fields": { "stock": { "$add": -1 } } }));
            let mut sold = 0;
            loop {
                match code_or_done(sell()) {
                    None => sold += 1,
                    Some(refused) => {
                        assert_eq!(refused, (422, "rule".to_owned()));
                        return sold;
                    }
                }
            }
        };
        let clients: Vec<_> = (0..CLIENTS).map(|_| scope.spawn(client)).collect();
        clients.into_iter().map(|client| client.join().unwrap()).sum()
    });
    assert_eq!(sold, 100);
    assert_eq!(fields(&node, &tea)["stock"], 0);
    node.stop();
}

fn code_or_done(answered: (u16, Value)) -> Option<(u16, String)> {
    (answered.0 != 200).then(|| code(answered))
}

/// A client that was generated from the description knows the rules.
#[test]
fn the_description_has_the_rules() {
    let node = TestNode::start();
    let (_, all) = request(node.api, "GET", "/api/v2/openapi.json", &[], "");
    let schema = |of: &str| &all["components"]["schemas"][format!("demo.shop.shop.Ware.{of}")];
    let new = schema("New");
    assert_eq!(new["required"], json!(["name"]), "`state` has a default");
    let of = |name: &str| &new["properties"][name];
    assert_eq!((&of("name")["maxLength"], &of("stock")["minimum"]), (&json!(10), &json!(0)));
    assert_eq!(
        (&of("stock")["default"], &of("state")["enum"]),
        (&json!(0), &json!(["new", "old"]))
    );
    assert_eq!((&of("made")["readOnly"], &of("year")["readOnly"]), (&json!(true), &json!(true)));
    assert!(of("like")["description"].as_str().unwrap().contains("shop.Ware"));
    assert_eq!(schema("Fields")["required"], json!([]), "a record may be older than a rule");
    let changes = &schema("Changes")["properties"];
    let add = json!({ "$ref": "#/components/schemas/Add" });
    assert_eq!(changes["stock"]["oneOf"][1], add, "{changes}");
    assert_eq!(changes["stock"]["oneOf"][0]["minimum"], 0);
    assert_eq!(changes["state"]["type"], "string", "it cannot be emptied");
    assert_eq!(changes["size"]["enum"], json!(["s", "l", null]), "it can");
    let seal = of("seal");
    assert_eq!(
        (&seal["maxLength"], &seal["description"]),
        (&json!(null), &json!("At most 3 bytes."))
    );
    let like = of("like")["description"].as_str().unwrap();
    assert!(like.contains("an id from 1 to 65535") && like.contains("keeps the value"), "{like}");
    let row = &schema("Row")["properties"];
    assert_eq!(row["fields"]["anyOf"].as_array().map(Vec::len), Some(2), "{row}");
    let entry = &all["components"]["schemas"]["demo.shop.shop.Entry.Row"]["properties"];
    assert!(entry.get("isActive").is_none() && entry.get("version").is_none(), "{entry}");
    assert!(changes.get("made").is_none() && changes.get("year").is_none(), "{changes}");
    let paths = all["paths"].as_object().unwrap();
    let of_entry = |(path, methods): (&String, &Value)| {
        path.ends_with("/docs/shop.Entry/{id}").then(|| methods.as_object().unwrap().clone())
    };
    let methods = paths.iter().find_map(of_entry).unwrap();
    assert!(methods.contains_key("get") && !methods.contains_key("patch"), "append-only");
    node.stop();
}
