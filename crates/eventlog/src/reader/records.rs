//! Reading several records: blocks of neighbours, and records by their ids.

use futures::{StreamExt, TryStreamExt, stream::BoxStream};
use istorage::{Consistency, Key, Range, SharedStorage};

use super::{Reader, neighbour_position};
use crate::{
    AppRow, Error, RecordId, Result, StoredRecord, WsId,
    layout::{self, NEIGHBOURS},
};

/// Some ids of records that follow each other in one storage partition. One read of the storage
/// gets the records of a block.
///
/// A caller reads block after block. So it can stop between two blocks: any number of blocks
/// without records may lie between two records. A storage reads in the order of ids only: a caller
/// that needs the opposite order turns each block around.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct RecordBlock {
    first: RecordId,
    last: RecordId,
}

impl RecordBlock {
    /// Makes the block that begins with `first`, and ends with its storage partition.
    pub fn beginning_with(first: RecordId) -> RecordBlock {
        RecordBlock { first, last: RecordId(first.0 - first.0 % NEIGHBOURS + (NEIGHBOURS - 1)) }
    }

    /// Makes the block that ends with `last`, with at most `most` ids, and at least one.
    pub fn ending_with(last: RecordId, most: u64) -> RecordBlock {
        let first_neighbour = last.0 - last.0 % NEIGHBOURS;
        let first = last.0.saturating_sub(most.saturating_sub(1));
        RecordBlock { first: RecordId(first.max(first_neighbour)), last }
    }

    /// Returns the first id.
    pub fn first(self) -> RecordId {
        self.first
    }

    /// Returns the last id.
    pub fn last(self) -> RecordId {
        self.last
    }
}

impl Reader {
    /// Returns the records in a block of ids, in the order of ids. The stream is lazy.
    pub fn block(&self, ws: WsId, block: RecordBlock) -> BoxStream<'static, Result<StoredRecord>> {
        let row = AppRow::Record(ws, block.first);
        let key = row.key();
        // The position after the last one. As bytes it sorts after each position of a neighbour.
        let end = (block.last.0 % NEIGHBOURS + 1) as u16;
        let range = Range::between(key.ccols, end.to_be_bytes().to_vec());
        let rows = self.storage.read(key.pkey, range, Consistency::Plain, self.timeout);
        let first = block.first.0 - block.first.0 % NEIGHBOURS;
        let records = rows.map_err(Into::into).and_then(move |read| {
            let stored = neighbour_position(row, &read.ccols).and_then(|position| {
                Ok(AppRow::Record(ws, RecordId(first + position)).record(&read.value)?)
            });
            std::future::ready(stored)
        });
        records.boxed()
    }

    /// Returns the records of all workspaces, in any order. For operators: a storage without an
    /// order of its partitions reads the keys of the whole keyspace.
    pub fn all_records(&self) -> BoxStream<'static, Result<StoredRecord>> {
        let (storage, timeout) = (SharedStorage::clone(&self.storage), self.timeout);
        let partitions = self.storage.partitions(layout::records(), timeout);
        let records = partitions.map_ok(move |pkey| {
            let rows = storage.read(pkey.clone(), Range::all(), Consistency::Plain, timeout);
            let records = rows.map_err(Error::from).and_then(move |read| {
                let row = AppRow::of_key(&Key { pkey: pkey.clone(), ccols: read.ccols });
                let record = row.map(|row| row.record(&read.value)).transpose();
                std::future::ready(record.map_err(Error::from))
            });
            records.try_filter_map(|record| std::future::ready(Ok(record)))
        });
        records.map_err(Error::from).try_flatten().boxed()
    }

    /// Returns records by their ids, in the order of the ids, by one call. A record that does not
    /// exist is `None`.
    ///
    /// # Errors
    /// Fails with the errors of [`Reader::record`].
    pub async fn records_by_ids(
        &self,
        ws: WsId,
        ids: &[RecordId],
    ) -> Result<Vec<Option<StoredRecord>>> {
        let rows: Vec<AppRow> = ids.iter().map(|id| AppRow::Record(ws, *id)).collect();
        let found = self.rows(&rows).await?;
        let read = rows.into_iter().zip(found);
        read.map(|(row, bytes)| Ok(bytes.map(|bytes| row.record(&bytes)).transpose()?)).collect()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_block_ends_with_its_last_id_and_stays_in_one_storage_partition() {
        let block = |last, most| {
            let block = RecordBlock::ending_with(RecordId(last), most);
            assert_eq!(block.last().0, last);
            (block.first().0, block.last().0 - block.first().0 + 1)
        };
        assert_eq!(block(8_191, 16), (8_176, 16));
        assert_eq!(block(8_193, 16), (8_192, 2));
        assert_eq!(block(8_192, 16), (8_192, 1));
        assert_eq!(block(8_191, 100_000), (4_096, 4_096));
        assert_eq!(block(8_191, 0), (8_191, 1));
        assert_eq!(block(0, 16), (0, 1));
        assert_eq!(block(u64::MAX, u64::MAX), (u64::MAX - 4_095, 4_096));
    }

    #[test]
    fn a_block_that_begins_with_an_id_ends_with_its_storage_partition() {
        let last = |first| RecordBlock::beginning_with(RecordId(first)).last().0;
        assert_eq!([0, 1, 4_095, 4_096].map(last), [4_095, 4_095, 4_095, 8_191]);
        assert_eq!(last(u64::MAX), u64::MAX);
    }
}
