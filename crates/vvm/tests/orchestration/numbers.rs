//! The fast series of document numbers of a node: when they open, and what a stop gives back.

use std::{
    sync::{
        Arc, Mutex,
        atomic::{AtomicBool, Ordering},
    },
    time::Duration,
};

use clock::{Clock, Instant};
use eventlog::Schema;
use istorage::{
    Call, CallAnswer, Conditional, Error, Result, SharedStorage, StorageWrapper, Write,
};
use processor::{Application, Declarations, SeriesPolicy};
use sysvvm::{AppName, ownership::MemberState};
use tck::storage::Fault;
use vvm::{
    AppSettings, Builder, ClusterOrder, Launched, MemberStatus, NodeSettings, Problem, Stage,
    docnumbers::{Definition, DocNumberError, FastSeries, FastSettings, Series, WsId},
};

use crate::cluster::{Cluster, PATIENCE, hasty};

/// The system keyspace of a node. Rows of document numbers and leases meet faults.
#[derive(Debug)]
pub(crate) struct FaultySystem {
    pub(crate) inner: SharedStorage,
    pub(crate) clock: Clock,
    pub(crate) fault: Arc<Mutex<Fault>>,
    /// While this is set, no lease can be deleted.
    pub(crate) keeps_leases: Arc<AtomicBool>,
}

impl StorageWrapper for FaultySystem {
    fn inner(&self) -> &SharedStorage {
        &self.inner
    }

    async fn call(&self, call: Call<'_>, deadline: Instant) -> Result<CallAnswer> {
        let is_of_numbers = match &call {
            Call::Write(Write::If(pkey, _)) => pkey.starts_with(&[0, 0, 0, 11]),
            _ => false,
        };
        if let Call::Write(Write::If(pkey, ops)) = &call
            && pkey.starts_with(&[0, 0, 0, 1])
            && matches!(ops[..], [Conditional::Delete { .. }])
            && self.keeps_leases.load(Ordering::SeqCst)
        {
            std::future::pending::<()>().await;
        }
        let fault = if is_of_numbers { *self.fault.lock().unwrap() } else { Fault::None };
        match fault {
            Fault::Hang => std::future::pending().await,
            Fault::Slow(time) => self.clock.sleep(time).await,
            Fault::Unavailable => return Err(Error::unavailable("a server hangs")),
            _ => {}
        }
        call.send(&self.inner, deadline).await
    }
}

fn series(template: &str) -> Series {
    Series::new(Definition::new("ticket", template)).unwrap()
}

/// A node with the tables of a schema, and with the fast series `a` and `b`.
fn node_of_two(
    cluster: &Cluster,
    schema: &str,
    (a, b): (&str, &str),
    settings: FastSettings,
) -> Builder {
    let mut app = Declarations::new(schema.parse().unwrap()).unwrap();
    for (id, template, settings) in [("a", a, FastSettings::default()), ("b", b, settings)] {
        let series = Series::new(Definition::new(id, template)).unwrap();
        app = app.with_series(series, SeriesPolicy::Fast(settings)).unwrap();
    }
    let name = AppName::new("acme", "tickets").unwrap();
    cluster.node_of(1, AppSettings::new(name, Arc::new(Application::new(app))), |_| {})
}

/// A node with the application `acme/tickets`, which has one series.
fn node(cluster: &Cluster, number: u16, series: Series, policy: SeriesPolicy) -> Builder {
    node_with(cluster, number, (series, policy), |_| {})
}

fn node_with(
    cluster: &Cluster,
    number: u16,
    (series, policy): (Series, SeriesPolicy),
    change: impl FnOnce(&mut NodeSettings),
) -> Builder {
    let app = Declarations::new(Schema::default()).unwrap().with_series(series, policy).unwrap();
    let name = AppName::new("acme", "tickets").unwrap();
    cluster.node_of(number, AppSettings::new(name, Arc::new(Application::new(app))), change)
}

fn fast() -> SeriesPolicy {
    SeriesPolicy::Fast(FastSettings::default())
}

fn launch(cluster: &Cluster, number: u16) -> Launched {
    node(cluster, number, series("T{counter:4}"), fast()).build().unwrap().launch()
}

fn tickets(launched: &Launched) -> Option<FastSeries> {
    let app = launched.node().app("acme", "tickets").unwrap();
    app.fast_series(&"ticket".parse().unwrap()).cloned()
}

/// Draws a number, and returns its counter.
async fn draw(cluster: &Cluster, launched: &Launched) -> u64 {
    let soon = cluster.clock.now() + PATIENCE;
    tickets(launched).unwrap().next(WsId(7), soon).await.unwrap().counter
}

#[tokio::test]
async fn a_node_that_leads_has_open_series_and_a_standby_has_none() {
    let cluster = Cluster::new();
    let leader = launch(&cluster, 1);
    cluster.until(&leader, Stage::Leading).await;
    let standby = launch(&cluster, 2);
    cluster.until(&standby, Stage::Waiting).await;
    assert!(tickets(&standby).is_none());
    assert_eq!(draw(&cluster, &leader).await, 0);
    let app = leader.node().app("acme", "tickets").unwrap();
    assert!(app.fast_series(&"other".parse().unwrap()).is_none());
    standby.shutdown().await.unwrap();
    leader.shutdown().await.unwrap();
}

/// The standby leads as soon as the lease is released. If the numbers were given back only then,
/// the standby would reserve the numbers after them.
#[tokio::test]
async fn unissued_numbers_are_given_back_before_the_lease_is_released() {
    let cluster = Cluster::new();
    let leader = launch(&cluster, 1);
    cluster.until(&leader, Stage::Leading).await;
    let standby = launch(&cluster, 2);
    cluster.until(&standby, Stage::Waiting).await;
    for expected in 0..3 {
        assert_eq!(draw(&cluster, &leader).await, expected);
    }
    let handle = tickets(&leader).unwrap();
    *cluster.driver.numbers.lock().unwrap() = Fault::Slow(Duration::from_millis(1_500));
    let stopping = leader.shutdown();
    let next = async {
        cluster.until(&standby, Stage::Leading).await;
        // Only the write of the former leader is slow.
        *cluster.driver.numbers.lock().unwrap() = Fault::None;
        draw(&cluster, &standby).await
    };
    let (stopped, next) = tokio::join!(stopping, next);
    stopped.unwrap();
    assert_eq!(next, 3, "no number is missing");
    let closed = handle.next(WsId(7), cluster.clock.now() + PATIENCE).await;
    assert!(matches!(closed, Err(DocNumberError::Closed)), "{closed:?}");
    standby.shutdown().await.unwrap();
}

/// Numbers that are not given back are gaps, and no reason to keep the lease.
#[tokio::test]
async fn a_storage_that_takes_no_numbers_back_does_not_keep_the_lease() {
    let cluster = Cluster::new();
    let change = |settings: &mut NodeSettings| settings.stop_within = Duration::from_secs(3);
    let leader = node_with(&cluster, 1, (series("T{counter:4}"), fast()), change);
    let leader = leader.build().unwrap().launch();
    cluster.until(&leader, Stage::Leading).await;
    draw(&cluster, &leader).await;
    *cluster.driver.numbers.lock().unwrap() = Fault::Hang;
    let start = cluster.clock.now();
    leader.shutdown().await.unwrap();
    let took = cluster.clock.now() - start;
    assert!(took < Duration::from_secs(2), "it took {took:?}");
    assert!(cluster.lease(1).await.is_none(), "the lease was not released");

    *cluster.driver.numbers.lock().unwrap() = Fault::None;
    let next = launch(&cluster, 2);
    cluster.until(&next, Stage::Leading).await;
    assert!(draw(&cluster, &next).await > 0, "no number is given twice");
    next.shutdown().await.unwrap();
}

#[tokio::test]
async fn a_node_that_lost_its_leadership_gives_numbers_back_without_a_delay() {
    for fault in [Fault::None, Fault::Hang] {
        let cluster = Cluster::new();
        let leader = node_with(&cluster, 1, (series("T{counter:4}"), fast()), hasty);
        let leader = leader.build().unwrap().launch();
        cluster.until(&leader, Stage::Leading).await;
        assert_eq!(draw(&cluster, &leader).await, 0);
        *cluster.driver.numbers.lock().unwrap() = fault;
        cluster.usurp(1).await;
        assert!(matches!(*leader.problem().await, Problem::LeadershipLost(_)));
        let start = cluster.clock.now();
        leader.shutdown().await.unwrap_err();
        let took = cluster.clock.now() - start;
        assert!(took < Duration::from_secs(2), "it took {took:?}");

        *cluster.driver.numbers.lock().unwrap() = Fault::None;
        cluster.release(1).await;
        let next = launch(&cluster, 2);
        cluster.until(&next, Stage::Leading).await;
        let counter = draw(&cluster, &next).await;
        assert_eq!(counter == 1, fault == Fault::None, "{counter}");
        next.shutdown().await.unwrap();
    }
}

/// As for the keyspaces of applications: a server may fail together with the former leader.
#[tokio::test]
async fn a_node_tries_again_to_open_a_series() {
    let cluster = Cluster::new();
    *cluster.driver.numbers.lock().unwrap() = Fault::Unavailable;
    let leader = launch(&cluster, 1);
    cluster.until(&leader, Stage::Recovering).await;
    cluster.clock.sleep(Duration::from_millis(100)).await;
    assert_eq!(leader.node().stage(), Stage::Recovering, "it waits");
    *cluster.driver.numbers.lock().unwrap() = Fault::None;
    cluster.until(&leader, Stage::Leading).await;
    draw(&cluster, &leader).await;
    leader.shutdown().await.unwrap();
}

#[tokio::test]
async fn a_definition_that_could_repeat_a_number_is_refused() {
    let cluster = Cluster::new();
    let leader = launch(&cluster, 1);
    cluster.until(&leader, Stage::Leading).await;
    leader.shutdown().await.unwrap();
    let gapless = SeriesPolicy::Gapless { counter: eventlog::RecordId(65_601) };
    for (template, policy, part) in
        [("T{counter:3}7", fast(), "could be equal"), ("T{counter:4}", gapless, "other policy")]
    {
        let refused = node(&cluster, 1, series(template), policy).build().unwrap().launch();
        let problem = refused.problem().await;
        let Problem::Refused(why) = &*problem else { panic!("{problem}") };
        for part in ["acme/tickets", "ticket", part] {
            assert!(why.contains(part), "{part}: {why}");
        }
        refused.shutdown().await.unwrap_err();
    }
    let other = node(&cluster, 1, series("U{counter:4}"), fast()).build().unwrap().launch();
    cluster.until(&other, Stage::Leading).await;
    other.shutdown().await.unwrap();
}

/// A node stored the definition of each series before it checked the next one, and before it
/// checked the tables. Then the application was refused, and never ran. The stored definition
/// stayed, and the next definition of that series was refused, although no number of the stored one
/// exists.
#[tokio::test]
async fn a_refused_application_leaves_no_definition_behind() {
    const BILL: &str = "[tables.\"shop.Bill\"]\nkind = \"WDoc\"\n";
    const ORDER: &str = "[tables.\"shop.Order\"]\nkind = \"WDoc\"\n";
    let usual = FastSettings::default();
    let no_range = FastSettings { range: 0, ..usual };
    // The definition of `a` is right, but the other series or the tables are refused.
    for (schema, b, settings, part) in [
        (BILL, "B{counter:3}7", usual, "could be equal"),
        (BILL, "B{counter:4}", no_range, "range"),
        (ORDER, "B{counter:4}", usual, "shop.Bill"),
    ] {
        let cluster = Cluster::new();
        let launch = |schema, a, b, settings| {
            node_of_two(&cluster, schema, (a, b), settings).build().unwrap().launch()
        };
        let leader = launch(BILL, "A{counter:4}", "B{counter:4}", usual);
        cluster.until(&leader, Stage::Leading).await;
        leader.shutdown().await.unwrap();

        let refused = launch(schema, "X{counter:4}", b, settings);
        let problem = refused.problem().await;
        let Problem::Refused(why) = &*problem else { panic!("{problem}") };
        assert!(why.contains(part), "{part}: {why}");
        refused.shutdown().await.unwrap_err();

        // A number of this definition could be equal to one of the definition that never ran.
        let next = launch(BILL, "X{counter:3}7", "B{counter:4}", usual);
        cluster.until(&next, Stage::Leading).await;
        next.shutdown().await.unwrap();
    }
}

/// A workspace moved to another node. The numbers that its former owner had reserved for it and not
/// issued were missing: the next owner reserved the numbers after them.
#[tokio::test]
async fn a_workspace_that_moves_leaves_no_gap_in_its_numbers() {
    let cluster = Cluster::new();
    let launch = |number| {
        let two_seats = |settings: &mut NodeSettings| {
            settings.seats = std::num::NonZeroU32::new(2).unwrap();
        };
        let node = node_with(&cluster, number, (series("T{counter:4}"), fast()), two_seats);
        node.build().unwrap().launch()
    };
    let first = launch(1);
    cluster.until(&first, Stage::Leading).await;
    let soon = cluster.clock.now() + PATIENCE;
    let draw = async |node: &Launched, ws: u64| {
        tickets(node).unwrap().next(WsId(ws), soon).await.unwrap().counter
    };
    for expected in 0..3 {
        assert_eq!([draw(&first, 7).await, draw(&first, 8).await], [expected; 2]);
    }
    ClusterOrder::Pause.give(first.node()).await.unwrap();
    let second = launch(2);
    let to = loop {
        let members = first.node().cluster_status().members;
        let is_it = |member: &&MemberStatus| member.advertised == second.node().advertised();
        match members.iter().find(is_it) {
            Some(member) if member.state == MemberState::Ready => break member.id.clone(),
            _ => cluster.clock.sleep(Duration::from_millis(5)).await,
        }
        assert!(cluster.clock.now() < soon, "the second node is not seen");
    };
    let app = "acme/tickets".to_owned();
    let order = ClusterOrder::Move { app, partition: 7, to: to.parse().unwrap() };
    order.give(first.node()).await.unwrap();
    let here = |node: &Launched| node.node().app("acme", "tickets").unwrap().at(WsId(7)).is_ok();
    while !here(&second) {
        assert!(cluster.clock.now() < soon, "the partition does not move");
        cluster.clock.sleep(Duration::from_millis(5)).await;
    }
    assert_eq!(draw(&second, 7).await, 3, "the next number");
    assert_eq!(draw(&first, 8).await, 3, "the other workspace keeps its range");
    for node in [first, second] {
        node.shutdown().await.unwrap();
    }
}
