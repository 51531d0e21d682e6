//! Plain and ordered writes. Each request is sent once, and the caller gets the result or the
//! error.
//!
//! Rows of one storage partition go into one request. The server makes one mutation of these rows,
//! so it writes all of them or none. Small writes of several partitions are packed into one
//! request, as long as the request is too small to make servers log warnings. Ten rows of ten
//! partitions took two and a half times as long in separate requests as in one, on one server and
//! on three.

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
    errors::RequestKind,
    layout::Statements,
    limits::{ORDERED, PLAIN, SIDE_BY_SIDE},
    session::SessionClient,
    timestamps, ttl,
};

/// The most storage partitions of one request. Servers log a warning for more.
const PACKED_PARTITIONS: usize = 10;

/// The most bytes of one request for several storage partitions, counted by
/// [`UnconditionalWrite::bytes`]. Servers log a warning above 5 KiB and refuse more than 50 KiB.
const PACKED_BYTES: usize = 4 << 10;

pub(crate) async fn put_batch(
    client: &SessionClient,
    statements: &Statements,
    rows: &[Put],
    deadline: Instant,
) -> Result<()> {
    let writes =
        rows.iter().map(|put| UnconditionalWrite { key: &put.key, value: &put.value, order: None });
    write_all(client, &statements.put, writes.collect(), PLAIN, deadline).await
}

pub(crate) async fn put_ordered(
    client: &SessionClient,
    statements: &Statements,
    rows: &[OrderedPut],
    deadline: Instant,
) -> Result<()> {
    let writes = rows.iter().map(|put| {
        let timestamp = timestamps::of_order(put.order);
        UnconditionalWrite {
            key: &put.key,
            value: &put.value,
            order: Some((timestamp, ttl::seconds(put.ttl))),
        }
    });
    write_all(client, &statements.put_ordered, writes.collect(), ORDERED, deadline).await
}

/// The estimated bytes of a row beside its keys and its value.
const ROW_BYTES: usize = 64;

/// A plain or an ordered write of one row.
struct UnconditionalWrite<'a> {
    key: &'a Key,
    value: &'a Bytes,
    /// The timestamp and the TTL in seconds of an ordered write. `None` for a plain write.
    order: Option<(i64, i32)>,
}

impl UnconditionalWrite<'_> {
    /// The estimated bytes that the row adds to a request and to a mutation.
    fn bytes(&self) -> usize {
        self.key.pkey.len() + self.key.ccols.len() + self.value.len() + ROW_BYTES
    }
}

impl SerializeRow for UnconditionalWrite<'_> {
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

/// Writes rows of any storage partitions in few concurrent requests.
async fn write_all(
    client: &SessionClient,
    statement: &PreparedStatement,
    writes: Vec<UnconditionalWrite<'_>>,
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
    client: &SessionClient,
    statement: &PreparedStatement,
    writes: &[UnconditionalWrite<'_>],
    deadline: Instant,
) -> Result<()> {
    let result = match writes {
        [write] => client.execute(statement, write, deadline).await,
        _ => client.batch(&batch(writes.iter().map(|_| statement)), writes, deadline).await,
    };
    result.map(drop).map_err(|error| RequestKind::Plain.failed(error))
}

/// An unlogged batch. It is not atomic across storage partitions, but rows of one partition are
/// written together without a log.
pub(crate) fn batch<'a>(statements: impl Iterator<Item = &'a PreparedStatement>) -> Batch {
    let statements = statements.map(|statement| statement.clone().into()).collect();
    Batch::new_with_statements(BatchType::Unlogged, statements)
}

/// Divides the writes into requests.
fn requests<'a>(
    writes: Vec<UnconditionalWrite<'a>>,
    limits: BatchLimits,
) -> Vec<Vec<UnconditionalWrite<'a>>> {
    let mut requests = Vec::new();
    let mut packed = Vec::new();
    let (mut partitions, mut bytes) = (0, 0);
    for part in partitions_of(writes).into_iter().flat_map(|writes| parts(writes, limits)) {
        let part_bytes = part.iter().map(UnconditionalWrite::bytes).sum::<usize>();
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

/// Groups the writes by storage partition. The writes of each partition keep their order.
fn partitions_of<'a>(writes: Vec<UnconditionalWrite<'a>>) -> Vec<Vec<UnconditionalWrite<'a>>> {
    if writes.iter().all(|write| write.key.pkey == writes[0].key.pkey) {
        return vec![writes];
    }
    let mut places: HashMap<&[u8], usize> = HashMap::new();
    let mut partitions: Vec<Vec<UnconditionalWrite<'a>>> = Vec::new();
    for write in writes {
        let place = *places.entry(&write.key.pkey).or_insert(partitions.len());
        match partitions.get_mut(place) {
            Some(partition) => partition.push(write),
            None => partitions.push(vec![write]),
        }
    }
    partitions
}

/// Divides the writes of a storage partition into few parts that keep the limits.
fn parts<'a>(
    writes: Vec<UnconditionalWrite<'a>>,
    limits: BatchLimits,
) -> Vec<Vec<UnconditionalWrite<'a>>> {
    let mut parts = Vec::new();
    let mut part: Vec<UnconditionalWrite<'a>> = Vec::with_capacity(writes.len().min(limits.rows));
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

    /// The storage partitions and the number of rows of each request. Each row is given by its
    /// partition and by the length of its value.
    fn requests_for(rows: &[(u64, usize)], limits: BatchLimits) -> Vec<(Vec<u64>, usize)> {
        let key = |(i, (partition, _)): (usize, &(u64, usize))| {
            Key::new(partition.to_be_bytes().to_vec(), i.to_string())
        };
        let keys: Vec<Key> = rows.iter().enumerate().map(key).collect();
        let values: Vec<Bytes> =
            rows.iter().map(|(_, bytes)| Bytes::from(vec![0; *bytes])).collect();
        let write = |(key, value)| UnconditionalWrite { key, value, order: None };
        let writes = keys.iter().zip(&values).map(write).collect();
        let summary = |request: Vec<UnconditionalWrite<'_>>| {
            let partition = |write: &UnconditionalWrite<'_>| {
                u64::from_be_bytes(write.key.pkey[..].try_into().unwrap())
            };
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
        // The smallest part comes last, because it could have been packed with rows of other
        // partitions.
        assert_eq!(sizes, [4, 4, 1]);
        let small = BatchLimits { rows: 100, bytes: 10_000 };
        assert_eq!(
            requests_for(&[(1, 4_500), (1, 4_500), (1, 9_999), (1, 50_000)], small).len(),
            3
        );
    }

    #[test]
    fn rows_of_a_partition_share_a_request_even_if_other_rows_lie_between() {
        let rows = [(1, 3_000), (2, 3_000), (1, 3_000), (2, 3_000), (3, 10)];
        assert_eq!(requests_for(&rows, LIMITS), [(vec![1], 2), (vec![2], 2), (vec![3], 1)]);
    }

    #[test]
    fn small_writes_of_several_partitions_are_packed_into_one_request() {
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
