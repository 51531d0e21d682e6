//! A node over a cluster of three servers, one of which does not work properly. The node keeps its
//! leadership, and commands go on. Another node that starts meanwhile opens the storage and takes
//! over.
//!
//! One server of three stood still, and every leader of the cluster lost its leadership although a
//! quorum was intact. The cause: all conditional writes of a partition went to the first replica of
//! the partition. That server counted as connected until the keepalive gave its connection up.
//!
//! A node that started, or took over, waited for every server that it was connected to. A server
//! that hung, or that only its peers could not reach, kept the node from opening its storage. In
//! the end the node ended with code 4.

#![allow(clippy::unwrap_used, clippy::disallowed_methods)]

mod clients;
mod nodes;
mod opening;
mod round;
mod server_failure;

use std::{mem, sync::Arc, time::Duration};

use clock::{Clock, Instant};
use istorage::KeyspaceName;
use libtest_mimic::{Arguments, Completion, Trial};
use shop::create_workspace;
use tck::{storage::Subject, trial::is_long};
use tokio::runtime::{Handle, Runtime};
use vvm::Stage;
use vvm_tests::{servers::CASSANDRA_CLUSTER, subjects::Cassandra};

use self::{
    clients::{Clients, run},
    nodes::{Nodes, until},
    opening::opened_beside_a_hung_server,
    round::{LONG, Round, SAMPLE},
    server_failure::{ActiveFailure, BlackholeRoute, ServerFailure},
};

/// The longest time for a keyspace, and for servers to find each other again.
const PATIENCE: Duration = Duration::from_secs(180);

/// The longest time for connecting and opening keyspaces while a server hangs. A single wait for
/// that server, until the keepalive gives its connection up, lasts longer: 6.1 s.
const OPENS_IN: Duration = Duration::from_secs(6);

/// After this time servers know when to ask a second replica of a new table. They compute this once
/// in each `read_request_timeout`, which is 15 s on the servers of the tests. Until then a read
/// waits for a replica that hangs: commands waited for up to 10 s.
const NEW_TABLES: Duration = Duration::from_secs(16);

async fn one_of_three(addresses: &str, round: Round) {
    let mut nodes = Nodes::new(addresses, round);
    let mut node = nodes.launch().await;
    until(&nodes.clock, soon(), &node, Stage::Leading).await;
    nodes.measure_opening().await;
    let clock = &nodes.clock;
    for ws in 1..=4 {
        while run(&node, create_workspace(ws, clock.now() + Duration::from_secs(10))).await.is_err()
        {
            clock.sleep(Duration::from_millis(100)).await;
        }
    }
    clock.sleep(NEW_TABLES).await;
    // All programs on the machine use 127.0.0.1, so this address is not cut off.
    let is_spared =
        |server: &&str| round.failure == ServerFailure::CutOff && server.starts_with("127.0.0.1:");
    let servers = addresses.split(',').filter(|server| !is_spared(server));
    for (number, server) in servers.enumerate() {
        if number > 0 {
            // Give the other servers time to take the former server back.
            clock.sleep(Duration::from_secs(10)).await;
        }
        let what = format!("{round:?} of {server}");
        let clients = Clients::start(&node, clock);
        clock.sleep(Duration::from_secs(2)).await;
        let active_failure = ActiveFailure::begin(round.failure, server);
        let lost = clock.timeout_at(clock.now() + round.lasts(), node.problem());
        let (lost, next) = tokio::join!(lost, nodes.standby(&what));
        assert!(lost.is_err(), "{what}: {}", lost.unwrap());
        let pause = clients.stop().await;
        eprintln!("{what}: the longest pause was {pause:?}");
        assert!(pause <= round.longest_pause(), "{what}: nothing for {pause:?}");
        nodes.hand_over(mem::replace(&mut node, Arc::clone(&next)), &next, &what).await;
        drop((active_failure, next));
        let deadline = soon();
        while tokio::net::TcpStream::connect(server).await.is_err() {
            assert!(clock.now() < deadline, "{server} does not come back");
            clock.sleep(Duration::from_millis(200)).await;
        }
    }
    Arc::into_inner(node).unwrap().shutdown().await.unwrap();
    let cleaner = Cassandra::at(addresses).node(0).await.unwrap();
    let left = nodes.keyspaces.drop_all(&*cleaner, clock).await;
    assert!(left.is_empty(), "{left:?}");
}

fn soon() -> Instant {
    Clock::system().now() + PATIENCE
}

fn new_name() -> KeyspaceName {
    KeyspaceName::new(format!("three_{:016x}", Clock::system().random())).unwrap()
}

fn trial(round: Option<Round>, handle: &Handle) -> Trial {
    let handle = handle.clone();
    let name = match round {
        None => "a_keyspace_is_opened_in_time_while_one_of_three_servers_hangs".to_owned(),
        Some(Round { failure, lease }) => format!(
            "a_leader_leads_on_while_one_of_three_servers_is_{failure:?}_leases_of_{lease:?}"
        ),
    };
    let name = format!("cassandra_cluster::{name}").to_lowercase();
    Trial::ignorable_test(name, move || match CASSANDRA_CLUSTER.address() {
        None => Ok(Completion::ignored_with(CASSANDRA_CLUSTER.ignored_because)),
        // Processes of other machines must not be stopped.
        Some(addresses) if !addresses.split(',').all(|address| address.starts_with("127.")) => {
            Ok(Completion::ignored_with("the servers of the cluster are not on this machine"))
        }
        Some(_)
            if round.is_some_and(Round::changes_routes)
                && BlackholeRoute::new("127.0.0.99:1").is_err() =>
        {
            Ok(Completion::ignored_with("only root may change routes"))
        }
        Some(addresses) => {
            match round {
                None => handle.block_on(opened_beside_a_hung_server(&addresses)),
                Some(round) => handle.block_on(one_of_three(&addresses, round)),
            }
            Ok(Completion::Completed)
        }
    })
}

fn main() {
    let runtime = Runtime::new().unwrap();
    let rounds = if is_long() { &LONG[..] } else { &SAMPLE };
    let rounds = std::iter::once(None).chain(rounds.iter().copied().map(Some));
    let trials = rounds.map(|round| trial(round, runtime.handle()));
    // The trials run one after another, because each one needs the servers for itself.
    let arguments = Arguments { test_threads: Some(1), ..Arguments::from_args() };
    libtest_mimic::run(&arguments, trials.collect()).exit();
}
