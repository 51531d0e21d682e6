//! The decisions of indexes and unique fields.
//!
//! The module does no I/O and knows neither bytes nor storages. A *place* is the key that a record
//! has in an index: the bytes of its `equal` fields and those of its `order` fields. A record that
//! is inactive, or that lacks an indexed field, has no place. A unique field is an index without
//! `order` fields, whose entries are judged before an event and not only read.
//!
//! An entry has the key (place, id), is live or empty, and has the order of the event that it
//! follows from. It is a *candidate*, and never a proof: only the record counts. So an entry that
//! is live without need does no harm, and an entry that is missing, or empty without need, does.
//! Everything below follows from this.

/// The place of a record in an index.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub(crate) struct Place<E, O> {
    /// The fields that a list names.
    pub(crate) equal: E,
    /// The fields that sort a list.
    pub(crate) order: O,
}

/// What is known of the place of a record before a change.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Before<P> {
    /// The record had this place, and an event of the log wrote the entry of it. A new record had
    /// none.
    Known(Option<P>),
    /// The row that was read may follow from no event of the log, or the event before cannot be
    /// read. So its place may have no entry.
    Doubtful(Option<P>),
}

/// The entries that follow from a change of one record.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct EntryChange<P> {
    /// The entry that must be live before the command is answered.
    pub(crate) live: Option<P>,
    /// The entry that is not needed any more. It is put only after the live one is acknowledged,
    /// so that a reader meets at least one of the two.
    pub(crate) empty: Option<P>,
}

/// Returns the entries that follow from a change. Both have the order of the event of the change.
pub(crate) fn entries<P: Copy + PartialEq>(before: Before<P>, after: Option<P>) -> EntryChange<P> {
    let (Before::Known(had) | Before::Doubtful(had)) = before;
    let has_entry = before == Before::Known(after);
    EntryChange { live: after.filter(|_| !has_entry), empty: had.filter(|had| after != Some(*had)) }
}

/// Returns the entries of the events of a group as they are sent: of each entry the write of the
/// last event, the live ones first. `entry` returns the key and the order of a write.
pub(crate) fn to_send<W, K: PartialEq, O: PartialOrd>(
    writes: Vec<W>,
    entry: impl Fn(&W) -> (K, O),
    is_live: impl Fn(&W) -> bool,
) -> Vec<W> {
    let mut last: Vec<W> = Vec::with_capacity(writes.len());
    for write in writes {
        let (key, order) = entry(&write);
        match last.iter().position(|other| entry(other).0 == key) {
            Some(at) if entry(&last[at]).1 <= order => last[at] = write,
            Some(_) => {}
            None => last.push(write),
        }
    }
    last.sort_by_key(|write| !is_live(write));
    last
}

/// Returns whether the row of a record that is about to be changed may follow from no event of the
/// log: another leader of trust level 2 wrote it, and writes may land late.
///
/// Invariant: the change of such a record puts its live entry, and its unique keys are judged, even
/// if no key changes. A simpler version compares the row with the new record. At level 2 leader A
/// stalls, and its atomic write of event 7, which moves a record, lands when B has written another
/// event 7; so the record has a place without an entry. B changes another field of the record. No
/// key changes, so no entry would follow, and no list would ever have the record.
pub(crate) fn may_be_stray(
    row_epoch: u32,
    own_epoch: u32,
    is_epoch_of_level_2: bool,
    writes_land_late: bool,
) -> bool {
    writes_land_late && is_epoch_of_level_2 && row_epoch != own_epoch
}

/// Returns a list: its records in their order, each once. The candidates are the ids of the live
/// entries with the key `wanted`. `now` returns the place of a record as it is now.
///
/// Invariant: a candidate counts at the place that its record has now. A simpler version counts it
/// only if the entry and the record have the same place. A reader reads the entries; a command
/// changes an `order` field of a record; the reader reads the records. So the record, which had the
/// key all the time, would be missing.
pub(crate) fn listed<E: PartialEq, O: Ord, Id: Copy + Ord>(
    wanted: &E,
    candidates: &[Id],
    now: impl Fn(Id) -> Option<Place<E, O>>,
) -> Vec<(O, Id)> {
    let place = |id: &Id| now(*id).filter(|place| place.equal == *wanted);
    let mut rows: Vec<(O, Id)> =
        candidates.iter().filter_map(|id| Some((place(id)?.order, *id))).collect();
    rows.sort();
    rows.dedup();
    rows
}

/// Returns the rows that one page of a list shows. `after` is the last candidate of the page
/// before. `last` is the last candidate of this page, or `None` if no candidate follows: only then
/// the list is over, however few rows a page shows.
pub(crate) fn page<O: Ord + Copy, Id: Ord + Copy>(
    rows: Vec<(O, Id)>,
    after: Option<(O, Id)>,
    last: Option<(O, Id)>,
) -> Vec<(O, Id)> {
    let is_behind = |row: &(O, Id)| after.is_none_or(|after| *row > after);
    let is_in_page = |row: &(O, Id)| last.is_none_or(|last| *row <= last);
    rows.into_iter().filter(|row| is_behind(row) && is_in_page(row)).collect()
}

/// Returns whether a page must wait, before it is answered, until the group under way has ended: it
/// leaves a record to a later page, because the record has moved on.
///
/// Invariant: the later page has the record. A simpler version does not wait. A command moves a
/// record from the first page to the second; its record is written, and its entry is not; a reader
/// reads both pages. So no page would have the record.
pub(crate) fn must_wait<O: Ord, Id: Ord>(rows: &[(O, Id)], last: Option<(O, Id)>) -> bool {
    last.is_some_and(|last| rows.iter().any(|row| *row > last))
}

/// A change of one record of a command, as a unique field sees it.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct UniqueChange<Id, K> {
    pub(crate) id: Id,
    pub(crate) before: Before<K>,
    pub(crate) after: Option<K>,
}

impl<Id, K: Copy + PartialEq> UniqueChange<Id, K> {
    /// Returns the key that the change takes, so that it must be judged; `None` if it takes none.
    pub(crate) fn taken(&self) -> Option<K> {
        entries(self.before, self.after).live
    }
}

/// A key that a command must not take.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Conflict<Id, K> {
    pub(crate) taker: Id,
    pub(crate) key: K,
    pub(crate) holder: Id,
}

/// Judges all changes of one command. `candidates` returns the ids that may hold a key: those of
/// the live entries that are stored, and those of the earlier commands of the group. `now` returns
/// the key of a record through the view of the group, before this command.
///
/// Invariant: the records of the command count as the command leaves them, so two records may swap
/// their keys. Of all others, only a record that is active and has the key is a holder, so an
/// outdated entry never blocks.
pub(crate) fn conflict<Id: Copy + Eq, K: Copy + Eq>(
    changes: &[UniqueChange<Id, K>],
    candidates: impl Fn(K) -> Vec<Id>,
    now: impl Fn(Id) -> Option<K>,
) -> Option<Conflict<Id, K>> {
    changes.iter().find_map(|change| {
        let (taker, key) = (change.id, change.taken()?);
        let in_command = |id: Id| changes.iter().find(|other| other.id == id);
        let holds = |id: Id| match in_command(id) {
            Some(other) => other.after == Some(key),
            None => now(id) == Some(key),
        };
        let others = changes.iter().map(|other| other.id).chain(candidates(key));
        let holder = others.filter(|id| *id != taker).find(|id| holds(*id))?;
        Some(Conflict { taker, key, holder })
    })
}

/// How far the build of an index is in one partition.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Progress {
    /// The ids of all entries of the log before `next` have their entries in the index.
    Building {
        next: u64,
        /// Whether two active records had one unique key. The pass cannot be the last one.
        has_duplicates: bool,
    },
    Complete,
    /// An entry could not be written. Only a new number helps.
    Broken,
}

impl Progress {
    pub(crate) const BEGIN: Progress = Progress::Building { next: 1, has_duplicates: false };

    pub(crate) fn may_be_read(self) -> bool {
        self == Progress::Complete
    }

    /// Returns the progress after a part of a pass. `end` is the end of the log that the recovery
    /// of the leader has read: later events have put their entries themselves.
    ///
    /// Invariant: duplicates that a former leader found prevent the end of the pass. A simpler
    /// version remembers them in memory. A finds two holders and stores how far it is; B goes on
    /// behind them. So B would call the index complete.
    pub(crate) fn after(self, next: u64, found_duplicates: bool, end: u64) -> Progress {
        let Progress::Building { has_duplicates, .. } = self else { return self };
        let has_duplicates = has_duplicates || found_duplicates;
        match (next < end, has_duplicates) {
            (true, _) => Progress::Building { next, has_duplicates },
            (false, true) => Progress::BEGIN,
            (false, false) => Progress::Complete,
        }
    }

    /// Returns the progress after a recovery that met a marker.
    ///
    /// Invariant: such a recovery begins the build again. A simpler version lets the index be. The
    /// leader writes event 7 and its records and crashes before its entries; event 7 is damaged
    /// and marked. The record has its new place, and no entry would ever follow from event 7.
    pub(crate) fn after_marker(self) -> Progress {
        if self == Progress::Broken { self } else { Progress::BEGIN }
    }
}

/// Returns the ids of one workspace whose records a build reads for an entry of the log: those that
/// an event wrote, or all ids up to the last one that a marked event drew. A marked event does not
/// tell which records it made. Those that it changed were made by other entries.
pub(crate) fn ids_to_read(written: &[u64], marked: Option<u64>) -> Vec<u64> {
    marked.map_or_else(|| written.to_vec(), |last| (1..=last).collect())
}

/// Returns whether a build has found a duplicate: another record that holds the key. The entry of
/// the record is acknowledged, and each group that was formed before has ended.
///
/// Invariant: the build waits for the group under way between its put and its look, and its leader
/// has fenced the log. A simpler version looks at once. A command reads the holders of a key; the
/// build puts the entry of a record with that key, and looks; the command writes its entry. Neither
/// would see the other.
pub(crate) fn has_duplicate<Id: Copy + Eq, K: Eq>(
    id: Id,
    key: &K,
    candidates: &[Id],
    now: impl Fn(Id) -> Option<K>,
) -> bool {
    candidates.iter().any(|other| *other != id && now(*other).as_ref() == Some(key))
}

/// An index of the stored list.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct StoredIndex<D> {
    pub(crate) number: u32,
    pub(crate) definition: D,
    pub(crate) is_on: bool,
}

/// Adds the definitions that a deployment declares and that no index of the list has. The list only
/// grows, and a partition maintains what is on, whatever its program declares.
pub(crate) fn declare<D: Copy + PartialEq>(list: &mut Vec<StoredIndex<D>>, declared: &[D]) {
    for definition in declared {
        if !list.iter().any(|index| index.is_on && index.definition == *definition) {
            let number = list.len() as u32 + 1;
            list.push(StoredIndex { number, definition: *definition, is_on: true });
        }
    }
}

/// Gives an index a new number, with new keys. The former number stays on until the new one is
/// complete.
///
/// Invariant: a partition judges a unique key by all numbers that are on. A simpler version turns
/// the former number off at once. The new number has no entries yet. So a second record could take
/// a key that was protected all the time.
pub(crate) fn rebuild<D: Copy>(list: &mut Vec<StoredIndex<D>>, number: u32) {
    if let Some(index) = list.iter().find(|index| index.number == number && index.is_on) {
        let (definition, number) = (index.definition, list.len() as u32 + 1);
        list.push(StoredIndex { number, definition, is_on: true });
    }
}

/// Turns the former numbers off of all indexes that have a later number that is complete.
pub(crate) fn retire<D: Copy + PartialEq>(
    list: &mut [StoredIndex<D>],
    is_complete: impl Fn(u32) -> bool,
) {
    let complete = list.iter().filter(|index| index.is_on && is_complete(index.number));
    let complete: Vec<StoredIndex<D>> = complete.copied().collect();
    for index in list {
        let is_later = |other: &StoredIndex<D>| {
            other.definition == index.definition && other.number > index.number
        };
        index.is_on &= !complete.iter().any(is_later);
    }
}

/// Turns an index off. A later deployment that declares it gets a new number, and so new keys.
pub(crate) fn drop_index<D>(list: &mut [StoredIndex<D>], number: u32) {
    list.iter_mut().filter(|index| index.number == number).for_each(|index| index.is_on = false);
}
