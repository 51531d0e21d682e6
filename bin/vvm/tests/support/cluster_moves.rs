//! Partitions that move between the nodes of a cluster, and those that cannot.

use std::{
    process::Command,
    time::{Duration, Instant},
};

use serde_json::Value;
use shop::http_client::request;
use tck::trial::is_long;

use crate::{
    ThreeNodes,
    fixture::StorageFixture,
    load::{AcknowledgedCommands, CommandLoad},
    node::{self, NodeProcess},
};

/// The partitions of the application, and as many workspaces, one in each.
const PARTITIONS: u64 = 10;

/// An operator moves partitions under load. Clients notice slow commands at most.
pub(crate) fn moved(fixture: &StorageFixture) {
    let count = if is_long() { 40 } else { 8 };
    let three = ThreeNodes::start(fixture);
    (1..=PARTITIONS).for_each(|ws| three.nodes[0].create_workspace(ws));
    vvm_cluster(&three.nodes[0], &["pause"]);
    let apis = three.nodes.iter().map(|node| node.api).collect();
    let load = CommandLoad::start("a", apis, PARTITIONS, false);
    load.until_more(200);
    let moves: Vec<_> = (0..count).map(|round| Move::make(&three, round)).collect();
    load.until_more(100);
    let known = load.stop();
    assert_eq!((known.refused.len(), known.open.len()), (0, 0), "{:?}", known.refused);
    let nodes: Vec<&NodeProcess> = three.nodes.iter().collect();
    known.check(&nodes, PARTITIONS);

    let usual = usual_pause(&known);
    let mut added: Vec<_> =
        moves.iter().map(|one| one.pause(&known).saturating_sub(usual)).collect();
    added.sort_unstable();
    let (median, worst) = (added[count / 2], added[count - 1]);
    eprintln!("a move added {median:?} to a command at the median, and {worst:?} at most");
    // A debug build shares two processors with the database, and a move needs a few calls of the
    // storage, one after another. docs/benchmarks.md has the figures of a release build.
    assert!(worst < Duration::from_secs(1) + 10 * usual, "{added:?}, usually {usual:?}");
    three.stop();
}

/// A move of a partition, from the order until the partition was seen at work on its new node.
struct Move {
    partition: u64,
    ordered: Instant,
    done: Instant,
}

impl Move {
    /// Moves a partition to another node.
    fn make(three: &ThreeNodes<'_>, round: usize) -> Move {
        let partition = round as u64 % PARTITIONS;
        let owner = partition_at(&three.nodes[0], partition)["owner"].as_str().unwrap().to_owned();
        let owner = three.nodes.iter().position(|node| node.api.to_string() == owner).unwrap();
        let to = three.nodes[(owner + 1 + round / 10) % 3].api.to_string();
        let ordered = Instant::now();
        vvm_cluster(&three.nodes[0], &["move", &format!("demo/shop/{partition}"), &to]);
        loop {
            let seen = partition_at(&three.nodes[0], partition);
            if seen["owner"] == to && seen["state"] == "ready" {
                return Move { partition, ordered, done: Instant::now() };
            }
            assert!(ordered.elapsed() < node::PATIENCE, "partition {partition} to {to}: {seen}");
            std::thread::sleep(Duration::from_millis(20));
        }
    }

    /// The longest time from one command of the partition to the next, of those done meanwhile.
    fn pause(&self, known: &AcknowledgedCommands) -> Duration {
        let ws = if self.partition == 0 { PARTITIONS } else { self.partition };
        let meanwhile = |pair: &[Instant]| pair[1] >= self.ordered && pair[0] <= self.done;
        let moments = moments(known, ws);
        let pairs = moments.windows(2).filter(|pair| meanwhile(pair));
        pairs.map(|pair| pair[1] - pair[0]).max().unwrap()
    }
}

/// When the commands of a workspace were done. Its client sends one at a time.
fn moments(known: &AcknowledgedCommands, ws: u64) -> Vec<Instant> {
    let prefix = format!("{ws}-");
    let done = known.done.iter().filter(|(name, ..)| name.starts_with(&prefix));
    done.map(|(_, at, _)| *at).collect()
}

/// The median of the times from one command of a workspace to the next.
fn usual_pause(known: &AcknowledgedCommands) -> Duration {
    let of = |ws| {
        let moments = moments(known, ws);
        moments.windows(2).map(|pair| pair[1] - pair[0]).collect::<Vec<_>>()
    };
    let mut all: Vec<_> = (1..=PARTITIONS).flat_map(of).collect();
    all.sort_unstable();
    all[all.len() / 2]
}

fn partition_at(node: &NodeProcess, partition: u64) -> Value {
    let (_, status) = request(node.admin, "GET", "/cluster", &[], "");
    let partitions = status["partitions"].as_array().unwrap();
    partitions.iter().find(|it| it["number"] == partition).unwrap().clone()
}

fn vvm_cluster(node: &NodeProcess, arguments: &[&str]) {
    let mut command = Command::new(env!("CARGO_BIN_EXE_vvm"));
    command.arg("cluster").args(arguments).args(["--admin", &node.admin.to_string()]);
    let ended = command.output().unwrap();
    assert!(ended.status.success(), "{ended:?}");
}

/// Two nodes share an application, and only one of them has another application. The other node
/// refuses requests for it, and gets none of its partitions.
pub(crate) fn different_applications(fixture: &StorageFixture) {
    const NOTES: &str =
        "[tables.\"notes.Note\"]\nkind = \"CDoc\"\nfields = { text = \"string\" }\n";
    let cluster = |port: std::net::SocketAddr, apps: &str| {
        let storage = fixture.config(&fixture.storage);
        format!("{storage}[cluster]\nseats = 2\nlisten = \"{port}\"\n{apps}")
    };
    let shop =
        "[[apps]]\nname = \"demo/shop\"\ntables = \"notes.toml\"\nworkspaces = { Shop = 1 }\n";
    let notes = shop.replace("demo/shop", StorageFixture::SECOND_APP);
    for name in ["both", "one"] {
        fixture.write(name, "notes.toml", NOTES);
    }
    let both = fixture.start("both", &cluster(node::free(), &format!("{shop}{notes}"))).ready();
    both.create_workspace(1);
    let one = fixture.start("one", &cluster(node::free(), shop)).ready();
    let start = Instant::now();
    let owners = |app: &str| {
        let (_, status) = request(both.admin, "GET", "/cluster", &[], "");
        let partitions = status["partitions"].as_array().unwrap().clone();
        let of = partitions.into_iter().filter(|partition| partition["app"] == app);
        of.map(|partition| partition["owner"].as_str().unwrap_or("nobody").to_owned())
            .collect::<Vec<_>>()
    };
    let count = |app: &str, node: &NodeProcess| {
        owners(app).iter().filter(|owner| **owner == node.api.to_string()).count()
    };
    // The loads are even only if the node with both applications has nothing of the shared one.
    while count("demo/shop", &one) != 10 {
        assert!(start.elapsed() < node::PATIENCE, "{:?}", owners("demo/shop"));
        std::thread::sleep(Duration::from_millis(100));
    }
    assert_eq!(count(StorageFixture::SECOND_APP, &both), 10);

    let path = |app: &str| format!("/api/v2/apps/{app}/workspaces/2/commands/sys.CreateWorkspace");
    let create = |node: &NodeProcess, app: &str| {
        request(node.api, "POST", &path(app), &[], r#"{"args":{"kind":"Shop"}}"#)
    };
    let (status, answer) = create(&one, StorageFixture::SECOND_APP);
    assert_eq!((status, answer["code"].as_str()), (404, Some("not_deployed")), "{answer}");
    assert_eq!(create(&both, StorageFixture::SECOND_APP).0, 200);
    assert_eq!(create(&both, "demo/shop").0, 200, "it is forwarded");
    // The partitions of the other application stay free when their only node ends.
    both.stop();
    let (status, answer) = create(&one, StorageFixture::SECOND_APP);
    assert_eq!((status, answer["code"].as_str()), (404, Some("not_deployed")), "{answer}");
    let create = request(one.api, "POST", &path("demo/shop"), &[], r#"{"args":{"kind":"Shop"}}"#);
    assert_eq!(create.0, 409, "the workspace exists: {}", create.1);
    one.stop();
}
