//! The end of a connection. The client gets the whole answer, even if it is still sending.

use std::time::Duration;

use clock::Clock;
use tokio::io::{AsyncReadExt, AsyncWriteExt};
use tracing::debug;

use super::{
    state::{RequestHandler, ServerState},
    transport::Transport,
};
use crate::stream::NodeStream;

/// The time that a client may go on sending bytes that the node discards, if no pause of the client
/// is longer than [`LINGER_QUIET`].
const LINGER: Duration = Duration::from_secs(10);
const LINGER_QUIET: Duration = Duration::from_secs(1);

/// Ends the node's half of a connection. If bytes of the client are left unread, it waits for the
/// client's half.
pub(super) async fn close<A: RequestHandler>(
    mut io: Transport,
    is_unread: bool,
    shared: &ServerState<A>,
) {
    // TLS says that the connection ends. A client that is slow to take its answer is slow to take
    // that, too, and must not delay a stop: the kernel has the answer already.
    let soon = shared.clock.now() + LINGER;
    let ended = tokio::select! {
        biased;
        ended = shared.clock.timeout_at(soon, io.stream().shutdown()) => ended,
        () = shared.asked_to_give_way() => return shared.gave_way.increment(1),
        () = shared.stop.cancelled() => return,
    };
    match ended {
        Ok(Ok(())) => {}
        Ok(Err(error)) => return debug!(%error, "connection broke"),
        Err(_) => return debug!("the client did not take the end of TLS in time"),
    }
    if is_unread {
        tokio::select! {
            () = linger(io.stream(), &shared.clock) => {}
            () = shared.asked_to_give_way() => shared.gave_way.increment(1),
            () = shared.stop.cancelled() => {}
        }
    }
}

/// Reads the bytes that the client still sends, until the client hangs up. If the node closed the
/// connection now, the kernel would answer those bytes with a reset, and the client could lose the
/// answer before reading it (RFC 9112, section 9.6).
async fn linger(stream: &mut NodeStream, clock: &Clock) {
    let end = clock.now() + LINGER;
    let mut scrap = vec![0; 16 << 10];
    loop {
        let until = end.min(clock.now() + LINGER_QUIET);
        match clock.timeout_at(until, stream.read(&mut scrap)).await {
            Ok(Ok(bytes)) if bytes > 0 => {}
            _ => return,
        }
    }
}
