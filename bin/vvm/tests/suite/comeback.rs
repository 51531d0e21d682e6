//! A node on redb after a kill: how soon it leads, and what it says while it waits, as a process.

use std::{
    fs,
    net::SocketAddr,
    path::Path,
    process::Command,
    time::{Duration, Instant},
};

use clock::Clock;
use rustix::process::Signal;
use tck::trial::is_long;

use crate::node::{NodeProcess, free};

/// Starts a node, and returns it when it is ready, with the time that this took.
fn ready(folder: &Path) -> (NodeProcess, Duration) {
    let start = Instant::now();
    let node = NodeProcess::start(folder, "[node]\nlease_seconds = 20\n").ready();
    (node, start.elapsed())
}

fn kill(mut node: NodeProcess) {
    node.signal(Signal::KILL);
    node.ended();
}

/// A node recorded its lease only when it led. If the node was killed after it had acquired the
/// lease and before it led, the lease had no record: 3 of 30 restarts waited 20 s for its end.
#[test]
fn a_start_that_is_killed_at_any_moment_does_not_delay_the_next() {
    // The short run shares the machine with other tests. The long run is alone on the machine.
    let (kills, within) = match is_long() {
        true => (1_000, Duration::from_millis(1_500)),
        false => (12, Duration::from_secs(4)),
    };
    let folder = tempfile::tempdir().unwrap();
    let clock = Clock::system();
    let (node, _) = ready(folder.path());
    kill(node);
    let (node, mut usual) = ready(folder.path());
    kill(node);
    let mut longest = Duration::ZERO;
    for count in 0..kills {
        let moment = usual.mul_f64((clock.random() % 1_000) as f64 / 1_000.0);
        let node = NodeProcess::start(folder.path(), "[node]\nlease_seconds = 20\n");
        std::thread::sleep(moment);
        kill(node);
        // Sometimes the next start is killed, too.
        if clock.random().is_multiple_of(3) {
            continue;
        }
        let (node, took) = ready(folder.path());
        assert!(took < within, "kill {count} after {moment:?}: {took:?}: {}", node.log_text());
        kill(node);
        (usual, longest) = ((usual + took) / 2, longest.max(took));
    }
    println!("{kills} kills; the slowest restart was ready after {longest:?}");
}

/// The node said only how soon a standby takes over, as if another node led.
#[test]
fn a_node_that_waits_for_its_own_former_lease_logs_the_remaining_time() {
    let folder = tempfile::tempdir().unwrap();
    let (config, api, admin) = ("[node]\nlease_seconds = 5\n", free(), free());
    let mut node = NodeProcess::start_at(folder.path(), config, api, admin).ready();
    node.signal(Signal::KILL);
    node.ended();
    // The lock file is missing, as after a reboot or in a copy of the folder.
    fs::remove_file(folder.path().join("data/lease.lock")).unwrap();
    let node = NodeProcess::start_at(folder.path(), config, api, admin).ready();
    let log = node.log_text();
    waited(&log, "waiting for the lease of this node's former process", api);
    node.stop();
}

/// The log has one line about the wait for the lease of `owner`, which has a bound.
fn waited(log: &str, message: &str, owner: SocketAddr) {
    let is_wait = |line: &&str| line.contains("waiting for the lease");
    let lines: Vec<&str> = log.lines().filter(is_wait).collect();
    assert_eq!(lines.len(), 1, "{log}");
    let line: serde_json::Value = serde_json::from_str(lines[0]).unwrap();
    let fields = &line["fields"];
    assert_eq!(fields["message"], message, "{line}");
    assert_eq!(fields["owner"], owner.to_string(), "{line}");
    let left: f64 = fields["expires_in"].as_str().unwrap().trim_end_matches('s').parse().unwrap();
    assert!((1.0..=5.0).contains(&left), "{line}");
}

/// At level 2 a late write of the former process could replace a row of this process. So the node
/// does not take its own lease back, although its lock file proves that the process is gone.
#[test]
fn a_node_of_level_2_waits_for_its_own_former_lease() {
    let folder = tempfile::tempdir().unwrap();
    let config = "[node]\nlease_seconds = 5\n[sequences]\ntrust_level = 2\n";
    let (api, admin) = (free(), free());
    let mut node = NodeProcess::start_at(folder.path(), config, api, admin).ready();
    node.signal(Signal::KILL);
    node.ended();
    let node = NodeProcess::start_at(folder.path(), config, api, admin).ready();
    waited(&node.log_text(), "waiting for the lease of this node's former process", api);
    node.stop();
}

/// A file that was restored has the lease of the node that made the backup, and so has a file whose
/// state folder is lost. If the address is another one, too, the node waited in silence for the
/// whole lease, and looked as if it hung.
#[test]
fn a_node_that_waits_for_the_lease_of_another_address_logs_the_remaining_time() {
    let folder = tempfile::tempdir().unwrap();
    let config = "[node]\nlease_seconds = 5\n";
    let node = NodeProcess::start(folder.path(), config).ready();
    let backup = folder.path().join("backup");
    let mut vvm = Command::new(env!("CARGO_BIN_EXE_vvm"));
    let vvm = vvm.arg("backup").arg(&backup).args(["--admin", &node.admin.to_string()]);
    assert!(vvm.output().unwrap().status.success());
    let first = node.api;
    node.stop();
    let home = folder.path().join("restored");
    fs::create_dir(&home).unwrap();
    let storage = format!("redb:{}", home.join("data/vvm.redb").display());
    let mut vvm = Command::new(env!("CARGO_BIN_EXE_vvm"));
    let vvm = vvm.arg("restore").arg(&backup).args(["--storage", &storage]);
    assert!(vvm.output().unwrap().status.success());
    let message = "waiting for the lease of a node with another address";
    let mut node = NodeProcess::start(&home, config).ready();
    waited(&node.log_text(), message, first);

    let second = node.api;
    node.signal(Signal::KILL);
    node.ended();
    fs::remove_file(home.join("data/lease.lock")).unwrap();
    let node = NodeProcess::start(&home, config).ready();
    waited(&node.log_text(), message, second);
    node.stop();
}
