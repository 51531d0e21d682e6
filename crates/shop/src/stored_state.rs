//! The invariants of the stored rows, which hold after every history.

use std::collections::{BTreeMap, HashMap};

use clock::WallTime;
use eventlog::{
    AppRow, Entry, Epoch, Event, EventPlace, FencingEntry, Offset, RecordId, StoredRecord,
    TableKind, Version, WsId, layout::NEIGHBOURS,
};
use futures::TryStreamExt;
use isequencer::standard::{FIRST_CRECORD_ID, FIRST_RECORD_ID, WLOG_OFFSET};
use istorage::{Consistency, Key, Range, Row};

use crate::{AnswerLedger, ShopDatabase};

/// The place of the numbers, and the promises to check.
#[derive(Clone, Copy, Debug, Default)]
pub struct CheckOptions {
    /// Whether the numbers are in the application's keyspace. Otherwise they are in the system
    /// keyspace.
    pub in_view: bool,
    /// All promises hold from this epoch on. `None` means that they hold for all epochs. With an
    /// epoch, an earlier leader went on after it had lost its leadership, at the trust level where
    /// no condition stops it. So events of that leader may be lost, and some of their rows may
    /// remain.
    pub since: Option<Epoch>,
    /// Whether level 2 wrote the log to replicas. Then events that reached too few of them may be
    /// after the end of the log.
    pub has_lost_puts: bool,
}

impl CheckOptions {
    /// All promises, with the numbers in the application's keyspace.
    pub const IN_VIEW: CheckOptions =
        CheckOptions { in_view: true, since: None, has_lost_puts: false };
}

/// All events of the log, and everything that follows from them.
#[derive(Debug, Default)]
pub struct StoredState {
    /// All events, in the order of the log.
    pub events: Vec<Event>,
    /// The fencing entries of the log.
    pub fencings: Vec<FencingEntry>,
    /// The epoch and the time of the last entry of the log; `None` if the log is empty.
    last: Option<(Epoch, WallTime)>,
    /// All records.
    pub records: HashMap<(WsId, RecordId), StoredRecord>,
    /// The last offset in the log of each workspace.
    pub wlogs: BTreeMap<WsId, u64>,
    /// The last number of each sequence.
    pub numbers: BTreeMap<(WsId, u16), u64>,
}

impl StoredState {
    /// The offset of the next entry of the log.
    #[must_use]
    pub fn next(&self) -> Offset {
        Offset((self.events.len() + self.fencings.len()) as u64 + 1)
    }

    /// Checks that an entry may follow the last one.
    fn note(&mut self, epoch: Epoch, plog: Offset, time: WallTime) {
        assert_eq!(plog, self.next(), "the log has a gap");
        let before = self.last.replace((epoch, time));
        let follows = before.is_none_or(|before| before.0 <= epoch && before.1 <= time);
        assert!(follows, "the epoch or the time fell at {plog:?}: {before:?} {:?}", self.last);
    }

    fn add(&mut self, event: Event, options: CheckOptions) {
        let EventPlace { epoch, plog, ws, wlog } = event.place;
        self.note(epoch, plog, event.time);
        let last = self.wlogs.entry(ws).or_default();
        *last += 1;
        assert!(*last <= wlog.0, "the offset in the log of a workspace did not grow: {event:?}");
        // A lost event can have drawn numbers that were stored.
        let may_have_gaps = options.since.is_some();
        assert!(*last == wlog.0 || may_have_gaps, "the log of a workspace has a gap: {event:?}");
        *last = wlog.0;
        for drawn in &event.drawn {
            let last = self.numbers.entry((ws, drawn.seq)).or_default();
            assert!(drawn.last > *last, "a number was given twice: {event:?}");
            *last = drawn.last;
        }
        let drew_wlog = event.drawn.iter().find(|drawn| drawn.seq == WLOG_OFFSET.0);
        assert_eq!(drew_wlog.map(|drawn| drawn.last), Some(wlog.0));
        for change in &event.changes {
            let record = change.record.clone();
            let stored = StoredRecord { ws, version: Version { epoch, plog }, record };
            let before = self.records.insert((ws, stored.record.id), stored.clone());
            let found = before.map(|before| before.version);
            // The handler may have found a record of an event that was lost later.
            let may_differ = options.since.is_some();
            assert!(
                found == change.replaces || may_differ,
                "the event names another former version of the record than the stored one: {event:?} {found:?}"
            );
            in_range(&stored);
        }
        self.events.push(event);
    }
}

fn in_range(StoredRecord { record, .. }: &StoredRecord) {
    let id = record.id.0;
    let is_in_range = match record.kind {
        TableKind::Singleton => (65_536..=66_047).contains(&id),
        TableKind::CDoc | TableKind::CRecord => id >= FIRST_CRECORD_ID,
        _ => (FIRST_RECORD_ID..FIRST_CRECORD_ID).contains(&id),
    };
    assert!(is_in_range, "{record:?}");
}

/// Reads and checks all rows of a partition. The partition must be at rest, with all its numbers
/// stored.
///
/// # Panics
/// If something is not as it must be.
pub async fn check(shop_db: &ShopDatabase, partition: u16, ledger: &AnswerLedger) -> StoredState {
    check_with(shop_db, partition, ledger, CheckOptions::default()).await
}

/// Checks a partition as [`check`] does, with other options.
///
/// # Panics
/// If something is not as it must be.
pub async fn check_with(
    shop_db: &ShopDatabase,
    partition: u16,
    ledger: &AnswerLedger,
    options: CheckOptions,
) -> StoredState {
    let reader = shop_db.reader();
    let mut state = StoredState::default();
    let mut entries = reader.plog(partition, Offset::FIRST, None);
    while let Some(entry) = entries.try_next().await.expect("the log can be read") {
        let last = state.last.map_or(Epoch(0), |(epoch, _)| epoch);
        if options.since.is_some() && entry.epoch() < last {
            break;
        }
        match entry {
            Entry::Event(event) => state.add(*event, options),
            Entry::Fencing(fencing) => {
                state.note(fencing.epoch, fencing.plog, fencing.time);
                state.fencings.push(fencing);
            }
            Entry::Marker(_) => panic!("{entry:?} was not marked here"),
        }
    }
    match options.since {
        None => check_all(shop_db, partition, &state, options).await,
        Some(since) => check_later(shop_db, since, &state).await,
    }
    check_numbers(shop_db, partition, &state, options).await;
    ledger.check(&state.events);
    state
}

/// Checks that all stored rows follow from the log.
async fn check_all(
    shop_db: &ShopDatabase,
    partition: u16,
    state: &StoredState,
    options: CheckOptions,
) {
    let reader = shop_db.reader();
    check_rows(shop_db, partition, state, options).await;
    for (ws, last) in &state.wlogs {
        let wlog: Vec<Entry> =
            reader.wlog(*ws, Offset::FIRST, None).try_collect().await.expect("it can be read");
        let of_ws = state.events.iter().filter(|event| event.place.ws == *ws).cloned();
        let expected: Vec<Entry> = of_ws.map(|event| Entry::Event(Box::new(event))).collect();
        assert_eq!(expected.len() as u64, *last);
        assert!(wlog == expected, "the log of the workspace differs from the log of its partition");
    }
    for ((ws, id), expected) in &state.records {
        let stored = reader.record(*ws, *id).await.expect("it can be read");
        assert_eq!(stored.as_ref(), Some(expected), "the record differs from the last event");
    }
}

/// Checks that everything that follows from the log is stored. A record may instead be of a lost
/// event, with an epoch before `since`.
async fn check_later(shop_db: &ShopDatabase, since: Epoch, state: &StoredState) {
    let reader = shop_db.reader();
    for event in &state.events {
        let EventPlace { ws, wlog, .. } = event.place;
        let mut from = reader.wlog(ws, wlog, None);
        let stored = from.try_next().await.expect("it can be read");
        assert_eq!(stored, Some(Entry::Event(Box::new(event.clone()))));
    }
    for ((ws, id), expected) in &state.records {
        let stored = reader.record(*ws, *id).await.expect("it can be read");
        let lost_since = |stored: &StoredRecord| {
            expected.version < stored.version && stored.version.epoch < since
        };
        let is_right = stored.as_ref() == Some(expected) || stored.as_ref().is_some_and(lost_since);
        assert!(is_right, "the record differs from the last event: {stored:?} {expected:?}");
    }
}

/// Checks that only rows that follow from the log are stored.
async fn check_rows(
    shop_db: &ShopDatabase,
    partition: u16,
    state: &StoredState,
    options: CheckOptions,
) {
    let mut expected: BTreeMap<_, usize> = BTreeMap::new();
    for event in &state.events {
        let EventPlace { plog, ws, wlog, .. } = event.place;
        for row in [AppRow::Plog(partition, plog), AppRow::Wlog(ws, wlog)] {
            *expected.entry(row.key().pkey).or_default() += 1;
        }
    }
    for fencing in &state.fencings {
        *expected.entry(AppRow::Plog(partition, fencing.plog).key().pkey).or_default() += 1;
    }
    for (ws, id) in state.records.keys() {
        *expected.entry(AppRow::Record(*ws, *id).key().pkey).or_default() += 1;
    }
    // Also look at the partition keys of the rows that the next events would write.
    let next = state.next();
    let beyond = AppRow::Plog(partition, Offset((next.0 / NEIGHBOURS + 1) * NEIGHBOURS));
    for row in [AppRow::Plog(partition, next), beyond] {
        expected.entry(row.key().pkey).or_default();
    }
    for (pkey, count) in expected {
        let timeout = std::time::Duration::from_secs(10);
        let rows =
            shop_db.app.storage.read(pkey.clone(), Range::all(), Consistency::Plain, timeout);
        let mut rows: Vec<_> = rows.try_collect().await.expect("it can be read");
        if options.has_lost_puts {
            rows.retain(|row| !is_lost_put(Key::new(pkey.clone(), row.ccols.clone()), row, state));
        }
        assert_eq!(rows.len(), count, "{pkey:?} has rows of no event, or not those of all events");
    }
}

/// Whether a row is after the end of the log of the partition, with an earlier epoch than the last
/// entry.
fn is_lost_put(key: Key, row: &Row, state: &StoredState) -> bool {
    let is_behind = match AppRow::of_key(&key) {
        Some(AppRow::Plog(_, offset)) => offset >= state.next(),
        _ => false,
    };
    let is_earlier = |entry: Entry| state.last.is_some_and(|(epoch, _)| entry.epoch() < epoch);
    is_behind && Entry::from_bytes(&row.value).is_ok_and(is_earlier)
}

async fn check_numbers(
    shop_db: &ShopDatabase,
    partition: u16,
    state: &StoredState,
    options: CheckOptions,
) {
    let numbers = if options.in_view {
        let storage = std::sync::Arc::clone(&shop_db.app.storage);
        seqstorage::numbers_in_view(storage, shop_db.clock.clone(), partition)
    } else {
        shop_db.system.numbers(&shop_db.app.entry)
    };
    let next = numbers.next_offset(partition, shop_db.soon()).await.expect("it can be read");
    assert_eq!(next.unwrap_or(1), state.next().0, "the stored offset is wrong");
    for ws in state.wlogs.keys() {
        let seqs = [1, 2, 3, 256];
        let stored = numbers.last(ws.0, &seqs, shop_db.soon()).await.expect("they can be read");
        let expected = seqs.map(|seq| state.numbers.get(&(*ws, seq)).copied());
        // Numbers that were drawn by lost events may be stored.
        let is_right = stored == expected
            || options.since.is_some() && stored.iter().zip(&expected).all(|(one, two)| one >= two);
        assert!(is_right, "stored numbers of {ws:?} are {stored:?}, and the log has {expected:?}");
    }
}
