//! `cargo xtask cluster`: three nodes on this machine that share a Cassandra server.
//!
//! The command owns the nodes and the server. They end with it, even if a part does not start. The
//! nodes end first, because a node without its storage cannot stop in order.

mod node;

use std::{
    fs::{self, File},
    path::{Path, PathBuf},
    time::{Duration, Instant},
};

use crate::{
    cargo,
    error::{Error, ErrorContext, Result, failed},
    folders, interrupt,
    servers::{OwnServers, Purpose, ServerKind},
};
use node::{ClusterNode, NodePlace};

/// The longest time until the nodes share the partitions. Partitions move 10 seconds after the last
/// node has joined.
const SHARED_WITHIN: Duration = Duration::from_secs(90);

/// The nodes stop within this time, with their drains: `drain_seconds` and `stop_seconds`.
const STOP_WITHIN: Duration = Duration::from_secs(45);

/// Starts a Cassandra server and three nodes, shows how to try them, and stops everything when the
/// command is asked to stop.
pub(crate) fn run(binary: Option<PathBuf>) -> Result<()> {
    let target = cargo::target_folder()?;
    let folder = target.join("cluster");
    let _lock = lock(&target.join("cluster.lock"))?;
    let places = NodePlace::all(&folder);
    // The build and the start of Cassandra take minutes, so the addresses are checked first.
    node::make_room(&places)?;
    let binary = match binary {
        Some(binary) => binary,
        None => {
            cargo::run(&["build", "--release", "--package", "vvm-cli", "--bin", "vvm"])?;
            target.join("release/vvm")
        }
    };
    if folder.exists() {
        fs::remove_dir_all(&folder).context(folder.display())?;
    }
    let servers = OwnServers::new()?;
    let ended = start_and_wait(&servers, &binary, places);
    drop(servers);
    match ended {
        Err(Error::Interrupted) => Ok(()),
        ended => ended,
    }
}

/// Two of these commands would use the same folder and the same addresses.
fn lock(path: &Path) -> Result<File> {
    let why = "`cargo xtask cluster` already runs in this checkout: stop it with Ctrl-C first";
    folders::lock(path, why)
}

fn start_and_wait(servers: &OwnServers, binary: &Path, places: Vec<NodePlace>) -> Result<()> {
    let variables = servers.start(&[ServerKind::Cassandra], Purpose::Tests)?;
    let Some((_, cassandra)) = variables.first() else {
        return failed("no Cassandra server was started");
    };
    let mut nodes = Vec::new();
    let ended = run_nodes(&mut nodes, places, cassandra, binary);
    // All nodes are asked first. A node that waited for the others would move partitions to nodes
    // that are about to stop.
    eprintln!("[nodes] stopping");
    nodes.iter().for_each(ClusterNode::ask_to_end);
    let deadline = Instant::now() + STOP_WITHIN;
    nodes.into_iter().for_each(|node| node.end_by(deadline));
    ended
}

/// Runs the nodes until the command is asked to stop, or all nodes have ended.
fn run_nodes(
    nodes: &mut Vec<ClusterNode>,
    places: Vec<NodePlace>,
    cassandra: &str,
    binary: &Path,
) -> Result<()> {
    for place in places {
        nodes.push(ClusterNode::start(place, cassandra, binary)?);
        // The first node makes the keyspaces.
        wait(nodes, "a node is not ready", ClusterNode::is_ready)?;
    }
    eprintln!("[nodes] ready; waiting until they share the partitions, which takes some seconds");
    wait(nodes, "the nodes do not share the partitions", ClusterNode::sees_fair_shares)?;
    print!("{}", guide(nodes, cassandra, binary));
    // The nodes are for trying, so one that ends is no error.
    let mut running = nodes.len();
    while running > 0 {
        interrupt::pause()?;
        let before = running;
        running = 0;
        for node in nodes.iter_mut() {
            running += usize::from(node.is_running()?);
        }
        if running != before {
            eprintln!("[nodes] {running} of those that this command started are running");
        }
    }
    failed(format!("all nodes have ended: see {}", logs(nodes)))
}

/// Waits until a condition holds for all nodes. Fails if a node ends.
fn wait(nodes: &mut [ClusterNode], what: &str, holds: fn(&ClusterNode) -> bool) -> Result<()> {
    let started = Instant::now();
    while !nodes.iter().all(holds) {
        nodes.iter_mut().try_for_each(ClusterNode::check)?;
        if started.elapsed() > SHARED_WITHIN {
            return failed(format!("{what} after {SHARED_WITHIN:?}: see {}", logs(nodes)));
        }
        interrupt::pause()?;
    }
    Ok(())
}

fn logs(nodes: &[ClusterNode]) -> String {
    nodes.iter().map(|node| node.place.log().display().to_string()).collect::<Vec<_>>().join(", ")
}

/// The text that tells how to try the cluster.
fn guide(nodes: &[ClusterNode], cassandra: &str, binary: &Path) -> String {
    let mut text = format!("\nThe cluster is ready. Cassandra listens at {cassandra}.\n\n");
    for (node, number) in nodes.iter().zip(1..) {
        let NodePlace { api, admin, .. } = node.place;
        text += &format!(
            "node {number}: http://{api}  page http://{admin}/  pid {}  log {}\n",
            node.pid(),
            node.place.log().display()
        );
    }
    let apis: Vec<_> = nodes.iter().map(|node| node.place.api.to_string()).collect();
    let (apis, vvm) = (apis.join(","), binary.display());
    text += &format!(
        "\nTry in another terminal:\n\
         {vvm} cluster status\n\
         {vvm} bench --node {apis} --clients 64 --seconds 60 --check\n"
    );
    if let Some(last) = nodes.last() {
        text += &format!(
            "\nTo see how the others take over, stop the last node while the bench runs, and start it again:\n\
             kill {}\n\
             {vvm} serve --config {}\n",
            last.pid(),
            last.place.config().display()
        );
    }
    text + "\nCtrl-C here stops everything that this command started.\n"
}

#[cfg(test)]
mod tests {
    use super::*;

    /// The second command removed the folders of the nodes of the first one.
    #[test]
    fn only_one_cluster_runs_in_a_checkout() {
        let folder = tempfile::tempdir().unwrap();
        let path = folder.path().join("cluster.lock");
        let first = lock(&path).unwrap();
        let error = lock(&path).unwrap_err().to_string();
        assert!(error.contains("already runs"), "{error}");
        drop(first);
        // A process that another test has just started may hold the file for a moment.
        let start = Instant::now();
        while let Err(error) = lock(&path) {
            assert!(start.elapsed() < Duration::from_secs(30), "{error}");
            std::thread::sleep(Duration::from_millis(10));
        }
    }
}
