//! Deadlines, and the meaning of the answers at a deadline.

use std::time::Duration;

use istorage::{
    AppStorageExt, AtomicBatch, Conditional, Consistency, ErrorKind, Key, Outcome, Range,
};

use super::rows::{insert, ordered, place, put, value};
use crate::{
    storage::{answers::refused, context::StorageContext},
    trial::{EarlyEnd, Trial, Verdict, ensure, ensure_eq, trials},
};

pub(super) const TRIALS: &[Trial<StorageContext>] = trials!(deadlines:
    a_call_after_its_deadline_sends_nothing,
    answers_near_the_deadline_are_true,
);

async fn a_call_after_its_deadline_sends_nothing(ctx: &StorageContext) -> Verdict {
    let (key, pkey, storage) = (ctx.key("p", "a"), ctx.pkey("p"), &ctx.db.storage);
    let now = ctx.db.clock.now();
    for deadline in [now, now - Duration::from_secs(1)] {
        let unavailable = ErrorKind::Unavailable;
        refused(storage.get(&key, Consistency::Plain, deadline).await, unavailable, "get")?;
        refused(storage.get_linearizable(&key, deadline).await, unavailable, "get, linearizable")?;
        let keys = std::slice::from_ref(&key);
        refused(storage.get_batch(keys, deadline).await, unavailable, "get_batch")?;
        let rows = vec![put(key.clone(), "v")];
        refused(storage.put_batch(rows, deadline).await, unavailable, "put_batch")?;
        let rows = vec![ordered(ctx.key("p", "b"), "v", 1)?];
        refused(storage.put_ordered(rows, deadline).await, unavailable, "put_ordered")?;
        let ops = vec![insert("c", "v")];
        refused(storage.write_if(pkey.clone(), ops, deadline).await, unavailable, "write_if")?;
        refused(storage.server_time(deadline).await, unavailable, "server_time")?;
        if ctx.capabilities().atomic.is_some() {
            let puts = vec![put(ctx.key("p", "d"), "v")];
            let batch = AtomicBatch { puts, ..AtomicBatch::default() };
            let answer = storage.write_atomic(batch, deadline).await;
            refused(answer, unavailable, "write_atomic")?;
        }
    }
    ctx.pass(Duration::from_millis(50)).await;
    ensure_eq!(ctx.db.read(&pkey, Range::all()).await?, [], "the partition");
    Ok(())
}

/// The farthest deadline of `answers_near_the_deadline_are_true` stays between these two bounds.
const TIGHT_MIN: Duration = Duration::from_millis(5);
const TIGHT_MAX: Duration = Duration::from_secs(2);

/// A write that was answered as applied is there, and a refused write is not there, however close
/// the deadline was. Only a write with an unknown outcome may be either. A storage that answers
/// every write as unknown would prove nothing, so some writes must be applied. The deadlines follow
/// the speed of the storage.
async fn answers_near_the_deadline_are_true(ctx: &StorageContext) -> Verdict {
    let mut random = fastrand::Rng::with_seed(1);
    let mut written = Vec::new();
    let (rounds, mut applied, mut tight) = (ctx.rounds() / 2, 0, TIGHT_MIN);
    for n in 0..rounds {
        let left = Duration::from_nanos(random.u64(0..tight.as_nanos() as u64));
        let deadline = ctx.db.clock.now() + left;
        let key = ctx.key("p", place(n));
        let op = Conditional::Insert { ccols: key.ccols.clone(), value: value(n), ttl: None };
        let answer = ctx.db.storage.write_if(key.pkey.clone(), vec![op], deadline).await;
        let is_applied = matches!(answer, Ok(Outcome::Applied));
        applied += usize::from(is_applied);
        tight = if is_applied { tight * 3 / 4 } else { tight * 2 }.clamp(TIGHT_MIN, TIGHT_MAX);
        match answer {
            Ok(Outcome::Applied) => written.push((key, Some(value(n)))),
            Ok(Outcome::NotApplied(conflicts)) => {
                return Err(EarlyEnd::failed(format!(
                    "an insert without a rival found {conflicts:?}"
                )));
            }
            Err(error) if error.kind() == ErrorKind::Unavailable => written.push((key, None)),
            Err(error) if error.kind() == ErrorKind::OutcomeUnknown => {}
            Err(error) => Err(error)?,
        }
    }
    ensure!(applied >= rounds / 10, "only {applied} of {rounds} writes were applied in time");
    let (keys, expected): (Vec<Key>, Vec<_>) = written.into_iter().unzip();
    ctx.pass(Duration::from_millis(500)).await;
    let found = ctx.db.get_batch(&keys).await?;
    for (key, (found, expected)) in keys.iter().zip(found.into_iter().zip(expected)) {
        ensure!(found == expected, "{key:?} holds {found:?}, but the answer said {expected:?}");
    }
    Ok(())
}
