//! Lists with filters, chosen fields and an order, and documents by their ids.

use serde_json::{Value, json};
use shop::http_client::{request, workspace_path};

use crate::support::{TestNode, WS, code};

/// A path in the workspace, with its query encoded as browsers do.
fn at(path: &str, query: &[(&str, &str)]) -> String {
    let encoded = |value: &str| -> String {
        let byte = |byte: u8| match byte {
            b' ' => "+".to_owned(),
            byte if byte.is_ascii_alphanumeric() => char::from(byte).to_string(),
            byte => format!("%{byte:02X}"),
        };
        value.bytes().map(byte).collect()
    };
    let query: Vec<_> =
        query.iter().map(|(name, value)| format!("{name}={}", encoded(value))).collect();
    format!("{}/{path}?{}", workspace_path(WS), query.join("&"))
}

fn get(node: &TestNode, path: &str, query: &[(&str, &str)]) -> Value {
    let (status, answer) = request(node.api, "GET", &at(path, query), &[], "");
    assert_eq!(status, 200, "{query:?}: {answer}");
    answer
}

fn ids_of(docs: &Value) -> Vec<u64> {
    docs.as_array().unwrap().iter().map(|doc| doc["id"].as_u64().unwrap()).collect()
}

/// Creates articles with these fields by one command, and returns their ids.
fn articles(node: &TestNode, fields: impl Iterator<Item = Value>) -> Vec<u64> {
    let rows: Vec<_> = (1..)
        .zip(fields)
        .map(|(id, fields)| json!({ "id": id, "table": "shop.Article", "fields": fields }))
        .collect();
    let count = rows.len();
    let (status, made) = node.command(WS, "sys.CUD", &json!({ "rows": rows }).to_string());
    assert_eq!(status, 200, "{made}");
    (1..=count).map(|id| made["newIds"][id.to_string()].as_u64().unwrap()).collect()
}

/// Reads a list to its end, and returns the ids of all documents and the number of answers.
fn whole_list(node: &TestNode, query: &[(&str, &str)]) -> (Vec<u64>, usize) {
    let (mut ids, mut after, mut answers) = (Vec::new(), None::<u64>, 0);
    loop {
        let next = after.map(|after| after.to_string());
        let next: Vec<_> = next.iter().map(|next| ("after", next.as_str())).collect();
        let list = get(node, "cdocs/shop.Article", &[query, &next].concat());
        ids.extend(ids_of(&list["docs"]));
        answers += 1;
        after = list["next"].as_u64();
        if after.is_none() {
            return (ids, answers);
        }
    }
}

#[test]
fn a_list_has_the_documents_and_the_fields_that_were_asked_for() {
    let node = TestNode::start();
    let named = |name: &str, cents: u32| json!({ "name": name, "cents": cents });
    let ids = articles(
        &node,
        [named("Tea", 500), named("Green & black + more", 500), named("Tea", 300), json!({})]
            .into_iter(),
    );
    let doc = format!("{}/docs/shop.Article/{}", workspace_path(WS), ids[2]);
    assert_eq!(request(node.api, "DELETE", &doc, &[], "").0, 200);
    let filtered = |filter| {
        let (found, answers) = whole_list(&node, &[("where", filter)]);
        assert_eq!(answers, 1);
        found.into_iter().map(|id| ids.iter().position(|known| *known == id).unwrap()).collect()
    };
    for (filter, expected) in [
        (r#"{"name":"Tea"}"#, vec![0]),
        (r#"{"name":"Green & black + more"}"#, vec![1]),
        (r#"{"cents":{"$in":[300,500]}}"#, vec![0, 1]),
        (r#"{"name":null}"#, vec![3]),
        (r#"{"sys.IsActive":false}"#, vec![2]),
        (r#"{"name":"Tea","sys.IsActive":{"$in":[true,false]}}"#, vec![0, 2]),
    ] {
        let found: Vec<usize> = filtered(filter);
        assert_eq!(found, expected, "{filter}");
    }
    let list = get(&node, "cdocs/shop.Article", &[("keys", "cents"), ("limit", "1")]);
    assert_eq!(list["docs"][0]["fields"], json!({ "cents": 500 }), "{list}");
    assert_eq!(list["docs"][0]["table"], "shop.Article");
    for (name, value, part) in [
        ("where", r#"{"nane":"Tea"}"#, "no field `nane`"),
        ("where", r#"{"cents":{"$gt":1}}"#, "`$gt`"),
        ("keys", "cents,nane", "no field `nane`"),
        ("keys", "cents,cents", "`cents` twice"),
        ("order", "name", "`id` or `-id`"),
        ("include", "name", "`include` is unknown"),
    ] {
        let path = at("cdocs/shop.Article", &[(name, value)]);
        let answer = request(node.api, "GET", &path, &[], "");
        assert!(answer.1["reason"].as_str().unwrap().contains(part), "{}", answer.1);
        assert_eq!(code(answer), (400, "bad_request".to_owned()));
    }
    node.stop();
}

/// Three storage partitions of records: the answers are the same in both directions, and a filter
/// that accepts few documents makes no answer read all of them.
#[test]
fn a_list_is_read_in_both_directions_with_bounded_work() {
    let node = TestNode::start();
    let is_rare = |number: usize| matches!(number, 5 | 4_000 | 9_998 | 10_001 | 11_999);
    let article = |number| match is_rare(number) {
        true => json!({ "name": "rare" }),
        false => json!({}),
    };
    let mut ids = Vec::new();
    for command in 0..4 {
        let numbers = command * 3_000..(command + 1) * 3_000;
        ids.extend(articles(&node, numbers.map(article)));
    }
    let filter = ("where", r#"{"name":"rare"}"#);
    let rare: Vec<u64> =
        (0..ids.len()).filter(|number| is_rare(*number)).map(|number| ids[number]).collect();
    let upwards = whole_list(&node, &[filter]);
    assert_eq!(upwards, (rare.clone(), 2), "an answer examines 10,000 records");
    let downwards: Vec<u64> = rare.into_iter().rev().collect();
    let down = ("order", "-id");
    assert_eq!(whole_list(&node, &[filter, down]), (downwards.clone(), 2));
    let (one_by_one, answers) = whole_list(&node, &[filter, down, ("limit", "1")]);
    assert!(one_by_one == downwards && answers <= 7, "{one_by_one:?} {answers}");
    let all: Vec<u64> = ids.iter().rev().copied().collect();
    for limit in ["1000", "997"] {
        let (found, _) = whole_list(&node, &[down, ("limit", limit)]);
        assert!(found == all, "{limit}: {} documents", found.len());
    }
    // Each place in a block and beside it.
    for after in [ids[0], ids[1], ids[16], ids[17], ids[4_095], ids[4_096], ids[11_999], u64::MAX] {
        let query = [down, ("limit", "20"), ("after", &after.to_string())];
        let list = get(&node, "cdocs/shop.Article", &query);
        let expected: Vec<u64> = all.iter().copied().filter(|id| *id < after).take(20).collect();
        assert_eq!(ids_of(&list["docs"]), expected, "{after}");
    }
    for after in ["0", "1"] {
        let list = get(&node, "cdocs/shop.Article", &[down, ("after", after)]);
        assert_eq!(list, json!({ "docs": [], "next": null }));
    }
    node.stop();
}

/// The size of the documents also limits a page that is read downwards, and no document is left
/// out.
#[test]
fn a_page_of_large_documents_is_short_downwards() {
    let node = TestNode::start();
    let text = "x".repeat(600_000);
    let mut ids: Vec<u64> =
        (0..5).flat_map(|_| articles(&node, std::iter::once(json!({ "name": text })))).collect();
    ids.reverse();
    let (found, answers) = whole_list(&node, &[("order", "-id"), ("limit", "1000")]);
    assert_eq!((found, answers), (ids, 3));
    node.stop();
}

#[test]
fn documents_of_any_kind_are_read_by_their_ids() {
    let node = TestNode::start();
    let article = articles(&node, std::iter::once(json!({ "name": "Tea", "cents": 5 })))[0];
    let bill = r#"{"rows":[{"id":1,"table":"shop.Bill","fields":{"customer":"Ann"}},
        {"id":2,"table":"shop.Line","parent":{"id":1,"container":"lines"},"fields":{"cents":7}}]}"#;
    let made = node.command(WS, "sys.CUD", bill).1;
    let [bill, line] = ["1", "2"].map(|raw| made["newIds"][raw].as_u64().unwrap());
    let doc = format!("{}/docs/shop.Article/{article}", workspace_path(WS));
    assert_eq!(request(node.api, "DELETE", &doc, &[], "").0, 200);
    let absent = 322_685_000_131_999_u64;
    let ids = format!("{line},{absent},{article},7,{bill}");
    let found = get(&node, "docs", &[("ids", &ids)]);
    assert_eq!(ids_of(&found["docs"]), [line, article, bill], "{found}");
    assert_eq!((&found["missing"], &found["rest"]), (&json!([absent, 7]), &json!([])));
    assert_eq!(found["docs"][1], request(node.api, "GET", &doc, &[], "").1, "as one by one");
    assert_eq!(found["docs"][1]["isActive"], false);
    let found = get(&node, "docs", &[("ids", &ids), ("keys", "cents")]);
    let fields: Vec<_> =
        found["docs"].as_array().unwrap().iter().map(|doc| doc["fields"].clone()).collect();
    assert_eq!(fields, [json!({ "cents": 7 }), json!({ "cents": 5 }), json!({})]);
    assert_eq!(
        get(&node, "docs", &[("ids", &ids), ("consistency", "eventual")])["rest"],
        json!([])
    );
    for query in [&[][..], &[("ids", "1,1")], &[("ids", "1"), ("keys", "none")]] {
        let answer = request(node.api, "GET", &at("docs", query), &[], "");
        assert_eq!(code(answer), (400, "bad_request".to_owned()), "{query:?}");
    }
    for query in ["ids=7", "ids=7&consistency=eventual"] {
        let path = format!("{}/docs?{query}", workspace_path(99));
        let answer = request(node.api, "GET", &path, &[], "");
        assert_eq!(code(answer), (404, "not_found".to_owned()), "no workspace: {query}");
    }
    node.stop();
}

/// A full answer names the ids that it did not look at.
#[test]
fn large_documents_are_read_by_their_ids_in_several_answers() {
    let node = TestNode::start();
    let text = "x".repeat(600_000);
    let ids: Vec<u64> =
        (0..5).flat_map(|_| articles(&node, std::iter::once(json!({ "name": text })))).collect();
    let (mut rest, mut found, mut counts) = (ids.clone(), Vec::new(), Vec::new());
    while !rest.is_empty() {
        let query: Vec<_> = rest.iter().map(u64::to_string).collect();
        let answer = get(&node, "docs", &[("ids", &query.join(","))]);
        let docs = ids_of(&answer["docs"]);
        counts.push(docs.len());
        found.extend(docs);
        let left = answer["rest"].as_array().unwrap().iter();
        rest = left.map(|id| id.as_u64().unwrap()).collect();
    }
    assert_eq!((found, counts), (ids, vec![2, 2, 1]));
    node.stop();
}
