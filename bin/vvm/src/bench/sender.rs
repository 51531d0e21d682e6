//! A client that sends one request after another.

use std::{net::SocketAddr, time::Duration};

use clock::{Clock, Instant};
use hyper::{
    StatusCode,
    header::{CONNECTION, HeaderName, HeaderValue},
};
use tokio_util::sync::CancellationToken;

use super::{
    ANSWER_TIMEOUT,
    load::RequestLoad,
    outcome::{BenchOutcome, RequestEnd, SentCommand},
    pace::RequestPace,
    progress::BenchProgress,
    shares::WorkspacePicker,
};
use crate::{
    command_error::CommandError,
    node_client::{NoAnswer, NodeAnswer, NodeClient, NodeRequest},
};

const REQUEST_ID: HeaderName = HeaderName::from_static("x-request-id");
const IDEMPOTENCY_KEY: HeaderName = HeaderName::from_static("idempotency-key");
const SERVED_BY: HeaderName = HeaderName::from_static("x-vvm-served-by");

/// The pause after a request, or a try on each node, that failed: a partition may be on its way to
/// another node.
const PAUSE: Duration = Duration::from_millis(20);

/// The most time for a try that can be followed by another one. A node that works answers within
/// its `http.command_seconds`, which are 10 unless they are configured.
const TRY_TIMEOUT: Duration = Duration::from_secs(12);

/// A client of a bench. It has one connection at a time.
pub(super) struct BenchClient<'l> {
    pub(super) load: &'l RequestLoad,
    pub(super) clock: Clock,
    /// The number of the client.
    pub(super) number: u32,
    pub(super) progress: &'l BenchProgress,
}

/// The connection of a client, if there is one, and its node.
type Connection = Option<(SocketAddr, NodeClient)>;

impl BenchClient<'_> {
    /// Sends one request after another, and returns the outcome.
    pub(super) async fn send_requests(
        &self,
        mut pace: RequestPace,
        end: Instant,
        stop: &CancellationToken,
    ) -> Result<BenchOutcome, CommandError> {
        let (load, clock) = (self.load, &self.clock);
        let mut outcome = BenchOutcome::new()?;
        let mut workspaces = WorkspacePicker::new(&load.sums, clock.random());
        let mut connection = None;
        for number in 0.. {
            let next = stop.run_until_cancelled(pace.next(clock, end));
            let Some(Some(due)) = next.await.filter(|_| clock.now() < end) else { break };
            let ws = workspaces.next();
            let end = self.request(&mut connection, &mut outcome, ws, number).await;
            if load.is_checked {
                outcome.sent.push(SentCommand { ws, client: self.number, number, end: end.kind() });
            }
            match end {
                RequestEnd::Done => {
                    // The time starts when the request was due. Otherwise a node that stands still
                    // would delay the next requests, and their waiting would not be measured.
                    let micros = (clock.now() - due).as_micros() as u64;
                    outcome.times.saturating_record(micros);
                    self.progress.note_done();
                }
                RequestEnd::Refused(why) | RequestEnd::Unknown(why) | RequestEnd::Failed(why) => {
                    *outcome.failed.entry(why).or_default() += 1;
                    clock.sleep(PAUSE).await;
                }
            }
        }
        outcome.unsent = pace.left(clock.now().min(end));
        Ok(outcome)
    }

    /// Sends a request until it is done, or cannot be sent again.
    async fn request(
        &self,
        connection: &mut Connection,
        outcome: &mut BenchOutcome,
        ws: u64,
        number: u64,
    ) -> RequestEnd {
        let until = self.clock.now() + ANSWER_TIMEOUT;
        let id = self.load.request_id(self.number, number);
        let nodes = self.load.nodes.len();
        let can_be_done_twice = self.load.has_keys || self.load.method.is_safe();
        let mut tries = 0;
        loop {
            tries += 1;
            let within = if can_be_done_twice && nodes > 1 { TRY_TIMEOUT } else { ANSWER_TIMEOUT };
            let try_until = until.min(self.clock.now() + within);
            let end = self.send_once(connection, outcome, (ws, &id), try_until).await;
            let is_sent_again = match &end {
                RequestEnd::Done | RequestEnd::Failed(_) => false,
                RequestEnd::Refused(_) => true,
                RequestEnd::Unknown(_) => can_be_done_twice,
            };
            if !is_sent_again || nodes == 1 || self.clock.now() >= until {
                return end;
            }
            outcome.tries_again += 1;
            // The next connection goes to the next node.
            *connection = None;
            if tries % nodes == 0 {
                self.clock.sleep(PAUSE).await;
            }
        }
    }

    async fn send_once(
        &self,
        connection: &mut Connection,
        outcome: &mut BenchOutcome,
        (ws, id): (u64, &str),
        until: Instant,
    ) -> RequestEnd {
        let mut node = None;
        let answered = async {
            let (at, client) = match &mut *connection {
                Some(connected) => connected,
                none => {
                    let at = self.load.next_node();
                    none.insert((at, NodeClient::connect(at).await?))
                }
            };
            node = Some(*at);
            let path = self.load.path(ws);
            let id = HeaderValue::from_str(id);
            let id = id.map_err(|error| NoAnswer::NotSent(error.to_string()))?;
            let headers = [(REQUEST_ID, id.clone()), (IDEMPOTENCY_KEY, id)];
            let headers = if self.load.has_keys { &headers[..] } else { &headers[..1] };
            let (method, body) = (self.load.method.clone(), self.load.body.clone());
            client.send(NodeRequest { method, path: &path, headers, body }).await
        };
        let answered = self.clock.timeout_at(until, answered).await;
        let end = match answered {
            Ok(Ok(answer)) => {
                if let Some(node) = node {
                    outcome.note_answer(node, is_of_another_node(&answer, node));
                }
                // A node that drains asks its clients to connect elsewhere.
                if answer.headers.get(CONNECTION).is_some_and(|it| it == "close") {
                    *connection = None;
                }
                return end_of(&answer);
            }
            Ok(Err(NoAnswer::NotSent(why))) => RequestEnd::Refused(why),
            Ok(Err(NoAnswer::Broken(why))) => RequestEnd::Unknown(why),
            Err(_) => RequestEnd::Unknown("no answer in time".to_owned()),
        };
        *connection = None;
        end
    }
}

/// Whether another node has done the request.
fn is_of_another_node(answer: &NodeAnswer, node: SocketAddr) -> bool {
    let served = answer.headers.get(SERVED_BY).and_then(|value| value.to_str().ok());
    served.is_some_and(|served| served != node.to_string())
}

fn end_of(answer: &NodeAnswer) -> RequestEnd {
    match answer.status {
        status if status.is_success() => RequestEnd::Done,
        // The node has done nothing.
        StatusCode::SERVICE_UNAVAILABLE => RequestEnd::Refused(answer.problem("code")),
        StatusCode::GATEWAY_TIMEOUT => RequestEnd::Unknown(answer.problem("code")),
        _ => RequestEnd::Failed(answer.problem("code")),
    }
}
