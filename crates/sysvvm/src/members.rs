//! The rows that the nodes of a cluster exchange: the members, the pause of balancing and the
//! orders of operators.
//!
//! Invariant: nothing here decides what is safe. A row that is late, missing or wrong costs time
//! and balance, never an event: only leases and ownership rows decide who may write.

mod order;
mod pause;

use std::time::Duration;

use bytes::Bytes;
use clock::{Clock, Instant};
use futures::TryStreamExt;
use istorage::{
    AppStorageExt, Conditional, Consistency, CorruptRow, Error as StorageError, Key, Order,
    OrderedPut, Outcome, Range, Row, SharedStorage,
    settle::{SettleLimits, write_if_settled},
};

use self::order::ReadOrder;
pub use self::{
    order::{OperatorOrder, OrderId},
    pause::BalancingPause,
};
use crate::{
    Result,
    layout::{self, MemberKey},
};

/// The number of tries to change the pause while other operators change it.
const PAUSE_TRIES: u32 = 5;

/// The members of a cluster, the pause of balancing and the orders of operators.
///
/// All rows share one storage partition. So one read shows everything.
#[derive(Clone, Debug)]
pub struct MemberRows {
    storage: SharedStorage,
    clock: Clock,
}

/// A member of a cluster, as its row shows it.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct SeenMember {
    /// The id of the member: a random number of its process.
    pub id: u128,
    /// The number of the write. It rises with each write of the member.
    pub heartbeat: u64,
    /// The description that the member gives of itself.
    pub bytes: Bytes,
}

/// The rows that a read has found.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct ClusterRows {
    /// The members whose rows have not expired, by id.
    pub members: Vec<SeenMember>,
    /// The pause of balancing; `None` if no operator ever changed it.
    pub pause: Option<BalancingPause>,
    /// The orders that have not expired, the oldest first by the clocks of the nodes that wrote
    /// them.
    pub orders: Vec<(OrderId, OperatorOrder)>,
    /// The rows whose bytes make no sense.
    pub corrupt: Vec<CorruptRow>,
    /// The number of rows and orders of a kind that only a newer program knows.
    pub unknown: usize,
}

impl MemberRows {
    pub(crate) fn new(storage: SharedStorage, clock: Clock) -> MemberRows {
        MemberRows { storage, clock }
    }

    /// Reads all rows that have not expired, with one plain read. A row that makes no sense is not
    /// an error.
    ///
    /// # Errors
    /// Those of the storage.
    pub async fn read(&self, deadline: Instant) -> Result<ClusterRows> {
        let timeout = deadline.saturating_since(self.clock.now());
        let pkey = layout::members();
        let found = self.storage.read(pkey, Range::all(), Consistency::Plain, timeout);
        let found: Vec<Row> = found.try_collect().await?;
        let mut rows = ClusterRows::default();
        found.into_iter().for_each(|row| rows.add(row));
        Ok(rows)
    }

    /// Writes the row of a member.
    ///
    /// A row with a higher heartbeat stays, so a late write does no harm. Two writes with the same
    /// heartbeat must have the same bytes. So a caller raises the heartbeat for each call, even
    /// after a failed one.
    ///
    /// # Errors
    /// Those of the storage. The row may still have been written. `Invalid` if the heartbeat is not
    /// from 1 to [`Order::MAX`].
    pub async fn put_member(
        &self,
        id: u128,
        heartbeat: u64,
        bytes: &[u8],
        ttl: Duration,
        deadline: Instant,
    ) -> Result<()> {
        let key = Key::new(layout::members(), layout::member(id));
        let value = [&heartbeat.to_be_bytes()[..], bytes].concat().into();
        let put = OrderedPut { key, value, order: Order::new(heartbeat)?, ttl: Some(ttl) };
        Ok(self.storage.put_ordered(vec![put], deadline).await?)
    }

    /// Pauses balancing, or ends the pause, and returns the row. If several operators change it at
    /// once, the last one counts. `by` is for people.
    ///
    /// # Errors
    /// Those of the storage. If the outcome is unknown, the row may be written, and the call may be
    /// repeated.
    pub async fn set_paused(
        &self,
        paused: bool,
        by: &str,
        deadline: Instant,
    ) -> Result<BalancingPause> {
        let (pkey, ccols) = (layout::members(), layout::pause());
        let key = Key::new(pkey.clone(), ccols.clone());
        let mut there = self.storage.get_linearizable(&key, deadline).await?;
        for _ in 0..PAUSE_TRIES {
            let pause = BalancingPause::after(there.as_ref(), paused, self.clock.wall(), by);
            let (value, ccols) = (pause.to_bytes(), ccols.clone());
            let op = match there {
                None => Conditional::Insert { ccols, value, ttl: None },
                Some(old) => Conditional::Swap { ccols, old, new: value, ttl: None },
            };
            // A call may take half of the time left, so that a second call can settle an attempt
            // without an answer.
            let call_timeout = deadline.saturating_since(self.clock.now()) / 2;
            let limits = SettleLimits { call_timeout, until: deadline };
            let write =
                write_if_settled(&*self.storage, &self.clock, pkey.clone(), vec![op], limits);
            match write.await? {
                Outcome::Applied => return Ok(pause),
                Outcome::NotApplied(mut conflicts) => {
                    there = conflicts.pop().and_then(|conflict| conflict.actual);
                }
            }
        }
        let message = "other operators change the pause of balancing at the same time";
        Err(StorageError::unavailable(message).into())
    }

    /// Stores the order of an operator until `ttl`, usually [`OperatorOrder::TTL`], is over.
    ///
    /// The row is ordered, although its key is used once: DynamoDB expires a conditional row for
    /// each node anew, so a node that starts would obey orders of any age.
    ///
    /// # Errors
    /// Those of the storage. The order may still have been stored.
    pub async fn order(
        &self,
        order: &OperatorOrder,
        ttl: Duration,
        deadline: Instant,
    ) -> Result<OrderId> {
        let id = OrderId::new(self.clock.wall(), self.clock.random());
        let key = Key::new(layout::members(), layout::order(id.at.as_micros(), id.random));
        let (value, order) = (order.to_bytes(), Order::new(1)?);
        let put = OrderedPut { key, value, order, ttl: Some(ttl) };
        self.storage.put_ordered(vec![put], deadline).await?;
        Ok(id)
    }
}

impl ClusterRows {
    fn add(&mut self, row: Row) {
        match MemberKey::read(&row.ccols) {
            Some(MemberKey::Member(id)) => match row.value.split_first_chunk::<8>() {
                Some((&heartbeat, _)) => {
                    let (heartbeat, bytes) = (u64::from_be_bytes(heartbeat), row.value.slice(8..));
                    self.members.push(SeenMember { id, heartbeat, bytes });
                }
                None => self.add_corrupt(format!("the member {id:032x}"), row, "has no heartbeat"),
            },
            Some(MemberKey::Pause) => match BalancingPause::from_bytes(&row.value) {
                Some(pause) => self.pause = Some(pause),
                None => self.add_corrupt("the pause of balancing".to_owned(), row, "is not one"),
            },
            Some(MemberKey::Order { at_micros, random }) => {
                match OperatorOrder::from_bytes(&row.value) {
                    Some(ReadOrder::Known(order)) => {
                        self.orders.push((OrderId::read(at_micros, random), order));
                    }
                    Some(ReadOrder::Unknown) => self.unknown += 1,
                    None => {
                        self.add_corrupt("an order of an operator".to_owned(), row, "is not one")
                    }
                }
            }
            Some(MemberKey::Unknown) => self.unknown += 1,
            None => {
                let what = "a row among the members of the cluster".to_owned();
                self.add_corrupt(what, row, "has a key that nobody writes");
            }
        }
    }

    fn add_corrupt(&mut self, what: String, row: Row, why: &str) {
        let key = Key::new(layout::members(), row.ccols);
        self.corrupt.push(CorruptRow { what, key, found: row.value, why: why.to_owned() });
    }
}

#[cfg(test)]
mod tests;
