//! The events of a log as JSON, in pieces: for answers that end, and for followers.

use bytes::Bytes;
use futures::{StreamExt, TryStreamExt, stream::BoxStream};
use processor::LogName;
use serde_json::json;
use vvm::eventlog::{self, Entry};

use crate::{read_throttle::ReadThrottle, rows::json_of_entry};

/// The events of a log from one event on.
///
/// Guarantee: each event in front of a damaged one is returned before the error.
pub(crate) struct LogEvents {
    entries: BoxStream<'static, eventlog::Result<Entry>>,
    log: LogName,
    throttle: ReadThrottle,
    /// The end of the events, once the entries came to it. Entries are not read after their end.
    end: Option<eventlog::Result<()>>,
}

impl LogEvents {
    pub(crate) fn new(
        entries: BoxStream<'static, eventlog::Result<Entry>>,
        log: LogName,
        throttle: ReadThrottle,
    ) -> LogEvents {
        LogEvents { entries, log, throttle, end: None }
    }

    /// Reads the first event before the answer begins. If that fails, the client still gets a
    /// problem. Returns whether there is an event.
    pub(crate) async fn read_first(&mut self) -> eventlog::Result<bool> {
        let Some(first) = self.throttle.run(self.entries.try_next()).await? else {
            self.end = Some(Ok(()));
            return Ok(false);
        };
        let rest = std::mem::replace(&mut self.entries, futures::stream::empty().boxed());
        self.entries = futures::stream::iter([Ok(first)]).chain(rest).boxed();
        Ok(true)
    }

    /// Returns only so many events.
    pub(crate) fn limited(mut self, count: usize) -> LogEvents {
        self.entries = self.entries.take(count).boxed();
        self
    }

    /// The next events: at least one, and no more after the first that brings them to `most` bytes.
    /// None at the end.
    ///
    /// # Errors
    /// Those of the log. No events follow.
    pub(crate) async fn next(&mut self, most: usize) -> eventlog::Result<Vec<Bytes>> {
        let throttle = self.throttle.clone();
        throttle.run(self.next_step(most)).await
    }

    async fn next_step(&mut self, most: usize) -> eventlog::Result<Vec<Bytes>> {
        let (mut events, mut bytes) = (Vec::new(), 0);
        while bytes < most && self.end.is_none() {
            match self.entries.try_next().await {
                Ok(Some(entry)) => {
                    let event = event_json(&entry, self.log);
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

/// An event as JSON. In the log of a partition it names its workspace.
fn event_json(entry: &Entry, log: LogName) -> Bytes {
    let mut json = json_of_entry(entry);
    if log == LogName::Partition
        && let Some(object) = json.as_object_mut()
    {
        object.insert("workspace".to_owned(), json!(entry.place().ws.0));
    }
    json.to_string().into()
}
