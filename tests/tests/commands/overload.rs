//! More commands than a partition can do: some are refused, and the partition does what it can.

use std::{
    sync::{
        Arc,
        atomic::{AtomicUsize, Ordering},
    },
    time::Duration,
};

use eventlog::{RecordId, TrustLevel};
use futures::future::{join, join_all};
use istorage::SharedStorage;
use processor::{Busy, Ended, Refused};
use vvm_tests::{
    between::Through,
    commands::{At, Ledger, Node, NodeSettings, Stall, check, cud, update},
};

use crate::{
    slow::{Slow, bills, slow},
    stage::{PARTITION, Stage, TrialFn, WS, named},
};

pub(crate) const TRIALS: &[(&str, TrialFn)] = &[
    ("overload::a_command_that_waited_too_long_holds_up_no_other", |stage| {
        Box::pin(waited_too_long(stage))
    }),
    ("overload::overload_ends_when_the_storage_works_again", |stage| Box::pin(ends(stage))),
];

/// What a call to the storage takes.
const DELAY: Duration = Duration::from_millis(45);

/// A leader whose storage is slow, and stands still when it is told to; with so many bills.
async fn begin(
    stage: &Stage,
    count: u64,
) -> (Node, Ledger, Arc<Through<Slow>>, Stall, Vec<RecordId>) {
    let stall = Stall::new(Arc::clone(&stage.site.app.storage));
    let slow = slow(Arc::new(stall.clone()), &stage.site.clock, DELAY);
    let storage = Some(Arc::clone(&slow) as SharedStorage);
    let settings = NodeSettings { storage, ..NodeSettings::at(TrustLevel::Zero) };
    let (node, mut ledger) = stage.begin(PARTITION, WS, settings).await;
    let ids = bills(stage, &node, &mut ledger, count).await;
    (node, ledger, slow, stall, ids)
}

/// What is read ahead was read until the deadline of the first command that waited. When that had
/// passed, nothing was read ahead, and each of the commands behind it read row by row.
async fn waited_too_long(stage: &Stage) {
    const COMMANDS: usize = 60;
    let site = &stage.site;
    let (node, mut ledger, slow, stall, ids) = begin(stage, 2 + COMMANDS as u64).await;
    let command = |at: usize, within| {
        let rows = vec![update(ids[at], None, "second")];
        named(&format!("update {at}"), cud(WS, rows, site.clock.now() + within))
    };
    let (short, long) = (Duration::from_millis(50), Duration::from_secs(10));
    // It reads its row, and stands still when it is written.
    stall.arm(At::Before(2));
    let first = node.commands.run(command(0, long));
    let others = async {
        stall.until_still().await;
        slow.reads.store(0, Ordering::SeqCst);
        let late = node.commands.run(command(1, short));
        let rest = join_all((2..COMMANDS + 2).map(|at| node.commands.run(command(at, long))));
        let go_on = async {
            site.clock.sleep(2 * short).await;
            stall.go_on();
        };
        let (late, rest, ()) = futures::join!(late, rest, go_on);
        (late, rest)
    };
    let (first, (late, rest)) = join(first, others).await;
    for (at, answer) in [&first, &late].into_iter().chain(&rest).enumerate() {
        ledger.note(&format!("update {at}"), answer);
    }
    assert_eq!(late, Err(Refused::Busy(Busy::TimedOut)));
    assert!(first.is_ok() && rest.iter().all(Result::is_ok), "{first:?} {rest:?}");
    let reads = slow.reads.load(Ordering::SeqCst);
    assert_eq!(reads, COMMANDS.div_ceil(32), "of {COMMANDS} rows");
    assert_eq!(node.stop().await, Ended::Stopped);
    check(site, PARTITION, &ledger).await;
}

/// After a pause of the storage the first command that waited was always one whose time was nearly
/// over. Its group ended at once because of that, with this one command, and was late; the next
/// group was the same. So no command was done for as long as clients went on asking.
async fn ends(stage: &Stage) {
    const CLIENTS: usize = 300;
    let site = &stage.site;
    // A group of a server that has no processor for itself takes longer than one of this process.
    let within = Duration::from_millis(if stage.is_embedded { 600 } else { 1_500 });
    let (node, _, _, stall, ids) = begin(stage, CLIENTS as u64).await;
    let (done, unknown) = (AtomicUsize::new(0), AtomicUsize::new(0));
    let counts = || (done.load(Ordering::SeqCst), unknown.load(Ordering::SeqCst));
    let client = async |at: usize| loop {
        let rows = vec![update(ids[at], None, "again")];
        let command = cud(WS, rows, site.clock.now() + within);
        match node.commands.run(command).await {
            Ok(_) => drop(done.fetch_add(1, Ordering::SeqCst)),
            Err(Refused::Unknown(_)) => drop(unknown.fetch_add(1, Ordering::SeqCst)),
            Err(Refused::Busy(_)) => site.clock.sleep(Duration::from_millis(20)).await,
            Err(refused) => panic!("{refused}"),
        }
    };
    let load = join_all((0..CLIENTS).map(client));
    let watch = async {
        site.clock.sleep(within).await;
        stall.arm(At::Before(1));
        stall.until_still().await;
        site.clock.sleep(2 * within).await;
        stall.go_on();
        // What was begun before is done, and groups are measured again.
        site.clock.sleep(2 * within).await;
        let before = counts();
        site.clock.sleep(2 * within).await;
        let after = counts();
        (after.0 - before.0, after.1 - before.1)
    };
    let (done, unknown) = tokio::select! {
        biased;
        counted = watch => counted,
        _ = load => panic!("clients do not end"),
    };
    // There is time for at least ten groups of 32, also on a busy machine.
    assert!(done >= 100, "{done} were done, {unknown} are not known");
    assert!(unknown <= done / 2, "{done} were done, {unknown} are not known");
    node.kill();
}
