//! The commands of a bench, and the node that gets them.

use std::{fmt::Display, net::SocketAddr, time::Duration};

use bytes::Bytes;
use clock::Clock;
use hyper::StatusCode;
use serde_json::json;
use sysvvm::AppName;

use super::{ANSWER_TIMEOUT, shares};
use crate::{cli::BenchArgs, command_error::CommandError, node_client::NodeClient};

/// The most time for the first answer of a node.
const GREETING_TIMEOUT: Duration = Duration::from_secs(1);

/// The commands, and the node that gets them.
pub(super) struct CommandLoad {
    pub(super) address: SocketAddr,
    app: AppName,
    /// The running sums of the shares of the workspaces. The last sum is 1.
    pub(super) sums: Vec<f64>,
    /// The body of every command.
    pub(super) body: Bytes,
}

impl CommandLoad {
    pub(super) fn new(args: &BenchArgs) -> Result<CommandLoad, CommandError> {
        let app =
            args.app.parse().map_err(|error| CommandError::usage(format!("--app: {error}")))?;
        if !(args.zipf.is_finite() && args.zipf >= 0.0) {
            return Err(CommandError::usage("--zipf must be a number from 0 on"));
        }
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
        let lines = (2..=u64::from(args.records)).map(line);
        let rows: Vec<_> = [order].into_iter().chain(lines).collect();
        let body = json!({ "rows": rows }).to_string().into();
        Ok(CommandLoad {
            address: args.node,
            app,
            sums: shares::sums(args.workspaces, args.zipf),
            body,
        })
    }

    fn base(&self, ws: u64) -> String {
        let app = &self.app;
        format!("/api/v2/apps/{}/{}/workspaces/{ws}/commands", app.owner(), app.name())
    }

    pub(super) fn path(&self, ws: u64) -> String {
        self.base(ws) + "/sys.CUD"
    }

    fn unreachable(&self, why: impl Display) -> CommandError {
        let address = self.address;
        CommandError::unreachable(format!(
            "no node answers at {address}: {why}: check that the node runs, and that its `http.listen` is this address"
        ))
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
            let path = self.base(ws) + "/sys.CreateWorkspace";
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
