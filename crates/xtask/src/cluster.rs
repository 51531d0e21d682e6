//! `cargo xtask cluster`: three nodes on this machine that share a Cassandra server.

use std::{
    fs::{self, File},
    io::{Read, Write},
    net::{Ipv4Addr, SocketAddr, TcpStream},
    path::{Path, PathBuf},
    process::Command,
    time::{Duration, Instant},
};

use crate::{
    cargo,
    error::{Error, ErrorContext, Result, failed},
    folders, interrupt,
    process::RunningChild,
    servers::{OwnServers, ServerKind},
};

/// The number of nodes.
const NODES: u16 = 3;

/// The ports of the first node: of the API, of the admin endpoint and for the other nodes. Each
/// other node has the next ports.
const PORTS: [u16; 3] = [8822, 55_555, 8832];

/// The partitions of the demo application.
const PARTITIONS: usize = 10;

/// The longest time until the nodes share the partitions. Partitions move 10 seconds after the
/// last node has come.
const SHARED_WITHIN: Duration = Duration::from_secs(90);

/// A node stops within this time, with its drain: `drain_seconds` and `stop_seconds`.
const STOP_WITHIN: Duration = Duration::from_secs(45);

/// A node of the cluster.
struct ClusterNode {
    child: RunningChild,
    api: SocketAddr,
    admin: SocketAddr,
    log: PathBuf,
}

/// Starts a Cassandra server and three nodes, shows how to try them, and stops everything when the
/// command is asked to stop.
pub(crate) fn run(binary: Option<PathBuf>) -> Result<()> {
    let target = cargo::target_folder()?;
    let binary = match binary {
        Some(binary) => binary,
        None => {
            cargo::run(&["build", "--release", "--package", "vvm-cli", "--bin", "vvm"])?;
            target.join("release/vvm")
        }
    };
    let folder = target.join("cluster");
    if folder.exists() {
        fs::remove_dir_all(&folder).context(folder.display())?;
    }
    fs::create_dir_all(&folder).context(folder.display())?;
    let servers = OwnServers::new()?;
    let ended = start_and_wait(&servers, &binary, &folder);
    drop(servers);
    match ended {
        Err(Error::Interrupted) => Ok(()),
        ended => ended,
    }
}

fn start_and_wait(servers: &OwnServers, binary: &Path, folder: &Path) -> Result<()> {
    let variables = servers.start(&[ServerKind::Cassandra])?;
    let Some((_, cassandra)) = variables.first() else {
        return failed("no Cassandra server was started");
    };
    let mut nodes = Vec::new();
    let ended = run_nodes(&mut nodes, cassandra, binary, folder);
    // All nodes are asked first. A node that waited for the others would move partitions to nodes
    // that are about to stop.
    nodes.iter().for_each(|node: &ClusterNode| node.child.ask_to_end());
    nodes.into_iter().for_each(|node| node.child.end_within(STOP_WITHIN));
    ended
}

/// Runs the nodes until the command is asked to stop, or a node ends.
fn run_nodes(
    nodes: &mut Vec<ClusterNode>,
    cassandra: &str,
    binary: &Path,
    folder: &Path,
) -> Result<()> {
    for number in 0..NODES {
        nodes.push(start_node(number, cassandra, binary, folder)?);
        // The first node makes the keyspaces.
        wait(nodes, "a node is not ready", |nodes| nodes.iter().all(is_ready))?;
    }
    eprintln!("[nodes] ready; waiting until they share the partitions, which takes some seconds");
    wait(nodes, "the nodes do not share the partitions", |nodes| {
        nodes.iter().all(|node| shares_partitions(node.admin))
    })?;
    print!("{}", guide(nodes));
    // The nodes are for trying, so one that ends is no error.
    let mut running = nodes.len();
    while running > 0 {
        interrupt::pause()?;
        let before = running;
        running = 0;
        for node in nodes.iter_mut() {
            running += usize::from(node.child.ended()?.is_none());
        }
        if running != before {
            eprintln!("[nodes] {running} are running");
        }
    }
    failed(format!("all nodes have ended: see {}", logs(nodes)))
}

fn start_node(number: u16, cassandra: &str, binary: &Path, folder: &Path) -> Result<ClusterNode> {
    let [api, admin, peers] =
        PORTS.map(|port| SocketAddr::from((Ipv4Addr::LOCALHOST, port + number)));
    let name = format!("node{}", number + 1);
    let log = folder.join(format!("{name}.log"));
    let root = folders::root()?;
    let mut command = Command::new(binary);
    command
        .args(["serve", "--config"])
        .arg(root.join("config/cassandra.toml"))
        .args(["--listen", &api.to_string(), "--admin", &admin.to_string()])
        .env("VVM__STORAGE__CASSANDRA__CONTACT_POINTS", format!("['{cassandra}']"))
        .env("VVM__STORAGE__CASSANDRA__REPLICATION", "up_to_three")
        .env("VVM__CLUSTER__LISTEN", peers.to_string())
        .env("VVM__NODE__FOLDER", folder.join(&name))
        .current_dir(&root)
        .stdout(File::create(&log).context(log.display())?)
        .stderr(File::options().append(true).open(&log).context(log.display())?);
    eprintln!("[{name}] starting at {api}");
    Ok(ClusterNode { child: RunningChild::start(&mut command)?, api, admin, log })
}

/// Waits until a condition holds.
fn wait(
    nodes: &mut [ClusterNode],
    what: &str,
    holds: impl Fn(&[ClusterNode]) -> bool,
) -> Result<()> {
    let started = Instant::now();
    while !holds(nodes) {
        check(nodes)?;
        if started.elapsed() > SHARED_WITHIN {
            return failed(format!("{what} after {SHARED_WITHIN:?}: see {}", logs(nodes)));
        }
        interrupt::pause()?;
    }
    Ok(())
}

/// Fails if a node has ended.
fn check(nodes: &mut [ClusterNode]) -> Result<()> {
    for node in nodes {
        if let Some(status) = node.child.ended()? {
            let (api, log) = (node.api, node.log.display());
            return failed(format!("the node at {api} ended with {status}: see {log}"));
        }
    }
    Ok(())
}

fn logs(nodes: &[ClusterNode]) -> String {
    nodes.iter().map(|node| node.log.display().to_string()).collect::<Vec<_>>().join(", ")
}

fn is_ready(node: &ClusterNode) -> bool {
    get(node.admin, "/readyz").is_some_and(|(status, _)| status == 200)
}

/// Whether each node owns a fair share of the partitions, as one node sees the cluster.
fn shares_partitions(admin: SocketAddr) -> bool {
    let Some((200, body)) = get(admin, "/cluster") else { return false };
    let status: serde_json::Value = serde_json::from_str(&body).unwrap_or_default();
    let counts = status["members"].as_array().into_iter().flatten();
    let counts: Vec<_> = counts.filter_map(|member| member["partitions"].as_u64()).collect();
    counts.len() == usize::from(NODES)
        && counts.iter().sum::<u64>() == PARTITIONS as u64
        && counts.iter().max() <= counts.iter().min().map(|least| least + 1).as_ref()
}

/// Sends a request, and returns the status and the body of the answer.
fn get(address: SocketAddr, path: &str) -> Option<(u16, String)> {
    const WITHIN: Duration = Duration::from_secs(2);
    let mut stream = TcpStream::connect_timeout(&address, WITHIN).ok()?;
    stream.set_read_timeout(Some(WITHIN)).ok()?;
    let request = format!("GET {path} HTTP/1.1\r\nhost: {address}\r\nconnection: close\r\n\r\n");
    stream.write_all(request.as_bytes()).ok()?;
    let mut answer = String::new();
    stream.read_to_string(&mut answer).ok()?;
    let (head, body) = answer.split_once("\r\n\r\n")?;
    Some((head.split(' ').nth(1)?.parse().ok()?, body.to_owned()))
}

/// The text that tells how to try the cluster.
fn guide(nodes: &[ClusterNode]) -> String {
    let mut text = "\nThe cluster is ready.\n\n".to_owned();
    for (node, number) in nodes.iter().zip(1..) {
        let ClusterNode { api, admin, log, .. } = node;
        text +=
            &format!("node {number}: http://{api}  page http://{admin}/  log {}\n", log.display());
    }
    let apis: Vec<_> = nodes.iter().map(|node| node.api.to_string()).collect();
    text + &format!(
        "\nTry in another terminal:\n\
         cargo run --release -- cluster status\n\
         cargo run --release -- bench --node {} --clients 64 --check\n\
         \nTo see how the others take over, stop the last node with `pkill -f 'listen {}'`.\n\
         Ctrl-C stops everything.\n",
        apis.join(","),
        apis.last().map_or("", String::as_str)
    )
}
