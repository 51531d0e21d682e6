//! The log lines of the code under test.

use std::{
    fmt::{Debug, Write},
    sync::{Arc, LazyLock, Mutex},
};

use base::locks::lock;
use tracing::{
    Dispatch, Event, Level, Metadata, Subscriber,
    field::{Field, Visit},
    span,
    subscriber::DefaultGuard,
};

/// A second subscriber of the process, beside the one of a test.
///
/// While a process has a single subscriber, `tracing` asks only the thread that comes first to a
/// log statement whether anybody wants its lines. If that is a thread without a subscriber, the
/// line is off in all threads. With two subscribers `tracing` asks both.
static SECOND: LazyLock<Dispatch> = LazyLock::new(|| Dispatch::new(LogLines::default()));

/// A subscriber that keeps log lines. Clones share the lines.
///
/// A line is `LEVEL message name=value …`, with the values as their `Debug` text. Lines below the
/// level `INFO` are dropped.
#[derive(Clone, Debug, Default)]
pub struct LogLines(Arc<Mutex<Vec<String>>>);

impl LogLines {
    /// Keeps the lines of this thread until the guard is dropped.
    #[must_use]
    pub fn of_this_thread() -> (LogLines, DefaultGuard) {
        LazyLock::force(&SECOND);
        let lines = LogLines::default();
        let guard = tracing::subscriber::set_default(lines.clone());
        (lines, guard)
    }

    /// The lines so far.
    #[must_use]
    pub fn all(&self) -> Vec<String> {
        lock(&self.0).clone()
    }
}

struct LogLine(String);

impl Visit for LogLine {
    fn record_debug(&mut self, field: &Field, value: &dyn Debug) {
        // Writing to a string cannot fail.
        let _ = match field.name() {
            "message" => write!(self.0, " {value:?}"),
            name => write!(self.0, " {name}={value:?}"),
        };
    }
}

impl Subscriber for LogLines {
    fn enabled(&self, metadata: &Metadata<'_>) -> bool {
        *metadata.level() <= Level::INFO
    }

    fn event(&self, event: &Event<'_>) {
        let mut line = LogLine(event.metadata().level().to_string());
        event.record(&mut line);
        lock(&self.0).push(line.0);
    }

    fn new_span(&self, _: &span::Attributes<'_>) -> span::Id {
        span::Id::from_u64(1)
    }

    fn record(&self, _: &span::Id, _: &span::Record<'_>) {}
    fn record_follows_from(&self, _: &span::Id, _: &span::Id) {}
    fn enter(&self, _: &span::Id) {}
    fn exit(&self, _: &span::Id) {}
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_line_has_the_level_the_message_and_the_fields() {
        let (lines, _guard) = LogLines::of_this_thread();
        tracing::warn!(partition = 7, "storage error");
        tracing::debug!("a detail");
        assert_eq!(lines.all(), ["WARN storage error partition=7"]);
    }

    /// A trial of elections found no line "leadership ended": a trial in another thread had come to
    /// that log statement first.
    #[test]
    fn a_line_is_kept_although_another_thread_without_lines_logged_it_first() {
        let (lines, _guard) = LogLines::of_this_thread();
        let log = || tracing::info!("leadership ended");
        std::thread::scope(|scope| scope.spawn(log).join().unwrap());
        log();
        assert_eq!(lines.all(), ["INFO leadership ended"]);
    }
}
