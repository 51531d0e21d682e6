//! A node on redb that is killed while it starts, as a process.

#![allow(clippy::unwrap_used, clippy::disallowed_methods)]

#[path = "support/node.rs"]
#[allow(dead_code, reason = "this suite needs a part of it")]
mod node;

use std::{
    path::Path,
    time::{Duration, Instant},
};

use clock::Clock;
use node::NodeProcess;
use rustix::process::Signal;
use trialkit::is_long;

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
