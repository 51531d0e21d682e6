//! The repair of damaged rows of the stored numbers, against the log of a partition in memory.

#![allow(clippy::unwrap_used)]

use std::{num::NonZeroU16, sync::Arc};

use bytes::Bytes;
use clock::{Clock, Instant, WallTime};
use eventlog::{
    AppRow, DrawnNumber, Entry, Epoch, Event, EventPlace, LogSettings, LogWriter, Marker, Offset,
    PreparedEvent, SingleNodeFence, WsId,
};
use isequencer::{NumberKey, SeqId, SeqStorage, standard::WLOG_OFFSET};
use istorage::{AppStorageExt, Key, KeyspaceName, SharedStorage, StorageDriver, mem::MemDriver};
use seqstorage::{NumberRepairError, PartitionStorage, numbers_in_view};
use sysvvm::NumberPlace;

const PARTITION: u16 = 3;
const PARTITIONS: NonZeroU16 = NonZeroU16::new(4).unwrap();

/// Two workspaces of the partition.
const WS: u64 = 7;
const OTHER_WS: u64 = 11;

/// Two sequences of the application.
const BILLS: u16 = 256;
const LABELS: u16 = 257;

/// The most records that a command may make.
const MOST_RECORDS: u64 = 4_096;

const DAMAGED: Bytes = Bytes::from_static(b"damaged");
const SOON: Instant = Instant::FAR_FUTURE;

/// The numbers that an event draws in a workspace, beside its offset.
type Draws<'d> = (u64, &'d [(u16, u64)]);

struct Scene {
    storage: SharedStorage,
    numbers: PartitionStorage,
}

impl Scene {
    /// A log with these events. No number is stored.
    async fn new(events: &[Draws<'_>]) -> Scene {
        let clock = Clock::system();
        let driver = MemDriver::new(clock.clone());
        let keyspace = KeyspaceName::new("shop").unwrap();
        driver.create(&keyspace, SOON).await.unwrap();
        let storage = driver.open(&keyspace, SOON).await.unwrap().unwrap();
        let fence = Arc::new(SingleNodeFence(Epoch(1)));
        let settings = LogSettings::new(PARTITIONS);
        let log = LogWriter::new(Arc::clone(&storage), clock, fence, PARTITION, settings);
        let group: Vec<PreparedEvent> = (1..)
            .zip(events)
            .map(|(plog, (ws, drawn))| {
                let before = events[..plog as usize].iter().filter(|(of, _)| of == ws);
                let place = place(plog, *ws, before.count() as u64);
                let offset = [(WLOG_OFFSET.0, place.wlog.0)];
                let drawn = offset.iter().chain(*drawn);
                let drawn = drawn.map(|(seq, last)| DrawnNumber { seq: *seq, last: *last });
                let (time, command) = (WallTime::from_millis(1_000), "sys.CUD".parse().unwrap());
                let event = Event { drawn: drawn.collect(), ..Event::new(place, time, command) };
                PreparedEvent::new(&event, |_| None)
            })
            .collect();
        let written = log.write(&group).await;
        assert!(written.commit_error.is_none() && written.applied.is_ok(), "{written:?}");
        Scene { storage, numbers: PartitionStorage::in_view(Arc::new(log)) }
    }

    /// Stores numbers, and the offset of the next event to replay.
    async fn store(&self, numbers: impl IntoIterator<Item = (u64, u16, u64)>, next: u64) {
        let key = |ws, seq| NumberKey { ws: WsId(ws), seq: SeqId(seq) };
        let numbers: Vec<_> =
            numbers.into_iter().map(|(ws, seq, last)| (key(ws, seq), last)).collect();
        let next = Offset::new(next).unwrap();
        self.numbers.write(&numbers, next).await.unwrap();
    }

    /// Replaces the bytes of a row; `None` deletes it.
    async fn replace(&self, key: Key, new: Option<Bytes>) {
        let old = self.storage.get_linearizable(&key, SOON).await.unwrap().unwrap();
        let outcome = match new {
            Some(new) => self.storage.compare_and_swap(key, old, new, None, SOON).await,
            None => self.storage.compare_and_delete(key, old, SOON).await,
        };
        assert!(outcome.unwrap().is_applied());
    }

    /// Plans the repair of a row that was damaged.
    async fn plan(
        &self,
        place: NumberPlace,
        number: Option<u64>,
    ) -> Result<u64, NumberRepairError> {
        let rows = numbers_in_view(Arc::clone(&self.storage), Clock::system(), PARTITION);
        self.replace(rows.key(PARTITION, place), Some(DAMAGED)).await;
        Ok(self.numbers.plan_number(place, number, &[]).await?.number())
    }
}

fn place(plog: u64, ws: u64, wlog: u64) -> EventPlace {
    EventPlace { epoch: Epoch(1), plog: Offset(plog), ws: WsId(ws), wlog: Offset(wlog) }
}

/// A replay from the repaired offset does not see the events before it. So if one of their numbers
/// was not stored, the partition would give that number again.
#[tokio::test]
async fn an_offset_is_repaired_only_behind_events_whose_numbers_are_all_stored() {
    let events: [Draws<'_>; 4] = [
        (WS, &[(BILLS, 5), (LABELS, 40)]),
        (OTHER_WS, &[(BILLS, 3), (LABELS, 8)]),
        (WS, &[(BILLS, 6)]),
        (OTHER_WS, &[]),
    ];
    let stored = [
        (WS, WLOG_OFFSET.0, 2, 3),
        (WS, BILLS, 6, 3),
        (WS, LABELS, 40, 1),
        (OTHER_WS, WLOG_OFFSET.0, 2, 4),
        (OTHER_WS, BILLS, 3, 2),
        (OTHER_WS, LABELS, 8, 2),
    ];
    let all = stored.map(|(ws, seq, last, _)| (ws, seq, last));
    let scene = Scene::new(&events).await;
    scene.store(all, 1).await;
    assert_eq!(scene.plan(NumberPlace::Offset, Some(5)).await.unwrap(), 5);
    for (low, (ws, seq, last, drawn_by)) in stored.into_iter().enumerate() {
        for is_absent in [false, true] {
            let scene = Scene::new(&events).await;
            let mut numbers = all.to_vec();
            if is_absent {
                numbers.remove(low);
            } else {
                numbers[low].2 -= 1;
            }
            scene.store(numbers, 1).await;
            let planned = scene.plan(NumberPlace::Offset, Some(5)).await;
            assert!(
                matches!(&planned, Err(NumberRepairError::NotStored(at)) if at.0 == drawn_by),
                "number {last} of sequence {seq} of workspace {ws} is not stored: {planned:?}"
            );
        }
    }
}

/// What became of an event in the log of its workspace.
#[derive(Clone, Copy, Debug)]
enum Loss {
    Missing,
    Damaged,
    /// An operator marked the event, and named the last number of this sequence.
    Marked(u16, u64),
}

/// An event that does not tell its numbers may have drawn as many as any command.
#[tokio::test]
async fn a_safe_number_is_above_those_of_all_events_that_do_not_tell_theirs() {
    let events: [Draws<'_>; 4] = [(WS, &[(BILLS, 5)]), (WS, &[]), (WS, &[]), (WS, &[])];
    for (losses, known, untold) in [
        (vec![], 5, 0),
        (vec![(2, Loss::Missing)], 5, 1),
        (vec![(4, Loss::Missing)], 5, 1),
        (vec![(2, Loss::Missing), (3, Loss::Missing)], 5, 2),
        (vec![(3, Loss::Missing), (4, Loss::Missing)], 5, 2),
        (vec![(2, Loss::Damaged)], 5, 1),
        (vec![(2, Loss::Damaged), (4, Loss::Damaged)], 5, 2),
        (vec![(3, Loss::Marked(BILLS, 9))], 9, 0),
        (vec![(3, Loss::Marked(LABELS, 9))], 5, 1),
        (vec![(2, Loss::Marked(LABELS, 9)), (3, Loss::Damaged), (4, Loss::Missing)], 5, 3),
    ] {
        let scene = Scene::new(&events).await;
        // The log of the partition tells the numbers of events after the stored offset.
        scene.store([(WS, WLOG_OFFSET.0, 4), (WS, BILLS, 5)], 5).await;
        for (wlog, loss) in &losses {
            let new = match *loss {
                Loss::Missing => None,
                Loss::Damaged => Some(DAMAGED),
                Loss::Marked(seq, last) => {
                    let drawn = vec![DrawnNumber { seq, last }];
                    let (place, marked) = (place(*wlog, WS, *wlog), Epoch(1));
                    let marker = Marker { place, marked, drawn, bytes: DAMAGED };
                    Some(Entry::Marker(marker).to_bytes())
                }
            };
            scene.replace(AppRow::Wlog(WsId(WS), Offset(*wlog)).key(), new).await;
        }
        let place = NumberPlace::Last { ws: WS, seq: BILLS };
        let safe = scene.plan(place, None).await.unwrap();
        assert_eq!(safe, known + untold * MOST_RECORDS, "{losses:?}");
    }
}
