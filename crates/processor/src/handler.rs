//! The port to the handlers of commands.

use std::fmt;

use async_trait::async_trait;
use bytes::Bytes;

use crate::{CommandContext, HandlerError, RowChange};

/// Runs the commands of one name. A handler sees the effects of all earlier commands. No other
/// reader sees the effects of the command before its event is in the log.
///
/// A handler may run although its command is not done in the end, so a handler must act only
/// through its [`CommandContext`]. The handler of the first command of a group has until the
/// deadline of its command. The handler of a later command has less time: it may be dropped at any
/// `await`, and run again from its beginning. A handler that panics has failed.
#[async_trait]
pub trait Handler: fmt::Debug + Send + Sync + 'static {
    /// Runs a command with its params and rows. The returned bytes become part of the answer. The
    /// params and the result are any bytes here. Over HTTP both are JSON: a result that is not JSON
    /// is answered as Base64. A result has at most [`MOST_RESULT_BYTES`](crate::MOST_RESULT_BYTES),
    /// or fewer if the sender of the command [says so](crate::Command::most_result_bytes).
    /// If the handler fails or its result is larger, nothing is written. Rows that the handler does
    /// not [write](CommandContext::write) are not written either.
    async fn run(
        &self,
        params: &Bytes,
        rows: Vec<RowChange>,
        context: &mut CommandContext<'_>,
    ) -> Result<Bytes, HandlerError>;
}
