//! Following a log: events are sent as they are applied, until the client or the partition leaves.
//!
//! The answer ends after a whole event when the partition leaves. The client asks the next owner
//! for the event after its last one, so it gets each event once.
//!
//! A task of the log reads each new event once, into the [tail](FollowedLog) that all its followers
//! share. A follower that needs events from before the tail reads them [itself](EarlierEvents).
//!
//! Invariant: a client that stops receiving holds up no client of another log. It holds nothing
//! that others wait for, except memory for large events, and its log gets only a [part](log_limits)
//! of that. The places of reads belong to the tasks that read. They give them back while they wait.

mod context;
mod earlier;
mod log_limits;
mod logs;
mod request;
mod tail;
mod tail_reader;

use std::{io, sync::Arc};

use bytes::Bytes;
use clock::Instant;
use futures::{StreamExt, TryStreamExt, stream};
use http_server::{
    authentication::TokenEnd,
    event_stream::{EventFormat, EventPiece, FollowEnds},
    limits::Permit,
    problem::Answer,
    response::{Endless, stream_response},
};
use hyper::{
    body::Frame,
    header::{HeaderName, HeaderValue},
};
use tokio::sync::watch;
use vvm::OwnedLog;

pub(crate) use self::{
    context::FollowContext,
    logs::{FollowedLogs, FollowedPartition},
    request::{FollowRequest, is_followed},
    tail::TAIL_BYTES,
};
use self::{
    context::PIECE_BYTES,
    earlier::{EarlierEvents, EarlierReader},
    logs::FollowedLog,
    request::FollowStart,
    tail::{Tail, TailEvents},
};
use crate::{read::read_problem, refusal::problem_of_busy};

/// Asks nginx to pass on each event at once.
const ACCEL_BUFFERING: HeaderName = HeaderName::from_static("x-accel-buffering");

/// A client that follows a log.
struct Follower {
    context: Arc<FollowContext>,
    log: OwnedLog,
    tail: watch::Receiver<Tail>,
    /// The offset of the next event of the log.
    next: u64,
    /// The first offset that the client wants.
    from: u64,
    /// The number of events that the client still wants.
    left: u64,
    format: EventFormat,
    /// The events from before the tail, while the follower needs them.
    earlier: Option<EarlierEvents>,
    followed: Arc<FollowedLog>,
    principal: Option<Arc<str>>,
    _permit: Permit,
}

/// A client that is to follow a log.
pub(crate) struct NewFollower {
    pub(crate) request: FollowRequest,
    /// When to stop waiting for the first event from before the tail, if the client needs such
    /// events.
    pub(crate) deadline: Instant,
    pub(crate) token_end: TokenEnd,
    pub(crate) principal: Option<Arc<str>>,
    /// The permit of one follower of the node.
    pub(crate) permit: Permit,
}

/// Begins to follow a log, until the token of the client ends.
pub(crate) async fn follow(
    context: &Arc<FollowContext>,
    logs: &FollowedLogs,
    of: FollowedPartition,
    log: OwnedLog,
    NewFollower { request, deadline, token_end, principal, permit }: NewFollower,
) -> Answer {
    let end = log.end().await.map_err(problem_of_busy)?.map_err(read_problem)?.0;
    let from = match request.start {
        FollowStart::At(from) => from,
        FollowStart::End => end,
    };
    // A client may ask for events that do not exist yet.
    let next = from.min(end);
    let followed = logs.of(of, &log, end, context);
    let earlier = match followed.tail().borrow().events(next, 1) {
        TailEvents::Behind => true,
        TailEvents::Events(_) | TailEvents::End | TailEvents::Failed(_) => false,
    };
    let earlier = match earlier {
        true => {
            let reader = EarlierReader::new(context, &log, &followed, principal.as_ref(), next);
            let mut begun = reader.read(deadline).await?;
            begun.events.read_first().await.map_err(read_problem)?;
            Some(EarlierEvents::begin(reader, Some(begun)))
        }
        false => None,
    };
    let ends = FollowEnds::new(&context.clock, followed.ended().clone(), token_end);
    let format = request.format;
    let follower = Follower {
        earlier,
        left: request.limit.unwrap_or(u64::MAX),
        tail: followed.tail().clone(),
        context: Arc::clone(context),
        log,
        next,
        from,
        format,
        followed,
        principal,
        _permit: permit,
    };
    let pieces = stream::try_unfold(follower, |mut follower| async move {
        Ok(follower.piece().await?.map(|piece| (piece, follower)))
    });
    let pieces = ends.with_signs_of_life(pieces.boxed(), format);
    let frames = |piece: Vec<Bytes>| stream::iter(piece).map(|bytes| Ok(Frame::data(bytes)));
    let pieces = pieces.map_ok(frames).try_flatten();
    let opening = stream::iter(format.opening(from).map(|text| Ok(Frame::data(text.into()))));
    let mut response = stream_response(format.content_type(), opening.chain(pieces).boxed());
    response.extensions_mut().insert(Endless);
    let headers = response.headers_mut();
    headers.insert(ACCEL_BUFFERING, HeaderValue::from_static("no"));
    Ok(response)
}

impl Follower {
    /// Waits for the next events. `None` at the end: the client has all that it wanted, or the
    /// partition leaves this node.
    async fn piece(&mut self) -> io::Result<Option<Vec<Bytes>>> {
        while self.left > 0 {
            let found = self.tail.borrow_and_update().events(self.next, PIECE_BYTES);
            let events = match found {
                TailEvents::Events(events) => {
                    self.earlier = None;
                    events
                }
                TailEvents::Behind => match self.earlier_events().await? {
                    Some(events) => events,
                    None => continue,
                },
                TailEvents::End => match self.tail.changed().await {
                    Ok(()) => continue,
                    Err(_) => return Ok(None),
                },
                TailEvents::Failed(reason) => return Err(io::Error::other(reason)),
            };
            if let Some(piece) = self.rendered(&events)? {
                return Ok(Some(piece));
            }
        }
        Ok(None)
    }

    /// Waits for the next events from before the tail. `None` if the read has come to the end of
    /// the log, and must begin again if the follower needs more.
    async fn earlier_events(&mut self) -> io::Result<Option<Vec<Bytes>>> {
        let begin = || {
            let (context, principal) = (&self.context, self.principal.as_ref());
            let reader =
                EarlierReader::new(context, &self.log, &self.followed, principal, self.next);
            EarlierEvents::begin(reader, None)
        };
        let earlier = self.earlier.get_or_insert_with(begin);
        let events = earlier.next().await.transpose()?;
        if events.is_none() {
            self.earlier = None;
        }
        Ok(events)
    }

    /// The events as the client gets them; `None` if the client wants none of them.
    fn rendered(&mut self, events: &[Bytes]) -> io::Result<Option<Vec<Bytes>>> {
        // The events may be shown only if this node was still the owner after they were read.
        if !self.log.may_answer() {
            return Err(io::Error::other("this node no longer owns the partition"));
        }
        let mut piece = EventPiece::new(self.format);
        for event in events {
            if self.next >= self.from && self.left > 0 {
                piece.add(self.next, event);
                self.left -= 1;
            }
            self.next += 1;
        }
        let piece = piece.into_parts();
        Ok((!piece.is_empty()).then_some(piece))
    }
}
