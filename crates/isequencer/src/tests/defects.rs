//! Proof that the simulation finds each mistake.

use std::{panic, sync::Arc};

use async_trait::async_trait;
use futures::stream::BoxStream;
use shuttle::future::block_on;

use super::simulation::{Faults, history};
use crate::{
    LoggedEvent, MemSeqStorage, NumberKey, Offset, SeqId, SeqStorage, StorageError, WsId,
    defect::{self, SequencerDefect},
};

const SCHEDULES: usize = 20_000;

/// The simulation that finds the mistakes finds nothing without a mistake.
#[test]
fn without_a_defect_the_simulation_finds_nothing() {
    assert!(!is_found(|mem| Arc::new(mem), 2_000));
}

fn is_found(storage: fn(MemSeqStorage) -> Arc<dyn SeqStorage>, schedules: usize) -> bool {
    let faults = Faults { fail_percent: 15, dies_within: Some(40) };
    let one = move || block_on(history(faults, 3, storage));
    panic::catch_unwind(|| shuttle::check_random_with_seed(one, 1, schedules)).is_err()
}

#[track_caller]
fn assert_finds(mistake: SequencerDefect) {
    defect::put_back(Some(mistake));
    let found = is_found(|mem| Arc::new(mem), SCHEDULES);
    defect::put_back(None);
    assert!(found, "{mistake:?} is not found");
}

#[test]
fn unflushed_numbers_that_are_read_too_late_are_found() {
    assert_finds(SequencerDefect::UnflushedReadTooLate);
}

#[test]
fn numbers_that_are_forgotten_during_a_flush_are_found() {
    assert_finds(SequencerDefect::ForgottenDuringFlush);
}

#[test]
fn draws_of_the_open_transaction_that_are_forgotten_are_found() {
    assert_finds(SequencerDefect::OpenDrawsForgotten);
}

#[test]
fn numbers_that_are_not_given_back_are_found() {
    assert_finds(SequencerDefect::NumbersNotGivenBack);
}

#[test]
fn an_offset_that_is_raised_before_its_numbers_is_found() {
    assert_finds(SequencerDefect::OffsetBeforeNumbers);
}

#[test]
fn a_write_that_is_made_again_with_a_later_offset_is_found() {
    assert_finds(SequencerDefect::RetryWithLaterOffset);
}

#[test]
fn a_cache_that_is_kept_when_the_log_is_read_is_found() {
    assert_finds(SequencerDefect::CacheNotCleared);
}

#[test]
fn a_cache_that_does_not_check_the_kind_is_found() {
    assert_finds(SequencerDefect::KindNotChecked);
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
fn a_storage_that_writes_the_offset_first_is_found() {
    assert!(is_found(|mem| Arc::new(OffsetFirst(mem)), SCHEDULES));
}

/// In this storage a write that lands late replaces values that were stored in the meantime.
#[test]
fn a_storage_whose_numbers_go_down_is_found() {
    assert!(is_found(|mem| Arc::new(mem.with_decreasing_numbers()), SCHEDULES));
}
