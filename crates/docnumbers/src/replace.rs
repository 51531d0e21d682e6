//! Which changes of a definition give no number a second time.

use crate::{
    ReplaceError, Series,
    template::{Part, Template},
    unique::has_separators,
};

/// Checks that no number of `new` can be equal to a number that `old` gave.
///
/// Both series draw from the same counters, so no pair of a period and a counter occurs in both. If
/// only the width of the counter differs, one division into parts fits the texts of both, and the
/// [proof of uniqueness](crate::unique) holds for them together. Otherwise the texts must differ in
/// one place that is the same for all of them.
pub(crate) fn check(new: &Series, old: &Series) -> Result<(), ReplaceError> {
    let (definition, earlier) = (new.definition(), old.definition());
    let rules = [
        (new.id() == old.id(), ReplaceError::Id),
        (definition.reset == earlier.reset, ReplaceError::Reset),
        (new.zone_name() == old.zone_name(), ReplaceError::Zone),
        (definition.scope == earlier.scope, ReplaceError::Scope),
        (definition.start == earlier.start, ReplaceError::Start),
        (definition.step == earlier.step, ReplaceError::Step),
        (
            are_one_division(new.template(), old.template())
                || are_different(new.template(), old.template()),
            ReplaceError::Template,
        ),
    ];
    match rules.into_iter().find(|(holds, _)| !holds) {
        Some((_, error)) => Err(error),
        None => Ok(()),
    }
}

/// Whether the templates differ at most in the width of the counter, and a text of both can be
/// divided without that width. `{ws}{counter:3}` and `{ws}{counter:5}` differ only in the width,
/// and both give 1201345: for workspace 1201 with counter 345, and for workspace 12 with counter
/// 1345.
fn are_one_division(new: &Template, old: &Template) -> bool {
    let is_equal =
        |(a, b): (&Part, &Part)| a == b || matches!((a, b), (Part::Counter(_), Part::Counter(_)));
    new == old
        || (new.parts().len() == old.parts().len()
            && new.parts().iter().zip(old.parts()).all(is_equal)
            && has_separators(new, true))
}

/// Whether all texts of the templates have different characters in one place, counted from the
/// beginning or from the end. People do not hear the case of a letter, so it makes no difference.
fn are_different(new: &Template, old: &Template) -> bool {
    let differ = |new: Vec<TextChar>, old: Vec<TextChar>| {
        new.into_iter().zip(old).any(|(a, b)| match (a, b) {
            (TextChar::Char(a), TextChar::Char(b)) => !a.to_lowercase().eq(b.to_lowercase()),
            (TextChar::Char(c), TextChar::Digit) | (TextChar::Digit, TextChar::Char(c)) => {
                !c.is_numeric()
            }
            (TextChar::Digit, TextChar::Digit) => false,
        })
    };
    differ(known(new.parts().iter(), false), known(old.parts().iter(), false))
        || differ(known(new.parts().iter().rev(), true), known(old.parts().iter().rev(), true))
}

/// A character of all texts of a template.
enum TextChar {
    Char(char),
    Digit,
}

/// The places from one end of the texts up to the first part of variable width. That part has at
/// least its lowest number of digits. The counter counts as variable.
fn known<'a>(parts: impl Iterator<Item = &'a Part>, from_the_end: bool) -> Vec<TextChar> {
    let mut places = Vec::new();
    for part in parts {
        match part {
            Part::Literal(text) if from_the_end => {
                places.extend(text.chars().rev().map(TextChar::Char));
            }
            Part::Literal(text) => places.extend(text.chars().map(TextChar::Char)),
            _ => places.extend((0..part.digits_min()).map(|_| TextChar::Digit)),
        }
        if matches!(part, Part::Counter(_) | Part::Ws(None)) {
            break;
        }
    }
    places
}
