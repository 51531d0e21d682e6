//! What must be true in every run, whatever happens.

mod elects;
mod epochs;
mod exclusive;
mod lets_go;
mod order;
mod told;
mod unique;

use std::{fmt, time::Duration};

use ielections::{Epoch, Slot};

/// What an invariant is told, in the order in which it happens, by a clock that no node has.
#[derive(Clone, Copy, Debug)]
pub(crate) enum Fact {
    /// A process was told that it leads.
    Leads { process: usize, slot: Slot, epoch: Epoch },
    /// The work of a leadership sent a write.
    WriteSent { slot: Slot, epoch: Epoch },
    /// That write was done.
    WriteLanded { slot: Slot, epoch: Epoch },
    /// A candidate replaced a lease that it had sent itself, so long after the last moment at which
    /// a write of its former life could land.
    ReplacedOwn { process: usize, late: Duration },
    /// A process asked for its lease to be removed, with so many writes without an answer, and its work stopped or not.
    Releases { process: usize, is_working: bool, unanswered: usize },
    /// A process was told that its lead is over.
    Lost { process: usize },
    /// A process that does not stand still went on so long after the end of its lead without having been told.
    NotTold { process: usize, late: Duration },
    /// A process ended.
    Died { process: usize },
    /// From now on nothing fails, and so many processes should lead.
    Expected { leaders: usize },
    /// By now they do, by the bounds that are printed.
    Due,
}

/// What is not as it must be.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct Violation {
    /// The name of the invariant.
    pub(crate) of: &'static str,
    pub(crate) what: String,
}

impl fmt::Display for Violation {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}: {}", self.of, self.what)
    }
}

pub(crate) trait Invariant {
    fn name(&self) -> &'static str;

    /// # Errors
    /// What is not as it must be.
    fn on(&mut self, at: Duration, fact: &Fact) -> Result<(), String>;
}

pub(crate) fn all() -> Vec<Box<dyn Invariant>> {
    vec![
        Box::<exclusive::Exclusive>::default(),
        Box::<epochs::Epochs>::default(),
        Box::<order::Order>::default(),
        Box::<lets_go::LetsGo>::default(),
        Box::<told::Told>::default(),
        Box::<elects::Elects>::default(),
    ]
}

/// What is true even if clocks stop.
pub(crate) fn by_any_clock() -> Vec<Box<dyn Invariant>> {
    vec![
        Box::<unique::Unique>::default(),
        Box::<order::Order>::default(),
        Box::<lets_go::LetsGo>::default(),
        Box::<elects::Elects>::default(),
    ]
}
