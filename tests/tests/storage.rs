//! Every driver against the contract: each trial of `tck::storage` is a test with the name
//! `driver::operation::case`.

use std::{process::ExitCode, sync::Arc};

use istorage::{Guarded, Metered};
use tck::storage::{Fault, Faulty, ScratchKeyspace, WrappedSubject, trials};
use vvm_tests::{
    drivers::{DriverSubject, Drivers},
    subjects::Mem,
    trials::{Target, run_trials},
};

/// The number of trials that run at once. Most of them only wait: for a server, for time to pass,
/// or for a place. Each driver has a limited number of places.
const THREADS: usize = 24;

/// The modules of trials where several nodes of a cluster may see different rows.
const OF_A_CLUSTER: &[&str] =
    &["conditional", "write_if", "ordered", "linearizable", "races", "dropped", "lifecycle"];

fn targets(drivers: Drivers) -> Vec<Target<ScratchKeyspace>> {
    let guarded =
        WrappedSubject::new(Mem::default(), |inner, clock| Arc::new(Guarded::new(inner, clock)));
    let metered = WrappedSubject::new(Mem::default(), |inner, clock| {
        Arc::new(Metered::new(inner, "mem", clock))
    });
    let faulty = WrappedSubject::new(Mem::default(), |inner, clock| {
        Arc::new(Faulty::scripted(inner, clock, |_| Fault::None))
    });
    vec![
        Target::new("mem", DriverSubject::available(Mem::default())),
        Target::new("mem+guarded", DriverSubject::available(guarded)),
        Target::new("mem+metered", DriverSubject::available(metered)),
        Target::new("mem+faulty", DriverSubject::available(faulty)),
        Target::new("redb", drivers.redb),
        Target::new("cassandra", drivers.cassandra),
        Target::new("cassandra_cluster", drivers.cassandra_cluster).only(OF_A_CLUSTER),
        Target::new("dynamodb", drivers.dynamodb),
    ]
}

fn main() -> ExitCode {
    run_trials(env!("CARGO_TARGET_TMPDIR"), Some(THREADS), targets, trials())
}
