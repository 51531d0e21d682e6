//! The events of a log as JSON, in pieces: for answers that end, and for followers.

use std::sync::Arc;

use bytes::Bytes;
use futures::{StreamExt, TryStreamExt, stream::BoxStream};
use http_server::limits::Limit;
use processor::LogName;
use tokio::task::yield_now;
use vvm::eventlog::{self, Entry};

use crate::rows::line_of_entry;

/// The events of a log from one event on.
///
/// Guarantee: every event before a damaged one is returned before the error.
pub(crate) struct LogEvents {
    entries: BoxStream<'static, eventlog::Result<Entry>>,
    log: LogName,
    /// Each step takes one of these turns.
    turns: Arc<Limit>,
    /// The end of the events, once the entries came to it. Entries are not read after their end.
    end: Option<eventlog::Result<()>>,
    /// Whether a step was done since the last pause.
    needs_pause: bool,
}

impl LogEvents {
    pub(crate) fn new(
        entries: BoxStream<'static, eventlog::Result<Entry>>,
        log: LogName,
        turns: Arc<Limit>,
    ) -> LogEvents {
        LogEvents { entries, log, turns, end: None, needs_pause: false }
    }

    /// Reads the first event before the answer begins. If that fails, the client still gets a
    /// problem. Returns whether there is an event.
    pub(crate) async fn read_first(&mut self) -> eventlog::Result<bool> {
        let Some(first) = self.turns.run(self.entries.try_next()).await? else {
            self.end = Some(Ok(()));
            return Ok(false);
        };
        let rest = std::mem::replace(&mut self.entries, futures::stream::empty().boxed());
        self.entries = futures::stream::iter([Ok(first)]).chain(rest).boxed();
        Ok(true)
    }

    /// Limits the number of events that are returned.
    pub(crate) fn limited(mut self, count: usize) -> LogEvents {
        self.entries = self.entries.take(count).boxed();
        self
    }

    /// The next events, until they have `most` bytes or more. Empty only at the end.
    ///
    /// Invariant: between two steps the other tasks of the thread get a turn. A simpler version
    /// reads on as long as rows are there and the client takes the answer. So one poll renders
    /// megabytes; the thread fires no timer meanwhile, and the lease of the node is not renewed.
    ///
    /// # Errors
    /// The errors of the log. No events follow an error.
    pub(crate) async fn next(&mut self, most: usize) -> eventlog::Result<Vec<Bytes>> {
        if std::mem::replace(&mut self.needs_pause, true) {
            yield_now().await;
        }
        let turns = Arc::clone(&self.turns);
        turns.run(self.next_step(most)).await
    }

    async fn next_step(&mut self, most: usize) -> eventlog::Result<Vec<Bytes>> {
        let (mut events, mut bytes) = (Vec::new(), 0);
        while bytes < most && self.end.is_none() {
            match self.entries.try_next().await {
                Ok(Some(entry)) => {
                    let event = Bytes::from(line_of_entry(&entry, self.log));
                    bytes += event.len();
                    events.push(event);
                }
                Ok(None) => self.end = Some(Ok(())),
                Err(error) => self.end = Some(Err(error)),
            }
        }
        if events.is_empty()
            && let Some(end) = self.end.replace(Ok(()))
        {
            end?;
        }
        Ok(events)
    }
}

#[cfg(test)]
mod tests {
    use std::{
        iter,
        sync::atomic::{AtomicUsize, Ordering},
    };

    use clock::Clock;
    use futures::stream;
    use http_server::limits::LimitRules;
    use tokio::task::JoinSet;
    use vvm::eventlog::{Epoch, EventPlace, Marker, Offset, WsId};

    use super::*;

    /// A log was read and sent in one poll while its rows were at hand. On a busy machine the node
    /// renewed no lease for seconds, and lost its partitions.
    #[tokio::test]
    async fn other_tasks_get_a_turn_between_the_steps_of_a_read() {
        const STEPS: usize = 20;
        let (epoch, ws) = (Epoch(1), WsId(7));
        let place = EventPlace { epoch, plog: Offset(1), ws, wlog: Offset(1) };
        let marker = Marker { place, marked: epoch, drawn: Vec::new(), bytes: Bytes::new() };
        let entries = iter::repeat_with(move || Ok(Entry::Marker(marker.clone()))).take(STEPS);
        let (entries, log) = (stream::iter(entries).boxed(), LogName::Workspace(ws));
        let one = Limit::new(LimitRules::default(), &Clock::system());
        let mut events = LogEvents::new(entries, log, one);
        let turns = Arc::new(AtomicUsize::new(0));
        let counted = Arc::clone(&turns);
        let mut other = JoinSet::new();
        other.spawn(async move {
            loop {
                counted.fetch_add(1, Ordering::Relaxed);
                yield_now().await;
            }
        });
        for step in 0..STEPS {
            assert_eq!(events.next(1).await.unwrap().len(), 1);
            assert!(turns.load(Ordering::Relaxed) >= step, "no turn after {step} steps");
        }
    }
}
