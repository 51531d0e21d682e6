//! Known mistakes. The simulation puts them back one at a time, to see that its invariants find
//! them.

use ielections::engine::Op;

/// A mistake.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Defect {
    // Mistakes of the store, the runtime and the lock file.
    /// The store reads, compares, and then puts.
    GetThenPut,
    /// Each node judges by its own calendar whether a row has expired.
    ClientClocks,
    /// A node that watches a lease goes on counting when the lease was renewed.
    CountsThroughRenewals,
    /// A node that has seen a lease expire replaces it although it was renewed since.
    ReplacesAnyVersion,
    /// The runtime waits for a call until it is answered.
    NoCallTimeout,
    /// A node replaces a lease with its own address, although the process of the lease may live.
    ComebackByAddress,

    // Mistakes of the engine: times.
    /// A renewed lease counts from the moment at which its renewal was answered.
    RenewalCountsFromAnswer,
    /// A new lease counts from the moment at which its write was answered.
    TakeCountsFromAnswer,
    /// A new lease lives in the store without the time for late writes.
    TakesTooShort,
    /// A renewed lease lives in the store without the time for late writes.
    RenewsTooShort,
    /// A leader wakes half a second too late.
    WakesTooLate,
    /// A leader renews its lease when the lead is over.
    RenewsAtTheEnd,
    /// A candidate looks every ten seconds.
    LooksTooRarely,
    /// Work begins at once after a former life, whose writes may still land.
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
    /// A node with the lease leads, and raises the epoch afterwards.
    EpochAfterLead,
    /// The epoch is not raised.
    NoRaise,
    /// The epoch row is read for the first attempt only.
    StaleEpoch,
    /// A leadership has the epoch of the one before.
    SameEpoch,
    /// All attempts of a node have one incarnation.
    OneIncarnation,

    // Mistakes of the engine: writes without their condition.
    /// A lease is written over whatever stands there.
    TakesByForce,
    /// An epoch is written over whatever stands there.
    RaisesByForce,
    /// A lease is deleted whatever it is.
    ReleasesByForce,
    /// A renewal is written over whatever stands there.
    RenewsByForce,

    // Mistakes of the engine: the end.
    /// The work is not told that the lead is lost.
    LostIsNotTold,
    /// The lease is given away when the lead is lost, before the work has stopped.
    ReleaseBeforeStop,

    /// A node that comes back and cannot lead replaces its own lease for ever.
    KeepsSlotForEver,

    // Changes of the engine that break no promise.
    /// A renewal that is answered after the end of the lead prolongs the lead.
    ExtendsAfterEnd,
    /// The lease of an attempt that failed is not given back.
    NeverGivesBack,
    /// An attempt ends when its lease is not answered.
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
        Defect::KeepsSlotForEver,
    ];

    /// Changes that break no promise, each with the reason.
    pub(crate) const HARMLESS: [(Defect, &str); 3] = [
        (
            Defect::ExtendsAfterEnd,
            "the lead counts from the sending of the renewal, so the store holds the lease for \
             longer. The engine is strict because others may have seen the end: `Term` keeps it",
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

    /// The invariants that the simulation must see broken. Others may break too.
    pub(crate) fn breaks(self) -> &'static [&'static str] {
        match self {
            Defect::ReleaseBeforeStop => &["order"],
            Defect::KeepsSlotForEver => &["lets_go"],
            Defect::NoCallTimeout => &["told", "elects"],
            Defect::GetThenPut | Defect::EpochAfterLead => &["exclusive", "epochs", "unique"],
            Defect::LeadsAfterLostRaise => &["epochs"],
            Defect::RaisesUnanswered
            | Defect::NoRaise
            | Defect::SameEpoch
            | Defect::RaisesByForce => &["epochs", "unique"],
            Defect::OneIncarnation => &["unique"],
            Defect::WakesTooLate | Defect::LostIsNotTold => &["told"],
            Defect::RenewsAtTheEnd
            | Defect::LooksTooRarely
            | Defect::RenewsWhatIsGone
            | Defect::GivesUpAtOnce
            | Defect::StaleEpoch => &["elects"],
            _ => &["exclusive"],
        }
    }

    /// Whether the mistake is made where nodes watch leases. Most mistakes are made everywhere, and
    /// `otherwise` decides.
    pub(crate) fn is_of_watching(self, otherwise: bool) -> bool {
        match self {
            Defect::ClientClocks => false,
            Defect::CountsThroughRenewals | Defect::ReplacesAnyVersion => true,
            _ => otherwise,
        }
    }

    /// Whether a write is done whatever stands there.
    pub(crate) fn forces(self, op: &Op) -> bool {
        match self {
            Defect::TakesByForce => matches!(op, Op::Take { .. }),
            Defect::RaisesByForce => matches!(op, Op::RaiseEpoch { .. }),
            Defect::ReleasesByForce => matches!(op, Op::Release { .. }),
            Defect::RenewsByForce => matches!(op, Op::Renew { .. }),
            _ => false,
        }
    }
}
