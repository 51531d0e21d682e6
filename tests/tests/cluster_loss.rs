//! A leader over a cluster of three Cassandra nodes, two of which stop answering: its leadership
//! ends before its lease does.
//!
//! The two nodes are suspended, not killed, so that later tests find the whole cluster. For the
//! leader a suspended node is as bad as a killed one, or worse: its connections stay open, and no
//! answers come.

#![allow(clippy::unwrap_used)]

use std::{sync::Arc, time::Duration};

use clock::Clock;
use ielections::{Elections, LossReason, Seat, Timing};
use istorage::KeyspaceName;
use libtest_mimic::{Arguments, Completion, Trial};
use sysvvm::System;
use tck::storage::Subject;
use tokio::{runtime::Runtime, sync::mpsc};
use vvm_tests::{processes::SuspendedProcesses, servers::CASSANDRA_CLUSTER, subjects::Cassandra};

const LEASE: Duration = Duration::from_secs(8);

/// The longest time for a keyspace, and for servers to find each other again.
const PATIENCE: Duration = Duration::from_secs(180);

async fn two_of_three(addresses: &str) {
    let subject = Cassandra::at(addresses);
    let clock = Clock::system();
    let soon = || clock.now() + PATIENCE;
    let driver = subject.node(0).await.unwrap();
    let keyspace = KeyspaceName::new(format!("loss_{:016x}", clock.random())).unwrap();
    let system = System::open(Arc::clone(&driver), keyspace.clone(), clock.clone(), soon());
    let store = Arc::new(system.await.unwrap().elections());
    // A busy machine may need longer for a call than a twentieth of a lease.
    let timing = Timing { call_timeout: LEASE / 10, ..Timing::of(LEASE) };
    let node = |port| {
        let owner = ([127, 0, 0, 1], port).into();
        Elections::new(Arc::clone(&store) as _, clock.clone(), owner, timing).unwrap()
    };
    let (killed, mut was_killed) = mpsc::channel(1);
    let first = node(1).with_killer(Arc::new(move |_| {
        let _ = killed.try_send(Clock::system().now());
    }));
    let leadership = first.acquire(Seat::FIRST, soon()).await.unwrap();
    let work = leadership.work().unwrap();
    let epoch = leadership.epoch();

    let nodes: Vec<&str> = addresses.split(',').collect();
    let stopped = SuspendedProcesses::nodes_at(&nodes[1..]).unwrap();
    assert_eq!(leadership.over().await, LossReason::Expired);
    let over = clock.now();
    // When the last answered renewal was sent. The servers count the lease from this moment or
    // later.
    let renewed = leadership.valid_until() - timing.renew_every - timing.retry_for;
    assert!(over < renewed + LEASE, "it ended {:?} after its lease", over - (renewed + LEASE));
    assert_eq!(work.may_send(Duration::ZERO), Err(LossReason::Expired));
    let killed = clock.timeout_at(soon(), was_killed.recv()).await.unwrap().unwrap();
    assert!(killed < renewed + LEASE, "{:?} after its lease", killed - (renewed + LEASE));

    drop(stopped);
    let next = node(2).acquire(Seat::FIRST, soon()).await.unwrap();
    assert!(next.epoch() > epoch);
    drop(work);
    driver.drop_keyspace(&keyspace, soon()).await.unwrap();
}

fn main() {
    let runtime = Runtime::new().unwrap();
    let name = "cassandra_cluster::two_of_three_nodes_that_are_gone_end_the_lead_before_the_lease";
    let trial = Trial::ignorable_test(name, move || match CASSANDRA_CLUSTER.address() {
        None => Ok(Completion::ignored_with(CASSANDRA_CLUSTER.ignored_because)),
        // Processes of other machines must not be stopped.
        Some(addresses) if !addresses.split(',').all(|address| address.starts_with("127.")) => {
            Ok(Completion::ignored_with("the nodes of the cluster are not on this machine"))
        }
        Some(addresses) => {
            runtime.block_on(two_of_three(&addresses));
            Ok(Completion::Completed)
        }
    });
    libtest_mimic::run(&Arguments::from_args(), vec![trial]).exit();
}
