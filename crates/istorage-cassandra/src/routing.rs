//! The choice of the server that coordinates a request.

use std::sync::Arc;

use scylla::{
    cluster::{ClusterState, Node, NodeRef},
    policies::load_balancing::{DefaultPolicy, FallbackPlan, LoadBalancingPolicy, RoutingInfo},
    routing::Shard,
};

use crate::suspects::{self, Suspects, first_unsuspected};

/// Chooses the coordinator of a request, and avoids suspects.
///
/// A conditional write or a linearizable read goes to the first replica of its storage partition.
/// The first replica is the same server for all nodes. Without this rule, such requests for one
/// partition go through several servers, and outbid each other until they time out. Six nodes made
/// 240 swaps on three servers: more than 20 swaps ended with an unknown outcome, and none did when
/// all swaps went through one server. The coordinator needs a quorum of any replicas, so a replica
/// that hangs matters only if it is the coordinator.
///
/// The client's own policy chooses the server for every other request.
#[derive(Debug)]
pub(crate) struct Routing {
    requests: Requests,
    suspects: Arc<Suspects>,
    usual: Arc<dyn LoadBalancingPolicy>,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Requests {
    Conditional,
    /// Every request except a conditional write. The client knows which reads are linearizable, but
    /// cannot recognize conditional writes on Cassandra.
    Other,
}

type Target<'a> = (NodeRef<'a>, Option<Shard>);

impl Routing {
    pub(crate) fn conditional(suspects: Arc<Suspects>) -> Routing {
        Routing::new(Requests::Conditional, suspects)
    }

    pub(crate) fn other(suspects: Arc<Suspects>) -> Routing {
        Routing::new(Requests::Other, suspects)
    }

    fn new(requests: Requests, suspects: Arc<Suspects>) -> Routing {
        Routing { requests, suspects, usual: Arc::new(DefaultPolicy::default()) }
    }

    fn first_replica<'a>(
        &self,
        request: &RoutingInfo<'a>,
        cluster: &'a ClusterState,
    ) -> Option<Target<'a>> {
        let (token, table) = request.token.zip(request.table)?;
        let strategy = &cluster.get_keyspace(table.ks_name())?.strategy;
        let datacenter = request.node_location_preference.datacenter();
        let replicas =
            cluster.replica_locator().replicas_for_token(token, strategy, datacenter, table);
        let connected =
            replicas.into_replicas_ordered().into_iter().filter(|(node, _)| node.is_connected());
        let (node, shard) = first_unsuspected(connected, |(node, _)| self.since(node))?;
        Some((node, Some(shard)))
    }

    fn since(&self, node: &Node) -> Option<clock::Instant> {
        self.suspects.since(address(node))
    }
}

impl LoadBalancingPolicy for Routing {
    fn pick<'a>(
        &'a self,
        request: &'a RoutingInfo<'_>,
        cluster: &'a ClusterState,
    ) -> Option<Target<'a>> {
        let in_order = self.requests == Requests::Conditional || request.should_route_as_lwt();
        let first = if in_order { self.first_replica(request, cluster) } else { None };
        let target = first.or_else(|| {
            let usual = self.usual.pick(request, cluster).into_iter();
            let others = std::iter::once_with(|| self.usual.fallback(request, cluster)).flatten();
            first_unsuspected(usual.chain(others), |(node, _)| self.since(node))
        });
        target.inspect(|(node, _)| suspects::record_server(address(node)))
    }

    fn fallback<'a>(
        &'a self,
        request: &'a RoutingInfo<'_>,
        cluster: &'a ClusterState,
    ) -> FallbackPlan<'a> {
        let others = self.usual.fallback(request, cluster);
        Box::new(others.inspect(|(node, _)| suspects::record_server(address(node))))
    }

    fn name(&self) -> String {
        format!("{:?}", self.requests)
    }
}

pub(crate) fn address(node: &Node) -> std::net::SocketAddr {
    (node.address.ip(), node.address.port()).into()
}
