//! Nodes that run different versions of an application.

use std::{
    num::NonZeroU32,
    sync::{
        Arc,
        atomic::{AtomicUsize, Ordering},
    },
    time::Duration,
};

use clock::Instant;
use eventlog::WsId;
use istorage::{
    Call, CallAnswer, Consistency, Error, SharedStorage, StorageDriver, StorageWrapper,
    WrappedDriver,
};
use processor::{Application, Declarations};
use sysvvm::{
    AppName,
    ownership::{MemberId, MemberState},
};
use vvm::{AppSettings, ClusterOrder, Launched, NodeSettings, Stage, Vvm};

use crate::cluster::{Cluster, PATIENCE};

/// The tables of the older version.
const OLDER: &str = "[tables.\"shop.Article\"]\nkind = \"CDoc\"\nfields = { name = \"string\" }\n";

/// The newer version adds a table.
const NEWER: &str = "[tables.\"shop.Article\"]\nkind = \"CDoc\"\nfields = { name = \"string\" }\n\
                     [tables.\"shop.Bill\"]\nkind = \"WDoc\"\n";

fn app(tables: &str) -> AppSettings {
    let application = Application::new(Declarations::new(tables.parse().unwrap()).unwrap());
    AppSettings::new(AppName::new("acme", "shop").unwrap(), Arc::new(application))
}

fn two_seats(settings: &mut NodeSettings) {
    settings.seats = NonZeroU32::new(2).unwrap();
    settings.drain_within = Duration::from_secs(8);
}

fn launch(cluster: &Cluster, number: u16, tables: &str) -> Launched {
    cluster.node_of(number, app(tables), two_seats).build().unwrap().launch()
}

/// Launches a node. Its first reads of the deployment work, and the next ones fail; the array has
/// both numbers. A node reads it twice when it opens the application, and once before it leads if
/// the application exists. Also returns the count of all these reads.
fn launch_failing(
    cluster: &Cluster,
    number: u16,
    [works, fails]: [usize; 2],
    change: impl FnOnce(&mut NodeSettings),
) -> (Launched, Arc<AtomicUsize>) {
    let driver = Arc::clone(&cluster.driver) as Arc<dyn StorageDriver>;
    let reads = Arc::new(AtomicUsize::new(0));
    let count = Arc::clone(&reads);
    let driver = WrappedDriver::new(driver, move |inner| {
        Arc::new(FailingDeployment { inner, reads: Arc::clone(&count), works, fails })
    });
    let mut settings = cluster.settings(number);
    change(&mut settings);
    let node = Vvm::builder(Arc::new(driver), cluster.clock.clone(), settings);
    (node.with_app(app(OLDER)).build().unwrap().launch(), reads)
}

fn owned(node: &Launched) -> Vec<u64> {
    let app = node.node().app("acme", "shop").unwrap();
    (0..10).filter(|ws| app.at(WsId(*ws)).is_ok()).collect()
}

async fn until(cluster: &Cluster, what: &str, mut holds: impl FnMut() -> bool) {
    let deadline: Instant = cluster.clock.now() + PATIENCE;
    while !holds() {
        assert!(cluster.clock.now() < deadline, "not in time: {what}");
        cluster.clock.sleep(Duration::from_millis(5)).await;
    }
}

/// A newer node has written rows of a new table. Its partition moved back to a node of the older
/// version, which checked the deployment only when it began to lead. That node refused to change
/// such rows, and a document that needed a number got none.
#[tokio::test]
async fn a_partition_of_a_newer_version_does_not_start_on_an_older_node() {
    let cluster = Cluster::new();
    let older = launch(&cluster, 1, OLDER);
    cluster.until(&older, Stage::Leading).await;
    let newer = launch(&cluster, 2, NEWER);
    until(&cluster, "the nodes share the partitions", || {
        owned(&older).len() == 5 && owned(&newer).len() == 5
    })
    .await;
    let kept = owned(&older);
    ClusterOrder::Pause.give(newer.node()).await.unwrap();

    let back = owned(&newer)[0];
    let partition = u16::try_from(back).unwrap();
    let to: MemberId = older.node().cluster_status().this_member.parse().unwrap();
    let app = "acme/shop".to_owned();
    let epoch = |node: &Launched| {
        let partitions = node.node().cluster_status().partitions;
        partitions.into_iter().find(|it| it.number == partition).unwrap().epoch
    };
    let before = epoch(&newer);
    ClusterOrder::Move { app, partition, to }.give(newer.node()).await.unwrap();
    // The older node gets the partition, does not start it, and gives it back.
    until(&cluster, "the partition comes back", || {
        assert!(!owned(&older).contains(&back), "the older node has started the partition");
        epoch(&newer) >= before + 2 && owned(&newer).contains(&back)
    })
    .await;
    assert_eq!(owned(&older), kept, "what worked before goes on working");
    let order = ClusterOrder::Move { app: "acme/shop".to_owned(), partition, to };
    let why = order.give(newer.node()).await.unwrap_err().to_string();
    assert!(why.contains("only an older version of it"), "{why}");
    cluster.clock.sleep(Duration::from_secs(3)).await;
    assert!(owned(&newer).contains(&back), "the older node is asked once only");

    // The node takes no partition of the application any more, and the upgraded one takes all.
    older.shutdown().await.unwrap();
    until(&cluster, "the newer node owns all", || owned(&newer).len() == 10).await;
    let older = launch(&cluster, 1, OLDER);
    let refused = older.problem().await.to_string();
    assert!(refused.contains("not compatible"), "{refused}");
    older.shutdown().await.unwrap_err();
    newer.shutdown().await.unwrap();
}

/// The storage of the application fails while a node takes its partitions. They start when the
/// storage works again, and under the epochs that they were taken with.
#[tokio::test]
async fn a_partition_waits_for_a_storage_that_cannot_show_the_deployment() {
    let cluster = Cluster::new();
    let (node, reads) = launch_failing(&cluster, 1, [2, 3], |_| {});
    until(&cluster, "the partitions start", || owned(&node).len() == 10).await;
    assert!(reads.load(Ordering::SeqCst) > 5, "no read has failed");
    let partitions = node.node().cluster_status().partitions;
    assert!(partitions.iter().all(|partition| partition.epoch == 1), "{partitions:?}");
    node.shutdown().await.unwrap();
}

/// One node could never read the deployment, for example because of the network between it and a
/// server. It took a partition, did not start it, and kept it. Meanwhile the cluster showed the
/// partition as ready.
#[tokio::test]
async fn a_partition_whose_deployment_stays_unknown_goes_back() {
    let cluster = Cluster::new();
    let well = launch(&cluster, 1, OLDER);
    cluster.until(&well, Stage::Leading).await;
    ClusterOrder::Pause.give(well.node()).await.unwrap();
    let (ill, _) = launch_failing(&cluster, 2, [3, 100_000], two_seats);

    let to: MemberId = ill.node().cluster_status().this_member.parse().unwrap();
    let is_ready = |member: &vvm::MemberStatus| {
        member.id == to.to_string() && member.fresh && member.state == MemberState::Ready
    };
    until(&cluster, "the other node is ready", || {
        well.node().cluster_status().members.iter().any(is_ready)
    })
    .await;
    let order = ClusterOrder::Move { app: "acme/shop".to_owned(), partition: 3, to };
    order.give(well.node()).await.unwrap();
    let there = || well.node().cluster_status().partitions.swap_remove(3);
    let taken = Some(to.to_string());
    until(&cluster, "the partition moves", || there().member == taken).await;
    let moved = cluster.clock.now();
    until(&cluster, "the cluster shows that the partition does not work", || {
        there().state == "starting"
    })
    .await;
    until(&cluster, "the partition comes back", || owned(&well).contains(&3)).await;
    let took = cluster.clock.now() - moved;
    assert!(took > Duration::from_secs(9) && took < Duration::from_secs(15), "{took:?}");
    // The node that got the partition may see its row a moment later.
    until(&cluster, "the cluster shows the next owner", || there().epoch > 2).await;
    assert_eq!(there().epoch, 3, "a partition that was not started costs no further epoch");
    ill.shutdown().await.unwrap();
    well.shutdown().await.unwrap();
}

/// The storage of one node failed for more than 10 s. After that the node was still said to be
/// unable to run the partitions, so that they left it, and nobody else could give one to it.
#[tokio::test]
async fn a_node_takes_partitions_again_when_it_can_read_the_deployment() {
    let cluster = Cluster::new();
    // 24 reads with pauses of half a second between them.
    let (node, _) = launch_failing(&cluster, 1, [2, 24], |_| {});
    let refused = || node.node().cluster_status().members.iter().map(|it| it.refused.len()).sum();
    until(&cluster, "the node says that it cannot run the partitions", || {
        let refused: usize = refused();
        refused == 10
    })
    .await;
    until(&cluster, "the partitions start", || owned(&node).len() == 10).await;
    until(&cluster, "the node can run the partitions", || {
        let refused: usize = refused();
        refused == 0
    })
    .await;
    let partitions = node.node().cluster_status().partitions;
    assert!(partitions.iter().all(|partition| partition.epoch == 1), "{partitions:?}");
    node.shutdown().await.unwrap();
}

/// A storage where some reads of the deployment of an application fail.
#[derive(Debug)]
struct FailingDeployment {
    inner: SharedStorage,
    reads: Arc<AtomicUsize>,
    /// The number of reads that work, and of those that fail after them.
    works: usize,
    fails: usize,
}

impl StorageWrapper for FailingDeployment {
    fn inner(&self) -> &SharedStorage {
        &self.inner
    }

    async fn call(&self, call: Call<'_>, deadline: Instant) -> istorage::Result<CallAnswer> {
        let is_deployment = match &call {
            // The key of the deployment is a prefix of two bytes, and nothing else.
            Call::Get(key, Consistency::Linearizable) => {
                key.pkey.len() == 2 && key.ccols.is_empty()
            }
            _ => false,
        };
        if is_deployment {
            let read = self.reads.fetch_add(1, Ordering::SeqCst);
            if (self.works..self.works + self.fails).contains(&read) {
                return Err(Error::unavailable("a server hangs"));
            }
        }
        call.send(&self.inner, deadline).await
    }
}
