//! What `vvm storage verify` and `vvm elections verify` share: trials on a storage that is left as
//! it was, and the report.

mod advice;
pub(crate) mod latency;
mod report;
pub(crate) mod scratch;
mod subject;
mod trials;

pub(crate) use self::{
    advice::advice,
    report::{TakeoverTimes, Verification},
    scratch::{StopSignal, unless_stopped},
    subject::ConnectedStorage,
    trials::{filtered, run_trials, times},
};

/// The help text of both `verify` commands: the keyspaces that they make and drop, and the exit
/// codes.
pub(crate) const VERIFY_EXIT_HELP: &str = "\
    The command creates scratch keyspaces, drops them at the end, even after Ctrl-C, and changes nothing else. If the redb \
    file does not exist, the command creates it and leaves it. Without --storage and --config the command verifies redb in \
    a new folder inside the current one, and removes that folder at the end.\n\n\
    Exit codes: 0 no trial failed, and some passed; 1 a trial failed, none passed, or the run \
    could not be finished; 2 wrong usage, or no trial's name contains --filter; 3 wrong configuration, \
    or the storage holds data of another program or version; 4 the storage could not be reached or opened.";
