//! The lifecycle of keyspaces: they are created, opened, dropped and closed.

use std::sync::Arc;

use futures::StreamExt;
use istorage::{
    AppStorageExt, AtomicBatch, Consistency, ErrorKind, KeyspaceName, Range, StorageDriver,
};

use super::rows::{insert, ordered, place, put, value};
use crate::{
    storage::{
        answers::{applied, refused},
        client::{CALL, TrialClient},
        context::StorageContext,
    },
    trial::{Trial, Verdict, ensure, ensure_eq, tasks, trials},
};

pub(super) const TRIALS: &[Trial<StorageContext>] = trials!(lifecycle:
    a_keyspace_that_was_not_created_is_none,
    a_keyspace_is_created_once,
    a_dropped_keyspace_and_its_rows_are_absent,
    keyspaces_do_not_share_rows,
    a_keyspace_with_the_longest_name_works,
    several_nodes_may_create_a_keyspace_at_once,
    a_closed_storage_answers_closed,
    a_closed_storage_ends_its_streams,
    closing_one_storage_leaves_the_others_open,
    calls_under_way_at_the_close_are_answered,
    a_closed_driver_answers_closed,
);

async fn a_keyspace_that_was_not_created_is_none(ctx: &StorageContext) -> Verdict {
    let (driver, name) = (ctx.driver(), ctx.new_keyspace()?);
    let opened = driver.open(&name, ctx.within_setup()).await?;
    ensure!(opened.is_none(), "a keyspace that was not created can be opened");
    driver.drop_keyspace(&name, ctx.within_setup()).await?;
    Ok(())
}

async fn create(
    ctx: &StorageContext,
    driver: &dyn StorageDriver,
    name: &KeyspaceName,
) -> Verdict<TrialClient> {
    driver.create(name, ctx.within_setup()).await?;
    ctx.open(driver, name).await
}

async fn a_keyspace_is_created_once(ctx: &StorageContext) -> Verdict {
    let (driver, name, key) = (ctx.driver(), ctx.new_keyspace()?, ctx.key("p", "a"));
    let first = create(ctx, driver, &name).await?;
    first.put(&key, "v").await?;
    let second = create(ctx, driver, &name).await?;
    ensure_eq!(second.get(&key).await?, Some("v".into()), "the row after creating it again");
    let third = ctx.open(driver, &name).await?;
    ensure_eq!(third.get(&key).await?, Some("v".into()), "the row after opening it again");
    Ok(())
}

async fn a_dropped_keyspace_and_its_rows_are_absent(ctx: &StorageContext) -> Verdict {
    let (driver, name, key) = (ctx.driver(), ctx.new_keyspace()?, ctx.key("p", "a"));
    let before = create(ctx, driver, &name).await?;
    before.put(&key, "v").await?;
    applied(&before.insert(&ctx.key("q", "a"), "v").await?, "the insert")?;
    before.storage.close().await;
    for _ in 0..2 {
        driver.drop_keyspace(&name, ctx.within_setup()).await?;
    }
    let opened = driver.open(&name, ctx.within_setup()).await?;
    ensure!(opened.is_none(), "a keyspace that was dropped can be opened");
    let after = create(ctx, driver, &name).await?;
    ensure_eq!(after.get(&key).await?, None, "the row of the former keyspace");
    applied(&after.insert(&ctx.key("q", "a"), "v").await?, "the insert into the new keyspace")
}

async fn keyspaces_do_not_share_rows(ctx: &StorageContext) -> Verdict {
    let (name, key) = (ctx.new_keyspace()?, ctx.key("p", "a"));
    let second = create(ctx, ctx.driver(), &name).await?;
    ctx.db.put(&key, "first").await?;
    ensure_eq!(second.get(&key).await?, None, "the row in the second keyspace");
    second.put(&key, "second").await?;
    ensure_eq!(ctx.db.get(&key).await?, Some("first".into()), "the row in the first keyspace");
    ensure_eq!(second.get(&key).await?, Some("second".into()), "the row in the second keyspace");
    Ok(())
}

async fn a_keyspace_with_the_longest_name_works(ctx: &StorageContext) -> Verdict {
    let name = ctx.new_keyspace_with_len(KeyspaceName::MAX_LEN)?;
    let db = create(ctx, ctx.driver(), &name).await?;
    db.put(&ctx.key("p", "a"), "v").await?;
    ensure_eq!(db.get(&ctx.key("p", "a")).await?, Some("v".into()), "the row");
    Ok(())
}

/// This happens when a cluster starts for the first time.
async fn several_nodes_may_create_a_keyspace_at_once(ctx: &StorageContext) -> Verdict {
    const NODES: usize = 3;
    let name = ctx.new_keyspace()?;
    let mut nodes: Vec<Arc<dyn StorageDriver>> = Vec::new();
    for _ in 0..NODES {
        nodes.push(ctx.node().await?);
    }
    let start = |n: usize| {
        let (ctx, node, name) = (ctx.clone(), Arc::clone(&nodes[n % NODES]), name.clone());
        async move {
            let db = create(&ctx, &*node, &name).await?;
            db.put(&ctx.key("p", place(n)), value(n)).await?;
            let ops = vec![insert("leader", value(n))];
            let leads = db.settled(&ctx.pkey("election"), ops).await?.is_applied();
            Ok((db, leads))
        }
    };
    let started = tasks::all((0..2 * NODES).map(start)).await?;
    let leaders = started.iter().filter(|(_, leads)| *leads).count();
    ensure_eq!(leaders, 1, "the number of nodes that inserted the same row");
    for (db, _) in &started {
        let rows = db.read(&ctx.pkey("p"), Range::all()).await?;
        ensure_eq!(rows.len(), 2 * NODES, "the number of rows that a node sees");
    }
    Ok(())
}

/// Every call on the storage answers `Closed`.
async fn answers_closed(ctx: &StorageContext, db: &TrialClient) -> Verdict {
    let (key, closed) = (ctx.key("p", "a"), ErrorKind::Closed);
    refused(db.get(&key).await, closed, "get")?;
    refused(db.get_linearizable(&key).await, closed, "get, linearizable")?;
    refused(db.get_batch(std::slice::from_ref(&key)).await, closed, "get_batch")?;
    refused(db.read(&key.pkey, Range::all()).await, closed, "read")?;
    refused(db.read_linearizable(&key.pkey, Range::all()).await, closed, "read, linearizable")?;
    refused(db.ttl_read(&key.pkey, Range::all()).await, closed, "ttl_read")?;
    refused(db.partitions(&key.pkey).await, closed, "partitions")?;
    refused(db.storage.ttl_get(&key, CALL).await, closed, "ttl_get")?;
    refused(db.query_ttl(&key).await, closed, "query_ttl")?;
    refused(db.put(&key, "v").await, closed, "put")?;
    refused(db.put_ordered(vec![ordered(key.clone(), "v", 1)?]).await, closed, "put_ordered")?;
    refused(db.insert(&key, "v").await, closed, "an insert")?;
    refused(db.swap(&key, "v", "w").await, closed, "a swap")?;
    refused(db.delete(&key, "v").await, closed, "a delete")?;
    if db.storage.capabilities().atomic.is_some() {
        let batch = AtomicBatch { puts: vec![put(key, "v")], ..AtomicBatch::default() };
        refused(db.write_atomic(batch).await, closed, "write_atomic")?;
    }
    refused(db.storage.server_time(db.soon()).await, closed, "server_time")
}

async fn a_closed_storage_answers_closed(ctx: &StorageContext) -> Verdict {
    let db = ctx.open_again().await?;
    db.put(&ctx.key("p", "b"), "v").await?;
    for _ in 0..2 {
        db.storage.close().await;
        answers_closed(ctx, &db).await?;
    }
    ensure_eq!(ctx.db.get(&ctx.key("p", "a")).await?, None, "a row that was not to be written");
    Ok(())
}

async fn a_closed_storage_ends_its_streams(ctx: &StorageContext) -> Verdict {
    let rows = (0..2_000).map(|n| put(ctx.key("p", place(n)), value(n)));
    ctx.db.put_batch(rows.collect()).await?;
    let db = ctx.open_again().await?;
    let mut rows = db.storage.read(ctx.pkey("p"), Range::all(), Consistency::Plain, CALL);
    ensure!(matches!(rows.next().await, Some(Ok(_))), "the first row does not come");
    db.storage.close().await;
    // The stream may still return rows that it had already fetched.
    while let Some(row) = rows.next().await {
        if let Err(error) = row {
            ensure_eq!(error.kind(), ErrorKind::Closed, "the end of the stream");
            ensure!(rows.next().await.is_none(), "a stream goes on after its error");
            return Ok(());
        }
    }
    ensure!(false, "a stream of a closed storage was read to its end");
    Ok(())
}

async fn closing_one_storage_leaves_the_others_open(ctx: &StorageContext) -> Verdict {
    let db = ctx.open_again().await?;
    let key = ctx.key("p", "a");
    db.put(&key, "v").await?;
    db.storage.close().await;
    ensure_eq!(ctx.db.get(&key).await?, Some("v".into()), "the row through another storage");
    let again = ctx.open_again().await?;
    ensure_eq!(again.get(&key).await?, Some("v".into()), "the row through a new storage");
    Ok(())
}

/// Each call gets a true answer: the row of an applied insert is there, and the row of an insert
/// that is answered with `Closed` is not. After an unknown outcome the row may be there or not. No
/// call is lost, and no call hangs.
async fn calls_under_way_at_the_close_are_answered(ctx: &StorageContext) -> Verdict {
    const CALLS: usize = 50;
    let db = ctx.open_again().await?;
    let write = |n: usize| {
        let (db, key) = (db.clone(), ctx.key("p", place(n)));
        async move { Ok(db.insert(&key, "v").await) }
    };
    let writing: Vec<_> = (0..CALLS).map(|n| tasks::spawn(write(n))).collect();
    tasks::yield_now().await;
    db.storage.close().await;
    for (n, task) in writing.into_iter().enumerate() {
        let answer = task.await?;
        let there = ctx.db.get_linearizable(&ctx.key("p", place(n))).await?.is_some();
        match answer {
            Ok(outcome) => {
                applied(&outcome, "an insert without a rival")?;
                ensure!(there, "insert {n} was applied, and its row is not there");
            }
            Err(error) if error.kind() == ErrorKind::Closed => {
                ensure!(!there, "insert {n} was closed out, and its row is there");
            }
            Err(error) if error.kind() == ErrorKind::OutcomeUnknown => {}
            Err(error) => Err(error)?,
        }
    }
    Ok(())
}

async fn a_closed_driver_answers_closed(ctx: &StorageContext) -> Verdict {
    let (driver, name) = (ctx.spare().await?, ctx.new_keyspace()?);
    let db = create(ctx, &*driver, &name).await?;
    db.put(&ctx.key("p", "a"), "v").await?;
    for _ in 0..2 {
        driver.close().await;
        answers_closed(ctx, &db).await?;
        let closed = ErrorKind::Closed;
        refused(driver.create(&name, ctx.within_setup()).await, closed, "create")?;
        refused(driver.open(&name, ctx.within_setup()).await.map(drop), closed, "open")?;
        refused(driver.drop_keyspace(&name, ctx.within_setup()).await, closed, "drop_keyspace")?;
    }
    ensure_eq!(ctx.db.get(&ctx.key("p", "a")).await?, None, "a row through another driver");
    Ok(())
}
