//! Tests of the log lines of a keeper.

#![allow(clippy::unwrap_used)]

mod common;

use std::{
    sync::{Arc, Mutex},
    time::Duration,
};

use async_trait::async_trait;
use clock::ManualClock;
use common::params;
use futures::{StreamExt, stream, stream::BoxStream};
use isequencer::{
    LoggedEvent, NumberKey, Offset, Params, SeqId, SeqStorage, Sequencer, StorageError, WsId,
};
use trialkit::LogLines;

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

#[tokio::test]
async fn an_error_is_logged_with_its_causes_when_it_begins_changes_and_ends() {
    let (lines, _lines) = LogLines::of_this_thread();
    let (storage, manual) = (Arc::new(FailingStorage::default()), ManualClock::new(1));
    let params = Params { retry_after: Duration::from_millis(500), ..params() };
    let mut sequencer = Sequencer::new(params, Arc::clone(&storage) as _, manual.clock());
    for why in ["the disk is full", "the disk is gone"] {
        storage.set(Some(why));
        for _ in 0..3 {
            others_run().await;
            manual.advance(Duration::from_millis(500));
        }
    }
    storage.set(None);
    others_run().await;
    manual.advance(Duration::from_millis(500));
    sequencer.ready().await.unwrap();
    let began = |why| {
        let causes = "sequencer storage error: the outcome is unknown";
        format!(
            "WARN sequencer storage error partition=\"1\" task=\"read the log\" retry_after=500ms error=\"{causes}: {why}\""
        )
    };
    let expected = [
        began("the disk is full"),
        began("the disk is gone"),
        "INFO sequencer storage works again partition=\"1\" task=\"read the log\"".to_owned(),
    ];
    assert_eq!(lines.all(), expected);
}
