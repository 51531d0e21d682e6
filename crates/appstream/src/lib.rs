//! Export and import of an application: as a stream of events, between any two storages.
//!
//! - [`Exporter`] writes the stream of an application. It only reads the storage.
//! - [`check_stream`] reads a stream from its beginning to its end, and refuses a stream that was
//!   cut or changed.
//! - [`import`] writes the application of a stream into a storage that does not have it.
//!
//! The stream has the events of each partition as they are stored, and the facts that follow from
//! no event. All other rows follow from the events: the first node that starts the application
//! after an import replays the logs. `docs/export.md` describes each line of the stream.
//!
//! Invariant: memory is bounded, however long the logs are. Streams are read and written line by
//! line. A check keeps 16 bytes of each counter of document numbers.

// The example of the README is compiled as a test.
#![cfg_attr(doctest, doc = include_str!("../README.md"))]
#![cfg_attr(test, allow(clippy::unwrap_used))]

mod check;
mod counters;
mod error;
mod export;
mod import;
mod line;
mod marked;
mod persistence;
mod reader;
mod writer;

pub use check::{CheckedStream, check_stream};
pub use error::{ExportError, ImportError, StreamError, UnfinishedImport};
pub use export::{ExportReport, Exporter};
pub use import::{ImportReport, import};
pub use line::FORMAT_VERSION;

// The types of these crates occur in the API.
pub use clock;
pub use eventlog;
pub use istorage;
pub use sysvvm;

/// The deadline of a call of the storage, and of a page of rows.
const CALL_TIME: std::time::Duration = std::time::Duration::from_secs(10);
