//! The errors of definitions and of rendering. The text of each error says what to change.

use crate::Reset;

/// Why a text is not a template.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum TemplateError {
    /// The template has no text and no part.
    #[error("the template is empty: give it at least a counter, as in `ORDER-{{counter:5}}`")]
    Empty,
    /// A part has no end, or contains another brace.
    #[error("the `{{` at byte {at} has no `}}`: close the part, or write `{{{{` for a brace")]
    Unclosed {
        /// The place of the brace.
        at: usize,
    },
    /// A closing brace belongs to no part.
    #[error("the `}}` at byte {at} closes nothing: remove it, or write `}}}}` for a brace")]
    Unopened {
        /// The place of the brace.
        at: usize,
    },
    /// No part has this name.
    #[error(
        "`{{{0}}}` is not a part: use `{{date:…}}`, `{{counter:N}}`, `{{ws}}`, `{{ws:N}}`, \
         `{{check:luhn}}` or `{{check:mod97}}`"
    )]
    UnknownPart(String),
    /// A date pattern has letters that name no field of a date, or names no field.
    #[error(
        "`{0}` is not a date pattern: use yyyy, yy, MM, dd, DDD (day of the year), GGGG (ISO year) \
         and VV (ISO week), with characters between them that are no letters"
    )]
    DatePattern(String),
    /// A number of digits is outside of its range.
    #[error("`{{{part}}}` must have 1 to {max} digits")]
    Width {
        /// The part as it was written.
        part: String,
        /// The highest width.
        max: u8,
    },
    /// A character cannot be seen, or is a space other than ` `.
    #[error("the template contains {0:?}, which people cannot see: remove it")]
    Invisible(char),
    /// The template begins or ends with a space.
    #[error("the template begins or ends with a space, which people do not see: remove it")]
    OuterSpace,
    /// The template has no counter.
    #[error("without a counter all numbers of a day are equal: add `{{counter:5}}`")]
    NoCounter,
    /// The template has more than one counter.
    #[error("the template has more than one counter: keep one")]
    SeveralCounters,
    /// The template has more than one check part.
    #[error("the template has more than one check part: keep the last one")]
    SeveralChecks,
    /// The counter is after the check part, which covers only the text before it.
    #[error("the check part does not cover the counter: put the check part after the counter")]
    CheckBeforeCounter,
    /// The check digits have no rule for this character.
    #[error("`{{check:mod97}}` covers digits and the letters A to Z: remove {0:?}, or use luhn")]
    UncheckedLetter(char),
    /// The longest number of the template is too long.
    #[error("a number of this template can have {bytes} bytes, more than {max}: shorten it")]
    TooLong {
        /// The length of the longest number.
        bytes: usize,
        /// The longest allowed length.
        max: usize,
    },
}

/// Why a definition is refused.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum DefinitionError {
    /// The id is empty, too long, or has other characters.
    #[error("the series id {0:?} must have 1 to 64 characters of a-z, 0-9, `_`, `.` and `-`")]
    Id(String),
    /// The template is wrong.
    #[error(transparent)]
    Template(#[from] TemplateError),
    /// The time zone database has no zone of this name.
    #[error("the time zone {0:?} is unknown: use an IANA name, such as `Europe/Berlin`")]
    Zone(String),
    /// The step is zero.
    #[error("a step of 0 gives the same number again: use 1 or more")]
    Step,
    /// The warning is outside of its range.
    #[error("a warning at {0} % is never right: use 1 to 100")]
    WarnAtPercent(u8),
    /// The first number has too many digits for the template.
    #[error(
        "the first number {start} needs more than the {width} digits of the counter: give the \
         counter more digits, lower `start`, or let the counter widen"
    )]
    Start {
        /// The first number.
        start: u64,
        /// The digits of the counter in the template.
        width: u8,
    },
    /// Two periods could have the same date text. The counter starts again in each period, so two
    /// documents would get the same number.
    #[error(
        "the counter starts again each {reset}, but the date in the template does not determine \
         the {reset}: add `{}`, or let the counter start again less often",
        reset.date_pattern()
    )]
    PeriodNotInText {
        /// The period of the counter.
        reset: Reset,
    },
    /// Two parts of variable width have only digits between them. So different values could give
    /// the same digits.
    #[error(
        "only digits are between the workspace and the counter, so two numbers could be equal: put \
         a character such as `-` between them, or give the workspace a width, as in `{{ws:6}}`"
    )]
    NoSeparator,
}

/// Why a number cannot be rendered.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
pub enum RenderError {
    /// The counter has no more numbers in this period ([`Overflow::Error`](crate::Overflow)).
    #[error(
        "the counter {counter} needs more than {width} digits: let the counter widen, or give it \
         more digits"
    )]
    CounterOverflow {
        /// The counter.
        counter: u64,
        /// The digits of the counter in the template.
        width: u8,
    },
    /// The counter has given its last number, which has 64 bits
    /// ([`Overflow::Widen`](crate::Overflow)).
    #[error("the counter has given its last number: declare a new series")]
    CounterEnd,
    /// The number of the workspace has too many digits for the template.
    #[error("the workspace {ws} needs more than {width} digits: give `{{ws:{width}}}` more digits")]
    WorkspaceOverflow {
        /// The workspace.
        ws: u64,
        /// The digits of the workspace in the template.
        width: u8,
    },
    /// The template has a year of two digits, which would repeat after a century.
    #[error("`yy` stands for 2000 to 2099, and the year is {year}: use `yyyy`")]
    TwoDigitYear {
        /// The year.
        year: i16,
    },
}

/// Why a definition must not replace an earlier one.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
pub enum ReplaceError {
    /// The definitions are of different series.
    #[error("the id differs: declare a new series instead")]
    Id,
    /// The counter would start again at other times.
    #[error("the reset differs, so the counter would repeat numbers: declare a new series")]
    Reset,
    /// The counter would start again at other moments.
    #[error("the time zone differs, so periods would begin at other moments: declare a new series")]
    Zone,
    /// The numbers would come from another counter.
    #[error("the scope differs, so another counter would repeat numbers: declare a new series")]
    Scope,
    /// The counter would begin with another number.
    #[error("the first number differs: declare a new series")]
    Start,
    /// The counter would count in other steps.
    #[error("the step differs: declare a new series")]
    Step,
    /// A number of the new template could be equal to one of the earlier template.
    #[error(
        "a number of the new template could be equal to an earlier number: also change the text at \
         the beginning or at the end of the template"
    )]
    Template,
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::{Definition, Series};

    #[test]
    fn braces_in_the_texts_are_those_of_templates() {
        let text = TemplateError::UnknownPart("x".to_owned()).to_string();
        assert!(text.starts_with("`{x}` is not a part: use `{date:…}`, "), "{text}");
        let text = TemplateError::Unclosed { at: 3 }.to_string();
        let expected = "the `{` at byte 3 has no `}`: close the part, or write `{{` for a brace";
        assert_eq!(text, expected);
        let text = TemplateError::Unopened { at: 3 }.to_string();
        let expected = "the `}` at byte 3 closes nothing: remove it, or write `}}` for a brace";
        assert_eq!(text, expected);
        let text = RenderError::WorkspaceOverflow { ws: 12, width: 1 }.to_string();
        assert_eq!(text, "the workspace 12 needs more than 1 digits: give `{ws:1}` more digits");
        let text = DefinitionError::PeriodNotInText { reset: Reset::Week }.to_string();
        let expected = "the counter starts again each week, but the date in the template does not \
                        determine the week: add `{date:GGGG-VV}`, or let the counter start again \
                        less often";
        assert_eq!(text, expected);
    }

    /// Adding the part that the error of a period advises is enough.
    #[test]
    fn the_advice_on_a_period_helps() {
        for reset in [Reset::Year, Reset::Month, Reset::Week, Reset::Day] {
            let new = |date: &str| {
                let template = format!("{date}-{{counter:1}}");
                Series::new(Definition { reset, ..Definition::new("x", &template) }).map(drop)
            };
            assert_eq!(new(""), Err(DefinitionError::PeriodNotInText { reset }));
            assert_eq!(new(reset.date_pattern()), Ok(()));
        }
    }
}
