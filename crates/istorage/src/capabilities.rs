//! The abilities of a storage, and its limits.

use std::time::Duration;

/// The abilities of a storage beyond the common contract, and its limits. Callers consult the
/// capabilities, never the name of a driver.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Capabilities {
    /// The largest sizes of the parts of a row. Each limit holds for any size of the other parts.
    pub row: RowLimits,
    /// The limits of one [`write_if`](crate::AppStorage::write_if).
    pub conditional: BatchLimits,
    /// The limits of one [`write_atomic`](crate::AppStorage::write_atomic), `None` if the storage
    /// does not offer the call.
    pub atomic: Option<BatchLimits>,
    /// Within these limits, one [`put_ordered`](crate::AppStorage::put_ordered) writes the rows of
    /// a partition atomically. `None` if each row is written separately.
    pub ordered: Option<BatchLimits>,
    /// The resolution of expiry. A row with a TTL never expires before the moment asked for, and is
    /// gone at the latest twice this long after that moment. All nodes of a storage judge by one
    /// clock, not by their own calendars, except with
    /// [`expiry_is_watched`](Capabilities::expiry_is_watched).
    pub expiry_resolution: Duration,
    /// Whether each node judges the expiry of a conditional row by itself. The row is gone for a
    /// node when the node has seen the row unchanged for its TTL. A node that sees the row for the
    /// first time counts from then. For a read, the time counts up to when the read was sent, so a
    /// late answer does not show a renewed row as gone.
    pub expiry_is_watched: bool,
    /// The longest time from the sending of a write without an answer until the write lands, as
    /// another process sees it. This is an assumption about the storage, not a guarantee: a server
    /// that stands still for longer may let a write land later.
    pub late_write: Duration,
}

impl Capabilities {
    /// How long an expired conditional row may still be there after the moment asked for. Zero
    /// where each node watches such rows: there the resolution is that of ordered rows only.
    pub fn expiry_delay(&self) -> Duration {
        if self.expiry_is_watched { Duration::ZERO } else { 2 * self.expiry_resolution }
    }
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

/// The limits of one request.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct BatchLimits {
    /// The number of rows.
    pub rows: usize,
    /// The number of bytes: the keys of all rows, the values written, and the values expected.
    pub bytes: usize,
}
