//! The trials. Each operation has a module, and so has each topic that several operations share.

mod atomic;
mod capabilities;
mod conditional;
mod deadlines;
mod dropped;
mod expiring_rows;
mod expiry;
mod get;
mod large;
mod lifecycle;
mod limits;
mod linearizable;
mod ordered;
mod partitions;
mod put_batch;
mod races;
mod read;
mod rows;
mod ttl;
mod unknown;
mod write_if;

use crate::{storage::StorageContext, trial::Trial};

/// All trials, those of a module together. The long trials come first, so that no long trial begins
/// last.
pub fn trials() -> impl Iterator<Item = &'static Trial<StorageContext>> {
    // A static, so that each crate that lists the trials does not compile them again.
    static MODULES: &[&[Trial<StorageContext>]] = &[
        large::TRIALS,
        ttl::TRIALS,
        expiry::TRIALS,
        get::TRIALS,
        read::TRIALS,
        partitions::TRIALS,
        put_batch::TRIALS,
        ordered::TRIALS,
        conditional::TRIALS,
        write_if::TRIALS,
        atomic::TRIALS,
        limits::TRIALS,
        linearizable::TRIALS,
        unknown::TRIALS,
        races::TRIALS,
        dropped::TRIALS,
        deadlines::TRIALS,
        lifecycle::TRIALS,
        capabilities::TRIALS,
    ];
    MODULES.iter().copied().flatten()
}
