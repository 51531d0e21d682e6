//! The nodes of the bench.

use std::{net::SocketAddr, num::NonZeroU32, sync::Arc, time::Duration};

use async_trait::async_trait;
use clock::{Clock, Instant};
use http_api::{ClusterSettings, HttpApi, HttpApiSettings};
use istorage::{KeyspaceName, SharedStorage, StorageDriver, mem::MemDriver};
use tck::trial::free_address;
use tokio::{
    io::{AsyncReadExt, AsyncWriteExt},
    task::JoinSet,
};
use vvm::{AppSettings, ClusterOrder, Launched, NodeSettings, Vvm, eventlog::WsId};
use vvm_tests::bench::{BenchError, KeptConnection};

use crate::client::{command, new_workspace};

/// The partition that the frozen owner has.
const FROZEN: u16 = 9;

/// The longest wait for the nodes.
const PATIENCE: Duration = Duration::from_secs(30);

/// Three nodes: one owns all partitions but one, one is frozen and owns that one, and one owns
/// none.
pub(crate) struct BenchNodes {
    pub(crate) owner: SocketAddr,
    pub(crate) entry: SocketAddr,
    pub(crate) frozen_workspace: u64,
    launched: Vec<Launched>,
    /// Nodes connect to this port in place of the port of the frozen owner, and nothing answers.
    _silent: JoinSet<()>,
}

/// The workspace of a client. Workspaces are spread over the partitions of the owner.
pub(crate) fn workspace(client: u64) -> u64 {
    10 * (client / u64::from(FROZEN)) + client % u64::from(FROZEN)
}

impl BenchNodes {
    pub(crate) async fn start(clock: &Clock) -> Result<BenchNodes, BenchError> {
        let driver = Arc::new(SharedDriver(MemDriver::new(clock.clone())));
        let silent = tokio::net::TcpListener::bind("127.0.0.1:0").await?;
        let owner = launch(clock, &driver, None)?;
        let is_here = |node: &Launched, ws| {
            node.node().app("demo", "shop").is_some_and(|app| app.at(WsId(ws)).is_ok())
        };
        until(clock, "the owner works", || (0..10).all(|ws| is_here(&owner, ws))).await?;
        ClusterOrder::Pause.give(owner.node()).await?;
        let frozen = launch(clock, &driver, Some(silent.local_addr()?))?;
        let mut accepting = JoinSet::new();
        accepting.spawn(hold_connections(silent));
        until(clock, "two members", || owner.node().cluster_status().members.len() == 2).await?;
        let to = frozen.node().cluster_status().this_member.parse()?;
        let order = ClusterOrder::Move { app: "demo/shop".to_owned(), partition: FROZEN, to };
        order.give(owner.node()).await?;
        let frozen_workspace = u64::from(FROZEN);
        until(clock, "the move", || is_here(&frozen, frozen_workspace)).await?;
        let entry = launch(clock, &driver, None)?;
        until(clock, "the entry knows the owners", || {
            let node = entry.node();
            let owner_of = |app| (0..10).all(|number| node.owner_of(app, number).owner.is_some());
            node.app("demo", "shop").is_some_and(owner_of)
        })
        .await?;
        let launched = vec![entry, frozen, owner];
        let [entry, _, owner] = [0, 1, 2].map(|at: usize| launched[at].node().advertised());
        let mut client = KeptConnection::connect(owner).await?;
        for client_number in 0..64 {
            let ws = workspace(client_number);
            client.ask(&new_workspace(ws)).await?;
            client.ask(&command(ws)).await?;
        }
        Ok(BenchNodes { owner, entry, frozen_workspace, launched, _silent: accepting })
    }

    pub(crate) async fn stop(self) {
        for node in self.launched {
            // The bench does not care whether a node stops late.
            let _ = node.shutdown().await;
        }
    }
}

/// Accepts connections, and answers only the owner that asks whether its successor is there.
async fn hold_connections(silent: tokio::net::TcpListener) {
    let mut held = JoinSet::new();
    while let Ok((mut connection, _)) = silent.accept().await {
        held.spawn(async move {
            let mut scrap = vec![0; 4_096];
            while let Ok(read @ 1..) = connection.read(&mut scrap).await {
                if scrap[..read].starts_with(b"GET /successor/") {
                    // An owner that gets no answer does not move the partition.
                    let _ = connection.write_all(b"HTTP/1.1 204 No Content\r\n\r\n").await;
                }
            }
        });
    }
}

async fn until(clock: &Clock, what: &str, is_so: impl Fn() -> bool) -> Result<(), BenchError> {
    let deadline = clock.now() + PATIENCE;
    while !is_so() {
        if clock.now() >= deadline {
            return Err(format!("not in time: {what}").into());
        }
        clock.sleep(Duration::from_millis(5)).await;
    }
    Ok(())
}

fn launch(
    clock: &Clock,
    driver: &Arc<SharedDriver>,
    reached_at: Option<SocketAddr>,
) -> Result<Launched, BenchError> {
    let (api, cluster) = (free_address(), free_address());
    let (http, port) =
        HttpApi::with_cluster(HttpApiSettings::new(api), ClusterSettings::new(cluster))?;
    let mut settings = NodeSettings::new(api);
    settings.seats = NonZeroU32::MIN.saturating_add(1);
    settings.cluster = Some(reached_at.unwrap_or(cluster));
    settings.acquire_within = None;
    let shop = shop::shop();
    let node = Vvm::builder(Arc::clone(driver) as _, clock.clone(), settings)
        .with_app(AppSettings::new("demo/shop".parse()?, shop))
        .with_service(http)
        .with_service(port)
        .build()?;
    Ok(node.launch())
}

/// A database that stays open when a node closes it, because other nodes use it.
#[derive(Debug)]
struct SharedDriver(MemDriver);

#[async_trait]
impl StorageDriver for SharedDriver {
    fn name(&self) -> &'static str {
        self.0.name()
    }

    async fn create(&self, keyspace: &KeyspaceName, deadline: Instant) -> istorage::Result<()> {
        self.0.create(keyspace, deadline).await
    }

    async fn open(
        &self,
        keyspace: &KeyspaceName,
        deadline: Instant,
    ) -> istorage::Result<Option<SharedStorage>> {
        self.0.open(keyspace, deadline).await
    }

    async fn drop_keyspace(
        &self,
        keyspace: &KeyspaceName,
        deadline: Instant,
    ) -> istorage::Result<()> {
        self.0.drop_keyspace(keyspace, deadline).await
    }

    async fn close(&self) {}
}
