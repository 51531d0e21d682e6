//! The wrappers for deadlines and faults, and settling an unknown outcome.

use std::{
    sync::{Arc, Mutex},
    time::Duration,
};

use crate::fixture::Fixture;
use bytes::Bytes;
use clock::Instant;
use futures::{StreamExt, TryStreamExt};
use istorage::{
    AppStorage, AppStorageExt, CallKind, Conditional, Consistency, ErrorKind, Guarded, Key,
    Outcome, Put, Range, SharedStorage,
    settle::{SettleLimits, write_if_settled},
};
use tck::storage::{Fault, FaultRates, Faulty};

fn key(ccols: &'static str) -> Key {
    Key::new("p", ccols)
}

fn insert(ccols: &'static str, value: &'static str) -> Vec<Conditional> {
    vec![Conditional::Insert { ccols: ccols.into(), value: value.into(), ttl: None }]
}

fn scripted(fixture: &Fixture, faults: &[Fault]) -> Arc<Faulty> {
    let (faults, mut calls) = (faults.to_vec(), 0..);
    let script = move |_| {
        calls.next().and_then(|call: usize| faults.get(call).copied()).unwrap_or(Fault::None)
    };
    Arc::new(Faulty::scripted(Arc::clone(&fixture.storage), fixture.clock.clone(), script))
}

fn guarded(fixture: &Fixture, inner: &Arc<Faulty>) -> SharedStorage {
    Arc::new(Guarded::new(Arc::clone(inner) as SharedStorage, fixture.clock.clone()))
}

#[tokio::test]
async fn a_write_that_hangs_ends_at_its_deadline_with_an_unknown_outcome() {
    let fixture = Fixture::new().await;
    let storage = guarded(&fixture, &scripted(&fixture, &[Fault::Hang]));
    let write = storage.write_if("p".into(), insert("a", "1"), fixture.soon());
    let passes = async { fixture.manual.advance(Duration::from_secs(1)) };
    let (answer, ()) = tokio::join!(write, passes);
    assert_eq!(answer.unwrap_err().kind(), ErrorKind::OutcomeUnknown);
}

#[tokio::test]
async fn a_read_that_hangs_is_unavailable_at_its_deadline() {
    let fixture = Fixture::new().await;
    let storage = guarded(&fixture, &scripted(&fixture, &[Fault::Hang, Fault::Hang]));
    let key = key("a");
    let get = storage.get(&key, Consistency::Plain, fixture.soon());
    let mut rows =
        storage.read("p".into(), Range::all(), Consistency::Plain, Duration::from_secs(1));
    let passes = async { fixture.manual.advance(Duration::from_secs(1)) };
    let (value, row, ()) = tokio::join!(get, rows.next(), passes);
    assert_eq!(value.unwrap_err().kind(), ErrorKind::Unavailable);
    assert_eq!(row.unwrap().unwrap_err().kind(), ErrorKind::Unavailable);
    assert!(rows.next().await.is_none());
}

#[tokio::test]
async fn a_call_after_its_deadline_sends_nothing() {
    let fixture = Fixture::new().await;
    let answer = fixture.storage.put(key("a"), "1".into(), fixture.clock.now()).await;
    assert_eq!(answer.unwrap_err().kind(), ErrorKind::Unavailable);
    assert_eq!(
        fixture.storage.get(&key("a"), Consistency::Plain, fixture.soon()).await.unwrap(),
        None
    );
}

#[tokio::test]
async fn an_answer_after_the_deadline_does_not_count() {
    let fixture = Fixture::new().await;
    let storage = guarded(&fixture, &scripted(&fixture, &[Fault::ReplyAfterDeadline]));
    let write = storage.write_if("p".into(), insert("a", "1"), fixture.soon());
    let passes = async { fixture.manual.advance(Duration::from_secs(1)) };
    let (answer, ()) = tokio::join!(write, passes);
    assert_eq!(answer.unwrap_err().kind(), ErrorKind::OutcomeUnknown);
    assert_eq!(
        fixture.storage.get(&key("a"), Consistency::Plain, fixture.soon()).await.unwrap(),
        Some("1".into())
    );
}

#[tokio::test]
async fn the_last_of_several_writes_of_a_row_counts() {
    let fixture = Fixture::new().await;
    let put = |ccols, value: &'static str| Put { key: key(ccols), value: Bytes::from(value) };
    let rows = vec![put("a", "1"), put("b", "1"), put("a", "2"), put("a", "3")];
    fixture.storage.put_batch(rows, fixture.soon()).await.unwrap();
    let stored = fixture.storage.get_values(&[key("a"), key("b")], fixture.soon()).await.unwrap();
    assert_eq!(stored, [Some("3".into()), Some("1".into())]);
}

async fn settle(
    fixture: &Fixture,
    storage: &dyn AppStorage,
    value: &'static str,
) -> istorage::Result<Outcome> {
    let limits = SettleLimits {
        call_timeout: Duration::from_millis(100),
        until: fixture.clock.now() + Duration::from_secs(1),
    };
    let settled = write_if_settled(storage, &fixture.clock, "p".into(), insert("a", value), limits);
    let passes = async {
        for _ in 0..2_000 {
            fixture.manual.advance(Duration::from_millis(1));
            tokio::task::yield_now().await;
        }
    };
    tokio::select! {
        biased;
        outcome = settled => outcome,
        () = passes => panic!("not settled after twice the time allowed"),
    }
}

#[tokio::test]
async fn an_unknown_outcome_is_settled_whether_or_not_the_write_was_applied() {
    for faults in [
        vec![Fault::AppliedButError],
        vec![Fault::NotAppliedButError, Fault::NotAppliedButError],
        vec![Fault::AppliedLate(Duration::from_millis(1))],
        // A caller that trusted a first read would have found no row and given up. The write lands
        // after that.
        vec![Fault::AppliedLate(Duration::from_millis(30)), Fault::NotAppliedButError],
        vec![Fault::ReplyAfterDeadline],
        // The resend has no fault and settles the write. If settling judged the outcome by a read
        // of its own, it would also meet the two faults after that.
        vec![
            Fault::AppliedButError,
            Fault::None,
            Fault::NotAppliedButError,
            Fault::AppliedButError,
        ],
    ] {
        let fixture = Fixture::new().await;
        let faulty = scripted(&fixture, &faults);
        let storage = guarded(&fixture, &faulty);
        assert_eq!(
            settle(&fixture, &*storage, "mine").await.unwrap(),
            Outcome::Applied,
            "{faults:?}"
        );
        for late in faulty.land_late_writes().await {
            assert!(!late.unwrap().is_applied(), "{faults:?}");
        }
        let stored =
            fixture.storage.get(&key("a"), Consistency::Plain, fixture.soon()).await.unwrap();
        assert_eq!(stored, Some("mine".into()), "{faults:?}");
    }
}

#[tokio::test]
async fn an_insert_that_lost_against_another_client_is_settled_as_not_applied() {
    let fixture = Fixture::new().await;
    let theirs =
        fixture.storage.write_if("p".into(), insert("a", "theirs"), fixture.soon()).await.unwrap();
    assert!(theirs.is_applied());
    let storage = scripted(&fixture, &[Fault::NotAppliedButError]);
    let outcome = settle(&fixture, &*storage, "mine").await.unwrap();
    assert!(
        matches!(outcome, Outcome::NotApplied(conflicts) if conflicts[0].actual == Some("theirs".into()))
    );
}

/// Settling once judged the outcome by reading the rows again. A client raised a counter, and the
/// write was applied without an answer. Another client raised the counter before the read. The
/// first client took its own write for not applied, and raised the counter twice. So the resend
/// alone decides, by the rows that conflict with it.
#[tokio::test]
async fn an_unknown_outcome_is_judged_by_the_resend_alone() {
    let fixture = Fixture::new().await;
    let calls = Arc::new(Mutex::new(Vec::new()));
    let seen = Arc::clone(&calls);
    let script = move |kind| {
        seen.lock().unwrap().push(kind);
        if seen.lock().unwrap().len() == 1 { Fault::AppliedButError } else { Fault::None }
    };
    let storage = Faulty::scripted(Arc::clone(&fixture.storage), fixture.clock.clone(), script);
    assert_eq!(settle(&fixture, &storage, "mine").await.unwrap(), Outcome::Applied);
    assert_eq!(*calls.lock().unwrap(), [CallKind::WriteIf, CallKind::WriteIf]);
}

#[tokio::test]
async fn no_attempt_is_sent_that_could_end_after_the_limit() {
    let fixture = Fixture::new().await;
    let now = fixture.clock.now();
    let limits = SettleLimits {
        call_timeout: Duration::from_millis(11),
        until: now + Duration::from_millis(10),
    };
    let settled =
        write_if_settled(&*fixture.storage, &fixture.clock, "p".into(), insert("a", "1"), limits)
            .await;
    assert_eq!(settled.unwrap_err().kind(), ErrorKind::Unavailable);
    assert_eq!(
        fixture.storage.get(&key("a"), Consistency::Plain, fixture.soon()).await.unwrap(),
        None
    );
}

#[tokio::test]
async fn a_delete_that_was_applied_without_an_answer_is_applied() {
    let fixture = Fixture::new().await;
    assert!(
        fixture
            .storage
            .write_if("p".into(), insert("a", "1"), fixture.soon())
            .await
            .unwrap()
            .is_applied()
    );
    let storage = scripted(&fixture, &[Fault::AppliedButError]);
    let delete = vec![Conditional::Delete { ccols: "a".into(), old: "1".into() }];
    let limits = SettleLimits {
        call_timeout: Duration::from_millis(10),
        until: fixture.clock.now() + Duration::from_secs(1),
    };
    let settled = write_if_settled(&*storage, &fixture.clock, "p".into(), delete, limits);
    let (outcome, ()) =
        tokio::join!(settled, async { fixture.manual.advance(Duration::from_millis(5)) });
    assert_eq!(outcome.unwrap(), Outcome::Applied);
}

#[tokio::test]
async fn a_batch_may_repeat_a_key_or_be_empty() {
    let fixture = Fixture::new().await;
    fixture.storage.put(key("a"), "1".into(), fixture.soon()).await.unwrap();
    let keys = [key("b"), key("a"), key("b"), key("a")];
    let stored = fixture.storage.get_values(&keys, fixture.soon()).await.unwrap();
    assert_eq!(stored, [None, Some("1".into()), None, Some("1".into())]);
    assert!(fixture.storage.get_values(&[], fixture.soon()).await.unwrap().is_empty());
    assert!(
        fixture
            .storage
            .write_if("p".into(), Vec::new(), fixture.soon())
            .await
            .unwrap()
            .is_applied()
    );
    let no_partition = fixture.storage.write_if("".into(), Vec::new(), fixture.soon()).await;
    assert_eq!(no_partition.unwrap_err().kind(), ErrorKind::Invalid);
}

#[tokio::test]
async fn a_write_that_is_not_settled_in_time_stays_unknown() {
    let fixture = Fixture::new().await;
    let storage = scripted(&fixture, &[Fault::NotAppliedButError; 1_000]);
    assert_eq!(
        settle(&fixture, &*storage, "mine").await.unwrap_err().kind(),
        ErrorKind::OutcomeUnknown
    );
}

#[tokio::test]
async fn a_refused_attempt_is_not_repeated() {
    let fixture = Fixture::new().await;
    fixture.storage.close().await;
    assert_eq!(
        settle(&fixture, &*fixture.storage, "mine").await.unwrap_err().kind(),
        ErrorKind::Closed
    );
}

#[tokio::test]
async fn the_same_seed_gives_the_same_faults() {
    let rates = FaultRates {
        applied_but_error: 200,
        not_applied_but_error: 200,
        applied_late: 200,
        delay: Duration::from_millis(5),
        ..FaultRates::default()
    };
    let mut runs = Vec::new();
    for seed in [1, 1, 2] {
        let fixture = Fixture::new().await;
        let storage =
            Faulty::seeded(Arc::clone(&fixture.storage), fixture.clock.clone(), seed, rates);
        let mut answers = Vec::new();
        for n in 0..100_u8 {
            let key = Key::new("p", vec![n]);
            let answer = storage.insert_if_not_exists(key, "v".into(), None, fixture.soon()).await;
            answers.push(answer.map_err(|error| error.to_string()));
            fixture.manual.advance(Duration::from_millis(1));
        }
        storage.land_late_writes().await;
        let rows = fixture.storage.read(
            "p".into(),
            Range::all(),
            Consistency::Plain,
            Duration::from_secs(1),
        );
        runs.push((answers, rows.try_collect::<Vec<_>>().await.unwrap()));
    }
    assert_eq!(runs[0], runs[1]);
    assert_ne!(runs[0], runs[2]);
}

#[tokio::test]
async fn every_kind_of_call_has_its_own_name() {
    let names: std::collections::HashSet<_> =
        CallKind::ALL.iter().map(|kind| kind.name()).collect();
    assert_eq!(names.len(), CallKind::ALL.len());
    assert!(CallKind::ALL.iter().enumerate().all(|(index, kind)| *kind as usize == index));
}

#[tokio::test]
async fn calls_after_close_are_closed_even_within_a_stream() {
    let fixture = Fixture::new().await;
    let put = |n: u16| Put { key: Key::new("p", n.to_be_bytes().to_vec()), value: "v".into() };
    fixture.storage.put_batch((0..1_000).map(put).collect(), fixture.soon()).await.unwrap();
    let mut rows =
        fixture.storage.read("p".into(), Range::all(), Consistency::Plain, Duration::from_secs(1));
    assert!(rows.next().await.unwrap().is_ok());
    fixture.storage.close().await;
    assert_eq!(rows.next().await.unwrap().unwrap_err().kind(), ErrorKind::Closed);
    assert!(rows.next().await.is_none());
    let get = fixture.storage.get(&key("a"), Consistency::Plain, Instant::FAR_FUTURE).await;
    assert_eq!(get.unwrap_err().kind(), ErrorKind::Closed);
}

/// A row that is only renewed is no conflict. This once hid that the delete beside it had been
/// done.
#[tokio::test]
async fn a_delete_beside_a_renewal_is_settled_by_its_absent_row() {
    let fixture = Fixture::new().await;
    for row in ["a", "b"] {
        let insert =
            fixture.storage.insert_if_not_exists(key(row), "1".into(), None, Instant::FAR_FUTURE);
        assert!(insert.await.unwrap().is_applied());
    }
    let storage = scripted(&fixture, &[Fault::AppliedButError]);
    let ttl = Some(Duration::from_secs(60));
    let ops = vec![
        Conditional::Delete { ccols: "a".into(), old: "1".into() },
        Conditional::Swap { ccols: "b".into(), old: "1".into(), new: "1".into(), ttl },
    ];
    let until = fixture.clock.now() + Duration::from_secs(10);
    let limits = SettleLimits { call_timeout: Duration::from_secs(1), until };
    let settled = write_if_settled(&*storage, &fixture.clock, "p".into(), ops, limits);
    let passing = async {
        loop {
            fixture.manual.advance(Duration::from_millis(1));
            tokio::task::yield_now().await;
        }
    };
    let outcome = tokio::select! { outcome = settled => outcome, () = passing => unreachable!() };
    assert!(outcome.unwrap().is_applied());
}

/// A refusal says that its own attempt wrote nothing. It says nothing about an earlier attempt,
/// which may still land.
#[tokio::test]
async fn a_refusal_after_an_unanswered_attempt_settles_nothing() {
    let fixture = Fixture::new().await;
    let storage = scripted(&fixture, &[Fault::AppliedButError, Fault::Unavailable]);
    let insert = Conditional::Insert { ccols: "a".into(), value: "1".into(), ttl: None };
    let until = fixture.clock.now() + Duration::from_secs(10);
    let limits = SettleLimits { call_timeout: Duration::from_secs(1), until };
    let settled = write_if_settled(&*storage, &fixture.clock, "p".into(), vec![insert], limits);
    let passing = async {
        loop {
            fixture.manual.advance(Duration::from_millis(1));
            tokio::task::yield_now().await;
        }
    };
    let outcome = tokio::select! { outcome = settled => outcome, () = passing => unreachable!() };
    assert!(outcome.unwrap().is_applied());
}
