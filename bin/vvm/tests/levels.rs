//! `vvm apps set-level`, as a process: the trust level of an application changes between two starts
//! of its node, on each storage.

#![allow(clippy::unwrap_used, clippy::disallowed_methods)]

#[allow(dead_code, reason = "this suite needs a part of it")]
#[path = "support/fixture.rs"]
mod fixture;
#[allow(dead_code, reason = "this suite needs a part of it")]
#[path = "support/node.rs"]
mod node;

use std::process::Command;

use fixture::{Storage, StorageFixture};
use libtest_mimic::{Arguments, Trial};
use node::NodeProcess;
use rustix::process::Signal;
use serde_json::{Value, json};
use shop::http_client::{request, workspace_path};
use tck::trial::is_long as is_long_round;

/// The workspace of the records.
const WS: u64 = 7;

/// A storage, and a node in a folder.
struct Place {
    fixture: StorageFixture,
    config: String,
}

impl Place {
    /// A node with leases of this length, and level 0 in its configuration.
    fn new(storage: &Storage, lease_seconds: u64) -> Place {
        let fixture = StorageFixture::new(storage.clone());
        let storage = fixture.config(storage);
        let config = format!("{storage}[node]\nlease_seconds = {lease_seconds}\n");
        fixture.write("node", "vvm.toml", &config);
        Place { fixture, config }
    }

    fn start(&self) -> NodeProcess {
        self.fixture.start("node", &self.config).ready()
    }

    /// Runs a command with an exit code. Returns stdout and stderr.
    fn run(&self, args: &[&str], code: i32) -> (String, String) {
        let mut command = Command::new(env!("CARGO_BIN_EXE_vvm"));
        let folder = self.fixture.redb_file("node").parent().unwrap().to_owned();
        let output = command.args(args).args(["--config", "vvm.toml"]).current_dir(folder);
        let output = output.output().unwrap();
        let text = |bytes| String::from_utf8(bytes).unwrap();
        let (stdout, stderr) = (text(output.stdout), text(output.stderr));
        assert_eq!(output.status.code(), Some(code), "{args:?}: {stdout}{stderr}");
        (stdout, stderr)
    }

    fn set_level(&self, level: u8, code: i32) -> (String, String) {
        self.run(&["apps", "set-level", "demo/shop", &level.to_string()], code)
    }

    /// The level that is stored.
    fn level(&self) -> Value {
        let (stdout, _) = self.run(&["inspect", "apps", "--json"], 0);
        let line: Value = serde_json::from_str(stdout.lines().next().unwrap()).unwrap();
        line["trustLevel"].clone()
    }
}

/// Documents, as clients know them.
#[derive(Default)]
struct Documents(Vec<(String, String)>);

impl Documents {
    /// Changes all documents, and makes one more.
    fn change(&mut self, node: &NodeProcess, called: &str) {
        for (path, name) in &mut self.0 {
            let body = json!({ "fields": { "name": called } }).to_string();
            let (status, answer) = request(node.api, "PATCH", path, &[], &body);
            assert_eq!(status, 200, "{answer}");
            *name = called.to_owned();
        }
        let all = format!("{}/docs/shop.Article", workspace_path(WS));
        let body = json!({ "fields": { "name": called } }).to_string();
        let (status, answer) = request(node.api, "POST", &all, &[], &body);
        assert_eq!(status, 201, "{answer}");
        self.0.push((format!("{all}/{}", answer["newIds"]["1"]), called.to_owned()));
        self.check(node);
    }

    fn check(&self, node: &NodeProcess) {
        for (path, name) in &self.0 {
            let (status, answer) = request(node.api, "GET", path, &[], "");
            assert_eq!((status, &answer["fields"]["name"]), (200, &json!(name)), "{answer}");
        }
    }
}

/// Changes the level several times. The node is killed before each change, so the next leader
/// recovers what the former level wrote.
fn changes(place: &Place, levels: &[u8]) {
    let mut node = place.start();
    node.create_workspace(WS);
    let mut documents = Documents::default();
    documents.change(&node, "made at 0");
    let mut was_two = false;
    let is_cassandra = matches!(place.fixture.storage, Storage::Cassandra(_));
    for &level in levels {
        node.signal(Signal::KILL);
        node.ended();
        let (said, waited) = place.set_level(level, 0);
        assert!(said.contains(&format!("is {level} now")), "{said}");
        assert!(waited.contains("leases of nodes that were killed"), "{waited}");
        // Until the level is 2 again, each command repeats the advice.
        let is_advised =
            |said: &str| said.contains("run `nodetool repair` for the keyspace of demo/shop");
        let has_advice = is_cassandra && was_two && level != 2;
        assert_eq!(is_advised(&waited), has_advice, "to {level}: {waited}");
        was_two |= level == 2;
        assert_eq!(place.level(), json!(level));
        let (said, again) = place.set_level(level, 0);
        assert!(said.contains(&format!("has trust level {level}")), "{said}");
        assert_eq!(is_advised(&again), has_advice, "again to {level}: {again}");
        node = place.start();
        documents.check(&node);
        documents.change(&node, &format!("changed at {level}"));
        documents.change(&node, &format!("changed again at {level}"));
    }
    let logged = node.logged(WS).len();
    node.stop();
    // The log of the workspace has its creation, and an event for each document and each change.
    let rounds = 1 + 2 * levels.len();
    assert_eq!(logged, 1 + rounds + rounds * (rounds - 1) / 2);
}

/// No write of redb lands late, so a short lease is long enough for level 2.
fn all_levels(storage: &Storage) {
    changes(&Place::new(storage, 3), &[1, 2, 0, 2, 1, 0]);
}

fn levels_0_and_1(storage: &Storage) {
    changes(&Place::new(storage, 5), &[1, 0]);
}

/// To and from level 2 the command waits for late writes, and for the long lease of a killed node:
/// seven minutes on Cassandra, and half an hour on DynamoDB.
fn all_levels_for_long(storage: &Storage) {
    let lease = if matches!(storage, Storage::Cassandra(_)) { 125 } else { 540 };
    changes(&Place::new(storage, lease), &[1, 2, 0]);
}

/// The command gave up before the lease of the killed node had expired, however often it was
/// repeated: it waited for as long as its own leases last, and the time of redb stands still
/// between two tries.
fn a_longer_lease(storage: &Storage) {
    let place = Place::new(storage, 14);
    let mut node = place.start();
    node.signal(Signal::KILL);
    node.ended();
    let shorter = place.config.replace("lease_seconds = 14", "lease_seconds = 2");
    place.fixture.write("node", "vvm.toml", &shorter);
    place.set_level(1, 0);
}

/// The command asks for the lease of level 2.
fn level_2_needs_a_long_lease(storage: &Storage) {
    let place = Place::new(storage, 20);
    place.start().stop();
    let (_, refused) = place.set_level(2, 3);
    assert!(refused.contains("too short for trust level 2"), "{refused}");
    assert_eq!(place.level(), json!(0));
}

fn refused(storage: &Storage) {
    let place = Place::new(storage, 5);
    if matches!(storage, Storage::Redb) {
        // A wrong path makes no file.
        let (_, missing) = place.set_level(1, 3);
        assert!(missing.contains("there is no storage file"), "{missing}");
        assert!(!place.fixture.redb_file("node").exists());
    }
    let node = place.start();
    // A wrong name makes no keyspace.
    let typo = place.config.replace("system_keyspace = \"", "system_keyspace = \"x");
    let (code, advice) = match storage {
        Storage::Redb => (4, "stop the node"),
        _ => (6, "stop all nodes"),
    };
    let (_, works) = place.set_level(1, code);
    assert!(works.contains(advice), "{works}");
    node.stop();
    assert_eq!(place.level(), json!(0));
    let (_, absent) = place.run(&["apps", "set-level", "demo/other", "1"], 3);
    assert!(absent.contains("does not exist"), "{absent}");
    place.run(&["apps", "set-level", "demo/shop", "3"], 2);
    place.fixture.write("node", "vvm.toml", &typo);
    for _ in 0..2 {
        let (_, missing) = place.set_level(1, 3);
        assert!(missing.contains("does not exist: no node ever used"), "{missing}");
    }
    place.fixture.write("node", "vvm.toml", &place.config);
    // The seats are free again.
    place.set_level(1, 0);
}

type Case = (&'static str, fn(&Storage));

/// The cases of a storage.
fn cases(name: &str) -> Vec<Case> {
    let stays: Case = ("the_level_stays_while_a_node_works", refused);
    match name {
        "redb" => vec![
            stays,
            (ALL_LEVELS, all_levels),
            ("the_longer_lease_of_a_killed_node_is_waited_for", a_longer_lease),
        ],
        _ => vec![
            stays,
            ("the_level_changes_between_0_and_1", levels_0_and_1),
            ("level_2_needs_a_long_lease", level_2_needs_a_long_lease),
            (ALL_LEVELS, all_levels_for_long),
        ],
    }
}

const ALL_LEVELS: &str = "the_level_changes_over_rows_of_each_level";

fn main() {
    let mut trials = Vec::new();
    for (name, storage) in Storage::all() {
        for (case, run) in cases(name) {
            let is_long = name != "redb" && case == ALL_LEVELS;
            let is_ignored = storage.is_none() || (is_long && !is_long_round());
            let storage = storage.clone();
            let run = move || {
                if let Some(storage) = &storage {
                    run(storage);
                }
                Ok(())
            };
            trials.push(Trial::test(format!("{name}::{case}"), run).with_ignored_flag(is_ignored));
        }
    }
    libtest_mimic::run(&Arguments::from_args(), trials).exit();
}
