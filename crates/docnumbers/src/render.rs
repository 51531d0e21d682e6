//! The text of a number.

use std::{
    fmt::{self, Write},
    mem,
};

use base::WsId;
use clock::WallTime;
use jiff::civil::Date;

use crate::{
    CivilDay, Overflow, Period, RenderError, Series,
    check_digit::CheckKind,
    template::{DateField, Part},
};

/// The number of a document.
#[must_use = "a number that was drawn and is not used is a gap"]
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct DocNumber {
    /// The number, as people read it.
    pub text: String,
    /// The counter in the number.
    pub counter: u64,
    /// The period of the counter.
    pub period: Period,
    /// Whether the counters of the period will soon need more digits than the template has.
    pub is_nearly_full: bool,
}

impl fmt::Display for DocNumber {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&self.text)
    }
}

/// The text of all numbers of a series on one day. Only the counter, the workspace and the check
/// digits are missing.
#[derive(Clone, Debug)]
pub struct DayText {
    day: CivilDay,
    period: Period,
    pieces: Vec<Piece>,
    overflow: Overflow,
    nearly_full_from: u64,
}

#[derive(Clone, Debug)]
enum Piece {
    Text(String),
    Counter(u8),
    Ws(Option<u8>),
    Check(CheckKind),
}

impl DayText {
    pub(crate) fn new(series: &Series, day: CivilDay) -> Result<DayText, RenderError> {
        let (mut pieces, mut fixed) = (Vec::new(), String::new());
        for part in series.template().parts() {
            let piece = match *part {
                Part::Literal(ref literal) => {
                    fixed.push_str(literal);
                    continue;
                }
                Part::Date(field) => {
                    field.push(&mut fixed, day.date)?;
                    continue;
                }
                Part::Counter(width) => Piece::Counter(width),
                Part::Ws(width) => Piece::Ws(width),
                Part::Check(kind) => Piece::Check(kind),
            };
            pieces.extend([Piece::Text(mem::take(&mut fixed)), piece]);
        }
        pieces.push(Piece::Text(fixed));
        let definition = series.definition();
        let period = Period::of(definition.reset, day.date);
        let nearly_full_from = series.nearly_full_from();
        Ok(DayText { day, period, pieces, overflow: definition.overflow, nearly_full_from })
    }

    /// The civil day, and when its text may be used.
    #[must_use]
    pub fn day(&self) -> CivilDay {
        self.day
    }

    /// Whether numbers at `at` have this text. If not, ask [`Series::day`] again.
    #[must_use]
    pub fn contains(&self, at: WallTime) -> bool {
        self.day.contains(at)
    }

    /// The period, which is the key of the counter.
    #[must_use]
    pub fn period(&self) -> Period {
        self.period
    }

    /// The number of a workspace for a counter of [`DayText::period`].
    ///
    /// # Errors
    /// [`RenderError::CounterOverflow`] and [`RenderError::WorkspaceOverflow`] if the template has
    /// too few digits.
    pub fn number(&self, ws: WsId, counter: u64) -> Result<DocNumber, RenderError> {
        let mut text = String::with_capacity(self.bytes(ws.0, counter));
        for piece in &self.pieces {
            match *piece {
                Piece::Text(ref fixed) => text.push_str(fixed),
                Piece::Counter(width) => {
                    if self.overflow == Overflow::Error && digits(counter) > width {
                        return Err(RenderError::CounterOverflow { counter, width });
                    }
                    push_digits(&mut text, counter, width);
                }
                Piece::Ws(width) => {
                    if let Some(width) = width.filter(|&width| digits(ws.0) > width) {
                        return Err(RenderError::WorkspaceOverflow { ws: ws.0, width });
                    }
                    push_digits(&mut text, ws.0, width.unwrap_or(1));
                }
                Piece::Check(kind) => {
                    let check = kind.of(&text);
                    push_digits(&mut text, check.into(), kind.width());
                }
            }
        }
        let is_nearly_full = counter >= self.nearly_full_from;
        Ok(DocNumber { text, counter, period: self.period, is_nearly_full })
    }

    /// The length of a number, so that its text is allocated once.
    fn bytes(&self, ws: u64, counter: u64) -> usize {
        let bytes = self.pieces.iter().map(|piece| match piece {
            Piece::Text(text) => text.len(),
            Piece::Counter(width) => digits(counter).max(*width).into(),
            Piece::Ws(width) => width.unwrap_or(digits(ws)).into(),
            Piece::Check(kind) => kind.width().into(),
        });
        bytes.sum()
    }
}

impl DateField {
    /// Appends the digits of the field.
    pub(crate) fn push(self, text: &mut String, date: Date) -> Result<(), RenderError> {
        let year = date.year();
        let value = match self {
            DateField::Year => year,
            DateField::YearOfCentury if (2000..2100).contains(&year) => year - 2000,
            DateField::YearOfCentury => return Err(RenderError::TwoDigitYear { year }),
            DateField::Month => date.month().into(),
            DateField::Day => date.day().into(),
            DateField::DayOfYear => date.day_of_year(),
            DateField::IsoYear => date.iso_week_date().year(),
            DateField::IsoWeek => date.iso_week_date().week().into(),
        };
        // No year of a calendar is negative.
        push_digits(text, value.unsigned_abs().into(), self.width());
        Ok(())
    }
}

/// The digits that a value needs.
fn digits(value: u64) -> u8 {
    value.checked_ilog10().unwrap_or(0) as u8 + 1
}

/// Appends a value with zeros on its left up to `width` digits.
fn push_digits(text: &mut String, value: u64, width: u8) {
    // Writing to a string cannot fail.
    let _ = write!(text, "{value:0width$}", width = usize::from(width));
}
