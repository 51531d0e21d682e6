//! Clients that send commands to a shop. Each client sends the next command when the one before is
//! answered.

use std::{
    num::NonZeroU16,
    sync::{
        Arc,
        atomic::{AtomicU64, Ordering},
    },
    time::Duration,
};

use clock::{Clock, Instant};
use eventlog::{Name, Parent, QName, RecordId, TrustLevel, Value, WsId};
use istorage::{KeyspaceName, SharedStorage, StorageDriver};
use processor::{Command, Commands, Refused, RowChange};
use shop::{ShopDatabase, ShopNode, ShopNodeSettings, create_workspace};

use super::{BenchError, Sample};

/// The number of partitions.
pub const PARTITIONS: u16 = 10;

/// A shop database with all its partitions running.
#[derive(Debug)]
pub struct ShopLoad {
    nodes: Vec<ShopNode>,
    commands: Arc<Vec<Commands>>,
    workspaces: u64,
    next: Arc<AtomicU64>,
    clock: Clock,
}

impl ShopLoad {
    /// Starts a shop on a driver, in a new keyspace, and creates its workspaces. `wrap` wraps the
    /// storage that the partitions use.
    ///
    /// # Errors
    /// If a workspace cannot be created.
    pub async fn new(
        driver: &Arc<dyn StorageDriver>,
        name: KeyspaceName,
        level: TrustLevel,
        workspaces: u64,
        wrap: impl Fn(SharedStorage) -> SharedStorage,
        clock: &Clock,
    ) -> Result<ShopLoad, BenchError> {
        let partitions = NonZeroU16::new(PARTITIONS).ok_or("ten is not zero")?;
        let shop_db = ShopDatabase::new(Arc::clone(driver), name, partitions, clock.clone()).await;
        let storage = wrap(Arc::clone(&shop_db.app.storage));
        let settings = ShopNodeSettings { storage: Some(storage), ..ShopNodeSettings::at(level) };
        let nodes: Vec<ShopNode> =
            (0..PARTITIONS).map(|partition| shop_db.node(partition, settings.clone())).collect();
        for node in &nodes {
            node.ready().await;
        }
        let commands = Arc::new(nodes.iter().map(|node| node.commands.clone()).collect());
        let next = Arc::new(AtomicU64::new(0));
        let load = ShopLoad { nodes, commands, workspaces, next, clock: clock.clone() };
        load.create_workspaces().await?;
        Ok(load)
    }

    async fn create_workspaces(&self) -> Result<(), BenchError> {
        let mut running = tokio::task::JoinSet::new();
        for client in 0..32 {
            let (commands, workspaces) = (Arc::clone(&self.commands), self.workspaces);
            running.spawn(async move {
                for ws in (client..workspaces).step_by(32) {
                    let partition = (ws % u64::from(PARTITIONS)) as usize;
                    commands[partition].run(create_workspace(ws, Instant::FAR_FUTURE)).await?;
                }
                Ok::<_, Refused>(())
            });
        }
        while let Some(done) = running.join_next().await {
            done??;
        }
        Ok(())
    }

    /// Runs a number of clients for a time. Each command writes the rows that `rows` returns. The
    /// commands go to the workspaces in turn.
    ///
    /// # Errors
    /// If a command fails.
    pub async fn run(
        &self,
        clients: usize,
        span: Duration,
        rows: impl Fn() -> Vec<RowChange> + Clone + Send + 'static,
    ) -> Result<Sample, BenchError> {
        let cud: QName = "sys.CUD".parse()?;
        let (commands, next) = (Arc::clone(&self.commands), Arc::clone(&self.next));
        let workspaces = self.workspaces;
        let deadline = self.clock.now() + span + Duration::from_secs(30);
        let call = move |_| {
            let ws = next.fetch_add(1, Ordering::Relaxed) % workspaces;
            let commands = commands[(ws % u64::from(PARTITIONS)) as usize].clone();
            let command = Command::new(WsId(ws), cud.clone(), deadline).with_rows(rows());
            async move {
                commands.run(command).await?;
                Ok(())
            }
        };
        Sample::measure(&self.clock, clients, span, call).await
    }

    /// Stops the partitions.
    pub async fn stop(self) {
        for node in &self.nodes {
            node.stop().await;
        }
    }
}

/// Makes a bill and its lines: this many records of about 100 bytes each. The names are parsed
/// once, so that clients cost little CPU time.
///
/// # Errors
/// Never: all names are valid.
pub fn bill(
    records: u64,
) -> Result<impl Fn() -> Vec<RowChange> + Clone + Send + 'static, BenchError> {
    let (bill, line): (QName, QName) = ("shop.Bill".parse()?, "shop.Line".parse()?);
    let (name, lines): (Name, Name) = ("name".parse()?, "lines".parse()?);
    let text = "a text of sixty bytes, as there are many in documents of shops";
    let row = move |raw, table: &QName, parent| RowChange::Create {
        raw: RecordId(raw),
        table: table.clone(),
        parent,
        fields: [(name.clone(), Value::String(text.to_owned()))].into(),
    };
    Ok(move || {
        let parent = || Some(Parent { id: RecordId(1), container: lines.clone() });
        let lines = (2..=records).map(|raw| row(raw, &line, parent()));
        [row(1, &bill, None)].into_iter().chain(lines).collect()
    })
}
