//! Decides which node of a cluster owns which partition.
//!
//! A cluster has many nodes and many partitions. Each node that holds the lease of a seat may own
//! partitions, and a partition has at most one owner. The owner of a partition stands in its
//! [`OwnerRow`], together with an epoch that rises with every change of the owner. So the epoch
//! distinguishes the writes of one owner from those of the next.
//!
//! The crate does no I/O, and has no clock and no task. [`OwnershipEngine`] decides what is safe:
//! when a partition may be taken, started and given up. [`Balancer`] decides what a node wants:
//! which partitions it tries to take, asks for and gives away, so that the loads of all nodes are
//! even. A node describes itself to the others by a [`Member`] row.

mod balance;
mod engine;
mod member;
mod row;

pub use self::{
    balance::{
        BalancePlan, BalanceTimes, Balancer, ClusterSight, DRAINS, FRESH, GiveUp,
        LONGEST_TAKE_WAIT, MOVES, MoveOrder,
    },
    engine::{
        LOOK_EVERY, OwnerChange, OwnerRowsView, OwnershipAction, OwnershipAnswer, OwnershipCall,
        OwnershipEngine, OwnershipNotice,
    },
    member::{Member, MemberId, MemberRow, MemberState, NotAMemberId, PartitionLoad},
    row::{NotAPartition, Owner, OwnerEpoch, OwnerRow, PartitionId},
};
