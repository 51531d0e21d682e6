//! The numbers of events, and their rows in the storage.

use std::{collections::HashMap, num::NonZeroUsize, sync::Arc, time::Duration};

use eventlog::{Offset, RecordId};
use futures::{TryStreamExt, future::join};
use isequencer::{
    DrawError, JoinError, SeqId, StartError, WsId, WsKind,
    standard::{CRECORD_ID, FIRST_CRECORD_ID, FIRST_RECORD_ID, RECORD_ID},
};
use istorage::{Consistency, Key};
use tck::trial::{Trial, trials};

use crate::fixture::{
    EventsFixture, FIRST_INVOICE, INVOICES, Leader, NEVER, Numbers, OFFICE, PATIENCE, Place, STORE,
    params, workspace,
};

pub(crate) const TRIALS: &[Trial<EventsFixture>] = trials!(numbers:
    numbers_are_dense_in_all_kinds_and_workspaces = dense,
    a_kind_draws_only_from_its_own_sequences = own_sequences,
    each_partition_of_a_factory_counts_alone = partitions,
    events_wait_while_too_many_numbers_wait = room,
    numbers_are_stored_when_half_of_the_allowed_ones_wait = threshold,
    the_rows_of_the_view_have_the_documented_keys = rows,
);

/// The sequences that an event of each kind draws from, and its workspaces.
fn workspaces(partition: u16) -> [(WsKind, WsId, &'static [SeqId]); 3] {
    let ws = |n| workspace(partition, n);
    [
        (STORE, ws(1), &[RECORD_ID, RECORD_ID, CRECORD_ID]),
        (OFFICE, ws(2), &[CRECORD_ID, INVOICES, RECORD_ID, INVOICES]),
        (STORE, ws(3), &[CRECORD_ID]),
    ]
}

/// The expected numbers of all events, counted without the sequencer.
#[derive(Default)]
struct Counter {
    plog: u64,
    last: HashMap<(WsId, SeqId), u64>,
}

impl Counter {
    fn next(&mut self, ws: WsId, seq: SeqId) -> u64 {
        let first = match seq {
            RECORD_ID => FIRST_RECORD_ID,
            CRECORD_ID => FIRST_CRECORD_ID,
            INVOICES => FIRST_INVOICE,
            _ => 1,
        };
        let next = self.last.get(&(ws, seq)).map_or(first, |last| last + 1);
        self.last.insert((ws, seq), next);
        next
    }

    fn event(&mut self, ws: WsId, seqs: &[SeqId]) -> Numbers {
        self.plog += 1;
        let wlog = self.next(ws, isequencer::standard::WLOG_OFFSET);
        let drawn = seqs.iter().map(|seq| self.next(ws, *seq)).collect();
        Numbers { plog: self.plog, wlog, drawn }
    }
}

async fn write_rounds(leader: &mut Leader, counter: &mut Counter, rounds: usize) {
    let partition = leader.log.partition();
    for _ in 0..rounds {
        for (kind, ws, seqs) in workspaces(partition) {
            let numbers = leader.write(kind, ws, seqs).await;
            assert_eq!(numbers, counter.event(ws, seqs));
        }
    }
}

/// `ISequence.NextRecID`, `ISequence.NextCRecID` and `Sequencer.wait`: three leaders write events
/// of two kinds. After each, the storage has the last numbers.
async fn dense(fixture: &EventsFixture) {
    for place in Place::ALL {
        let (partition, mut counter) = (place.partition(), Counter::default());
        for round in 1..=3 {
            let mut leader = fixture.lead(place, params(NEVER)).partition(partition);
            write_rounds(&mut leader, &mut counter, 3).await;
            let (reader, last) = (leader.log.reader().clone(), counter.plog);
            leader.sequencer.close(fixture.shop_db.soon()).await.unwrap();
            for (kind, ws, seqs) in workspaces(partition) {
                let mut expected = vec![
                    ("sys.PLogOffsetSeq".to_owned(), last),
                    ("sys.WLogOffsetSeq".to_owned(), 3 * round),
                ];
                let lasts = [
                    ("sys.RecIDSeq", RECORD_ID),
                    ("sys.CRecIDSeq", CRECORD_ID),
                    ("app.Seq256", INVOICES),
                ];
                for (name, seq) in lasts.into_iter().filter(|(_, seq)| seqs.contains(seq)) {
                    expected.push((name.to_owned(), counter.last[&(ws, seq)]));
                }
                assert_eq!(fixture.stored(place, ws).await, expected, "{place:?} {kind}");
                // The events are real: their copies and records are there.
                let wlog: Vec<_> = reader.wlog(ws, Offset(1), None).try_collect().await.unwrap();
                assert_eq!(wlog.len() as u64, 3 * round);
                let id = RecordId(counter.last[&(WsId(ws.0), CRECORD_ID)]);
                assert!(reader.record(ws, id).await.unwrap().is_some());
            }
        }
    }
}

async fn own_sequences(fixture: &EventsFixture) {
    for place in Place::ALL {
        let partition = place.partition();
        let ws = workspace(partition, 1);
        let mut leader = fixture.lead(place, params(NEVER)).partition(partition);
        let unknown = leader.sequencer.start_event(PATIENCE, WsKind(3), ws).await.unwrap_err();
        let is_it = matches!(unknown, StartError::Join(JoinError::UnknownKind(WsKind(3))));
        assert!(is_it, "{unknown}");
        let mut event = leader.sequencer.start_event(PATIENCE, STORE, ws).await.unwrap();
        let undeclared = DrawError::UnknownSequence { kind: STORE, seq: INVOICES };
        assert_eq!(event.next(INVOICES), Err(undeclared));
        assert_eq!(event.next_record_id(), Ok(FIRST_RECORD_ID), "the event goes on");
        event.cancel();
        leader.sequencer.close(fixture.shop_db.soon()).await.unwrap();
    }
}

/// `ISequenceFactory.New`: one factory makes the sequencers of several partitions, which work side
/// by side.
async fn partitions(fixture: &EventsFixture) {
    for (place, [one, two]) in [(Place::View, [1, 3]), (Place::System, [2, 4])] {
        let leadership = fixture.lead(place, params(NEVER));
        let write = async |partition| {
            let mut leader = leadership.partition(partition);
            write_rounds(&mut leader, &mut Counter::default(), 2).await;
            leader.sequencer.close(fixture.shop_db.soon()).await.unwrap();
            fixture.stored(place, workspace(partition, 2)).await
        };
        let (one, two) = join(write(one), write(two)).await;
        assert_eq!((one[0].1, &one), (6, &two));
    }
}

/// `flusher.collect`: at most five numbers wait, so most events wait until numbers are stored. No
/// delay passes, so the number of those that wait is the only reason to store them.
async fn room(fixture: &EventsFixture) {
    for place in Place::ALL {
        let (partition, mut counter) = (place.partition(), Counter::default());
        let max_unflushed = NonZeroUsize::new(5).unwrap();
        let few = isequencer::Params { max_unflushed, ..params(NEVER) };
        let mut leader = fixture.lead(place, few).partition(partition);
        write_rounds(&mut leader, &mut counter, 10).await;
        leader.sequencer.close(fixture.shop_db.soon()).await.unwrap();
        let stored = fixture.stored(place, workspace(partition, 2)).await;
        assert_eq!(stored[0], ("sys.PLogOffsetSeq".to_owned(), 30));
        assert_eq!(stored[4], ("app.Seq256".to_owned(), FIRST_INVOICE + 19));
    }
}

/// `flusher.collect`: the flusher collects numbers up to a threshold, half of those that may wait,
/// and then stores them at once. A flusher without a threshold stores each number alone, or waits
/// for the delay.
async fn threshold(fixture: &EventsFixture) {
    for place in Place::ALL {
        let (partition, mut counter) = (place.partition(), Counter::default());
        let max_unflushed = NonZeroUsize::new(20).unwrap();
        let collects = isequencer::Params { max_unflushed, ..params(NEVER) };
        let mut leader = fixture.lead(place, collects).partition(partition);
        let stored = async || fixture.stored(place, workspace(partition, 4)).await[0].1;
        // Nine sequences have numbers that wait, however many events draw from them.
        write_rounds(&mut leader, &mut counter, 10).await;
        // In memory no write waits, so only this lets the flusher run.
        for _ in 0..100 {
            tokio::task::yield_now().await;
        }
        assert_eq!(stored().await, 0, "below the threshold");
        let (ws, seqs) = (workspace(partition, 4), [RECORD_ID, CRECORD_ID]);
        let last = leader.write(STORE, ws, &seqs).await;
        assert_eq!(last, counter.event(ws, &seqs));
        let clock = &fixture.shop_db.clock;
        let end = clock.now() + PATIENCE;
        while stored().await != last.plog {
            assert!(clock.now() < end, "the threshold was reached, and nothing was stored");
            clock.sleep(Duration::from_millis(10)).await;
        }
        leader.sequencer.close(fixture.shop_db.soon()).await.unwrap();
    }
}

/// `sys.SequencesView`: the bytes of its rows are written here by hand.
async fn rows(fixture: &EventsFixture) {
    assert_eq!(seqstorage::SEQUENCES_VIEW, "sys.SequencesView");
    let mut leader = fixture.lead(Place::View, params(NEVER)).partition(0x0003);
    let ws = workspace(3, 2);
    leader.write(OFFICE, ws, &[RECORD_ID, CRECORD_ID, INVOICES]).await;
    let storage = Arc::clone(&fixture.shop_db.app.storage);
    leader.sequencer.close(fixture.shop_db.soon()).await.unwrap();
    for (ws, name, value) in [
        (0, "sys.PLogOffsetSeq", 2),
        (ws.0, "sys.WLogOffsetSeq", 1),
        (ws.0, "sys.RecIDSeq", FIRST_RECORD_ID),
        (ws.0, "sys.CRecIDSeq", FIRST_CRECORD_ID),
        (ws.0, "app.Seq256", FIRST_INVOICE),
    ] {
        let pkey = [&[0, 23, 0, 3], &ws.to_be_bytes()[..]].concat();
        let key = Key::new(pkey, name.as_bytes().to_vec());
        let row = storage.get(&key, Consistency::Plain, fixture.shop_db.soon()).await.unwrap();
        assert_eq!(row.unwrap()[..], u64::to_be_bytes(value), "{name}");
    }
}
