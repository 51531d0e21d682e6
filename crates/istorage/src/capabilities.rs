//! What a driver can do, and its limits.

use std::time::Duration;

/// What a storage can do beyond the common contract, and its limits. Callers consult this, never a driver's name.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Capabilities {
    /// The largest sizes of a row's parts, each promised whatever the other parts are.
    pub row: RowLimits,
    /// How much one [`write_if`](crate::AppStorage::write_if) may hold.
    pub conditional: BatchLimits,
    /// How much one [`write_atomic`](crate::AppStorage::write_atomic) may hold; `None` if it is not offered.
    pub atomic: Option<BatchLimits>,
    /// How much of one partition a [`put_ordered`](crate::AppStorage::put_ordered) writes atomically; `None` if each
    /// row goes by itself.
    pub ordered: Option<BatchLimits>,
    /// How rows with a TTL expire.
    pub expiry: Expiry,
    /// How long after it was sent a write without an answer may still land. An assumption about the storage, not a
    /// guarantee: a server that stands still for longer may let a write land later.
    pub late_write: Duration,
}

/// Sizes in bytes.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct RowLimits {
    /// The longest partition key.
    pub pkey: usize,
    /// The longest clustering columns.
    pub ccols: usize,
    /// The largest value.
    pub value: usize,
}

/// How much fits into one request.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct BatchLimits {
    /// Rows.
    pub rows: usize,
    /// Bytes: the keys of all rows, the values written, and the values expected.
    pub bytes: usize,
}

/// How rows with a TTL expire.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Expiry {
    /// Whose clock decides that a row has expired.
    pub judge: ExpiryJudge,
    /// A row is gone at the latest twice this long after the moment asked for, by the judge's clock. It is never gone
    /// before that moment.
    pub resolution: Duration,
}

/// Whose clock decides that a row has expired.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum ExpiryJudge {
    /// The storage's own; nodes need not agree on the time.
    Storage,
    /// The calendar of the node that calls; nodes whose clocks differ disagree by as much.
    Client,
}
