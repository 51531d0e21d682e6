//! Known mistakes. The tests put them back one at a time, to see that they are found; the product has none of them.

/// A mistake.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Defect {
    /// What is not stored yet is asked for when the storage has answered.
    AskedTooLate,
    /// Numbers that are being stored are not known while they are.
    ForgottenWhileStored,
    /// What the open transaction drew is not known when a workspace is read again.
    ForgottenDraws,
    /// A command that leaves gives nothing back.
    NothingGivenBack,
    /// The offset of the next event is raised before the numbers of the last one wait.
    OffsetFirst,
    /// A write that failed is made again with the offset of now.
    LaterOffset,
    /// The cache is kept when the log is read anew.
    CacheKept,
    /// A workspace is found whatever its kind.
    AnyKind,
}

/// Whether a mistake is put back.
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
