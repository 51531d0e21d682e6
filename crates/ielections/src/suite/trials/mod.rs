//! The trials, by subject.

mod acquire;
mod cost;
mod expiry;
mod faults;
mod loss;
mod race;
mod release;
mod slots;
mod stale;
mod unknown;
mod watch;

use super::Trial;

/// Returns all trials.
pub fn trials() -> impl Iterator<Item = &'static Trial> {
    let modules = [
        acquire::TRIALS,
        release::TRIALS,
        loss::TRIALS,
        faults::TRIALS,
        unknown::TRIALS,
        stale::TRIALS,
        expiry::TRIALS,
        race::TRIALS,
        slots::TRIALS,
        watch::TRIALS,
        cost::TRIALS,
    ];
    modules.into_iter().flatten()
}

/// Makes the list of a module's trials.
macro_rules! trial_list {
    ($module:ident: $($case:ident),+ $(,)?) => {
        pub(super) const TRIALS: &[$crate::suite::Trial] = &[$($crate::suite::Trial {
            name: concat!(stringify!($module), "::", stringify!($case)),
            run: |context| Box::pin($case(context)),
        }),+];
    };
}

use trial_list;
