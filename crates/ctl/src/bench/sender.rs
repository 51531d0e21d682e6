//! A client that sends one request after another.

use std::time::Duration;

use clock::{Clock, Instant};
use hyper::header::{CONNECTION, HeaderName, HeaderValue};
use tokio_util::sync::CancellationToken;

use super::{
    load::{ANSWER_TIMEOUT, RequestLoad},
    outcome::{BenchOutcome, SentCommand},
    progress::BenchProgress,
    tries::{PAUSE, RequestEnd, RequestTries},
};
use crate::{
    CommandError,
    client::{NoAnswer, NodeAnswer, NodeClient, NodeRequest, NodeTarget},
};

#[cfg(test)]
mod tests;

const REQUEST_ID: HeaderName = HeaderName::from_static("x-request-id");
const IDEMPOTENCY_KEY: HeaderName = HeaderName::from_static("idempotency-key");
const SERVED_BY: HeaderName = HeaderName::from_static("x-vvm-served-by");

/// The most time for a connection. If the machine of a node is gone, nothing refuses the
/// connection.
const CONNECT_TIMEOUT: Duration = Duration::from_secs(3);

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
type Connection<'l> = Option<(&'l NodeTarget, NodeClient)>;

impl<'l> BenchClient<'l> {
    /// Sends one request after another, and returns the outcome.
    pub(super) async fn send_requests(
        &self,
        end: Instant,
        stop: &CancellationToken,
    ) -> Result<BenchOutcome, CommandError> {
        let (load, clock) = (self.load, &self.clock);
        let mut outcome = BenchOutcome::new()?;
        let mut connection = None;
        for number in 0.. {
            let start = clock.now();
            if start >= end || stop.is_cancelled() {
                break;
            }
            let ws = 1 + clock.random() % u64::from(load.workspaces);
            let end = self.request(&mut connection, &mut outcome, ws, number).await;
            if load.is_checked {
                outcome.sent.push(SentCommand { ws, client: self.number, number, end: end.kind() });
            }
            if end == RequestEnd::Done {
                outcome.times.saturating_record((clock.now() - start).as_micros() as u64);
                self.progress.note_done();
            } else {
                clock.sleep(PAUSE).await;
            }
        }
        Ok(outcome)
    }

    /// Sends a request until it is done, or cannot be sent again. Counts its tries and its end.
    async fn request(
        &self,
        connection: &mut Connection<'l>,
        outcome: &mut BenchOutcome,
        ws: u64,
        number: u64,
    ) -> RequestEnd {
        let until = self.clock.now() + ANSWER_TIMEOUT;
        let id = self.load.request_id(self.number, number);
        let nodes = self.load.nodes.len();
        let can_be_done_twice = self.load.has_keys || self.load.method.is_safe();
        let mut tries = RequestTries::new(nodes, can_be_done_twice, until);
        let within = if can_be_done_twice && nodes > 1 { TRY_TIMEOUT } else { ANSWER_TIMEOUT };
        loop {
            let try_until = until.min(self.clock.now() + within);
            let end = self.send_once(connection, outcome, (ws, &id), try_until).await;
            match tries.next(end, self.clock.now()) {
                Ok(next) => {
                    *outcome.tries_again.entry(next.why).or_default() += 1;
                    // The next connection goes to the next node.
                    *connection = None;
                    self.clock.sleep(next.pause).await;
                }
                Err(end) => {
                    outcome.note_end(&end, tries.were_several());
                    return end;
                }
            }
        }
    }

    async fn send_once(
        &self,
        connection: &mut Connection<'l>,
        outcome: &mut BenchOutcome,
        (ws, id): (u64, &str),
        until: Instant,
    ) -> RequestEnd {
        let (node, connected) = match connection.take() {
            Some((node, client)) => (node, Ok(client)),
            None => {
                let node = self.load.next_node();
                (node, self.connect(node, until).await)
            }
        };
        outcome.note_request(&node.address);
        let mut client = match connected {
            Ok(client) => client,
            Err(why) => return RequestEnd::Refused(why),
        };
        match self.clock.timeout_at(until, self.send(&mut client, ws, id)).await {
            Ok(Ok(answer)) => {
                outcome.note_answer(&node.address, is_of_another_node(&answer, client.peer()));
                // A node that drains asks its clients to connect elsewhere.
                if answer.headers.get(CONNECTION).is_none_or(|it| it != "close") {
                    *connection = Some((node, client));
                }
                RequestEnd::of(&answer)
            }
            Ok(Err(NoAnswer::NotSent(why))) => RequestEnd::Refused(why),
            Ok(Err(NoAnswer::Broken(why))) => RequestEnd::Unknown(why),
            Err(_) => RequestEnd::Unknown("no answer in time".to_owned()),
        }
    }

    async fn connect(&self, node: &NodeTarget, until: Instant) -> Result<NodeClient, String> {
        let until = until.min(self.clock.now() + CONNECT_TIMEOUT);
        match self.clock.timeout_at(until, NodeClient::connect(node)).await {
            Ok(connected) => connected.map_err(|error| error.to_string()),
            Err(_) => Err("no connection in time".to_owned()),
        }
    }

    async fn send(
        &self,
        client: &mut NodeClient,
        ws: u64,
        id: &str,
    ) -> Result<NodeAnswer, NoAnswer> {
        let path = self.load.path(ws);
        let id = HeaderValue::from_str(id).map_err(|error| NoAnswer::NotSent(error.to_string()))?;
        let headers = [(REQUEST_ID, id.clone()), (IDEMPOTENCY_KEY, id)];
        let headers = if self.load.has_keys { &headers[..] } else { &headers[..1] };
        let (method, body) = (self.load.method.clone(), self.load.body.clone());
        client.send(NodeRequest { method, path: &path, headers, body }).await
    }
}

/// Whether the node at the other end of the connection forwarded the request to another node.
fn is_of_another_node(answer: &NodeAnswer, peer: &str) -> bool {
    let served = answer.headers.get(SERVED_BY).and_then(|value| value.to_str().ok());
    served.is_some_and(|served| served != peer)
}
