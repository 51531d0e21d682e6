//! Clients that send commands to a site, each the next when the one before is answered.

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
use rustix::time::{ClockId, clock_gettime};
use vvm_tests::commands::{Node, NodeSettings, Site, create_workspace};

use crate::Failure;

pub(crate) const PARTITIONS: u16 = 10;

/// A site with all its partitions at work.
pub(crate) struct Works {
    site: Site,
    nodes: Vec<Node>,
    commands: Arc<Vec<Commands>>,
    workspaces: u64,
    next: Arc<AtomicU64>,
    clock: Clock,
}

/// What was measured.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Sample {
    pub(crate) per_second: f64,
    pub(crate) p50: Duration,
    pub(crate) p99: Duration,
    /// What a command cost this process.
    pub(crate) cpu: Duration,
}

/// What a command is made of, so that clients cost little.
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
    ) -> Result<Works, Failure> {
        let partitions = NonZeroU16::new(PARTITIONS).ok_or("ten is not zero")?;
        let site = Site::new(Arc::clone(driver), name, partitions, clock.clone()).await;
        let storage = wrap(Arc::clone(&site.app.storage));
        let settings = NodeSettings { storage: Some(storage), ..NodeSettings::at(level) };
        let nodes: Vec<Node> =
            (0..PARTITIONS).map(|partition| site.node(partition, settings.clone())).collect();
        for node in &nodes {
            node.ready().await;
        }
        let commands = Arc::new(nodes.iter().map(|node| node.commands.clone()).collect());
        let next = Arc::new(AtomicU64::new(0));
        let works = Works { site, nodes, commands, workspaces, next, clock: clock.clone() };
        works.create_workspaces().await?;
        Ok(works)
    }

    async fn create_workspaces(&self) -> Result<(), Failure> {
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

    /// So many clients for so long.
    pub(crate) async fn run(&self, clients: usize, span: Duration) -> Result<Sample, Failure> {
        let names = Names {
            cud: "sys.CUD".parse()?,
            bill: "shop.Bill".parse()?,
            line: "shop.Line".parse()?,
            name: "name".parse()?,
            lines: "lines".parse()?,
        };
        let (start, cpu) = (self.clock.now(), cpu_time());
        let end = start + span;
        let mut running = tokio::task::JoinSet::new();
        for _ in 0..clients {
            let (commands, next) = (Arc::clone(&self.commands), Arc::clone(&self.next));
            let (workspaces, clock, names) = (self.workspaces, self.clock.clone(), names.clone());
            running.spawn(async move {
                let mut times = Vec::new();
                let mut now = clock.now();
                while now < end {
                    let ws = next.fetch_add(1, Ordering::Relaxed) % workspaces;
                    let partition = (ws % u64::from(PARTITIONS)) as usize;
                    commands[partition].run(bill(&names, ws, now)).await?;
                    let done = clock.now();
                    times.push(done - now);
                    now = done;
                }
                Ok::<_, Refused>(times)
            });
        }
        let mut times = Vec::new();
        while let Some(task) = running.join_next().await {
            times.extend(task??);
        }
        let elapsed = (self.clock.now() - start).as_secs_f64();
        let cpu = (cpu_time() - cpu).div_f64(times.len().max(1) as f64);
        times.sort_unstable();
        let at = |per_mille: usize| times.get(times.len() * per_mille / 1_000).copied();
        let (p50, p99) = at(500).zip(at(990)).ok_or("no command was done in time")?;
        Ok(Sample { per_second: times.len() as f64 / elapsed, p50, p99, cpu })
    }

    pub(crate) async fn stop(self) -> Site {
        for node in &self.nodes {
            node.stop().await;
        }
        self.site
    }
}

/// Three new records of about 100 bytes each, and an event of about 400.
fn bill(names: &Names, ws: u64, now: Instant) -> Command {
    let text = "a text of sixty bytes, as there are many in documents of shops";
    let row = |raw, table: &QName, parent| RowChange::Create {
        raw: RecordId(raw),
        table: table.clone(),
        parent,
        fields: [(names.name.clone(), Value::String(text.to_owned()))].into(),
    };
    let standing = || Some(Parent { id: RecordId(1), container: names.lines.clone() });
    Command {
        ws: WsId(ws),
        name: names.cud.clone(),
        params: bytes::Bytes::new(),
        rows: vec![
            row(1, &names.bill, None),
            row(2, &names.line, standing()),
            row(3, &names.line, standing()),
        ],
        request: String::new(),
        repeat: None,
        deadline: now + Duration::from_secs(30),
    }
}

/// The time that all threads of this process have run.
fn cpu_time() -> Duration {
    let time = clock_gettime(ClockId::ProcessCPUTime);
    Duration::new(time.tv_sec.unsigned_abs(), time.tv_nsec.unsigned_abs() as u32)
}
