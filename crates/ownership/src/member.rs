//! The member row of a node: what the node says of itself, to the byte.
//!
//! Member rows serve balancing and display. Safety never rests on them: a row may be late, absent
//! or wrong, and then a partition moves later, or to a worse node.
//!
//! The bytes are JSON. A program ignores the fields that it does not know, and takes a default for
//! those that are absent. So nodes of different versions read each other.

mod json;

use std::{
    collections::{BTreeMap, BTreeSet},
    fmt,
    net::SocketAddr,
    str::FromStr,
};

use bytes::Bytes;
use ielections::Incarnation;
use serde::{Deserialize, Serialize};

use crate::{OwnerEpoch, PartitionId};

/// The most bytes of a member row.
const MAX_BYTES: usize = 32 * 1024;

/// The random id of a process of a node: the key of its member row.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct MemberId(pub u128);

impl fmt::Display for MemberId {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{:032x}", self.0)
    }
}

impl fmt::Debug for MemberId {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        fmt::Display::fmt(self, f)
    }
}

/// A text that is not a [`MemberId`].
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
#[error("not the id of a member: expected 32 hexadecimal digits")]
pub struct NotAMemberId;

impl FromStr for MemberId {
    type Err = NotAMemberId;

    /// Reads what `Display` writes.
    fn from_str(text: &str) -> Result<MemberId, NotAMemberId> {
        json::hex_digits(text).map(MemberId).ok_or(NotAMemberId)
    }
}

/// The state of a node.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum MemberState {
    /// The node can own partitions.
    Ready,
    /// The node gives its partitions away, and takes none.
    Draining,
    /// The node cannot own partitions yet. A state that this program does not know reads as this
    /// one.
    #[default]
    #[serde(other)]
    Starting,
}

/// What a node says of itself. It serves balancing and display, never safety.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Member {
    /// The id of the process.
    #[serde(with = "json::member_id")]
    pub id: MemberId,
    /// The incarnation of the node's lease; `None` without a seat.
    #[serde(default, with = "json::incarnation")]
    pub incarnation: Option<Incarnation>,
    /// The node's seat.
    #[serde(default)]
    pub seat: Option<u32>,
    /// The address for clients of other nodes.
    pub advertised: SocketAddr,
    /// The address for other nodes, if the node has a cluster port.
    #[serde(default)]
    pub cluster: Option<SocketAddr>,
    /// The version of the program.
    #[serde(default)]
    pub version: String,
    /// The state of the node.
    #[serde(default)]
    pub state: MemberState,
    /// The numbers of the applications that the node can run.
    #[serde(default)]
    pub apps: BTreeSet<u32>,
    /// How often the node was started in the last 10 minutes, this start included.
    #[serde(default)]
    pub recent_starts: u32,
    /// Whether a partition of the node has been recovering for less than a minute.
    #[serde(default)]
    pub is_recovering: bool,
    /// The partitions that the node asks their owners for, with the epoch of each owner.
    #[serde(default)]
    pub wants: BTreeMap<PartitionId, OwnerEpoch>,
    /// The partitions that the node could not start in the last 10 minutes.
    #[serde(default)]
    pub refused: BTreeSet<PartitionId>,
    /// The partitions of the node that are not ready, or have commands waiting or unflushed events.
    #[serde(default)]
    pub loads: BTreeMap<PartitionId, PartitionLoad>,
}

/// The state of a partition at its owner.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct PartitionLoad {
    /// The status of the partition, as the status of the node names it.
    #[serde(default)]
    pub status: String,
    /// The commands that wait.
    #[serde(default)]
    pub waiting: u32,
    /// The events that a restart would replay.
    #[serde(default)]
    pub unflushed_events: u64,
}

/// A member row, as it was read.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct MemberRow {
    /// The order of the row. The node raises it with each write.
    pub heartbeat: u64,
    /// The content of the row.
    pub member: Member,
}

impl PartitionLoad {
    /// The status of a partition that is ready.
    pub const READY: &str = "ready";

    /// Whether the partition is ready.
    pub fn is_ready(&self) -> bool {
        self.status == PartitionLoad::READY
    }
}

impl Member {
    /// Makes a member that starts, has no seat and can run nothing.
    pub fn new(id: MemberId, advertised: SocketAddr) -> Member {
        Member {
            id,
            incarnation: None,
            seat: None,
            advertised,
            cluster: None,
            version: String::new(),
            state: MemberState::Starting,
            apps: BTreeSet::new(),
            recent_starts: 0,
            is_recovering: false,
            wants: BTreeMap::new(),
            refused: BTreeSet::new(),
            loads: BTreeMap::new(),
        }
    }

    /// Returns the row as it is stored: at most 32 KiB of JSON. If the row would be larger, it
    /// leaves out the last loads, first those of ready partitions. If that is not enough, it has no
    /// loads, and leaves out the last refused partitions, the last wishes and the last
    /// applications, in this order.
    pub fn to_bytes(&self) -> Bytes {
        let bytes = json::bytes_of(self);
        if bytes.len() <= MAX_BYTES {
            return bytes.into();
        }
        let mut member = self.clone();
        // A version that holds a long text must not push out everything else.
        member.version = member.version.chars().take(100).collect();
        loop {
            let bytes = json::bytes_of(&member);
            if bytes.len() <= MAX_BYTES || !member.cut() {
                return bytes.into();
            }
        }
    }

    /// Reads a row; `None` if the bytes are not a member row.
    pub fn from_bytes(bytes: &[u8]) -> Option<Member> {
        serde_json::from_slice(bytes).ok()
    }

    /// Leaves out the last half of the least important entries; returns false if none is left.
    fn cut(&mut self) -> bool {
        self.cut_ready_loads()
            || cut_map(&mut self.loads)
            || cut_set(&mut self.refused)
            || cut_map(&mut self.wants)
            || cut_set(&mut self.apps)
    }

    /// Leaves out loads of ready partitions. A partition without a load counts as ready, so the
    /// other loads are needed more.
    fn cut_ready_loads(&mut self) -> bool {
        let ready = self.loads.iter().filter(|(_, load)| load.is_ready());
        let ready: Vec<_> = ready.map(|(id, _)| *id).collect();
        let last = &ready[ready.len() / 2..];
        last.iter().for_each(|id| drop(self.loads.remove(id)));
        !last.is_empty()
    }
}

fn cut_map<T>(map: &mut BTreeMap<PartitionId, T>) -> bool {
    let middle = map.keys().nth(map.len() / 2).copied();
    middle.map(|middle| map.split_off(&middle)).is_some()
}

fn cut_set<T: Copy + Ord>(set: &mut BTreeSet<T>) -> bool {
    let middle = set.iter().nth(set.len() / 2).copied();
    middle.map(|middle| set.split_off(&middle)).is_some()
}

#[cfg(test)]
mod tests {
    use super::*;

    fn id(partition: u16) -> PartitionId {
        PartitionId { app: 3, partition }
    }

    fn member() -> Member {
        Member {
            incarnation: Some(Incarnation(0xabc)),
            seat: Some(2),
            cluster: Some("10.0.0.5:8823".parse().unwrap()),
            version: "0.1.0".into(),
            state: MemberState::Draining,
            apps: [3, 4].into(),
            recent_starts: 1,
            is_recovering: true,
            wants: [(id(1), OwnerEpoch(7))].into(),
            refused: [id(2)].into(),
            loads: [(id(5), load("recovering", 6))].into(),
            ..Member::new(MemberId(0x0102), "10.0.0.5:8822".parse().unwrap())
        }
    }

    fn load(status: &str, waiting: u32) -> PartitionLoad {
        PartitionLoad { status: status.into(), waiting, unflushed_events: 70 }
    }

    #[test]
    fn every_byte_of_a_row_is_pinned() {
        let text = concat!(
            r#"{"id":"00000000000000000000000000000102","#,
            r#""incarnation":"00000000000000000000000000000abc","seat":2,"#,
            r#""advertised":"10.0.0.5:8822","cluster":"10.0.0.5:8823","version":"0.1.0","#,
            r#""state":"draining","apps":[3,4],"recent_starts":1,"is_recovering":true,"#,
            r#""wants":{"3/1":7},"refused":["3/2"],"#,
            r#""loads":{"3/5":{"status":"recovering","waiting":6,"unflushed_events":70}}}"#,
        );
        assert_eq!(std::str::from_utf8(&member().to_bytes()).unwrap(), text);
        assert_eq!(Member::from_bytes(text.as_bytes()), Some(member()));
        let bare = Member::new(MemberId(1), "[::1]:1".parse().unwrap());
        assert_eq!(Member::from_bytes(&bare.to_bytes()), Some(bare));
    }

    #[test]
    fn rows_of_older_and_newer_programs_are_read() {
        let old = br#"{"id":"00000000000000000000000000000001","advertised":"10.0.0.5:1"}"#;
        let expected = Member::new(MemberId(1), "10.0.0.5:1".parse().unwrap());
        assert_eq!(Member::from_bytes(old), Some(expected.clone()));
        let new = concat!(
            r#"{"id":"00000000000000000000000000000001","advertised":"10.0.0.5:1","#,
            r#""zone":{"name":"a"},"state":"resting","loads":{"1/2":{"heat":3}}}"#,
        );
        let loads = [(PartitionId { app: 1, partition: 2 }, PartitionLoad::default())].into();
        assert_eq!(Member::from_bytes(new.as_bytes()), Some(Member { loads, ..expected }));
    }

    #[test]
    fn bytes_that_are_not_a_member_are_refused() {
        let good = String::from_utf8(member().to_bytes().to_vec()).unwrap();
        let bad = [
            good.replace("3/1", "3-1"),
            good.replace("3/2", "3/70000"),
            good.replace("00000102", "102"),
            good.replace("00000abc", "00000abX"),
            good.replace("00000abc", "0000+abc"),
            good.replace(":8822", ""),
            good[..good.len() - 1].to_owned(),
        ];
        for text in bad {
            assert_ne!(text, good);
            assert_eq!(Member::from_bytes(text.as_bytes()), None, "{text}");
        }
    }

    #[test]
    fn a_row_that_is_too_large_loses_its_loads_first() {
        let loads: BTreeMap<_, _> = (0..2_000).map(|number| (id(number), load("x", 1))).collect();
        let large = Member { loads, ..member() };
        let bytes = large.to_bytes();
        assert!((MAX_BYTES / 3..=MAX_BYTES).contains(&bytes.len()), "{}", bytes.len());
        let read = Member::from_bytes(&bytes).unwrap();
        assert!(read.loads.contains_key(&id(0)) && !read.loads.contains_key(&id(1_999)));
        assert_eq!(Member { loads: member().loads, ..read }, member());

        // The partitions with the highest numbers do not work. A row without their loads said that
        // they were ready.
        let status = |number| if number < 1_900 { PartitionLoad::READY } else { "starting" };
        let loads = (0..2_000).map(|number| (id(number), load(status(number), 1))).collect();
        let read = Member::from_bytes(&Member { loads, ..member() }.to_bytes()).unwrap();
        assert!((1_900..2_000).all(|number| read.loads.contains_key(&id(number))));
        assert!(read.loads.contains_key(&id(0)) && !read.loads.contains_key(&id(1_899)));

        let refused = (0..10_000).map(id).collect();
        let larger = Member { refused, ..large };
        let read = Member::from_bytes(&larger.to_bytes()).unwrap();
        assert!(read.loads.is_empty() && read.refused.len() > 1_000);
        let (loads, refused) = (member().loads, member().refused);
        assert_eq!(Member { loads, refused, ..read }, member());

        let apps = (0..100_000).collect();
        let wants = (0..9_000).map(|number| (id(number), OwnerEpoch(1))).collect();
        let version = "v".repeat(MAX_BYTES);
        let largest = Member { apps, wants, version, ..larger };
        assert!(largest.to_bytes().len() <= MAX_BYTES);
    }

    #[test]
    fn an_id_is_32_digits() {
        let id = MemberId(0xfeed);
        assert_eq!(id.to_string().parse(), Ok(id));
        assert_eq!("feed".parse::<MemberId>(), Err(NotAMemberId));
    }
}
