//! The keys of an application's keyspace.
//!
//! A partition key begins with the kind of its rows. Then follows the owner, a partition or a
//! workspace. Events and records have the upper bits of their number in the partition key, and the
//! lower bits in the clustering columns. All numbers are big endian.
//!
//! 4,096 neighbours share a storage partition, so a group of neighbours is written and read
//! together.

use bytes::{BufMut, Bytes, BytesMut};
use istorage::Key;

use crate::{Offset, RecordId, WsId};

/// The kind of the rows of a storage partition. Numbers are never reused; a new kind of row gets a
/// new number.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[repr(u16)]
pub(crate) enum Prefix {
    Records = 19,
    Plog = 20,
    Wlog = 21,
    Answers = 22,
    SequencesView = 23,
    Deployment = 24,
}

/// The number of bits that distinguish neighbours in a storage partition.
const NEIGHBOUR_BITS: u32 = 12;

/// The largest size of the key of a neighbour, in bytes.
pub(crate) const NEIGHBOUR_KEY: usize = 20;

/// The number of neighbours that share a storage partition.
pub const NEIGHBOURS: u64 = 1 << NEIGHBOUR_BITS;

/// Returns the key of a neighbour. `owner` is the partition or the workspace, in at most eight
/// bytes.
fn key(buffer: &mut BytesMut, prefix: Prefix, owner: &[u8], number: u64) -> Key {
    buffer.put_u16(prefix as u16);
    buffer.put_slice(owner);
    buffer.put_u64(number >> NEIGHBOUR_BITS);
    let pkey = buffer.split().freeze();
    buffer.put_u16((number % NEIGHBOURS) as u16);
    Key { pkey, ccols: buffer.split().freeze() }
}

/// Returns the key of an event in the log of a partition.
pub(crate) fn plog(buffer: &mut BytesMut, partition: u16, offset: Offset) -> Key {
    key(buffer, Prefix::Plog, &partition.to_be_bytes(), offset.0)
}

/// Returns the key of an event in the log of a workspace.
pub(crate) fn wlog(buffer: &mut BytesMut, ws: WsId, offset: Offset) -> Key {
    key(buffer, Prefix::Wlog, &ws.0.to_be_bytes(), offset.0)
}

/// Returns the key of a record of a workspace.
pub(crate) fn record(buffer: &mut BytesMut, ws: WsId, id: RecordId) -> Key {
    key(buffer, Prefix::Records, &ws.0.to_be_bytes(), id.0)
}

/// Returns the first bytes of the partition keys of all records.
pub(crate) fn records() -> Bytes {
    Bytes::copy_from_slice(&(Prefix::Records as u16).to_be_bytes())
}

/// Returns the key of the stored answer to a command of a workspace. The hash of the command's
/// idempotency key is a part of the key.
pub(crate) fn answer(buffer: &mut BytesMut, ws: WsId, hash: &[u8; 32]) -> Key {
    buffer.put_u16(Prefix::Answers as u16);
    buffer.put_u64(ws.0);
    buffer.put_slice(hash);
    Key { pkey: buffer.split().freeze(), ccols: Default::default() }
}

/// Returns the key of the deployment of the application.
pub(crate) fn deployment() -> Key {
    Key::new((Prefix::Deployment as u16).to_be_bytes().to_vec(), Vec::new())
}

/// Returns the partition key of the rows of `sys.SequencesView`: the numbers of a workspace, or of
/// no workspace, for the sequencer of a partition.
pub fn sequences_view(partition: u16, ws: WsId) -> Bytes {
    let prefix = (Prefix::SequencesView as u16).to_be_bytes();
    [&prefix[..], &partition.to_be_bytes(), &ws.0.to_be_bytes()].concat().into()
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::AppRow;

    fn bytes(row: AppRow) -> (Vec<u8>, Vec<u8>) {
        let Key { pkey, ccols } = row.key();
        (pkey.to_vec(), ccols.to_vec())
    }

    #[test]
    fn every_byte_of_every_key_is_pinned() {
        let (ws, number) = (WsId(0x0102_0304_0506_0708), 0x0011_2233_4455_6abc);
        let high = [0, 0, 1, 0x12, 0x23, 0x34, 0x45, 0x56];
        let low = vec![0x0a, 0xbc];
        let plog = bytes(AppRow::Plog(0x0910, Offset(number)));
        assert_eq!(plog, ([&[0, 20, 0x09, 0x10][..], &high].concat(), low.clone()));
        let wlog = bytes(AppRow::Wlog(ws, Offset(number)));
        assert_eq!(wlog, ([&[0, 21, 1, 2, 3, 4, 5, 6, 7, 8][..], &high].concat(), low.clone()));
        let record = bytes(AppRow::Record(ws, RecordId(number)));
        assert_eq!(record, ([&[0, 19, 1, 2, 3, 4, 5, 6, 7, 8][..], &high].concat(), low));
        let Key { pkey, ccols } = deployment();
        assert_eq!((&pkey[..], &ccols[..]), (&[0, 24][..], &[][..]));
        let view = sequences_view(0x0910, ws);
        assert_eq!(view[..], [0, 23, 0x09, 0x10, 1, 2, 3, 4, 5, 6, 7, 8]);
        let answer = bytes(AppRow::Answer(ws, [9; 32]));
        assert_eq!(answer, ([&[0, 22, 1, 2, 3, 4, 5, 6, 7, 8][..], &[9; 32]].concat(), Vec::new()));
    }

    #[test]
    fn a_key_tells_its_row() {
        let (ws, number) = (WsId(u64::MAX), 0x0fff_2233_4455_6abc);
        for row in [
            AppRow::Plog(7, Offset(number)),
            AppRow::Wlog(ws, Offset(1)),
            AppRow::Record(ws, RecordId(u64::MAX)),
            AppRow::Answer(ws, [9; 32]),
        ] {
            let key = row.key();
            assert_eq!(AppRow::of_key(&key), Some(row));
            let longer = Key::new(key.pkey.clone(), [&key.ccols[..], &[0]].concat());
            assert_eq!(AppRow::of_key(&longer), None);
            let shorter = Key::new(key.pkey.slice(..key.pkey.len() - 1), key.ccols);
            assert_eq!(AppRow::of_key(&shorter), None);
        }
        assert_eq!(AppRow::of_key(&deployment()), None);
        assert_eq!(AppRow::of_key(&Key::new(sequences_view(1, ws), "sys.RecIDSeq")), None);
        // The lower bits of an offset are fewer than the clustering columns could have.
        assert_eq!(
            AppRow::of_key(&Key::new(AppRow::Plog(7, Offset(1)).key().pkey, vec![0xff; 2])),
            None
        );
    }

    #[test]
    fn neighbours_share_a_storage_partition_in_order() {
        let plog = |offset| AppRow::Plog(1, Offset(offset)).key();
        let (first, last) = (plog(4_096), plog(8_191));
        assert_eq!(first.pkey, last.pkey);
        assert!(first.ccols < last.ccols);
        assert_ne!(plog(4_095).pkey, first.pkey);
        assert_ne!(plog(8_192).pkey, first.pkey);
        assert_eq!(bytes(AppRow::Plog(1, Offset(u64::MAX))).1, [0x0f, 0xff]);
    }
}
