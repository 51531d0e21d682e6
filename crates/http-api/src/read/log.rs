//! Sending a log while it is read.

use std::{io, sync::Arc};

use clock::{Clock, Instant};
use futures::{StreamExt, stream};
use http_server::{
    READ_BYTES,
    authentication::TokenEnd,
    event_stream::cut_at,
    limits::{
        MemoryPool, MemoryShare, NoPlace, Place, PlaceTaker, Places, ReadThrottle, SendPlaces,
    },
    problem::{Answer, ProblemDetails, TOO_MANY_FOLLOWERS},
    query::{END, END_WITHOUT_FOLLOW, NO_OFFSET, limit, parameter},
    response::stream_response,
};
use hyper::body::Frame;
use processor::LogName;
use vvm::{LocalPartition, OwnedLog, eventlog::Offset};

use super::{
    events::LogEvents,
    record::{STEP_BYTES, check_workspace_exists, read_problem},
};
use crate::refusal::problem_of_busy;

/// The largest number of events in an answer.
pub(crate) const MOST_EVENTS: usize = 1_000_000;

/// The means of all readers of logs.
#[derive(Clone, Debug)]
pub(crate) struct LogReads {
    pub(crate) throttle: ReadThrottle,
    logs: Arc<SendPlaces>,
    /// The places of followers that read events which were there before. Plain logs never wait for
    /// followers.
    followers: Arc<Places>,
    answers: MemoryPool,
    /// The memory of the reads of new events for followers. Answers never wait for these reads.
    tails: MemoryPool,
    clock: Clock,
}

/// The resources that a log holds while it is being sent, or read for a follower.
#[derive(Debug)]
pub(crate) struct LogPermits {
    /// The place of one of the logs that may be read at the same time.
    _log: Place,
    _share: MemoryShare,
}

impl LogReads {
    /// At most `most` logs are sent at the same time. Followers read a quarter as many besides.
    pub(crate) fn new(
        throttle: ReadThrottle,
        most: usize,
        answers: MemoryPool,
        tails: MemoryPool,
        clock: Clock,
    ) -> LogReads {
        let logs = SendPlaces::new("this node sends", most, clock.clone());
        // All followers may wait for their turns. There is a limit of followers.
        let followers = Places::new(most.div_ceil(4), TOO_MANY_FOLLOWERS, clock.clone())
            .most_waiting(usize::MAX);
        let (logs, followers) = (Arc::new(logs), Arc::new(followers));
        LogReads { throttle, logs, followers, answers, tails, clock }
    }

    /// Waits for the resources of a log that is sent to a principal.
    pub(crate) async fn permits(
        &self,
        taker: PlaceTaker<'_>,
        deadline: Instant,
    ) -> Result<LogPermits, ProblemDetails> {
        let place = self.logs.take(taker, deadline).await?;
        self.with_memory(place, taker, deadline).await
    }

    /// Waits for the resources of a follower that reads events from before the tail of its log.
    pub(crate) async fn of_follower(
        &self,
        principal: Option<&str>,
        deadline: Instant,
    ) -> Result<LogPermits, ProblemDetails> {
        let place = self.followers.take(principal, 1, deadline).await;
        // The share of these places bounds the memory of the principal, too. An answer that waits
        // for the share of its memory may be refused, and a follower must not be.
        let place = place.map_err(|why| LogReads::no_place(&self.followers, why))?;
        self.with_memory(place, PlaceTaker::from(None), deadline).await
    }

    /// The problem of a follower that gets no place.
    pub(crate) fn no_place(places: &Places, why: NoPlace) -> ProblemDetails {
        places.problem(why, |most, of| {
            format!(
                "at most {most} followers{of} read earlier events at the same time: follow the log \
                 again later"
            )
        })
    }

    async fn with_memory(
        &self,
        place: Place,
        taker: PlaceTaker<'_>,
        deadline: Instant,
    ) -> Result<LogPermits, ProblemDetails> {
        let share = self.answers.reserve_in_half(taker, READ_BYTES, deadline).await?;
        Ok(LogPermits { _log: place, _share: share })
    }

    /// Waits for the memory of a read of new events.
    pub(crate) async fn share_of_tail(&self) -> Result<MemoryShare, ProblemDetails> {
        self.tails.reserve(None, READ_BYTES, Instant::FAR_FUTURE).await
    }

    /// Sends a log, one event a line, up to the last event that is applied. At the end of the token
    /// of the client the answer is cut.
    pub(crate) async fn send(
        &self,
        partition: &LocalPartition<'_>,
        name: LogName,
        query: Option<&str>,
        held: LogPermits,
        token_end: TokenEnd,
    ) -> Answer {
        if parameter::<String>(query, "from")?.as_deref() == Some(END) {
            return Err(ProblemDetails::bad_request(END_WITHOUT_FOLLOW));
        }
        let from: u64 = parameter(query, "from")?.unwrap_or(Offset::FIRST.0);
        let limit = limit(query, MOST_EVENTS)?;
        if from == 0 {
            return Err(ProblemDetails::bad_request(NO_OFFSET));
        }
        let log = partition.log(name);
        let entries = log.read(Offset(from));
        let entries = entries.map_err(problem_of_busy)?;
        let mut events = LogEvents::new(entries, name, self.throttle.clone());
        let has_events = events.read_first().await.map_err(read_problem)?;
        if !has_events && let LogName::Workspace(ws) = name {
            check_workspace_exists(partition, ws).await?;
        }
        let lines = LogLines { events: events.limited(limit), log, _held: held };
        let pieces = stream::try_unfold(lines, |mut lines| async move {
            let piece = lines.next().await?;
            Ok(piece.map(|piece| (Frame::data(piece.into()), lines)))
        });
        let pieces = cut_at(token_end, self.clock.clone(), pieces.boxed());
        Ok(stream_response("application/x-ndjson", pieces))
    }
}

/// A log that is being sent.
struct LogLines {
    events: LogEvents,
    log: OwnedLog,
    _held: LogPermits,
}

impl LogLines {
    /// Reads some whole lines; `None` at the end.
    async fn next(&mut self) -> io::Result<Option<Vec<u8>>> {
        let events = self.events.next(STEP_BYTES).await.map_err(io::Error::other)?;
        if !self.log.may_answer() {
            return Err(io::Error::other("this node no longer leads the partition"));
        }
        let mut lines = Vec::with_capacity(events.iter().map(|event| event.len() + 1).sum());
        for event in &events {
            lines.extend_from_slice(event);
            lines.push(b'\n');
        }
        Ok((!lines.is_empty()).then_some(lines))
    }
}
