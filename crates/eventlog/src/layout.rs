//! The keys of an application's keyspace, big endian: what a partition of the storage holds, whose it is, and where in it.
//!
//! 4,096 neighbours share a partition of the storage, so that a group of them is written, and read, together.

use istorage::Key;

use crate::{Offset, RecordId, WsId};

/// What a partition of an application's keyspace holds. Numbers are never reused; a new kind of row takes a new one.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[repr(u16)]
enum Prefix {
    Records = 19,
    Plog = 20,
    Wlog = 21,
    Answers = 22,
    SequencesView = 23,
}

/// How many bits of a number tell neighbours in a partition of the storage apart.
const NEIGHBOURS: u32 = 12;

/// How many neighbours share a partition of the storage.
pub const NEIGHBOURS_PER_PARTITION: u64 = 1 << NEIGHBOURS;

fn key(prefix: Prefix, whose: &[u8], number: u64) -> Key {
    let prefix = (prefix as u16).to_be_bytes();
    let pkey = [&prefix[..], whose, &(number >> NEIGHBOURS).to_be_bytes()].concat();
    let ccols = (number % NEIGHBOURS_PER_PARTITION) as u16;
    Key::new(pkey, ccols.to_be_bytes().to_vec())
}

/// An event in the log of a partition.
pub fn plog(partition: u16, offset: Offset) -> Key {
    key(Prefix::Plog, &partition.to_be_bytes(), offset.0)
}

/// An event in the log of a workspace.
pub fn wlog(ws: WsId, offset: Offset) -> Key {
    key(Prefix::Wlog, &ws.0.to_be_bytes(), offset.0)
}

/// A record of a workspace.
pub fn record(ws: WsId, id: RecordId) -> Key {
    key(Prefix::Records, &ws.0.to_be_bytes(), id.0)
}

/// What a command of a workspace was answered, by a hash of its own.
pub fn answer(ws: WsId, hash: &[u8; 32]) -> Key {
    let prefix = (Prefix::Answers as u16).to_be_bytes();
    Key::new([&prefix[..], &ws.0.to_be_bytes(), hash].concat(), Vec::new())
}

/// The partition of the storage with the numbers of a workspace, or of none, as a partition's sequencer sees them: rows of `sys.SequencesView`.
pub fn sequences_view(partition: u16, ws: WsId) -> bytes::Bytes {
    let prefix = (Prefix::SequencesView as u16).to_be_bytes();
    [&prefix[..], &partition.to_be_bytes(), &ws.0.to_be_bytes()].concat().into()
}

#[cfg(test)]
mod tests {
    use super::*;

    fn bytes(key: Key) -> (Vec<u8>, Vec<u8>) {
        (key.pkey.to_vec(), key.ccols.to_vec())
    }

    #[test]
    fn every_byte_of_every_key_is_pinned() {
        let (ws, number) = (WsId(0x0102_0304_0506_0708), 0x0011_2233_4455_6abc);
        let high = [0, 0, 1, 0x12, 0x23, 0x34, 0x45, 0x56];
        let low = vec![0x0a, 0xbc];
        let plog = bytes(plog(0x0910, Offset(number)));
        assert_eq!(plog, ([&[0, 20, 0x09, 0x10][..], &high].concat(), low.clone()));
        let wlog = bytes(wlog(ws, Offset(number)));
        assert_eq!(wlog, ([&[0, 21, 1, 2, 3, 4, 5, 6, 7, 8][..], &high].concat(), low.clone()));
        let record = bytes(record(ws, RecordId(number)));
        assert_eq!(record, ([&[0, 19, 1, 2, 3, 4, 5, 6, 7, 8][..], &high].concat(), low));
        let view = sequences_view(0x0910, ws);
        assert_eq!(view[..], [0, 23, 0x09, 0x10, 1, 2, 3, 4, 5, 6, 7, 8]);
        let answer = bytes(answer(ws, &[9; 32]));
        assert_eq!(answer, ([&[0, 22, 1, 2, 3, 4, 5, 6, 7, 8][..], &[9; 32]].concat(), Vec::new()));
    }

    #[test]
    fn neighbours_share_a_partition_in_order() {
        let (first, last) = (plog(1, Offset(4_096)), plog(1, Offset(8_191)));
        assert_eq!(first.pkey, last.pkey);
        assert!(first.ccols < last.ccols);
        assert_ne!(plog(1, Offset(4_095)).pkey, first.pkey);
        assert_ne!(plog(1, Offset(8_192)).pkey, first.pkey);
        assert_eq!(bytes(plog(1, Offset(u64::MAX))).1, [0x0f, 0xff]);
    }
}
