//! Unique document numbers that people can say, such as `ORDER2013-0522-00000`.
//!
//! A [`Series`] turns a counter and a moment into a number. A [`Definition`] has the template of
//! the text, and says when the counter starts again. [`Series::new`] refuses a definition that
//! could give one text to two documents, and the error says what to change.
//!
//! ```
//! use docnumbers::{Definition, Reset, Series, WsId, clock::WallTime};
//!
//! let definition = Definition {
//!     reset: Reset::Month,
//!     zone: "Europe/Berlin".to_owned(),
//!     ..Definition::new("invoice", "INV{date:yyyyMM}-{counter:4}-{check:luhn}")
//! };
//! let invoices = Series::new(definition)?;
//!
//! let now = WallTime::from_millis(1_369_180_800_000); // 2013-05-22 in Berlin
//! let today = invoices.day(now)?;
//! let number = today.number(WsId(7), 42)?;
//! assert_eq!(number.text, "INV201305-0042-2");
//! assert_eq!(number.period.to_string(), "2013-05");
//! # Ok::<(), Box<dyn std::error::Error>>(())
//! ```
//!
//! - [`Period`] is the key of a counter, beside the series. The date in the text and the period
//!   come from one moment. So no midnight comes between them.
//! - [`DayText`] is the prepared text of a day. Keep it while [`CivilDay::contains`] is true.
//! - [`Series::may_replace`] tells whether a definition may replace earlier ones.
//! - [`FastSeries`] draws numbers over a storage: from ranges of counters that it reserves.
//!   [`DocNumberRows`] is the place of its rows. Its ledger lists the ranges with counters that may
//!   be unissued.

// The example of the README is compiled as a test.
#![cfg_attr(doctest, doc = include_str!("../README.md"))]
#![cfg_attr(test, allow(clippy::unwrap_used))]

mod calendar;
pub mod check_digit;
mod date_text;
mod definition;
mod error;
mod fast;
mod period;
mod render;
mod replace;
mod rows;
mod series;
mod template;
mod unique;

pub use base::WsId;
pub use calendar::{Calendar, CivilDay};
pub use date_text::DateText;
pub use definition::{Definition, Overflow, Scope, SeriesId};
pub use error::{DefinitionError, RenderError, ReplaceError, TemplateError};
pub use fast::{DocNumberError, FastSeries, FastSettings, RangeOwner, SeriesEnd};
pub use period::{InvalidPeriod, Period, Reset};
pub use render::{DayText, DocNumber};
pub use rows::{
    CounterKey, DocNumberRows, FixError, LedgerEntry, Policy, RangeState, StoredDefinitions,
};
pub use series::Series;

// The types of these crates occur in the API.
pub use clock;
pub use istorage;
pub use jiff;
