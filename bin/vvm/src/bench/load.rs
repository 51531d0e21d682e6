//! The requests of a bench, and the node that gets them.

use std::{fmt::Display, net::SocketAddr, time::Duration};

use bytes::Bytes;
use clock::Clock;
use hyper::{Method, StatusCode};
use serde_json::json;
use sysvvm::AppName;

use super::{ANSWER_TIMEOUT, shares};
use crate::{
    cli::{BenchArgs, BenchRequests},
    command_error::CommandError,
    node_client::{NodeClient, no_answer},
};

/// The most time for the first answer of a node.
const GREETING_TIMEOUT: Duration = Duration::from_secs(1);

/// The requests, and the node that gets them.
pub(super) struct RequestLoad {
    pub(super) address: SocketAddr,
    app: AppName,
    /// The running sums of the shares of the workspaces. The last sum is 1.
    pub(super) sums: Vec<f64>,
    pub(super) method: Method,
    /// The end of the path of every request, behind its workspace.
    resource: &'static str,
    /// The body of every request.
    pub(super) body: Bytes,
}

impl RequestLoad {
    pub(super) fn new(args: &BenchArgs) -> Result<RequestLoad, CommandError> {
        let app =
            args.app.parse().map_err(|error| CommandError::usage(format!("--app: {error}")))?;
        if !(args.zipf.is_finite() && args.zipf >= 0.0) {
            return Err(CommandError::usage("--zipf must be a number from 0 on"));
        }
        let (method, resource, body) = match args.send {
            BenchRequests::Commands => (Method::POST, "/commands/sys.CUD", order(args.records)),
            BenchRequests::Draws => {
                (Method::POST, "/numbers/order/next", json!({ "count": args.count }).to_string())
            }
            BenchRequests::Reads => (Method::GET, "/numbers/order", String::new()),
        };
        Ok(RequestLoad {
            address: args.node,
            app,
            sums: shares::sums(args.workspaces, args.zipf),
            method,
            resource,
            body: body.into(),
        })
    }

    fn base(&self, ws: u64) -> String {
        let app = &self.app;
        format!("/api/v2/apps/{}/{}/workspaces/{ws}", app.owner(), app.name())
    }

    pub(super) fn path(&self, ws: u64) -> String {
        self.base(ws) + self.resource
    }

    fn unreachable(&self, why: impl Display) -> CommandError {
        CommandError::unreachable(no_answer(self.address, "http.listen", why))
    }

    /// Connects, and asks for a path that does not exist. A working node answers such a request at
    /// once, even if its storage is slow.
    async fn connect(&self, clock: &Clock) -> Result<NodeClient, CommandError> {
        let asked = async {
            let mut client = NodeClient::connect(self.address).await?;
            client.post("/", Bytes::new()).await.map(|_| client)
        };
        match clock.timeout_at(clock.now() + GREETING_TIMEOUT, asked).await {
            Ok(Ok(client)) => Ok(client),
            Ok(Err(error)) => Err(self.unreachable(error)),
            Err(_) => Err(self.unreachable(format!("no answer within {GREETING_TIMEOUT:?}"))),
        }
    }

    /// Makes the workspaces. Workspaces that exist stay as they are.
    pub(super) async fn create_workspaces(&self, clock: &Clock) -> Result<(), CommandError> {
        let mut client = self.connect(clock).await?;
        for ws in 1..=self.sums.len() as u64 {
            let body = json!({ "args": { "kind": "Shop", "name": "bench" } }).to_string();
            let path = self.base(ws) + "/commands/sys.CreateWorkspace";
            let answer =
                clock.timeout_at(clock.now() + ANSWER_TIMEOUT, client.post(&path, body.into()));
            let answer = answer.await.map_err(|late| self.unreachable(late))?;
            let answer = answer.map_err(|error| self.unreachable(error))?;
            if !answer.status.is_success() && answer.status != StatusCode::CONFLICT {
                return Err(CommandError::unfinished(format!(
                    "{} did not create workspace {ws} of {}: {}",
                    self.address,
                    self.app,
                    answer.problem("reason")
                )));
            }
        }
        Ok(())
    }
}

/// The body of a command that makes an order with so many records.
fn order(records: u16) -> String {
    let customer = "a customer with a name of some length, as there are";
    let order = json!({
        "id": 1, "table": "shop.Order",
        "fields": { "number": "ORDER2026-1123-00000", "customer": customer },
    });
    let line = |id: u64| {
        json!({
            "id": id, "table": "shop.Line", "parent": { "id": 1, "container": "lines" },
            "fields": { "article": 322_685_000_131_072_u64, "quantity": 2, "cents": 1_999 },
        })
    };
    let lines = (2..=u64::from(records)).map(line);
    let rows: Vec<_> = [order].into_iter().chain(lines).collect();
    json!({ "rows": rows }).to_string()
}
