//! `GET /sequences`: the stored numbers of a node on redb, as a process.

use std::net::TcpListener;

use serde_json::{Value, json};
use shop::http_client::{request, workspace_path};

use crate::node::NodeProcess;

const WS: u64 = 1;

fn stored_numbers(node: &NodeProcess) -> (u16, Value) {
    request(node.admin, "GET", &format!("/sequences?app=demo/shop&ws={WS}"), &[], "")
}

/// A node that is stopped stores its numbers. The next one reads them, from both places.
#[test]
fn the_stored_numbers_are_shown_from_both_places() {
    for (storage, place) in [("system", "the system keyspace"), ("view", "sys.SequencesView")] {
        let folder = tempfile::tempdir().unwrap();
        let config = format!("[sequences]\nstorage = \"{storage}\"\n");
        let node = NodeProcess::start(folder.path(), &config).ready();
        node.create_workspace(WS);
        let path = format!("{}/docs/shop.Bill", workspace_path(WS));
        let (status, bill) = request(node.api, "POST", &path, &[], "{}");
        assert_eq!(status, 201, "{bill}");
        node.stop();

        let node = NodeProcess::start(folder.path(), &config).ready();
        let (status, stored) = stored_numbers(&node);
        assert_eq!(status, 200, "{stored}");
        let row = |workspace: u64, name: &str, last: &Value| json!({ "partition": 1, "workspace": workspace, "name": name, "last": last });
        let expected = json!({
            "app": "demo/shop",
            "storedIn": place,
            "sequences": [
                row(0, "sys.PLogOffsetSeq", &bill["plogOffset"]),
                row(WS, "sys.WLogOffsetSeq", &bill["wlogOffset"]),
                row(WS, "sys.RecIDSeq", &bill["newIds"]["1"]),
            ],
        });
        assert_eq!(stored, expected);
        node.stop();
    }
}

/// Another node may own the partition, or this node may own it later.
#[test]
fn a_node_that_does_not_own_the_partition_is_named() {
    // The storage is a server that accepts connections and sends nothing.
    let silent = TcpListener::bind("127.0.0.1:0").unwrap();
    let storage = format!(
        "[storage]\ndriver = \"cassandra\"\n[storage.cassandra]\ncontact_points = [\"{}\"]\n",
        silent.local_addr().unwrap()
    );
    let folder = tempfile::tempdir().unwrap();
    let node = NodeProcess::start(folder.path(), &storage);
    node.until("/livez", |status| status == 200);
    let (status, answer) = stored_numbers(&node);
    assert_eq!((status, &answer["code"]), (503, &"not_owner".into()), "{answer}");
    assert!(answer.to_string().contains("does not own partition 1"), "{answer}");
}
