//! An answer of a node that comes in pieces.

use std::{error::Error, io, time::Duration};

use base::with_causes;
use bytes::Bytes;
use clock::{Clock, Instant};
use http_body_util::BodyExt;
use hyper::{StatusCode, body::Incoming};

use super::{
    answer::NodeAnswer,
    no_answer::NoAnswer,
    node_client::{NodeClient, NodeRequest},
    target::NodeTarget,
};
use crate::CommandError;

/// The longest silence of a node that sends an answer.
const QUIET: Duration = Duration::from_secs(60);

/// The shortest pause of the command that an error names.
const PAUSE: Duration = Duration::from_secs(1);

/// An answer of the admin endpoint that is being received.
pub(crate) struct StreamedAnswer<'n> {
    node: &'n NodeTarget,
    clock: Clock,
    body: Incoming,
    /// When the command got the last piece.
    last: Instant,
    /// The longest time for which the command asked for no piece.
    pause: Duration,
    /// What to do if the command takes the pieces too slowly.
    advice: &'static str,
    /// The connection lives as long as its client.
    _client: NodeClient,
}

/// The beginning of an answer.
enum BegunAnswer {
    /// The body comes in pieces.
    Streamed(Incoming),
    /// The node refused the request, and this is the whole answer.
    Refusal(NodeAnswer),
}

impl<'n> StreamedAnswer<'n> {
    /// Sends a request to the admin endpoint, and waits for the beginning of the answer. `advice`
    /// says what to do if the command takes the answer too slowly.
    pub(crate) async fn open(
        node: &'n NodeTarget,
        request: NodeRequest<'_>,
        advice: &'static str,
    ) -> Result<StreamedAnswer<'n>, CommandError> {
        let clock = Clock::system();
        let unreachable = |why: String| node.unreachable(why);
        let begin = async {
            let mut client = NodeClient::connect(node).await?;
            let answer = client.begin(request).await?;
            let begun = match answer.status() {
                StatusCode::OK => BegunAnswer::Streamed(answer.into_body()),
                _ => BegunAnswer::Refusal(NodeAnswer::read(answer).await?),
            };
            Ok::<_, NoAnswer>((client, begun))
        };
        let begun = clock.timeout_at(clock.now() + QUIET, begin).await;
        let begun = begun.map_err(|_| unreachable(format!("no answer within {QUIET:?}")))?;
        let (client, begun) = begun.map_err(|error| unreachable(error.to_string()))?;
        match begun {
            BegunAnswer::Streamed(body) => {
                let (last, pause) = (clock.now(), Duration::ZERO);
                Ok(StreamedAnswer { node, clock, body, last, pause, advice, _client: client })
            }
            BegunAnswer::Refusal(refusal) => {
                let why = format!("{node} refused the request: {}", refusal.reason(node));
                Err(refusal.refused(node, why))
            }
        }
    }

    /// Waits for the next piece; `None` at the end of a whole answer.
    pub(crate) async fn next(&mut self) -> Result<Option<Bytes>, CommandError> {
        let now = self.clock.now();
        self.pause = self.pause.max(now - self.last);
        let piece = self.clock.timeout_at(now + QUIET, self.body.frame()).await;
        self.last = self.clock.now();
        let partial = |why| partial(self.node, why);
        match piece.map_err(|_| partial(format!("silence for {QUIET:?}")))? {
            None => Ok(None),
            Some(Ok(piece)) => Ok(Some(piece.into_data().unwrap_or_default())),
            Some(Err(error)) => {
                let blame = blame(&error, self.pause, self.advice).unwrap_or_default();
                Err(partial(format!("{}{blame}", with_causes(&error))))
            }
        }
    }
}

fn partial(node: &NodeTarget, why: String) -> CommandError {
    let what = format!("{node} sent only a part of the answer: {why}");
    CommandError::unfinished(format!("{what}: see the log of the node"))
}

/// The part of the error of a command that may have been too slow. The node cannot tell a client
/// that takes nothing, but the node resets only the connection of such a client. An answer that
/// ends early for another reason has another error.
fn blame(error: &(dyn Error + 'static), pause: Duration, advice: &str) -> Option<String> {
    let mut causes = std::iter::successors(Some(error), |error| (*error).source());
    let is_reset = causes.any(|cause| {
        let cause = cause.downcast_ref::<io::Error>();
        cause.is_some_and(|cause| cause.kind() == io::ErrorKind::ConnectionReset)
    });
    (is_reset && pause >= PAUSE).then(|| {
        format!(
            ": this command took nothing of the answer for {} s, because its own output waited, and \
             a node resets the connection of a client that takes nothing for `http.answer_seconds`: \
             {advice}",
            pause.as_secs()
        )
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    /// An error of hyper, which has that of the connection as its source.
    #[derive(Debug, thiserror::Error)]
    #[error("the connection broke")]
    struct Broken(#[source] io::Error);

    /// The error of each answer that ended early blamed the command if its output had once waited
    /// for a second, also if the node had stopped.
    #[test]
    fn only_a_reset_after_a_pause_blames_the_command() {
        let (short, long) = (Duration::from_millis(900), Duration::from_secs(70));
        let broken = |kind: io::ErrorKind| Broken(kind.into());
        let reset = broken(io::ErrorKind::ConnectionReset);
        let blamed = blame(&reset, long, "use a file").unwrap();
        assert!(blamed.contains("for 70 s") && blamed.ends_with(": use a file"), "{blamed}");
        assert_eq!(blame(&reset, short, "use a file"), None);
        for kind in [io::ErrorKind::UnexpectedEof, io::ErrorKind::TimedOut] {
            assert_eq!(blame(&broken(kind), long, "use a file"), None, "{kind:?}");
        }
    }
}
