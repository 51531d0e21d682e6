//! Asks whether a node is there, before a partition is given to it.
//!
//! The member row of a node that has just died still looks alive for 3 seconds, and its lease for
//! longer. A partition that is given to such a node has no owner that works until that lease has
//! expired. So the owner asks the successor first, without the storage.

use std::{
    collections::{BTreeMap, BTreeSet},
    fmt::Debug,
    sync::Arc,
    time::Duration,
};

use async_trait::async_trait;
use clock::Instant;
use ielections::Incarnation;
use sysvvm::ownership::Owner;
use tokio::{runtime::Handle, task::JoinSet};

use crate::Node;

/// The time for an answer.
const ANSWER_WITHIN: Duration = Duration::from_millis(200);

/// How long an answer holds.
const HOLDS: Duration = Duration::from_secs(1);

/// Asks other nodes, without the storage, whether they would start a partition now.
#[async_trait]
pub trait SuccessorCheck: Debug + Send + Sync {
    /// Whether the node at the cluster address of the successor answers that it is this successor,
    /// and [can own partitions](Node::can_own).
    async fn is_there(&self, successor: Owner) -> bool;
}

/// The successors that this node asks.
#[derive(Debug)]
pub(crate) struct AskedSuccessors {
    /// The connections to other nodes belong to the runtime of requests.
    runtime: Handle,
    asked: BTreeSet<Incarnation>,
    answers: JoinSet<(Incarnation, bool)>,
    /// The successors that are there, and the times of their answers.
    there: BTreeMap<Incarnation, Instant>,
}

impl AskedSuccessors {
    pub(crate) fn new(runtime: Handle) -> AskedSuccessors {
        let (asked, there) = (BTreeSet::new(), BTreeMap::new());
        AskedSuccessors { runtime, asked, answers: JoinSet::new(), there }
    }

    /// Whether a successor has just answered that it is there. If not, it is asked. A node that has
    /// no way to ask takes every successor for one that is there.
    pub(crate) fn is_there(&mut self, node: &Node, successor: Owner) -> bool {
        let Some(check) = node.successor_check().filter(|_| successor.cluster.is_some()) else {
            return true;
        };
        let (clock, id) = (node.clock().clone(), successor.incarnation);
        let now = clock.now();
        self.there.retain(|_, at| now < *at + HOLDS);
        if self.there.contains_key(&id) {
            return true;
        }
        if self.asked.insert(id) {
            let check = Arc::clone(check);
            let ask = async move {
                let answer = clock.timeout_at(now + ANSWER_WITHIN, check.is_there(successor));
                (id, answer.await.unwrap_or(false))
            };
            self.answers.spawn_on(ask, &self.runtime);
        }
        false
    }

    /// Waits for the next answer; forever if no successor is asked. Returns the successor if it is
    /// not there.
    ///
    /// # Cancel safety
    /// Safe: no answer is lost.
    pub(crate) async fn answered(&mut self, now: impl Fn() -> Instant) -> Option<Incarnation> {
        match self.answers.join_next().await {
            Some(Ok((id, is_there))) => {
                self.asked.remove(&id);
                if is_there {
                    self.there.insert(id, now());
                }
                (!is_there).then_some(id)
            }
            // The task panicked, so nobody knows which successor it asked.
            Some(Err(_)) => {
                self.asked.clear();
                None
            }
            None => std::future::pending().await,
        }
    }
}
