//! The floor of redb: bare redb transactions, durable, and grouped as the driver groups them.
//!
//! Writes: one thread takes all waiting requests, writes them in one durable transaction, and
//! answers them. Reads: one transaction for each read, on a thread that may block.

#![expect(clippy::disallowed_methods, reason = "the floor has a thread of its own")]

use std::{collections::VecDeque, path::Path, sync::Arc};

use async_trait::async_trait;
use redb::{Database, ReadableDatabase, ReadableTable, TableDefinition};
use tokio::sync::{mpsc, oneshot};

use vvm_tests::bench::BenchError;

use crate::work::{Op, Side, ccols, pkey, value};

const ROWS: TableDefinition<'_, &[u8], &[u8]> = TableDefinition::new("rows");
const GROUP_MAX: usize = 4_096;

pub(crate) struct RedbFloor {
    database: Arc<Database>,
    writer: mpsc::Sender<Request>,
}

struct Request {
    keys: Vec<Vec<u8>>,
    /// Whether the rows must be new.
    insert: bool,
    answer: oneshot::Sender<Result<(), String>>,
}

impl RedbFloor {
    pub(crate) fn open(file: &Path) -> Result<RedbFloor, BenchError> {
        let database = Arc::new(Database::create(file)?);
        let transaction = database.begin_write()?;
        transaction.open_table(ROWS)?;
        transaction.commit()?;
        let (writer, requests) = mpsc::channel(GROUP_MAX);
        let writing = Arc::clone(&database);
        std::thread::spawn(move || write_all(&writing, requests));
        Ok(RedbFloor { database, writer })
    }
}

fn write_all(database: &Database, mut requests: mpsc::Receiver<Request>) {
    let mut group = VecDeque::new();
    while let Some(first) = requests.blocking_recv() {
        group.push_back(first);
        while group.len() < GROUP_MAX
            && let Ok(next) = requests.try_recv()
        {
            group.push_back(next);
        }
        let done = write_group(database, &group).map_err(|error| error.to_string());
        for request in group.drain(..) {
            // A caller that has given up needs no answer.
            let _gone = request.answer.send(done.clone());
        }
    }
}

fn write_group(database: &Database, group: &VecDeque<Request>) -> Result<(), BenchError> {
    let mut transaction = database.begin_write()?;
    transaction.set_quick_repair(true);
    {
        let mut table = transaction.open_table(ROWS)?;
        for request in group {
            for key in &request.keys {
                if request.insert && table.get(key.as_slice())?.is_some() {
                    return Err("a fresh row was there already".into());
                }
                table.insert(key.as_slice(), &value()[..])?;
            }
        }
    }
    transaction.commit()?;
    Ok(())
}

fn key(op: Op, n: u64, row: u16) -> Vec<u8> {
    [&pkey(op, n)[..], &ccols(row)[..]].concat()
}

#[async_trait]
impl Side for RedbFloor {
    async fn run(&self, op: Op, n: u64) -> Result<(), BenchError> {
        let rows = match op {
            Op::Get => {
                let (database, key) = (Arc::clone(&self.database), key(op, n, 0));
                let there = tokio::task::spawn_blocking(move || {
                    let table = database.begin_read()?.open_table(ROWS)?;
                    let there = table.get(key.as_slice())?.map(|value| value.value().to_vec());
                    Ok::<_, BenchError>(there)
                });
                there.await??.ok_or("a row that was written is not there")?;
                return Ok(());
            }
            Op::Put | Op::Insert => 1,
            Op::PutBatch10 => 10,
            Op::WriteIf32 => 32,
        };
        let keys = (0..rows).map(|row| key(op, n, row)).collect();
        let (answer, answered) = oneshot::channel();
        let insert = matches!(op, Op::Insert | Op::WriteIf32);
        self.writer
            .send(Request { keys, insert, answer })
            .await
            .map_err(|_| "the writer is gone")?;
        Ok(answered.await??)
    }
}
