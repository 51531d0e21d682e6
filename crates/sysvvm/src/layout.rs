//! The keys of the system keyspace.
//!
//! Invariant: every partition key begins with a [`KeyPrefix`] of four bytes. All numbers are big
//! endian.

use bytes::Bytes;
use ielections::ElectionRow;
use istorage::Key;
use ownership::PartitionId;

use crate::{AppName, AppNumber};

/// The kind of the rows in a storage partition of the system keyspace.
///
/// A number is never reused. A new kind of row takes a new number.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[repr(u32)]
pub(crate) enum KeyPrefix {
    /// The leases of all seats: one storage partition.
    Leases = 1,
    /// The stored offset of a partition's log: one row.
    PlogOffset = 2,
    /// The numbers of a workspace: a row for each sequence.
    Numbers = 3,
    // 4 is reserved for rows with a TTL that belong to applications.
    /// The registry of applications: one storage partition.
    Applications = 5,
    /// The format of the storage: one row.
    Format = 6,
    /// The epochs: a storage partition for each seat.
    Epochs = 7,
    /// The number of seats: one row.
    Seats = 8,
    /// The owners of all partitions: one storage partition.
    Owners = 9,
    /// The members of a cluster, the pause of balancing and the orders of operators: one storage
    /// partition.
    Members = 10,
    /// The counters and definitions of document numbers. The host gives the rest of the keys.
    DocumentNumbers = 11,
    /// The repairs of operators: a storage partition for each partition of an application.
    Repairs = 12,
}

impl KeyPrefix {
    pub(crate) fn pkey(self) -> [u8; 4] {
        (self as u32).to_be_bytes()
    }
}

/// Returns the kind of the rows with a partition key of the system keyspace, in words for people;
/// `None` if this program knows no such rows.
#[must_use]
pub fn system_row_kind(pkey: &[u8]) -> Option<&'static str> {
    const KINDS: [(KeyPrefix, &str); 11] = [
        (KeyPrefix::Leases, "lease of a seat"),
        (KeyPrefix::PlogOffset, "stored offset of a partition"),
        (KeyPrefix::Numbers, "number of a sequence"),
        (KeyPrefix::Applications, "application"),
        (KeyPrefix::Format, "format of the storage"),
        (KeyPrefix::Epochs, "epoch of a seat"),
        (KeyPrefix::Seats, "number of seats"),
        (KeyPrefix::Owners, "owner of a partition"),
        (KeyPrefix::Members, "member, pause or order"),
        (KeyPrefix::DocumentNumbers, "document number"),
        (KeyPrefix::Repairs, "repair"),
    ];
    let found = KINDS.iter().find(|(prefix, _)| pkey.starts_with(&prefix.pkey()));
    found.map(|(_, kind)| *kind)
}

/// Returns the partition key of all leases. The clustering columns of a lease are its seat.
pub(crate) fn leases() -> Bytes {
    Bytes::copy_from_slice(&KeyPrefix::Leases.pkey())
}

/// Returns the key of a row of an election.
pub(crate) fn election(row: ElectionRow) -> Key {
    match row {
        ElectionRow::Lease(seat) => Key::new(leases(), seat.get().to_be_bytes().to_vec()),
        ElectionRow::Epoch(seat) => {
            Key::new([KeyPrefix::Epochs.pkey(), seat.get().to_be_bytes()].concat(), "")
        }
    }
}

/// Returns the key of the stored offset of a partition's log, which is the offset of the next event
/// to replay.
pub(crate) fn plog_offset(app: AppNumber, partition: u16) -> Key {
    let app = app.get().to_be_bytes();
    let pkey = [&KeyPrefix::PlogOffset.pkey()[..], &app, &partition.to_be_bytes()].concat();
    Key::new(pkey, 0_u32.to_be_bytes().to_vec())
}

/// Returns the partition key of the last numbers of a workspace. The clustering columns of a number
/// are its sequence.
pub(crate) fn numbers(app: AppNumber, ws: u64) -> Bytes {
    let app = app.get().to_be_bytes();
    [&KeyPrefix::Numbers.pkey()[..], &app, &ws.to_be_bytes()].concat().into()
}

/// Returns the clustering columns of a sequence.
pub(crate) fn sequence(seq: u16) -> Bytes {
    Bytes::copy_from_slice(&seq.to_be_bytes())
}

/// Returns the first bytes of the partition keys of an application's document numbers.
pub(crate) fn document_numbers(app: AppNumber) -> Bytes {
    [KeyPrefix::DocumentNumbers.pkey(), app.get().to_be_bytes()].concat().into()
}

/// Returns the key of a repair of a partition. Later repairs sort before earlier ones.
pub(crate) fn repair(app: AppNumber, partition: u16, at_micros: u64) -> Key {
    Key::new(repairs(app, partition), (!at_micros).to_be_bytes().to_vec())
}

/// Returns the partition key of the repairs of a partition.
pub(crate) fn repairs(app: AppNumber, partition: u16) -> Bytes {
    let app = app.get().to_be_bytes();
    [&KeyPrefix::Repairs.pkey()[..], &app, &partition.to_be_bytes()].concat().into()
}

/// Returns the key of the row of the format: a mark of this program, and the version of the format.
pub(crate) fn format() -> Key {
    Key::new(KeyPrefix::Format.pkey().to_vec(), "")
}

/// Returns the key of the row of the number of seats.
pub(crate) fn seats() -> Key {
    Key::new(KeyPrefix::Seats.pkey().to_vec(), "")
}

/// Returns the partition key of all ownership rows.
pub(crate) fn owners() -> Bytes {
    Bytes::copy_from_slice(&KeyPrefix::Owners.pkey())
}

/// Returns the clustering columns of the ownership row of a partition.
pub(crate) fn owner(partition: PartitionId) -> Bytes {
    let number = partition.partition.to_be_bytes();
    [&partition.app.to_be_bytes()[..], &number].concat().into()
}

/// Returns the partition key of the members, of the pause of balancing and of orders.
pub(crate) fn members() -> Bytes {
    Bytes::copy_from_slice(&KeyPrefix::Members.pkey())
}

/// The place of a row in the storage partition of the members.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum MemberKey {
    /// A member, by its id.
    Member(u128),
    /// The pause of balancing.
    Pause,
    /// An order of an operator.
    Order { at_micros: u64, random: u64 },
    /// A kind of row that only a newer program knows.
    Unknown,
}

/// The first byte of the clustering columns of each kind of row among the members.
const MEMBER: u8 = 1;
const PAUSE: u8 = 2;
const ORDER: u8 = 3;

/// Returns the clustering columns of a member.
pub(crate) fn member(id: u128) -> Bytes {
    [&[MEMBER][..], &id.to_be_bytes()].concat().into()
}

/// Returns the clustering columns of the pause of balancing.
pub(crate) fn pause() -> Bytes {
    Bytes::from_static(&[PAUSE])
}

/// Returns the clustering columns of an order. Orders sort by their time.
pub(crate) fn order(at_micros: u64, random: u64) -> Bytes {
    [&[ORDER][..], &at_micros.to_be_bytes(), &random.to_be_bytes()].concat().into()
}

impl MemberKey {
    /// Reads clustering columns; `None` if no program writes them.
    pub(crate) fn read(ccols: &[u8]) -> Option<MemberKey> {
        let (kind, rest) = ccols.split_first()?;
        match *kind {
            0 => None,
            MEMBER => Some(MemberKey::Member(u128::from_be_bytes(rest.try_into().ok()?))),
            PAUSE => rest.is_empty().then_some(MemberKey::Pause),
            ORDER => {
                let (at, random) = rest.split_first_chunk::<8>()?;
                let random = u64::from_be_bytes(random.try_into().ok()?);
                Some(MemberKey::Order { at_micros: u64::from_be_bytes(*at), random })
            }
            _ => Some(MemberKey::Unknown),
        }
    }
}

/// Returns the key of the row with the number of the application registered last. The row sorts
/// before all applications.
pub(crate) fn last_app_number() -> Key {
    Key::new(KeyPrefix::Applications.pkey().to_vec(), vec![0])
}

/// Returns the key of an application. Its clustering columns are the byte 1 and the name.
pub(crate) fn app(name: &AppName) -> Key {
    let mut ccols = vec![FIRST_APP];
    ccols.extend_from_slice(name.to_string().as_bytes());
    Key::new(KeyPrefix::Applications.pkey().to_vec(), ccols)
}

/// The first byte of the clustering columns of applications.
pub(crate) const FIRST_APP: u8 = 1;

#[cfg(test)]
mod tests {
    use super::*;

    /// `KeyPrefix_VVMLeader`, `KeyPrefixSeqStoragePart.test`, `KeyPrefixSeqStorageWS.test` and
    /// `PLogOffsetCC.test`.
    #[test]
    fn every_byte_of_every_key_is_pinned() {
        let bytes = |key: Key| (key.pkey.to_vec(), key.ccols.to_vec());
        let seat = ielections::Seat::new(0x0102).unwrap();
        let lease = bytes(election(ElectionRow::Lease(seat)));
        assert_eq!(lease, (vec![0, 0, 0, 1], vec![0, 0, 1, 2]));
        assert_eq!(leases(), lease.0);
        let epoch = bytes(election(ElectionRow::Epoch(seat)));
        assert_eq!(epoch, (vec![0, 0, 0, 7, 0, 0, 1, 2], vec![]));
        assert_eq!(bytes(format()), (vec![0, 0, 0, 6], vec![]));
        assert_eq!(bytes(seats()), (vec![0, 0, 0, 8], vec![]));
        assert_eq!(owners()[..], [0, 0, 0, 9]);
        let owner = owner(PartitionId { app: 0x0102, partition: 0x0304 });
        assert_eq!(owner[..], [0, 0, 1, 2, 3, 4]);
        assert_eq!(members()[..], [0, 0, 0, 10]);
        let member = member(0x0102);
        assert_eq!(member[..], [1, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 1, 2]);
        assert_eq!(pause()[..], [2]);
        let order = order(0x0102, 0x0304);
        assert_eq!(order[..], [3, 0, 0, 0, 0, 0, 0, 1, 2, 0, 0, 0, 0, 0, 0, 3, 4]);
        assert_eq!(bytes(last_app_number()), (vec![0, 0, 0, 5], vec![0]));
        let seq_storage_part = bytes(plog_offset(AppNumber(0x0102), 0x0304));
        assert_eq!(seq_storage_part, (vec![0, 0, 0, 2, 0, 0, 1, 2, 3, 4], vec![0, 0, 0, 0]));
        let seq_storage_ws = numbers(AppNumber(0x0102), 0x0304);
        assert_eq!(seq_storage_ws[..], [0, 0, 0, 3, 0, 0, 1, 2, 0, 0, 0, 0, 0, 0, 3, 4]);
        assert_eq!(sequence(0x0506)[..], [5, 6]);
        let document_numbers = document_numbers(AppNumber(0x0102));
        assert_eq!(document_numbers[..], [0, 0, 0, 11, 0, 0, 1, 2]);
        let repair = bytes(repair(AppNumber(0x0102), 0x0304, 1));
        let at = vec![255, 255, 255, 255, 255, 255, 255, 254];
        assert_eq!(repair, (vec![0, 0, 0, 12, 0, 0, 1, 2, 3, 4], at));
        let name = AppName::new("ab", "c").unwrap();
        assert_eq!(bytes(app(&name)), (vec![0, 0, 0, 5], vec![1, b'a', b'b', b'/', b'c']));
    }

    #[test]
    fn the_key_of_a_row_among_the_members_tells_its_kind() {
        let read = MemberKey::read;
        assert_eq!(read(&member(u128::MAX - 1)), Some(MemberKey::Member(u128::MAX - 1)));
        assert_eq!(read(&pause()), Some(MemberKey::Pause));
        let place = MemberKey::Order { at_micros: 0x0102, random: u64::MAX };
        assert_eq!(read(&order(0x0102, u64::MAX)), Some(place));
        assert_eq!(read(&[4]), Some(MemberKey::Unknown));
        assert_eq!(read(&[255, 1]), Some(MemberKey::Unknown));
        let odd = [&[][..], &[0], &[1], &[1; 16], &[1; 18], &[2, 0], &[3; 16], &[3; 18]];
        assert_eq!(odd.map(read), [None; 8]);
    }
}
