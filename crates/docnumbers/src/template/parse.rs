//! The syntax of a template.

use std::str::FromStr;

use super::{BYTES_MAX, DIGITS_MAX, DateField, Part, Template};
use crate::{TemplateError, check_digit::CheckKind};

/// The most digits of a counter whose number of values fits into a `u64`.
const COUNTER_DIGITS_MAX: u8 = 19;

impl FromStr for Template {
    type Err = TemplateError;

    fn from_str(text: &str) -> Result<Template, TemplateError> {
        let mut template = Template { parts: Vec::new() };
        let mut at = 0;
        while let Some(c) = text[at..].chars().next() {
            let rest = &text[at + c.len_utf8()..];
            at += match c {
                '{' | '}' if rest.starts_with(c) => {
                    template.push(c)?;
                    2
                }
                '{' => {
                    let end = rest.find(['{', '}']).filter(|&end| rest[end..].starts_with('}'));
                    let end = end.ok_or(TemplateError::Unclosed { at })?;
                    template.push_part(&rest[..end])?;
                    end + 2
                }
                '}' => return Err(TemplateError::Unopened { at }),
                _ => {
                    template.push(c)?;
                    c.len_utf8()
                }
            };
        }
        template.check(text)?;
        Ok(template)
    }
}

impl Template {
    /// The template of a date pattern alone.
    pub(crate) fn of_date(pattern: &str) -> Result<Template, TemplateError> {
        let mut template = Template { parts: Vec::new() };
        template.push_date(pattern)?;
        template.check_bytes()?;
        Ok(template)
    }

    /// Appends a literal character.
    fn push(&mut self, c: char) -> Result<(), TemplateError> {
        if c.is_control() || (c.is_whitespace() && c != ' ') {
            return Err(TemplateError::Invisible(c));
        }
        if let Some(Part::Literal(text)) = self.parts.last_mut() {
            text.push(c);
        } else {
            self.parts.push(Part::Literal(c.into()));
        }
        Ok(())
    }

    /// Appends the part with this text between its braces.
    fn push_part(&mut self, text: &str) -> Result<(), TemplateError> {
        let unknown = || TemplateError::UnknownPart(text.to_owned());
        let (name, argument) = match text.split_once(':') {
            Some((name, argument)) => (name, Some(argument)),
            None => (text, None),
        };
        let width = |argument: &str, max: u8| {
            let is_number = argument.bytes().all(|byte| byte.is_ascii_digit());
            let width =
                argument.parse().ok().filter(|width| is_number && (1..=max).contains(width));
            width.ok_or_else(|| TemplateError::Width { part: text.to_owned(), max })
        };
        let part = match (name, argument) {
            ("date", Some(pattern)) => return self.push_date(pattern),
            ("counter", Some(argument)) => Part::Counter(width(argument, COUNTER_DIGITS_MAX)?),
            ("ws", None) => Part::Ws(None),
            ("ws", Some(argument)) => Part::Ws(Some(width(argument, DIGITS_MAX)?)),
            ("check", Some("luhn")) => Part::Check(CheckKind::Luhn),
            ("check", Some("mod97")) => Part::Check(CheckKind::Mod97),
            _ => return Err(unknown()),
        };
        self.parts.push(part);
        Ok(())
    }

    /// Appends the fields and the literals of a date pattern. Equal letters in a row are one field.
    fn push_date(&mut self, pattern: &str) -> Result<(), TemplateError> {
        let error = || TemplateError::DatePattern(pattern.to_owned());
        let mut has_field = false;
        let mut rest = pattern;
        while let Some(c) = rest.chars().next() {
            let (field, behind) = rest.split_at(rest.len() - rest.trim_start_matches(c).len());
            if c.is_alphabetic() {
                let named = DateField::ALL.iter().find(|(_, letters)| *letters == field);
                self.parts.push(Part::Date(named.ok_or_else(error)?.0));
                has_field = true;
            } else {
                field.chars().try_for_each(|c| self.push(c))?;
            }
            rest = behind;
        }
        if has_field { Ok(()) } else { Err(error()) }
    }

    /// Checks the rules on the template as a whole.
    fn check(&self, text: &str) -> Result<(), TemplateError> {
        if self.parts.is_empty() {
            return Err(TemplateError::Empty);
        }
        if text.starts_with(' ') || text.ends_with(' ') {
            return Err(TemplateError::OuterSpace);
        }
        let is_counter = |part: &Part| matches!(part, Part::Counter(_));
        let is_check = |part: &Part| matches!(part, Part::Check(_));
        let Some(counter) = self.parts.iter().position(is_counter) else {
            return Err(TemplateError::NoCounter);
        };
        if self.parts.iter().skip(counter + 1).any(is_counter) {
            return Err(TemplateError::SeveralCounters);
        }
        if let Some(check) = self.parts.iter().position(is_check) {
            if self.parts.iter().skip(check + 1).any(is_check) {
                return Err(TemplateError::SeveralChecks);
            }
            if check < counter {
                return Err(TemplateError::CheckBeforeCounter);
            }
            self.check_letters(check)?;
        }
        self.check_bytes()
    }

    fn check_bytes(&self) -> Result<(), TemplateError> {
        let bytes = self.bytes_max();
        if bytes > BYTES_MAX {
            return Err(TemplateError::TooLong { bytes, max: BYTES_MAX });
        }
        Ok(())
    }

    /// Checks that the check part at this index has a rule for each letter before it.
    fn check_letters(&self, check: usize) -> Result<(), TemplateError> {
        if self.parts[check] == Part::Check(CheckKind::Luhn) {
            return Ok(());
        }
        let literals = self.parts[..check].iter().filter_map(|part| match part {
            Part::Literal(text) => Some(text.chars()),
            _ => None,
        });
        let is_foreign = |c: &char| c.is_alphanumeric() && !c.is_ascii();
        match literals.flatten().find(is_foreign) {
            Some(letter) => Err(TemplateError::UncheckedLetter(letter)),
            None => Ok(()),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn parse(text: &str) -> Result<Vec<Part>, TemplateError> {
        text.parse().map(|template: Template| template.parts)
    }

    fn literal(text: &str) -> Part {
        Part::Literal(text.to_owned())
    }

    #[test]
    fn each_part_is_read() {
        let parts = parse("A{{ü}}{date:yyyy-MMdd/0DDD}{date:yyGGGGVV}{counter:5}{ws}:{ws:20}");
        let date = Part::Date;
        let expected = [
            literal("A{ü}"),
            date(DateField::Year),
            literal("-"),
            date(DateField::Month),
            date(DateField::Day),
            literal("/0"),
            date(DateField::DayOfYear),
            date(DateField::YearOfCentury),
            date(DateField::IsoYear),
            date(DateField::IsoWeek),
            Part::Counter(5),
            Part::Ws(None),
            literal(":"),
            Part::Ws(Some(20)),
        ];
        assert_eq!(parts.unwrap(), expected);
        let check = |text: &str| parse(text).unwrap().pop().unwrap();
        assert_eq!(check("{counter:1}{check:luhn}"), Part::Check(CheckKind::Luhn));
        assert_eq!(check("{counter:19}{check:mod97}"), Part::Check(CheckKind::Mod97));
    }

    #[test]
    fn braces_are_paired_from_the_left() {
        assert_eq!(parse("{{}}{counter:1}").unwrap()[0], literal("{}"));
        assert_eq!(parse("{{{counter:1}}}").unwrap()[2], literal("}"));
        assert_eq!(parse("a{"), Err(TemplateError::Unclosed { at: 1 }));
        assert_eq!(parse("ü{counter"), Err(TemplateError::Unclosed { at: 2 }));
        assert_eq!(parse("{counter{ws}:5}"), Err(TemplateError::Unclosed { at: 0 }));
        assert_eq!(parse("{counter:1}}"), Err(TemplateError::Unopened { at: 11 }));
    }

    #[test]
    fn unknown_parts_are_refused() {
        for part in ["", "Counter:5", "counter", "ws:", "ws:x", "date", "check", "check:iban", "x"]
        {
            let found = parse(&format!("{{{part}}}"));
            let expected = match part {
                "ws:" | "ws:x" => TemplateError::Width { part: part.to_owned(), max: 20 },
                _ => TemplateError::UnknownPart(part.to_owned()),
            };
            assert_eq!(found, Err(expected));
        }
        for pattern in ["", "-", "2026", "yyy", "yyyyyy", "MMM", "mm", "DD", "d", "yyyyT", "yyyyß"]
        {
            let found = parse(&format!("{{date:{pattern}}}"));
            assert_eq!(found, Err(TemplateError::DatePattern(pattern.to_owned())));
        }
    }

    #[test]
    fn widths_have_a_range() {
        for (part, max) in [("counter", 19), ("ws", 20)] {
            for width in ["0", &(max + 1).to_string(), "+5", "5 ", "999", "-1", ""] {
                let part = format!("{part}:{width}");
                let found = parse(&format!("{{{part}}}"));
                assert_eq!(found, Err(TemplateError::Width { part, max }));
            }
        }
    }

    #[test]
    fn what_people_cannot_see_is_refused() {
        for c in ['\n', '\0', '\u{7f}', '\u{85}', '\u{a0}', '\u{2028}', '\u{3000}'] {
            assert_eq!(parse(&format!("a{c}{{counter:1}}")), Err(TemplateError::Invisible(c)));
            let in_date = format!("{{date:yyyy{c}MM}}{{counter:1}}");
            assert_eq!(parse(&in_date), Err(TemplateError::Invisible(c)));
        }
        for text in [" {counter:1}", "{counter:1} "] {
            assert_eq!(parse(text), Err(TemplateError::OuterSpace));
        }
        assert!(parse("a {counter:1}").is_ok());
    }

    #[test]
    fn a_template_has_one_counter_and_at_most_one_check() {
        let cases = [
            ("", TemplateError::Empty),
            ("a{date:yyyy}{ws}", TemplateError::NoCounter),
            ("{counter:1}-{counter:1}", TemplateError::SeveralCounters),
            ("{counter:1}{check:luhn}{check:mod97}", TemplateError::SeveralChecks),
            ("{check:luhn}{counter:1}", TemplateError::CheckBeforeCounter),
            ("Ж{counter:1}{check:mod97}", TemplateError::UncheckedLetter('Ж')),
        ];
        for (text, error) in cases {
            assert_eq!(parse(text), Err(error));
        }
        for text in ["Ж{counter:1}{check:luhn}", "№{counter:1}{check:mod97}Ж"] {
            assert!(parse(text).is_ok(), "{text}");
        }
    }

    #[test]
    fn the_longest_number_has_200_bytes() {
        let with = |literals: usize| format!("{}{{ws}}-{{counter:3}}", "x".repeat(literals));
        assert!(parse(&with(159)).is_ok());
        assert_eq!(parse(&with(160)), Err(TemplateError::TooLong { bytes: 201, max: 200 }));
    }
}
