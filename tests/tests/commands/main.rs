//! Commands on every driver, from the command to its stored rows: each trial is a test with the
//! name `driver::trial`.

#![allow(clippy::unwrap_used)]

mod basics;
mod crash;
mod doubt;
mod handlers;
mod in_the_way;
mod incarnations;
mod late;
mod limits;
mod log;
mod marked;
mod overload;
mod reads;
mod rounds;
mod sabotage;
mod scene;
mod slow;
mod stage;
mod stalled;
mod unseen;

use vvm_tests::trials::run_trials;

fn main() -> std::process::ExitCode {
    let trials = [
        basics::TRIALS,
        crash::TRIALS,
        doubt::TRIALS,
        handlers::TRIALS,
        in_the_way::TRIALS,
        incarnations::TRIALS,
        late::TRIALS,
        limits::TRIALS,
        log::TRIALS,
        marked::TRIALS,
        overload::TRIALS,
        reads::TRIALS,
        rounds::TRIALS,
        sabotage::TRIALS,
        slow::TRIALS,
        stalled::TRIALS,
        unseen::TRIALS,
    ];
    run_trials(
        env!("CARGO_TARGET_TMPDIR"),
        |drivers| {
            vec![
                ("mem", drivers.mem),
                ("redb", drivers.redb),
                ("cassandra", drivers.cassandra),
                ("dynamodb", drivers.dynamodb),
            ]
        },
        &trials,
    )
}
