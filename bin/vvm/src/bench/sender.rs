//! A client that sends one request after another.

use std::{
    sync::atomic::{AtomicU64, Ordering},
    time::Duration,
};

use clock::{Clock, Instant};
use tokio_util::sync::CancellationToken;

use super::{
    ANSWER_TIMEOUT, load::RequestLoad, outcome::BenchOutcome, pace::RequestPace,
    shares::WorkspacePicker,
};
use crate::{command_error::CommandError, node_client::NodeClient};

/// Sends one request after another, and returns the outcome.
pub(super) async fn send_requests(
    load: &RequestLoad,
    clock: &Clock,
    mut pace: RequestPace,
    end: Instant,
    stop: &CancellationToken,
    done: &AtomicU64,
) -> Result<BenchOutcome, CommandError> {
    let mut outcome = BenchOutcome::new()?;
    let mut workspaces = WorkspacePicker::new(&load.sums, clock.random());
    let mut client = None;
    while clock.now() < end {
        let next = stop.run_until_cancelled(pace.next(clock, end));
        let Some(Some(due)) = next.await else { break };
        let ws = workspaces.next();
        let answered = async {
            let client = match &mut client {
                Some(client) => client,
                none => none.insert(NodeClient::connect(load.address).await?),
            };
            client.send(load.method.clone(), &load.path(ws), load.body.clone()).await
        };
        let answered = clock.timeout_at(clock.now() + ANSWER_TIMEOUT, answered).await;
        let why = match answered {
            Ok(Ok(answer)) if answer.status.is_success() => {
                // The time starts when the request was due. Otherwise a node that stands still
                // would delay the next requests, and their waiting would not be measured.
                let micros = (clock.now() - due).as_micros() as u64;
                outcome.times.saturating_record(micros);
                done.fetch_add(1, Ordering::Relaxed);
                continue;
            }
            Ok(Ok(answer)) => answer.problem("code"),
            Ok(Err(error)) => {
                client = None;
                error.to_string()
            }
            Err(_) => {
                client = None;
                format!("no answer in {ANSWER_TIMEOUT:?}")
            }
        };
        *outcome.failed.entry(why).or_default() += 1;
        // The leadership may be moving to another node.
        clock.sleep(Duration::from_millis(20)).await;
    }
    outcome.unsent = pace.left(clock.now().min(end));
    Ok(outcome)
}
