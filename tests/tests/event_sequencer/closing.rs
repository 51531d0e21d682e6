//! The clean-up of sequencers: nothing of them is left, whatever their storage does.

use std::{
    sync::{
        Arc, Weak,
        atomic::{AtomicBool, Ordering},
    },
    time::Duration,
};

use isequencer::{CloseError, SequenceStatus, Unflushed, standard::RECORD_ID};
use istorage::SharedStorage;
use seqstorage::PartitionStorage;
use shop::{StallPoint, StallingStorage};
use tck::{
    storage::{Fault, Faulty},
    trial::{Trial, trials},
};

use crate::fixture::{EventsFixture, Leader, NEVER, PATIENCE, Place, STORE, params, workspace};

pub(crate) const TRIALS: &[Trial<EventsFixture>] = trials!(closing:
    closing_stores_the_numbers_and_leaves_no_task = leaves_nothing,
    a_dropped_sequencer_leaves_no_task = dropped,
    closing_ends_at_its_deadline_if_the_recovery_hangs = hangs,
    closing_ends_at_once_if_the_recovery_fails = fails,
    closing_after_the_leadership_was_lost_stores_nothing = lost,
);

/// The time that a storage without answers gets to store the last numbers.
const SHORT: Duration = Duration::from_millis(300);

/// The most time that a busy machine may add.
const LATE: Duration = Duration::from_secs(20);

/// `ISequenceFactory.New: cleanup`.
async fn leaves_nothing(fixture: &EventsFixture) {
    for place in Place::ALL {
        let partition = place.partition();
        let ws = workspace(partition, 1);
        let mut leader = fixture.lead(place, params(NEVER)).partition(partition);
        leader.write(STORE, ws, &[RECORD_ID]).await;
        let unstored = fixture.stored(place, ws).await;
        assert_eq!(unstored, [("sys.PLogOffsetSeq".to_owned(), 0)], "only the recovery stored");
        let (numbers, monitor) = (leader.numbers, leader.sequencer.monitor());
        assert!(numbers.strong_count() > 0);
        leader.sequencer.close(fixture.shop_db.soon()).await.unwrap();
        assert_eq!(numbers.strong_count(), 0, "a task is left");
        assert_eq!(monitor.status(), SequenceStatus::Finished);
        let stored = fixture.stored(place, ws).await;
        assert_eq!(stored[1], ("sys.WLogOffsetSeq".to_owned(), 1));
    }
}

async fn until_gone(fixture: &EventsFixture, numbers: &Weak<PartitionStorage>) {
    let clock = &fixture.shop_db.clock;
    let deadline = clock.now() + PATIENCE;
    while numbers.strong_count() > 0 {
        assert!(clock.now() < deadline, "a task is left");
        clock.sleep(Duration::from_millis(2)).await;
    }
}

/// A sequencer may be dropped in each of its states.
async fn dropped(fixture: &EventsFixture) {
    for place in Place::ALL {
        let partition = place.partition();
        let leadership = fixture.lead(place, params(NEVER));
        let Leader { sequencer, numbers, .. } = leadership.partition(partition);
        drop(sequencer);
        until_gone(fixture, &numbers).await;
        let mut ready = leadership.partition(partition);
        ready.write(STORE, workspace(partition, 1), &[RECORD_ID]).await;
        let Leader { sequencer, numbers, .. } = ready;
        drop(sequencer);
        until_gone(fixture, &numbers).await;
    }
}

async fn hangs(fixture: &EventsFixture) {
    for place in Place::ALL {
        let storage = StallingStorage::new(Arc::clone(&fixture.shop_db.app.storage));
        storage.arm(StallPoint::Before(1));
        let shared = Arc::new(storage.clone()) as SharedStorage;
        let leadership = fixture.lead_over(shared, place, params(NEVER));
        let leader = leadership.partition(place.partition());
        storage.until_still().await;
        let (clock, monitor) = (&fixture.shop_db.clock, leader.sequencer.monitor());
        let start = clock.now();
        let closed = leader.sequencer.close(start + SHORT).await;
        assert_eq!(closed, Err(CloseError::CutOff));
        let took = clock.now() - start;
        assert!(SHORT <= took && took < SHORT + LATE, "{took:?}");
        assert_eq!(leader.numbers.strong_count(), 0, "a task is left");
        assert_eq!(monitor.status(), SequenceStatus::Finished);
    }
}

/// Every call of the storage fails, so the recovery is tried again and again.
async fn fails(fixture: &EventsFixture) {
    for place in Place::ALL {
        let (is_dead, inner) =
            (Arc::new(AtomicBool::new(true)), Arc::clone(&fixture.shop_db.app.storage));
        let dead = Arc::clone(&is_dead);
        let script =
            move |_| if dead.load(Ordering::SeqCst) { Fault::Unavailable } else { Fault::None };
        let faulty = Faulty::scripted(inner, fixture.shop_db.clock.clone(), script);
        let leadership = fixture.lead_over(Arc::new(faulty), place, params(NEVER));
        let leader = leadership.partition(place.partition());
        let monitor = leader.sequencer.monitor();
        let clock = &fixture.shop_db.clock;
        let deadline = clock.now() + PATIENCE;
        while monitor.monitor().last_error().is_none() {
            assert!(clock.now() < deadline, "no error is reported");
            clock.sleep(Duration::from_millis(2)).await;
        }
        let start = clock.now();
        leader.sequencer.close(fixture.shop_db.soon()).await.unwrap();
        assert!(clock.now() - start < LATE);
        assert_eq!(leader.numbers.strong_count(), 0, "a task is left");

        // The storage works again, and so does the next sequencer.
        is_dead.store(false, Ordering::SeqCst);
        let mut next = leadership.partition(place.partition());
        next.write(STORE, workspace(place.partition(), 1), &[RECORD_ID]).await;
        next.sequencer.close(fixture.shop_db.soon()).await.unwrap();
    }
}

/// A leader that lost its lease must not store numbers. The next leader finds them in the log.
async fn lost(fixture: &EventsFixture) {
    for place in Place::ALL {
        let partition = place.partition();
        let ws = workspace(partition, 1);
        let leadership = fixture.lead(place, params(NEVER));
        let mut leader = leadership.partition(partition);
        leader.write(STORE, ws, &[RECORD_ID]).await;
        leadership.fence.lose();
        let clock = &fixture.shop_db.clock;
        let closed = leader.sequencer.close(clock.now() + SHORT).await;
        let unflushed = Unflushed { numbers: 2, events: 1 };
        assert_eq!(closed, Err(CloseError::NotFlushed(unflushed)));
        assert_eq!(leader.numbers.strong_count(), 0, "a task is left");
        assert_eq!(fixture.stored(place, ws).await, [("sys.PLogOffsetSeq".to_owned(), 0)]);
        let mut next = fixture.lead(place, params(NEVER)).partition(partition);
        let numbers = next.write(STORE, ws, &[RECORD_ID]).await;
        assert_eq!((numbers.plog, numbers.wlog), (2, 2));
        next.sequencer.close(fixture.shop_db.soon()).await.unwrap();
    }
}
