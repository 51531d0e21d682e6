//! The requests of a bench, and the nodes that get them.

use std::{
    sync::atomic::{AtomicUsize, Ordering},
    time::Duration,
};

use bytes::Bytes;
use clock::Clock;
use hyper::{Method, StatusCode};
use serde_json::json;
use sysvvm::AppName;

use super::args::{BenchArgs, BenchRequests};
use crate::{
    CommandError,
    client::{NodeClient, NodeRequest, NodeTarget, path_of_app},
};

/// The most time for a request, with all its tries. A crash of an owner takes less.
pub(super) const ANSWER_TIMEOUT: Duration = Duration::from_secs(60);

/// The most time for the first answer of a node.
const GREETING_TIMEOUT: Duration = Duration::from_secs(1);

/// The requests, and the nodes that get them.
pub(super) struct RequestLoad {
    pub(super) nodes: Vec<NodeTarget>,
    /// The number of connections so far. Each goes to the node after the one before.
    connections: AtomicUsize,
    app: AppName,
    /// The beginning of the ids of all requests of this bench.
    id: String,
    pub(super) has_keys: bool,
    pub(super) is_checked: bool,
    pub(super) workspaces: u32,
    pub(super) method: Method,
    /// The end of the path of every request, after its workspace.
    resource: &'static str,
    /// The body of every request.
    pub(super) body: Bytes,
}

impl RequestLoad {
    pub(super) fn new(args: &BenchArgs, clock: &Clock) -> Result<RequestLoad, CommandError> {
        if args.check && args.send != BenchRequests::Commands {
            return Err(CommandError::usage("--check needs --send commands"));
        }
        let (method, resource, body) = match args.send {
            BenchRequests::Commands => (Method::POST, "/commands/sys.CUD", order(args.records)),
            BenchRequests::Draws => {
                (Method::POST, "/numbers/order/next", json!({ "count": args.count }).to_string())
            }
            BenchRequests::Reads => (Method::GET, "/numbers/order", String::new()),
        };
        Ok(RequestLoad {
            nodes: args.connection.targets(&args.nodes)?,
            connections: AtomicUsize::new(0),
            app: args.app.clone(),
            id: format!("bench-{:016x}", clock.random()),
            has_keys: args.keys,
            is_checked: args.check,
            workspaces: args.workspaces,
            method,
            resource,
            body: body.into(),
        })
    }

    /// The node of the next connection: each node in turn, as a load balancer does.
    pub(super) fn next_node(&self) -> &NodeTarget {
        &self.nodes[self.connections.fetch_add(1, Ordering::Relaxed) % self.nodes.len()]
    }

    /// The id of a request of a client.
    pub(super) fn request_id(&self, client: u32, number: u64) -> String {
        format!("{}-{client}-{number}", self.id)
    }

    pub(super) fn base(&self, ws: u64) -> String {
        format!("{}/workspaces/{ws}", path_of_app(&self.app))
    }

    pub(super) fn path(&self, ws: u64) -> String {
        self.base(ws) + self.resource
    }

    /// Finds the first node that works, by a path that does not exist. A working node answers such
    /// a request at once, even if its storage is slow.
    async fn working_node(&self, clock: &Clock) -> Result<&NodeTarget, CommandError> {
        let mut failed = None;
        for node in &self.nodes {
            let greeting = NodeRequest::post("/", Bytes::new());
            match NodeClient::try_ask(clock, node, greeting, GREETING_TIMEOUT).await {
                Ok(_) => return Ok(node),
                Err(why) => failed.get_or_insert(node.unreachable(why)),
            };
        }
        Err(failed.unwrap_or_else(|| CommandError::usage("--node names no node")))
    }

    /// Makes the workspaces. Workspaces that exist stay as they are.
    pub(super) async fn create_workspaces(&self, clock: &Clock) -> Result<(), CommandError> {
        let node = self.working_node(clock).await?;
        let connected = NodeClient::connect(node);
        let connected = clock.timeout_at(clock.now() + ANSWER_TIMEOUT, connected).await;
        let connected = connected.map_err(|late| node.unreachable(late))?;
        let mut client = connected.map_err(|error| node.unreachable(error))?;
        for ws in 1..=u64::from(self.workspaces) {
            let body = json!({ "args": { "kind": "Shop", "name": "bench" } }).to_string();
            let path = self.base(ws) + "/commands/sys.CreateWorkspace";
            let sent = client.send(NodeRequest::post(&path, body.into()));
            let answer = clock.timeout_at(clock.now() + ANSWER_TIMEOUT, sent).await;
            let answer = answer.map_err(|late| node.unreachable(late))?;
            let answer = answer.map_err(|error| node.unreachable(error))?;
            if !answer.status.is_success() && answer.status != StatusCode::CONFLICT {
                let why = answer.reason(node);
                let why = format!("{node} did not create workspace {ws} of {}: {why}", self.app);
                return Err(answer.refused(node, why));
            }
        }
        Ok(())
    }
}

/// The record that the lines of an order refer to: the descriptor, which each workspace has.
const DESCRIPTOR: u64 = 65_536;

/// The body of a command that makes an order with this many records.
fn order(records: u16) -> String {
    let customer = "a customer with a name of some length, as there are";
    let order = json!({
        "id": 1, "table": "shop.Order",
        "fields": { "number": "ORDER2026-1123-00000", "customer": customer },
    });
    let line = |id: u64| {
        json!({
            "id": id, "table": "shop.Line", "parent": { "id": 1, "container": "lines" },
            "fields": { "article": DESCRIPTOR, "quantity": 2, "cents": 1_999 },
        })
    };
    let lines = (2..=u64::from(records)).map(line);
    let rows: Vec<_> = [order].into_iter().chain(lines).collect();
    json!({ "rows": rows }).to_string()
}
