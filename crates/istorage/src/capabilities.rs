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
    /// A row with a TTL is gone at the latest twice this long after the moment asked for, and never before it. All nodes of a storage
    /// go by one clock, whatever their own calendars say. [`expiry_is_watched`](Capabilities::expiry_is_watched) is an exception.
    pub expiry_resolution: Duration,
    /// Each node judges the expiry of a conditional row by itself: the row is gone for a node when the node has seen the row
    /// unchanged for its TTL. A node that sees the row for the first time counts from then.
    pub expiry_is_watched: bool,
    /// How long after it was sent a write without an answer may still land, in the eyes of another
    /// process. An assumption about the storage, not a guarantee: a server that stands still for
    /// longer may let a write land later.
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
