//! The orders of operators, to the byte.

use std::time::Duration;

use bytes::Bytes;
use clock::WallTime;
use ownership::{OwnerEpoch, PartitionId};
use serde::{Deserialize, Deserializer, Serialize, Serializer, de::Error as _};

/// The identity of an order. Orders sort by the time of their writing.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct OrderId {
    /// The time of the order, by the clock of the node that wrote it, in microseconds.
    pub at: WallTime,
    /// A random number, which tells orders of the same microsecond apart.
    pub random: u64,
}

/// An order that an operator gives to the members of a cluster.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum OperatorOrder {
    /// Move a partition to a member.
    Move {
        /// The partition.
        partition: PartitionId,
        /// The epoch of the partition that the operator saw. Once the epoch has risen, the order is
        /// void.
        epoch: OwnerEpoch,
        /// The id of the member that gets the partition.
        to: u128,
    },
    /// Drain a member: its partitions go to other members, and it gets none.
    Drain {
        /// The id of the member.
        member: u128,
    },
    /// End the drain of a member.
    CancelDrain {
        /// The id of the member.
        member: u128,
    },
}

/// An order as it was read.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum ReadOrder {
    Known(OperatorOrder),
    /// An order of a newer program.
    Unknown,
}

/// The row as it is stored: JSON. Fields that this program does not know are skipped.
#[derive(Serialize, Deserialize)]
#[serde(tag = "kind", rename_all = "snake_case")]
enum StoredOrder {
    Move {
        app: u32,
        partition: u16,
        epoch: u32,
        to: HexId,
    },
    Drain {
        member: HexId,
    },
    CancelDrain {
        member: HexId,
    },
    #[serde(other)]
    Unknown,
}

/// The id of a member as 32 hexadecimal digits.
struct HexId(u128);

impl OrderId {
    /// An id. The nanoseconds of the time do not count, because they are not stored.
    pub(super) fn new(at: WallTime, random: u64) -> OrderId {
        OrderId::read(at.as_micros(), random)
    }

    pub(super) fn read(at_micros: u64, random: u64) -> OrderId {
        OrderId { at: WallTime::from_nanos(at_micros.saturating_mul(1_000)), random }
    }
}

impl OperatorOrder {
    /// The usual lifetime of an order. Members read the orders once a second.
    pub const TTL: Duration = Duration::from_secs(60);

    pub(super) fn to_bytes(self) -> Bytes {
        let stored = match self {
            OperatorOrder::Move { partition: PartitionId { app, partition }, epoch, to } => {
                StoredOrder::Move { app, partition, epoch: epoch.0, to: HexId(to) }
            }
            OperatorOrder::Drain { member } => StoredOrder::Drain { member: HexId(member) },
            OperatorOrder::CancelDrain { member } => {
                StoredOrder::CancelDrain { member: HexId(member) }
            }
        };
        serde_json::to_vec(&stored).expect("an order is JSON").into()
    }

    /// Reads an order; `None` if the bytes are not an order of any program.
    pub(super) fn from_bytes(bytes: &[u8]) -> Option<ReadOrder> {
        let order = match serde_json::from_slice(bytes).ok()? {
            StoredOrder::Move { app, partition, epoch, to } => OperatorOrder::Move {
                partition: PartitionId { app, partition },
                epoch: OwnerEpoch(epoch),
                to: to.0,
            },
            StoredOrder::Drain { member } => OperatorOrder::Drain { member: member.0 },
            StoredOrder::CancelDrain { member } => OperatorOrder::CancelDrain { member: member.0 },
            StoredOrder::Unknown => return Some(ReadOrder::Unknown),
        };
        Some(ReadOrder::Known(order))
    }
}

impl Serialize for HexId {
    fn serialize<S: Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
        serializer.collect_str(&format_args!("{:032x}", self.0))
    }
}

impl<'de> Deserialize<'de> for HexId {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<HexId, D::Error> {
        let text = String::deserialize(deserializer)?;
        let is_hex = text.len() == 32 && text.bytes().all(|byte| byte.is_ascii_hexdigit());
        let id = is_hex.then(|| u128::from_str_radix(&text, 16).ok()).flatten();
        id.map(HexId).ok_or_else(|| D::Error::custom("an id of a member has 32 hexadecimal digits"))
    }
}
