//! The rules that keep two documents of a series from getting one text.
//!
//! The caller draws each pair of a period and a counter once, for each workspace or for the
//! application. These rules make sure that the text determines the pair, and the workspace if the
//! template has it:
//!
//! **Proof.** Divide a text from the left: a part of fixed width ends in a known place. A part of
//! variable width has only digits, and ends a known distance before the first character that is no
//! digit. The last such part ends a known distance before the end of the text. So a text has one
//! division into parts, which gives the counter, the workspace and the fields of the date, and by
//! [`determines_period`] the fields give the period.

use crate::{
    DefinitionError, Overflow, Reset,
    template::{DateField, Part, Template},
};

/// Checks the rules for a template with its reset and its overflow.
pub(crate) fn check(
    template: &Template,
    reset: Reset,
    overflow: Overflow,
) -> Result<(), DefinitionError> {
    if !determines_period(|field| template.has_date(field), reset) {
        return Err(DefinitionError::PeriodNotInText { reset });
    }
    if !has_separators(template, overflow == Overflow::Widen) {
        return Err(DefinitionError::NoSeparator);
    }
    Ok(())
}

/// Whether two dates with the same fields are always in one period. The answer is exact: if it is
/// no, there are two dates of different periods with the same fields.
///
/// - The ISO year alone is not the year: 2014-12-30 and 2015-12-30 are both in ISO year 2015. So
///   `GGGG-MM-dd` does not determine the day.
/// - The ISO week and the year do not determine the week: week 1 can be in January and in December
///   of one year. The day of the month, or the month, tells them apart.
/// - The days of a week have different days of the month.
fn determines_period(has: impl Fn(DateField) -> bool, reset: Reset) -> bool {
    let [month, day, day_of_year] =
        [DateField::Month, DateField::Day, DateField::DayOfYear].map(&has);
    // Two digits are enough, because only the years 2000 to 2099 are rendered with two digits.
    let year = has(DateField::Year) || has(DateField::YearOfCentury);
    let week_number = has(DateField::IsoWeek);
    let iso_week = week_number && has(DateField::IsoYear);
    let the_day =
        year && (day_of_year || day && (month || week_number)) || iso_week && (day || day_of_year);
    let the_month = the_day || month && (year || iso_week);
    match reset {
        Reset::Never => true,
        Reset::Year => year || the_month,
        Reset::Month => the_month,
        Reset::Week => the_day || iso_week || year && week_number && month,
        Reset::Day => the_day,
    }
}

/// Whether there is a character other than a digit between any two parts of variable width.
pub(crate) fn has_separators(template: &Template, counter_widens: bool) -> bool {
    // Whether a part of variable width has no separator after it yet.
    let mut is_open = false;
    for part in template.parts() {
        let is_variable = match part {
            Part::Literal(text) if text.chars().any(|c| !c.is_numeric()) => {
                is_open = false;
                false
            }
            Part::Counter(_) => counter_widens,
            Part::Ws(width) => width.is_none(),
            Part::Literal(_) | Part::Date(_) | Part::Check(_) => false,
        };
        if is_variable && is_open {
            return false;
        }
        is_open |= is_variable;
    }
    true
}

#[cfg(test)]
mod tests {
    use std::collections::HashMap;

    use jiff::civil::{Date, date};

    use super::*;
    use crate::{Period, period::ALL_RESETS};

    /// The values of all fields, in the order of `DateField::ALL`.
    fn fields(date: Date) -> [i16; 7] {
        let (year, week) = (date.year(), date.iso_week_date());
        let (month, day) = (date.month().into(), date.day().into());
        let of_week = [week.year(), week.week().into()];
        [year, year % 100, month, day, date.day_of_year(), of_week[0], of_week[1]]
    }

    /// Returns for each reset whether two dates of the list have the same fields, but different
    /// periods.
    fn collisions(dates: &[([i16; 7], [Period; 5])], mask: u8) -> [bool; 5] {
        let (mut seen, mut collides) = (HashMap::new(), [false; 5]);
        for (fields, periods) in dates {
            let mut key = *fields;
            (0..7).filter(|at| mask >> at & 1 == 0).for_each(|at| key[at] = 0);
            let first = seen.entry(key).or_insert(periods);
            (0..5).for_each(|at| collides[at] |= first[at] != periods[at]);
            if collides == [false, true, true, true, true] {
                break;
            }
        }
        collides
    }

    /// Compares the rule with all dates that a calendar has, for each set of fields.
    #[test]
    fn the_rule_on_dates_is_exact() {
        let all = date(1969, 12, 31).series(jiff::ToSpan::day(1));
        let all = all.take_while(|day| *day <= date(2554, 7, 22));
        let all = all.map(|date| (fields(date), ALL_RESETS.map(|reset| Period::of(reset, date))));
        let all: Vec<_> = all.collect();
        let is_rendered = |(fields, _): &&([i16; 7], _)| (2000..2100).contains(&fields[0]);
        let century: Vec<_> = all.iter().filter(is_rendered).copied().collect();
        for mask in 0..1 << 7 {
            let index = |field| DateField::ALL.iter().position(|(other, _)| *other == field);
            let has = |field| mask >> index(field).unwrap() & 1 == 1;
            let dates = if has(DateField::YearOfCentury) { &century } else { &all };
            let expected = ALL_RESETS.map(|reset| !determines_period(has, reset));
            assert_eq!(collisions(dates, mask), expected, "{mask:07b}");
        }
    }
}
