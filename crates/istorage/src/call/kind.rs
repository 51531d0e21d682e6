//! The kinds of calls, which have names in metrics.

/// The kind of a call of [`AppStorage`](crate::AppStorage). Wrappers tell calls apart by their
/// kind.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum CallKind {
    /// A plain [`get`](crate::AppStorage::get).
    Get,
    /// A linearizable [`get`](crate::AppStorage::get).
    GetLinearizable,
    /// [`get_batch`](crate::AppStorage::get_batch).
    GetBatch,
    /// [`get_values`](crate::AppStorage::get_values).
    GetValues,
    /// [`read`](crate::AppStorage::read) of either consistency, and
    /// [`ttl_read`](crate::AppStorage::ttl_read).
    Read,
    /// [`put_batch`](crate::AppStorage::put_batch).
    PutBatch,
    /// [`put_ordered`](crate::AppStorage::put_ordered).
    PutOrdered,
    /// [`write_if`](crate::AppStorage::write_if).
    WriteIf,
    /// [`write_atomic`](crate::AppStorage::write_atomic).
    WriteAtomic,
    /// [`server_time`](crate::AppStorage::server_time).
    ServerTime,
}

impl CallKind {
    /// All kinds of calls.
    pub const ALL: [CallKind; 10] = [
        CallKind::Get,
        CallKind::GetLinearizable,
        CallKind::GetBatch,
        CallKind::GetValues,
        CallKind::Read,
        CallKind::PutBatch,
        CallKind::PutOrdered,
        CallKind::WriteIf,
        CallKind::WriteAtomic,
        CallKind::ServerTime,
    ];

    /// The name of the kind, which is the label `op` of the metrics.
    #[must_use]
    pub const fn name(self) -> &'static str {
        match self {
            CallKind::Get => "get",
            CallKind::GetLinearizable => "get_linearizable",
            CallKind::GetBatch => "get_batch",
            CallKind::GetValues => "get_values",
            CallKind::Read => "read",
            CallKind::PutBatch => "put_batch",
            CallKind::PutOrdered => "put_ordered",
            CallKind::WriteIf => "write_if",
            CallKind::WriteAtomic => "write_atomic",
            CallKind::ServerTime => "server_time",
        }
    }
}
