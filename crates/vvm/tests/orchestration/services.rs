//! Services that are bound to the owner of a partition.

use std::{
    num::NonZeroU32,
    sync::{
        Arc, Mutex,
        atomic::{AtomicBool, AtomicUsize, Ordering},
    },
    time::Duration,
};

use vvm::{
    Builder, CancellationToken, HeldSeat, Launched, NodeService, NodeSettings, OwnedPartition,
    PartitionService, Problem, ServiceError, Stage, async_trait,
};

use crate::cluster::{Cluster, PATIENCE};

/// The starts and stops of a service, on all nodes: node, partition, epoch, and whether it began.
type Journal = Arc<Mutex<Vec<(u16, u16, u64, bool)>>>;

#[derive(Debug)]
struct JournalService {
    node: u16,
    journal: Journal,
    hangs: Arc<AtomicBool>,
}

#[async_trait]
impl PartitionService for JournalService {
    fn name(&self) -> &'static str {
        "journal"
    }

    async fn run(&self, at: OwnedPartition, stop: CancellationToken) -> Result<(), ServiceError> {
        assert!(at.may_work(Duration::ZERO));
        let note = |begins| {
            let (number, epoch) = (at.number(), at.epoch().0);
            self.journal.lock().unwrap().push((self.node, number, epoch, begins));
        };
        note(true);
        stop.cancelled().await;
        if self.hangs.load(Ordering::SeqCst) {
            std::future::pending::<()>().await;
        }
        // The partition waits for this line.
        at.node().clock().sleep(Duration::from_millis(20)).await;
        note(false);
        Ok(())
    }
}

/// Adds a service of each kind that is bound to a leader.
pub(crate) fn with_services(builder: Builder) -> Builder {
    let journal = JournalService { node: 1, journal: Journal::default(), hangs: Arc::default() };
    let (seats, could_work) = (SeatJournal::default(), Arc::default());
    let seat = SeatService { journal: seats, could_work, hangs: false };
    builder.with_partition_service(journal).with_node_service(seat)
}

fn two_seats(settings: &mut NodeSettings) {
    settings.seats = NonZeroU32::new(2).unwrap();
}

fn launch(cluster: &Cluster, node: u16, journal: &Journal) -> (Launched, Arc<AtomicBool>) {
    let (journal, hangs) = (Arc::clone(journal), Arc::default());
    let service = JournalService { node, journal, hangs: Arc::clone(&hangs) };
    let node = cluster.node(node, two_seats).with_partition_service(service);
    (node.build().unwrap().launch(), hangs)
}

fn launch_hasty(cluster: &Cluster, journal: &Journal) -> Launched {
    let service = JournalService { node: 1, journal: Arc::clone(journal), hangs: Arc::default() };
    let node = cluster.node(1, crate::cluster::hasty).with_partition_service(service);
    node.build().unwrap().launch()
}

/// The partitions where a service of a node works now.
fn at_work(journal: &Journal, node: u16) -> Vec<u16> {
    let mut here = Vec::new();
    for (_, partition, _, begins) in journal.lock().unwrap().iter().filter(|it| it.0 == node) {
        match begins {
            true => here.push(*partition),
            false => here.retain(|it| it != partition),
        }
    }
    here
}

async fn until_at_work(cluster: &Cluster, journal: &Journal, node: u16, count: usize) {
    let deadline = cluster.clock.now() + PATIENCE;
    while at_work(journal, node).len() != count {
        assert!(cluster.clock.now() < deadline, "{:?}", journal.lock().unwrap());
        cluster.clock.sleep(Duration::from_millis(5)).await;
    }
}

#[tokio::test]
async fn a_service_of_a_partition_runs_at_its_owner_only_and_ends_before_a_move() {
    let (cluster, journal) = (Cluster::new(), Journal::default());
    let (first, _) = launch(&cluster, 1, &journal);
    until_at_work(&cluster, &journal, 1, 10).await;
    let (second, _) = launch(&cluster, 2, &journal);
    until_at_work(&cluster, &journal, 2, 5).await;
    assert_eq!(at_work(&journal, 1).len(), 5);
    second.shutdown().await.unwrap();
    until_at_work(&cluster, &journal, 1, 10).await;
    first.shutdown().await.unwrap();
    assert!(at_work(&journal, 1).is_empty() && at_work(&journal, 2).is_empty());
    for partition in 0..10 {
        let journal = journal.lock().unwrap();
        let of_it: Vec<_> = journal.iter().filter(|it| it.1 == partition).collect();
        // Each service ends before the next one begins, under a higher epoch.
        for pair in of_it.chunks(2) {
            let [begun, ended] = pair else { panic!("{of_it:?}") };
            assert!(begun.3 && !ended.3 && begun.0 == ended.0 && begun.2 == ended.2, "{of_it:?}");
        }
        assert!(of_it.chunks(2).is_sorted_by(|one, next| one[0].2 < next[0].2), "{of_it:?}");
    }
}

/// The token of a partition's services was cancelled only when the host stopped the node. Until
/// then they went on beside those of the next owner, and were started again if they failed.
#[tokio::test]
async fn services_of_partitions_end_when_the_leadership_is_lost() {
    let (cluster, journal) = (Cluster::new(), Journal::default());
    let node = launch_hasty(&cluster, &journal);
    until_at_work(&cluster, &journal, 1, 10).await;
    cluster.until(&node, Stage::Leading).await;
    assert!(node.node().is_ready());
    cluster.usurp(1).await;
    // The host has not stopped the node yet.
    until_at_work(&cluster, &journal, 1, 0).await;
    assert!(matches!(*node.problem().await, Problem::LeadershipLost(_)));
    assert!(!node.node().is_ready(), "another node has the lease");
    node.shutdown().await.unwrap_err();
}

#[tokio::test]
async fn services_of_partitions_end_when_another_node_has_taken_one() {
    let (cluster, journal) = (Cluster::new(), Journal::default());
    let node = launch_hasty(&cluster, &journal);
    until_at_work(&cluster, &journal, 1, 10).await;
    crate::owners::usurp_partition(&cluster, 7).await;
    // Nobody would notice if it takes the others, too: the node is about to stop.
    until_at_work(&cluster, &journal, 1, 0).await;
    assert!(matches!(*node.problem().await, Problem::OwnershipLost(_)));
    node.shutdown().await.unwrap_err();
}

/// A service that goes on could work beside that of the next owner.
#[tokio::test]
async fn a_service_that_does_not_end_costs_the_node_its_lease() {
    let (cluster, journal) = (Cluster::new(), Journal::default());
    let (node, hangs) = launch(&cluster, 1, &journal);
    cluster.until(&node, Stage::Leading).await;
    until_at_work(&cluster, &journal, 1, 10).await;
    hangs.store(true, Ordering::SeqCst);
    let ended = node.shutdown().await.unwrap_err();
    assert!(matches!(&*ended, Problem::NotEnded(why) if why.len() == 10), "{ended}");
    // The node has either of the two seats.
    let leases = [cluster.lease(1).await, cluster.lease(2).await];
    assert!(leases.iter().any(Option::is_some), "another node could work beside the service");
}

#[derive(Debug, Default)]
struct PanickingService {
    runs: Arc<Mutex<usize>>,
}

impl PanickingService {
    async fn work(&self, stop: CancellationToken) -> Result<(), ServiceError> {
        let run = {
            let mut runs = self.runs.lock().unwrap();
            *runs += 1;
            *runs
        };
        match run {
            1 => panic!("the script says so"),
            2 => return Err("the script says so".into()),
            _ => {}
        }
        stop.cancelled().await;
        Ok(())
    }

    /// Waits until the service runs for the third time.
    async fn until_third(runs: &Mutex<usize>, cluster: &Cluster) {
        let deadline = cluster.clock.now() + PATIENCE;
        while *runs.lock().unwrap() < 3 {
            assert!(cluster.clock.now() < deadline, "the service is not started again");
            cluster.clock.sleep(Duration::from_millis(10)).await;
        }
    }
}

#[async_trait]
impl PartitionService for PanickingService {
    fn name(&self) -> &'static str {
        "panicking"
    }

    async fn run(&self, _: OwnedPartition, stop: CancellationToken) -> Result<(), ServiceError> {
        self.work(stop).await
    }
}

#[async_trait]
impl NodeService for PanickingService {
    fn name(&self) -> &'static str {
        "panicking"
    }

    async fn run(&self, _: HeldSeat, stop: CancellationToken) -> Result<(), ServiceError> {
        self.work(stop).await
    }
}

/// A service that panicked was not started again until its partition was.
#[tokio::test]
async fn a_service_that_panics_or_fails_is_started_again() {
    let (cluster, service) = (Cluster::new(), PanickingService::default());
    let runs = Arc::clone(&service.runs);
    let mut app = vvm::AppSettings::new("acme/shop".parse().unwrap(), shop::shop());
    app.partitions = std::num::NonZeroU16::MIN;
    let node = cluster.node_of(1, app, |_| {}).with_partition_service(service);
    let node = node.build().unwrap().launch();
    PanickingService::until_third(&runs, &cluster).await;
    node.shutdown().await.unwrap();
}

/// No suite failed when a service of a node that failed ended for ever.
#[tokio::test]
async fn a_service_of_a_node_that_panics_or_fails_is_started_again() {
    let (cluster, service) = (Cluster::new(), PanickingService::default());
    let runs = Arc::clone(&service.runs);
    let node = cluster.node(1, |_| {}).with_node_service(service).build().unwrap().launch();
    PanickingService::until_third(&runs, &cluster).await;
    assert_eq!(node.node().stage(), Stage::Leading, "its failures are no problem of the node");
    node.shutdown().await.unwrap();
}

/// A service that works for a second after it was told to stop.
#[derive(Clone, Debug, Default)]
struct SlowService {
    /// The services that were told to stop.
    stopping: Arc<AtomicUsize>,
    /// Whether each service could work until it ended.
    ends: Arc<Mutex<Vec<bool>>>,
}

#[async_trait]
impl PartitionService for SlowService {
    fn name(&self) -> &'static str {
        "slow"
    }

    async fn run(&self, at: OwnedPartition, stop: CancellationToken) -> Result<(), ServiceError> {
        stop.cancelled().await;
        self.stopping.fetch_add(1, Ordering::SeqCst);
        at.node().clock().sleep(Duration::from_secs(1)).await;
        self.ends.lock().unwrap().push(at.may_work(Duration::ZERO));
        Ok(())
    }
}

impl SlowService {
    async fn until_stopping(&self, cluster: &Cluster) {
        let deadline = cluster.clock.now() + PATIENCE;
        while self.stopping.load(Ordering::SeqCst) == 0 {
            assert!(cluster.clock.now() < deadline, "no service was told to stop");
            cluster.clock.sleep(Duration::from_millis(2)).await;
        }
    }
}

/// Two nodes with slow services that share the partitions.
async fn two_slow_nodes(cluster: &Cluster, service: &SlowService) -> [Launched; 2] {
    let launch = |number| {
        let hasty = |settings: &mut NodeSettings| {
            two_seats(settings);
            settings.drain_within = Duration::from_millis(100);
        };
        cluster.node(number, hasty).with_partition_service(service.clone()).build().unwrap()
    };
    let nodes = [launch(1).launch(), launch(2).launch()];
    let deadline = cluster.clock.now() + PATIENCE;
    let here = |node: &Launched| {
        let app = node.node().app("acme", "shop").unwrap();
        (0..10).filter(|ws| app.at(eventlog::WsId(*ws)).is_ok()).count()
    };
    while nodes.iter().any(|node| here(node) != 5) {
        assert!(cluster.clock.now() < deadline, "the nodes do not share the partitions");
        cluster.clock.sleep(Duration::from_millis(5)).await;
    }
    nodes
}

/// A partition that goes to another node sends nothing half a second after its stop has begun. That
/// time began while its services still worked, so they could not write their last results.
#[tokio::test]
async fn a_service_works_until_it_ends_although_its_partition_goes_to_another_node() {
    let (cluster, service) = (Cluster::new(), SlowService::default());
    let [first, second] = two_slow_nodes(&cluster, &service).await;
    service.ends.lock().unwrap().clear();
    second.node().begin_drain();
    let deadline = cluster.clock.now() + PATIENCE;
    while service.ends.lock().unwrap().len() < 5 {
        assert!(cluster.clock.now() < deadline, "the partitions do not leave");
        cluster.clock.sleep(Duration::from_millis(10)).await;
    }
    assert_eq!(*service.ends.lock().unwrap(), [true; 5]);
    for node in [first, second] {
        node.shutdown().await.unwrap();
    }
}

/// A node stopped while a partition was on its way to another node, and its drain ended before the
/// services of the partition. Their tasks were aborted. Nothing proved the end of their work, so
/// the lease was left to expire.
#[tokio::test]
async fn a_node_that_stops_waits_for_partitions_that_are_on_their_way() {
    let (cluster, service) = (Cluster::new(), SlowService::default());
    let [first, second] = two_slow_nodes(&cluster, &service).await;
    service.stopping.store(0, Ordering::SeqCst);
    service.ends.lock().unwrap().clear();
    second.node().begin_drain();
    service.until_stopping(&cluster).await;
    second.shutdown().await.unwrap();
    assert_eq!(*service.ends.lock().unwrap(), [true; 5]);
    first.shutdown().await.unwrap();
    for seat in [1, 2] {
        assert!(cluster.lease(seat).await.is_none(), "the lease of seat {seat} is left to expire");
    }
}

/// The starts and ends of a service of a node: the epoch, and whether it began.
type SeatJournal = Arc<Mutex<Vec<(u64, bool)>>>;

/// A service of a node.
#[derive(Debug)]
struct SeatService {
    journal: SeatJournal,
    could_work: Arc<AtomicBool>,
    hangs: bool,
}

#[async_trait]
impl NodeService for SeatService {
    fn name(&self) -> &'static str {
        "of the seat"
    }

    async fn run(&self, seat: HeldSeat, stop: CancellationToken) -> Result<(), ServiceError> {
        assert_eq!(seat.number(), 1);
        self.journal.lock().unwrap().push((seat.epoch().0, true));
        stop.cancelled().await;
        if self.hangs {
            std::future::pending::<()>().await;
        }
        seat.node().clock().sleep(Duration::from_millis(50)).await;
        self.could_work.store(seat.may_work(Duration::ZERO), Ordering::SeqCst);
        self.journal.lock().unwrap().push((seat.epoch().0, false));
        Ok(())
    }
}

fn launch_seat_service(
    cluster: &Cluster,
    number: u16,
    hangs: bool,
    settings: fn(&mut NodeSettings),
) -> (Launched, SeatJournal, Arc<AtomicBool>) {
    let (journal, could_work): (SeatJournal, _) = (Arc::default(), Arc::default());
    let service =
        SeatService { journal: Arc::clone(&journal), could_work: Arc::clone(&could_work), hangs };
    let node = cluster.node(number, settings).with_node_service(service).build().unwrap();
    (node.launch(), journal, could_work)
}

async fn until_entries(cluster: &Cluster, journal: &SeatJournal, count: usize) {
    let deadline = cluster.clock.now() + PATIENCE;
    while journal.lock().unwrap().len() < count {
        assert!(cluster.clock.now() < deadline, "{:?}", journal.lock().unwrap());
        cluster.clock.sleep(Duration::from_millis(5)).await;
    }
}

#[tokio::test]
async fn a_service_of_a_node_runs_while_the_node_holds_its_seat() {
    let cluster = Cluster::new();
    let (first, of_first, could_work) = launch_seat_service(&cluster, 1, false, |_| {});
    until_entries(&cluster, &of_first, 1).await;
    let (second, of_second, _) = launch_seat_service(&cluster, 2, false, |_| {});
    cluster.until(&second, Stage::Waiting).await;
    first.shutdown().await.unwrap();
    assert_eq!(*of_first.lock().unwrap(), [(1, true), (1, false)]);
    assert!(could_work.load(Ordering::SeqCst), "the lease was released before the service ended");
    until_entries(&cluster, &of_second, 1).await;
    assert_eq!(*of_second.lock().unwrap(), [(2, true)]);
    second.shutdown().await.unwrap();
    assert!(cluster.lease(1).await.is_none());
}

#[tokio::test]
async fn a_service_of_a_node_ends_when_the_leadership_is_lost() {
    let cluster = Cluster::new();
    let (node, journal, could_work) =
        launch_seat_service(&cluster, 1, false, crate::cluster::hasty);
    until_entries(&cluster, &journal, 1).await;
    cluster.usurp(1).await;
    // The host has not stopped the node yet.
    until_entries(&cluster, &journal, 2).await;
    // `may_work` looked at the time alone: it held on to a lease that another node had.
    assert!(!could_work.load(Ordering::SeqCst));
    assert!(matches!(*node.problem().await, Problem::LeadershipLost(_)));
    node.shutdown().await.unwrap_err();
}

#[tokio::test]
async fn a_service_of_a_node_that_does_not_end_leaves_the_lease_to_expire() {
    let cluster = Cluster::new();
    let short = |settings: &mut NodeSettings| settings.stop_within = Duration::from_secs(2);
    let (node, journal, _) = launch_seat_service(&cluster, 1, true, short);
    until_entries(&cluster, &journal, 1).await;
    let ended = node.shutdown().await.unwrap_err();
    let why = ended.to_string();
    assert!(
        matches!(&*ended, Problem::NotEnded(_)) && why.contains("service of the node"),
        "{why}"
    );
    assert!(cluster.lease(1).await.is_some(), "another node could work beside the service");
}
