//! The trials, by subject.

mod acquire;
mod cost;
mod expiry;
mod faults;
mod loss;
mod race;
mod release;
mod seats;
mod stale;
mod unknown;
mod watch;

use crate::{elections::ElectionsContext, trial::Trial};

/// All trials, those of a module together.
pub fn trials() -> impl Iterator<Item = &'static Trial<ElectionsContext>> {
    // A static, so that each crate that lists the trials does not compile them again.
    static MODULES: &[&[Trial<ElectionsContext>]] = &[
        acquire::TRIALS,
        release::TRIALS,
        loss::TRIALS,
        faults::TRIALS,
        unknown::TRIALS,
        stale::TRIALS,
        expiry::TRIALS,
        race::TRIALS,
        seats::TRIALS,
        watch::TRIALS,
        cost::TRIALS,
    ];
    MODULES.iter().copied().flatten()
}
