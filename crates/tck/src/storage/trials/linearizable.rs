//! Linearizable reads see every conditional write that was answered, even while other writes are in
//! flight.

use std::sync::{
    Arc,
    atomic::{AtomicBool, AtomicUsize, Ordering},
};

use bytes::Bytes;
use istorage::{Outcome, Range};
use tokio::sync::Barrier;

use super::rows::{insert, place, swap};
use crate::{
    storage::{answers::applied, client::TrialClient, context::StorageContext},
    trial::{EarlyEnd, Trial, Verdict, ensure, ensure_eq, tasks, trials},
};

pub(super) const TRIALS: &[Trial<StorageContext>] = trials!(linearizable:
    get_sees_every_answered_swap,
    read_sees_every_answered_insert,
    reads_never_go_back,
    a_client_sees_its_own_writes_at_once,
);

const WRITERS: usize = 3;
const READERS: usize = 2;

fn register(count: usize, writer: usize) -> Bytes {
    format!("{count}:{writer}").into()
}

fn count_of(value: Option<&Bytes>) -> Verdict<usize> {
    let count = value.and_then(|value| {
        let text = std::str::from_utf8(value).ok()?;
        text.split(':').next()?.parse().ok()
    });
    count.ok_or_else(|| EarlyEnd::failed(format!("the register holds {value:?}")))
}

/// The things that the writers and the readers of a race share.
struct Race {
    /// Holds back all tasks until all of them have started.
    start: Barrier,
    /// The number of answered writes, for each writer or for all writers together.
    answered: [AtomicUsize; WRITERS],
    over: AtomicBool,
}

impl Race {
    fn new() -> Arc<Race> {
        let (start, answered) = (Barrier::new(WRITERS + READERS), Default::default());
        Arc::new(Race { start, answered, over: AtomicBool::new(false) })
    }

    fn is_over(&self) -> bool {
        self.over.load(Ordering::Acquire)
    }
}

/// Ends the race for all tasks when the first task ends, even if that task fails.
struct Ending(Arc<Race>);

impl Drop for Ending {
    fn drop(&mut self) {
        self.0.over.store(true, Ordering::Release);
    }
}

fn writes_of(ctx: &StorageContext) -> usize {
    ctx.reduced_rounds() / WRITERS
}

/// Each writer raises one register by swaps. A reader never sees less than the swaps that were
/// answered before its read.
async fn get_sees_every_answered_swap(ctx: &StorageContext) -> Verdict {
    let (key, other) = (ctx.key("p", "register"), ctx.other().await?);
    let ops = vec![insert("register", register(0, 0))];
    applied(&ctx.db.settled(&key.pkey, ops).await?, "the insert")?;
    let race = Race::new();
    let write = |writer: usize| {
        let (ctx, key, race) = (ctx.clone(), key.clone(), Arc::clone(&race));
        async move {
            let _ending = Ending(Arc::clone(&race));
            race.start.wait().await;
            let mut there = register(0, 0);
            let mut won = 0;
            while won < writes_of(&ctx) && !race.is_over() {
                let count = count_of(Some(&there))? + 1;
                let new = register(count, writer);
                let ops = vec![swap(key.ccols.clone(), there.clone(), new.clone())];
                match ctx.db.settled(&key.pkey, ops).await? {
                    Outcome::Applied => {
                        race.answered[0].fetch_max(count, Ordering::AcqRel);
                        won += 1;
                        there = new;
                        tasks::yield_now().await;
                    }
                    Outcome::NotApplied(conflicts) => {
                        let found = conflicts.into_iter().next().and_then(|found| found.actual);
                        there = found.ok_or_else(|| EarlyEnd::failed("the register is gone"))?;
                    }
                }
            }
            Ok(())
        }
    };
    let read = |reader: usize| {
        let (db, key, race) =
            (if reader == 0 { &other } else { &ctx.db }.clone(), key.clone(), Arc::clone(&race));
        async move {
            let mut seen = 0;
            race.start.wait().await;
            while !race.is_over() {
                let answered = race.answered[0].load(Ordering::Acquire);
                let count = count_of(db.get_linearizable(&key).await?.as_ref())?;
                ensure!(count >= answered, "{count} was read after {answered} was acknowledged");
                ensure!(count >= seen, "{count} was read after {seen} was read");
                seen = count;
                tasks::yield_now().await;
            }
            Ok(())
        }
    };
    let writing = tasks::all((0..WRITERS).map(write));
    let reading = tasks::all((0..READERS).map(read));
    futures::future::try_join(writing, reading).await.map(drop)
}

/// Each writer inserts rows of its own. A read that starts after an answer sees the inserted row.
async fn read_sees_every_answered_insert(ctx: &StorageContext) -> Verdict {
    let (pkey, other) = (ctx.pkey("p"), ctx.other().await?);
    let race = Race::new();
    let place_of = |writer: usize, n: usize| place(1_000_000 * writer + n);
    let write = |writer: usize| {
        let (ctx, pkey, race) = (ctx.clone(), pkey.clone(), Arc::clone(&race));
        async move {
            let _ending = Ending(Arc::clone(&race));
            race.start.wait().await;
            for n in 0..writes_of(&ctx) {
                let ops = vec![insert(place_of(writer, n), "v")];
                applied(&ctx.db.settled(&pkey, ops).await?, "an insert without a rival")?;
                race.answered[writer].store(n + 1, Ordering::Release);
                tasks::yield_now().await;
            }
            Ok(())
        }
    };
    let read = |reader: usize| {
        let (db, pkey, race) =
            (if reader == 0 { &other } else { &ctx.db }.clone(), pkey.clone(), Arc::clone(&race));
        async move {
            race.start.wait().await;
            while !race.is_over() {
                let answered = race.answered.each_ref().map(|count| count.load(Ordering::Acquire));
                let rows = db.read_linearizable(&pkey, Range::all()).await?;
                for (writer, answered) in answered.into_iter().enumerate() {
                    let range = place_of(writer, 0)..place_of(writer + 1, 0);
                    let seen = rows.iter().filter(|row| range.contains(&row.ccols)).count();
                    ensure!(
                        seen >= answered,
                        "{seen} rows were read of {answered} acknowledged ones"
                    );
                }
                tasks::yield_now().await;
            }
            Ok(())
        }
    };
    let writing = tasks::all((0..WRITERS).map(write));
    let reading = tasks::all((0..READERS).map(read));
    futures::future::try_join(writing, reading).await.map(drop)
}

/// After one node has read a row, every later read of another node sees the row, even if the write
/// of the row is not answered yet.
async fn reads_never_go_back(ctx: &StorageContext) -> Verdict {
    let (pkey, other) = (ctx.pkey("p"), ctx.other().await?);
    for round in 0..ctx.reduced_rounds() {
        let write = {
            let (db, pkey) = (ctx.db.clone(), pkey.clone());
            async move { Ok(db.settled(&pkey, vec![insert(place(round), "v")]).await?) }
        };
        let mut writing = tasks::spawn(write);
        let key = ctx.key("p", place(round));
        let look = |db: &TrialClient| {
            let (db, key) = (db.clone(), key.clone());
            async move { Ok::<_, EarlyEnd>(db.get_linearizable(&key).await?.is_some()) }
        };
        let mut seen = false;
        for db in [&ctx.db, &other, &ctx.db, &other] {
            let now = look(db).await?;
            ensure!(now || !seen, "a row that was read is absent later in round {round}");
            seen = now;
        }
        applied(&(&mut writing).await?, "the insert")?;
        ensure!(look(&other).await?, "an acknowledged row is absent in round {round}");
    }
    Ok(())
}

async fn a_client_sees_its_own_writes_at_once(ctx: &StorageContext) -> Verdict {
    let (pkey, other) = (ctx.pkey("p"), ctx.other().await?);
    for n in 0..30 {
        let key = ctx.key("p", place(n));
        for db in [&ctx.db, &other] {
            ensure_eq!(db.get_linearizable(&key).await?, None, "the row before it is written");
        }
        for (step, db) in [&other, &ctx.db].into_iter().enumerate() {
            match step {
                0 => applied(&ctx.db.insert(&key, "1").await?, "the insert")?,
                _ => applied(&other.swap(&key, "1", "2").await?, "the swap")?,
            }
            let expected = Some(Bytes::from(["1", "2"][step]));
            ensure_eq!(db.get_linearizable(&key).await?, expected, "the row");
            let rows = db.read_linearizable(&pkey, Range::from(place(n))).await?;
            let found = rows.into_iter().next().map(|row| row.value);
            ensure_eq!(found, expected, "the first row of the range");
        }
    }
    Ok(())
}
