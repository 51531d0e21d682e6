//! The text of a period, as people write it.

use std::str::FromStr;

use jiff::civil::{Date, ISOWeekDate, Weekday};

use super::{Period, Reset};

/// The error of a text that is not a period.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[error("{0:?} is not a period: use `all`, 2026, 2026-05, 2026-W21 or 2026-05-22")]
pub struct InvalidPeriod(String);

/// Reads the text that [`Display`](std::fmt::Display) shows.
impl FromStr for Period {
    type Err = InvalidPeriod;

    fn from_str(text: &str) -> Result<Period, InvalidPeriod> {
        let period = read(text).filter(|period| period.to_string() == text);
        period.ok_or_else(|| InvalidPeriod(text.to_owned()))
    }
}

/// Reads a period. Also accepts other spellings, such as `2026-5`.
fn read(text: &str) -> Option<Period> {
    if text == "all" {
        return Some(Period::of(Reset::Never, Date::ZERO));
    }
    let mut parts = text.splitn(3, '-');
    let year: i16 = parts.next()?.parse().ok()?;
    let (reset, date) = match (parts.next(), parts.next()) {
        (None, _) => (Reset::Year, Date::new(year, 1, 1).ok()?),
        (Some(part), None) => match part.strip_prefix('W') {
            Some(week) => {
                let week = ISOWeekDate::new(year, week.parse().ok()?, Weekday::Monday).ok()?;
                (Reset::Week, week.date())
            }
            None => (Reset::Month, Date::new(year, part.parse().ok()?, 1).ok()?),
        },
        (Some(month), Some(day)) => {
            (Reset::Day, Date::new(year, month.parse().ok()?, day.parse().ok()?).ok()?)
        }
    };
    Some(Period::of(reset, date))
}

#[cfg(test)]
mod tests {
    use jiff::{ToSpan, civil::date};

    use super::*;
    use crate::period::ALL_RESETS;

    #[test]
    fn the_text_of_a_period_is_read_back() {
        for reset in ALL_RESETS {
            let mut date = date(1969, 12, 28);
            while date.year() < 2100 {
                let period = Period::of(reset, date);
                assert_eq!(period.to_string().parse(), Ok(period));
                date = date.saturating_add(5.days());
            }
        }
    }

    #[test]
    fn another_text_is_no_period() {
        for bad in [
            "",
            "All",
            "26",
            "02026",
            "-2026",
            "2026-",
            "2026-13",
            "2026-5",
            "2026-00",
            "2026-W54",
            "2026-W1",
            "2026-w21",
            "2026-W",
            "2026-02-29",
            "2026-05-22-1",
            "2026-05-22 ",
            "x",
        ] {
            assert_eq!(bad.parse::<Period>(), Err(InvalidPeriod(bad.to_owned())), "{bad}");
        }
    }
}
