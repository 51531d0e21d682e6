//! Tables that change between two starts: rules that come later, fields that are left out, numbers
//! that become wider. And what operators see of it.

use std::{fs, path::Path, process::Command};

use serde_json::{Value, json};
use shop::http_client::{request, workspace_path};

use crate::node::NodeProcess;

const FIRST: &str = r#"
[tables."shop.Article"]
kind = "CDoc"
fields = { name = "string", old = "string", stock = "int32", like = "ref" }
"#;

/// `old` is left out, `stock` is wider, and there are rules.
const SECOND: &str = r#"
[tables."shop.Article"]
kind = "CDoc"
fields.name = { type = "string", required = true }
fields.stock = { type = "int64", min = 0, max = 9_000_000_000 }
fields.like = { type = "ref", to = ["shop.Article"] }
"#;

fn write_config(folder: &Path, tables: &str) -> String {
    fs::write(folder.join("tables.toml"), tables).unwrap();
    let config = "[[apps]]\nname = \"acme/shop\"\npartitions = 3\ntables = \"tables.toml\"\n\
                  workspaces = { Shop = 1 }\n";
    config.to_owned()
}

/// Runs a command of an operator. Returns its exit code and all its output.
fn run(folder: &Path, config: &str, args: &[&str]) -> (Option<i32>, String) {
    fs::write(folder.join("node.toml"), config).unwrap();
    let mut command = Command::new(env!("CARGO_BIN_EXE_vvm"));
    let output =
        command.args(args).args(["--config", "node.toml"]).current_dir(folder).output().unwrap();
    let text = [output.stdout, output.stderr].concat();
    (output.status.code(), String::from_utf8(text).unwrap())
}

struct Client<'n>(&'n NodeProcess);

impl Client<'_> {
    fn ask(&self, method: &str, rest: &str, body: &Value) -> (u16, Value) {
        let path = workspace_path(1).replace("demo/shop", "acme/shop") + rest;
        let body = if body.is_null() { String::new() } else { body.to_string() };
        request(self.0.api, method, &path, &[], &body)
    }

    fn create_workspace(&self) {
        let body = json!({ "args": { "kind": "Shop" } });
        let (status, made) = self.ask("POST", "/commands/sys.CreateWorkspace", &body);
        assert_eq!(status, 200, "{made}");
    }

    fn create(&self, fields: &Value) -> u64 {
        let (status, made) = self.ask("POST", "/docs/shop.Article", &json!({ "fields": fields }));
        assert_eq!(status, 201, "{made}");
        made["newIds"]["1"].as_u64().unwrap()
    }

    fn change(&self, id: u64, fields: &Value) -> (u16, Value) {
        self.ask("PATCH", &format!("/docs/shop.Article/{id}"), &json!({ "fields": fields }))
    }

    fn fields(&self, id: u64) -> Value {
        let (status, read) = self.ask("GET", &format!("/docs/shop.Article/{id}"), &json!(null));
        assert_eq!(status, 200, "{read}");
        let (_, all) = self.ask("GET", &format!("/docs?ids={id}"), &json!(null));
        assert_eq!(all["docs"][0], read, "several records are shown like one");
        let eventual = format!("/docs/shop.Article/{id}?consistency=eventual");
        assert_eq!(self.ask("GET", &eventual, &json!(null)).1, read, "another node shows the same");
        let (_, list) = self.ask("GET", "/cdocs/shop.Article", &json!(null));
        let listed = list["docs"].as_array().unwrap().iter().find(|doc| doc["id"] == id);
        assert_eq!(listed, Some(&read), "a list shows the same");
        read["fields"].clone()
    }

    fn found(&self, filter: &str) -> usize {
        let filter = filter.replace('{', "%7B").replace('}', "%7D").replace('"', "%22");
        let (status, list) =
            self.ask("GET", &format!("/cdocs/shop.Article?where={filter}"), &json!(null));
        assert_eq!(status, 200, "{list}");
        list["docs"].as_array().unwrap().len()
    }
}

/// A field could never be left out again.
#[test]
fn nodes_with_two_versions_of_the_tables_take_turns() {
    let folder = tempfile::tempdir().unwrap();
    let (first, second) = (FIRST, SECOND);
    let config = write_config(folder.path(), first);
    let node = NodeProcess::start(folder.path(), &config).ready();
    let client = Client(&node);
    client.create_workspace();
    let tea = client.create(&json!({ "name": "tea", "old": "kept", "stock": 5 }));
    let bad = client.create(&json!({ "stock": -7 }));
    let liked = client.create(&json!({ "name": "pear", "like": 65_536 }));
    node.stop();

    // The node hides what its tables leave out, and carries the values.
    let config = write_config(folder.path(), second);
    let node = NodeProcess::start(folder.path(), &config).ready();
    let client = Client(&node);
    assert_eq!(client.fields(tea), json!({ "name": "tea", "stock": 5 }));
    assert_eq!(client.found(r#"{"stock":5}"#), 1, "it was stored as an int32");
    let (status, changed) = client.change(tea, &json!({ "stock": { "$add": 5_000_000_000_u64 } }));
    assert_eq!(status, 200, "{changed}");
    assert_eq!(client.fields(tea)["stock"], 5_000_000_005_u64);
    assert_eq!(client.change(tea, &json!({ "old": "lost" })).0, 400, "its clients do not see it");
    assert_eq!(client.change(bad, &json!({ "stock": -6 })).0, 422);
    assert_eq!(
        client.change(bad, &json!({ "stock": 6 })).0,
        200,
        "a record from before is corrected"
    );
    node.stop();

    // A field whose numbers may be too large for an int32 does not become one again.
    let (code, log) = run(folder.path(), &write_config(folder.path(), first), &["config", "check"]);
    assert_eq!(code, Some(3), "{log}");
    let why = "the field `stock` of shop.Article was of type int64, and cannot become int32";
    assert!(log.contains(why), "{log}");
    let mut node = NodeProcess::start(folder.path(), &write_config(folder.path(), first));
    assert_eq!(node.ended().code(), Some(3), "{}", node.log_text());

    // Otherwise the earlier tables come back, with all values.
    let back = first.replace("int32", "int64");
    let config = write_config(folder.path(), &back);
    let node = NodeProcess::start(folder.path(), &config).ready();
    let client = Client(&node);
    let expected = json!({ "name": "tea", "old": "kept", "stock": 5_000_000_005_u64 });
    assert_eq!(client.fields(tea), expected);
    assert_eq!(client.fields(bad), json!({ "stock": 6 }));
    assert_eq!(client.fields(liked)["like"], 65_536);
    node.stop();
}

/// An operator did not learn from `config check` that a node would refuse the tables.
#[test]
fn a_check_compares_with_what_is_deployed_and_says_so() {
    let folder = tempfile::tempdir().unwrap();
    let config = write_config(folder.path(), FIRST);
    let check = |config: &str| run(folder.path(), config, &["config", "check"]);
    let (code, text) = check(&config);
    assert_eq!(code, Some(0), "{text}");
    assert!(
        text.contains("not compared with a deployment, because data/vvm.redb does not exist"),
        "{text}"
    );
    let node = NodeProcess::start(folder.path(), &config).ready();
    let (code, text) = check(&config);
    assert_eq!(code, Some(0), "{text}");
    assert!(text.contains("not compared with a deployment, because a node works with"), "{text}");
    node.stop();
    let (code, text) = check(&config);
    assert_eq!(code, Some(0), "{text}");
    let same =
        "compared with the deployment: acme/shop fits its deployment, and changes nothing there\n";
    assert!(text.contains(same), "{text}");
    let more = format!("{SECOND}fields.new = \"bool\"\n[tables.\"shop.Bill\"]\nkind = \"WDoc\"\n");
    let (code, text) = check(&write_config(folder.path(), &more));
    assert_eq!(code, Some(0), "{text}");
    for change in [
        "`stock` of shop.Article becomes int64, for ever",
        "`new` of shop.Article is new",
        "`old` of shop.Article is left out, and records keep its values",
        "shop.Bill is new",
    ] {
        assert!(text.contains(change), "{change}: {text}");
    }
    let renamed = FIRST.replace("old = \"string\"", "old = \"bytes\"");
    let (code, text) = check(&write_config(folder.path(), &renamed));
    assert_eq!(code, Some(3), "{text}");
    assert!(text.contains("add a field with another name"), "{text}");
}

#[test]
fn records_that_break_new_rules_are_listed() {
    let folder = tempfile::tempdir().unwrap();
    let config = write_config(folder.path(), FIRST);
    let node = NodeProcess::start(folder.path(), &config).ready();
    let client = Client(&node);
    client.create_workspace();
    let tea = client.create(&json!({ "name": "tea", "stock": 5 }));
    let unnamed = client.create(&json!({ "stock": 1 }));
    let less = client.create(&json!({ "name": "pear", "stock": -7 }));
    let liked = client.create(&json!({ "name": "fig", "like": 65_536 }));
    let last = client.create(&json!({ "name": "fig", "like": tea }));
    let check = |config: &str| run(folder.path(), config, &["apps", "check", "acme/shop"]);
    let (code, text) = check(&config);
    assert_eq!(code, Some(4), "a node uses the file: {text}");
    // A reference may point to a record that was deactivated later.
    assert_eq!(client.ask("DELETE", &format!("/docs/shop.Article/{tea}"), &json!(null)).0, 200);
    node.stop();
    let (code, text) = check(&config);
    assert_eq!((code, text.as_str()), (Some(0), "0 of 6 records of acme/shop break a rule\n"));
    let (code, text) = check(&write_config(folder.path(), SECOND));
    assert_eq!(code, Some(1), "{text}");
    for line in [
        format!(
            "workspace 1: record {unnamed}: the field `name` of shop.Article must have a value"
        ),
        format!("workspace 1: record {less}: the field `stock` of shop.Article must be at least 0"),
        format!(
            "workspace 1: record {liked}: the field `like` of shop.Article refers to record 65536 \
             of sys.WorkspaceDescriptor, and must refer to shop.Article"
        ),
        "3 of 6 records of acme/shop break a rule".to_owned(),
    ] {
        assert!(text.lines().any(|found| found == line), "{line}\nin\n{text}");
    }
    assert!(!text.contains(&last.to_string()), "{text}");
    let other = run(folder.path(), &config, &["apps", "check", "acme/other"]);
    assert_eq!(other.0, Some(3), "{}", other.1);
}

/// The blocks of a page between these two lines.
fn blocks(page: &str, begin: &str) -> Vec<String> {
    let begin = format!("\n{begin}\n");
    let parts = page.split(begin.as_str()).skip(1);
    parts.map(|part| part.split("\n```").next().unwrap().to_owned()).collect()
}

/// A method, a path and a body.
type Request = (String, String, String);

/// The requests of the curl commands in a block.
fn requests(block: &str) -> Vec<Request> {
    let commands = block.split("curl -X ").skip(1);
    let request = |command: &str| {
        let mut words = command.split_whitespace();
        let (method, path) = (words.next().unwrap(), words.next().unwrap());
        let (_, body) = command.split_once("-d '").unwrap();
        let (body, _) = body.rsplit_once('\'').unwrap();
        (method.to_owned(), path.trim_start_matches("$W").to_owned(), body.to_owned())
    };
    commands.map(request).collect()
}

/// The example could not be followed: nothing made the workspace, the customer and the article.
#[test]
fn the_example_of_the_guide_runs() {
    let folder = tempfile::tempdir().unwrap();
    let page = fs::read_to_string(concat!(env!("CARGO_MANIFEST_DIR"), "/../../docs/tables.md"));
    let page = page.unwrap();
    let tables = blocks(&page, "```toml");
    fs::write(folder.path().join("shop.toml"), &tables[0]).unwrap();
    let node = NodeProcess::start(folder.path(), &tables[1]).ready();
    let client = Client(&node);
    let send = |(method, rest, body): &Request| {
        client.ask(method, rest, &serde_json::from_str(body).unwrap())
    };
    let all: Vec<Request> = blocks(&page, "```").iter().flat_map(|block| requests(block)).collect();
    let [workspace, customer, article, sale, change] = &all[..] else { panic!("{all:?}") };
    assert_eq!(send(workspace).0, 200);
    for (document, id) in [(customer, 322_685_000_131_072_u64), (article, 322_685_000_131_073)] {
        let (status, made) = send(document);
        assert_eq!((status, made["newIds"]["1"].as_u64()), (201, Some(id)), "{made}");
    }
    let (status, sold) = send(sale);
    assert_eq!(status, 200, "{sold}");
    let number = sold["drawn"]["1"]["number"].as_str().unwrap();
    assert!(number.starts_with("INV") && number.ends_with("-0001"), "{number}");
    let (status, refused) = send(sale);
    assert_eq!((status, &refused["code"]), (422, &json!("rule")), "{refused}");
    assert_eq!(send(change).0, 200);
    assert_eq!(send(change).0, 422, "nothing is left");
    node.stop();
}
