//! Known mistakes in the algorithm.
//!
//! Tests put the mistakes back one at a time, to prove that the simulation finds each one. The
//! product has none of them.

/// A mistake that a test can put back.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum SequencerDefect {
    /// The unflushed numbers are read after the storage has answered.
    UnflushedReadTooLate,
    /// Numbers are forgotten while they are being stored.
    ForgottenDuringFlush,
    /// The draws of the open transaction are forgotten when a workspace is read again.
    OpenDrawsForgotten,
    /// A command that leaves gives no numbers back.
    NumbersNotGivenBack,
    /// The offset of the next event is raised before the numbers of the last event wait to be
    /// stored.
    OffsetBeforeNumbers,
    /// A failed write is made again with the current offset instead of the offset of its numbers.
    RetryWithLaterOffset,
    /// The cache is kept when the log is read again.
    CacheNotCleared,
    /// A workspace is found in the cache under any kind.
    KindNotChecked,
}

/// Returns whether a mistake is put back.
#[cfg(not(test))]
pub(crate) const fn is_put_back(_: SequencerDefect) -> bool {
    false
}

#[cfg(test)]
pub(crate) fn is_put_back(defect: SequencerDefect) -> bool {
    PUT_BACK.with(std::cell::Cell::get) == Some(defect)
}

#[cfg(test)]
thread_local! {
    static PUT_BACK: std::cell::Cell<Option<SequencerDefect>> = const { std::cell::Cell::new(None) };
}

/// Puts a mistake back, in this thread.
#[cfg(test)]
pub(crate) fn put_back(defect: Option<SequencerDefect>) {
    PUT_BACK.with(|cell| cell.set(defect));
}
