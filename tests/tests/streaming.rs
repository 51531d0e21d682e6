//! Reading a partition of very many rows takes bounded memory.
//!
//! The test writes the rows, and a process of its own reads them. So the peak memory of that
//! process is the peak of reading. The memory grows by less than the size of all rows, for any
//! number of rows.

use std::{
    fs,
    path::Path,
    process::{Command, ExitCode},
    sync::Arc,
    time::Duration,
};

use bytes::Bytes;
use clock::{Clock, Instant};
use futures::{StreamExt, TryStreamExt, stream};
use istorage::{
    Consistency, Error, Key, KeyspaceName, Put, Range, Result, SharedStorage, StorageDriver,
};
use istorage_redb::{RedbConfig, RedbDriver};
use libtest_mimic::{Arguments, Completion, Failed, Trial};
use tck::{storage::Subject, trial::is_long};
use tokio::runtime::Runtime;
use vvm_tests::{
    servers::{CASSANDRA, DYNAMODB, TestServer},
    subjects::{Cassandra, DynamoDb},
};

/// The bound of the growth: the peak memory less the memory before the first row.
const GROWTH_MAX_MIB: u64 = 64;

/// The size of redb's cache of its file. The cache does not count as memory of the stream, so it is
/// small.
const REDB_CACHE: usize = 16 << 20;

const PKEY: &[u8] = b"a partition";

/// The rows that are read. Together they are larger than [`GROWTH_MAX_MIB`].
#[derive(Clone, Copy)]
struct Rows {
    count: u32,
    value: usize,
}

const SMALL: Rows = Rows { count: 1_000_000, value: 100 };

/// Fewer rows for DynamoDB Local, which takes minutes for a million rows of any size.
const FEWER: Rows = Rows { count: 100_000, value: 1_000 };

/// The same number of bytes, for a run that is to be short.
const LARGE: Rows = Rows { count: 20_000, value: 5_000 };

impl Rows {
    fn ccols(n: u32) -> Bytes {
        Bytes::copy_from_slice(&n.to_be_bytes())
    }

    fn value(self, n: u32) -> Bytes {
        n.to_be_bytes().into_iter().cycle().take(self.value).collect()
    }

    async fn write(self, storage: &SharedStorage) -> Result<()> {
        const BATCH: u32 = 5_000;
        let batches = (0..self.count).step_by(BATCH as usize).map(|start| async move {
            let put = |n| Put { key: Key::new(PKEY, Rows::ccols(n)), value: self.value(n) };
            let rows = (start..start + BATCH).map(put).collect();
            storage.put_batch(rows, Instant::FAR_FUTURE).await
        });
        stream::iter(batches).buffer_unordered(4).try_collect().await
    }

    /// Reads all rows, and keeps none of them.
    async fn read(self, storage: &SharedStorage) -> Result<()> {
        let page_timeout = Duration::from_secs(60);
        let mut rows = storage.read(PKEY.into(), Range::all(), Consistency::Plain, page_timeout);
        for n in 0..self.count {
            match rows.try_next().await? {
                Some(row) if row.ccols == Rows::ccols(n) && row.value == self.value(n) => {}
                other => return Err(Error::corrupt(format!("row {n} is {other:?}"))),
            }
        }
        match rows.try_next().await? {
            None => Ok(()),
            Some(row) => Err(Error::corrupt(format!("{row:?} is after the last row"))),
        }
    }
}

/// The first argument of the process that reads: `--read DRIVER WHERE KEYSPACE COUNT SIZE`.
const READ: &str = "--read";

async fn connect(driver: &str, place: &str) -> Result<Arc<dyn StorageDriver>> {
    match driver {
        "redb" => {
            let config = RedbConfig { cache_bytes: REDB_CACHE, ..RedbConfig::new(place) };
            Ok(Arc::new(RedbDriver::open(config, Clock::system()).await?))
        }
        "cassandra" => Cassandra::at(place).node(0).await,
        _ => DynamoDb::at(place).node(0).await,
    }
}

async fn open(driver: &dyn StorageDriver, keyspace: &KeyspaceName) -> Result<SharedStorage> {
    let opened = driver.open(keyspace, Instant::FAR_FUTURE).await?;
    opened.ok_or_else(|| Error::corrupt("the keyspace is not there"))
}

/// Writes the rows, lets another process read them, and removes them.
async fn streams(driver: &str, place: &str, rows: Rows) -> std::result::Result<(), Failed> {
    let keyspace = KeyspaceName::new(format!("streaming_{:016x}", Clock::system().random()))?;
    let node = connect(driver, place).await?;
    node.create(&keyspace, Instant::FAR_FUTURE).await?;
    let written = async {
        let storage = open(&*node, &keyspace).await?;
        rows.write(&storage).await
    };
    let written = written.await;
    if driver == "redb" {
        // Only one process may have the file open.
        node.close().await;
    }
    let growth = written.map_err(Failed::from).and_then(|()| {
        let arguments = [READ, driver, place, keyspace.as_str()];
        let sizes = [rows.count.to_string(), rows.value.to_string()];
        measured(Command::new(std::env::current_exe()?).args(arguments).args(sizes))
    });
    if driver != "redb" {
        node.drop_keyspace(&keyspace, Instant::FAR_FUTURE).await?;
    }
    let (growth, count) = (growth?, rows.count);
    println!("{driver}: {count} rows of {} bytes were read in {growth} MiB", rows.value);
    if growth > GROWTH_MAX_MIB {
        return Err(format!("reading took {growth} MiB, more than {GROWTH_MAX_MIB}").into());
    }
    Ok(())
}

/// Runs the process that reads, which prints the growth of its memory in MiB.
fn measured(command: &mut Command) -> std::result::Result<u64, Failed> {
    let output = command.output()?;
    let text = String::from_utf8_lossy(&output.stdout);
    match (output.status.success(), text.trim().parse()) {
        (true, Ok(growth)) => Ok(growth),
        _ => Err(format!("{text}{}", String::from_utf8_lossy(&output.stderr)).into()),
    }
}

/// Reads the rows, and returns the growth of the memory in MiB.
async fn read_in_own_process(arguments: &[String]) -> std::result::Result<u64, Failed> {
    let [driver, place, keyspace, count, value] = arguments else {
        return Err("five arguments are needed".into());
    };
    let rows = Rows { count: count.parse()?, value: value.parse()? };
    let node = connect(driver, place).await?;
    let storage = open(&*node, &KeyspaceName::new(keyspace.as_str())?).await?;
    let before = memory_kib("VmRSS:")?;
    rows.read(&storage).await?;
    Ok(memory_kib("VmHWM:")?.saturating_sub(before) / 1_024)
}

/// A value of `/proc/self/status`, in KiB.
fn memory_kib(name: &str) -> std::result::Result<u64, Failed> {
    let status = fs::read_to_string("/proc/self/status")?;
    let line = status.lines().find_map(|line| line.strip_prefix(name));
    let number = line.and_then(|line| line.split_whitespace().next()?.parse().ok());
    number.ok_or_else(|| format!("{name} is not in /proc/self/status").into())
}

type Test = std::result::Result<Completion, Failed>;

fn on_server(runtime: &Runtime, driver: &str, server: TestServer, many: Rows) -> Test {
    let rows = if is_long() { many } else { LARGE };
    match server.address() {
        None => Ok(Completion::ignored_with(server.ignored_because)),
        Some(place) => {
            runtime.block_on(streams(driver, &place, rows)).map(|()| Completion::Completed)
        }
    }
}

fn on_redb(runtime: &Runtime) -> Test {
    let folder = tempfile::tempdir_in(env!("CARGO_TARGET_TMPDIR"))?;
    let file = folder.path().join("streaming.redb");
    let place = Path::to_str(&file).ok_or("the path is no text")?;
    runtime.block_on(streams("redb", place, SMALL)).map(|()| Completion::Completed)
}

fn main() -> ExitCode {
    let runtime = Arc::new(Runtime::new().expect("a runtime needs no more than some threads"));
    let arguments: Vec<String> = std::env::args().skip(1).collect();
    if arguments.first().is_some_and(|first| first == READ) {
        return match runtime.block_on(read_in_own_process(&arguments[1..])) {
            Ok(growth) => {
                println!("{growth}");
                ExitCode::SUCCESS
            }
            Err(error) => {
                eprintln!("{}", error.message().unwrap_or_default());
                ExitCode::FAILURE
            }
        };
    }
    let test = |name: &str, run: fn(&Runtime) -> Test| {
        let runtime = Arc::clone(&runtime);
        Trial::ignorable_test(name, move || {
            if cfg!(target_os = "linux") {
                run(&runtime)
            } else {
                Ok(Completion::ignored_with("only Linux tells the peak of a process in /proc"))
            }
        })
    };
    let tests = vec![
        test("redb::streaming_takes_little_memory", on_redb),
        test("cassandra::streaming_takes_little_memory", |runtime| {
            on_server(runtime, "cassandra", CASSANDRA, SMALL)
        }),
        test("dynamodb::streaming_takes_little_memory", |runtime| {
            on_server(runtime, "dynamodb", DYNAMODB, FEWER)
        }),
    ];
    libtest_mimic::run(&Arguments::from_args(), tests).exit_code()
}
