//! Writes with an unknown outcome. They are sent again until there is a definite answer, and are
//! applied once.

use std::{collections::VecDeque, sync::Arc, time::Duration};

use bytes::Bytes;
use istorage::{
    CallKind, Conditional, ErrorKind, Guarded, Key, Outcome, SharedStorage,
    settle::{SettleLimits, write_if_settled},
};

use super::rows::{delete, insert, put, swap};
use crate::{
    storage::{
        Fault, Faulty,
        answers::{applied, conflicts, refused},
        client::TrialClient,
        context::StorageContext,
    },
    trial::{Trial, Verdict, ensure, ensure_eq, trials},
};

pub(super) const TRIALS: &[Trial<StorageContext>] = trials!(unknown:
    an_applied_write_without_an_answer_is_settled,
    a_write_that_was_not_applied_is_settled,
    a_write_that_lands_before_the_first_resend_is_settled,
    a_write_that_lands_after_a_read_found_no_row_is_settled,
    several_attempts_without_answers_are_settled,
    a_write_answered_after_the_deadline_is_settled,
    a_write_of_several_operations_is_settled,
    a_write_that_lost_against_another_client_is_settled,
    a_resend_is_not_answered_by_the_first_write,
    plain_writes_can_be_repeated,
);

const CALL: Duration = Duration::from_secs(1);
const AT_LEAST: Duration = Duration::from_millis(1);
/// A time after the end of any trial.
const LATE: Duration = Duration::from_secs(1_000_000);

/// The storage behind a script of faults, one fault for each write.
struct Faults {
    faulty: Arc<Faulty>,
    client: TrialClient,
}

impl Faults {
    fn new(ctx: &StorageContext, faults: &[Fault]) -> Faults {
        let (clock, mut faults) = (ctx.db.clock.clone(), VecDeque::from(faults.to_vec()));
        let script = move |op| match op {
            CallKind::WriteIf | CallKind::PutBatch => faults.pop_front().unwrap_or(Fault::None),
            _ => Fault::None,
        };
        let faulty = Arc::new(Faulty::scripted(Arc::clone(&ctx.db.storage), clock.clone(), script));
        let inner = Arc::clone(&faulty) as SharedStorage;
        let storage = Arc::new(Guarded::new(inner, clock.clone()));
        Faults { faulty, client: TrialClient { storage, clock } }
    }

    async fn settle(
        &self,
        ctx: &StorageContext,
        pkey: &Bytes,
        ops: Vec<Conditional>,
    ) -> istorage::Result<Outcome> {
        let TrialClient { storage, clock } = &self.client;
        let limits = SettleLimits { call_timeout: CALL, until: clock.now() + 40 * CALL };
        let settling = write_if_settled(&**storage, clock, pkey.clone(), ops, limits);
        ctx.while_time_passes(settling).await
    }

    /// Lets the delayed writes land now. Each of them comes too late and is not applied.
    async fn nothing_lands(&self) -> Verdict {
        for outcome in self.faulty.land_late_writes().await {
            ensure!(!outcome?.is_applied(), "a late write was applied beside its resend");
        }
        Ok(())
    }
}

/// Settles an insert, a swap and a delete through these faults. Each must end as without faults.
async fn settles(ctx: &StorageContext, faults: &[Fault]) -> Verdict {
    let cases = [
        (insert("insert", "mine"), None, Some("mine")),
        (swap("swap", "old", "mine"), Some("old"), Some("mine")),
        (delete("delete", "old"), Some("old"), None),
    ];
    for (op, before, after) in cases {
        let (key, what) = (ctx.key("p", op.ccols().clone()), format!("{op:?}"));
        if let Some(before) = before {
            applied(&ctx.db.insert(&key, before).await?, "the insert before")?;
        }
        let storage = Faults::new(ctx, faults);
        applied(&storage.settle(ctx, &key.pkey, vec![op]).await?, &what)?;
        let after = after.map(Bytes::from);
        ensure_eq!(ctx.db.get_linearizable(&key).await?, after, "the row after {what}");
        storage.nothing_lands().await?;
        ensure_eq!(ctx.db.get_linearizable(&key).await?, after, "the row after all has landed");
    }
    Ok(())
}

async fn an_applied_write_without_an_answer_is_settled(ctx: &StorageContext) -> Verdict {
    settles(ctx, &[Fault::AppliedButError]).await
}

async fn a_write_that_was_not_applied_is_settled(ctx: &StorageContext) -> Verdict {
    settles(ctx, &[Fault::NotAppliedButError; 3]).await
}

async fn a_write_that_lands_before_the_first_resend_is_settled(ctx: &StorageContext) -> Verdict {
    settles(ctx, &[Fault::AppliedLate(AT_LEAST)]).await
}

/// A caller that takes "absent" for a final answer is wrong here.
async fn a_write_that_lands_after_a_read_found_no_row_is_settled(ctx: &StorageContext) -> Verdict {
    let key = ctx.key("p", "read");
    let storage = Faults::new(ctx, &[Fault::AppliedLate(LATE)]);
    let answer = storage.client.insert(&key, "mine").await;
    refused(answer, ErrorKind::OutcomeUnknown, "the first attempt")?;
    ensure_eq!(ctx.db.get_linearizable(&key).await?, None, "the row before it lands");
    let landed = storage.faulty.land_late_writes().await;
    ensure_eq!(landed.len(), 1, "the number of writes that landed late");
    let again = storage.client.insert(&key, "mine").await?;
    conflicts(&again, &[(0, Some("mine"))], "a resend after it has landed")?;

    // The same in the middle of settling: five resends get no answer, and the first write lands
    // meanwhile.
    let mut faults = vec![Fault::AppliedLate(Duration::from_millis(50))];
    faults.extend([Fault::NotAppliedButError; 5]);
    settles(ctx, &faults).await
}

async fn several_attempts_without_answers_are_settled(ctx: &StorageContext) -> Verdict {
    let late = Fault::AppliedLate(LATE);
    settles(ctx, &[late, late, Fault::NotAppliedButError]).await
}

async fn a_write_answered_after_the_deadline_is_settled(ctx: &StorageContext) -> Verdict {
    settles(ctx, &[Fault::ReplyAfterDeadline]).await
}

async fn a_write_of_several_operations_is_settled(ctx: &StorageContext) -> Verdict {
    for (n, fault) in [Fault::AppliedButError, Fault::NotAppliedButError, Fault::AppliedLate(LATE)]
        .into_iter()
        .enumerate()
    {
        let pkey = ctx.pkey(format!("p{n}"));
        let key = |ccols| Key::new(pkey.clone(), ccols);
        applied(&ctx.db.insert(&key("swap"), "old").await?, "an insert before")?;
        applied(&ctx.db.insert(&key("delete"), "old").await?, "an insert before")?;
        let ops =
            vec![insert("insert", "mine"), swap("swap", "old", "mine"), delete("delete", "old")];
        let storage = Faults::new(ctx, &[fault]);
        applied(&storage.settle(ctx, &pkey, ops).await?, "the write")?;
        storage.nothing_lands().await?;
        let found = ctx.db.get_batch(&["insert", "swap", "delete"].map(key)).await?;
        let mine = Some(Bytes::from("mine"));
        ensure_eq!(found, [mine.clone(), mine, None], "the rows after {fault:?}");
    }
    Ok(())
}

async fn a_write_that_lost_against_another_client_is_settled(ctx: &StorageContext) -> Verdict {
    let (key, other) = (ctx.key("p", "a"), ctx.other().await?);
    let storage = Faults::new(ctx, &[Fault::AppliedLate(LATE)]);
    let answer = storage.client.insert(&key, "mine").await;
    refused(answer, ErrorKind::OutcomeUnknown, "the attempt")?;
    applied(&other.insert(&key, "theirs").await?, "the insert of somebody else")?;
    let outcome = storage.settle(ctx, &key.pkey, vec![insert("a", "mine")]).await?;
    conflicts(&outcome, &[(0, Some("theirs"))], "the resend")?;
    storage.nothing_lands().await?;
    ensure_eq!(ctx.db.get_linearizable(&key).await?, Some("theirs".into()), "the row");
    Ok(())
}

/// The first attempt of a swap lands after its resend and the next swap were answered. The late
/// attempt is not applied.
async fn a_resend_is_not_answered_by_the_first_write(ctx: &StorageContext) -> Verdict {
    let key = ctx.key("p", "a");
    applied(&ctx.db.insert(&key, "0").await?, "the insert")?;
    let storage = Faults::new(ctx, &[Fault::AppliedLate(LATE)]);
    let outcome = storage.settle(ctx, &key.pkey, vec![swap("a", "0", "1")]).await?;
    applied(&outcome, "the swap")?;
    applied(&ctx.db.swap(&key, "1", "2").await?, "the next swap")?;
    storage.nothing_lands().await?;
    ensure_eq!(ctx.db.get_linearizable(&key).await?, Some("2".into()), "the row");
    Ok(())
}

async fn plain_writes_can_be_repeated(ctx: &StorageContext) -> Verdict {
    let key = ctx.key("p", "a");
    let storage = Faults::new(ctx, &[Fault::AppliedButError, Fault::NotAppliedButError]);
    for _ in 0..2 {
        let answer = storage.client.put_batch(vec![put(key.clone(), "v")]).await;
        refused(answer, ErrorKind::OutcomeUnknown, "a put whose answer is lost")?;
    }
    storage.client.put(&key, "v").await?;
    ensure_eq!(ctx.db.get(&key).await?, Some("v".into()), "the row");
    Ok(())
}
