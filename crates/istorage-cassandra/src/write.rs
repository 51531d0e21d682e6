//! Plain and ordered writes. Each request is sent once; what it says or does not say goes to the caller.
//!
//! Rows of one partition go into one request: the server makes one mutation of them, so all are written or none. What is
//! left of several partitions is packed together, as long as it is so little that the servers have nothing to say about
//! it: ten rows of ten partitions took two and a half times as long as requests of their own, on one server and on
//! three.

use std::collections::HashMap;

use bytes::Bytes;
use clock::Instant;
use futures::{TryStreamExt, stream};
use istorage::{BatchLimits, Key, OrderedPut, Put, Result};
use scylla::{
    serialize::{
        SerializationError,
        row::{RowSerializationContext, SerializeRow},
        writers::RowWriter,
    },
    statement::{
        batch::{Batch, BatchType},
        prepared::PreparedStatement,
    },
};

use crate::{
    errors::Request,
    layout::Statements,
    limits::{ORDERED, PLAIN, SIDE_BY_SIDE},
    session::Client,
    ttl,
};

/// The most partitions of one request; servers complain of more.
const PACKED_PARTITIONS: usize = 10;

/// The most bytes of one request for several partitions, as [`Write::bytes`] counts them; servers complain of more than
/// 5 KiB and refuse more than 50 KiB.
const PACKED_BYTES: usize = 4 << 10;

pub(crate) async fn put_batch(
    client: &Client,
    statements: &Statements,
    rows: &[Put],
    deadline: Instant,
) -> Result<()> {
    let writes = rows.iter().map(|put| Write { key: &put.key, value: &put.value, order: None });
    write_all(client, &statements.put, writes.collect(), PLAIN, deadline).await
}

pub(crate) async fn put_ordered(
    client: &Client,
    statements: &Statements,
    rows: &[OrderedPut],
    deadline: Instant,
) -> Result<()> {
    let writes = rows.iter().map(|put| {
        let timestamp = i64::try_from(put.order.get()).unwrap_or(i64::MAX);
        Write { key: &put.key, value: &put.value, order: Some((timestamp, ttl::seconds(put.ttl))) }
    });
    write_all(client, &statements.put_ordered, writes.collect(), ORDERED, deadline).await
}

/// What a row takes beside its keys and its value.
const ROW_BYTES: usize = 64;

/// A plain or an ordered write of one row.
struct Write<'a> {
    key: &'a Key,
    value: &'a Bytes,
    /// The timestamp and the seconds to live of an ordered one.
    order: Option<(i64, i32)>,
}

impl Write<'_> {
    /// What it adds to a request and to a mutation, roughly.
    fn bytes(&self) -> usize {
        self.key.pkey.len() + self.key.ccols.len() + self.value.len() + ROW_BYTES
    }
}

impl SerializeRow for Write<'_> {
    fn serialize(
        &self,
        ctx: &RowSerializationContext<'_>,
        writer: &mut RowWriter<'_>,
    ) -> std::result::Result<(), SerializationError> {
        let (value, pkey, ccols) = (&self.value[..], &self.key.pkey[..], &self.key.ccols[..]);
        match self.order {
            None => (value, pkey, ccols).serialize(ctx, writer),
            Some((timestamp, seconds)) => {
                (timestamp, seconds, value, pkey, ccols).serialize(ctx, writer)
            }
        }
    }

    fn is_empty(&self) -> bool {
        false
    }
}

/// Writes rows of any partitions, in as few requests as may be, side by side.
async fn write_all(
    client: &Client,
    statement: &PreparedStatement,
    writes: Vec<Write<'_>>,
    limits: BatchLimits,
    deadline: Instant,
) -> Result<()> {
    let requests = requests(writes, limits);
    if let [request] = &requests[..] {
        return send(client, statement, request, deadline).await;
    }
    let requests = stream::iter(requests.into_iter().map(Ok));
    let send = |request: Vec<_>| async move { send(client, statement, &request, deadline).await };
    requests.try_for_each_concurrent(SIDE_BY_SIDE, send).await
}

async fn send(
    client: &Client,
    statement: &PreparedStatement,
    writes: &[Write<'_>],
    deadline: Instant,
) -> Result<()> {
    let result = match writes {
        [write] => client.execute(statement, write, deadline).await,
        _ => client.batch(&batch(writes.iter().map(|_| statement)), writes, deadline).await,
    };
    result.map(drop).map_err(|error| Request::Plain.failed(error))
}

/// No log makes it atomic; one partition needs none.
pub(crate) fn batch<'a>(statements: impl Iterator<Item = &'a PreparedStatement>) -> Batch {
    let statements = statements.map(|statement| statement.clone().into()).collect();
    Batch::new_with_statements(BatchType::Unlogged, statements)
}

/// The writes of each request.
fn requests<'a>(writes: Vec<Write<'a>>, limits: BatchLimits) -> Vec<Vec<Write<'a>>> {
    let mut requests = Vec::new();
    let mut packed = Vec::new();
    let (mut partitions, mut bytes) = (0, 0);
    for part in partitions_of(writes).into_iter().flat_map(|writes| parts(writes, limits)) {
        let part_bytes = part.iter().map(Write::bytes).sum::<usize>();
        if part_bytes > PACKED_BYTES {
            requests.push(part);
            continue;
        }
        if partitions == PACKED_PARTITIONS || bytes + part_bytes > PACKED_BYTES {
            requests.push(std::mem::take(&mut packed));
            (partitions, bytes) = (0, 0);
        }
        partitions += 1;
        bytes += part_bytes;
        packed.extend(part);
    }
    requests.extend(Some(packed).filter(|packed| !packed.is_empty()));
    requests
}

/// The writes of each partition, in their order.
fn partitions_of<'a>(writes: Vec<Write<'a>>) -> Vec<Vec<Write<'a>>> {
    if writes.iter().all(|write| write.key.pkey == writes[0].key.pkey) {
        return vec![writes];
    }
    let mut places: HashMap<&[u8], usize> = HashMap::new();
    let mut partitions: Vec<Vec<Write<'a>>> = Vec::new();
    for write in writes {
        let place = *places.entry(&write.key.pkey).or_insert(partitions.len());
        match partitions.get_mut(place) {
            Some(partition) => partition.push(write),
            None => partitions.push(vec![write]),
        }
    }
    partitions
}

/// The writes of a partition in as few parts as the limits allow.
fn parts<'a>(writes: Vec<Write<'a>>, limits: BatchLimits) -> Vec<Vec<Write<'a>>> {
    let mut parts = Vec::new();
    let mut part: Vec<Write<'a>> = Vec::with_capacity(writes.len().min(limits.rows));
    let mut bytes = 0;
    for write in writes {
        if part.len() == limits.rows || (!part.is_empty() && bytes + write.bytes() > limits.bytes) {
            parts.push(std::mem::take(&mut part));
            bytes = 0;
        }
        bytes += write.bytes();
        part.push(write);
    }
    parts.push(part);
    parts
}

#[cfg(test)]
mod tests {
    use super::*;

    const LIMITS: BatchLimits = BatchLimits { rows: 100, bytes: 100_000 };

    /// The partitions and the number of rows of each request, for rows of these partitions with values of so many bytes.
    fn requests_for(rows: &[(u64, usize)], limits: BatchLimits) -> Vec<(Vec<u64>, usize)> {
        let key = |(i, (partition, _)): (usize, &(u64, usize))| {
            Key::new(partition.to_be_bytes().to_vec(), i.to_string())
        };
        let keys: Vec<Key> = rows.iter().enumerate().map(key).collect();
        let values: Vec<Bytes> =
            rows.iter().map(|(_, bytes)| Bytes::from(vec![0; *bytes])).collect();
        let write = |(key, value)| Write { key, value, order: None };
        let writes = keys.iter().zip(&values).map(write).collect();
        let summary = |request: Vec<Write<'_>>| {
            let partition =
                |write: &Write<'_>| u64::from_be_bytes(write.key.pkey[..].try_into().unwrap());
            let mut partitions: Vec<u64> = request.iter().map(partition).collect();
            partitions.dedup();
            (partitions, request.len())
        };
        requests(writes, limits).into_iter().map(summary).collect()
    }

    #[test]
    fn rows_of_a_partition_stay_together_up_to_the_limits() {
        let few = BatchLimits { rows: 4, bytes: 100_000 };
        assert_eq!(requests_for(&[(1, 9_000); 4], few), [(vec![1], 4)]);
        let sizes: Vec<usize> =
            requests_for(&[(1, 9_000); 9], few).iter().map(|(_, rows)| *rows).collect();
        // The smallest comes last, as it could have been packed with others.
        assert_eq!(sizes, [4, 4, 1]);
        let small = BatchLimits { rows: 100, bytes: 10_000 };
        assert_eq!(
            requests_for(&[(1, 4_500), (1, 4_500), (1, 9_999), (1, 50_000)], small).len(),
            3
        );
    }

    #[test]
    fn rows_of_a_partition_are_found_among_others() {
        let rows = [(1, 3_000), (2, 3_000), (1, 3_000), (2, 3_000), (3, 10)];
        assert_eq!(requests_for(&rows, LIMITS), [(vec![1], 2), (vec![2], 2), (vec![3], 1)]);
    }

    #[test]
    fn little_of_several_partitions_is_packed() {
        let rows: Vec<(u64, usize)> = (0..25).map(|partition| (partition, 200)).collect();
        let sizes: Vec<usize> = requests_for(&rows, LIMITS).iter().map(|(_, rows)| *rows).collect();
        assert_eq!(sizes, [10, 10, 5]);
        let rows: Vec<(u64, usize)> = (0..5).map(|partition| (partition, 2_000)).collect();
        assert!(requests_for(&rows, LIMITS).iter().all(|(partitions, _)| partitions.len() == 1));
        let rows: Vec<(u64, usize)> = (0..200).map(|i| (i % 2, 0)).collect();
        for (partitions, rows) in requests_for(&rows, LIMITS) {
            assert!(partitions.len() == 1 || rows * ROW_BYTES <= PACKED_BYTES);
        }
    }
}
