//! Which reads bring a row from the only server that has it to a quorum.

use std::time::Duration;

use bytes::Bytes;
use futures::TryStreamExt;
use istorage::{AppStorageExt, Consistency, Key, Order, OrderedPut, Outcome, Range, SharedStorage};

use crate::{in_a_moment, retried, servers::Servers, soon};

/// The ways to read a row. Each has a row of its own, in a storage partition of its own.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum ReadKind {
    Row,
    Batch,
    Range,
    LinearizableRow,
    LinearizableRange,
    /// The read of a conditional write that is refused.
    RefusedInsert,
    RefusedSwap,
}

const READS: [ReadKind; 7] = [
    ReadKind::Row,
    ReadKind::Batch,
    ReadKind::Range,
    ReadKind::LinearizableRow,
    ReadKind::LinearizableRange,
    ReadKind::RefusedInsert,
    ReadKind::RefusedSwap,
];

const VALUE: Bytes = Bytes::from_static(b"only one server has it");

impl ReadKind {
    fn key(self) -> Key {
        Key::new(format!("{self:?}"), "row")
    }

    /// Whether the read is one of Paxos.
    fn is_linearizable(self) -> bool {
        !matches!(self, ReadKind::Row | ReadKind::Batch | ReadKind::Range)
    }

    /// Reads the row. `None` if the read does not show it.
    async fn read(self, storage: &SharedStorage) -> istorage::Result<Option<Bytes>> {
        let (key, page) = (self.key(), Duration::from_secs(5));
        let range = async |consistency| {
            let rows = storage.read(key.pkey.clone(), Range::all(), consistency, page);
            rows.try_collect::<Vec<_>>().await.map(|rows| rows.into_iter().next())
        };
        let other = Bytes::from_static(b"another value");
        let refused = |outcome: Outcome| match outcome {
            Outcome::Applied => panic!("{self:?}: the write was applied"),
            Outcome::NotApplied(conflicts) => conflicts[0].actual.clone(),
        };
        let until = in_a_moment();
        Ok(match self {
            ReadKind::Row => storage.get(&key, Consistency::Plain, until).await?,
            ReadKind::Batch => {
                let mut found = storage.get_batch(&[key], until).await?;
                found.remove(0).map(|found| found.value)
            }
            ReadKind::Range => range(Consistency::Plain).await?.map(|row| row.value),
            ReadKind::LinearizableRow => storage.get_linearizable(&key, until).await?,
            ReadKind::LinearizableRange => {
                range(Consistency::Linearizable).await?.map(|row| row.value)
            }
            ReadKind::RefusedInsert => {
                refused(storage.insert_if_not_exists(key, other, None, until).await?)
            }
            ReadKind::RefusedSwap => {
                refused(storage.compare_and_swap(key, other.clone(), other, None, until).await?)
            }
        })
    }
}

/// A recovery read the log linearizably, and took for granted that the read repairs a quorum, as a
/// plain read does. With `paxos_variant: v2` it does not: `Paxos.begin` resolves the answers
/// of the servers with `NoopReadRepair`. So an event that the recovery had read, and whose command
/// was answered as done, was lost with one server.
pub(crate) async fn reads(servers: Servers) {
    let (driver, keyspace) = (servers.connect().await, Servers::new_name());
    driver.create(&keyspace, soon()).await.unwrap();
    let storage = driver.open(&keyspace, soon()).await.unwrap().unwrap();
    let order = Order::from_parts(1, 1).unwrap();
    let put = |read: ReadKind| OrderedPut { key: read.key(), value: VALUE, order, ttl: None };
    let write = retried(async || storage.put_ordered(READS.map(put).to_vec(), in_a_moment()).await);
    let is_there =
        servers.write_to_the_first(&keyspace, &READS.map(ReadKind::key), Some(&VALUE), write).await;
    assert!(is_there, "the first server did not get the rows in time");

    let variant = servers.paxos_variant().await;
    let without_third = servers.without(2);
    for read in READS {
        let seen = retried(async || read.read(&storage).await).await;
        assert_eq!(seen, Some(VALUE), "{read:?} did not ask the first server");
    }
    drop(without_third);
    servers.until_whole(&keyspace).await;

    let without_first = servers.without(0);
    let mut outlived = Vec::new();
    for read in READS {
        let get = async || storage.get(&read.key(), Consistency::Plain, in_a_moment()).await;
        if retried(get).await.is_some() {
            outlived.push(read);
        }
    }
    drop(without_first);
    eprintln!("paxos_variant {variant}: these reads repaired a quorum: {outlived:?}");
    let repairs = |read: &ReadKind| variant == "v1" || !read.is_linearizable();
    let expected: Vec<_> = READS.into_iter().filter(repairs).collect();
    assert_eq!(outlived, expected, "docs/storage.md is wrong about `paxos_variant: {variant}`");
    servers.until_whole(&keyspace).await;
    driver.drop_keyspace(&keyspace, soon()).await.unwrap();
}
