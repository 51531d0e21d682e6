//! The log lines of the code under test.

use std::{
    fmt::{Debug, Write},
    sync::{Arc, Mutex, MutexGuard, PoisonError},
};

use tracing::{
    Event, Level, Metadata, Subscriber,
    field::{Field, Visit},
    span,
};

/// A subscriber that keeps log lines. Clones share the lines.
///
/// A line is `LEVEL message name=value …`, with the values as their `Debug` text. Lines below the
/// level `INFO` are dropped.
#[derive(Clone, Debug, Default)]
pub struct LogLines(Arc<Mutex<Vec<String>>>);

impl LogLines {
    /// The lines so far.
    #[must_use]
    pub fn all(&self) -> Vec<String> {
        self.lines().clone()
    }

    fn lines(&self) -> MutexGuard<'_, Vec<String>> {
        self.0.lock().unwrap_or_else(PoisonError::into_inner)
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
        self.lines().push(line.0);
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
        let lines = LogLines::default();
        tracing::subscriber::with_default(lines.clone(), || {
            tracing::warn!(partition = 7, "storage error");
            tracing::debug!("a detail");
        });
        assert_eq!(lines.all(), ["WARN storage error partition=7"]);
    }
}
