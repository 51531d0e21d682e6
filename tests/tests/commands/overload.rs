//! More commands than a partition can do: the partition refuses some of them, and does as many as
//! it can.

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
use processor::{Busy, Command, PartitionEnd, Refused};
use shop::{
    AnswerLedger, ShopNode, ShopNodeSettings, StallPoint, StallingStorage, article, check, cud,
    qname, update,
};
use tck::trial::{Trial, trials};

use crate::{
    fixture::{CommandsFixture, PARTITION, WS, named},
    slow_storage::{SlowStorage, bills, slow, slow_at},
};

pub(crate) const TRIALS: &[Trial<CommandsFixture>] = trials!(overload:
    a_command_that_waited_too_long_does_not_delay_others = waited_too_long,
    slow_handlers_do_not_make_the_partition_refuse_others = slow_handlers,
    slow_groups_do_not_make_an_idle_partition_refuse_commands = after_idle,
    only_the_last_of_late_commands_is_tried = late_ones,
    overload_ends_when_the_storage_works_again = ends,
);

/// The time of a call to the storage.
const DELAY: Duration = Duration::from_millis(45);

/// A leader with a number of bills. Its storage is slow, and stands still when the stall is armed.
async fn begin(
    fixture: &CommandsFixture,
    count: u64,
) -> (ShopNode, AnswerLedger, Arc<SlowStorage>, StallingStorage, Vec<RecordId>) {
    let stall = StallingStorage::new(Arc::clone(&fixture.shop_db.app.storage));
    let slow = slow(Arc::new(stall.clone()), &fixture.shop_db.clock, DELAY);
    let storage = Some(Arc::clone(&slow) as SharedStorage);
    let settings = ShopNodeSettings { storage, ..ShopNodeSettings::at(TrustLevel::Zero) };
    let (node, mut ledger) = fixture.begin(PARTITION, WS, settings).await;
    let ids = bills(fixture, &node, &mut ledger, count).await;
    (node, ledger, slow, stall, ids)
}

/// The read ahead had the deadline of the first waiting command. When that deadline had passed,
/// nothing was read ahead, and each of the later commands read its rows one by one.
async fn waited_too_long(fixture: &CommandsFixture) {
    const COMMANDS: usize = 60;
    let shop_db = &fixture.shop_db;
    let (node, mut ledger, slow, stall, ids) = begin(fixture, 2 + COMMANDS as u64).await;
    let command = |at: usize, within| {
        let rows = vec![update(ids[at], None, "second")];
        named(&format!("update {at}"), cud(WS, rows, shop_db.clock.now() + within))
    };
    let (short, long) = (Duration::from_millis(50), Duration::from_secs(10));
    // The command reads its row, and stands still when the row is written.
    stall.arm(StallPoint::Before(2));
    let first = node.commands.run(command(0, long));
    let others = async {
        stall.until_still().await;
        slow.reads.store(0, Ordering::SeqCst);
        let late = node.commands.run(command(1, short));
        let rest = join_all((2..COMMANDS + 2).map(|at| node.commands.run(command(at, long))));
        let go_on = async {
            shop_db.clock.sleep(2 * short).await;
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
    assert_eq!(node.stop().await, PartitionEnd::Stopped);
    check(shop_db, PARTITION, &ledger).await;
}

/// A note reads for two seconds, and is the first command of its group. After three notes the
/// partition refused commands that had a second left, although their group took milliseconds.
async fn slow_handlers(fixture: &CommandsFixture) {
    const NOTES: usize = 3;
    let (shop_db, read) = (&fixture.shop_db, Duration::from_secs(2));
    let inner = Arc::clone(&shop_db.app.storage);
    let slow = slow_at(inner, &shop_db.clock, read, Duration::ZERO);
    let storage = Some(Arc::clone(&slow) as SharedStorage);
    let settings = ShopNodeSettings { storage, ..ShopNodeSettings::at(TrustLevel::Zero) };
    let (node, mut ledger) = fixture.begin(PARTITION, WS, settings).await;
    // From here on the kind of the workspace is in memory.
    bills(fixture, &node, &mut ledger, 1).await;
    slow.reads.store(0, Ordering::SeqCst);
    let note = |at: usize| {
        let note = Command { name: qname("shop.Note"), ..cud(WS, Vec::new(), shop_db.soon()) };
        node.commands.run(named(&format!("note {at}"), note))
    };
    let quick = async {
        while slow.reads.load(Ordering::SeqCst) < NOTES {
            shop_db.clock.sleep(Duration::from_millis(5)).await;
        }
        shop_db.clock.sleep(read / 2).await;
        let quick = |at: usize| {
            let command = cud(WS, article("quick"), shop_db.clock.now() + read);
            node.commands.run(named(&format!("quick {at}"), command))
        };
        join_all((0..20).map(quick)).await
    };
    let (notes, quick) = join(join_all((0..NOTES).map(note)), quick).await;
    for (at, answer) in notes.iter().enumerate() {
        ledger.note(&format!("note {at}"), answer);
    }
    for (at, answer) in quick.iter().enumerate() {
        ledger.note(&format!("quick {at}"), answer);
    }
    assert!(notes.iter().chain(&quick).all(Result::is_ok), "{notes:?} {quick:?}");
    assert_eq!(node.stop().await, PartitionEnd::Stopped);
    check(shop_db, PARTITION, &ledger).await;
}

/// How long the storage stands still in a slow group.
const PAUSE: Duration = Duration::from_secs(1);

/// A leader with a limit of commands in a group. Its storage stands still when the stall is armed.
async fn pausing(
    fixture: &CommandsFixture,
    group_commands: usize,
) -> (ShopNode, AnswerLedger, StallingStorage) {
    let stall = StallingStorage::new(Arc::clone(&fixture.shop_db.app.storage));
    let storage = Some(Arc::new(stall.clone()) as SharedStorage);
    let mut settings = ShopNodeSettings { storage, ..ShopNodeSettings::at(TrustLevel::Zero) };
    settings.partition.group_commands = group_commands;
    let (node, mut ledger) = fixture.begin(PARTITION, WS, settings).await;
    bills(fixture, &node, &mut ledger, 1).await;
    (node, ledger, stall)
}

/// Three groups were slow, and no command waited. Later 20 commands came together, and the
/// partition refused 19 of them, even after a long pause.
async fn after_idle(fixture: &CommandsFixture) {
    let shop_db = &fixture.shop_db;
    let (node, mut ledger, stall) = pausing(fixture, 500).await;
    let create = |name: &str, within| {
        node.commands.run(named(name, cud(WS, article("a"), shop_db.clock.now() + within)))
    };
    for at in 0..3 {
        let name = format!("slow {at}");
        stall.arm(StallPoint::Before(1));
        let go_on = async {
            stall.until_still().await;
            shop_db.clock.sleep(PAUSE).await;
            stall.go_on();
        };
        let (answer, ()) = join(create(&name, Duration::from_secs(10)), go_on).await;
        ledger.note(&name, &answer);
        answer.unwrap();
    }
    let names: Vec<String> = (0..20).map(|at| format!("quick {at}")).collect();
    let answers = join_all(names.iter().map(|name| create(name, 2 * PAUSE / 3))).await;
    names.iter().zip(&answers).for_each(|(name, answer)| ledger.note(name, answer));
    assert!(answers.iter().all(Result::is_ok), "{answers:?}");
    assert_eq!(node.stop().await, PartitionEnd::Stopped);
    check(shop_db, PARTITION, &ledger).await;
}

/// While groups are slow, the partition refuses a command that has less time left than a group
/// takes. The last waiting command is not refused: otherwise the partition would never notice that
/// groups are quick again.
async fn late_ones(fixture: &CommandsFixture) {
    // On a server the write of a group is several calls.
    if !fixture.is_embedded {
        return;
    }
    let shop_db = &fixture.shop_db;
    let (node, mut ledger, stall) = pausing(fixture, 1).await;
    let long = Duration::from_secs(10);
    let little = 3 * PAUSE + 2 * PAUSE / 3;
    let sent =
        [("a", long), ("b", long), ("c", long), ("late", little), ("last", little)].map(|sent| {
            let (name, within) = sent;
            node.commands.run(named(name, cud(WS, article("a"), shop_db.clock.now() + within)))
        });
    stall.arm(StallPoint::Before(1));
    let pause = async {
        for then in [StallPoint::Before(1), StallPoint::Before(1), StallPoint::Nowhere] {
            stall.until_still().await;
            shop_db.clock.sleep(PAUSE).await;
            stall.go_on_to(then);
        }
    };
    let (answers, ()) = join(join_all(sent), pause).await;
    let names = ["a", "b", "c", "late", "last"];
    names.iter().zip(&answers).for_each(|(name, answer)| ledger.note(name, answer));
    assert!(answers[..3].iter().all(Result::is_ok), "{answers:?}");
    assert_eq!(answers[3], Err(Refused::Busy(Busy::TimedOut)));
    assert!(answers[4].is_ok(), "{answers:?}");
    assert_eq!(node.stop().await, PartitionEnd::Stopped);
    check(shop_db, PARTITION, &ledger).await;
}

/// After a pause of the storage, the first waiting command was always one with little time left. So
/// its group ended at once, with this one command, and was late. The next group was the same. So no
/// command was done for as long as clients went on sending.
async fn ends(fixture: &CommandsFixture) {
    const CLIENTS: usize = 300;
    let shop_db = &fixture.shop_db;
    // A group on a server without a processor of its own takes longer than a group of this process.
    let within = Duration::from_millis(if fixture.is_embedded { 600 } else { 1_500 });
    let (node, _, _, stall, ids) = begin(fixture, CLIENTS as u64).await;
    let (done, unknown) = (AtomicUsize::new(0), AtomicUsize::new(0));
    let counts = || (done.load(Ordering::SeqCst), unknown.load(Ordering::SeqCst));
    let client = async |at: usize| loop {
        let rows = vec![update(ids[at], None, "again")];
        let command = cud(WS, rows, shop_db.clock.now() + within);
        match node.commands.run(command).await {
            Ok(_) => drop(done.fetch_add(1, Ordering::SeqCst)),
            Err(Refused::Unknown(_)) => drop(unknown.fetch_add(1, Ordering::SeqCst)),
            Err(Refused::Busy(_)) => shop_db.clock.sleep(Duration::from_millis(20)).await,
            Err(refused) => panic!("{refused}"),
        }
    };
    let load = join_all((0..CLIENTS).map(client));
    let watch = async {
        shop_db.clock.sleep(within).await;
        stall.arm(StallPoint::Before(1));
        stall.until_still().await;
        shop_db.clock.sleep(2 * within).await;
        stall.go_on();
        // Wait until the earlier commands are done, and groups are measured again.
        shop_db.clock.sleep(2 * within).await;
        let before = counts();
        shop_db.clock.sleep(2 * within).await;
        let after = counts();
        (after.0 - before.0, after.1 - before.1)
    };
    let (done, unknown) = tokio::select! {
        biased;
        counted = watch => counted,
        _ = load => panic!("clients do not end"),
    };
    // There is time for at least ten groups of 32 commands, also on a busy machine.
    assert!(done >= 100, "{done} were done, {unknown} are not known");
    assert!(unknown <= done / 2, "{done} were done, {unknown} are not known");
    node.kill();
}
