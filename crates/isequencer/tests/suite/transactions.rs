//! Tests of transactions: commands that join and leave, and refused calls.

use isequencer::{
    DrawError, JoinError, MemSeqStorage, NumberKey, Params, SeqId, Sequence, SequencerBusy,
    Sequences, WsId, WsKind, standard,
};

use crate::common::{KIND, OTHER, SEQ, WS, command, failing, key, offset, params, sequencer};

#[tokio::test]
async fn commands_of_a_group_see_each_others_numbers() {
    let mem = MemSeqStorage::new();
    let mut sequencer = sequencer(Params { cached_numbers: 0, ..params() }, &mem);
    sequencer.ready().await.unwrap();
    let mut transaction = sequencer.start().unwrap();
    for n in 1..=2 {
        for ws in [1, 2] {
            let mut command = transaction.join(KIND, WsId(ws)).await.unwrap();
            assert_eq!(command.next(SEQ).unwrap(), n);
            assert_eq!(command.keep(), offset(2 * n - 2 + ws));
        }
    }
}

#[tokio::test]
async fn a_command_that_leaves_gives_its_numbers_back() {
    let mem = MemSeqStorage::new();
    let mut sequencer = sequencer(params(), &mem);
    sequencer.ready().await.unwrap();
    let mut transaction = sequencer.start().unwrap();
    let mut first = transaction.join(KIND, WS).await.unwrap();
    assert_eq!((first.next(SEQ), first.next(OTHER)), (Ok(1), Ok(1)));
    assert_eq!(first.keep(), offset(1));
    let mut fails = transaction.join(KIND, WS).await.unwrap();
    assert_eq!((fails.next(SEQ), fails.next(SEQ), fails.next(OTHER)), (Ok(2), Ok(3), Ok(2)));
    drop(fails);
    let mut second = transaction.join(KIND, WS).await.unwrap();
    assert_eq!((second.next(SEQ), second.next(OTHER)), (Ok(2), Ok(2)));
    assert_eq!(second.keep(), offset(2));
}

#[tokio::test]
async fn a_transaction_that_every_command_left_has_no_effect() {
    let mem = MemSeqStorage::new();
    let mut sequencer = sequencer(params(), &mem);
    sequencer.ready().await.unwrap();
    for _ in 0..3 {
        let mut transaction = sequencer.start().unwrap();
        assert_eq!(transaction.join(KIND, WS).await.unwrap().next(SEQ), Ok(1));
        drop(transaction);
    }
    assert_eq!(command(&mut sequencer, &mem, 7).await, 1);
}

/// The owner neither flushed nor actualized the transaction, so the outcome of its events is
/// unknown.
#[tokio::test]
async fn a_transaction_that_is_dropped_or_forgotten_is_actualized() {
    let mem = MemSeqStorage::new();
    let mut sequencer = sequencer(params(), &mem);
    for (round, forget) in [(1, false), (2, true)] {
        sequencer.ready().await.unwrap();
        let mut transaction = sequencer.start().unwrap();
        let mut command = transaction.join(KIND, WS).await.unwrap();
        assert_eq!(command.next(SEQ), Ok(round));
        assert_eq!(mem.append(vec![(key(7), round)]), command.keep());
        if forget {
            std::mem::forget(transaction);
        } else {
            drop(transaction);
        }
        if !forget {
            assert_eq!(sequencer.start().unwrap_err(), SequencerBusy::Actualizing);
        }
    }
    assert_eq!(command(&mut sequencer, &mem, 7).await, 3);
}

#[tokio::test]
async fn a_transaction_is_full_when_as_many_numbers_are_drawn_as_may_wait() {
    let mem = MemSeqStorage::new();
    let mut sequencer = sequencer(params(), &mem);
    sequencer.ready().await.unwrap();
    let mut transaction = sequencer.start().unwrap();
    for ws in 1..=5 {
        let mut command = transaction.join(KIND, WsId(ws)).await.unwrap();
        command.next(SEQ).unwrap();
        assert_eq!(command.keep(), offset(ws));
    }
    let full = transaction.join(KIND, WsId(6)).await.unwrap_err();
    assert!(matches!(full, JoinError::Full), "{full}");
}

/// If no number waits to be stored, one command may draw more numbers than the limit of unflushed
/// numbers.
#[tokio::test]
async fn a_lone_command_is_always_admitted() {
    let mem = MemSeqStorage::new();
    let max_unflushed = std::num::NonZeroUsize::MIN;
    let mut sequencer = sequencer(Params { max_unflushed, ..params() }, &mem);
    for n in 1..=5 {
        sequencer.ready().await.unwrap();
        let mut transaction = sequencer.start().unwrap();
        let mut command = transaction.join(KIND, WsId(n)).await.unwrap();
        assert_eq!((command.next(SEQ), command.next(OTHER)), (Ok(1), Ok(1)));
        let keys = [SEQ, OTHER].map(|seq| (NumberKey { ws: WsId(n), seq }, 1));
        assert_eq!(mem.append(keys.to_vec()), command.keep());
        transaction.flush();
    }
}

#[tokio::test]
async fn an_undeclared_kind_or_sequence_is_refused() {
    let mem = MemSeqStorage::new();
    let mut sequencer = sequencer(params(), &mem);
    sequencer.ready().await.unwrap();
    let mut transaction = sequencer.start().unwrap();
    let unknown = transaction.join(WsKind(9), WS).await.unwrap_err();
    assert!(matches!(unknown, JoinError::UnknownKind(WsKind(9))), "{unknown}");
    let mut command = transaction.join(KIND, WS).await.unwrap();
    let seq = SeqId(9);
    assert_eq!(command.next(seq), Err(DrawError::UnknownSequence { kind: KIND, seq }));
    assert_eq!(command.next(SEQ), Ok(1));
}

/// A sequence of an application goes through its ranges, and then ends.
#[tokio::test]
async fn a_sequence_never_leaves_its_ranges() {
    let mem = MemSeqStorage::new();
    let mut sequences = standard::sequences();
    sequences.push(Sequence::new(standard::FIRST_OF_APPLICATIONS, [10..12, 20..21]).unwrap());
    let sequences = Sequences::new().with(KIND, sequences).unwrap();
    let mut sequencer = sequencer(Params { sequences, ..params() }, &mem);
    sequencer.ready().await.unwrap();
    let mut transaction = sequencer.start().unwrap();
    let mut command = transaction.join(KIND, WS).await.unwrap();
    let seq = standard::FIRST_OF_APPLICATIONS;
    assert_eq!([(); 3].map(|()| command.next(seq)), [Ok(10), Ok(11), Ok(20)]);
    let end = DrawError::Exhausted { ws: WS, seq, last: 20 };
    assert_eq!([(); 2].map(|()| command.next(seq)), [Err(end); 2]);
    assert_eq!(command.next(standard::WLOG_OFFSET), Ok(1));
    assert_eq!(command.next(standard::RECORD_ID), Ok(322_680_000_131_072));
    assert_eq!(command.next(standard::CRECORD_ID), Ok(322_685_000_131_072));
}

/// No number follows the last id of a record. The first id of a collection does not follow it
/// either.
#[tokio::test]
async fn ids_of_records_end_before_those_of_collections() {
    let mem = MemSeqStorage::new();
    let last = standard::FIRST_CRECORD_ID - 1;
    mem.append(vec![(NumberKey { ws: WS, seq: standard::RECORD_ID }, last)]);
    let sequences = Sequences::new().with(KIND, standard::sequences()).unwrap();
    let mut sequencer = sequencer(Params { sequences, ..params() }, &mem);
    sequencer.ready().await.unwrap();
    let mut transaction = sequencer.start().unwrap();
    let mut command = transaction.join(KIND, WS).await.unwrap();
    let end = DrawError::Exhausted { ws: WS, seq: standard::RECORD_ID, last };
    assert_eq!(command.next(standard::RECORD_ID), Err(end));
}

#[tokio::test]
async fn unflushed_numbers_count_when_a_transaction_fills() {
    let mem = MemSeqStorage::new();
    let (hooked, fails) = failing(&mem);
    let mut sequencer = sequencer(params(), &hooked);
    sequencer.ready().await.unwrap();
    fails.store(true, std::sync::atomic::Ordering::Release);
    for ws in 1..=4 {
        command(&mut sequencer, &mem, ws).await;
    }
    let mut transaction = sequencer.start().unwrap();
    let mut command = transaction.join(KIND, WsId(9)).await.unwrap();
    command.next(SEQ).unwrap();
    assert_eq!(command.keep(), offset(5));
    let full = transaction.join(KIND, WsId(10)).await.unwrap_err();
    assert!(matches!(full, JoinError::Full), "{full}");
}

/// The command was neither kept nor dropped.
#[tokio::test]
async fn a_command_that_is_forgotten_gives_its_numbers_back() {
    for flushes in [false, true] {
        let mem = MemSeqStorage::new();
        let mut sequencer = sequencer(params(), &mem);
        sequencer.ready().await.unwrap();
        let mut transaction = sequencer.start().unwrap();
        let mut forgotten = transaction.join(KIND, WS).await.unwrap();
        assert_eq!(forgotten.next(SEQ), Ok(1));
        std::mem::forget(forgotten);
        let mut other = transaction.join(KIND, WsId(8)).await.unwrap();
        assert_eq!(other.next(SEQ), Ok(1));
        drop(other);
        let mut forgotten = transaction.join(KIND, WS).await.unwrap();
        assert_eq!(forgotten.next(SEQ), Ok(1));
        std::mem::forget(forgotten);
        if flushes {
            transaction.flush();
        } else {
            drop(transaction);
        }
        assert_eq!(command(&mut sequencer, &mem, 7).await, 1);
    }
}

/// The crate, the node and the table of `docs/operations.md` have the same defaults. The table says
/// why the delay of the flush is not that of the specification.
#[test]
fn the_default_parameters_are_the_documented_ones() {
    let Params { max_unflushed, cached_numbers, flush_delay, retry_after, .. } =
        Params::new("1", Sequences::new());
    assert_eq!((max_unflushed.get(), cached_numbers), (500, 100_000));
    assert_eq!((flush_delay.as_millis(), retry_after.as_millis()), (100, 500));
}
