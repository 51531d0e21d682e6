//! `vvm inspect` on each storage: a node and the command itself give the same lines.

#![allow(clippy::unwrap_used, clippy::disallowed_methods)]

#[allow(dead_code, reason = "this suite needs a part of it")]
#[path = "support/fixture.rs"]
mod fixture;
#[allow(dead_code, reason = "this suite needs a part of it")]
#[path = "support/node.rs"]
mod node;

use std::{
    fs,
    path::Path,
    process::{Child, Command, Output, Stdio},
    thread::sleep,
    time::{Duration, Instant},
};

use fixture::{Storage, StorageFixture};
use libtest_mimic::{Arguments, Trial};
use node::{NodeProcess, PATIENCE};
use serde_json::{Value, json};
use shop::http_client::{request, workspace_path};

const WS: u64 = 1;

/// Runs `vvm inspect` in a folder. Returns the exit code, stdout and stderr.
fn inspect(folder: &Path, args: &[&str]) -> (Option<i32>, String, String) {
    let mut command = Command::new(env!("CARGO_BIN_EXE_vvm"));
    let output = command.arg("inspect").args(args).current_dir(folder).output().unwrap();
    let text = |bytes| String::from_utf8(bytes).unwrap();
    (output.status.code(), text(output.stdout), text(output.stderr))
}

fn lines(folder: &Path, args: &[&str]) -> Vec<Value> {
    let (code, stdout, stderr) = inspect(folder, &[args, &["--json"]].concat());
    assert_eq!(code, Some(0), "{args:?}: {stderr}");
    stdout.lines().map(|line| serde_json::from_str(line).unwrap()).collect()
}

/// The arguments of each view whose lines do not change while the node works.
fn views(system: &str) -> Vec<Vec<String>> {
    let app = format!("{system}_1_demo_shop");
    let views: [&[&str]; 10] = [
        &["apps"],
        &["partitions"],
        &["plog", "--partition", "1"],
        &["wlog", "--ws", "1"],
        &["records", "--ws", "1"],
        &["numbers"],
        &["numbers", "--ws", "1"],
        &["rows", "--keyspace", system, "--key", "00000005"],
        // The log of partition 1.
        &["rows", "--keyspace", &app, "--key", "001400010000000000000000"],
        // The logs of all partitions.
        &["rows", "--keyspace", &app, "--prefix", "0014"],
    ];
    views.iter().map(|view| view.iter().map(|arg| (*arg).to_owned()).collect()).collect()
}

/// The lines of all views.
fn all_lines(folder: &Path, system: &str, place: [&str; 2]) -> Vec<Vec<Value>> {
    let view = |view: &Vec<String>| {
        let view = view.iter().map(String::as_str);
        lines(folder, &view.chain(place).collect::<Vec<_>>())
    };
    views(system).iter().map(view).collect()
}

/// A node that has read its numbers from the storage, with two documents of one workspace. Returns
/// the answers about the documents.
fn node_with_documents(fixture: &StorageFixture) -> (NodeProcess, [Value; 2]) {
    let start = || fixture.start("node", &fixture.config(&fixture.storage)).ready();
    let node = start();
    node.create_workspace(WS);
    let docs = |table: &str| format!("{}/docs/shop.{table}", workspace_path(WS));
    let tea = r#"{"fields":{"name":"Tea"}}"#;
    let made = [("Bill", "{}"), ("Article", tea)].map(|(table, body)| {
        let (status, answer) = request(node.api, "POST", &docs(table), &[], body);
        assert_eq!(status, 201, "{answer}");
        answer
    });
    node.stop();
    (start(), made)
}

/// Waits until the node has fenced the logs of all partitions, and has stored their offsets. A node
/// on servers does so within about a second. After that it changes nothing without a command.
fn until_fenced(folder: &Path, asked: [&str; 2]) {
    let view = |args: &[&str]| lines(folder, &[args, &asked[..]].concat());
    let is_fenced = |partition: &Value, offsets: &[Value]| {
        let number = &partition["partition"];
        let plog = view(&["plog", "--partition", &number.to_string()]);
        let Some(last) = plog.last() else { return false };
        let stored = offsets.iter().find(|it| it["partition"] == *number);
        let next = stored.and_then(|it| it["nextOffset"].as_u64());
        last["epoch"] == partition["epoch"]
            && next == last["plogOffset"].as_u64().map(|last| last + 1)
    };
    let start = Instant::now();
    loop {
        let offsets = view(&["numbers"]);
        if view(&["partitions"]).iter().all(|partition| is_fenced(partition, &offsets)) {
            return;
        }
        assert!(start.elapsed() < PATIENCE, "a log is not fenced");
        sleep(Duration::from_millis(100));
    }
}

fn same_lines(fixture: &StorageFixture) {
    let (node, [bill, article]) = node_with_documents(fixture);
    let file = fixture.redb_file("node");
    let here = file.parent().unwrap();
    let admin = node.admin.to_string();
    let asked = ["--admin", admin.as_str()];
    let config = format!("{}.toml", node.api.port());
    let read = ["--config", config.as_str()];
    let apps = lines(here, &[&["apps"], &asked[..]].concat());
    let keyspace = apps[0]["keyspace"].as_str().unwrap();
    let system = keyspace.strip_suffix("_1_demo_shop").unwrap();
    if !matches!(fixture.storage, Storage::Redb) {
        until_fenced(here, asked);
    }
    let online = all_lines(here, system, asked);
    check(&node, &online, [&bill, &article]);
    check_leases(&lines(here, &[&["leases"], &asked[..]].concat()));
    check_refusals(here, asked);
    let from = bill["newIds"]["1"].to_string();
    let some = ["records", "--ws", "1", "--from", &from, "--limit", "1"];
    assert_eq!(lines(here, &[&some, &asked[..]].concat()).len(), 1);
    let one = ["plog", "--partition", "1", "--limit", "1"];
    let (_, text, _) = inspect(here, &[&one, &asked[..]].concat());
    assert!(text.lines().count() == 1 && text.contains("plogOffset=1"), "{text}");
    assert!(node.log_text().contains("storage inspected"));

    if !matches!(fixture.storage, Storage::Redb) {
        assert_eq!(all_lines(here, system, read), online);
        return node.stop();
    }
    let (code, _, stderr) = inspect(here, &[&["apps"], &read[..]].concat());
    assert!(code == Some(4) && stderr.contains("ask the node"), "{stderr}");
    // The node is killed. redb repairs the file in memory only.
    drop(node);
    let before = fs::read(&file).unwrap();
    assert_eq!(all_lines(here, system, read), online);
    let (code, _, stderr) = inspect(here, &[&["plog", "--partition", "70"], &read[..]].concat());
    assert!(code == Some(1) && stderr.contains("has no partition 70"), "{stderr}");
    check_leases(&lines(here, &[&["leases"], &read[..]].concat()));
    assert!(before == fs::read(&file).unwrap(), "the file was changed");
}

fn check(node: &NodeProcess, online: &[Vec<Value>], [bill, article]: [&Value; 2]) {
    let [apps, partitions, plog, wlog, records, offsets, sequences, registry, raw, logs] = online
    else {
        panic!("{online:?}")
    };
    assert_eq!((&apps[0]["app"], &apps[0]["partitions"]), (&json!("demo/shop"), &json!(10)));
    assert_eq!(apps[0]["trustLevel"], 0);
    assert!(apps[0]["tables"].as_array().unwrap().contains(&json!("shop.Bill")));
    assert_eq!(partitions.len(), 10);
    assert!(partitions.iter().all(|it| it["owner"]["advertised"] == node.api.to_string()));
    assert!(partitions.iter().all(|it| it["epoch"].as_u64() > Some(0)));
    let next = plog.len() + 1;
    let events: Vec<Value> = plog.iter().filter(|it| it["fencing"].is_null()).cloned().collect();
    assert_eq!((events.len(), wlog.len(), raw.len()), (3, 3, plog.len()));
    assert!(raw.iter().all(|row| logs.contains(row)), "{logs:?}");
    assert!(logs.iter().all(|row| row["key"].as_str().unwrap().starts_with("0014")), "{logs:?}");
    let ids = [bill, article].map(|it| it["newIds"]["1"].clone());
    let rows = events[1]["rows"].as_array().unwrap();
    assert!(rows.iter().any(|row| row["id"] == ids[0]), "{rows:?}");
    assert_eq!(events[1]["plogOffset"], bill["plogOffset"]);
    assert_eq!(events, *wlog, "there is one workspace in the partition");
    assert!(ids.iter().all(|id| records.iter().any(|record| record["id"] == *id)), "{records:?}");
    assert!(
        offsets.iter().any(|it| it["partition"] == 1 && it["nextOffset"] == next),
        "{offsets:?}"
    );
    let last = |name| &sequences.iter().find(|it| it["name"] == name).unwrap()["last"];
    assert_eq!((last("sys.RecIDSeq"), last("sys.CRecIDSeq")), (&ids[0], &ids[1]));
    assert!(!registry.is_empty(), "there is an application");
    assert!(registry.iter().all(|row| row["kind"] == "application"), "{registry:?}");
    assert!(raw[0]["kind"].as_str().unwrap().starts_with("event 1 of the log of partition 1"));
}

fn check_leases(leases: &[Value]) {
    assert!(
        leases.iter().any(|it| it["seat"].is_u64() && it["leftMs"].as_u64() > Some(0)),
        "{leases:?}"
    );
    assert!(
        leases.iter().any(|it| it["member"].is_string() && it["row"].is_object()),
        "{leases:?}"
    );
}

fn check_refusals(here: &Path, asked: [&str; 2]) {
    for (args, code, part) in [
        (&["wlog", "--ws", "1", "--app", "demo/none"][..], 1, "demo/none"),
        (&["rows", "--keyspace", "sysvvm_9", "--key", "00"], 1, "sysvvm_9"),
        (&["plog", "--partition", "70"], 1, "has no partition 70"),
        // A workspace without rows is no error.
        (&["wlog", "--ws", "424242"], 0, "the view has no rows"),
        (&["records", "--ws", "424242"], 0, "the view has no rows"),
        (&["plog", "--partition", "1", "--from", "99"], 0, "the view has no rows"),
        (&["rows", "--keyspace", "sysvvm", "--key", "0"], 2, "hexadecimal"),
        (&["plog", "--partition", "1", "--app", "demo"], 2, "owner/name"),
        (
            &["plog", "--partition", "1", "--limit", "0"],
            2,
            "'--limit <N>': a number of lines of 1 or more",
        ),
        (&["rows", "--keyspace", "sysvvm", "--limit", "0"], 2, "'--limit <N>': a number of lines"),
        (&["wlog", "--ws", "1", "--from", "0"], 2, "--from 0: the first event of a log has"),
        (&["plog", "--partition", "1", "--from", "0"], 2, "--from 0: the first event of a log"),
    ] {
        let (ended, _, stderr) = inspect(here, &[args, &asked[..]].concat());
        assert_eq!(ended, Some(code), "{args:?}: {stderr}");
        assert!(stderr.contains(part), "{args:?}: {part}: {stderr}");
    }
    let (code, _, stderr) = inspect(here, &["apps", "--storage", "redb:none"]);
    assert!(code == Some(3) && stderr.contains("no storage file at none"), "{stderr}");
    assert!(!here.join("none").exists());
    let (code, _, stderr) = inspect(here, &["apps", "--storage", "mem"]);
    assert!(code == Some(2) && stderr.contains("--admin"), "{stderr}");
}

/// A view was cut when its pager took nothing for some seconds. The error did not say why, and the
/// node neither logged nor counted it.
fn a_view_waits_for_its_pager() {
    let folder = tempfile::tempdir().unwrap();
    let limits = "[http]\nhead_seconds = 1\nanswer_seconds = 3\n";
    let node = NodeProcess::start(folder.path(), limits).ready();
    node.create_workspace(WS);
    let admin = node.admin.to_string();
    let pager = |view: &[&str]| -> Child {
        let mut command = Command::new(env!("CARGO_BIN_EXE_vvm"));
        command.arg("inspect").args(view).args(["--admin", &admin]);
        command.stdout(Stdio::piped()).stderr(Stdio::piped()).spawn().unwrap()
    };
    let end = |pager: Child| -> (Option<i32>, usize, String) {
        let Output { status, stdout, stderr } = pager.wait_with_output().unwrap();
        let lines = stdout.iter().filter(|byte| **byte == b'\n').count();
        (status.code(), lines, String::from_utf8(stderr).unwrap())
    };
    let text = "x".repeat(900_000);
    let row =
        format!(r#"{{"rows":[{{"id":1,"table":"shop.Article","fields":{{"name":"{text}"}}}}]}}"#);
    let write = |events: usize| {
        (0..events).for_each(|_| assert_eq!(node.command(WS, "sys.CUD", &row).0, 200));
    };
    // The kernel has room for a third of it at most.
    write(30);
    let waits = pager(&["wlog", "--ws", "1"]);
    // The user reads the first page.
    sleep(Duration::from_secs(5));
    let (code, lines, stderr) = end(waits);
    assert_eq!((code, lines), (Some(0), 31), "{stderr}");

    // The command does not read this far ahead.
    write(50);
    let waits = pager(&["wlog", "--ws", "1"]);
    let closed = "httpapi_connections_closed_total{service=\"admin\",reason=\"answer_not_taken\"} ";
    let cut = || {
        let (_, metrics) = request(node.admin, "GET", "/metrics", &[], "");
        let count = metrics.as_str().unwrap().lines().find_map(|line| line.strip_prefix(closed));
        count.is_some_and(|count| count != "0")
    };
    let start = Instant::now();
    while !cut() {
        assert!(start.elapsed() < PATIENCE, "{}", node.log_text());
        sleep(Duration::from_millis(20));
    }
    let (code, lines, stderr) = end(waits);
    assert!(code == Some(1) && lines < 81, "{code:?} {lines} {stderr}");
    assert!(stderr.contains("this command took nothing of the answer for "), "{stderr}");
    assert!(node.log_text().contains("answer not received in time, connection cut"));
    node.stop();
}

fn main() {
    let mut trials = vec![Trial::test("a_view_waits_for_its_pager", || {
        a_view_waits_for_its_pager();
        Ok(())
    })];
    for (name, storage) in Storage::all() {
        let is_ignored = storage.is_none();
        let run = move || {
            if let Some(storage) = storage {
                same_lines(&StorageFixture::new(storage));
            }
            Ok(())
        };
        let name = format!("{name}::a_node_and_the_command_give_the_same_lines");
        trials.push(Trial::test(name, run).with_ignored_flag(is_ignored));
    }
    libtest_mimic::run(&Arguments::from_args(), trials).exit();
}
