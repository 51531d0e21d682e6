//! Known mistakes. The simulation puts the mistakes back one at a time, to prove that its
//! invariants find them.

use ielections::engine::StoreCall;

/// A mistake.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Defect {
    // Mistakes of the store, the runtime and the lock file.
    /// The store reads and compares first, and writes afterwards.
    GetThenPut,
    /// Each node judges by its own calendar whether a row has expired.
    ClientClocks,
    /// A node that watches a lease continues to count after the lease was renewed.
    CountsThroughRenewals,
    /// A node that has seen a lease expire replaces it although it was renewed since then.
    ReplacesAnyVersion,
    /// The runtime waits for a call until the call is answered, without a deadline.
    NoCallTimeout,
    /// A node replaces a lease with its own address, although the process of the lease may be
    /// alive.
    ComebackByAddress,

    // Mistakes of the engine: times.
    /// A renewed lease counts from the answer to its renewal.
    RenewalCountsFromAnswer,
    /// A new lease counts from the answer to its write.
    TakeCountsFromAnswer,
    /// The TTL of a new lease in the store lacks the time for late writes.
    TakesTooShort,
    /// The TTL of a renewed lease in the store lacks the time for late writes.
    RenewsTooShort,
    /// A leader wakes half a second too late.
    WakesTooLate,
    /// A leader renews its lease when the leadership is over.
    RenewsAtTheEnd,
    /// A candidate looks every ten seconds.
    LooksTooRarely,
    /// Work begins at once after a former process, although writes of that process may still land.
    WorksAtOnceAfterComeback,

    // Mistakes of the engine: answers.
    /// A lease that the store refused counts as taken.
    TakesWhatIsHeld,
    /// An epoch that the store refused counts as raised.
    LeadsAfterLostRaise,
    /// A lease that is gone counts as renewed.
    RenewsWhatIsGone,
    /// A lease without an answer counts as taken.
    TakesUnanswered,
    /// An epoch without an answer counts as raised.
    RaisesUnanswered,
    /// A renewal without an answer counts as done.
    RenewsUnanswered,
    /// A candidate gives up when the store does not answer once.
    GivesUpAtOnce,

    // Mistakes of the engine: the epoch.
    /// A node with the lease leads at once, and raises the epoch afterwards.
    EpochAfterLead,
    /// The epoch is not raised.
    NoRaise,
    /// The epoch row is read for the first attempt only.
    StaleEpoch,
    /// A leadership has the same epoch as the one before.
    SameEpoch,
    /// All attempts of a node have one incarnation.
    OneIncarnation,

    // Mistakes of the engine: writes without their condition.
    /// A lease is written without comparing the row.
    TakesByForce,
    /// An epoch is written without comparing the row.
    RaisesByForce,
    /// A lease is deleted without comparing the row.
    ReleasesByForce,
    /// A renewal is written without comparing the row.
    RenewsByForce,

    // Mistakes of the engine: the end.
    /// The work is not told that the leadership is lost.
    LostIsNotTold,
    /// The lease is released when the leadership is lost, before the work has stopped.
    ReleaseBeforeStop,

    /// A node that comes back and cannot lead replaces its own lease forever.
    KeepsSeatForEver,

    // Changes of the engine that break no promise.
    /// A renewal that is answered after the end of the leadership prolongs the leadership.
    ExtendsAfterEnd,
    /// The lease of an attempt that failed is not deleted.
    NeverGivesBack,
    /// An attempt ends when the write of its lease gets no answer.
    UnansweredTakeIsRefused,
}

impl Defect {
    pub(crate) const ALL: [Defect; 33] = [
        Defect::GetThenPut,
        Defect::ClientClocks,
        Defect::CountsThroughRenewals,
        Defect::ReplacesAnyVersion,
        Defect::NoCallTimeout,
        Defect::ComebackByAddress,
        Defect::RenewalCountsFromAnswer,
        Defect::TakeCountsFromAnswer,
        Defect::TakesTooShort,
        Defect::RenewsTooShort,
        Defect::WakesTooLate,
        Defect::RenewsAtTheEnd,
        Defect::LooksTooRarely,
        Defect::WorksAtOnceAfterComeback,
        Defect::TakesWhatIsHeld,
        Defect::LeadsAfterLostRaise,
        Defect::RenewsWhatIsGone,
        Defect::TakesUnanswered,
        Defect::RaisesUnanswered,
        Defect::RenewsUnanswered,
        Defect::GivesUpAtOnce,
        Defect::EpochAfterLead,
        Defect::NoRaise,
        Defect::StaleEpoch,
        Defect::SameEpoch,
        Defect::OneIncarnation,
        Defect::TakesByForce,
        Defect::RaisesByForce,
        Defect::ReleasesByForce,
        Defect::RenewsByForce,
        Defect::LostIsNotTold,
        Defect::ReleaseBeforeStop,
        Defect::KeepsSeatForEver,
    ];

    /// Changes that break no promise, each with the reason.
    pub(crate) const HARMLESS: [(Defect, &str); 3] = [
        (
            Defect::ExtendsAfterEnd,
            "the leadership counts from the sending of the renewal, so the store holds the lease \
             for longer. The engine is strict because others may have seen the end: `Term` keeps it",
        ),
        (
            Defect::NeverGivesBack,
            "the lease expires. Only the next leader waits longer than it must",
        ),
        (
            Defect::UnansweredTakeIsRefused,
            "the lease expires, if it was written. Only this node leads later than it could",
        ),
    ];

    /// Returns the invariants that the simulation must see broken. Other invariants may break too.
    pub(crate) fn breaks(self) -> &'static [&'static str] {
        match self {
            Defect::ReleaseBeforeStop => &["order"],
            Defect::KeepsSeatForEver => &["bounded_comeback"],
            Defect::NoCallTimeout => &["loss_notice", "liveness"],
            Defect::GetThenPut | Defect::EpochAfterLead => &["exclusive", "epochs", "unique"],
            Defect::LeadsAfterLostRaise => &["epochs"],
            Defect::RaisesUnanswered
            | Defect::NoRaise
            | Defect::SameEpoch
            | Defect::RaisesByForce => &["epochs", "unique"],
            Defect::OneIncarnation => &["unique"],
            Defect::WakesTooLate | Defect::LostIsNotTold => &["loss_notice"],
            Defect::RenewsAtTheEnd
            | Defect::LooksTooRarely
            | Defect::RenewsWhatIsGone
            | Defect::GivesUpAtOnce
            | Defect::StaleEpoch => &["liveness"],
            _ => &["exclusive"],
        }
    }

    /// Returns whether the nodes of a history with this mistake watch leases. Most mistakes are
    /// made in both kinds of histories, and `otherwise` decides.
    pub(crate) fn is_of_watching(self, otherwise: bool) -> bool {
        match self {
            Defect::ClientClocks => false,
            Defect::CountsThroughRenewals | Defect::ReplacesAnyVersion => true,
            _ => otherwise,
        }
    }

    /// Returns whether a write is done without comparing the row.
    pub(crate) fn forces(self, op: &StoreCall) -> bool {
        match self {
            Defect::TakesByForce => matches!(op, StoreCall::Take { .. }),
            Defect::RaisesByForce => matches!(op, StoreCall::RaiseEpoch { .. }),
            Defect::ReleasesByForce => matches!(op, StoreCall::Release { .. }),
            Defect::RenewsByForce => matches!(op, StoreCall::Renew { .. }),
            _ => false,
        }
    }
}
