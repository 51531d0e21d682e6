//! Nodes that start together on an empty storage.
//!
//! Some nodes started 20 ms apart on a new keyspace. Most of them ended with "the storage was
//! deployed in another way". The cause: a node opened a keyspace while another node was creating
//! it. One server did not know the table yet, and the refusal of that server counted as a wrong
//! configuration.

#![allow(clippy::unwrap_used, clippy::disallowed_methods)]

use std::{process::ExitCode, time::Duration};

use ielections::Timing;
use istorage::KeyspaceName;
use shop::shop;
use sysvvm::AppName;
use tck::{
    storage::KeyspaceTracker,
    trial::{Trial, is_long, trials},
};
use tokio::runtime::Handle;
use vvm::{AppSettings, Launched, NodeSettings, Stage, Vvm};
use vvm_tests::trials::{OwnFixtures, ServerFixture, Target, run_trials};

/// The longest time for a keyspace on a small machine.
const PATIENCE: Duration = Duration::from_secs(180);

/// The time between the starts of two nodes.
const APART: Duration = Duration::from_millis(20);

/// Starts a number of nodes together on an empty storage, and stops them.
async fn start_and_stop(server: &ServerFixture, nodes: u16) {
    let keyspaces = KeyspaceTracker::default();
    let system = KeyspaceName::new(format!("together_{:016x}", server.clock.random())).unwrap();
    let mut launched = Vec::new();
    for number in 1..=nodes {
        let settings = NodeSettings {
            system: system.clone(),
            acquire_within: Some(PATIENCE),
            open_within: PATIENCE,
            lease: Timing::of(Duration::from_secs(20)),
            ..NodeSettings::new(([127, 0, 0, 1], number).into())
        };
        let app = AppSettings::new(AppName::new("acme", "shop").unwrap(), shop());
        // Each node has connections of its own, as a process has: one client for elections, one for
        // requests.
        let driver = keyspaces.track(server.subject.node(0).await.unwrap());
        let requests = keyspaces.track(server.subject.node(0).await.unwrap());
        let node = Vvm::builder(driver, server.clock.clone(), settings)
            .with_requests_on(Handle::current(), requests)
            .with_app(app);
        launched.push(node.build().unwrap());
    }
    let mut running = Vec::new();
    for node in launched {
        running.push(node.launch());
        server.clock.sleep(APART).await;
    }
    until_all_are_up(server, &running).await;
    // Stop the leader last, so that no other node takes over.
    running.sort_by_key(|node| node.node().stage() == Stage::Leading);
    for node in running {
        node.shutdown().await.unwrap();
    }
    let driver = server.subject.node(0).await.unwrap();
    let left = keyspaces.drop_all(&*driver, &server.clock).await;
    assert!(left.is_empty(), "{left:?}");
}

/// Waits until one node leads and the others wait.
async fn until_all_are_up(server: &ServerFixture, nodes: &[Launched]) {
    let deadline = server.clock.now() + PATIENCE;
    loop {
        for node in nodes {
            let problem = server.clock.timeout_at(server.clock.now(), node.problem()).await;
            assert!(problem.is_err(), "{}", problem.unwrap());
        }
        let stages = || nodes.iter().map(|node| node.node().stage());
        let at = |wanted| stages().filter(|stage| *stage == wanted).count();
        if at(Stage::Leading) == 1 && at(Stage::Waiting) == nodes.len() - 1 {
            return;
        }
        let stages: Vec<Stage> = stages().collect();
        assert!(server.clock.now() < deadline, "they stay {stages:?}");
        server.clock.sleep(Duration::from_millis(20)).await;
    }
}

async fn all_come_up(server: &ServerFixture) {
    let rounds = if is_long() { 50 } else { 1 };
    for round in 0..rounds {
        // The number of nodes is 2 to 8. The sample has 4.
        start_and_stop(server, 2 + (round + 2) % 7).await;
    }
}

const TRIALS: &[Trial<ServerFixture>] =
    trials!(nodes_that_start_together_on_an_empty_storage_all_come_up = all_come_up);

fn main() -> ExitCode {
    run_trials::<OwnFixtures<ServerFixture>>(
        env!("CARGO_TARGET_TMPDIR"),
        None,
        |drivers| {
            vec![
                Target::new("cassandra", drivers.cassandra),
                Target::new("cassandra_cluster", drivers.cassandra_cluster),
                Target::new("dynamodb", drivers.dynamodb),
            ]
        },
        TRIALS,
    )
}
