//! `vvm sequences`: the stored numbers of a node on redb, as a process.

#![allow(clippy::unwrap_used, clippy::disallowed_methods)]

#[allow(dead_code, reason = "this suite needs a part of it")]
#[path = "support/node.rs"]
mod node;

use std::{net::TcpListener, process::Command};

use node::NodeProcess;
use serde_json::{Value, json};
use shop::http_client::{request, workspace_path};

const WS: u64 = 1;

/// Runs `vvm sequences show`. Returns the exit code, and what the command printed to stdout and
/// stderr.
fn show(admin: &str, args: &[&str]) -> (Option<i32>, String, String) {
    let mut command = Command::new(env!("CARGO_BIN_EXE_vvm"));
    let output = command.args(["sequences", "show", "--admin", admin]).args(args).output().unwrap();
    let text = |bytes| String::from_utf8(bytes).unwrap();
    (output.status.code(), text(output.stdout), text(output.stderr))
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
        let admin = node.admin.to_string();
        let (code, stdout, stderr) = show(&admin, &["--json"]);
        assert_eq!(code, Some(0), "{stderr}");
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
        assert_eq!(serde_json::from_str::<Value>(&stdout).unwrap(), expected);
        let (code, text, _) = show(&admin, &[]);
        assert_eq!(code, Some(0));
        let id = bill["newIds"]["1"].to_string();
        for part in [place, "partition", "sys.WLogOffsetSeq", "sys.RecIDSeq", &id] {
            assert!(text.contains(part), "{part}: {text}");
        }
        for (args, code, part) in [
            (&["--ws", "99"][..], 1, "workspace 99 does not exist"),
            (&["--app", "demo/none"], 1, "no application demo/none"),
            (&["--app", "demo"], 2, "--app"),
        ] {
            let (ended, _, stderr) = show(&admin, args);
            assert_eq!(ended, Some(code), "{args:?}: {stderr}");
            assert!(stderr.contains(part), "{args:?}: {part}: {stderr}");
        }
        node.stop();
        let (code, _, stderr) = show(&admin, &[]);
        assert_eq!(code, Some(4), "{stderr}");
        assert!(stderr.contains(&admin) && stderr.contains("admin.listen"), "{stderr}");
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
    let (code, stdout, stderr) = show(&node.admin.to_string(), &[]);
    assert_eq!((code, &*stdout), (Some(4), ""), "{stderr}");
    assert!(stderr.contains("503") && stderr.contains("does not own partition 1"), "{stderr}");
}
