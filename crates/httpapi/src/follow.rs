//! Following a log: events are sent as they are applied, until the client or the partition leaves.
//!
//! A follower first reads the events that are there, as the reader of a whole log does. At the end of
//! the log it takes the next events from the [tail](FollowedLog) that all followers of the log share.
//! The first follower that finds the tail outdated reads for all.
//!
//! A follower holds the means of a read only while it reads earlier events, and gives them back after
//! [`READ_TIME`]. A follower at the end of the log holds its place, and waits without a thread.

mod format;
mod places;
mod request;
mod tail;

use std::{io, sync::Arc, time::Duration};

use bytes::Bytes;
use clock::{Clock, Instant};
use futures::{
    StreamExt, TryStreamExt,
    stream::{self, BoxStream},
};
use hyper::{
    Response,
    body::Frame,
    header::{CACHE_CONTROL, HeaderName, HeaderValue},
};
use tokio_util::sync::CancellationToken;
use vvm::{
    OwnedLog,
    eventlog::{self, Entry, Offset},
    processor::{LogName, LogWatch, Refused},
};

use self::{
    format::{EventFormat, EventPiece},
    request::FollowStart,
    tail::{FollowedLog, TailEvents},
};
pub(crate) use self::{
    places::{FollowerPlace, FollowerPlaces},
    request::{FollowRequest, is_followed},
    tail::FollowedLogs,
};
use crate::{
    problem::ProblemDetails,
    read::{LogPermits, LogReads, event_json, read_problem},
    response::{Body, Endless, stream_response},
};

/// The bytes of events after which a piece of an answer ends. More would only wait in memory.
const PIECE_BYTES: usize = 8 << 10;

/// The longest silence. A client notices by it that the connection is lost.
const QUIET: Duration = Duration::from_secs(15);

/// The time after which a follower that still reads earlier events lets others read.
const READ_TIME: Duration = Duration::from_secs(5);

/// Asks nginx to pass on each event at once.
const ACCEL_BUFFERING: HeaderName = HeaderName::from_static("x-accel-buffering");

/// What all followers of a node share.
#[derive(Debug)]
pub(crate) struct FollowContext {
    pub(crate) clock: Clock,
    pub(crate) reads: LogReads,
    /// Cancelled when the node stops.
    pub(crate) stop: CancellationToken,
}

/// A client that follows a log.
struct Follower {
    context: Arc<FollowContext>,
    log: OwnedLog,
    followed: Arc<FollowedLog>,
    watch: LogWatch,
    /// The offset of the next event of the log.
    next: u64,
    /// The first offset that the client wants.
    from: u64,
    /// The number of events that the client still wants.
    left: u64,
    /// The end of the client's token.
    until: Instant,
    format: EventFormat,
    /// The events that were there, while the follower reads them itself.
    earlier: Option<EarlierEvents>,
    _place: FollowerPlace,
}

struct EarlierEvents {
    entries: BoxStream<'static, eventlog::Result<Entry>>,
    /// The time at which the permits go to others.
    until: Instant,
    _permits: LogPermits,
}

/// Begins to follow a log, until the token of the client ends at `until`. If events are there already,
/// the first one is read by the deadline.
pub(crate) async fn follow(
    context: Arc<FollowContext>,
    log: OwnedLog,
    followed: Arc<FollowedLog>,
    (request, deadline, until): (FollowRequest, Instant, Instant),
    place: FollowerPlace,
) -> Result<Response<Body>, ProblemDetails> {
    let busy = |busy| ProblemDetails::refused(Refused::Busy(busy));
    let watch = log.watch();
    let end = log.end().await.map_err(busy)?.map_err(read_problem)?.0;
    let from = match request.start {
        FollowStart::At(from) => from,
        FollowStart::End => end,
    };
    // A client may ask for events that do not exist yet.
    let next = from.min(end);
    let earlier = match next < end {
        true => {
            let permits = context.reads.of_follower(deadline).await?;
            let mut entries = log.read(Offset(next)).map_err(busy)?;
            // The first read comes before the answer begins. If it fails, the client still gets a
            // problem.
            let first = context.reads.throttle.run(entries.try_next()).await;
            let first = first.map_err(read_problem)?;
            let entries = stream::iter(first.map(Ok)).chain(entries).boxed();
            Some(EarlierEvents::new(entries, permits, &context.clock))
        }
        false => None,
    };
    let format = request.format;
    let follower = Follower {
        earlier,
        left: request.limit.unwrap_or(u64::MAX),
        until,
        _place: place,
        context,
        log,
        followed,
        watch,
        next,
        from,
        format,
    };
    let pieces = stream::try_unfold(follower, |mut follower| async move {
        match follower.piece().await {
            Ok(piece) => Ok(piece.map(|piece| (piece, follower))),
            Err(error) => {
                // hyper sends what it has when the body pauses, and drops it at an error.
                tokio::task::yield_now().await;
                Err(error)
            }
        }
    });
    let frames = |piece: Vec<Bytes>| stream::iter(piece).map(|bytes| Ok(Frame::data(bytes)));
    let pieces = pieces.map_ok(frames).try_flatten();
    let opening = stream::iter(format.opening(from).map(|text| Ok(Frame::data(text.into()))));
    let mut response = stream_response(format.content_type(), opening.chain(pieces).boxed());
    response.extensions_mut().insert(Endless);
    let headers = response.headers_mut();
    headers.insert(CACHE_CONTROL, HeaderValue::from_static("no-store"));
    headers.insert(ACCEL_BUFFERING, HeaderValue::from_static("no"));
    Ok(response)
}

impl Follower {
    /// Waits for the next events, or for the time at which the client must hear something. `None` at
    /// the end: the client has all that it wanted, or the partition leaves this node.
    async fn piece(&mut self) -> io::Result<Option<Vec<Bytes>>> {
        let quiet_until = self.context.clock.now() + QUIET;
        while self.left > 0 && !self.has_ended() {
            if let Some(events) = self.earlier_events().await? {
                if let Some(piece) = self.rendered(&events)? {
                    return Ok(Some(piece));
                }
                continue;
            }
            match self.followed.events(self.next, PIECE_BYTES) {
                TailEvents::Events(events) => {
                    if let Some(piece) = self.rendered(&events)? {
                        return Ok(Some(piece));
                    }
                }
                TailEvents::Behind => self.read_earlier().await?,
                TailEvents::End if self.followed.is_outdated() => self.read_for_all().await?,
                TailEvents::End => {
                    let known = self.followed.read_changes().unwrap_or_default();
                    let changed = self.watch.changed(known);
                    let changed =
                        self.context.clock.timeout_at(quiet_until.min(self.until), changed);
                    match self.context.stop.run_until_cancelled(changed).await {
                        Some(Ok(Ok(_))) => {}
                        Some(Err(_)) if self.has_ended() => return Ok(None),
                        Some(Err(_)) => return Ok(Some(vec![self.format.sign_of_life()])),
                        Some(Ok(Err(_))) | None => return Ok(None),
                    }
                }
            }
        }
        Ok(None)
    }

    /// Whether the node stops, or the token of the client has ended.
    fn has_ended(&self) -> bool {
        self.context.stop.is_cancelled() || self.context.clock.now() >= self.until
    }

    /// The next of the events that the follower reads itself; `None` if there are no more.
    async fn earlier_events(&mut self) -> io::Result<Option<Vec<Bytes>>> {
        if self.earlier.as_ref().is_some_and(|it| it.until <= self.context.clock.now()) {
            self.earlier = None;
            self.read_earlier().await?;
        }
        let Some(earlier) = &mut self.earlier else { return Ok(None) };
        let name = self.log.name();
        let events = some_events(&mut earlier.entries, name);
        let events = self.context.reads.throttle.run(events).await?.0;
        if events.is_empty() {
            self.earlier = None;
            return Ok(None);
        }
        Ok(Some(events))
    }

    /// Begins to read events that the tail does not have any more.
    async fn read_earlier(&mut self) -> io::Result<()> {
        let permits = self.context.reads.of_follower(self.deadline()).await.map_err(refused)?;
        let entries = self.log.read(Offset(self.next)).map_err(other)?;
        self.earlier = Some(EarlierEvents::new(entries, permits, &self.context.clock));
        Ok(())
    }

    /// Reads the next events for all followers of the log.
    async fn read_for_all(&mut self) -> io::Result<()> {
        let _reading = self.followed.reading.lock().await;
        if !self.followed.is_outdated()
            || !matches!(self.followed.events(self.next, 1), TailEvents::End)
        {
            return Ok(());
        }
        let reads = &self.context.reads;
        let _share = reads.share(self.deadline()).await.map_err(refused)?;
        let changes = self.followed.changes();
        let mut entries =
            self.log.read(Offset(self.followed.begin_read(self.next))).map_err(other)?;
        let (events, is_end) =
            reads.throttle.run(some_events(&mut entries, self.log.name())).await?;
        self.followed.add(events, is_end.then_some(changes));
        Ok(())
    }

    /// The events as the client gets them; `None` if the client wants none of them.
    fn rendered(&mut self, events: &[Bytes]) -> io::Result<Option<Vec<Bytes>>> {
        // The events may be shown only if this node was still the owner after they were read.
        if !self.log.may_answer() {
            return Err(other("this node no longer owns the partition"));
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

    /// The most time to wait for the memory or the turn of a read.
    fn deadline(&self) -> Instant {
        self.context.clock.now() + QUIET
    }
}

impl EarlierEvents {
    fn new(
        entries: BoxStream<'static, eventlog::Result<Entry>>,
        permits: LogPermits,
        clock: &Clock,
    ) -> EarlierEvents {
        EarlierEvents { entries, until: clock.now() + READ_TIME, _permits: permits }
    }
}

/// Reads some events as JSON, and tells whether the log has no more. Events that were read before an
/// error are returned first: the next read meets the error again.
async fn some_events(
    entries: &mut BoxStream<'static, eventlog::Result<Entry>>,
    log: LogName,
) -> io::Result<(Vec<Bytes>, bool)> {
    let (mut events, mut bytes) = (Vec::new(), 0);
    while bytes < PIECE_BYTES {
        let entry = match entries.try_next().await {
            Ok(Some(entry)) => entry,
            Ok(None) => return Ok((events, true)),
            Err(error) if events.is_empty() => return Err(other(error)),
            Err(_) => return Ok((events, false)),
        };
        let event = event_json(&entry, log);
        bytes += event.len();
        events.push(event);
    }
    Ok((events, false))
}

fn refused(problem: ProblemDetails) -> io::Error {
    other(problem.reason())
}

fn other(error: impl Into<Box<dyn std::error::Error + Send + Sync>>) -> io::Error {
    io::Error::other(error)
}
