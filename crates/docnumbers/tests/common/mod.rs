//! Random templates, and a slow renderer that shares no code with the crate.

use docnumbers::{
    Definition, Overflow, Reset, Scope,
    clock::WallTime,
    jiff::civil::{Date, date},
};

/// A part of a random template.
#[derive(Clone, Debug, PartialEq)]
pub(crate) enum Piece {
    Text(String),
    Date(&'static str),
    Counter(usize),
    Ws(Option<usize>),
    Check(&'static str),
}

const FIELDS: [&str; 7] = ["yyyy", "yy", "MM", "dd", "DDD", "GGGG", "VV"];
const TEXTS: [&str; 9] = ["A", "-", "7", "00", "b/", "{", "x}", "1-1", "é"];

/// The template of the pieces. Some neighbours share a date part.
pub(crate) fn template(pieces: &[Piece], rng: &mut fastrand::Rng) -> String {
    let mut text = String::new();
    let mut is_date = false;
    for piece in pieces {
        let in_date = match piece {
            Piece::Date(field) => Some((*field).to_owned()),
            Piece::Text(text)
                if text.chars().all(|c| !c.is_alphabetic() && c != '{' && c != '}') =>
            {
                Some(text.clone()).filter(|_| is_date && rng.bool())
            }
            _ => None,
        };
        // Two equal letters in a row would be read as another field.
        let is_open = is_date && !matches!(piece, Piece::Date(f) if text.ends_with(&f[..1]));
        if is_date && (in_date.is_none() || !is_open) {
            text.push('}');
            is_date = false;
        }
        if let Some(in_date) = in_date {
            text += if is_date { "" } else { "{date:" };
            text += &in_date;
            is_date = true;
            continue;
        }
        text += &match piece {
            Piece::Text(text) => text.replace('{', "{{").replace('}', "}}"),
            Piece::Date(_) => unreachable!("handled above"),
            Piece::Counter(width) => format!("{{counter:{width}}}"),
            Piece::Ws(None) => "{ws}".to_owned(),
            Piece::Ws(Some(width)) => format!("{{ws:{width}}}"),
            Piece::Check(kind) => format!("{{check:{kind}}}"),
        };
    }
    text + if is_date { "}" } else { "" }
}

/// A few random pieces with one counter.
pub(crate) fn pieces(rng: &mut fastrand::Rng) -> Vec<Piece> {
    let mut pieces = Vec::new();
    for _ in 0..rng.usize(0..6) {
        pieces.push(match rng.u8(..8) {
            0..3 => Piece::Text((*rng.choice(&TEXTS).unwrap()).to_owned()),
            3..6 => Piece::Date(rng.choice(&FIELDS).unwrap()),
            6 => Piece::Ws(None),
            _ => Piece::Ws(Some(rng.usize(1..4))),
        });
    }
    let counter = rng.usize(0..=pieces.len());
    pieces.insert(counter, Piece::Counter(rng.usize(1..4)));
    if rng.u8(..4) == 0 {
        let kind = *rng.choice(&["luhn", "mod97"]).unwrap();
        pieces.insert(rng.usize(counter + 1..=pieces.len()), Piece::Check(kind));
    }
    pieces
}

/// A random definition of the template, in UTC.
pub(crate) fn definition(template: &str, rng: &mut fastrand::Rng) -> Definition {
    let resets = [Reset::Never, Reset::Year, Reset::Month, Reset::Week, Reset::Day];
    Definition {
        reset: *rng.choice(&resets).unwrap(),
        overflow: *rng.choice(&[Overflow::Widen, Overflow::Error]).unwrap(),
        scope: *rng.choice(&[Scope::Workspace, Scope::Application]).unwrap(),
        ..Definition::new("x", template)
    }
}

/// Noon of a date in UTC.
pub(crate) fn noon(day: Date) -> WallTime {
    let days = day.since(date(1970, 1, 1)).unwrap().get_days();
    WallTime::from_millis(u64::try_from(days).unwrap() * 86_400_000 + 43_200_000)
}

/// The number of the pieces, or nothing if something does not fit.
pub(crate) fn reference(
    pieces: &[Piece],
    overflow: Overflow,
    date: Date,
    ws: u64,
    counter: u64,
) -> Option<String> {
    let mut text = String::new();
    for piece in pieces {
        text = match piece {
            Piece::Text(more) => format!("{text}{more}"),
            Piece::Date(field) => format!("{text}{}", date_field(field, date)?),
            Piece::Counter(width) => {
                let digits = format!("{counter:0width$}");
                if overflow == Overflow::Error && digits.len() > *width {
                    return None;
                }
                text + &digits
            }
            Piece::Ws(width) => {
                let digits = format!("{ws:0width$}", width = width.unwrap_or(0));
                if width.is_some_and(|width| digits.len() > width) {
                    return None;
                }
                text + &digits
            }
            Piece::Check("luhn") => format!("{text}{}", luhn(&text)),
            Piece::Check(_) => format!("{text}{:02}", mod97(&text)),
        };
    }
    Some(text)
}

/// A field of a date, from year, month and day alone.
fn date_field(field: &str, date: Date) -> Option<String> {
    let (year, month, day) = (i64::from(date.year()), i64::from(date.month()), date.day());
    let iso = iso_week(year, day_of_year(date));
    Some(match field {
        "yyyy" => format!("{year:04}"),
        "yy" => format!("{year}").strip_prefix("20").filter(|rest| rest.len() == 2)?.to_owned(),
        "MM" => format!("{month:02}"),
        "dd" => format!("{day:02}"),
        "DDD" => format!("{:03}", day_of_year(date)),
        "GGGG" => format!("{:04}", iso.0),
        _ => format!("{:02}", iso.1),
    })
}

fn days_of_year(year: i64) -> i64 {
    365 + i64::from(year % 4 == 0 && (year % 100 != 0 || year % 400 == 0))
}

fn day_of_year(date: Date) -> i64 {
    let february = days_of_year(date.year().into()) - 337;
    let months = [31, february, 31, 30, 31, 30, 31, 31, 30, 31, 30];
    let before: i64 = months[..usize::try_from(date.month()).unwrap() - 1].iter().sum();
    before + i64::from(date.day())
}

/// The ISO year and week: those of the Thursday of the week.
fn iso_week(year: i64, day_of_year: i64) -> (i64, i64) {
    // 1 January 1900 was a Monday.
    let days: i64 = (1900..year).map(days_of_year).sum::<i64>() + day_of_year - 1;
    let thursday = day_of_year - days.rem_euclid(7) + 3;
    if thursday < 1 {
        (year - 1, (thursday + days_of_year(year - 1) - 1) / 7 + 1)
    } else if thursday > days_of_year(year) {
        (year + 1, 1)
    } else {
        (year, (thursday - 1) / 7 + 1)
    }
}

/// The digit that makes a check over all digits succeed.
fn luhn(text: &str) -> u32 {
    let is_right = |check: &u32| {
        let all = format!("{text}{check}");
        let digits: Vec<u32> = all.chars().filter_map(|c| c.to_digit(10)).collect();
        let doubled = [0, 2, 4, 6, 8, 1, 3, 5, 7, 9];
        let sum: u32 = (digits.iter().rev().enumerate())
            .map(|(i, &digit)| if i % 2 == 1 { doubled[digit as usize] } else { digit })
            .sum();
        sum.is_multiple_of(10)
    };
    (0..10).find(is_right).unwrap()
}

/// The digits that make the whole number 1 modulo 97.
fn mod97(text: &str) -> u32 {
    let expanded: String =
        text.chars().filter_map(|c| c.to_digit(36)).map(|d| d.to_string()).collect();
    let rest =
        |digits: &str| digits.chars().fold(0, |r, c| (r * 10 + c.to_digit(10).unwrap()) % 97);
    (2..99).find(|check| rest(&format!("{expanded}{check:02}")) == 1).unwrap()
}
