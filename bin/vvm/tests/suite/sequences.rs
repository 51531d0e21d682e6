//! The sequences of an application on redb, as a process: from the configuration, through kills of
//! a node that stored no number, to changes of the configuration.

use std::{fs, path::Path};

use rustix::process::Signal;
use serde_json::{Value, json};
use shop::http_client::{request, workspace_path};

use crate::node::NodeProcess;

/// Workspaces of the demo application. Two of them are in one partition.
const WORKSPACES: [u64; 3] = [1, 2, 11];

const TABLES: &str = "
[tables.\"shop.Visit\"]
kind = \"WDoc\"
fields = { customer = \"string\" }
sequences = { number = \"Visit\" }

[tables.\"shop.Parcel\"]
kind = \"CDoc\"
sequences = { code = \"Parcel\" }
";

const SEQUENCES: &str = "[apps.sequences.Shop]\n\
                         Visit = { id = 256, start = 100, end = 999999 }\n\
                         Parcel = { id = 300 }\n";

/// A configuration that lets a node store no number before it stops in order.
fn config(folder: &Path, sequences: &str) -> String {
    fs::write(folder.join("tables.toml"), TABLES).unwrap();
    format!(
        "[sequences]\nflush_delay_seconds = 3600\nunflushed_numbers = 1000000\n\
         [[apps]]\nname = \"demo/shop\"\ntables = \"tables.toml\"\nworkspaces = {{ Shop = 1 }}\n{sequences}"
    )
}

fn start(folder: &Path, sequences: &str) -> NodeProcess {
    NodeProcess::start(folder, &config(folder, sequences)).ready()
}

/// Creates documents by one command each, and returns a field of each.
fn create(node: &NodeProcess, ws: u64, table: &str, field: &str, count: usize) -> Vec<u64> {
    let path = workspace_path(ws);
    let create = |_| {
        let (status, answer) =
            request(node.api, "POST", &format!("{path}/docs/{table}"), &[], "{}");
        assert_eq!(status, 201, "{answer}");
        let id = answer["newIds"]["1"].as_u64().unwrap();
        let (status, answer) =
            request(node.api, "GET", &format!("{path}/docs/{table}/{id}"), &[], "");
        assert_eq!(status, 200, "{answer}");
        answer["fields"][field].as_u64().unwrap_or_else(|| panic!("{answer}"))
    };
    (0..count).map(create).collect()
}

/// The numbers of the node that are not stored.
fn unflushed(node: &NodeProcess) -> u64 {
    let (_, status) = request(node.admin, "GET", "/status", &[], "");
    let partitions = status["node"]["apps"][0]["here"].as_array().unwrap();
    partitions.iter().map(|partition| partition["unflushedNumbers"].as_u64().unwrap()).sum()
}

#[test]
fn a_killed_node_that_stored_no_number_goes_on_behind_the_last_number() {
    let folder = tempfile::tempdir().unwrap();
    let (mut visits, mut parcels) = (100.., 1..);
    for round in 0..4 {
        let mut node = start(folder.path(), SEQUENCES);
        let count = 3 + round;
        let visits: Vec<u64> = visits.by_ref().take(count).collect();
        let parcels: Vec<u64> = parcels.by_ref().take(count).collect();
        for ws in WORKSPACES {
            node.create_workspace(ws);
            let drawn = create(&node, ws, "shop.Visit", "number", count);
            assert_eq!(drawn, visits, "workspace {ws}, round {round}");
            assert_eq!(create(&node, ws, "shop.Parcel", "code", count), parcels);
        }
        let expected = WORKSPACES.len() as u64;
        assert!(unflushed(&node) >= expected * 2, "the numbers are stored already");
        node.signal(Signal::KILL);
        node.ended();
    }
    // The range may change at any time. A node that stops in order stores its numbers.
    let longer = SEQUENCES.replace("start = 100, end = 999999", "start = 1");
    for next in [118, 119] {
        let node = start(folder.path(), &longer);
        assert_eq!(create(&node, 2, "shop.Visit", "number", 1), [next]);
        node.stop();
    }
}

#[test]
fn only_the_node_fills_a_sequence_field_and_only_within_the_range() {
    let folder = tempfile::tempdir().unwrap();
    let node = start(folder.path(), &SEQUENCES.replace("999999", "101"));
    node.create_workspace(1);
    let path = format!("{}/docs/shop.Visit", workspace_path(1));
    let post = |body: &Value| request(node.api, "POST", &path, &[], &body.to_string());
    let (status, answer) = post(&json!({ "fields": { "number": 7 } }));
    assert_eq!(status, 400, "{answer}");
    let why = "the field `number` of shop.Visit gets its value from the sequence `Visit`";
    assert!(answer["reason"].as_str().unwrap().contains(why), "{answer}");
    assert_eq!(create(&node, 1, "shop.Visit", "number", 2), [100, 101]);
    let (status, answer) = post(&json!({ "fields": { "customer": "Ann" } }));
    assert_eq!((status, &answer["code"]), (409, &json!("no_number")), "{answer}");
    assert!(answer["reason"].as_str().unwrap().contains("no number after 101"), "{answer}");
    assert_eq!(node.logged(1).len(), 3, "only the workspace and two visits have events");
    node.stop();
}

/// A sequence with another id would begin again.
#[test]
fn a_deployed_sequence_cannot_get_another_id() {
    let folder = tempfile::tempdir().unwrap();
    let node = start(folder.path(), SEQUENCES);
    node.stop();
    let renamed = |text: &str| text.replace("Visit", "Call");
    for (tables, sequences) in [
        (TABLES.to_owned(), SEQUENCES.replace("id = 256", "id = 257")),
        (TABLES.to_owned(), SEQUENCES.replace("256", "301").replace("300", "256")),
        (renamed(TABLES), renamed(SEQUENCES)),
    ] {
        let config = config(folder.path(), &sequences);
        fs::write(folder.path().join("tables.toml"), tables).unwrap();
        let mut node = NodeProcess::start(folder.path(), &config);
        assert_eq!(node.ended().code(), Some(3), "{}", node.log_text());
        for part in ["demo/shop", "sequence", "declare it"] {
            assert!(node.log_text().contains(part), "{part}: {}", node.log_text());
        }
    }
}
