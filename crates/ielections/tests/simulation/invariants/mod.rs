//! The invariants, which must hold in every history.

mod bounded_comeback;
mod epochs;
mod exclusive;
mod liveness;
mod loss_notice;
mod order;
mod unique;

use std::{fmt, time::Duration};

use ielections::{Epoch, Seat};

/// A fact that the invariants receive. They receive the facts in order, each with the time of a
/// clock that no node has.
#[derive(Clone, Copy, Debug)]
pub(crate) enum Fact {
    /// A process was told that it leads.
    Leads { process: usize, seat: Seat, epoch: Epoch },
    /// The work of a leadership sent a write.
    WriteSent { seat: Seat, epoch: Epoch },
    /// A write of a leadership landed.
    WriteLanded { seat: Seat, epoch: Epoch },
    /// A candidate replaced a lease that it had sent itself. `late` is the time since the last
    /// moment when a write of its former process could land.
    ReplacedOwn { process: usize, late: Duration },
    /// A process asked the store to delete its lease. `is_working` tells whether its work still
    /// ran; `unanswered` is the number of its writes without an answer.
    Releases { process: usize, is_working: bool, unanswered: usize },
    /// A process was told that its leadership is over.
    Lost { process: usize },
    /// A process that does not stand still continued for this time after the end of its leadership,
    /// without being told.
    LossNotNoticed { process: usize, late: Duration },
    /// A process ended.
    Died { process: usize },
    /// From now on nothing fails, and this number of processes should lead.
    Expected { leaders: usize },
    /// The printed bounds have passed, so the expected number of processes must lead.
    Due,
}

/// An invariant that does not hold.
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
    /// Fails if the fact breaks the invariant.
    fn on(&mut self, at: Duration, fact: &Fact) -> Result<(), String>;
}

pub(crate) fn all() -> Vec<Box<dyn Invariant>> {
    vec![
        Box::<exclusive::Exclusive>::default(),
        Box::<epochs::Epochs>::default(),
        Box::<order::Order>::default(),
        Box::<bounded_comeback::BoundedComeback>::default(),
        Box::<loss_notice::LossNotice>::default(),
        Box::<liveness::Liveness>::default(),
    ]
}

/// Returns the invariants that hold even if clocks stop.
pub(crate) fn by_any_clock() -> Vec<Box<dyn Invariant>> {
    vec![
        Box::<unique::Unique>::default(),
        Box::<order::Order>::default(),
        Box::<bounded_comeback::BoundedComeback>::default(),
        Box::<liveness::Liveness>::default(),
    ]
}
