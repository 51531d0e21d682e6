//! The log of a partition alone: when it may write, and its reaction to a refusal.

use std::{
    sync::{
        Arc,
        atomic::{AtomicUsize, Ordering},
    },
    time::Duration,
};

use bytes::Bytes;
use clock::Instant;
use eventlog::{
    AppRow, DrawnNumber, Epoch, Event, EventPlace, Fence, Idempotency, LeadershipLost, LogRepair,
    LogSettings, LogWriter, Offset, PreparedEvent, Record, RecordChange, RecordId, TableKind,
    TrustLevel, WsId,
};
use futures::TryStreamExt;
use isequencer::{NumberKey, SeqStorage, standard};
use istorage::{
    AppStorageExt, Call, CallAnswer, CallKind, Order, OrderedPut, Outcome, SharedStorage,
    StorageWrapper, Write,
};
use seqstorage::PartitionStorage;
use shop::{NarrowStorage, qname, text};
use tck::{
    storage::{Fault, Faulty},
    trial::{Trial, trials},
};

use crate::{
    fixture::{CommandsFixture, PARTITION, WS},
    scene::LEVELS,
};

pub(crate) const TRIALS: &[Trial<CommandsFixture>] = trials!(log:
    a_write_is_sent_only_if_it_times_out_before_the_lease_ends = in_time,
    a_refusal_that_names_no_row_is_retried_with_pauses_for_a_limited_time = refused,
);

const TIMEOUT: Duration = Duration::from_secs(20);

/// The number of times that the fence refuses before its lease is renewed.
const ASKED_IN_VAIN: usize = 3;

/// A fence with little time left right before each write: the write could outlive the leadership.
/// After some refusals the lease is renewed.
#[derive(Debug)]
struct ExpiringFence {
    epoch: u64,
    in_vain: AtomicUsize,
}

impl Fence for ExpiringFence {
    fn epoch(&self) -> Epoch {
        Epoch(self.epoch)
    }

    fn may_send(&self, timeout: Duration) -> bool {
        let fewer = |left: usize| left.checked_sub(1);
        let is_short = self.in_vain.fetch_update(Ordering::SeqCst, Ordering::SeqCst, fewer).is_ok();
        let left = if is_short { TIMEOUT } else { TIMEOUT * 2 };
        timeout < left
    }

    fn lost(&self) -> Option<LeadershipLost> {
        None
    }
}

/// Two events, each with a record and an answer.
fn events(epoch: u64, ws: u64, from: u64) -> Vec<Event> {
    let event = |n: u64| Event {
        place: EventPlace { epoch: Epoch(epoch), plog: Offset(n), ws: WsId(ws), wlog: Offset(n) },
        time: clock::WallTime::from_millis(4_000_000_000_000),
        request: format!("{n}"),
        principal: "joe".to_owned(),
        idempotency: Some(Idempotency { key: [n as u8; 32], body: [0; 32], answer: Bytes::new() }),
        command: qname("sys.CUD"),
        params: Bytes::new(),
        changes: vec![RecordChange {
            replaces: None,
            record: Record {
                table: qname("shop.Article"),
                kind: TableKind::CDoc,
                id: RecordId(standard::FIRST_CRECORD_ID + n),
                parent: None,
                is_active: true,
                fields: [("name".parse().unwrap(), text("a"))].into(),
            },
        }],
        drawn: vec![DrawnNumber { seq: standard::WLOG_OFFSET.0, last: n }],
    };
    (from..from + 2).map(event).collect()
}

fn prepared(events: &[Event]) -> Vec<PreparedEvent> {
    events.iter().map(|event| PreparedEvent::new(event, |_| None)).collect()
}

/// Leaves bytes in a row, as a leader does that ends in the middle of a write.
async fn put(
    fixture: &CommandsFixture,
    level: TrustLevel,
    row: AppRow,
    place: EventPlace,
    value: Bytes,
) {
    let (storage, key, deadline) =
        (&fixture.shop_db.app.storage, row.key(), fixture.shop_db.soon());
    if level == TrustLevel::Two {
        let order = Order::from_parts(place.epoch.0, place.plog.0).unwrap();
        let put = OrderedPut { key, value, order, ttl: None };
        storage.put_ordered(vec![put], deadline).await.unwrap();
    } else {
        let inserted = storage.insert_if_not_exists(key, value, None, deadline).await.unwrap();
        assert!(inserted.is_applied());
    }
}

fn log(
    fixture: &CommandsFixture,
    storage: SharedStorage,
    partition: u16,
    fence: Arc<dyn Fence>,
) -> LogWriter {
    let settings = LogSettings {
        timeout: TIMEOUT,
        apply_for: Duration::from_millis(300),
        ..LogSettings::new(fixture.shop_db.app.entry.partitions)
    };
    LogWriter::new(storage, fixture.shop_db.clock.clone(), fence, partition, settings)
}

/// No suite failed when the log asked the fence without the timeout of the call. Nor did one fail
/// when numbers were stored without asking the fence.
async fn in_time(fixture: &CommandsFixture) {
    let write_setups =
        LEVELS.into_iter().flat_map(|level| [false, true].map(|narrow| (level, narrow)));
    for (n, (level, is_narrow)) in (0..).zip(write_setups) {
        let (partition, ws) = (PARTITION + n, WS + u64::from(n));
        let inner = Arc::clone(&fixture.shop_db.app.storage);
        let inner: SharedStorage =
            if is_narrow { NarrowStorage::of(inner, 3, true) } else { inner };
        let fence = Arc::new(ExpiringFence { epoch: 2, in_vain: AtomicUsize::new(ASKED_IN_VAIN) });
        let (writes, early) = (Arc::new(AtomicUsize::new(0)), Arc::new(AtomicUsize::new(0)));
        let (counted, asked) = ((Arc::clone(&writes), Arc::clone(&early)), Arc::clone(&fence));
        let script = move |op| {
            if matches!(
                op,
                CallKind::WriteIf
                    | CallKind::WriteAtomic
                    | CallKind::PutOrdered
                    | CallKind::PutBatch
            ) {
                let in_vain = asked.in_vain.swap(ASKED_IN_VAIN, Ordering::SeqCst);
                counted.0.fetch_add(1, Ordering::SeqCst);
                counted.1.fetch_add(usize::from(in_vain > 0), Ordering::SeqCst);
            }
            Fault::None
        };
        let faulty: SharedStorage =
            Arc::new(Faulty::scripted(inner, fixture.shop_db.clock.clone(), script));
        let sent = |what: &str| {
            let [sent, early] = [&writes, &early].map(|count| count.swap(0, Ordering::SeqCst));
            assert!(sent > 0, "{what} writes something");
            assert_eq!(early, 0, "{what} at {level:?}: of {sent} writes");
        };
        let clock = fixture.shop_db.clock.clone();
        let settings = LogSettings {
            level,
            timeout: TIMEOUT,
            ..LogSettings::new(fixture.shop_db.app.entry.partitions)
        };
        let log = Arc::new(LogWriter::new(faulty, clock, fence, partition, settings));
        let outcome = log.write(&prepared(&events(2, ws, 1))).await;
        assert!(outcome.applied.is_ok() && outcome.commit_error.is_none(), "{outcome:?}");
        sent("a group");

        let numbers = PartitionStorage::in_view(Arc::clone(&log));
        let key = NumberKey { ws: WsId(ws), seq: standard::WLOG_OFFSET };
        numbers.write(&[(key, 2)], Offset::FIRST.after(2)).await.unwrap();
        sent("a write of numbers");

        // The next two events are in the log, and nothing of them is applied. The second one is
        // damaged.
        let tail = events(2, ws, 3);
        for (event, bytes) in [(&tail[0], tail[0].to_bytes()), (&tail[1], Bytes::from("damaged"))] {
            put(fixture, level, AppRow::Plog(partition, event.place.plog), event.place, bytes)
                .await;
        }
        let replayed = log.replay(Offset(3)).try_collect::<Vec<_>>().await;
        replayed.unwrap_err();
        sent("a recovery");
        let EventPlace { plog, ws, wlog, .. } = tail[1].place;
        let damaged = LogRepair::new(&log).damaged(plog, ws, wlog).await.unwrap().unwrap();
        if level != TrustLevel::Two {
            LogRepair::new(&log).mark(&damaged, Vec::new()).await.unwrap();
            sent("a marker");
        }
    }
}

/// A storage that refuses conditional writes outside of PLogs, and does not say which row is in the
/// way.
#[derive(Debug)]
struct RefusingStorage {
    inner: SharedStorage,
    refusals: AtomicUsize,
    /// The number of refusals that are left.
    refuses: AtomicUsize,
}

impl StorageWrapper for RefusingStorage {
    fn inner(&self) -> &SharedStorage {
        &self.inner
    }

    async fn call(&self, call: Call<'_>, deadline: Instant) -> istorage::Result<CallAnswer> {
        let plog = AppRow::Plog(0, Offset(0)).key().pkey.slice(..2);
        let fewer = |left: usize| left.checked_sub(1);
        if let Call::Write(Write::If(pkey, _)) = &call
            && !pkey.starts_with(&plog)
            && self.refuses.fetch_update(Ordering::SeqCst, Ordering::SeqCst, fewer).is_ok()
        {
            let refusals = self.refusals.fetch_add(1, Ordering::SeqCst);
            assert!(refusals < 1_000, "it is sent again and again, without a pause or an end");
            return Ok(Outcome::NotApplied(Vec::new()).into());
        }
        call.send(&self.inner, deadline).await
    }
}

/// The write was sent again at once, for ever, and the node did nothing else.
async fn refused(fixture: &CommandsFixture) {
    let (refusals, refuses) = (AtomicUsize::new(0), AtomicUsize::new(usize::MAX));
    let inner = NarrowStorage::beyond_atomic(Arc::clone(&fixture.shop_db.app.storage), 3);
    let mute = Arc::new(RefusingStorage { inner, refusals, refuses });
    let fence = Arc::new(eventlog::SingleNodeFence(Epoch(2)));
    let log = log(fixture, Arc::clone(&mute) as SharedStorage, PARTITION, fence);
    let outcome = log.write(&prepared(&events(2, WS, 1))).await;
    assert_eq!(outcome.committed, 2);
    let error = outcome.applied.unwrap_err();
    assert!(!error.is_lasting(), "a new look may be right: {error:?}");

    // A refusal that passes is not reported.
    mute.refuses.store(2, Ordering::SeqCst);
    let outcome = log.write(&prepared(&events(2, WS, 3))).await;
    assert!(outcome.applied.is_ok() && outcome.commit_error.is_none(), "{outcome:?}");
    let replayed: Vec<_> = log.replay(Offset::FIRST).try_collect().await.unwrap();
    assert_eq!(replayed.len(), 4);
}
