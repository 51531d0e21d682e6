//! A row in the place of a new one, at the end of a history where rows are put and read back: the
//! row of another event with the same number, or a row of another program.
//!
//! Every leader must report the row and leave it, and no leader may count the new event as applied.
//! A log writes the event, because a right sequencer gives no number twice.

use std::sync::Arc;

use eventlog::{
    AppRow, DrawnNumber, Epoch, Error, Event, EventPlace, LogSettings, LogWriter, Offset,
    PreparedEvent, Record, RecordChange, RecordId, WsId,
};
use futures::TryStreamExt;
use isequencer::standard::WLOG_OFFSET;
use istorage::{Consistency, Put, SharedStorage};
use shop::{StoredState, TestFence, qname};

use crate::{
    database::NodeDriver,
    history::{History, PARTITION, open},
};

/// After this many leaders, two of them must have reported the row. With the most faults of the
/// plans, one leader in two hundred gets so far.
const LEADERS: u64 = 2_000;

/// The distance between the last record of a history and a record of another program.
const FAR: u64 = 1_000;

/// The event that meets a row.
struct Meeting {
    event: Event,
    /// The row that is in the way.
    row: AppRow,
    /// Whether another program writes the row. Otherwise an earlier event wrote it.
    is_foreign: bool,
}

/// Lets an event meet a row that is in the way. Returns the number of such rows.
///
/// # Panics
/// If the row is replaced, or not reported.
pub(crate) async fn meet(history: &mut History, state: &StoredState) -> u64 {
    let Some(meeting) = meeting(history, state) else { return 0 };
    let storage = Arc::clone(&history.shop_db.app.storage);
    let (row, soon) = (meeting.row, history.shop_db.soon());
    if meeting.is_foreign {
        let put = Put { key: row.key(), value: vec![1].into() };
        storage.put_batch(vec![put], soon).await.unwrap();
    }
    let before = storage.get(&row.key(), Consistency::Plain, soon).await.unwrap();
    assert!(before.is_some(), "{row} is in the way");
    history.note(&format!("{row} is in the way"));
    let mut reported = 0;
    for leader in 0..LEADERS {
        history.epochs += 1;
        let is_reported = leads(history, &meeting, state).await;
        history.note(&format!("{} reports the row: {is_reported}", history.epochs));
        reported += u32::from(is_reported);
        if leader % 2 == 1 {
            history.database.land_late_writes().await;
        }
        let there = storage.get(&row.key(), Consistency::Plain, soon).await.unwrap();
        assert_eq!(there, before, "{row} was in the way, and was replaced");
        // The second leader meets the event in the log.
        if reported == 2 {
            return 1;
        }
    }
    panic!("{row} was in the way, and {LEADERS} leaders did not report it");
}

/// Chooses an event that meets a row.
fn meeting(history: &History, state: &StoredState) -> Option<Meeting> {
    let dice = &history.dice;
    let new: Vec<(&Event, &Record)> = state
        .events
        .iter()
        .flat_map(|event| event.changes.iter().map(move |change| (event, change)))
        .filter(|(_, change)| change.replaces.is_none())
        .map(|(event, change)| (event, &change.record))
        .collect();
    let (earlier, record) = *dice.of_slice(&new)?;
    let ws = earlier.place.ws;
    let next = Offset(state.wlogs[&ws] + 1);
    let free = state.records.keys().map(|(_, id)| id.0).max().unwrap_or(0) + FAR;
    let (wlog, id, is_foreign) = match dice.below(4) {
        0 => (next, Some(record.id), false),
        1 => (earlier.place.wlog, None, false),
        2 => (next, Some(RecordId(free)), true),
        _ => (next, None, true),
    };
    let plog = state.next();
    let place = EventPlace { epoch: Epoch(0), plog, ws, wlog };
    let made =
        id.map(|id| RecordChange { replaces: None, record: Record { id, ..record.clone() } });
    let event = Event {
        drawn: vec![DrawnNumber { seq: WLOG_OFFSET.0, last: wlog.0 }],
        changes: made.into_iter().collect(),
        ..Event::new(place, history.clock.wall(), qname("sys.CUD"))
    };
    Some(Meeting { event, row: row_of(ws, wlog, id), is_foreign })
}

fn row_of(ws: WsId, wlog: Offset, id: Option<RecordId>) -> AppRow {
    id.map_or(AppRow::Wlog(ws, wlog), |id| AppRow::Record(ws, id))
}

/// Leads with the next epoch, and writes the event if it is not in the log yet. Returns whether the
/// leader reported the row. Otherwise the storage failed.
async fn leads(history: &mut History, meeting: &Meeting, state: &StoredState) -> bool {
    let log = log(history).await;
    let end = state.next();
    let from = Offset(end.0.saturating_sub(4).max(1));
    let replayed: Result<Vec<_>, Error> = history.in_time(log.replay(from).try_collect()).await;
    let applied = match replayed {
        Ok(_) => {
            assert_eq!(log.tail().next, end, "an event is applied, and {} is not its", meeting.row);
            let mut event = meeting.event.clone();
            event.place.epoch = Epoch(history.epochs);
            let event = PreparedEvent::new(&event, |_| None);
            let outcome = history.in_time(log.write(&[event])).await;
            match outcome.commit_error {
                Some(error) => Err(error),
                None => outcome.applied,
            }
        }
        Err(error) => Err(error),
    };
    match applied {
        Ok(()) => panic!("an event is applied, and {} is not its", meeting.row),
        Err(Error::Violation(violation)) => {
            assert_eq!(violation.row, meeting.row);
            true
        }
        Err(error) => {
            assert!(!error.is_lasting(), "{} was in the way: {error:?}", meeting.row);
            history.note(&format!("the storage failed: {error:?}"));
            false
        }
    }
}

/// The log of the next leader. Its calls belong to the history, with faults and defects.
async fn log(history: &History) -> LogWriter {
    let driver = NodeDriver::new(&history.database, history.epochs);
    let shop_db = open(Arc::new(driver.clone()), &history.clock).await;
    driver.works();
    let settings = &history.plan.settings;
    let settings = LogSettings {
        level: settings.level,
        timeout: settings.timeout,
        apply_for: settings.apply_for,
        ..LogSettings::new(shop_db.app.entry.partitions)
    };
    let storage: SharedStorage = Arc::clone(&shop_db.app.storage);
    let fence = TestFence::of(history.epochs);
    LogWriter::new(storage, history.clock.clone(), fence, PARTITION, settings)
}
