//! An answer of a node that comes in pieces.

use std::{error::Error, io, time::Duration};

use base::with_causes;
use bytes::Bytes;
use clock::{Clock, Instant};

use super::{
    node_client::{AnswerPieces, NodeClient, NodeRequest},
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
    pieces: AnswerPieces,
    /// When the command got the last piece.
    last: Instant,
    /// The longest pause between a piece and the command's request for the next one.
    pause: Duration,
    /// What to do if the command takes the pieces too slowly.
    advice: &'static str,
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
        let begun = NodeClient::open(&clock, node, request, QUIET).await;
        let pieces = begun.map_err(|why| node.unreachable(why))?.map_err(|refusal| {
            let why = format!("{node} refused the request: {}", refusal.reason(node));
            refusal.refused(node, why)
        })?;
        let (last, pause) = (clock.now(), Duration::ZERO);
        Ok(StreamedAnswer { node, clock, pieces, last, pause, advice })
    }

    /// Waits for the next piece; `None` at the end of a whole answer.
    pub(crate) async fn next(&mut self) -> Result<Option<Bytes>, CommandError> {
        let now = self.clock.now();
        self.pause = self.pause.max(now - self.last);
        let piece = self.clock.timeout_at(now + QUIET, self.pieces.next()).await;
        self.last = self.clock.now();
        let partial = |why| partial(self.node, why);
        match piece.map_err(|_| partial(format!("silence for {QUIET:?}")))? {
            None => Ok(None),
            Some(Ok(piece)) => Ok(Some(piece)),
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

/// The part of the error that blames a command that may have been too slow. The node cannot tell
/// this to a client that takes nothing, but it resets the connection of no other client. An answer
/// that ends early for another reason has another error.
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
    /// for a second, even if the node had stopped.
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
