//! The log lines of the threads of drivers.

use std::{path::Path, sync::LazyLock};

use tck::trial::LogLines;

/// The lines of all threads.
static LINES: LazyLock<LogLines> = LazyLock::new(|| {
    let lines = LogLines::default();
    tracing::subscriber::set_global_default(lines.clone()).unwrap();
    lines
});

/// The lines that name this file. Lines are kept from the first call on.
pub(crate) fn of(path: &Path) -> Vec<String> {
    let path = path.to_str().unwrap();
    LINES.all().into_iter().filter(|line| line.contains(path)).collect()
}
