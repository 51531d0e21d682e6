//! The load of a bench: the commands, their workspaces and their times.

use std::{fmt::Display, net::SocketAddr, time::Duration};

use bytes::Bytes;
use clock::{Clock, Instant};
use hyper::StatusCode;
use serde_json::json;
use sysvvm::AppName;

use super::{ANSWER_TIMEOUT, client::NodeClient};
use crate::{cli::BenchArgs, command_error::CommandError};

/// The most time for the first answer of a node.
const GREETING_TIMEOUT: Duration = Duration::from_secs(1);

/// The commands, and the node that gets them.
pub(super) struct CommandLoad {
    pub(super) address: SocketAddr,
    app: AppName,
    /// The running sums of the shares of the workspaces. The last sum is 1.
    sums: Vec<f64>,
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
        let bill = json!({
            "id": 1, "table": "shop.Bill",
            "fields": { "number": 1, "customer": "a customer with a name of some length, as there are" },
        });
        let line = |id: u64| {
            json!({
                "id": id, "table": "shop.Line", "parent": { "id": 1, "container": "lines" },
                "fields": { "article": 322_685_000_131_072_u64, "quantity": 2, "cents": 1_999 },
            })
        };
        let lines = (2..=u64::from(args.records)).map(line);
        let rows: Vec<_> = [bill].into_iter().chain(lines).collect();
        let body = json!({ "rows": rows }).to_string().into();
        Ok(CommandLoad { address: args.node, app, sums: sums(args.workspaces, args.zipf), body })
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

/// Returns the running sums of the shares. The share of the workspace at a rank is proportional to
/// one divided by the rank to the power of `zipf`.
fn sums(workspaces: u32, zipf: f64) -> Vec<f64> {
    let mut sum = 0.0;
    let mut sums: Vec<f64> = (1..=workspaces)
        .map(|rank| {
            sum += f64::from(rank).powf(-zipf);
            sum
        })
        .collect();
    sums.iter_mut().for_each(|part| *part /= sum);
    sums
}

/// Draws workspaces, from 1 on.
pub(super) struct WorkspacePicker<'l> {
    sums: &'l [f64],
    state: u64,
}

impl WorkspacePicker<'_> {
    pub(super) fn new(load: &CommandLoad, seed: u64) -> WorkspacePicker<'_> {
        WorkspacePicker { sums: &load.sums, state: seed }
    }

    pub(super) fn next(&mut self) -> u64 {
        // The generator is SplitMix64.
        self.state = self.state.wrapping_add(0x9e37_79b9_7f4a_7c15);
        let mut mixed = self.state;
        mixed = (mixed ^ (mixed >> 30)).wrapping_mul(0xbf58_476d_1ce4_e5b9);
        mixed = (mixed ^ (mixed >> 27)).wrapping_mul(0x94d0_49bb_1331_11eb);
        let part = ((mixed ^ (mixed >> 31)) >> 11) as f64 / (1_u64 << 53) as f64;
        let rank = self.sums.partition_point(|sum| *sum <= part).min(self.sums.len() - 1);
        rank as u64 + 1
    }
}

/// The times at which a client sends its commands.
pub(super) struct CommandPace {
    /// The time between two commands. `None` if each command follows the answer to the one before.
    every: Option<Duration>,
    due: Instant,
}

impl CommandPace {
    /// Makes the pace of one client. All clients together send `rate` commands a second. Without a
    /// rate each client sends as many as it can.
    pub(super) fn new(rate: Option<u32>, clients: u32, number: u32, start: Instant) -> CommandPace {
        let every = rate.map(|rate| Duration::from_secs(u64::from(clients)) / rate);
        let due = start + every.map_or(Duration::ZERO, |every| every * number / clients);
        CommandPace { every, due }
    }

    /// Waits until the next command is due, and returns that time. `None` if the command is due
    /// after the end.
    pub(super) async fn next(&mut self, clock: &Clock, end: Instant) -> Option<Instant> {
        let Some(every) = self.every else { return Some(clock.now()) };
        let due = self.due;
        if due >= end {
            return None;
        }
        self.due = due + every;
        clock.sleep_until(due).await;
        Some(due)
    }

    /// Returns the number of commands that are still due before the end.
    pub(super) fn left(&self, end: Instant) -> u64 {
        let Some(every) = self.every else { return 0 };
        end.saturating_since(self.due).as_nanos().div_ceil(every.as_nanos().max(1)) as u64
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn drawn(zipf: f64) -> Vec<u32> {
        let sums = sums(10, zipf);
        let mut workspaces = WorkspacePicker { sums: &sums, state: 7 };
        let mut counts = vec![0; 10];
        (0..100_000).for_each(|_| counts[workspaces.next() as usize - 1] += 1);
        counts
    }

    #[test]
    fn workspaces_are_drawn_by_their_shares() {
        for count in drawn(0.0) {
            assert!((9_000..11_000).contains(&count), "{count}");
        }
        let zipf = drawn(1.0);
        let ratio = f64::from(zipf[0]) / f64::from(zipf[9]);
        assert!((8.0..12.5).contains(&ratio), "{zipf:?}");
    }

    #[tokio::test]
    async fn an_open_loop_is_due_at_its_rate_whatever_is_answered() {
        let manual = clock::ManualClock::new(1);
        let clock = manual.clock();
        let start = clock.now();
        let mut pace = CommandPace::new(Some(100), 2, 1, start);
        manual.advance(Duration::from_secs(1));
        let end = start + Duration::from_secs(1);
        let mut due = Vec::new();
        while let Some(moment) = pace.next(&clock, end).await {
            due.push(moment - start);
            assert_eq!(due.len() as u64 + pace.left(end), 50);
        }
        assert_eq!(due.len(), 50);
        assert_eq!(due[0], Duration::from_millis(10));
        assert_eq!(due[1] - due[0], Duration::from_millis(20));
    }
}
