//! The log of the process, on stderr.

use std::io::{self, IsTerminal, Write};

use ctl::{CommandError, terminal};
use http_admin::OPERATOR_LINES;
use tracing::Metadata;
use tracing_subscriber::{fmt, fmt::MakeWriter, layer::SubscriberExt, util::SubscriberInitExt};

use crate::log_filter::log_filter;

/// Begins to log to stderr, as text or as JSON. The filter in `RUST_LOG` replaces `filter`.
pub(crate) fn install(filter: &str, as_json: bool) -> Result<(), CommandError> {
    #[expect(clippy::disallowed_methods, reason = "the binary reads the environment")]
    let wanted = std::env::var("RUST_LOG").ok().filter(|wanted| !wanted.is_empty());
    let filter = log_filter(wanted.as_deref().unwrap_or(filter)).map_err(|why| {
        CommandError::config(format!(
            "RUST_LOG: {why}; set it to a filter such as `info` or `warn,vvm=debug`"
        ))
    })?;
    let lines = fmt::layer().with_writer(LogLines);
    let logs = tracing_subscriber::registry().with(filter);
    if as_json {
        logs.with(lines.json()).init();
    } else {
        logs.with(lines.with_ansi(io::stderr().is_terminal())).init();
    }
    Ok(())
}

/// Begins the lines of the log.
struct LogLines;

impl<'a> MakeWriter<'a> for LogLines {
    type Writer = LogLine;

    fn make_writer(&'a self) -> LogLine {
        LogLine { text: Vec::new(), is_of_operator: false }
    }

    fn make_writer_for(&'a self, of: &Metadata<'_>) -> LogLine {
        LogLine { text: Vec::new(), is_of_operator: of.target() == OPERATOR_LINES }
    }
}

/// A line of the log. The line is sent when it is complete.
struct LogLine {
    text: Vec<u8>,
    /// Whether the line is about the action of an operator.
    is_of_operator: bool,
}

impl Write for LogLine {
    fn write(&mut self, bytes: &[u8]) -> io::Result<usize> {
        self.text.extend_from_slice(bytes);
        Ok(bytes.len())
    }

    fn flush(&mut self) -> io::Result<()> {
        Ok(())
    }
}

impl Drop for LogLine {
    fn drop(&mut self) {
        if !self.text.is_empty() {
            terminal::send(std::mem::take(&mut self.text), self.is_of_operator);
        }
    }
}
