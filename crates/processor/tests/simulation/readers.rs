//! Clients that read logs, records and lists during the history, and the promises to them:
//!
//! - An event that was acknowledged, or read by any client, before a read began is visible to that
//!   read (read your writes, and never back).
//! - A log has no gap, and a list has no record twice.
//! - The end of a log is after the events that were acknowledged, and not after an event that
//!   readers do not see yet. A follower that begins there misses no event.
//! - A client reads only events of the log, and only records as an event wrote them. Everything
//!   that clients read is still in the log at the end.

use std::{collections::BTreeMap, sync::Arc};

use eventlog::{Entry, Error, Offset, RecordId, StoredRecord, Version, WsId};
use futures::TryStreamExt;
use isequencer::standard::{self, FIRST_CRECORD_ID};
use processor::{Busy, Done};
use shop::{ShopDatabase, ShopNode, StoredState};
use tokio::task::JoinHandle;

use crate::call_turns::Dice;

/// A thing that a client wants to read.
#[derive(Clone, Copy, Debug)]
pub(crate) enum ReadRequest {
    /// The log of a workspace, from an offset on.
    Log(WsId, Offset),
    Record(WsId, RecordId),
    /// The records of collections of a workspace.
    List(WsId),
}

/// The result of a read.
#[derive(Debug)]
pub(crate) enum ReadResult {
    /// The end of the log, and then the events that were shown.
    Log(Offset, Vec<Entry>),
    Record(Option<StoredRecord>),
    List(Vec<StoredRecord>),
}

/// A read that is under way.
#[derive(Debug)]
pub(crate) struct Reading {
    pub(crate) wanted: ReadRequest,
    /// The epoch of the leader that is asked.
    pub(crate) epoch: u64,
    pub(crate) node: Arc<ShopNode>,
    /// Everything that clients knew when the read began. `None` if another node really leads.
    known: Option<KnownState>,
    pub(crate) task: JoinHandle<Option<Result<ReadResult, Error>>>,
}

impl Drop for Reading {
    fn drop(&mut self) {
        self.task.abort();
    }
}

/// Everything that clients were told.
#[derive(Clone, Debug, Default)]
struct KnownState {
    /// The last offset of the log of each workspace.
    logs: BTreeMap<WsId, Offset>,
    /// The last version of each record.
    records: BTreeMap<(WsId, RecordId), Version>,
}

/// The shared knowledge of all readers.
#[derive(Debug, Default)]
pub(crate) struct Readers {
    known: KnownState,
    /// Entries that were read. The entries are compared with the stored ones at the end.
    entries: Vec<Entry>,
    records: Vec<(WsId, StoredRecord)>,
    /// The number of reads that were answered.
    pub(crate) answered: usize,
    /// The numbers of logs and of lists that were read to their ends.
    pub(crate) logs: usize,
    pub(crate) lists: usize,
}

impl Readers {
    /// Begins to read something.
    pub(crate) fn begin(
        &self,
        dice: &Dice,
        node: &Arc<ShopNode>,
        epoch: u64,
        newest: u64,
    ) -> Option<Reading> {
        let wanted = self.wanted(dice)?;
        let (node, known) = (Arc::clone(node), (epoch == newest).then(|| self.known.clone()));
        let reads = Arc::clone(&node);
        #[expect(clippy::disallowed_methods, reason = "readers are heard, or aborted when dropped")]
        let task = tokio::spawn(async move { read(&reads, wanted).await });
        Some(Reading { wanted, epoch, node, known, task })
    }

    fn wanted(&self, dice: &Dice) -> Option<ReadRequest> {
        let logs: Vec<WsId> = self.known.logs.keys().copied().collect();
        let ws = *dice.of_slice(&logs)?;
        let records: Vec<_> = self.known.records.keys().copied().collect();
        Some(match (dice.below(4), dice.of_slice(&records)) {
            (0, _) => ReadRequest::List(ws),
            (1, Some((ws, id))) => ReadRequest::Record(*ws, *id),
            (2, _) => ReadRequest::Log(ws, Offset(1 + dice.below(self.known.logs[&ws].0))),
            _ => ReadRequest::Log(ws, Offset::FIRST),
        })
    }

    /// Learns from a command that was done.
    pub(crate) fn acknowledged(
        &mut self,
        ws: WsId,
        done: &Done,
        records: impl Iterator<Item = RecordId>,
    ) {
        self.learn_log(ws, done.wlog);
        records.for_each(|id| self.learn_record(ws, id, done.version()));
    }

    fn learn_log(&mut self, ws: WsId, wlog: Offset) {
        let last = self.known.logs.entry(ws).or_insert(wlog);
        *last = wlog.max(*last);
    }

    fn learn_record(&mut self, ws: WsId, id: RecordId, version: Version) {
        let last = self.known.records.entry((ws, id)).or_insert(version);
        *last = version.max(*last);
    }

    /// Checks an answer to a client. The answer may come from a leader that has not noticed its end
    /// yet. Such an answer must be true too, but later reads need not know it yet.
    ///
    /// # Panics
    /// If the answer breaks a promise.
    pub(crate) fn hear(
        &mut self,
        reading: &Reading,
        found: Result<ReadResult, Error>,
        is_of_newest: bool,
    ) {
        let before = self.known.clone();
        let (wanted, known) = (reading.wanted, reading.known.as_ref());
        let found = match found {
            Ok(found) => found,
            // The database did not answer, or a call took too long.
            Err(error) if !error.is_lasting() => return,
            Err(error) => panic!("{wanted:?} is said to be damaged: {error:?}"),
        };
        self.answered += 1;
        match (wanted, found) {
            (ReadRequest::Log(ws, from), ReadResult::Log(end, entries)) => {
                self.logs += 1;
                let places = entries.iter().filter_map(Entry::place);
                let is_dense =
                    places.clone().map(|place| place.wlog.0).eq((from.0..).take(entries.len()));
                assert!(is_dense, "{wanted:?} has a gap: {:?}", places.collect::<Vec<_>>());
                let next = from.0 + entries.len() as u64;
                let last = known.and_then(|known| known.logs.get(&ws));
                assert!(
                    last.is_none_or(|last| last.0 < next),
                    "{wanted:?} ends before {next}, and {last:?} was known"
                );
                assert!(
                    end.0 <= next && last.is_none_or(|last| *last < end),
                    "{wanted:?} is shown up to {next}, {last:?} was known, and the end was {end:?}"
                );
                if let Some(last) = entries.last().and_then(Entry::place) {
                    self.learn_log(ws, last.wlog);
                }
                self.entries.extend(entries);
            }
            (ReadRequest::Record(ws, id), ReadResult::Record(found)) => {
                self.hear_record(known, ws, id, found)
            }
            (ReadRequest::List(ws), ReadResult::List(records)) => {
                self.lists += 1;
                let ids: Vec<RecordId> = records.iter().map(|stored| stored.record.id).collect();
                assert!(
                    ids.is_sorted_by(|one, next| one < next),
                    "{wanted:?} is not in order: {ids:?}"
                );
                let mut found: BTreeMap<_, _> = ids.into_iter().zip(records).collect();
                let of_list = |known: &KnownState| -> Vec<RecordId> {
                    let first = (ws, RecordId(FIRST_CRECORD_ID));
                    known
                        .records
                        .range(first..)
                        .take_while(|((of, _), _)| *of == ws)
                        .map(|((_, id), _)| *id)
                        .collect()
                };
                for id in known.map(of_list).unwrap_or_default() {
                    let record = found.remove(&id);
                    self.hear_record(known, ws, id, record);
                }
                for (id, record) in found {
                    self.hear_record(known, ws, id, Some(record));
                }
            }
            (_, found) => panic!("{wanted:?} found {found:?}"),
        }
        if !is_of_newest {
            self.known = before;
        }
    }

    fn hear_record(
        &mut self,
        known: Option<&KnownState>,
        ws: WsId,
        id: RecordId,
        found: Option<StoredRecord>,
    ) {
        let last = known.and_then(|known| known.records.get(&(ws, id)));
        let version = found.as_ref().map(|stored| stored.version);
        assert!(
            version >= last.copied(),
            "record {} of {ws:?} is {version:?}, and {last:?} was known",
            id.0
        );
        if let Some(stored) = found {
            assert_eq!(stored.record.id, id);
            self.learn_record(ws, id, stored.version);
            self.records.push((ws, stored));
        }
    }

    /// Compares everything that was read with everything that is stored at the end.
    ///
    /// # Panics
    /// If a client read something that is not stored.
    pub(crate) fn check(&self, state: &StoredState) {
        let event = |plog: Offset| {
            let found = state.events.binary_search_by_key(&plog, |event| event.place.plog);
            found.ok().map(|at| &state.events[at])
        };
        for entry in &self.entries {
            let Entry::Event(read) = entry else { panic!("nothing was marked: {entry:?}") };
            assert_eq!(
                event(read.place.plog),
                Some(&**read),
                "an event was read that is not in the log"
            );
        }
        for (ws, StoredRecord { version, record, .. }) in &self.records {
            let changes = event(version.plog)
                .filter(|event| event.place.epoch == version.epoch && event.place.ws == *ws);
            let mut changes = changes.into_iter().flat_map(|event| &event.changes);
            assert!(
                changes.any(|change| change.record == *record),
                "{record:?} was read, which no event made: {version:?}"
            );
        }
    }
}

/// Reads as the API does. Returns nothing if the node does not lead any more.
async fn read(node: &ShopNode, wanted: ReadRequest) -> Option<Result<ReadResult, Error>> {
    let commands = &node.commands;
    let found = match wanted {
        ReadRequest::Log(ws, from) => {
            let stored = || node.stored(ws, standard::WLOG_OFFSET);
            let Ok::<_, Busy>(end) = commands.wlog_end(ws, stored).await else { return None };
            let Ok::<_, Busy>(entries) = commands.wlog(ws, from, stored()) else { return None };
            let entries = entries.try_collect().await;
            end.and_then(|end| Ok(ReadResult::Log(end, entries?)))
        }
        ReadRequest::Record(ws, id) => commands.record(ws, id).await.map(ReadResult::Record),
        ReadRequest::List(ws) => list(node, ws).await.map(ReadResult::List),
    };
    commands.may_answer().then_some(found)
}

async fn list(node: &ShopNode, ws: WsId) -> Result<Vec<StoredRecord>, Error> {
    let first = RecordId(FIRST_CRECORD_ID);
    let stored = node.stored(ws, standard::CRECORD_ID);
    let last = node.commands.last_number(ws, standard::CRECORD_ID, stored).await?;
    node.commands.records(ws, first, last.map_or(first, RecordId)).try_collect().await
}

/// Checks that an acknowledged event is in the log of its workspace now, and its records too.
/// Nothing stands between this check and the database. Returns the ids of the records.
///
/// # Panics
/// If the event or a record is missing.
pub(crate) async fn check_applied(shop_db: &ShopDatabase, ws: WsId, done: &Done) -> Vec<RecordId> {
    let (reader, version) = (shop_db.reader(), done.version());
    let first = reader.wlog(ws, done.wlog, None).try_next().await.unwrap();
    let Some(Entry::Event(event)) = first else {
        panic!("{done:?} is not in the log of {ws:?}: {first:?}")
    };
    let place = (event.place.epoch, event.place.plog);
    assert_eq!(
        place,
        (done.epoch, done.plog),
        "another event is in the log of {ws:?} where {done:?} should be"
    );
    let mut ids = Vec::new();
    for change in &event.changes {
        let id = change.record.id;
        let there = reader.record(ws, id).await.unwrap().map(|stored| stored.version);
        assert!(there >= Some(version), "record {} of {ws:?} is {there:?} after {done:?}", id.0);
        ids.push(id);
    }
    ids
}
