//! Wrong engines. The model puts the mistakes in one at a time, to prove that it finds them.

/// A mistake.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Defect {
    // Writing.
    /// The entries share the atomic call of a group although the call may land late, and only rows
    /// whose event is not in the log count as doubtful.
    EntriesInLateCall,
    /// The entries of a group are sent after its events without a look at the lease.
    EntriesWithoutLease,
    /// Entries are put for all events of a group of which only some are in the log.
    EntriesOfUncommitted,
    /// Entries are sent before the event is acknowledged.
    EntriesBeforeEvent,
    /// A command is answered before its entries are written.
    AnswerBeforeEntries,
    /// The numbers, and the stored offset after them, are flushed before the entries are written.
    OffsetBeforeEntries,
    /// The empty entry is put before the live one.
    EmptyBeforeLive,
    /// An empty entry has the order of the event that it undoes.
    EmptyOfOldOrder,
    /// The row that a command read counts as the state of the log, although it may be a stray.
    TrustsStrays,
    /// A damaged entry fails the command.
    EntryFailsCommand,
    /// That an entry could not be written is remembered in memory alone.
    BrokenInMemory,

    // Recovery.
    /// A recovery writes no entries.
    RecoveryWithoutEntries,
    /// A recovery leaves the entries of an index that is not complete to the build.
    RecoveryObeysProgress,
    /// A recovery that meets a marker lets complete indexes be.
    MarkerKeepsProgress,

    // Building.
    /// A build takes the records of the events of the log for the records.
    BuildFromLog,
    /// A build puts entries without orders.
    BuildWithoutOrders,
    /// A build reads no ids for markers.
    BuildSkipsMarkers,
    /// A build stores its progress before the entries are acknowledged.
    ProgressBeforeEntries,
    /// The progress is a plain row: the write that lands last stays.
    PlainProgress,
    /// A build reads the log only from the stored offset on.
    BuildFromStoredOffset,
    /// The owner writes entries only when the build is complete.
    EntriesAfterBuild,
    /// A partition maintains the indexes that its program declares, and not those that are stored.
    DeclaredOnly,
    /// An index that is built anew is turned off before the new one is complete.
    RebuildDropsFirst,
    /// A node reads the list of indexes when it starts, and not at each start of a partition.
    ListOfNodeStart,

    // Reading.
    /// A leader serves lists before it has fenced its log.
    ListsBeforeFence,
    /// A reader takes entries for records.
    ReaderDoesNotVerify,
    /// A reader verifies that the record is active, and not its key.
    ReaderVerifiesActivity,
    /// A reader leaves out a record whose `order` fields differ from its entry.
    ReaderLeavesOutMoved,
    /// A reader verifies the key, and takes the `order` fields from the entry.
    ReaderTrustsOrder,
    /// A page is answered while a record that it leaves to a later page may lack its entry.
    PageDoesNotWait,
    /// A page with fewer rows than were asked for counts as the last one.
    ShortPageIsLast,

    // Unique fields.
    /// A unique key has one row, which names its holder. A record that leaves the key empties it.
    OneRowPerKey,
    /// A unique key has one row, which names its holder until another record takes the key.
    OneRowNeverFreed,
    /// Keys are judged without the earlier commands of the group.
    UniqueWithoutGroup,
    /// In a command the keys that it takes are judged before those that it frees.
    UniqueRemovalsLast,
    /// A stored entry blocks whatever its record says.
    UniqueTrustsEntries,
    /// The reactivation of a record is not judged.
    UniqueNotAtReactivation,
    /// Two records of one command may take one key.
    UniqueWithoutCommand,
    /// A command is refused because of a command of its group that is not written.
    RefusesByUncommitted,
    /// A holder that cannot be read counts as none.
    UniqueSkipsDamaged,
    /// A build looks for duplicates while a group that it does not see is under way.
    BuildLooksAtOnce,
    /// A build begins before its leader has fenced the log.
    BuildBeforeFence,
    /// The duplicates that a build found are remembered in memory alone.
    DuplicatesInMemory,

    // Changes that break no promise.
    /// Empty entries stay for ever.
    EmptyWithoutTtl,
    /// No empty entries are written.
    NoEmpties,
    /// A build gives entries the order of its leader.
    BuildWithLeaderOrder,
    /// The entries share the atomic call of a group although the call may land late.
    SharedLateCall,
    /// Only rows whose event is not in the log count as doubtful.
    StraysByLog,
    /// Each event puts the live entries of its records, even if no key changes.
    AlwaysLive,
}

impl Defect {
    pub(crate) const ALL: [Defect; 43] = [
        Defect::EntriesInLateCall,
        Defect::EntriesWithoutLease,
        Defect::EntriesOfUncommitted,
        Defect::EntriesBeforeEvent,
        Defect::AnswerBeforeEntries,
        Defect::OffsetBeforeEntries,
        Defect::EmptyBeforeLive,
        Defect::EmptyOfOldOrder,
        Defect::TrustsStrays,
        Defect::EntryFailsCommand,
        Defect::BrokenInMemory,
        Defect::RecoveryWithoutEntries,
        Defect::RecoveryObeysProgress,
        Defect::MarkerKeepsProgress,
        Defect::BuildFromLog,
        Defect::BuildWithoutOrders,
        Defect::BuildSkipsMarkers,
        Defect::ProgressBeforeEntries,
        Defect::PlainProgress,
        Defect::BuildFromStoredOffset,
        Defect::EntriesAfterBuild,
        Defect::DeclaredOnly,
        Defect::RebuildDropsFirst,
        Defect::ListOfNodeStart,
        Defect::ListsBeforeFence,
        Defect::ReaderDoesNotVerify,
        Defect::ReaderVerifiesActivity,
        Defect::ReaderLeavesOutMoved,
        Defect::ReaderTrustsOrder,
        Defect::PageDoesNotWait,
        Defect::ShortPageIsLast,
        Defect::OneRowPerKey,
        Defect::OneRowNeverFreed,
        Defect::UniqueWithoutGroup,
        Defect::UniqueRemovalsLast,
        Defect::UniqueTrustsEntries,
        Defect::UniqueNotAtReactivation,
        Defect::UniqueWithoutCommand,
        Defect::RefusesByUncommitted,
        Defect::UniqueSkipsDamaged,
        Defect::BuildLooksAtOnce,
        Defect::BuildBeforeFence,
        Defect::DuplicatesInMemory,
    ];

    /// The seed with which the search for the mistake begins: shortly before the first one that
    /// finds it, if that is a late one.
    pub(crate) fn first_seed(self) -> u64 {
        match self {
            Defect::EntriesWithoutLease => 1_000,
            Defect::DuplicatesInMemory => 1_600,
            Defect::RecoveryObeysProgress => 2_000,
            Defect::PlainProgress => 2_900,
            _ => 0,
        }
    }

    /// Changes that break no promise, each with the reason.
    pub(crate) const HARMLESS: [(Defect, &str); 6] = [
        (Defect::EmptyWithoutTtl, "the row is never read as live; it only takes room"),
        (Defect::NoEmpties, "a live entry without its record is left out; it only takes time"),
        (
            Defect::BuildWithLeaderOrder,
            "a later event of the record either keeps the place, and needs the same entry, or \
             leaves it, and then the entry that stays live is left out",
        ),
        (
            Defect::SharedLateCall,
            "the next change of each record by the next leader puts its live entry again; but the \
             call has more rows",
        ),
        (Defect::StraysByLog, "it is exact; but it reads the log for each change"),
        (Defect::AlwaysLive, "the entry is live already, and only gets a later order"),
    ];
}
