//! Events that are not finished, and leaders that die.

use std::{sync::Arc, time::Duration};

use eventlog::Offset;
use futures::TryStreamExt;
use isequencer::{
    SequenceStatus, SequencedEvent, SequencerBusy, StartError, StatusMonitor, WsId,
    standard::{CRECORD_ID, FIRST_CRECORD_ID, FIRST_RECORD_ID, RECORD_ID},
};
use istorage::SharedStorage;
use shop::{StallPoint, StallingStorage};
use tck::trial::{Trial, trials};

use crate::fixture::{
    EventsFixture, FIRST_INVOICE, INVOICES, Leader, NEVER, Numbers, OFFICE, PATIENCE, Place, STORE,
    draw, params, prepared, workspace,
};

pub(crate) const TRIALS: &[Trial<EventsFixture>] = trials!(outcomes:
    the_numbers_of_an_event_that_was_not_written_are_given_again = given_again,
    an_event_of_unknown_outcome_is_looked_for_in_the_log = unknown,
    after_a_crash_the_log_has_the_highest_numbers = crash,
    the_status_follows_the_events = status,
);

/// `ISequence.CancelEvent`: neither a cancelled nor a dropped event leaves a gap.
async fn given_again(fixture: &EventsFixture) {
    for place in Place::ALL {
        let partition = place.partition();
        let [store, office] = [1, 2].map(|n| workspace(partition, n));
        let mut leader = fixture.lead(place, params(NEVER)).partition(partition);
        leader.write(STORE, store, &[RECORD_ID]).await;
        for _ in 0..2 {
            let cancelled = leader.cancel(STORE, store, &[RECORD_ID, CRECORD_ID]).await;
            let expected = vec![FIRST_RECORD_ID + 1, FIRST_CRECORD_ID];
            assert_eq!(cancelled, Numbers { plog: 2, wlog: 2, drawn: expected });
        }
        drop(leader.sequencer.start_event(PATIENCE, OFFICE, office).await.unwrap());
        let written = leader.write(OFFICE, office, &[INVOICES]).await;
        assert_eq!(written, Numbers { plog: 2, wlog: 1, drawn: vec![FIRST_INVOICE] });
        let written = leader.write(STORE, store, &[RECORD_ID]).await;
        assert_eq!(written, Numbers { plog: 3, wlog: 2, drawn: vec![FIRST_RECORD_ID + 1] });
        leader.sequencer.close(fixture.shop_db.soon()).await.unwrap();
    }
}

fn stalling(fixture: &EventsFixture) -> StallingStorage {
    StallingStorage::new(Arc::clone(&fixture.shop_db.app.storage))
}

/// Writes an event. The node stands still at a call, and the write is given up. Then `end` ends
/// the event.
async fn give_up(
    leader: &mut Leader,
    storage: &StallingStorage,
    ws: WsId,
    at: StallPoint,
    end: fn(SequencedEvent<'_>),
) {
    let mut event = leader.sequencer.start_event(PATIENCE, OFFICE, ws).await.unwrap();
    let numbers = draw(&mut event, &[RECORD_ID, INVOICES]);
    let group = [prepared(&leader.log, ws, &event, &numbers)];
    storage.arm(at);
    tokio::select! {
        outcome = leader.log.write(&group) => panic!("the node does not stand still: {outcome:?}"),
        () = storage.until_still() => {}
    }
    storage.go_on();
    end(event);
}

/// `Sequencer.recovery` after `ISequence.CancelEvent`: the write of an event was given up, either
/// before it was sent or after it had landed. The log tells which, even after an event that was
/// dropped.
async fn unknown(fixture: &EventsFixture) {
    for place in Place::ALL {
        let (partition, storage) = (place.partition(), stalling(fixture));
        let ws = workspace(partition, 1);
        let shared = Arc::new(storage.clone()) as SharedStorage;
        let mut leader = fixture.lead_over(shared, place, params(NEVER)).partition(partition);
        let mut written = 0;
        let cancels: fn(SequencedEvent<'_>) = |event| event.cancel();
        let drops: fn(SequencedEvent<'_>) = |event| drop(event);
        for (at, lands, end) in [
            (StallPoint::Before(1), 0, cancels),
            (StallPoint::AfterWrite(1), 1, cancels),
            (StallPoint::Before(1), 0, drops),
            (StallPoint::AfterWrite(1), 1, drops),
        ] {
            give_up(&mut leader, &storage, ws, at, end).await;
            written += lands;
            let next = leader.write(OFFICE, ws, &[RECORD_ID, INVOICES]).await;
            let drawn = vec![FIRST_RECORD_ID + written, FIRST_INVOICE + written];
            assert_eq!(next, Numbers { plog: written + 1, wlog: written + 1, drawn }, "{at:?}");
            written += 1;
        }
        // A cancelled event that landed is applied like all others.
        let reader = leader.log.reader().clone();
        let wlog = reader.wlog(ws, Offset(1), None);
        assert_eq!(wlog.try_collect::<Vec<_>>().await.unwrap().len() as u64, written);
        leader.sequencer.close(fixture.shop_db.soon()).await.unwrap();
    }
}

/// `Sequencer.recovery`: the first leader stores its numbers and the second one dies, with an event
/// in the log that is possibly not applied. The third leader finds the highest numbers in the log.
async fn crash(fixture: &EventsFixture) {
    for place in Place::ALL {
        let partition = place.partition();
        let [store, office, late] = [1, 2, 3].map(|n| workspace(partition, n));
        let mut first = fixture.lead(place, params(NEVER)).partition(partition);
        first.write(OFFICE, office, &[INVOICES, RECORD_ID]).await;
        first.sequencer.close(fixture.shop_db.soon()).await.unwrap();
        let stored = fixture.stored(place, office).await;

        let storage = stalling(fixture);
        let shared = Arc::new(storage.clone()) as SharedStorage;
        let mut second = fixture.lead_over(shared, place, params(NEVER)).partition(partition);
        for _ in 0..5 {
            second.write(STORE, store, &[CRECORD_ID, CRECORD_ID]).await;
            second.write(OFFICE, office, &[INVOICES]).await;
        }
        let mut event = second.sequencer.start_event(PATIENCE, OFFICE, late).await.unwrap();
        let numbers = draw(&mut event, &[RECORD_ID, INVOICES]);
        let group = [prepared(&second.log, late, &event, &numbers)];
        storage.arm(StallPoint::AfterWrite(1));
        tokio::select! {
            outcome = second.log.write(&group) => panic!("it does not stand still: {outcome:?}"),
            () = storage.until_still() => {}
        }
        std::mem::forget(event);
        drop(second);
        assert_eq!(fixture.stored(place, office).await, stored, "nothing was stored");

        let mut third = fixture.lead(place, params(NEVER)).partition(partition);
        let next = third.write(STORE, store, &[CRECORD_ID]).await;
        assert_eq!(next, Numbers { plog: 13, wlog: 6, drawn: vec![FIRST_CRECORD_ID + 10] });
        let next = third.write(OFFICE, office, &[RECORD_ID, INVOICES]).await;
        let drawn = vec![FIRST_RECORD_ID + 1, FIRST_INVOICE + 6];
        assert_eq!(next, Numbers { plog: 14, wlog: 7, drawn });
        let next = third.write(OFFICE, late, &[RECORD_ID, INVOICES]).await;
        let drawn = vec![FIRST_RECORD_ID + 1, FIRST_INVOICE + 1];
        assert_eq!(next, Numbers { plog: 15, wlog: 2, drawn });
        let reader = third.log.reader().clone();
        let wlog = reader.wlog(late, Offset(1), None);
        assert_eq!(wlog.try_collect::<Vec<_>>().await.unwrap().len(), 2, "it was applied");
        third.sequencer.close(fixture.shop_db.soon()).await.unwrap();
        let stored = fixture.stored(place, late).await;
        assert_eq!(stored[0], ("sys.PLogOffsetSeq".to_owned(), 15));
        assert_eq!(stored[3], ("app.Seq256".to_owned(), FIRST_INVOICE + 1));
    }
}

async fn until(fixture: &EventsFixture, monitor: &StatusMonitor, status: SequenceStatus) {
    let clock = &fixture.shop_db.clock;
    let deadline = clock.now() + PATIENCE;
    while monitor.status() != status {
        assert!(clock.now() < deadline, "the status stays {:?}", monitor.status());
        clock.sleep(Duration::from_millis(2)).await;
    }
}

/// `ISequence.Status`, `ISequence.StartEvent` and `ISequence.FinishEvent`.
async fn status(fixture: &EventsFixture) {
    for place in Place::ALL {
        let (partition, storage) = (place.partition(), stalling(fixture));
        let ws = workspace(partition, 1);
        storage.arm(StallPoint::Before(1));
        let shared = Arc::new(storage.clone()) as SharedStorage;
        let mut leader = fixture.lead_over(shared, place, params(NEVER)).partition(partition);
        let monitor = leader.sequencer.monitor();
        storage.until_still().await;
        assert_eq!(monitor.status(), SequenceStatus::Recovering);
        let soon = Duration::from_millis(20);
        let busy = leader.sequencer.start_event(soon, STORE, ws).await.unwrap_err();
        let is_recovering = matches!(busy, StartError::Busy(SequencerBusy::Actualizing));
        assert!(is_recovering, "{busy}");
        storage.go_on();
        until(fixture, &monitor, SequenceStatus::Ready).await;
        let event = leader.sequencer.start_event(PATIENCE, STORE, ws).await.unwrap();
        assert_eq!(monitor.status(), SequenceStatus::Eventing);
        storage.arm(StallPoint::Before(1));
        event.cancel();
        storage.until_still().await;
        assert_eq!(monitor.status(), SequenceStatus::Recovering);
        storage.go_on();
        leader.write(STORE, ws, &[RECORD_ID]).await;
        assert_eq!(monitor.status(), SequenceStatus::Ready, "finished");
        leader.sequencer.close(fixture.shop_db.soon()).await.unwrap();
        assert_eq!(monitor.status(), SequenceStatus::Finished);
    }
}
