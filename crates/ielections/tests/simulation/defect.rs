//! Known mistakes, put back to see the invariants find them.

/// A mistake.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Defect {
    /// The lease is given away as soon as it is lost, before the work has stopped.
    ReleaseBeforeStop,
    /// A call is waited for until it is answered.
    NoCallTimeout,
    /// A lease counts from the moment at which its write was answered.
    DeadlineFromReply,
    /// The store reads, compares, and then puts.
    GetThenPut,
    /// Who has the lease leads, and raises the epoch afterwards.
    EpochAfterLead,
    /// A node takes a lease with its own address for its own, though the process that took it may still live.
    ComebackByAddress,
    /// Whether a row has expired is judged by the calendar of the node that asks.
    ClientClocks,
}

impl Defect {
    pub(crate) const ALL: [Defect; 7] = [
        Defect::ReleaseBeforeStop,
        Defect::NoCallTimeout,
        Defect::DeadlineFromReply,
        Defect::GetThenPut,
        Defect::EpochAfterLead,
        Defect::ComebackByAddress,
        Defect::ClientClocks,
    ];

    /// The invariants that it must be seen to break; it may break others too.
    pub(crate) fn breaks(self) -> &'static [&'static str] {
        match self {
            Defect::ReleaseBeforeStop => &["order"],
            Defect::NoCallTimeout => &["told", "elects"],
            Defect::GetThenPut => &["exclusive", "epochs", "unique"],
            Defect::EpochAfterLead => &["exclusive", "epochs", "unique"],
            Defect::DeadlineFromReply | Defect::ComebackByAddress | Defect::ClientClocks => {
                &["exclusive"]
            }
        }
    }
}
