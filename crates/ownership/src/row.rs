//! The ownership row of a partition, to the byte.

use std::{
    fmt,
    net::{IpAddr, Ipv6Addr, SocketAddr},
    str::FromStr,
};

use bytes::Bytes;
use ielections::{Epoch, Incarnation};
use serde::{Deserialize, Serialize};

/// A partition of an application.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct PartitionId {
    /// The number of the application in the registry.
    pub app: u32,
    /// The number of the partition.
    pub partition: u16,
}

impl fmt::Display for PartitionId {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}/{}", self.app, self.partition)
    }
}

/// A text that is not a [`PartitionId`].
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
#[error("not a partition: expected an application and a partition, as in 3/12")]
pub struct NotAPartition;

impl FromStr for PartitionId {
    type Err = NotAPartition;

    /// Reads what `Display` writes.
    fn from_str(text: &str) -> Result<PartitionId, NotAPartition> {
        let (app, partition) = text.split_once('/').ok_or(NotAPartition)?;
        let app = app.parse().map_err(|_| NotAPartition)?;
        let partition = partition.parse().map_err(|_| NotAPartition)?;
        Ok(PartitionId { app, partition })
    }
}

/// The fencing token of an ownership. It rises with every change of the owner of a partition, and
/// with every restart of the partition.
#[derive(
    Clone, Copy, Debug, Default, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize,
)]
pub struct OwnerEpoch(pub u32);

impl From<OwnerEpoch> for Epoch {
    fn from(epoch: OwnerEpoch) -> Epoch {
        Epoch(epoch.0.into())
    }
}

impl OwnerEpoch {
    /// The highest epoch: the orders of rows have 22 bits for it.
    pub const MAX: OwnerEpoch = OwnerEpoch((1 << 22) - 1);

    /// Returns the next epoch; `None` after the highest one.
    pub fn next(self) -> Option<OwnerEpoch> {
        (self < OwnerEpoch::MAX).then_some(OwnerEpoch(self.0 + 1))
    }
}

impl fmt::Display for OwnerEpoch {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        self.0.fmt(f)
    }
}

/// A node under one leadership.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub struct Owner {
    /// The incarnation of the node's lease. It is new for each leadership, so an owner whose lease
    /// is gone never comes back.
    pub incarnation: Incarnation,
    /// The address for clients of other nodes.
    pub advertised: SocketAddr,
    /// The address for other nodes, if the node has a cluster port.
    pub cluster: Option<SocketAddr>,
}

/// The owner of a partition, as the storage has it. A partition without a row has the
/// [default](OwnerRow::default): no owner, epoch 0.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct OwnerRow {
    /// The epoch of the last change.
    pub epoch: OwnerEpoch,
    /// The owner; `None` if nobody owns the partition.
    pub owner: Option<Owner>,
}

/// The version of the bytes that this program writes.
const VERSION: u8 = 1;
const ADDRESS_BYTES: usize = 18;

impl OwnerRow {
    /// Returns the row as it is stored: version, epoch, incarnation, advertised address and cluster
    /// address, big endian. An address has the 16 bytes of an IPv6 address and 2 of the port. All
    /// bytes of an absent owner or address are 0.
    ///
    /// The scope and the flow of an IPv6 address are not stored.
    pub fn to_bytes(&self) -> Bytes {
        let mut bytes = Vec::with_capacity(21 + 2 * ADDRESS_BYTES);
        bytes.push(VERSION);
        bytes.extend_from_slice(&self.epoch.0.to_be_bytes());
        let incarnation = self.owner.map_or(0, |owner| owner.incarnation.0);
        bytes.extend_from_slice(&incarnation.to_be_bytes());
        bytes.extend_from_slice(&address_bytes(self.owner.map(|owner| owner.advertised)));
        bytes.extend_from_slice(&address_bytes(self.owner.and_then(|owner| owner.cluster)));
        bytes.into()
    }

    /// Reads a row; `None` if the bytes are not a row that this program writes.
    pub fn from_bytes(bytes: &[u8]) -> Option<OwnerRow> {
        let (&[VERSION], rest) = bytes.split_first_chunk::<1>()? else { return None };
        let (epoch, rest) = rest.split_first_chunk::<4>()?;
        let (incarnation, rest) = rest.split_first_chunk::<16>()?;
        let (advertised, cluster) = rest.split_first_chunk::<ADDRESS_BYTES>()?;
        let incarnation = Incarnation(u128::from_be_bytes(*incarnation));
        let cluster = address(cluster.try_into().ok()?);
        let owner =
            address(*advertised).map(|advertised| Owner { incarnation, advertised, cluster });
        let row = OwnerRow { epoch: OwnerEpoch(u32::from_be_bytes(*epoch)), owner };
        // Each row has exactly one spelling.
        let is_ours = row.to_bytes() == bytes && row.epoch <= OwnerEpoch::MAX;
        is_ours.then_some(row)
    }
}

fn address_bytes(address: Option<SocketAddr>) -> [u8; ADDRESS_BYTES] {
    let mut bytes = [0; ADDRESS_BYTES];
    if let Some(address) = address {
        let ip = match address.ip() {
            IpAddr::V4(ip) => ip.to_ipv6_mapped(),
            IpAddr::V6(ip) => ip,
        };
        bytes[..16].copy_from_slice(&ip.octets());
        bytes[16..].copy_from_slice(&address.port().to_be_bytes());
    }
    bytes
}

fn address(bytes: [u8; ADDRESS_BYTES]) -> Option<SocketAddr> {
    let (ip, port) = bytes.split_first_chunk::<16>()?;
    let address = SocketAddr::new(
        Ipv6Addr::from(*ip).to_canonical(),
        u16::from_be_bytes(port.try_into().ok()?),
    );
    (bytes != [0; ADDRESS_BYTES]).then_some(address)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn row(cluster: Option<&str>) -> OwnerRow {
        let owner = Owner {
            incarnation: Incarnation(0x0304),
            advertised: "10.0.0.5:8822".parse().unwrap(),
            cluster: cluster.map(|address| address.parse().unwrap()),
        };
        OwnerRow { epoch: OwnerEpoch(0x0102), owner: Some(owner) }
    }

    #[test]
    fn every_byte_of_a_row_is_pinned() {
        let mut bytes = [0; 57];
        (bytes[0], bytes[3], bytes[4]) = (1, 1, 2);
        (bytes[19], bytes[20]) = (3, 4);
        bytes[31..39].copy_from_slice(&[0xff, 0xff, 10, 0, 0, 5, 0x22, 0x76]);
        assert_eq!(row(None).to_bytes(), &bytes[..]);
        assert_eq!(OwnerRow::from_bytes(&bytes), Some(row(None)));
        let with_cluster = row(Some("[2001:db8::7]:9000"));
        bytes[39..].copy_from_slice(&[
            0x20, 0x01, 0x0d, 0xb8, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 7, 0x23, 0x28,
        ]);
        assert_eq!(with_cluster.to_bytes(), &bytes[..]);
        assert_eq!(OwnerRow::from_bytes(&bytes), Some(with_cluster));
        let nobody = OwnerRow { epoch: OwnerEpoch(7), owner: None };
        assert_eq!(OwnerRow::from_bytes(&nobody.to_bytes()), Some(nobody));
    }

    #[test]
    fn bytes_that_are_not_a_row_are_refused() {
        let good = row(Some("10.0.0.6:1")).to_bytes();
        for length in [0, 1, 56] {
            assert_eq!(OwnerRow::from_bytes(&good[..length]), None, "{length}");
        }
        assert_eq!(OwnerRow::from_bytes(&[&good[..], &[0]].concat()), None);
        let with = |at: usize, byte: u8| {
            let mut bytes = good.to_vec();
            bytes[at] = byte;
            OwnerRow::from_bytes(&bytes)
        };
        assert_eq!(with(0, 2), None, "another version");
        assert_eq!(with(2, 0x40), None, "an epoch above the highest");
        let mut nobody = OwnerRow::default().to_bytes().to_vec();
        nobody[20] = 1;
        assert_eq!(OwnerRow::from_bytes(&nobody), None, "an incarnation without an address");
    }

    #[test]
    fn epochs_end_at_22_bits() {
        assert_eq!(OwnerEpoch(0).next(), Some(OwnerEpoch(1)));
        assert_eq!(OwnerEpoch::MAX.next(), None);
    }
}
