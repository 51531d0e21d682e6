//! Tests of the log lines of a keeper.

use std::{
    sync::{Arc, Mutex},
    time::Duration,
};

use async_trait::async_trait;
use clock::ManualClock;
use futures::{StreamExt, stream, stream::BoxStream};
use isequencer::{
    LoggedEvent, NumberKey, Offset, Params, SeqId, SeqStorage, Sequencer, StorageError, WsId,
};
use tck::trial::LogLines;

use crate::common::{KIND, SEQ, WS, offset, params};

const RETRY_AFTER: Duration = Duration::from_millis(500);

#[derive(Debug, thiserror::Error)]
#[error("the outcome is unknown")]
struct OutcomeUnknown(#[source] std::io::Error);

/// A storage for tests. Its writes fail with this text, or succeed if there is none.
#[derive(Debug, Default)]
struct FailingStorage(Mutex<Option<&'static str>>);

impl FailingStorage {
    fn set(&self, why: Option<&'static str>) {
        *self.0.lock().unwrap() = why;
    }
}

#[async_trait]
impl SeqStorage for FailingStorage {
    async fn read_numbers(&self, _: WsId, seqs: &[SeqId]) -> Result<Vec<u64>, StorageError> {
        Ok(vec![0; seqs.len()])
    }

    async fn next_offset(&self) -> Result<Offset, StorageError> {
        Ok(Offset::FIRST)
    }

    async fn write(&self, _: &[(NumberKey, u64)], _: Offset) -> Result<(), StorageError> {
        match *self.0.lock().unwrap() {
            Some(why) => Err(StorageError(Box::new(OutcomeUnknown(std::io::Error::other(why))))),
            None => Ok(()),
        }
    }

    fn events(&self, _: Offset) -> BoxStream<'_, Result<LoggedEvent, StorageError>> {
        stream::empty().boxed()
    }
}

async fn others_run() {
    for _ in 0..100 {
        tokio::task::yield_now().await;
    }
}

/// Lets a storage fail for two reasons, each for three tries, and then work again.
async fn fail_twice(storage: &FailingStorage, manual: &ManualClock) {
    for why in ["the disk is full", "the disk is gone"] {
        storage.set(Some(why));
        for _ in 0..3 {
            others_run().await;
            manual.advance(RETRY_AFTER);
        }
    }
    storage.set(None);
    others_run().await;
    manual.advance(RETRY_AFTER);
    others_run().await;
}

/// The lines of these failures.
fn lines_of(task: &str) -> [String; 3] {
    let place = format!("partition=\"1\" task=\"{task}\"");
    let began = |why| {
        let error = format!("sequencer storage error: the outcome is unknown: {why}");
        format!("WARN sequencer storage error {place} retry_after=500ms error=\"{error}\"")
    };
    [
        began("the disk is full"),
        began("the disk is gone"),
        format!("INFO sequencer storage works again {place}"),
    ]
}

#[tokio::test]
async fn an_error_is_logged_with_its_causes_when_it_begins_changes_and_ends() {
    let (lines, _lines) = LogLines::of_this_thread();
    let (storage, manual) = (Arc::new(FailingStorage::default()), ManualClock::new(1));
    let params = Params { retry_after: RETRY_AFTER, ..params() };
    let mut sequencer = Sequencer::new(params, Arc::clone(&storage) as _, manual.clock());
    fail_twice(&storage, &manual).await;
    sequencer.ready().await.unwrap();
    assert_eq!(lines.all(), lines_of("read the log"));
}

#[tokio::test]
async fn an_error_of_a_later_write_is_logged_like_one_of_a_recovery() {
    let (lines, _lines) = LogLines::of_this_thread();
    let (storage, manual) = (Arc::new(FailingStorage::default()), ManualClock::new(1));
    let params = Params { retry_after: RETRY_AFTER, ..params() };
    let mut sequencer = Sequencer::new(params, Arc::clone(&storage) as _, manual.clock());
    sequencer.ready().await.unwrap();
    storage.set(Some("the disk is full"));
    let mut transaction = sequencer.start().unwrap();
    let mut joined = transaction.join(KIND, WS).await.unwrap();
    joined.next(SEQ).unwrap();
    assert_eq!(joined.keep(), offset(1));
    transaction.flush();
    fail_twice(&storage, &manual).await;
    assert_eq!(lines.all(), lines_of("store numbers"));
}
