//! The work that is measured: the same rows for a driver and for its floor.

use std::{fmt, sync::Arc, time::Duration};

use async_trait::async_trait;
use bytes::Bytes;
use clock::Clock;
use istorage::{AppStorageExt, Conditional, Consistency, Key, Put, SharedStorage};
use vvm_tests::bench::BenchError;

/// The number of rows that are stored before any row is read.
pub(crate) const PREFILLED: u64 = 10_000;

const VALUE: [u8; 256] = [7; 256];

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Op {
    Put,
    Get,
    PutBatch10,
    Insert,
    WriteIf32,
}

impl Op {
    pub(crate) const ALL: [Op; 5] = [Op::Put, Op::Get, Op::PutBatch10, Op::Insert, Op::WriteIf32];
}

impl fmt::Display for Op {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.pad(match self {
            Op::Put => "put",
            Op::Get => "get",
            Op::PutBatch10 => "put_batch(10)",
            Op::Insert => "insert_if_not_exists",
            Op::WriteIf32 => "write_if(32 inserts)",
        })
    }
}

/// One side of a comparison. `n` is new for each call, also from one round to the next. Only for
/// `Get`, `n` is one of the [`PREFILLED`] rows.
#[async_trait]
pub(crate) trait Side: Send + Sync {
    async fn run(&self, op: Op, n: u64) -> Result<(), BenchError>;
}

pub(crate) fn value() -> Bytes {
    Bytes::from_static(&VALUE)
}

/// A partition key. Neighbours in `n` have unrelated keys, and each kind of row has keys of its
/// own.
pub(crate) fn pkey(op: Op, n: u64) -> Bytes {
    let scattered = n.wrapping_mul(0x9e37_79b9_7f4a_7c15).rotate_left(17);
    let mut pkey = vec![match op {
        Op::Get => Op::Put as u8,
        op => op as u8,
    }];
    pkey.extend_from_slice(&scattered.to_be_bytes());
    pkey.into()
}

pub(crate) fn ccols(row: u16) -> Bytes {
    Bytes::copy_from_slice(&row.to_be_bytes())
}

/// The side of the driver, through the contract of storages.
pub(crate) struct Driver {
    pub(crate) storage: SharedStorage,
    pub(crate) clock: Clock,
}

#[async_trait]
impl Side for Driver {
    async fn run(&self, op: Op, n: u64) -> Result<(), BenchError> {
        let deadline = self.clock.now() + Duration::from_secs(10);
        let key = Key { pkey: pkey(op, n), ccols: ccols(0) };
        match op {
            Op::Put => self.storage.put(key, value(), deadline).await?,
            Op::Get => {
                let there = self.storage.get(&key, Consistency::Plain, deadline).await?;
                there.ok_or("a row that was written is not there")?;
            }
            Op::PutBatch10 => {
                let put = |row| Put {
                    key: Key { pkey: key.pkey.clone(), ccols: ccols(row) },
                    value: value(),
                };
                self.storage.put_batch((0..10).map(put).collect(), deadline).await?;
            }
            Op::Insert => {
                applied(self.storage.insert_if_not_exists(key, value(), None, deadline).await?)?
            }
            Op::WriteIf32 => {
                let insert =
                    |row| Conditional::Insert { ccols: ccols(row), value: value(), ttl: None };
                applied(
                    self.storage
                        .write_if(key.pkey, (0..32).map(insert).collect(), deadline)
                        .await?,
                )?;
            }
        }
        Ok(())
    }
}

fn applied(outcome: istorage::Outcome) -> Result<(), BenchError> {
    if outcome.is_applied() { Ok(()) } else { Err("a fresh row was there already".into()) }
}

/// Writes the rows that are read later.
pub(crate) async fn prefill(side: &Arc<dyn Side>) -> Result<(), BenchError> {
    for start in (0..PREFILLED).step_by(100) {
        let puts = (start..start + 100).map(|n| side.run(Op::Put, n));
        futures::future::try_join_all(puts).await?;
    }
    Ok(())
}
