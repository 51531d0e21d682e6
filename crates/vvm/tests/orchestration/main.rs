//! Nodes in one process: the choice of the leader, the problems that the host learns, and what is
//! left when a node has stopped.

#![allow(clippy::unwrap_used, clippy::disallowed_methods)]

mod cluster;
mod found;
mod killer;
mod leaders;
mod lease_times;
mod levels;
mod moves;
mod numbers;
mod owners;
mod reads;
mod repair;
mod services;
mod versions;

use std::{
    num::{NonZeroU16, NonZeroU32},
    sync::{
        Arc,
        atomic::{AtomicBool, Ordering},
    },
    time::Duration,
};

use bytes::Bytes;
use clock::ManualClock;
use cluster::{BindBehaviour, Cluster, PATIENCE, ScriptedService, owner, run, send};
use eventlog::{AppRow, Offset, RecordId, TrustLevel, WsId};
use futures::FutureExt;
use ielections::Timing;
use isequencer::standard::FIRST_CRECORD_ID;
use istorage::{AppStorageExt, Consistency};
use shop::{StallPoint, article, create_workspace, cud, shop};
use sysvvm::AppName;
use vvm::{AppSettings, InvalidNodeSettings, Launched, NodeSettings, Problem, Stage, Vvm};

/// The number of partitions of the shop in these tests.
const PARTITIONS: NonZeroU16 = NonZeroU16::new(10).unwrap();

/// VVM.test.Basic
#[tokio::test]
async fn the_first_node_leads_and_the_second_waits() {
    let cluster = Cluster::new();
    let (first, soon) = cluster.with_workspace(cluster.node(1, |_| {})).await;
    let done = run(&first, cud(7, article("a"), soon)).await;
    assert_eq!(done.wlog.0, 2);
    let app = first.node().app("acme", "shop").unwrap();
    let partition = app.at(WsId(7)).unwrap();
    assert_eq!(partition.commands().sequencer().busy(), None, "numbers can be drawn");

    let second =
        cluster.node(2, |settings| settings.acquire_within = Some(Duration::from_millis(300)));
    let second = second.build().unwrap().launch();
    let problem = second.problem().await;
    assert!(matches!(*problem, Problem::NotAcquired(_)), "{problem}");
    let leader = owner(second.node()).await;
    assert_eq!(leader, Some(first.node().advertised()));
    assert!(second.node().app("acme", "shop").unwrap().at(WsId(7)).is_err());
    assert!(matches!(*second.shutdown().await.unwrap_err(), Problem::NotAcquired(_)));
    first.shutdown().await.unwrap();
}

/// A standby that was started before its storage ended at once, although it was configured to wait
/// for ever.
#[tokio::test]
async fn a_node_that_waits_for_ever_waits_for_its_storage_too() {
    let cluster = Cluster::new();
    cluster.driver.is_out_of_reach.store(true, Ordering::SeqCst);
    let standby = cluster.launch(1);
    let hasty = cluster.node(2, |settings| settings.acquire_within = Some(PATIENCE));
    let hasty = hasty.build().unwrap().launch();
    assert!(matches!(*hasty.problem().await, Problem::Storage(_)));
    assert!(hasty.shutdown().await.is_err());
    assert_eq!(standby.node().stage(), Stage::Opening);
    let soon = cluster.clock.now() + Duration::from_millis(50);
    assert!(cluster.clock.timeout_at(soon, standby.problem()).await.is_err());
    cluster.driver.is_out_of_reach.store(false, Ordering::SeqCst);
    cluster.until(&standby, Stage::Leading).await;
    standby.shutdown().await.unwrap();

    // The system keyspace can be opened, and the keyspace of the application cannot. Such a standby
    // ended with code 4 after `open_within`.
    cluster.driver.refused_opens.store(usize::MAX, Ordering::SeqCst);
    let standby = cluster.node(1, |settings| settings.open_within = Duration::from_millis(500));
    let standby = standby.build().unwrap().launch();
    let later = cluster.clock.now() + Duration::from_secs(3);
    assert!(cluster.clock.timeout_at(later, standby.problem()).await.is_err());
    assert_eq!(standby.node().stage(), Stage::Opening);
    cluster.driver.refused_opens.store(0, Ordering::SeqCst);
    cluster.until(&standby, Stage::Leading).await;
    standby.shutdown().await.unwrap();
}

/// A server died together with the former leader. Because of that server one call of the next
/// leader failed, and the next leader ended with code 4.
#[tokio::test]
async fn a_node_that_takes_over_tries_again_to_open_what_the_storage_cannot_open_yet() {
    let cluster = Cluster::new();
    cluster.driver.refused_opens.store(2, Ordering::SeqCst);
    let node = cluster.launch(1);
    cluster.until(&node, Stage::Leading).await;
    assert_eq!(cluster.driver.refused_opens.load(Ordering::SeqCst), 0);
    node.shutdown().await.unwrap();

    // The node ends if opening takes too long: before it has a seat, and when it leads. A node that
    // does not know its application reads nothing of it before it leads.
    for (cluster, reached) in [(cluster, Stage::Opening), (Cluster::new(), Stage::Recovering)] {
        cluster.driver.refused_opens.store(usize::MAX, Ordering::SeqCst);
        let node = cluster.node(1, |settings| {
            settings.open_within = Duration::from_secs(2);
            settings.acquire_within = Some(PATIENCE);
        });
        let node = node.build().unwrap().launch();
        cluster.until(&node, reached).await;
        let soon = cluster.clock.now() + PATIENCE;
        let problem = cluster.clock.timeout_at(soon, node.problem()).await;
        let problem = problem.expect("it opens for ever");
        assert!(matches!(&*problem, Problem::Storage(why) if why.contains("hangs")), "{problem}");
        assert_eq!(node.node().stage(), reached);
        assert!(node.shutdown().await.is_err());
        assert!(cluster.lease(1).await.is_none());
    }
}

/// Lets time pass in small steps until a future is ready.
async fn while_time_passes<T>(manual: &ManualClock, future: impl Future<Output = T>) -> T {
    let passes = async {
        for _ in 0..30_000 {
            for _ in 0..100 {
                tokio::task::yield_now().await;
            }
            manual.advance(Duration::from_millis(10));
        }
    };
    tokio::select! {
        biased;
        value = future => value,
        () = passes => panic!("five minutes have passed"),
    }
}

/// VVM.test.Shutdown
#[tokio::test]
async fn a_node_that_loses_its_leadership_reports_it_and_stops() {
    let manual = ManualClock::new(1);
    let cluster = Cluster::with_clock(manual.clock());
    let node = cluster.launch(1);
    while_time_passes(&manual, cluster.until(&node, Stage::Leading)).await;
    cluster.usurp(1).await;
    let usurped = cluster.clock.now();
    assert!(node.problem().now_or_never().is_none(), "no time has passed");
    let problem = while_time_passes(&manual, node.problem()).await;
    assert!(matches!(*problem, Problem::LeadershipLost(_)), "{problem}");
    let took = cluster.clock.now() - usurped;
    let renew_every = cluster.settings(1).lease.renew_every;
    assert!(took <= renew_every, "the next renewal tells: {took:?} of {renew_every:?}");
    let reported = while_time_passes(&manual, node.shutdown()).await.unwrap_err();
    assert!(Arc::ptr_eq(&reported, &problem), "the problem was reported twice");
    assert_eq!(cluster.lease(1).await.unwrap(), "x", "the lease of another node was changed");
}

/// The applications of the node are not open yet.
#[tokio::test]
async fn a_node_that_loses_its_leadership_at_its_start_starts_nothing() {
    let cluster = Cluster::new();
    cluster.driver.is_held.store(true, Ordering::SeqCst);
    let node = cluster.launch_hasty(1);
    cluster.until(&node, Stage::Recovering).await;
    cluster.usurp(1).await;
    assert!(matches!(*node.problem().await, Problem::LeadershipLost(_)));
    cluster.driver.is_held.store(false, Ordering::SeqCst);
    let here = |ws| node.node().app("acme", "shop").unwrap().at(WsId(ws)).is_ok();
    assert!((0..10).all(|ws| !here(ws)), "no partition is put to work any more");
    assert!(matches!(*node.shutdown().await.unwrap_err(), Problem::LeadershipLost(_)));
    assert_eq!(cluster.lease(1).await.unwrap(), "x", "the lease of another node was changed");
}

/// The partitions of the node read their logs, and the storage does not answer.
#[tokio::test]
async fn a_node_that_loses_its_leadership_during_recovery_stops() {
    let cluster = Cluster::new();
    let node = cluster.launch(1);
    cluster.until(&node, Stage::Leading).await;
    node.shutdown().await.unwrap();

    let stall = cluster.driver.stall.get().unwrap().clone();
    stall.arm(StallPoint::Before(5));
    let node = cluster.launch_hasty(1);
    stall.until_still().await;
    cluster.until(&node, Stage::Recovering).await;
    cluster.usurp(1).await;
    assert!(matches!(*node.problem().await, Problem::LeadershipLost(_)));
    let start = cluster.clock.now();
    assert!(matches!(*node.shutdown().await.unwrap_err(), Problem::LeadershipLost(_)));
    let took = cluster.clock.now() - start;
    assert!(took < Duration::from_secs(9), "it took {took:?}");
    stall.go_on();
}

/// VVM.test.CancelLeadership
#[tokio::test]
async fn a_node_that_is_shut_down_releases_its_lease() {
    let cluster = Cluster::new();
    let first = cluster.launch(1);
    cluster.until(&first, Stage::Leading).await;
    let second = cluster.launch(2);
    cluster.until(&second, Stage::Waiting).await;
    first.shutdown().await.unwrap();
    let start = cluster.clock.now();
    cluster.until(&second, Stage::Leading).await;
    assert!(cluster.clock.now() - start < Duration::from_secs(10), "it waited for the lease's end");
    second.shutdown().await.unwrap();
    assert!(cluster.lease(1).await.is_none());
}

#[tokio::test]
async fn shutdown_ends_the_node_in_every_stage() {
    let cluster = Cluster::new();
    cluster.launch(1).shutdown().await.unwrap();
    assert!(cluster.lease(1).await.is_none(), "right after launch");

    let leader = cluster.launch(1);
    cluster.until(&leader, Stage::Leading).await;
    let waits = cluster.launch(2);
    cluster.until(&waits, Stage::Waiting).await;
    let start = cluster.clock.now();
    waits.shutdown().await.unwrap();
    assert!(cluster.clock.now() - start < Duration::from_secs(10), "during acquisition");
    leader.shutdown().await.unwrap();

    let stall = cluster.driver.stall.get().unwrap().clone();
    stall.arm(StallPoint::Before(5));
    let node = cluster.launch(1);
    stall.until_still().await;
    cluster.until(&node, Stage::Recovering).await;
    let stopping = node.shutdown();
    let goes_on = async {
        tokio::task::yield_now().await;
        stall.go_on();
    };
    let (stopped, ()) = tokio::join!(stopping, goes_on);
    stopped.unwrap();
    assert!(cluster.lease(1).await.is_none(), "during recovery");
}

/// The threads of a storage had panicked and every request failed, but the node reported that it
/// was ready. A node that was opening its storage tried again and again.
#[tokio::test]
async fn a_storage_that_fails_ends_the_node_in_every_stage() {
    for stage in [Stage::Opening, Stage::Recovering, Stage::Leading, Stage::Waiting] {
        let cluster = Cluster::new();
        cluster.driver.is_out_of_reach.store(stage == Stage::Opening, Ordering::SeqCst);
        cluster.driver.is_held.store(stage == Stage::Recovering, Ordering::SeqCst);
        let mut node = cluster.launch(1);
        if stage == Stage::Waiting {
            cluster.until(&node, Stage::Leading).await;
            node = cluster.launch(2);
        }
        cluster.until(&node, stage).await;
        cluster.driver.failed.cancel();
        let soon = cluster.clock.now() + PATIENCE;
        let problem = cluster.clock.timeout_at(soon, node.problem()).await;
        let problem = problem.expect("the node goes on without its storage");
        assert!(
            matches!(&*problem, Problem::Storage(why) if why.contains("panicked")),
            "{problem}"
        );
        assert!(node.shutdown().await.is_err());
    }
}

#[tokio::test]
async fn a_service_that_cannot_start_is_reported_at_once() {
    let cluster = Cluster::new();
    let taken = ScriptedService { binds: BindBehaviour::Taken, ..ScriptedService::default() };
    let other = ScriptedService::default();
    let stopped = Arc::clone(&other.stopped);
    let node = cluster.node(1, |_| {}).with_admin(other).with_service(taken);
    let node = node.build().unwrap().launch();
    let problem = node.problem().await;
    assert!(matches!(*problem, Problem::NotBound { service: "scripted", .. }), "{problem}");
    assert!(cluster.lease(1).await.is_none(), "nothing else was begun");
    assert!(node.shutdown().await.is_err());
    assert_eq!(stopped.load(Ordering::SeqCst), 0);
}

#[tokio::test]
async fn a_service_that_hangs_or_panics_at_its_start_does_not_block_the_node() {
    let cluster = Cluster::new();
    let launch = |binds| {
        let service = ScriptedService { binds, ..ScriptedService::default() };
        cluster.node(1, |_| {}).with_service(service).build().unwrap().launch()
    };
    let node = launch(BindBehaviour::Never);
    tokio::task::yield_now().await;
    node.shutdown().await.unwrap();
    let node = launch(BindBehaviour::Panics);
    let problem = node.problem().await;
    assert!(problem.to_string().contains("panicked"), "{problem}");
    assert!(node.shutdown().await.is_err());
}

/// The call that closes the storage never returns.
#[tokio::test]
async fn a_storage_that_does_not_close_is_named_and_given_up() {
    let cluster = Cluster::new();
    let node = cluster.node(1, |settings| settings.stop_within = Duration::from_secs(4));
    let node = node.build().unwrap().launch();
    cluster.until(&node, Stage::Leading).await;
    cluster.driver.never_closes.store(true, Ordering::SeqCst);
    let problem = node.shutdown().await.unwrap_err();
    assert!(matches!(&*problem, Problem::NotStopped(what) if what == "the storage"), "{problem}");
}

#[tokio::test]
async fn a_service_that_fails_or_panics_is_a_problem_and_the_rest_stops_in_order() {
    for panics in [false, true] {
        let cluster = Cluster::new();
        let failing = ScriptedService { panics, ..ScriptedService::default() };
        let other = ScriptedService::default();
        let (fails, stopped) = (Arc::clone(&failing.fails), Arc::clone(&other.stopped));
        let node = cluster.node(1, |_| {}).with_admin(other).with_service(failing);
        let node = node.build().unwrap().launch();
        cluster.until(&node, Stage::Leading).await;
        fails.notify_one();
        let problem = node.problem().await;
        let is_it = matches!(*problem, Problem::ServiceEnded { service: "scripted", .. });
        assert!(is_it, "{problem}");
        assert!(Arc::ptr_eq(&node.shutdown().await.unwrap_err(), &problem));
        assert_eq!(stopped.load(Ordering::SeqCst), 1);
        assert!(cluster.lease(1).await.is_none(), "the lease is released nevertheless");
    }
}

#[tokio::test]
async fn a_service_that_hangs_at_its_stop_is_named_and_given_up() {
    let cluster = Cluster::new();
    let before = alive_tasks();
    let hangs = ScriptedService { hangs: true, ..ScriptedService::default() };
    let node = cluster.node(1, |settings| settings.stop_within = Duration::from_secs(8));
    let node = node.with_service(hangs).build().unwrap().launch();
    cluster.until(&node, Stage::Leading).await;
    let start = cluster.clock.now();
    let problem = node.shutdown().await.unwrap_err();
    assert!(matches!(&*problem, Problem::NotStopped(name) if name == "scripted"), "{problem}");
    assert!(cluster.clock.now() - start < Duration::from_secs(8));
    assert!(cluster.lease(1).await.is_none(), "the lease is released nevertheless");
    // A service that was given up, and not aborted, kept its port in a program that goes on.
    no_more_tasks_than(before, &cluster).await;
}

#[tokio::test]
async fn services_stop_in_reverse_order_and_admin_services_last() {
    let cluster = Cluster::new();
    let service = |noted_as| {
        let journal = Arc::clone(&cluster.driver.journal);
        ScriptedService { noted_as, journal, ..ScriptedService::default() }
    };
    let node = cluster.node(1, |_| {}).with_admin(service("the admin service"));
    let node = node.with_service(service("the first")).with_service(service("the second"));
    let node = node.build().unwrap().launch();
    cluster.until(&node, Stage::Leading).await;
    node.shutdown().await.unwrap();
    let journal = cluster.driver.journal.lock().unwrap().clone();
    assert_eq!(journal, ["the second", "the first", "the storage", "the admin service"]);
}

/// All services had one deadline. A service that hung until then left no time to those that stop
/// after it, and they were aborted as soon as they were told to stop.
#[tokio::test]
async fn a_service_that_hangs_at_its_stop_leaves_the_others_time() {
    let cluster = Cluster::new();
    let (well, hangs) =
        (ScriptedService::default(), ScriptedService { hangs: true, ..ScriptedService::default() });
    let stopped = Arc::clone(&well.stopped);
    let node = cluster.node(1, |settings| settings.stop_within = Duration::from_secs(4));
    let node = node.with_service(well).with_service(hangs).build().unwrap().launch();
    cluster.until(&node, Stage::Leading).await;
    node.shutdown().await.unwrap_err();
    assert_eq!(stopped.load(Ordering::SeqCst), 1);
}

/// A node that had lost its leadership told its services to stop only after its partitions had
/// ended. If a partition hung, the time of the services was over by then, and they were aborted.
#[tokio::test]
async fn services_stop_while_a_partition_hangs_after_the_leadership_is_lost() {
    let cluster = Cluster::new();
    let service = ScriptedService::default();
    let stopped = Arc::clone(&service.stopped);
    let node = cluster.node(1, |settings| settings.stop_within = Duration::from_secs(16));
    let (node, soon) = cluster.with_workspace(node.with_service(service)).await;
    let stall = cluster.driver.stall.get().unwrap().clone();
    stall.arm(StallPoint::Before(1));
    let under_way = tokio::spawn(send(&node, cud(7, article("a"), soon)));
    stall.until_still().await;
    cluster.usurp(1).await;
    node.problem().await;
    let stopping = tokio::spawn(node.shutdown());
    let until = cluster.clock.now() + Duration::from_secs(8);
    while stopped.load(Ordering::SeqCst) == 0 {
        assert!(cluster.clock.now() < until, "the service was not told to stop");
        cluster.clock.sleep(Duration::from_millis(10)).await;
    }
    assert!(!stopping.is_finished(), "the partition hangs");
    stall.go_on();
    stopping.await.unwrap().unwrap_err();
    under_way.await.unwrap().unwrap_err();
}

/// A write may still land under this leadership.
#[tokio::test]
async fn a_lease_is_not_released_without_a_proof_that_all_work_has_ended() {
    let cluster = Cluster::new();
    let node = cluster.node(1, |settings| settings.stop_within = Duration::from_secs(1));
    let (node, soon) = cluster.with_workspace(node).await;
    let stall = cluster.driver.stall.get().unwrap().clone();
    stall.arm(StallPoint::Before(1));
    let under_way = tokio::spawn(send(&node, cud(7, article("a"), soon)));
    stall.until_still().await;
    let problem = node.shutdown().await.unwrap_err();
    let names_it =
        |all: &[String]| all.len() == 1 && all[0].starts_with("partition 7 of acme/shop: ");
    assert!(matches!(&*problem, Problem::NotEnded(all) if names_it(all)), "{problem}");
    assert!(cluster.lease(1).await.is_some(), "another one could lead while it is written");
    stall.go_on();
    assert!(under_way.await.unwrap().is_err(), "the outcome is unknown");
}

/// A leader with a client that never ends, and a flag that says whether the leader was killed.
async fn with_slow_client(cluster: &Cluster) -> (Launched, Arc<AtomicBool>) {
    let killed = Arc::new(AtomicBool::new(false));
    let kill = Arc::clone(&killed);
    let hangs = ScriptedService { hangs: true, ..ScriptedService::default() };
    let node = cluster.node(1, |settings| {
        settings.lease = Timing::of(Duration::from_secs(6));
        settings.request_call_timeout = Duration::from_secs(1);
        settings.stop_within = Duration::from_secs(12);
    });
    let node = node.with_killer(Arc::new(move |_| kill.store(true, Ordering::SeqCst)));
    let node = node.with_service(hangs).build().unwrap().launch();
    cluster.until(&node, Stage::Leading).await;
    (node, killed)
}

/// The node waited for its clients first and stopped the partitions later. So the killer ended the
/// node.
#[tokio::test]
async fn a_node_that_loses_its_leadership_stops_its_work_before_it_waits_for_clients() {
    let cluster = Cluster::new();
    let (node, killed) = with_slow_client(&cluster).await;
    cluster.usurp(1).await;
    assert!(matches!(*node.problem().await, Problem::LeadershipLost(_)));
    let start = cluster.clock.now();
    node.shutdown().await.unwrap_err();
    assert!(cluster.clock.now() - start > Duration::from_secs(1), "it was waited for");
    assert!(!killed.load(Ordering::SeqCst), "its work had ended");
}

/// The node was asked to stop. Only at the beginning of the stop did the node check whether it
/// still led.
#[tokio::test]
async fn a_node_that_loses_its_leadership_while_it_waits_for_clients_stops_its_work() {
    let cluster = Cluster::new();
    let (node, killed) = with_slow_client(&cluster).await;
    let seen = node.node().clone();
    let stopping = tokio::spawn(node.shutdown());
    while seen.stage() != Stage::Stopping {
        tokio::task::yield_now().await;
    }
    cluster.usurp(1).await;
    stopping.await.unwrap().unwrap_err();
    assert!(!killed.load(Ordering::SeqCst), "its work had ended");
}

/// No task has told the node yet that its leadership is over, but the clock has.
#[tokio::test]
async fn a_node_that_was_suspended_past_its_lease_answers_nothing() {
    let cluster = Cluster::new();
    let node = cluster.launch_hasty(1);
    cluster.until(&node, Stage::Leading).await;
    let app = node.node().app("acme", "shop").unwrap();
    let here = app.at(WsId(7)).unwrap();
    assert!(here.may_answer().is_ok());
    // The sleep blocks the only thread of the runtime, so nothing else goes on either.
    std::thread::sleep(Duration::from_millis(1_500));
    assert!(here.may_answer().is_err(), "a row that was read before may not be answered");
    assert!(app.at(WsId(7)).is_err(), "the partition is not found any more");
    node.shutdown().await.unwrap_err();
}

/// A program that embeds a node learned only after its services had started that its lease was too
/// short.
#[test]
fn parts_that_do_not_fit_into_the_lease_are_refused() {
    let cluster = Cluster::new();
    let node = cluster.node(1, |settings| settings.lease.stop_grace = settings.lease.duration);
    assert!(matches!(node.build(), Err(InvalidNodeSettings::Lease(_))));
}

/// Several problems happen together. The host is told the first one only.
#[tokio::test]
async fn a_problem_is_reported_once() {
    let cluster = Cluster::new();
    let failing = ScriptedService::default();
    let fails = Arc::clone(&failing.fails);
    let node = cluster.node(1, |_| {}).with_service(failing).build().unwrap().launch();
    cluster.until(&node, Stage::Leading).await;
    fails.notify_one();
    cluster.usurp(1).await;
    node.node().step_down().unwrap();
    let first = node.problem().await;
    for _ in 0..3 {
        assert!(Arc::ptr_eq(&node.problem().await, &first));
    }
    assert!(Arc::ptr_eq(&node.shutdown().await.unwrap_err(), &first));
}

#[tokio::test]
async fn a_node_that_steps_down_lets_another_lead() {
    let cluster = Cluster::new();
    let first = cluster.launch(1);
    cluster.until(&first, Stage::Leading).await;
    let second = cluster.launch(2);
    cluster.until(&second, Stage::Waiting).await;
    assert!(second.node().step_down().is_err(), "it does not lead");
    first.node().step_down().unwrap();
    assert!(matches!(*first.problem().await, Problem::SteppedDown));
    assert!(matches!(*first.shutdown().await.unwrap_err(), Problem::SteppedDown));
    cluster.until(&second, Stage::Leading).await;
    second.shutdown().await.unwrap();
}

#[tokio::test]
async fn another_number_of_seats_or_partitions_is_refused() {
    let cluster = Cluster::new();
    let node = cluster.launch(1);
    cluster.until(&node, Stage::Leading).await;
    node.shutdown().await.unwrap();

    let three = |settings: &mut NodeSettings| settings.seats = NonZeroU32::new(3).unwrap();
    let node = cluster.node(1, three).build().unwrap().launch();
    let problem = node.problem().await.to_string();
    assert!(problem.contains("1 seats") && problem.contains('3'), "{problem}");
    assert!(node.shutdown().await.is_err());

    let app = AppSettings::new(AppName::new("acme", "shop").unwrap(), shop());
    let app = AppSettings { partitions: NonZeroU16::new(11).unwrap(), ..app };
    let settings = cluster.settings(1);
    let driver = Arc::clone(&cluster.driver) as _;
    let node = Vvm::builder(driver, cluster.clock.clone(), settings).with_app(app);
    let node = node.build().unwrap().launch();
    let problem = node.problem().await.to_string();
    assert!(problem.contains("10 partitions") && problem.contains("11"), "{problem}");
    assert!(node.shutdown().await.is_err());
    assert!(cluster.lease(1).await.is_none(), "the lease that it took is released");
}

#[tokio::test]
async fn a_node_that_is_built_takes_nothing() {
    let cluster = Cluster::new();
    let service = ScriptedService { binds: BindBehaviour::Panics, ..ScriptedService::default() };
    let node = cluster.node(1, |_| {}).with_service(service).build().unwrap();
    cluster.clock.sleep(Duration::from_millis(100)).await;
    assert_eq!(tokio::runtime::Handle::current().metrics().num_alive_tasks(), 0);
    assert!(cluster.lease(1).await.is_none());
    drop(node);
}

/// A node that ignored the configured level wrote all rows as at level 0, and no test noticed: the
/// trials of the levels run on a log, without a node. A row that is written without a condition is
/// hidden by the foreign row, and the command is done.
#[tokio::test]
async fn the_trust_level_of_an_application_decides_the_writes_of_its_node() {
    let first = RecordId(FIRST_CRECORD_ID);
    for (level, row, is_hidden) in [
        (TrustLevel::Zero, AppRow::Record(WsId(7), first), false),
        (TrustLevel::One, AppRow::Record(WsId(7), first), true),
        (TrustLevel::One, AppRow::Plog(7, Offset(2)), false),
        (TrustLevel::Two, AppRow::Plog(7, Offset(2)), true),
    ] {
        let cluster = Cluster::new();
        let app = AppSettings::new(AppName::new("acme", "shop").unwrap(), shop());
        let node = cluster.node_of(1, AppSettings { level, ..app }, |_| {});
        let (node, soon) = cluster.with_workspace(node).await;
        let storage = cluster.driver.keyspace.get().unwrap();
        storage.put(row.key(), Bytes::from_static(b"foreign"), soon).await.unwrap();
        let created = send(&node, cud(7, article("a"), soon)).await;
        assert_eq!(created.is_ok(), is_hidden, "{row} at {level:?}: {created:?}");
        let stored = storage.get(&row.key(), Consistency::Plain, soon).await.unwrap().unwrap();
        assert_eq!(stored, b"foreign"[..], "{row} at {level:?}");
        node.shutdown().await.unwrap();
    }
}

/// After a node has stopped, only the tasks of the test itself are left: none of a service, a
/// partition or a series.
#[tokio::test]
async fn a_shutdown_leaves_no_task() {
    let cluster = Cluster::new();
    let before = alive_tasks();
    for round in 0..5 {
        let node = cluster.node(1, |_| {}).with_service(ScriptedService::default());
        let node = services::with_services(node).build().unwrap().launch();
        cluster.until(&node, Stage::Leading).await;
        let (ws, soon) = (100 + round, cluster.clock.now() + PATIENCE);
        run(&node, create_workspace(ws, soon)).await;
        let app = node.node().app("acme", "shop").unwrap();
        let series = app.fast_series(&"order".parse().unwrap()).unwrap().clone();
        let _drawn = series.next(WsId(ws), soon).await.unwrap();
        drop(series);
        assert!(alive_tasks() > before + 10, "each partition has tasks");
        node.shutdown().await.unwrap();
        // An aborted task ends at its next turn. A task that sleeps does not.
        for _ in 0..1_000 {
            tokio::task::yield_now().await;
        }
        assert_eq!(alive_tasks(), before);
    }
}

fn alive_tasks() -> usize {
    tokio::runtime::Handle::current().metrics().num_alive_tasks()
}

async fn no_more_tasks_than(before: usize, cluster: &Cluster) {
    let deadline = cluster.clock.now() + PATIENCE;
    while alive_tasks() > before {
        // An aborted task is dropped only when its worker reaches it.
        assert!(cluster.clock.now() < deadline, "{} tasks are left", alive_tasks() - before);
        tokio::task::yield_now().await;
    }
}

/// A program that loses its handle of a node would have a node that nobody can stop.
#[tokio::test]
async fn a_node_whose_handle_is_dropped_stops_in_order() {
    let cluster = Cluster::new();
    let before = alive_tasks();
    let service = ScriptedService::default();
    let stopped = Arc::clone(&service.stopped);
    let node = cluster.node(1, |_| {}).with_service(service).build().unwrap().launch();
    cluster.until(&node, Stage::Leading).await;
    drop(node);
    no_more_tasks_than(before, &cluster).await;
    assert!(cluster.lease(1).await.is_none(), "the lease is released");
    assert_eq!(stopped.load(Ordering::SeqCst), 1);
}
