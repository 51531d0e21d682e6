//! Known mistakes in the algorithm.
//!
//! Tests put the mistakes back one at a time, to prove that the simulation finds each one. The
//! product has none of them.

/// A mistake that a test can put back.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Defect {
    /// The unflushed numbers are read after the storage has answered.
    AskedTooLate,
    /// Numbers are forgotten while they are being stored.
    ForgottenWhileStored,
    /// The draws of the open transaction are forgotten when a workspace is read again.
    ForgottenDraws,
    /// A command that leaves gives no numbers back.
    NothingGivenBack,
    /// The offset of the next event is raised before the numbers of the last event wait to be
    /// stored.
    OffsetFirst,
    /// A failed write is made again with the current offset instead of the offset of its numbers.
    LaterOffset,
    /// The cache is kept when the log is read again.
    CacheKept,
    /// A workspace is found in the cache under any kind.
    AnyKind,
}

/// Returns whether a mistake is put back.
#[cfg(not(test))]
pub(crate) const fn has(_: Defect) -> bool {
    false
}

#[cfg(test)]
pub(crate) fn has(defect: Defect) -> bool {
    PUT_BACK.with(std::cell::Cell::get) == Some(defect)
}

#[cfg(test)]
thread_local! {
    static PUT_BACK: std::cell::Cell<Option<Defect>> = const { std::cell::Cell::new(None) };
}

/// Puts a mistake back, in this thread.
#[cfg(test)]
pub(crate) fn put_back(defect: Option<Defect>) {
    PUT_BACK.with(|cell| cell.set(defect));
}
