//! Deliberately wrong storages: they prove the trials, as a trial that no defect fails proves nothing.
//!
//! Each [`Defect`] is one that storages have had, or are likely to have. [`Wrong`] puts it into a right storage.

mod conditional;
mod driver;
mod reads;
mod storage;
mod writes;

pub use driver::Wrong;

/// What is wrong with a storage.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Defect {
    /// Nothing.
    None,

    /// A range has its end in it.
    EndIncluded,
    /// A stream ends after its first page.
    OnePageOnly,
    /// A stream reads the whole range before it gives its first row.
    EagerRead,
    /// A new stream ends those before it.
    OneStreamAtATime,
    /// Bytes are compared as signed numbers.
    SignedBytes,
    /// The two parts of a key are stored joined.
    KeysJoined,
    /// A plain read shows what was there when it was last asked for.
    StaleReads,
    /// The same for linearizable reads only.
    StaleLinearizableReads,
    /// An empty value is taken for an absent row.
    EmptyIsAbsent,
    /// An absent row is taken for an empty value.
    AbsentIsEmpty,
    /// Of a batch of keys only the first 100 are read.
    UnreadKeysDropped,
    /// The values of a batch come in the order of the sorted keys.
    SortedBatch,

    /// Every write succeeds, and none is done.
    WritesLost,
    /// An empty batch is refused.
    EmptyBatchRefused,
    /// A batch of more than 25 rows is refused.
    LargeBatchRefused,
    /// Of a batch only the first 25 rows are written.
    LargeBatchCut,
    /// The last row of a batch is not processed, and not sent again.
    UnprocessedDropped,
    /// Of several writes of one row in a batch the first counts.
    FirstOfBatchCounts,
    /// An ordered write counts by when it comes.
    OrderIgnored,
    /// Ordered rows are written one after another.
    OrderedOneByOne,
    /// An ordered row that is sent again keeps the life that it had.
    EqualOrderIgnored,

    /// Conditions are read, and then the rows are written.
    GetThenPut,
    /// Each operation of a conditional write goes by itself.
    PartialWriteIf,
    /// Of several conflicts only the first is told.
    FirstConflictOnly,
    /// Operations are numbered as their rows are sorted.
    SortedConflicts,
    /// A conflict does not tell what is there.
    ConflictsEmpty,
    /// A swap writes a row that is absent.
    SwapInserts,
    /// A swap to the same bytes is not applied.
    SwapToSameRefused,
    /// An insert of the bytes that are there is applied.
    InsertOfSameApplied,
    /// A delete has no condition.
    DeleteUnconditional,
    /// A row that was deleted cannot be inserted again.
    DeletedStaysTaken,
    /// Only the beginnings of values are compared.
    PrefixesCompared,
    /// A conditional write without an answer is sent again, and the second answer counts.
    BlindRetry,
    /// An answer that comes at the deadline is called unavailable, though the write is done.
    LateAnswerRefused,
    /// The outcome of a write is never known, unless the deadline is far away.
    OutcomeNeverKnown,
    /// A condition of an atomic write stops the other conditions only.
    AtomicPartial,
    /// A superseded row fails an atomic write.
    SupersededFails,
    /// Atomic writes are done, though they are not offered.
    AtomicNotOffered,

    /// Rows go before their time.
    EarlyExpiry,
    /// Rows stay beyond their time.
    LateExpiry,
    /// Only `get` still sees an expired row.
    GetSeesExpired,
    /// An insert takes an expired row for present.
    InsertSeesExpired,
    /// A swap without TTL leaves the one that the row had.
    SwapKeepsTtl,
    /// A swap with a TTL writes the row for ever.
    SwapForgetsTtl,
    /// What is left of a row's life is not told.
    TtlNotTold,
    /// The life of a row is told as it was at its beginning, for ever.
    TtlStandsStill,
    /// Lives are kept in 32 bits of milliseconds.
    TtlWraps,
    /// Each node judges expiry by its own calendar.
    ExpiryByNode,

    /// Less fits than is promised.
    LimitsOverstated,
    /// What is too large is cut, what is too much is split, and what is impossible is made possible.
    LimitsIgnored,
    /// Almost nothing fits.
    LimitsTooSmall,
    /// The capabilities change.
    CapabilitiesChange,
    /// The server's clock stands still.
    ServerTimeStandsStill,
    /// Deadlines do not count.
    DeadlineIgnored,
    /// A call that is dropped keeps its place, and there are only some.
    DroppedCallsLeak,

    /// A storage that was closed works on.
    CloseIgnored,
    /// Closing one storage closes those of the whole driver.
    CloseClosesAll,
    /// A write that is overtaken by the closing is answered with closed, though it is done.
    ClosedThoughApplied,
    /// A keyspace can be created once, and then no more.
    CreateOnce,
    /// Opening creates.
    OpenCreates,
    /// All keyspaces are one.
    KeyspacesShared,
    /// A keyspace that is dropped stays.
    DropIgnored,
    /// Long names of keyspaces are refused.
    LongNamesRefused,
    /// A driver that was closed works on.
    DriverCloseIgnored,
    /// A read panics.
    Panics,
    /// A read never answers, and its deadline does not count.
    Hangs,
}
