//! A sequencer draws, gives back and loses numbers exactly like a simple model of ten lines.

use std::{collections::HashMap, iter, ops::Range};

use fastrand::Rng;
use isequencer::{
    DrawError, MemSeqStorage, NumberKey, Params, SeqId, Sequence, Sequencer, Sequences, WsId,
    WsKind,
};

use crate::common::{KIND, params, sequencer};

const OTHER_KIND: WsKind = WsKind(2);

/// Returns the ranges of a sequence of a kind; `None` if the sequence is not declared.
fn declared(kind: WsKind, seq: SeqId) -> Option<Vec<Range<u64>>> {
    match (kind, seq.0) {
        (KIND, 1) => Some(iter::once(1..u64::MAX >> 2).collect()),
        (KIND, 2) => Some(vec![5..8, 8..9, 20..40]),
        (OTHER_KIND, 2) => Some(iter::once(3..6).collect()),
        (OTHER_KIND, 3) => Some(vec![7..9, 100..200]),
        _ => None,
    }
}

/// The model of ten lines.
#[derive(Clone, Default)]
struct Model(HashMap<NumberKey, u64>);

impl Model {
    fn next(&mut self, key: NumberKey, ranges: &[Range<u64>]) -> Option<u64> {
        let last = self.0.get(&key).copied().unwrap_or(0);
        let next = ranges.iter().flat_map(Clone::clone).find(|number| *number > last)?;
        self.0.insert(key, next);
        Some(next)
    }
}

fn params_of(random: &mut Rng) -> Params {
    let mut sequences = Sequences::new();
    for kind in [KIND, OTHER_KIND] {
        let all = (0..10).map(SeqId).filter_map(|seq| Some((seq, declared(kind, seq)?)));
        let all = all.map(|(seq, ranges)| Sequence::new(seq, ranges).unwrap());
        sequences = sequences.with(kind, all).unwrap();
    }
    Params { sequences, cached_numbers: random.usize(0..12), ..params() }
}

/// Runs one transaction, and compares it with the model.
async fn transaction(
    sequencer: &mut Sequencer,
    mem: &MemSeqStorage,
    written: &mut Model,
    random: &mut Rng,
) {
    sequencer.ready().await.unwrap();
    let mut transaction = sequencer.start().unwrap();
    let (mut model, mut events) = (written.clone(), Vec::new());
    for _ in 0..random.usize(1..4) {
        let (ws, kind) = (random.u64(0..4), if random.bool() { KIND } else { OTHER_KIND });
        // A workspace never changes its kind.
        let ws = WsId(2 * ws + u64::from(kind == KIND));
        let Ok(mut command) = transaction.join(kind, ws).await else { break };
        let mut drawn = model.clone();
        for _ in 0..random.usize(0..4) {
            let seq = SeqId(random.u16(0..5));
            let key = NumberKey { ws, seq };
            let drawn_number = command.next(seq);
            let expected = match declared(kind, seq) {
                None => Err(DrawError::UnknownSequence { kind, seq }),
                Some(ranges) => drawn.next(key, &ranges).ok_or_else(|| DrawError::Exhausted {
                    ws,
                    seq,
                    last: drawn.0[&key],
                }),
            };
            assert_eq!(drawn_number, expected);
        }
        if random.u32(0..4) > 0 {
            events.push(command.drawn().collect::<Vec<_>>());
            assert_eq!(command.keep().0 as usize, mem.log().len() + events.len());
            model = drawn;
        }
    }
    if random.u32(0..4) > 0 {
        for event in events {
            mem.append(event);
        }
        *written = model;
        transaction.flush();
    } else {
        transaction.actualize();
    }
}

#[tokio::test]
async fn a_sequencer_draws_the_numbers_that_the_model_draws() {
    for seed in 0..200 {
        let mut random = Rng::with_seed(seed);
        let (mem, mut written) = (MemSeqStorage::new(), Model::default());
        for _ in 0..3 {
            let mut sequencer = sequencer(params_of(&mut random), &mem);
            for _ in 0..40 {
                transaction(&mut sequencer, &mem, &mut written, &mut random).await;
            }
        }
        let used: u64 = written.0.values().sum();
        assert!(used > 100, "seed {seed} drew next to nothing");
    }
}
