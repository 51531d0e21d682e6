//! Commands on every driver, from the command to its stored rows: each trial is a test with the
//! name `driver::trial`.

#![allow(clippy::unwrap_used)]

mod basics;
mod changed_levels;
mod changed_rows;
mod crashes;
mod damaged_numbers;
mod fencing;
mod fixture;
mod foreign_rows;
mod handlers;
mod late_writes;
mod limits;
mod log;
mod marked_events;
mod misplaced_markers;
mod overload;
mod reads;
mod rounds;
mod sabotage;
mod scene;
mod sequence_fields;
mod slow_storage;
mod stalled_partitions;
mod strays;
mod two_leaders;
mod unknown_outcomes;
mod unseen_events;

use fixture::CommandsFixture;
use tck::trial::is_long;
use vvm_tests::trials::{OwnFixtures, Target, run_trials};

/// The number of trials that run at once. Many of them mostly wait.
const THREADS: usize = 5;

/// The trials that depend on what a server does. The others do not depend on the storage, and run
/// on servers only in a long run.
const ON_SERVERS: &[&str] = &[
    "basics",
    "changed_levels",
    "changed_rows",
    "crashes",
    "fencing",
    "foreign_rows",
    "late_writes",
    "limits",
    "sabotage",
    "strays",
    "two_leaders",
    "unknown_outcomes",
    "unseen_events",
];

/// The trials of wrong storages, which need no server.
const FOUND: &[&str] = &["found_by_crashes", "found_by_fencing"];

fn main() -> std::process::ExitCode {
    let trials = [
        basics::TRIALS,
        changed_levels::TRIALS,
        changed_rows::TRIALS,
        crashes::TRIALS,
        crashes::FOUND,
        damaged_numbers::TRIALS,
        fencing::TRIALS,
        fencing::FOUND,
        foreign_rows::TRIALS,
        handlers::TRIALS,
        late_writes::TRIALS,
        limits::TRIALS,
        log::TRIALS,
        marked_events::TRIALS,
        misplaced_markers::TRIALS,
        overload::TRIALS,
        reads::TRIALS,
        rounds::TRIALS,
        sabotage::TRIALS,
        sequence_fields::TRIALS,
        slow_storage::TRIALS,
        stalled_partitions::TRIALS,
        strays::TRIALS,
        two_leaders::TRIALS,
        unknown_outcomes::TRIALS,
        unseen_events::TRIALS,
    ];
    run_trials::<OwnFixtures<CommandsFixture>>(
        env!("CARGO_TARGET_TMPDIR"),
        Some(THREADS),
        |drivers| {
            vec![
                Target::new("mem", drivers.mem),
                Target::new("redb", drivers.redb).without(FOUND),
                on_server(Target::new("cassandra", drivers.cassandra)),
                Target::new("cassandra_cluster", drivers.cassandra_cluster).only(&["sabotage"]),
                on_server(Target::new("dynamodb", drivers.dynamodb)),
            ]
        },
        trials.into_iter().flatten(),
    )
}

fn on_server(target: Target<OwnFixtures<CommandsFixture>>) -> Target<OwnFixtures<CommandsFixture>> {
    if is_long() { target.without(FOUND) } else { target.only(ON_SERVERS) }
}
