//! A write with an unknown outcome, or a write that lands late, at each of the writes of commands.

use std::{
    sync::{
        Arc,
        atomic::{AtomicUsize, Ordering},
    },
    time::Duration,
};

use eventlog::TrustLevel;
use istorage::{CallKind, SharedStorage};
use processor::{Busy, Command, Done, PartitionEnd, Refused, Status};
use shop::{ShopNode, StallingStorage, TestFence};
use tck::{
    storage::{Fault, Faulty},
    trial::{Trial, trials},
};

use crate::{
    fixture::CommandsFixture,
    scene::{Scene, WriteSetup, play, sample, write_setups},
};

pub(crate) const TRIALS: &[Trial<CommandsFixture>] = trials!(late_writes:
    a_leader_settles_every_write_of_a_lone_command = |fixture| settled(fixture, SentCommands::Lone),
    a_leader_settles_every_write_of_a_group = |fixture| settled(fixture, SentCommands::Group),
    a_write_of_a_lone_command_lands_under_the_next_leader
        = |fixture| left_open(fixture, SentCommands::Lone),
    a_write_of_a_group_lands_under_the_next_leader
        = |fixture| left_open(fixture, SentCommands::Group),
    every_level_keeps_all_promises_if_a_write_lands_before_the_next_leader_begins = in_time,
);

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum SentCommands {
    Lone,
    Group,
}

/// A time longer than any trial.
const NEVER: Duration = Duration::from_secs(3_600);

/// The faults that are tried at each write. Servers get only the first ones, which are worth their
/// time everywhere.
const FAULTS: [Fault; 5] = [
    Fault::AppliedButError,
    Fault::AppliedLate(NEVER),
    Fault::Unavailable,
    Fault::NotAppliedButError,
    Fault::AppliedLate(Duration::ZERO),
];

/// One fault at one write. With a fence, the leadership is lost at that write.
struct WriteFaultScript {
    faulty: Arc<Faulty>,
    /// The number of writes since the script was armed. Before, a very high number.
    writes: Arc<AtomicUsize>,
}

impl WriteFaultScript {
    fn new(
        scene: &Scene<'_>,
        at: Option<(usize, Fault)>,
        fence: Option<Arc<TestFence>>,
    ) -> WriteFaultScript {
        let writes = Arc::new(AtomicUsize::new(usize::MAX / 2));
        let counted = Arc::clone(&writes);
        let script = move |op| {
            if !matches!(
                op,
                CallKind::PutBatch
                    | CallKind::PutOrdered
                    | CallKind::WriteIf
                    | CallKind::WriteAtomic
            ) {
                return Fault::None;
            }
            let this = counted.fetch_add(1, Ordering::SeqCst) + 1;
            match at {
                Some((write, fault)) if write == this => {
                    if let Some(fence) = &fence {
                        fence.lose();
                    }
                    fault
                }
                _ => Fault::None,
            }
        };
        let clock = scene.fixture.shop_db.clock.clone();
        WriteFaultScript {
            faulty: Arc::new(Faulty::scripted(scene.storage(), clock, script)),
            writes,
        }
    }

    fn arm(&self) {
        self.writes.store(0, Ordering::SeqCst);
    }

    fn writes(&self) -> usize {
        self.writes.load(Ordering::SeqCst)
    }
}

async fn send(scene: &Scene<'_>, node: &ShopNode, hold: &StallingStorage, sent: SentCommands) {
    match sent {
        SentCommands::Lone => drop(scene.run(node, scene.repeatable()).await),
        SentCommands::Group => scene.run_group(node, hold, scene.group()).await,
    }
}

const REQUESTS: [&str; 5] = ["repeatable", "new", "old", "bill", "twice"];

async fn settled(fixture: &CommandsFixture, sent: SentCommands) {
    let faults = if fixture.is_embedded { &FAULTS[..] } else { &FAULTS[..3] };
    let mut cases = Vec::new();
    for (setup, partition) in write_setups(fixture).into_iter().zip(0..) {
        let writes = settle(fixture, partition, setup, sent, None).await;
        assert!(writes > 0, "no write was seen");
        let at =
            (1..=writes).flat_map(|write| faults.iter().map(move |fault| Some((write, *fault))));
        cases.extend(at.map(|at| (setup, at)));
    }
    play(sample(fixture, cases), 100, async |partition, (setup, at)| {
        settle(fixture, partition, setup, sent, at).await;
    })
    .await;
}

/// Plays one case, and returns the number of writes.
async fn settle(
    fixture: &CommandsFixture,
    partition: u16,
    setup: WriteSetup,
    sent: SentCommands,
    at: Option<(usize, Fault)>,
) -> usize {
    let scene = Scene::new(fixture, partition, setup).await;
    let script = WriteFaultScript::new(&scene, at, None);
    let hold = StallingStorage::new(Arc::clone(&script.faulty) as SharedStorage);
    let node = fixture.shop_db.node(partition, scene.settings(Arc::new(hold.clone())));
    node.ready().await;
    script.arm();
    send(&scene, &node, &hold, sent).await;
    let may_be_refused = at.is_some_and(|(_, fault)| fault == Fault::Unavailable);
    let answers = REQUESTS.iter().filter_map(|request| scene.answer(request)).collect::<Vec<_>>();
    assert_eq!(answers.len(), if sent == SentCommands::Lone { 1 } else { REQUESTS.len() });
    for answer in answers {
        let is_right = match &answer {
            Ok(_) => true,
            Err(Refused::Busy(Busy::Storage(_))) => may_be_refused,
            Err(_) => false,
        };
        assert!(is_right, "{answer:?}");
    }
    let done = async |command: &(dyn Fn() -> Command + Sync)| -> Done {
        if may_be_refused {
            scene.until_done(&node, command).await
        } else {
            scene.run(&node, command()).await.unwrap()
        }
    };
    done(&|| scene.changes("after")).await;
    script.faulty.land_late_writes().await;
    let again = done(&|| scene.repeatable()).await;
    assert!(again.is_repeated || may_be_refused);
    done(&|| scene.changes("last")).await;
    script.faulty.land_late_writes().await;
    assert_eq!(node.stop().await, PartitionEnd::Stopped);
    let writes = script.writes();
    scene.check(None).await;
    writes
}

async fn left_open(fixture: &CommandsFixture, sent: SentCommands) {
    open_at_each_write(fixture, sent, Landing::Behind).await;
}

/// At level 2 a write was sent under a valid lease, and landed after the next leader had recovered
/// the log. The write left a record with a state that no event has. The cause: the lease did not
/// have to last until the write had landed ([`vvm::NodeSettings::lease_for`]). If the lease lasts
/// that long, level 2 keeps everything that the other levels keep.
async fn in_time(fixture: &CommandsFixture) {
    for sent in [SentCommands::Lone, SentCommands::Group] {
        open_at_each_write(fixture, sent, Landing::InFront).await;
    }
}

/// When a write without an answer lands.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Landing {
    /// Before the next leader begins. At level 2 the lease makes the next leader wait that long.
    InFront,
    /// While the next leader is working.
    Behind,
}

async fn open_at_each_write(fixture: &CommandsFixture, sent: SentCommands, lands: Landing) {
    let first = if sent == SentCommands::Lone { 0 } else { 50 };
    let mut cases = Vec::new();
    for (setup, partition) in write_setups(fixture).into_iter().zip(first..) {
        let writes = leave_open(fixture, partition, setup, (sent, lands), None).await;
        assert!(writes > 0, "no write was seen");
        cases.extend((1..=writes).map(|write| (setup, Some(write))));
    }
    play(sample(fixture, cases), 100 + 1_000 * first, async |partition, (setup, at)| {
        leave_open(fixture, partition, setup, (sent, lands), at).await;
    })
    .await;
}

/// Plays one case, and returns the number of writes of the first leader.
async fn leave_open(
    fixture: &CommandsFixture,
    partition: u16,
    setup: WriteSetup,
    (sent, lands): (SentCommands, Landing),
    at: Option<usize>,
) -> usize {
    let scene = Scene::new(fixture, partition, setup).await;
    let before = scene.next().await;
    let fence = TestFence::of(before.log.fence().epoch().0);
    before.kill();
    let fault = at.map(|write| (write, Fault::AppliedLate(NEVER)));
    let script = WriteFaultScript::new(&scene, fault, Some(Arc::clone(&fence)));
    let hold = StallingStorage::new(Arc::clone(&script.faulty) as SharedStorage);
    let node = fixture.shop_db.node_of(partition, fence, scene.settings(Arc::new(hold.clone())));
    node.ready().await;
    script.arm();
    send(&scene, &node, &hold, sent).await;
    if at.is_some() {
        node.until(|status| matches!(status, Status::LeadershipLost(_) | Status::Failed(_))).await;
    } else {
        assert_eq!(node.stop().await, PartitionEnd::Stopped);
    }
    let writes = script.writes();
    node.kill();

    let land = async || {
        let landed = script.faulty.land_late_writes().await;
        assert_eq!(landed.len(), usize::from(at.is_some()), "{landed:?}");
    };
    if lands == Landing::InFront {
        land().await;
    }
    let next = scene.next().await;
    scene.run(&next, scene.changes("second")).await.unwrap();
    if lands == Landing::Behind {
        land().await;
    }
    scene.run(&next, scene.changes("second again")).await.unwrap();
    assert_eq!(next.stop().await, PartitionEnd::Stopped);
    let third = scene.next().await;
    scene.run(&third, scene.changes("third")).await.unwrap();
    assert_eq!(third.stop().await, PartitionEnd::Stopped);
    let may_lose = setup.level == TrustLevel::Two && lands == Landing::Behind;
    scene.check(may_lose.then(|| next.log.fence().epoch())).await;
    writes
}
