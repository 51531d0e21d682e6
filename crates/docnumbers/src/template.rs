//! The parts of a number.

mod parse;

use crate::check_digit::CheckKind;

/// The longest number, in bytes.
pub(crate) const BYTES_MAX: usize = 200;
/// The digits of the largest `u64`.
pub(crate) const DIGITS_MAX: u8 = 20;

/// The text of numbers, as parts. Neighbouring literals are one part.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct Template {
    parts: Vec<Part>,
}

/// A part of a number. All parts but literals are digits.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) enum Part {
    Literal(String),
    Date(DateField),
    /// The counter, with at least this many digits.
    Counter(u8),
    /// The workspace, with this many digits, or with as many as it needs.
    Ws(Option<u8>),
    Check(CheckKind),
}

/// A field of a date. Each has a fixed number of digits.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum DateField {
    Year,
    YearOfCentury,
    Month,
    Day,
    DayOfYear,
    IsoYear,
    IsoWeek,
}

impl DateField {
    /// The fields, and the letters that stand for them in a pattern.
    pub(crate) const ALL: [(DateField, &str); 7] = [
        (DateField::Year, "yyyy"),
        (DateField::YearOfCentury, "yy"),
        (DateField::Month, "MM"),
        (DateField::Day, "dd"),
        (DateField::DayOfYear, "DDD"),
        (DateField::IsoYear, "GGGG"),
        (DateField::IsoWeek, "VV"),
    ];

    pub(crate) fn width(self) -> u8 {
        match self {
            DateField::Year | DateField::IsoYear => 4,
            DateField::DayOfYear => 3,
            DateField::YearOfCentury | DateField::Month | DateField::Day | DateField::IsoWeek => 2,
        }
    }
}

impl Part {
    /// The fewest digits of the part. A literal counts as none.
    pub(crate) fn digits_min(&self) -> u8 {
        match self {
            Part::Literal(_) => 0,
            Part::Date(field) => field.width(),
            Part::Counter(width) | Part::Ws(Some(width)) => *width,
            Part::Ws(None) => 1,
            Part::Check(kind) => kind.width(),
        }
    }

    /// The most bytes of the part.
    fn bytes_max(&self) -> usize {
        match self {
            Part::Literal(text) => text.len(),
            Part::Counter(_) | Part::Ws(None) => DIGITS_MAX.into(),
            _ => self.digits_min().into(),
        }
    }
}

impl Template {
    pub(crate) fn parts(&self) -> &[Part] {
        &self.parts
    }

    /// The digits of the counter. Each template has exactly one counter.
    pub(crate) fn counter_width(&self) -> u8 {
        let width = |part: &Part| if let Part::Counter(width) = part { Some(*width) } else { None };
        self.parts.iter().find_map(width).unwrap_or(DIGITS_MAX)
    }

    pub(crate) fn has_date(&self, field: DateField) -> bool {
        self.parts.contains(&Part::Date(field))
    }

    /// The bytes of the longest number.
    fn bytes_max(&self) -> usize {
        self.parts.iter().map(Part::bytes_max).sum()
    }
}
