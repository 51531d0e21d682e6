//! An answer of a node that comes in pieces.

use std::time::Duration;

use bytes::Bytes;
use causes::with_causes;
use clock::{Clock, Instant};
use http_body_util::BodyExt;
use hyper::{Method, StatusCode, body::Incoming};

use crate::{
    command_error::CommandError,
    node_client::{NoAnswer, NodeAnswer, NodeClient, NodeRequest, NodeTarget, no_answer},
};

/// The longest silence of a node that sends an answer.
const QUIET: Duration = Duration::from_secs(60);

/// The shortest pause of the command that an error names.
const PAUSE: Duration = Duration::from_secs(1);

/// An answer of the admin endpoint that is being received.
pub(crate) struct NodeStream<'n> {
    node: &'n NodeTarget,
    clock: Clock,
    body: Incoming,
    /// When the command got the last piece.
    last: Instant,
    /// The longest time for which the command asked for no piece.
    pause: Duration,
    /// The connection lives as long as its client.
    _client: NodeClient,
}

impl<'n> NodeStream<'n> {
    /// Sends a request to the admin endpoint, and waits for the beginning of the answer.
    pub(crate) async fn open(
        node: &'n NodeTarget,
        (method, path): (Method, &str),
    ) -> Result<NodeStream<'n>, CommandError> {
        let clock = Clock::system();
        let unreachable =
            |why: String| CommandError::unreachable(no_answer(node, "admin.listen", why));
        let begin = async {
            let mut client = NodeClient::connect(node).await?;
            let request = NodeRequest { method, path, headers: &[], body: Bytes::new() };
            let answer = client.begin(request).await?;
            let is_whole = answer.status() == StatusCode::OK;
            let refusal = match is_whole {
                true => Err(answer.into_body()),
                false => Ok(NodeAnswer::read(answer).await?),
            };
            Ok::<_, NoAnswer>((client, refusal))
        };
        let begun = clock.timeout_at(clock.now() + QUIET, begin).await;
        let begun = begun.map_err(|_| unreachable(format!("no answer within {QUIET:?}")))?;
        let (client, answer) = begun.map_err(|error| unreachable(error.to_string()))?;
        match answer {
            Err(body) => {
                let (last, pause) = (clock.now(), Duration::ZERO);
                Ok(NodeStream { node, clock, body, last, pause, _client: client })
            }
            Ok(refusal) => {
                let why = format!("{node} refused the request: {}", refusal.reason());
                Err(match refusal.status {
                    StatusCode::SERVICE_UNAVAILABLE => CommandError::unreachable(why),
                    _ => CommandError::unfinished(why),
                })
            }
        }
    }

    /// Waits for the next piece; `None` at the end of a whole answer.
    pub(crate) async fn next(&mut self) -> Result<Option<Bytes>, CommandError> {
        let now = self.clock.now();
        self.pause = self.pause.max(now - self.last);
        let piece = self.clock.timeout_at(now + QUIET, self.body.frame()).await;
        self.last = self.clock.now();
        match piece.map_err(|_| self.broken(format!("silence for {QUIET:?}")))? {
            None => Ok(None),
            Some(Ok(piece)) => Ok(Some(piece.into_data().unwrap_or_default())),
            Some(Err(error)) => Err(self.broken(with_causes(&error))),
        }
    }

    /// The error of an answer that ended early. Only the command knows that it took nothing: the
    /// node cannot tell a client that reads nothing.
    fn broken(&self, why: String) -> CommandError {
        let NodeStream { node, pause, .. } = self;
        let pause = match *pause >= PAUSE {
            true => format!(
                ": this command took nothing of the answer for {} s while its own output waited, \
                 and a node ends such an answer: write the output to a file, and read the file",
                pause.as_secs()
            ),
            false => String::new(),
        };
        let what = format!("{node} sent only a part of the answer: {why}{pause}");
        CommandError::unfinished(format!("{what}: see the log of the node"))
    }
}
