//! Deliberately wrong storages, which prove the trials: a trial that no defect fails proves
//! nothing.
//!
//! Each [`Defect`] has occurred in a storage, or is likely to occur. [`Defect::put_into`] puts it
//! into a correct subject.

mod conditional;
mod driver;
mod storage;
mod writes;

/// A known mistake of a storage.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Defect {
    /// No mistake.
    None,

    /// A range includes its end.
    EndIncluded,
    /// A stream ends after its first page.
    OnePageOnly,
    /// A stream reads the whole range before it gives its first row.
    EagerRead,
    /// A new stream ends the streams before it.
    OneStreamAtATime,
    /// Bytes are compared as signed numbers.
    SignedBytes,
    /// The two parts of a key are stored joined.
    KeysJoined,
    /// A plain read returns the value that the row had at the read before.
    StaleReads,
    /// A linearizable read returns the value that the row had at the read before.
    StaleLinearizableReads,
    /// An empty value is taken for an absent row.
    EmptyIsAbsent,
    /// An absent row is taken for an empty value.
    AbsentIsEmpty,
    /// A partition is listed once for each of its first two rows.
    PartitionsRepeated,
    /// Partitions are listed without regard to the prefix.
    PrefixIgnored,
    /// Only the first 100 keys of a batch are read.
    UnreadKeysDropped,
    /// The values of a batch come in the order of the sorted keys.
    SortedBatch,
    /// The same, if only values are asked for.
    SortedValues,
    /// Values of one partition are read as a range, and each key gets the next row of the range.
    NextRowOfRange,

    /// Every write succeeds, and none is done.
    WritesLost,
    /// An empty batch is refused.
    EmptyBatchRefused,
    /// A batch of more than 25 rows is refused.
    LargeBatchRefused,
    /// Only the first 25 rows of a batch are written.
    LargeBatchCut,
    /// The last row of a batch is not processed, and not sent again.
    UnprocessedDropped,
    /// If a batch has several writes of one row, the first one counts.
    FirstOfBatchCounts,
    /// The last ordered write to arrive stays, even if its order is lower.
    OrderIgnored,
    /// The orders of the band *first* are taken for orders of the band *last*.
    BandIgnored,
    /// In the band *first*, the write with the higher number stays.
    LastOfFirstStays,
    /// An ordered write replaces a plain or a conditional row.
    OrderedReplacesAll,
    /// A batch never says that a row hides ordered writes.
    HidingNotReported,
    /// Ordered rows are written one after another.
    OrderedOneByOne,
    /// An ordered row that is sent again keeps its former TTL.
    EqualOrderIgnored,

    /// The conditions are read first, and then the rows are written.
    GetThenPut,
    /// Each operation of a conditional write is done separately.
    PartialWriteIf,
    /// Only the first of several conflicts is reported.
    FirstConflictOnly,
    /// The operations are numbered in the order of their rows' keys.
    SortedConflicts,
    /// A conflict does not report the value of the row.
    ConflictsEmpty,
    /// A swap writes a row that is absent.
    SwapInserts,
    /// A swap to the same bytes is not applied.
    SwapToSameRefused,
    /// An insert of the value that is already there is applied.
    InsertOfSameApplied,
    /// A delete has no condition.
    DeleteUnconditional,
    /// A row that was deleted cannot be inserted again.
    DeletedStaysTaken,
    /// Only the beginnings of values are compared.
    PrefixesCompared,
    /// A conditional write without an answer is sent again, and the second answer counts.
    BlindRetry,
    /// A write with an answer at the deadline is reported as unavailable, though the write is done.
    LateAnswerRefused,
    /// The outcome of a write is never known, unless the deadline is far away.
    OutcomeNeverKnown,
    /// A failed condition of an atomic write stops only the conditional writes of the batch. The
    /// ordered and plain writes are done.
    AtomicPartial,
    /// A superseded row fails an atomic write.
    SupersededFails,
    /// Atomic writes are done, though the capabilities do not offer them.
    AtomicNotOffered,

    /// Rows expire before their time.
    EarlyExpiry,
    /// Rows stay beyond their time.
    LateExpiry,
    /// Only `get` still sees an expired row.
    GetSeesExpired,
    /// An insert takes an expired row for present.
    InsertSeesExpired,
    /// A swap without a TTL keeps the TTL that the row had.
    SwapKeepsTtl,
    /// A swap with a TTL writes the row without a TTL.
    SwapForgetsTtl,
    /// The remaining TTL of a row is not reported.
    TtlNotReported,
    /// The remaining TTL of a row is reported as the whole TTL, at every read.
    TtlStandsStill,
    /// TTLs are kept as milliseconds in 32 bits, and wrap around.
    TtlWraps,
    /// Each node judges expiry by its own calendar.
    ExpiryByNode,

    /// The storage takes less than its capabilities promise.
    LimitsOverstated,
    /// Sizes beyond the limits are cut, batches beyond the limits are split, and invalid arguments
    /// are made valid.
    LimitsIgnored,
    /// The capabilities promise almost no room.
    LimitsTooSmall,
    /// The capabilities change.
    CapabilitiesChange,
    /// The server's clock stands still.
    ServerTimeStandsStill,
    /// Deadlines are ignored.
    DeadlineIgnored,
    /// A call that is dropped keeps its place, and the number of places is limited.
    DroppedCallsLeak,

    /// A storage that was closed still works.
    CloseIgnored,
    /// Closing one storage closes those of the whole driver.
    CloseClosesAll,
    /// A write that is overtaken by the close is answered with `Closed`, though the write is done.
    ClosedThoughApplied,
    /// A keyspace can be created only once.
    CreateOnce,
    /// Opening a keyspace also creates it.
    OpenCreates,
    /// All keyspaces are one keyspace.
    KeyspacesShared,
    /// A dropped keyspace still exists.
    DropIgnored,
    /// Long names of keyspaces are refused.
    LongNamesRefused,
    /// A driver that was closed still works.
    DriverCloseIgnored,
    /// A read panics.
    Panics,
    /// A read never answers, and ignores its deadline.
    Hangs,
}
