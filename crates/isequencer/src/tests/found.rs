//! Proof that the simulation finds each mistake.

use std::{panic, sync::Arc};

use async_trait::async_trait;
use futures::stream::BoxStream;
use shuttle::future::block_on;

use super::world::{Weather, history};
use crate::{
    LoggedEvent, MemSeqStorage, NumberKey, Offset, SeqId, SeqStorage, StorageError, WsId,
    defect::{self, Defect},
};

const SCHEDULES: usize = 20_000;

/// The simulation that finds the mistakes finds nothing without a mistake.
#[test]
fn nothing_where_there_is_no_mistake() {
    assert!(!is_found(|mem| Arc::new(mem), 2_000));
}

fn is_found(storage: fn(MemSeqStorage) -> Arc<dyn SeqStorage>, schedules: usize) -> bool {
    let weather = Weather { fails: 15, dies_within: Some(40) };
    let one = move || block_on(history(weather, 3, storage));
    panic::catch_unwind(|| shuttle::check_random_with_seed(one, 1, schedules)).is_err()
}

#[track_caller]
fn finds(mistake: Defect) {
    defect::put_back(Some(mistake));
    let found = is_found(|mem| Arc::new(mem), SCHEDULES);
    defect::put_back(None);
    assert!(found, "{mistake:?} is not found");
}

#[test]
fn waiting_numbers_asked_for_too_late() {
    finds(Defect::AskedTooLate);
}

#[test]
fn numbers_forgotten_while_they_are_stored() {
    finds(Defect::ForgottenWhileStored);
}

#[test]
fn draws_of_the_open_transaction_forgotten() {
    finds(Defect::ForgottenDraws);
}

#[test]
fn nothing_given_back_by_who_leaves() {
    finds(Defect::NothingGivenBack);
}

#[test]
fn the_offset_raised_before_the_numbers() {
    finds(Defect::OffsetFirst);
}

#[test]
fn a_write_made_again_with_a_later_offset() {
    finds(Defect::LaterOffset);
}

#[test]
fn the_cache_kept_when_the_log_is_read() {
    finds(Defect::CacheKept);
}

#[test]
fn a_workspace_found_whatever_its_kind() {
    finds(Defect::AnyKind);
}

/// A storage with a mistake: it writes the offset before the numbers. A crash between the two
/// writes loses numbers.
#[derive(Debug)]
struct OffsetFirst(MemSeqStorage);

#[async_trait]
impl SeqStorage for OffsetFirst {
    async fn read_numbers(&self, ws: WsId, seqs: &[SeqId]) -> Result<Vec<u64>, StorageError> {
        self.0.read_numbers(ws, seqs).await
    }

    async fn next_offset(&self) -> Result<Offset, StorageError> {
        self.0.next_offset().await
    }

    async fn write(&self, numbers: &[(NumberKey, u64)], next: Offset) -> Result<(), StorageError> {
        self.0.write(&[], next).await?;
        self.0.write(numbers, Offset::FIRST).await
    }

    fn events(&self, from: Offset) -> BoxStream<'_, Result<LoggedEvent, StorageError>> {
        self.0.events(from)
    }
}

#[test]
fn a_storage_that_writes_the_offset_first() {
    assert!(is_found(|mem| Arc::new(OffsetFirst(mem)), SCHEDULES));
}

/// In this storage a write that lands late replaces values that were stored in the meantime.
#[test]
fn a_storage_whose_numbers_go_down() {
    assert!(is_found(|mem| Arc::new(mem.that_goes_down()), SCHEDULES));
}
