//! Document numbers of a node on redb, as a process: over HTTP and with `vvm numbers`, through
//! stops, kills and changes of the configuration.

use std::{fs, net::TcpListener, path::Path, process::Command};

use eventlog::{AppRow, RecordId, WsId};
use rustix::process::Signal;
use serde_json::{Value, json};
use shop::http_client::{request, workspace_path};

use crate::node::{self, NodeProcess};

const WS: u64 = 1;

/// A series whose counter never starts again, so that no test depends on the date.
const TICKETS: &str = "template = \"T-{counter:5}\"\npolicy = \"fast\"\n";

/// The configuration of the demo application with the gapless series of its bills, and with a
/// series `ticket`.
fn config(folder: &Path, ticket: &str) -> String {
    let demo = concat!(env!("CARGO_MANIFEST_DIR"), "/../../config/demo.toml");
    fs::copy(demo, folder.join("demo.toml")).unwrap();
    format!(
        "[[apps]]\nname = \"demo/shop\"\ntables = \"demo.toml\"\nworkspaces = {{ Shop = 1 }}\n\
         [apps.sequences.Shop]\nDelivery = {{ id = 256 }}\n\
         [apps.series.bill]\ntemplate = \"BILL-{{counter:4}}\"\npolicy = \"gapless\"\nrecord = 65601\n\
         [apps.series.ticket]\n{ticket}"
    )
}

fn start(folder: &Path, ticket: &str) -> NodeProcess {
    let node = NodeProcess::start(folder, &config(folder, ticket)).ready();
    node.create_workspace(WS);
    node
}

fn metrics(node: &NodeProcess) -> String {
    let (_, metrics) = request(node.admin, "GET", "/metrics", &[], "");
    metrics.as_str().unwrap().to_owned()
}

/// Draws numbers over HTTP, and returns their counters.
fn draw(node: &NodeProcess, count: u32) -> Vec<u64> {
    let path = format!("{}/numbers/ticket/next", workspace_path(WS));
    let body = json!({ "count": count }).to_string();
    let (status, answer) = request(node.api, "POST", &path, &[], &body);
    assert_eq!(status, 200, "{answer}");
    let counters = answer["counters"].as_array().unwrap();
    counters.iter().map(|counter| counter.as_u64().unwrap()).collect()
}

/// Runs `vvm numbers`. Returns the exit code, and what the command printed to stdout and stderr.
fn numbers(node: &NodeProcess, args: &[&str]) -> (Option<i32>, String, String) {
    let mut command = Command::new(env!("CARGO_BIN_EXE_vvm"));
    command.arg("numbers").args(args).args(["--node", &node.api.to_string()]);
    let output = command.output().unwrap();
    let text = |bytes| String::from_utf8(bytes).unwrap();
    (output.status.code(), text(output.stdout), text(output.stderr))
}

/// Runs `vvm numbers` with an answer as JSON.
fn numbers_json(node: &NodeProcess, args: &[&str]) -> Value {
    let (code, stdout, stderr) = numbers(node, &[args, &["--json"]].concat());
    assert_eq!(code, Some(0), "{stderr}");
    serde_json::from_str(&stdout).unwrap()
}

#[test]
fn numbers_go_on_without_a_gap_after_a_stop_and_uniquely_after_a_kill() {
    let folder = tempfile::tempdir().unwrap();
    let node = start(folder.path(), TICKETS);
    assert_eq!(draw(&node, 5), [0, 1, 2, 3, 4]);
    node.stop();

    let mut node = start(folder.path(), TICKETS);
    assert_eq!(draw(&node, 2), [5, 6], "a stop leaves no gap");
    let (code, stdout, stderr) = numbers(&node, &["next", "ticket", "--count", "2"]);
    assert_eq!((code, &*stdout), (Some(0), "T-00007\nT-00008\n"), "{stderr}");
    let before = numbers_json(&node, &["gaps", "ticket"]);
    assert_eq!(before["gaps"][0]["state"], "in_use", "{before}");
    node.signal(Signal::KILL);
    node.ended();

    let node = start(folder.path(), TICKETS);
    let next = draw(&node, 1)[0];
    assert!(next > 8, "{next} was given twice");
    let after = numbers_json(&node, &["gaps", "ticket"]);
    let lost = &after["gaps"][0];
    assert_eq!(lost["state"], "open", "{after}");
    assert_eq!(lost["owner"], before["gaps"][0]["owner"], "the node that was killed");
    assert!(lost["first"].as_u64() <= Some(9) && lost["last"].as_u64() >= Some(9), "{after}");
    let own = after["gaps"].as_array().unwrap().iter().find(|gap| gap["state"] == "in_use");
    assert_eq!(own.unwrap()["first"], next, "{after}");
    let (code, text, _) = numbers(&node, &["gaps", "ticket", "--period", "all"]);
    assert_eq!(code, Some(0));
    for part in ["did not give the rest back", "in use", lost["owner"].as_str().unwrap()] {
        assert!(text.contains(part), "{part}: {text}");
    }
    node.stop();
}

#[test]
fn the_commands_show_series_and_name_each_refusal() {
    let folder = tempfile::tempdir().unwrap();
    let node = start(folder.path(), TICKETS);
    let (code, text, _) = numbers(&node, &["list"]);
    assert!(code == Some(0) && text.contains("T-{counter:5}") && text.contains("fast"), "{text}");
    assert_eq!(node.logged(WS).len(), 1, "a draw writes no event");
    assert_eq!(numbers_json(&node, &["list"])["series"][1]["series"], "ticket");
    let (code, text, _) = numbers(&node, &["show", "ticket"]);
    assert_eq!(code, Some(0));
    for part in ["template: T-{counter:5}\n", "policy: fast\n", "next: T-00000\n"] {
        assert!(text.contains(part), "{part}: {text}");
    }
    let (code, text, _) = numbers(&node, &["gaps", "ticket"]);
    assert_eq!((code, &*text), (Some(0), "ticket has no such gaps in the period all\n"));
    for (args, code, part) in [
        (&["show", "none"][..], 1, "no series `none`"),
        (&["next", "ticket", "--ws", "99"], 1, "workspace 99 does not exist"),
        (&["next", "ticket", "--count", "1001"], 1, "1 to 1000"),
        (&["gaps", "ticket", "--period", "2026"], 1, "is not a period of the series ticket"),
        (&["next", "ticket", "--app", "demo/none"], 1, "no application demo/none"),
        (&["next", "ticket", "--app", "demo"], 2, "--app"),
        (&["next", "a/b"], 2, "characters other than"),
        (&["next", "ticket", "--count", "0"], 2, "--count"),
    ] {
        let (ended, _, stderr) = numbers(&node, args);
        assert_eq!(ended, Some(code), "{args:?}: {stderr}");
        assert!(stderr.contains(part), "{args:?}: {part}: {stderr}");
    }
    assert_eq!(draw(&node, 1), [0], "nothing was drawn");
    let address = node.api.to_string();
    node.stop();
    let mut command = Command::new(env!("CARGO_BIN_EXE_vvm"));
    let away = command.args(["numbers", "list", "--node", &address]).output().unwrap();
    assert_eq!(away.status.code(), Some(4));
    let stderr = String::from_utf8(away.stderr).unwrap();
    assert!(stderr.contains(&address) && stderr.contains("http.listen"), "{stderr}");
}

/// A node that answers 503 may take the request later, or another node does.
#[test]
fn the_commands_end_with_code_4_if_the_node_is_not_ready() {
    // The storage is a server that accepts connections and sends nothing.
    let silent = TcpListener::bind("127.0.0.1:0").unwrap();
    let storage = format!(
        "[storage]\ndriver = \"cassandra\"\n[storage.cassandra]\ncontact_points = [\"{}\"]\n",
        silent.local_addr().unwrap()
    );
    let folder = tempfile::tempdir().unwrap();
    let node = NodeProcess::start(folder.path(), &storage);
    node.until("/livez", |status| status == 200);
    for args in [&["list"][..], &["show", "order"], &["next", "order"], &["gaps", "order"]] {
        let (code, stdout, stderr) = numbers(&node, args);
        assert_eq!((code, &*stdout), (Some(4), ""), "{args:?}: {stderr}");
        assert!(stderr.contains("503") && stderr.contains("does not own"), "{args:?}: {stderr}");
    }
}

#[test]
fn a_configuration_that_could_repeat_a_number_is_refused() {
    let folder = tempfile::tempdir().unwrap();
    let node = start(folder.path(), TICKETS);
    assert_eq!(draw(&node, 1), [0]);
    node.stop();
    for (ticket, part) in [
        ("template = \"T-{counter:3}7\"\npolicy = \"fast\"\n", "could be equal"),
        ("template = \"T-{counter:5}\"\npolicy = \"fast\"\nstart = 1\n", "first number differs"),
        ("template = \"T-{counter:5}\"\npolicy = \"gapless\"\nrecord = 65602\n", "other policy"),
    ] {
        let mut node = NodeProcess::start(folder.path(), &config(folder.path(), ticket));
        assert_eq!(node.ended().code(), Some(3), "{}", node.log_text());
        for part in ["demo/shop", "ticket", part] {
            assert!(node.log_text().contains(part), "{part}: {}", node.log_text());
        }
    }
    // More digits and another range repeat nothing, and the counter goes on.
    let wider = "template = \"T-{counter:7}\"\npolicy = \"fast\"\nrange = 10\n";
    let node = start(folder.path(), wider);
    let (_, stdout, _) = numbers(&node, &["next", "ticket"]);
    assert_eq!(stdout, "T-0000001\n");
    node.stop();
}

/// `vvm dev` and a node without a configuration have the series `order`.
#[test]
fn the_demo_draws_orders() {
    let folder = tempfile::tempdir().unwrap();
    let node = NodeProcess::start(folder.path(), "").ready();
    node.create_workspace(WS);
    let (code, stdout, stderr) = numbers(&node, &["next", "order"]);
    assert_eq!(code, Some(0), "{stderr}");
    let number = stdout.trim_end();
    assert!(number.starts_with("ORDER2") && number.ends_with("-00000"), "{number}");
    assert_eq!(number.len(), "ORDER2013-0522-00000".len(), "{number}");
    let metrics = metrics(&node);
    let issued = "docnumbers_issued_total{app=\"demo/shop\",series=\"order\"} 1";
    assert!(metrics.lines().any(|line| line == issued), "{metrics}");
    node.stop();
}

/// The series of one id of several applications shared all metrics.
#[test]
fn each_application_has_metrics_of_its_own() {
    let folder = tempfile::tempdir().unwrap();
    let first = config(folder.path(), TICKETS);
    let second = first.replace("demo/shop", "demo/other");
    let node = NodeProcess::start(folder.path(), &(first + &second)).ready();
    let post = |app: &str, path: &str, body: Value| {
        let path = format!("{}/{path}", workspace_path(WS).replace("demo/shop", app));
        let (status, answer) = request(node.api, "POST", &path, &[], &body.to_string());
        assert_eq!(status, 200, "{path}: {answer}");
    };
    for (app, count) in [("demo/shop", 2), ("demo/other", 5)] {
        post(app, "commands/sys.CreateWorkspace", json!({ "args": { "kind": "Shop" } }));
        post(app, "numbers/ticket/next", json!({ "count": count }));
    }
    let metrics = request(node.admin, "GET", "/metrics", &[], "").1;
    let metrics = metrics.as_str().unwrap();
    for (app, issued) in [("demo/shop", 2), ("demo/other", 5)] {
        let labels = format!("app=\"{app}\",series=\"ticket\"");
        for line in [
            format!("docnumbers_issued_total{{{labels}}} {issued}"),
            format!("docnumbers_remaining{{{labels}}} "),
            format!("docnumbers_refills_total{{{labels},outcome=\"failed\"}} 0"),
            format!("docnumbers_refill_wait_seconds_count{{{labels}}} 1"),
            format!("docnumbers_gaps_total{{{labels},cause=\"not_given_back\"}} 0"),
        ] {
            let is_there = metrics.lines().any(|there| there.starts_with(&line));
            assert!(is_there, "{line}: {metrics}");
        }
    }
    node.stop();
}

/// A bit of the key of the counter record flipped in the file of redb. The record was absent, so
/// the series began again, and gave the number of the first bill to the third.
#[test]
fn no_gapless_number_is_given_again_after_a_bit_of_a_key_has_flipped() {
    let folder = tempfile::tempdir().unwrap();
    let bill = |node: &NodeProcess| {
        let path = format!("{}/docs/shop.Bill", workspace_path(WS));
        request(node.api, "POST", &path, &[], r#"{"fields": {"customer": "Ann"}}"#)
    };
    let node = start(folder.path(), TICKETS);
    for _ in 0..2 {
        assert_eq!(bill(&node).0, 201);
    }
    node.stop();

    let file = folder.path().join("data/vvm.redb");
    let mut bytes = fs::read(&file).unwrap();
    let key = AppRow::Record(WsId(WS), RecordId(65_601)).key();
    let length = u16::try_from(key.pkey.len()).unwrap().to_be_bytes();
    let key = [&length[..], &key.pkey, &key.ccols].concat();
    let places: Vec<usize> = (0..bytes.len()).filter(|at| bytes[*at..].starts_with(&key)).collect();
    assert!(!places.is_empty());
    for at in places {
        bytes[at + key.len() - 1] ^= 4;
    }
    fs::write(&file, bytes).unwrap();

    let mut node = start(folder.path(), TICKETS);
    let (status, answer) = bill(&node);
    assert_eq!(status, 500, "{answer}");
    for part in ["a bit of the key", "vvm storage check", "restore it from a backup"] {
        assert!(answer.to_string().contains(part), "{part}: {answer}");
    }
    assert_eq!(draw(&node, 1), [0], "other rows are served");
    node.signal(Signal::KILL);
    node.ended();

    // The next node checks the file while it works.
    let node = start(folder.path(), TICKETS);
    let start = std::time::Instant::now();
    while !metrics(&node).contains("\nistorage_redb_damaged_rows_total 1\n") {
        assert!(start.elapsed() < node::PATIENCE, "{}", node.log_text());
        std::thread::sleep(std::time::Duration::from_millis(20));
    }
    for part in ["its rows are checked meanwhile", "its checksum is wrong; stop the node"] {
        assert!(node.log_text().contains(part), "{part}: {}", node.log_text());
    }
    node.stop();
    let mut check = Command::new(env!("CARGO_BIN_EXE_vvm"));
    let storage = format!("redb:{}", file.display());
    let checked = check.args(["storage", "check", "--storage", &storage]).output().unwrap();
    let text = String::from_utf8_lossy(&checked.stdout);
    assert_eq!(checked.status.code(), Some(1), "{text}");
    assert!(text.contains("its checksum is wrong"), "{text}");
}
