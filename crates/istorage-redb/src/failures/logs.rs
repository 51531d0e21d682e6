//! The log lines of the threads of drivers.

use std::{
    fmt::{Debug, Write},
    path::Path,
    sync::{Mutex, Once},
};

use tracing::{
    Event, Metadata, Subscriber,
    field::{Field, Visit},
    span,
};

static LINES: Mutex<Vec<String>> = Mutex::new(Vec::new());

/// The lines that name this file. Lines are kept from the first call on.
pub(super) fn of(path: &Path) -> Vec<String> {
    static KEEPS: Once = Once::new();
    KEEPS.call_once(|| tracing::subscriber::set_global_default(Lines).unwrap());
    let path = path.to_str().unwrap();
    LINES.lock().unwrap().iter().filter(|line| line.contains(path)).cloned().collect()
}

/// A subscriber that keeps the lines of all threads.
struct Lines;

struct Line(String);

impl Visit for Line {
    fn record_debug(&mut self, field: &Field, value: &dyn Debug) {
        match field.name() {
            "message" => write!(self.0, " {value:?}").unwrap(),
            name => write!(self.0, " {name}={value:?}").unwrap(),
        }
    }
}

impl Subscriber for Lines {
    fn enabled(&self, _: &Metadata<'_>) -> bool {
        true
    }

    fn event(&self, event: &Event<'_>) {
        let mut line = Line(event.metadata().level().to_string());
        event.record(&mut line);
        LINES.lock().unwrap().push(line.0);
    }

    fn new_span(&self, _: &span::Attributes<'_>) -> span::Id {
        span::Id::from_u64(1)
    }

    fn record(&self, _: &span::Id, _: &span::Record<'_>) {}
    fn record_follows_from(&self, _: &span::Id, _: &span::Id) {}
    fn enter(&self, _: &span::Id) {}
    fn exit(&self, _: &span::Id) {}
}
