//! Tasks that race for one row, on several threads and through two nodes.

use bytes::Bytes;
use istorage::{Conditional, Conflict, ErrorKind, Key, Outcome};

use super::rows::{delete, insert, place, swap, value};
use crate::{
    storage::{
        answers::{applied, conflicts},
        client::TrialClient,
        context::StorageContext,
    },
    trial::{EarlyEnd, Trial, Verdict, ensure, ensure_eq, tasks, trials},
};

pub(super) const TRIALS: &[Trial<StorageContext>] = trials!(races:
    one_of_several_inserts_is_applied,
    one_of_several_swaps_is_applied,
    one_of_several_deletes_is_applied,
    one_of_a_swap_and_a_delete_is_applied,
    a_counter_raised_by_swaps_is_exact,
    writes_that_share_a_row_exclude_each_other,
    rows_of_one_partition_do_not_disturb_each_other,
);

const TASKS: usize = 4;

/// Two nodes. The tasks use them in turn.
#[derive(Clone)]
struct Nodes([TrialClient; 2]);

impl Nodes {
    async fn of(ctx: &StorageContext) -> Verdict<Nodes> {
        Ok(Nodes([ctx.db.clone(), ctx.other().await?]))
    }

    fn of_task(&self, task: usize) -> TrialClient {
        self.0[task % 2].clone()
    }
}

/// Lets all tasks write at once. Returns the task that won, and the values that the others found.
async fn race(
    nodes: &Nodes,
    pkey: &Bytes,
    op: impl Fn(usize) -> Conditional,
) -> Verdict<(usize, Vec<Option<Bytes>>)> {
    let write_one = |task: usize| {
        let (db, pkey, op) = (nodes.of_task(task), pkey.clone(), op(task));
        async move { Ok(db.settled(&pkey, vec![op]).await?) }
    };
    let outcomes = tasks::all((0..TASKS).map(write_one)).await?;
    let mut winners = Vec::new();
    let mut found = Vec::new();
    for (task, outcome) in outcomes.into_iter().enumerate() {
        match outcome {
            Outcome::Applied => winners.push(task),
            Outcome::NotApplied(conflicts) => {
                found.extend(conflicts.into_iter().map(|Conflict { actual, .. }| actual));
            }
        }
    }
    ensure_eq!(winners.len(), 1, "the number of tasks that won");
    ensure_eq!(found.len(), TASKS - 1, "the number of conflicts of those that lost");
    Ok((winners[0], found))
}

/// Makes a write without a rival.
async fn write(db: &TrialClient, pkey: &Bytes, op: Conditional) -> Verdict {
    applied(&db.settled(pkey, vec![op]).await?, "a write without a rival")
}

async fn one_of_several_inserts_is_applied(ctx: &StorageContext) -> Verdict {
    let (nodes, pkey) = (Nodes::of(ctx).await?, ctx.pkey("p"));
    for round in 0..ctx.rounds() {
        let op = |task| insert(place(round), value(task));
        let (winner, found) = race(&nodes, &pkey, op).await?;
        let there = ctx.db.get_linearizable(&Key::new(pkey.clone(), place(round))).await?;
        ensure_eq!(there, Some(value(winner)), "the row that task {winner} won");
        for found in found {
            ensure_eq!(found, there, "what a task that lost in round {round} was told");
        }
    }
    Ok(())
}

async fn one_of_several_swaps_is_applied(ctx: &StorageContext) -> Verdict {
    let (nodes, key) = (Nodes::of(ctx).await?, ctx.key("p", "a"));
    let mut there = Bytes::from("start");
    write(&ctx.db, &key.pkey, insert("a", there.clone())).await?;
    for round in 0..ctx.rounds() {
        let new = |task| Bytes::from(format!("{round}:{task}"));
        let op = |task| swap("a", there.clone(), new(task));
        let (winner, found) = race(&nodes, &key.pkey, op).await?;
        there = new(winner);
        let row = ctx.db.get_linearizable(&key).await?;
        ensure_eq!(row, Some(there.clone()), "the row that task {winner} won");
        for found in found {
            ensure_eq!(found, row, "what a task that lost in round {round} was told");
        }
    }
    Ok(())
}

/// All tasks delete the same bytes. So a delete without an answer cannot be told from the delete of
/// another task: it is not settled, and may have won.
async fn one_of_several_deletes_is_applied(ctx: &StorageContext) -> Verdict {
    let (nodes, pkey) = (Nodes::of(ctx).await?, ctx.pkey("p"));
    for round in 0..ctx.reduced_rounds() {
        let key = Key::new(pkey.clone(), place(round));
        write(&ctx.db, &pkey, insert(place(round), "v")).await?;
        let delete = |task: usize| {
            let (db, key) = (nodes.of_task(task), key.clone());
            async move { Ok(db.delete(&key, "v").await) }
        };
        let (mut won, mut open) = (0, 0);
        for answer in tasks::all((0..TASKS).map(delete)).await? {
            match answer {
                Ok(Outcome::Applied) => won += 1,
                Ok(lost) => conflicts(&lost, &[(0, None::<&str>)], "a delete that lost")?,
                Err(error) if error.kind() == ErrorKind::OutcomeUnknown => open += 1,
                Err(error) if error.kind() == ErrorKind::Unavailable => {}
                Err(error) => Err(error)?,
            }
        }
        ensure!(won <= 1, "{won} deletes won in round {round}");
        ensure!(won + open > 0, "no delete won in round {round}");
        let there = ctx.db.get_linearizable(&key).await?;
        ensure!(there.is_none() || won == 0, "the row that was deleted in round {round} is there");
    }
    Ok(())
}

async fn one_of_a_swap_and_a_delete_is_applied(ctx: &StorageContext) -> Verdict {
    let (nodes, pkey) = (Nodes::of(ctx).await?, ctx.pkey("p"));
    for round in 0..ctx.reduced_rounds() {
        let key = Key::new(pkey.clone(), place(round));
        write(&ctx.db, &pkey, insert(place(round), "v")).await?;
        let op = |task: usize| match task {
            0 => delete(place(round), "v"),
            _ => swap(place(round), "v", value(task)),
        };
        let (winner, found) = race(&nodes, &pkey, op).await?;
        let there = (winner > 0).then(|| value(winner));
        ensure_eq!(ctx.db.get_linearizable(&key).await?, there, "the row that {winner} won");
        ensure!(found.iter().all(|found| *found == there), "those that lost found {found:?}");
    }
    Ok(())
}

/// The number of times that each task has raised the counter. A task that lost an answer sees here
/// whether its write was applied.
type Counts = [usize; TASKS];

fn counter(counts: Counts) -> Bytes {
    counts.map(|count| count.to_string()).join(" ").into()
}

fn counts_of(value: Option<&Bytes>) -> Verdict<Counts> {
    let parse = |value: &Bytes| {
        let counts = std::str::from_utf8(value).ok()?.split(' ').map(str::parse);
        Counts::try_from(counts.collect::<Result<Vec<_>, _>>().ok()?).ok()
    };
    value.and_then(parse).ok_or_else(|| EarlyEnd::failed(format!("the counter holds {value:?}")))
}

async fn a_counter_raised_by_swaps_is_exact(ctx: &StorageContext) -> Verdict {
    let (nodes, key) = (Nodes::of(ctx).await?, ctx.key("p", "counter"));
    let raises = ctx.rounds().div_ceil(TASKS);
    write(&ctx.db, &key.pkey, insert("counter", counter([0; TASKS]))).await?;
    let raise = |task: usize| {
        let (db, key) = (nodes.of_task(task), key.clone());
        async move {
            let mut there = [0; TASKS];
            let mut raised = 0;
            while raised < raises {
                let mut next = there;
                next[task] = raised + 1;
                let ops = vec![swap(key.ccols.clone(), counter(there), counter(next))];
                there = match db.settled(&key.pkey, ops).await? {
                    Outcome::Applied => next,
                    Outcome::NotApplied(conflicts) => {
                        let found = conflicts.first().and_then(|found| found.actual.as_ref());
                        let found = counts_of(found)?;
                        ensure!(found != next, "a swap that was not applied wrote {next:?}");
                        found
                    }
                };
                let counted = there[task];
                ensure!(
                    counted == raised || counted == raised + 1,
                    "task {task} has raised it {raised} times, and is said to have {counted} times"
                );
                raised = counted;
            }
            Ok(())
        }
    };
    tasks::all((0..TASKS).map(raise)).await?;
    let there = counts_of(ctx.db.get_linearizable(&key).await?.as_ref())?;
    ensure_eq!(there, [raises; TASKS], "the counter");
    Ok(())
}

/// The rows form a ring, and each task writes two neighbours. So two neighbouring tasks cannot both
/// win.
async fn writes_that_share_a_row_exclude_each_other(ctx: &StorageContext) -> Verdict {
    let nodes = Nodes::of(ctx).await?;
    for round in 0..ctx.reduced_rounds() {
        let pkey = ctx.pkey(place(round));
        let rows = |task: usize| [place(task), place((task + 1) % TASKS)];
        let write_two = |task: usize| {
            let (db, pkey) = (nodes.of_task(task), pkey.clone());
            let ops = rows(task).map(|place| insert(place, value(task))).to_vec();
            async move { Ok(db.settled(&pkey, ops).await?.is_applied()) }
        };
        let won = tasks::all((0..TASKS).map(write_two)).await?;
        let mut expected: Vec<Option<Bytes>> = vec![None; TASKS];
        for task in (0..TASKS).filter(|task| won[*task]) {
            for row in [task, (task + 1) % TASKS] {
                let taken = expected[row].replace(value(task));
                ensure!(taken.is_none(), "two writes won the same row in round {round}");
            }
        }
        ensure!(won.contains(&true), "nobody won in round {round}");
        let keys: Vec<Key> = (0..TASKS).map(|n| Key::new(pkey.clone(), place(n))).collect();
        ensure_eq!(ctx.db.get_batch(&keys).await?, expected, "the rows of round {round}");
    }
    Ok(())
}

/// Each task writes rows of its own in one partition, and all writes are applied.
async fn rows_of_one_partition_do_not_disturb_each_other(ctx: &StorageContext) -> Verdict {
    let (nodes, pkey) = (Nodes::of(ctx).await?, ctx.pkey("p"));
    let writes = ctx.reduced_rounds();
    let write_all = |task: usize| {
        let (db, pkey) = (nodes.of_task(task), pkey.clone());
        async move {
            for n in 0..writes {
                write(&db, &pkey, insert(place(1_000_000 * task + n), value(n))).await?;
            }
            Ok(())
        }
    };
    tasks::all((0..TASKS).map(write_all)).await?;
    let rows = ctx.db.read_linearizable(&pkey, istorage::Range::all()).await?;
    ensure_eq!(rows.len(), TASKS * writes, "the number of rows");
    Ok(())
}
