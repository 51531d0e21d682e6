//! The orders of operators to a cluster.
//!
//! A node refuses an order that nobody would obey, as far as its view of the cluster shows it.

use std::time::Duration;

use base::with_causes;
use clock::Instant;
use sysvvm::{
    MemberRows, OperatorOrder,
    ownership::{Member, MemberId, MemberState, PartitionId},
};

use crate::Node;

/// The longest wait for a fresh view of the cluster before an order.
const VIEW_WITHIN: Duration = Duration::from_millis(500);

/// The longest time to store an order.
const ORDER_WITHIN: Duration = Duration::from_secs(5);

/// What a refusal says about a node that is not fresh.
const SILENT: &str = "has not written its member row for 3 seconds";

/// An order of an operator to a cluster.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum ClusterOrder {
    /// Stop the moves that even out the loads. Nodes still take partitions without an owner.
    Pause,
    /// End the pause.
    Resume,
    /// Move a partition to a member.
    Move {
        /// The owner and the name of the application, such as `acme/shop`.
        app: String,
        /// The number of the partition.
        partition: u16,
        /// The id of the member.
        to: MemberId,
    },
    /// Let a member give all its partitions away.
    Drain(MemberId),
    /// End the drain of a member.
    CancelDrain(MemberId),
}

/// The reason why an order was not given.
#[derive(Debug, thiserror::Error)]
pub enum OrderError {
    /// The order names an application, a partition or a member that does not exist.
    #[error("{0}")]
    Unknown(String),
    /// The order makes no sense now.
    #[error("{0}")]
    Refused(String),
    /// The storage failed. Try again: an order that is given twice is obeyed once.
    #[error("the storage failed, and the order may not be stored: {0}")]
    Storage(String),
}

impl ClusterOrder {
    /// Gives the order to the cluster of a node. The nodes obey within about a second.
    ///
    /// # Errors
    /// The reason why the order was not given.
    pub async fn give(self, node: &Node) -> Result<(), OrderError> {
        let Some(rows) = node.view().member_rows() else {
            return Err(OrderError::Refused("the storage is not open yet".to_owned()));
        };
        // The order may name a node or an owner that is new.
        node.view().get(VIEW_WITHIN).await;
        let deadline = node.clock().now() + ORDER_WITHIN;
        let by = node.advertised().to_string();
        let storage = |error: sysvvm::Error| OrderError::Storage(with_causes(&error));
        let order = match self {
            ClusterOrder::Pause | ClusterOrder::Resume => {
                let paused = self == ClusterOrder::Pause;
                rows.set_paused(paused, &by, deadline).await.map_err(storage)?;
                node.view().ask_now();
                return Ok(());
            }
            ClusterOrder::Drain(member) => drain_order(node, member)?,
            ClusterOrder::CancelDrain(member) => cancel_order(node, rows, member, deadline).await?,
            ClusterOrder::Move { app, partition, to } => move_order(node, &app, partition, to)?,
        };
        rows.order(&order, OperatorOrder::TTL, deadline).await.map_err(storage)?;
        node.view().ask_now();
        Ok(())
    }
}

/// The members as this node saw them last.
fn members_seen(node: &Node) -> Vec<Member> {
    let seen = node.view().last().answer;
    seen.map(|seen| node.members(&seen)).unwrap_or_default()
}

fn known(node: &Node, id: MemberId) -> Result<Member, OrderError> {
    let member = members_seen(node).into_iter().find(|member| member.id == id);
    member.ok_or_else(|| OrderError::Unknown(format!("no node of the cluster has the id {id}")))
}

fn drain_order(node: &Node, id: MemberId) -> Result<OperatorOrder, OrderError> {
    if !is_fresh(node, known(node, id)?.id) {
        return Err(OrderError::Refused(format!("the node {id} {SILENT}")));
    }
    Ok(OperatorOrder::Drain { member: id.0 })
}

async fn cancel_order(
    node: &Node,
    rows: &MemberRows,
    id: MemberId,
    deadline: Instant,
) -> Result<OperatorOrder, OrderError> {
    let cancel = OperatorOrder::CancelDrain { member: id.0 };
    if known(node, id)?.state == MemberState::Draining {
        return Ok(cancel);
    }
    // The other node, and the view of this node, may not have seen the order to drain yet.
    let stored = rows.read(deadline).await;
    let orders = stored.map_err(|error| OrderError::Storage(with_causes(&error)))?.orders;
    let drain = OperatorOrder::Drain { member: id.0 };
    match orders.iter().any(|(_, order)| *order == drain) {
        true => Ok(cancel),
        false => Err(OrderError::Refused(format!("the node {id} does not drain"))),
    }
}

fn move_order(
    node: &Node,
    name: &str,
    partition: u16,
    to: MemberId,
) -> Result<OperatorOrder, OrderError> {
    let app = node.apps().iter().find(|app| app.name().to_string() == name);
    let app = app.ok_or_else(|| {
        let known: Vec<_> = node.apps().iter().map(|app| app.name().to_string()).collect();
        let known = known.join(", ");
        OrderError::Unknown(format!("this node has no application `{name}`; it has {known}"))
    })?;
    let count = app.settings.partitions.get();
    let number = app.number().ok_or_else(|| {
        OrderError::Refused(format!("the application `{name}` is not deployed yet"))
    })?;
    if partition >= count {
        let why = format!("`{name}` has {count} partitions, and no partition {partition}");
        return Err(OrderError::Unknown(why));
    }
    let row = node.owner_of(app, partition);
    let owner = row.owner.ok_or_else(|| {
        OrderError::Refused(format!("nobody owns partition {partition} of `{name}` now"))
    })?;
    let member = known(node, to)?;
    if member.incarnation == Some(owner.incarnation) {
        let why = format!("partition {partition} is at that node already");
        return Err(OrderError::Refused(why));
    }
    let members = members_seen(node);
    let mut from = members.iter().filter(|it| it.incarnation == Some(owner.incarnation));
    if from.any(|member| member.state == MemberState::Draining) {
        let why = format!("partition {partition} leaves its node already, which drains");
        return Err(OrderError::Refused(why));
    }
    if let Some(why) = obstacle(node, &member, number.get()) {
        return Err(OrderError::Refused(format!("the node {to} {why}")));
    }
    let partition = PartitionId { app: number.get(), partition };
    Ok(OperatorOrder::Move { partition, epoch: row.epoch, to: to.0 })
}

fn is_fresh(node: &Node, id: MemberId) -> bool {
    let seen = node.view().last().answer;
    id == node.membership().id() || seen.is_some_and(|seen| seen.is_fresh(id))
}

/// Returns why a node gets no partition of an application now.
fn obstacle(node: &Node, member: &Member, app: u32) -> Option<&'static str> {
    let seen = node.view().last().answer;
    let is_living = |it| seen.as_ref().is_some_and(|seen| seen.living.contains(&it));
    match member.state {
        _ if !is_fresh(node, member.id) => Some(SILENT),
        _ if !member.incarnation.is_some_and(is_living) => Some("has no seat"),
        MemberState::Draining => Some("drains"),
        MemberState::Starting => Some("starts"),
        MemberState::Ready if !member.apps.contains(&app) => {
            Some("does not have the application, or only an older version of it")
        }
        MemberState::Ready => None,
    }
}
