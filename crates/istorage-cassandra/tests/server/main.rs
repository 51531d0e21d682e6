//! Trials of Cassandra's own behavior, on a real server. The suite that all drivers share proves
//! the contract itself.
//!
//! `VVM_TEST_CASSANDRA` names a server. `VVM_TEST_CASSANDRA_CLUSTER` names the nodes of a cluster
//! of three, separated by commas. If its variable is not set, a trial is reported as ignored. If
//! the variable is set and the server is missing, the trial fails.

#![expect(clippy::unwrap_used, reason = "a trial fails by panicking")]

mod cluster;
mod expiry;
mod keyspaces;
mod late;
mod limits;
mod support;
mod writes;

use std::{future::Future, pin::Pin, process::ExitCode};

use libtest_mimic::{Arguments, Failed, Trial};

use support::CassandraCluster;

type Run = fn(CassandraCluster) -> Pin<Box<dyn Future<Output = ()>>>;

/// A list of trials, each with its name and its function.
macro_rules! trials {
    ($($module:ident::$name:ident),* $(,)?) => {
        vec![$((concat!(stringify!($module), "::", stringify!($name)), (|cluster| Box::pin($module::$name(cluster))) as Run)),*]
    };
}

fn main() -> ExitCode {
    let one_server = trials![
        expiry::a_marker_without_a_value_is_no_row,
        expiry::a_batch_inserts_over_a_marker,
        expiry::the_rest_of_a_ttl_is_not_more_than_the_requested_ttl,
        keyspaces::a_foreign_keyspace_is_left_alone,
        keyspaces::a_table_with_other_options_is_refused,
        keyspaces::an_empty_keyspace_is_used_and_keeps_its_replication,
        keyspaces::a_keyspace_with_one_replica_is_made_only_if_the_configuration_says_so,
        keyspaces::a_wrong_datacenter_is_named,
        keyspaces::a_server_that_is_not_there_is_unavailable,
        keyspaces::a_closed_driver_reports_that_it_is_closed,
        keyspaces::a_server_tells_its_settings,
        late::a_write_lands_within_the_promised_bound,
        limits::the_largest_row_fits_into_every_call,
        limits::the_largest_conditional_write_is_accepted,
        limits::the_largest_ordered_write_is_accepted,
        limits::large_rows_behind_small_ones_are_read,
        writes::every_failed_condition_is_reported_and_no_other,
        writes::a_wall_clock_that_is_behind_does_not_matter_to_ordered_rows,
        writes::a_row_with_a_time_that_is_ahead_hides_what_a_condition_allowed,
        writes::a_later_put_stays_when_the_wall_clock_steps_back,
    ];
    let three_servers = trials![
        cluster::many_nodes_create_one_keyspace,
        cluster::a_new_keyspace_has_three_replicas_by_default,
        cluster::concurrent_swaps_of_a_counter_lose_no_increment,
    ];
    let mut all = named("cassandra", "VVM_TEST_CASSANDRA", one_server);
    all.extend(named("cassandra_cluster", "VVM_TEST_CASSANDRA_CLUSTER", three_servers));
    libtest_mimic::run(&Arguments::from_args(), all).exit_code()
}

fn named(target: &str, variable: &str, trials: Vec<(&str, Run)>) -> Vec<Trial> {
    #[expect(
        clippy::disallowed_methods,
        reason = "a test learns from the environment which servers there are"
    )]
    let nodes = std::env::var(variable).ok();
    let trial = |(name, run): (&str, Run)| {
        let nodes = nodes.clone();
        let ignored = nodes.is_none();
        let test = move || match &nodes {
            Some(nodes) => run_trial(nodes, run),
            None => Err(Failed::from("no server was asked for")),
        };
        Trial::test(format!("{target}::{name}"), test).with_ignored_flag(ignored)
    };
    trials.into_iter().map(trial).collect()
}

fn run_trial(nodes: &str, run: Run) -> Result<(), Failed> {
    let runtime =
        tokio::runtime::Builder::new_multi_thread().worker_threads(2).enable_all().build()?;
    let nodes = nodes.split(',').map(str::to_owned).collect();
    // A trial fails by panicking, and the harness reports the panic.
    runtime.block_on(run(CassandraCluster { nodes }));
    Ok(())
}
