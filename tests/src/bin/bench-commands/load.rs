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
use vvm_tests::bench::{BenchError, Sample};

pub(crate) const PARTITIONS: u16 = 10;

/// A shop database with all its partitions running.
pub(crate) struct Works {
    shop_db: ShopDatabase,
    nodes: Vec<ShopNode>,
    commands: Arc<Vec<Commands>>,
    workspaces: u64,
    next: Arc<AtomicU64>,
    clock: Clock,
}

/// The names that a command is made of. The names are parsed once, so that clients cost little CPU
/// time.
#[derive(Clone)]
struct Names {
    cud: QName,
    bill: QName,
    line: QName,
    name: Name,
    lines: Name,
}

impl Works {
    pub(crate) async fn new(
        driver: &Arc<dyn StorageDriver>,
        name: KeyspaceName,
        level: TrustLevel,
        workspaces: u64,
        wrap: impl Fn(SharedStorage) -> SharedStorage,
        clock: &Clock,
    ) -> Result<Works, BenchError> {
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
        let works = Works { shop_db, nodes, commands, workspaces, next, clock: clock.clone() };
        works.create_workspaces().await?;
        Ok(works)
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

    /// Runs a number of clients for a time.
    pub(crate) async fn run(&self, clients: usize, span: Duration) -> Result<Sample, BenchError> {
        let names = Names {
            cud: "sys.CUD".parse()?,
            bill: "shop.Bill".parse()?,
            line: "shop.Line".parse()?,
            name: "name".parse()?,
            lines: "lines".parse()?,
        };
        let (commands, next) = (Arc::clone(&self.commands), Arc::clone(&self.next));
        let workspaces = self.workspaces;
        let deadline = self.clock.now() + span + Duration::from_secs(30);
        let call = move || {
            let ws = next.fetch_add(1, Ordering::Relaxed) % workspaces;
            let commands = commands[(ws % u64::from(PARTITIONS)) as usize].clone();
            let command = bill(&names, ws, deadline);
            async move {
                commands.run(command).await?;
                Ok(())
            }
        };
        Sample::measure(&self.clock, clients, span, call).await
    }

    pub(crate) async fn stop(self) -> ShopDatabase {
        for node in &self.nodes {
            node.stop().await;
        }
        self.shop_db
    }
}

/// A command that makes three records of about 100 bytes each, and an event of about 400 bytes.
fn bill(names: &Names, ws: u64, deadline: Instant) -> Command {
    let text = "a text of sixty bytes, as there are many in documents of shops";
    let row = |raw, table: &QName, parent| RowChange::Create {
        raw: RecordId(raw),
        table: table.clone(),
        parent,
        fields: [(names.name.clone(), Value::String(text.to_owned()))].into(),
    };
    let standing = || Some(Parent { id: RecordId(1), container: names.lines.clone() });
    Command::new(WsId(ws), names.cud.clone(), deadline).with_rows(vec![
        row(1, &names.bill, None),
        row(2, &names.line, standing()),
        row(3, &names.line, standing()),
    ])
}
