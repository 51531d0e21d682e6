//! The declaration of a series, as data.

use std::{fmt, str::FromStr};

use serde::{Deserialize, Serialize};

use crate::{DefinitionError, Reset};

/// The declaration of a series, as data. [`Series::new`](crate::Series::new) checks it.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Definition {
    /// The id of the series ([`SeriesId`]).
    pub id: String,
    /// The text of a number, with parts in braces. `{{` and `}}` stand for braces.
    ///
    /// - `{date:PATTERN}`: the date. The pattern has yyyy, yy, MM, dd, DDD (day of the year), GGGG
    ///   (ISO year), VV (ISO week), and characters between them that are no letters.
    /// - `{counter:N}`: the counter, with zeros on its left up to N digits (1 to 19).
    /// - `{ws}`, `{ws:N}`: the number of the workspace, as it is or with N digits (1 to 20).
    /// - `{check:luhn}`, `{check:mod97}`: check digits over all text before them
    ///   ([`check_digit`](crate::check_digit)).
    pub template: String,
    /// When the counter starts again.
    pub reset: Reset,
    /// The IANA name of the time zone that decides the date, such as `Europe/Berlin`.
    pub zone: String,
    /// The first counter of a period.
    pub start: u64,
    /// The difference between two counters, at least 1.
    pub step: u64,
    /// The behaviour at a counter that needs more digits than the template has.
    pub overflow: Overflow,
    /// The counters that the series has.
    pub scope: Scope,
    /// A number is nearly full when its counter reaches this percentage of the values that its
    /// digits can show.
    pub warn_at_percent: u8,
}

/// The behaviour at a counter that needs more digits than the template has.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "lowercase")]
pub enum Overflow {
    /// The number gets longer.
    Widen,
    /// The number is refused.
    Error,
}

/// The counters that a series has.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "lowercase")]
pub enum Scope {
    /// Each workspace has its own counter. Without `{ws}` in the template, a number is unique in
    /// its workspace only.
    Workspace,
    /// The application has one counter.
    Application,
}

impl Definition {
    /// A series that never starts again, in UTC, from 0 in steps of 1. Each workspace has its own
    /// counter. The counter widens, and a number is nearly full from 90 %.
    #[must_use]
    pub fn new(id: &str, template: &str) -> Definition {
        Definition {
            id: id.to_owned(),
            template: template.to_owned(),
            reset: Reset::Never,
            zone: "UTC".to_owned(),
            start: 0,
            step: 1,
            overflow: Overflow::Widen,
            scope: Scope::Workspace,
            warn_at_percent: 90,
        }
    }

    /// A series whose numbers begin with `prefix`, the date and a counter that starts again each
    /// day: `ORDER2013-0522-00000` for the prefix `ORDER`.
    #[must_use]
    pub fn daily(id: &str, prefix: &str) -> Definition {
        let prefix = prefix.replace('{', "{{").replace('}', "}}");
        let template = format!("{prefix}{{date:yyyy-MMdd}}-{{counter:5}}");
        Definition { reset: Reset::Day, ..Definition::new(id, &template) }
    }
}

/// The name of a series: 1 to 64 of the characters a-z, 0-9, `_`, `.` and `-`. Upper case becomes
/// lower case, so the case of an id does not matter.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct SeriesId(Box<str>);

impl SeriesId {
    /// The id, in lower case.
    #[must_use]
    pub fn as_str(&self) -> &str {
        &self.0
    }
}

impl FromStr for SeriesId {
    type Err = DefinitionError;

    fn from_str(text: &str) -> Result<SeriesId, DefinitionError> {
        let is_allowed = |byte: u8| byte.is_ascii_alphanumeric() || b"_.-".contains(&byte);
        if text.is_empty() || text.len() > 64 || !text.bytes().all(is_allowed) {
            return Err(DefinitionError::Id(text.to_owned()));
        }
        Ok(SeriesId(text.to_ascii_lowercase().into()))
    }
}

impl fmt::Display for SeriesId {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&self.0)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_case_of_an_id_does_not_matter() {
        let id: SeriesId = "Order_1.a-B".parse().unwrap();
        assert_eq!(id.as_str(), "order_1.a-b");
        assert_eq!(id, "ORDER_1.A-B".parse().unwrap());
    }

    #[test]
    fn an_id_has_a_length_and_an_alphabet() {
        let longest = "x".repeat(64);
        assert_eq!(longest.parse::<SeriesId>().unwrap().as_str(), longest);
        for bad in ["", "a b", "a/b", "ä", "\u{212a}", "a\n", &"x".repeat(65)] {
            assert_eq!(bad.parse::<SeriesId>(), Err(DefinitionError::Id(bad.to_owned())));
        }
    }
}
