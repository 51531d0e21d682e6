//! Periods: the spans after which a counter starts again.

mod parse;

use std::fmt;

use jiff::{
    ToSpan,
    civil::{Date, Weekday},
};
use serde::{Deserialize, Serialize};

pub use self::parse::InvalidPeriod;

/// When the counter of a series starts again.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize)]
#[serde(rename_all = "lowercase")]
pub enum Reset {
    /// The counter never starts again.
    Never,
    /// On 1 January.
    Year,
    /// On the first day of a month.
    Month,
    /// On Monday, the first day of an ISO week.
    Week,
    /// Each day.
    Day,
}

/// Ordered by their numbers in the stable form.
pub(crate) const ALL_RESETS: [Reset; 5] =
    [Reset::Never, Reset::Year, Reset::Month, Reset::Week, Reset::Day];

impl Reset {
    /// A part of a template that determines the period.
    pub(crate) fn date_pattern(self) -> &'static str {
        match self {
            Reset::Never => "",
            Reset::Year => "{date:yyyy}",
            Reset::Month => "{date:yyyy-MM}",
            Reset::Week => "{date:GGGG-VV}",
            Reset::Day => "{date:yyyy-MM-dd}",
        }
    }
}

impl fmt::Display for Reset {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            Reset::Never => "never",
            Reset::Year => "year",
            Reset::Month => "month",
            Reset::Week => "week",
            Reset::Day => "day",
        })
    }
}

/// A span that a counter counts through without a new start: a year, a month, a week, a day, or all
/// time.
///
/// Two dates have equal periods exactly if no counter starts again between them. Periods of one
/// [`Reset`] are in the order of time. [`Display`](fmt::Display) shows `2026-05-22`, `2026-W21`,
/// `2026-05`, `2026` or `all`, and [`FromStr`](std::str::FromStr) reads these texts.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct Period {
    reset: Reset,
    /// The first day. For [`Reset::Never`] it is [`Date::ZERO`].
    first: Date,
}

impl Period {
    /// The period of a date. The years are those of [`Calendar::day`](crate::Calendar::day).
    pub(crate) fn of(reset: Reset, date: Date) -> Period {
        let first = match reset {
            Reset::Never => Date::ZERO,
            Reset::Year => date.first_of_year(),
            Reset::Month => date.first_of_month(),
            Reset::Week => {
                let days = i64::from(date.weekday().since(Weekday::Monday));
                date.saturating_sub(days.days())
            }
            Reset::Day => date,
        };
        Period { reset, first }
    }

    /// The reset that makes such periods.
    #[must_use]
    pub fn reset(self) -> Reset {
        self.reset
    }

    /// The stable form for storages. The bytes sort like the periods.
    #[must_use]
    pub fn to_bytes(self) -> [u8; 5] {
        let [high, low] = self.first.year().to_be_bytes();
        [self.reset as u8, high, low, self.first.month() as u8, self.first.day() as u8]
    }

    /// Reads the stable form. Returns nothing if no period has these bytes.
    #[must_use]
    pub fn from_bytes(bytes: [u8; 5]) -> Option<Period> {
        let [tag, high, low, month, day] = bytes;
        let reset = *ALL_RESETS.get(usize::from(tag))?;
        let year = i16::from_be_bytes([high, low]);
        let period = if reset == Reset::Never {
            Period { reset, first: Date::ZERO }
        } else {
            let date = Date::new(year, month.try_into().ok()?, day.try_into().ok()?).ok()?;
            Period::of(reset, date)
        };
        (year >= 0 && period.to_bytes() == bytes).then_some(period)
    }
}

impl fmt::Display for Period {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let first = self.first;
        match self.reset {
            Reset::Never => f.write_str("all"),
            Reset::Year => write!(f, "{:04}", first.year()),
            Reset::Month => write!(f, "{:04}-{:02}", first.year(), first.month()),
            Reset::Week => {
                let week = first.iso_week_date();
                write!(f, "{:04}-W{:02}", week.year(), week.week())
            }
            Reset::Day => write!(f, "{first}"),
        }
    }
}

#[cfg(test)]
mod tests {
    use jiff::civil::date;

    use super::*;

    #[test]
    fn a_period_has_a_text() {
        let day = date(2026, 1, 1); // a Thursday
        let shown = ALL_RESETS.map(|reset| Period::of(reset, day).to_string());
        assert_eq!(shown, ["all", "2026", "2026-01", "2026-W01", "2026-01-01"]);
        let shown = ALL_RESETS.map(|reset| Period::of(reset, date(2026, 5, 23)).to_string());
        assert_eq!(shown, ["all", "2026", "2026-05", "2026-W21", "2026-05-23"]);
    }

    #[test]
    fn a_week_begins_on_monday_and_may_begin_in_the_year_before() {
        let week = |year, month, day| Period::of(Reset::Week, date(year, month, day));
        assert_ne!(week(2026, 11, 22), week(2026, 11, 23), "a Sunday and a Monday");
        assert_eq!(week(2026, 11, 23), week(2026, 11, 29));
        assert_eq!(week(2020, 12, 28), week(2021, 1, 3));
        assert_eq!(week(2021, 1, 3).to_string(), "2020-W53");
        assert_eq!(week(2014, 12, 29).to_string(), "2015-W01");
    }

    #[test]
    fn the_bytes_are_stable() {
        let bytes = ALL_RESETS.map(|reset| Period::of(reset, date(2026, 5, 22)).to_bytes());
        let expected = [
            [0, 0, 0, 1, 1],
            [1, 7, 234, 1, 1],
            [2, 7, 234, 5, 1],
            [3, 7, 234, 5, 18],
            [4, 7, 234, 5, 22],
        ];
        assert_eq!(bytes, expected);
    }

    #[test]
    fn the_bytes_sort_like_the_periods_and_are_read_back() {
        for reset in ALL_RESETS {
            let mut last: Option<Period> = None;
            let mut date = date(1969, 12, 31);
            while date.year() <= 2554 {
                let period = Period::of(reset, date);
                let last = last.replace(period).unwrap_or(period);
                assert!(last <= period && last.to_bytes() <= period.to_bytes());
                assert_eq!(last == period, last.to_bytes() == period.to_bytes());
                assert_eq!(Period::from_bytes(period.to_bytes()), Some(period));
                date = date.tomorrow().unwrap();
            }
        }
    }

    #[test]
    fn other_bytes_are_no_period() {
        let bad = [
            [5, 7, 234, 1, 1],
            [0, 7, 234, 1, 1],
            [1, 7, 234, 1, 2],
            [2, 7, 234, 5, 2],
            [3, 7, 234, 5, 19],
            [4, 7, 234, 2, 29],
            [4, 7, 234, 13, 1],
            [4, 7, 234, 0, 1],
            [4, 255, 255, 1, 1],
            [4, 7, 234, 200, 1],
        ];
        for bytes in bad {
            assert_eq!(Period::from_bytes(bytes), None, "{bytes:?}");
        }
    }
}
