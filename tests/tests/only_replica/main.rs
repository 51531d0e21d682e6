//! Rows that only one of three servers of Cassandra has, and the loss of that server.
//!
//! A write without an answer may have reached one server. Whoever reads the row from that server
//! must make sure that a quorum has the row, before anything is built on it. A plain read does so:
//! it repairs the servers that it asks. A linearizable read does not, if the servers have
//! `paxos_variant: v2`.
//!
//! The trials need the three servers for themselves: they kill all of them, and suspend them one
//! after another, so that they know which servers answer.

#![allow(clippy::unwrap_used, clippy::disallowed_methods)]

mod adopted_event;
mod lost_write;
mod repairs;
mod servers;

use std::time::Duration;

use clock::{Clock, Instant};
use libtest_mimic::{Arguments, Completion, Trial};
use tck::trial::is_long;
use tokio::runtime::Runtime;
use vvm_tests::servers::CASSANDRA_CLUSTER;

use self::servers::Servers;

/// The longest time for a keyspace, and for servers to start and to find each other again.
const PATIENCE: Duration = Duration::from_secs(180);

/// How often a trial sends a write until it reaches the first server: a write that is sent to a
/// server that was just killed reaches none, and the first server soon refuses it.
const TRIES: usize = 3;

fn soon() -> Instant {
    Clock::system().now() + PATIENCE
}

/// Repeats a call until it succeeds. Servers that were suspended or killed need some time to find
/// each other again.
async fn retried<T>(mut call: impl AsyncFnMut() -> istorage::Result<T>) -> T {
    let (clock, deadline) = (Clock::system(), soon());
    loop {
        match call().await {
            Ok(answer) => return answer,
            Err(error) => assert!(clock.now() < deadline, "{error}"),
        }
        clock.sleep(Duration::from_millis(100)).await;
    }
}

/// The time of a call that [`retried`] repeats.
fn in_a_moment() -> Instant {
    Clock::system().now() + Duration::from_secs(5)
}

fn trial<T>(name: &str, runtime: &'static Runtime, run: T) -> Trial
where
    T: AsyncFn(Servers) + Send + 'static,
{
    let name = format!("cassandra_cluster::{name}");
    Trial::ignorable_test(name, move || match CASSANDRA_CLUSTER.address() {
        None => Ok(Completion::ignored_with(CASSANDRA_CLUSTER.ignored_because)),
        // Processes of other machines must not be killed.
        Some(addresses) if !addresses.split(',').all(|address| address.starts_with("127.")) => {
            Ok(Completion::ignored_with("the servers of the cluster are not on this machine"))
        }
        Some(addresses) => {
            runtime.block_on(run(Servers::at(&addresses)));
            Ok(Completion::Completed)
        }
    })
}

fn main() {
    let runtime: &'static Runtime = Box::leak(Box::new(Runtime::new().unwrap()));
    let mut trials = vec![
        trial("an_adopted_event_outlives_its_only_server", runtime, adopted_event::resent),
        trial("a_lost_write_is_found_on_a_quorum", runtime, lost_write::restored),
    ];
    // It says what Cassandra does, and the others say what VVM does with it.
    if is_long() {
        trials.push(trial("a_plain_read_repairs_a_quorum", runtime, repairs::reads));
    }
    // The trials run one after another, because each one needs the servers for itself.
    let arguments = Arguments { test_threads: Some(1), ..Arguments::from_args() };
    libtest_mimic::run(&arguments, trials).exit();
}
