//! A storage that is slow: what commands read is read together, and a group is formed in bounded
//! time.

use std::{
    pin::pin,
    sync::{
        Arc,
        atomic::{AtomicUsize, Ordering},
    },
    time::Duration,
};

use async_trait::async_trait;
use bytes::Bytes;
use clock::{Clock, Instant};
use eventlog::{RecordId, TrustLevel};
use futures::future::{join, join_all};
use istorage::{AtomicBatch, Consistency, Key, Outcome, SharedStorage};
use processor::{Busy, Command, Done, Ended, Refused, RowChange};
use tokio::sync::watch;
use vvm_tests::{
    between::{Between, Through},
    commands::{
        At, Ledger, Node, NodeSettings, Stall, article, check, child, cud, raw, record_name, text,
        update,
    },
};

use crate::stage::{PARTITION, Stage, TrialFn, WS, named};

pub(crate) const TRIALS: &[(&str, TrialFn)] = &[
    ("slow::what_many_commands_read_is_read_together", |stage| Box::pin(many_commands(stage))),
    ("slow::what_one_command_reads_is_read_together", |stage| Box::pin(one_command(stage))),
    ("slow::a_group_is_written_before_its_members_are_late", |stage| Box::pin(in_time(stage))),
    ("slow::a_group_does_not_wait_for_a_handler_that_does_not_end", |stage| {
        Box::pin(does_not_end(stage))
    }),
];

/// A storage whose reads and atomic writes take their time, and whose reads are counted.
#[derive(Debug)]
struct Slow {
    inner: SharedStorage,
    clock: Clock,
    delay: Duration,
    reads: AtomicUsize,
    /// Reads wait for that.
    is_open: watch::Sender<bool>,
}

impl Slow {
    /// Sends commands together: none is read for before all wait.
    async fn together(
        &self,
        node: &Node,
        sent: Vec<Command>,
        ledger: &mut Ledger,
    ) -> Vec<Result<Done, Refused>> {
        self.reads.store(0, Ordering::SeqCst);
        self.is_open.send_replace(false);
        let requests: Vec<String> = sent.iter().map(|command| command.request.clone()).collect();
        let sent = join_all(sent.into_iter().map(|command| node.commands.run(command)));
        let open = async { self.is_open.send_replace(true) };
        let (answers, _) = join(sent, open).await;
        requests.iter().zip(&answers).for_each(|(request, answer)| ledger.note(request, answer));
        answers
    }

    async fn pass(&self) {
        self.reads.fetch_add(1, Ordering::SeqCst);
        drop(self.is_open.subscribe().wait_for(|is_open| *is_open).await);
        self.clock.sleep(self.delay).await;
    }
}

#[async_trait]
impl Between for Slow {
    fn inner(&self) -> &SharedStorage {
        &self.inner
    }

    async fn get(
        &self,
        key: &Key,
        consistency: Consistency,
        deadline: Instant,
    ) -> istorage::Result<Option<Bytes>> {
        self.pass().await;
        self.inner.get(key, consistency, deadline).await
    }

    async fn get_batch(
        &self,
        keys: &[Key],
        deadline: Instant,
    ) -> istorage::Result<Vec<Option<Bytes>>> {
        self.pass().await;
        self.inner.get_batch(keys, deadline).await
    }

    async fn write_atomic(
        &self,
        batch: AtomicBatch,
        deadline: Instant,
    ) -> istorage::Result<Outcome> {
        self.clock.sleep(self.delay).await;
        self.inner.write_atomic(batch, deadline).await
    }
}

/// A leader whose storage is so slow, with a workspace.
async fn begin(stage: &Stage, delay: Duration) -> (Node, Ledger, Arc<Through<Slow>>) {
    let (inner, clock) = (Arc::clone(&stage.site.app.storage), stage.site.clock.clone());
    let slow = Through::new(Slow {
        inner,
        clock,
        delay,
        reads: AtomicUsize::new(0),
        is_open: watch::Sender::new(true),
    });
    let storage = Some(Arc::clone(&slow) as SharedStorage);
    let settings = NodeSettings { storage, ..NodeSettings::at(TrustLevel::Zero) };
    let (node, ledger) = stage.begin(PARTITION, WS, settings).await;
    (node, ledger, slow)
}

/// So many bills, and their ids.
async fn bills(stage: &Stage, node: &Node, ledger: &mut Ledger, count: u64) -> Vec<RecordId> {
    let rows = (1..=count).map(|id| raw(id, "shop.Bill", [("name", text("first"))])).collect();
    let made = named("bills", cud(WS, rows, stage.site.soon()));
    let done = stage.run(node, ledger, made).await.unwrap();
    done.answer.ids.into_iter().map(|(_, id)| id).collect()
}

/// 45 ms a read, and 480 commands that each update a record and may take 10 s: they were read for
/// one after another, in one group. None was done, and 212 were begun and not known, although 200
/// could have been done one by one.
async fn many_commands(stage: &Stage) {
    let site = &stage.site;
    let (node, mut ledger, slow) = begin(stage, Duration::from_millis(45)).await;
    let ids = bills(stage, &node, &mut ledger, 480).await;
    let deadline = site.clock.now() + Duration::from_secs(10);
    let update = |id: &RecordId| {
        let rows = vec![update(*id, None, "second")];
        named(&format!("update {}", id.0), cud(WS, rows, deadline))
    };
    let sent = ids.iter().map(update).collect();
    let answers = slow.together(&node, sent, &mut ledger).await;
    assert!(answers.iter().all(Result::is_ok), "{answers:?}");
    let reads = slow.reads.load(Ordering::SeqCst);
    assert!(reads <= 18, "{reads} reads for 480 rows");
    assert_eq!(node.stop().await, Ended::Stopped);
    check(site, PARTITION, &ledger).await;
}

/// A command of 4,096 rows read them one by one: at 45 ms it would have taken three minutes, and
/// could not be done at all.
async fn one_command(stage: &Stage) {
    let count = if stage.is_embedded { 4_096 } else { 400 };
    let site = &stage.site;
    let (node, mut ledger, slow) = begin(stage, Duration::ZERO).await;
    let ids = bills(stage, &node, &mut ledger, count).await;
    let lines = ids.iter().zip(1..).map(|(id, raw)| {
        // Half of them are updated, and the others get a line.
        match raw % 2 {
            0 => update(*id, None, "second"),
            _ => child(raw, "shop.Line", (id.0, "lines"), []),
        }
    });
    let rows: Vec<RowChange> = lines.collect();
    slow.reads.store(0, Ordering::SeqCst);
    stage.run(&node, &mut ledger, named("all", cud(WS, rows, site.soon()))).await.unwrap();
    let (reads, most) = (slow.reads.load(Ordering::SeqCst), count.div_ceil(31) + 2);
    assert!(reads as u64 <= most, "{reads} reads for {count} rows");
    assert_eq!(node.stop().await, Ended::Stopped);
    check(site, PARTITION, &ledger).await;
}

/// What a handler reads by itself cannot be read ahead. The commands of a group wait for the reads
/// of all of them: so a group ends when it has taken 50 ms, or earlier if one of its commands has
/// little time.
async fn in_time(stage: &Stage) {
    const COMMANDS: usize = 60;
    let site = &stage.site;
    let (node, mut ledger, slow) = begin(stage, Duration::from_millis(45)).await;
    // From here on the kind of the workspace is known, and its descriptor is not read ahead.
    bills(stage, &node, &mut ledger, 1).await;
    let deadline = site.clock.now() + Duration::from_secs(2);
    let note = |number| {
        let note = Command { name: record_name("shop.Note"), ..cud(WS, Vec::new(), deadline) };
        named(&format!("note {number}"), note)
    };
    let sent = (0..COMMANDS).map(note).collect();
    let (mut done, mut unknown) = (0, 0);
    for answered in slow.together(&node, sent, &mut ledger).await {
        match answered {
            Ok(_) => done += 1,
            Err(Refused::Busy(Busy::TimedOut)) => {}
            Err(Refused::Unknown(_)) => unknown += 1,
            Err(refused) => panic!("{refused}"),
        }
    }
    // The reads of 44 fit into two seconds.
    assert!(done >= 8, "{done} were done, and {unknown} are not known");
    // Those of the group that was under way.
    assert!(unknown <= 4, "{done} were done, and {unknown} are not known");
    assert_eq!(node.stop().await, Ended::Stopped);
    check(site, PARTITION, &ledger).await;
}

/// A handler had until the deadline of its command, and all commands that were in its group before it
/// waited as long for their answers.
async fn does_not_end(stage: &Stage) {
    let site = &stage.site;
    let stall = Stall::new(Arc::clone(&site.app.storage));
    let storage = Some(Arc::new(stall.clone()) as SharedStorage);
    let settings = NodeSettings { storage, ..NodeSettings::at(TrustLevel::Zero) };
    let (node, mut ledger) = stage.begin(PARTITION, WS, settings).await;
    stall.arm(At::Before(1));
    let run = |name: &str, command| node.commands.run(named(name, command));
    let first = run("first", cud(WS, article("first"), site.soon()));
    let quick = run("quick", cud(WS, article("quick"), site.soon()));
    let deadline = site.soon();
    let never = Command { name: record_name("shop.Never"), ..cud(WS, Vec::new(), deadline) };
    let never = run("never", never);
    // The other two wait while the first is written, and are in one group.
    let others = async {
        stall.until_still().await;
        let (mut quick, mut never) = (pin!(quick), pin!(never));
        let waits = tokio::select! {
            biased;
            answered = &mut quick => panic!("{answered:?} before it was written"),
            answered = &mut never => panic!("{answered:?} before its time"),
            () = std::future::ready(()) => node.commands.waiting(),
        };
        assert_eq!(waits, 2);
        stall.go_on();
        tokio::select! {
            biased;
            quick = &mut quick => quick,
            answered = &mut never => panic!("the group waited until {answered:?}"),
        }
    };
    let (first, quick) = join(first, others).await;
    assert!(site.clock.now() + Duration::from_secs(60) < deadline, "the group waited");
    ledger.note("first", &first);
    ledger.note("quick", &quick);
    ledger.open("never");
    assert!(first.is_ok() && quick.is_ok(), "{first:?} {quick:?}");
    // The handler runs again, as the first of a group.
    node.kill();
    let next = site.node(PARTITION, NodeSettings::at(TrustLevel::Zero));
    next.ready().await;
    assert_eq!(next.stop().await, Ended::Stopped);
    check(site, PARTITION, &ledger).await;
}
