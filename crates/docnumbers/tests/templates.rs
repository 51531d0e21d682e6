//! Random templates, instead of `IdTemplate`: their texts against a reference renderer, and no text
//! for two documents.

#![allow(clippy::unwrap_used)]

mod common;

use std::collections::HashMap;

use common::{Piece, definition, noon, pieces, reference, template};
use docnumbers::{
    Definition, DefinitionError, Overflow, RenderError, ReplaceError, Reset, Scope, Series, WsId,
    jiff::civil::{Date, date},
};

/// A document: its workspace, a day of its period, and its counter.
type Document = (u64, Date, u64);

/// Dates around the turns of years, months and weeks. They contain all known collisions of ISO
/// weeks with years.
fn dates() -> Vec<Date> {
    let turns = [(2013, 12, 28), (2014, 12, 28), (2015, 12, 28), (2016, 2, 27), (2116, 2, 27)];
    let around = |&(year, month, day): &(i16, i8, i8)| {
        date(year, month, day).series(jiff::ToSpan::day(1)).take(8)
    };
    let far = [date(2015, 5, 22), date(2016, 5, 22), date(2014, 11, 11), date(2111, 11, 11)];
    turns.iter().flat_map(around).chain(far).collect()
}

/// Small and large values that begin and end with the same digits.
const VALUES: [u64; 20] =
    [0, 1, 2, 7, 10, 11, 12, 21, 70, 71, 77, 100, 101, 110, 111, 112, 211, 1101, 1111, 11111];

/// All numbers of a series for the dates and values, with their documents.
fn numbers(series: &Series, has_ws: bool) -> Vec<(String, Document)> {
    let workspaces = if has_ws { &VALUES[..] } else { &[7] };
    let mut found = Vec::new();
    for date in dates() {
        let Ok(day) = series.day(noon(date)) else { continue };
        for &ws in workspaces {
            for counter in VALUES {
                if let Ok(number) = day.number(WsId(ws), counter) {
                    found.push((number.text, (ws, date, counter)));
                }
            }
        }
    }
    found
}

fn has_ws(pieces: &[Piece]) -> bool {
    pieces.iter().any(|piece| matches!(piece, Piece::Ws(_)))
}

/// Whether two documents have the same workspace, period and counter.
fn is_one(series: &Series, a: &Document, b: &Document) -> bool {
    let period = |date| series.day(noon(date)).map(|day| day.period());
    (a.0, a.2) == (b.0, b.2) && period(a.1) == period(b.1)
}

#[test]
fn texts_are_those_of_the_reference() {
    let mut rng = fastrand::Rng::with_seed(1);
    let (mut accepted, mut rendered, mut refused) = (0, 0, 0);
    for _ in 0..30_000 {
        let pieces = pieces(&mut rng);
        let text = template(&pieces, &mut rng);
        let Ok(series) = Series::new(definition(&text, &mut rng)) else { continue };
        accepted += 1;
        for _ in 0..10 {
            let days = i64::from(rng.u32(..584 * 365));
            let date = date(1970, 1, 1) + jiff::SignedDuration::from_hours(24 * days);
            let shift = rng.u32(..64);
            let (ws, counter) = (rng.u64(..) >> shift, rng.u64(..) >> rng.u32(..64));
            let overflow = series.definition().overflow;
            let expected = reference(&pieces, overflow, date, ws, counter);
            let day = series.day(noon(date));
            let found = day.and_then(|day| day.number(WsId(ws), counter)).map(|number| number.text);
            assert_eq!(found.as_ref().ok(), expected.as_ref(), "{text}: {found:?}");
            match found {
                Ok(_) => rendered += 1,
                Err(_) => refused += 1,
            }
        }
    }
    assert!(accepted > 5_000 && rendered > 20_000 && refused > 20_000, "{rendered} {refused}");
}

#[test]
fn no_text_is_given_to_two_documents() {
    let mut rng = fastrand::Rng::with_seed(2);
    let (mut accepted, mut with_two_variables) = (0, 0);
    while accepted < 1_000 {
        let pieces = pieces(&mut rng);
        let Ok(series) = Series::new(definition(&template(&pieces, &mut rng), &mut rng)) else {
            continue;
        };
        accepted += 1;
        let widens = series.definition().overflow == Overflow::Widen;
        with_two_variables += u32::from(widens && pieces.contains(&Piece::Ws(None)));
        let mut seen = HashMap::new();
        for (text, document) in numbers(&series, has_ws(&pieces)) {
            let first = *seen.entry(text).or_insert(document);
            assert!(is_one(&series, &first, &document), "{series:?}: {first:?} {document:?}");
        }
    }
    assert!(with_two_variables > 20, "{with_two_variables}");
}

/// Returns two documents of one text and their text, for a template that the crate refuses.
fn collision(pieces: &[Piece], reset: Reset, days: &[Date], values: u64) -> Option<String> {
    let whole = Definition { reset, ..Definition::new("x", "{date:yyyy-MM-dd}/{counter:1}") };
    let periods = Series::new(whole).unwrap();
    let workspaces = if has_ws(pieces) { values } else { 1 };
    let mut seen = HashMap::new();
    for &date in days {
        for (ws, counter) in (0..workspaces).flat_map(|ws| (0..values).map(move |c| (ws, c))) {
            let document = (ws, date, counter);
            let Some(text) = reference(pieces, Overflow::Widen, date, ws, counter) else {
                continue;
            };
            let first = *seen.entry(text.clone()).or_insert(document);
            if !is_one(&periods, &first, &document) {
                return Some(text);
            }
        }
    }
    None
}

#[test]
fn each_template_whose_date_is_refused_gives_one_text_twice() {
    let mut rng = fastrand::Rng::with_seed(3);
    let mut refused = 0;
    while refused < 1_000 {
        let pieces = pieces(&mut rng);
        let definition = definition(&template(&pieces, &mut rng), &mut rng);
        let reset = definition.reset;
        if Series::new(definition).err() == Some(DefinitionError::PeriodNotInText { reset }) {
            refused += 1;
            assert!(collision(&pieces, reset, &dates(), 1).is_some(), "{reset} {pieces:?}");
        }
    }
}

#[test]
fn templates_without_a_separator_give_one_text_twice() {
    let (ws, counter) = (Piece::Ws(None), Piece::Counter(1));
    let text = |text: &str| Piece::Text(text.to_owned());
    let between = [
        vec![],
        vec![text("7")],
        vec![text("11")],
        vec![Piece::Date("VV"), text("0")],
        vec![Piece::Date("MM")],
        vec![Piece::Date("dd"), text("1")],
    ];
    let days: Vec<Date> = (1..=12).flat_map(|m| [date(2026, m, 1), date(2026, m, 11)]).collect();
    let mut rng = fastrand::Rng::with_seed(4);
    for between in between {
        for (first, last) in [(&ws, &counter), (&counter, &ws)] {
            let mut pieces = vec![first.clone()];
            pieces.extend(between.clone());
            pieces.push(last.clone());
            let definition = Definition::new("x", &template(&pieces, &mut rng));
            let error = Series::new(definition).err();
            assert_eq!(error, Some(DefinitionError::NoSeparator), "{pieces:?}");
            let found = collision(&pieces, Reset::Never, &days, 130);
            assert!(found.is_some(), "{pieces:?}");
        }
    }
    let check = [Piece::Counter(1), Piece::Check("luhn"), Piece::Ws(None)];
    assert!(Series::new(Definition::new("x", &template(&check, &mut rng))).is_err());
    assert!(collision(&check, Reset::Never, &days[..1], 1_300).is_some());
}

#[test]
fn one_part_of_variable_width_needs_no_separator() {
    let new = |template, overflow| {
        Series::new(Definition { overflow, ..Definition::new("x", template) }).map(drop)
    };
    for template in ["7{ws}7{counter:3}7", "7{counter:3}7{ws}7", "{ws}{counter:3}{check:luhn}"] {
        assert_eq!(new(template, Overflow::Error), Ok(()), "{template}");
        assert_eq!(new(template, Overflow::Widen), Err(DefinitionError::NoSeparator), "{template}");
    }
    for template in ["{ws:9}{counter:3}", "{ws}7-7{counter:3}", "{counter:3}{check:luhn}-{ws}"] {
        assert_eq!(new(template, Overflow::Widen), Ok(()), "{template}");
    }
    for template in ["{ws}²{counter:3}", "{ws}-{ws}{counter:3}", "{ws}{date:yyyy7MM}{counter:1}"] {
        assert_eq!(new(template, Overflow::Widen), Err(DefinitionError::NoSeparator), "{template}");
    }
}

/// Returns pieces that differ a little from the given ones.
fn changed(pieces: &[Piece], rng: &mut fastrand::Rng) -> Vec<Piece> {
    let mut changed = pieces.to_vec();
    let at = rng.usize(..changed.len());
    match &mut changed[at] {
        Piece::Counter(width) => *width = rng.usize(1..5),
        Piece::Text(text) => {
            *text = (*rng.choice(&["A", "a", "B", "-", "7", "A7"]).unwrap()).into()
        }
        piece => *piece = Piece::Text("9".to_owned()),
    }
    match rng.u8(..4) {
        0 => changed.insert(0, Piece::Text("B".to_owned())),
        1 => changed.push(Piece::Text("c".to_owned())),
        2 => {
            changed.remove(0);
        }
        _ => {}
    }
    changed
}

#[test]
fn no_text_of_a_replaced_definition_is_given_again() {
    let mut rng = fastrand::Rng::with_seed(5);
    let (mut accepted, mut refused, mut by_width) = (0, 0, 0);
    while accepted < 1_000 || by_width < 100 {
        let old_pieces = pieces(&mut rng);
        let new_pieces = changed(&old_pieces, &mut rng);
        let Ok(old) = Series::new(definition(&template(&old_pieces, &mut rng), &mut rng)) else {
            continue;
        };
        let overflow = *rng.choice(&[Overflow::Widen, Overflow::Error]).unwrap();
        let template = template(&new_pieces, &mut rng);
        let new = Definition { template, overflow, ..old.definition().clone() };
        let Ok(new) = Series::new(new) else { continue };
        match new.may_replace([&old]) {
            Err(error) => {
                assert_eq!(error, ReplaceError::Template);
                refused += 1;
                continue;
            }
            Ok(()) => accepted += 1,
        }
        let without_width = |pieces: &[Piece]| {
            pieces.iter().filter(|p| !matches!(p, Piece::Counter(_))).cloned().collect::<Vec<_>>()
        };
        by_width += u32::from(without_width(&old_pieces) == without_width(&new_pieces));
        let has_ws = has_ws(&old_pieces) || has_ws(&new_pieces);
        let seen: HashMap<_, _> = numbers(&old, has_ws).into_iter().collect();
        for (text, document) in numbers(&new, has_ws) {
            if let Some(first) = seen.get(&text) {
                assert!(is_one(&old, first, &document), "{old:?} {new:?}: {first:?} {document:?}");
            }
        }
    }
    assert!(refused > 200, "{refused}");
}

fn series(template: &str) -> Series {
    Series::new(Definition::new("x", template)).unwrap()
}

#[test]
fn changes_that_could_repeat_a_number_are_refused() {
    let cases = [
        // Counter 1 of the first is counter 17 of the second.
        ("A{counter:2}7", "A{counter:3}"),
        ("{counter:2}", "0{counter:2}"),
        ("A{counter:2}", "A1{counter:2}"),
        ("INV-{counter:2}", "inv-1{counter:2}"),
        ("{counter:2}-1", "{counter:3}1-1"),
        ("A{ws}-{counter:3}", "A{counter:3}-{ws}"),
        ("A{date:yyyy}-{counter:3}", "A{date:GGGG}-{counter:3}"),
    ];
    for (old, new) in cases {
        let found = series(new).may_replace([&series(old)]);
        assert_eq!(found, Err(ReplaceError::Template), "{old} {new}");
    }
    for (old, new) in [
        ("A{counter:2}", "B{counter:9}{ws:3}"),
        ("A{counter:2}", "{date:yyyy}{counter:2}"),
        ("{counter:2}A", "{counter:2}/{date:yyyy}"),
        ("A{counter:2}", "A{counter:5}"),
        ("A{counter:2}", "AB{counter:2}"),
        ("A{date:yyyy}x{counter:2}", "A{date:yyyy}y{counter:2}"),
    ] {
        assert_eq!(series(new).may_replace([&series(old)]), Ok(()), "{old} {new}");
        assert_eq!(series(old).may_replace([&series(new)]), Ok(()), "{new} {old}");
    }
}

/// Only the width differs, but without it nobody knows where the workspace ends: workspace 1201
/// with counter 345 and workspace 12 with counter 1345 have one text.
#[test]
fn a_width_may_change_only_behind_a_separator() {
    let series = |template| {
        let scope = Scope::Application;
        let definition = Definition { scope, ..Definition::new("x", template) };
        Series::new(Definition { overflow: Overflow::Error, ..definition }).unwrap()
    };
    let (three, five) = (series("{ws}{counter:3}"), series("{ws}{counter:5}"));
    let text = |series: &Series, ws, counter| {
        series.day(noon(date(2026, 5, 22))).unwrap().number(WsId(ws), counter).unwrap().text
    };
    assert_eq!(text(&three, 1201, 345), text(&five, 12, 1345));
    assert_eq!(five.may_replace([&three]), Err(ReplaceError::Template));
    assert_eq!(three.may_replace([&three]), Ok(()));
    let (three, five) = (series("{ws}-{counter:3}"), series("{ws}-{counter:5}"));
    assert_eq!(five.may_replace([&three]), Ok(()));
}

/// Each may follow the one before, but the first and the third give A017 for different counters.
#[test]
fn a_definition_must_differ_from_all_earlier_ones() {
    let all = ["A{counter:2}7", "B{counter:2}", "A{counter:3}"].map(series);
    assert_eq!(all[1].may_replace([&all[0]]), Ok(()));
    assert_eq!(all[2].may_replace([&all[1]]), Ok(()));
    assert_eq!(all[2].may_replace(&all[..2]), Err(ReplaceError::Template));
}

#[test]
fn all_but_the_template_and_the_overflow_must_stay() {
    let base = Definition::daily("order", "A");
    let new = |change: fn(&mut Definition)| {
        let mut definition = base.clone();
        change(&mut definition);
        Series::new(definition).unwrap().may_replace([&Series::new(base.clone()).unwrap()])
    };
    assert_eq!(new(|_| {}), Ok(()));
    assert_eq!(new(|new| new.id = "ORDER".into()), Ok(()));
    assert_eq!(new(|new| new.zone = "utc".into()), Ok(()));
    assert_eq!(new(|new| new.warn_at_percent = 80), Ok(()));
    assert_eq!(new(|new| new.overflow = Overflow::Error), Ok(()));
    assert_eq!(new(|new| new.id = "orders".into()), Err(ReplaceError::Id));
    assert_eq!(new(|new| new.reset = Reset::Month), Err(ReplaceError::Reset));
    assert_eq!(new(|new| new.zone = "Asia/Tokyo".into()), Err(ReplaceError::Zone));
    assert_eq!(new(|new| new.scope = Scope::Application), Err(ReplaceError::Scope));
    assert_eq!(new(|new| new.start = 1), Err(ReplaceError::Start));
    assert_eq!(new(|new| new.step = 2), Err(ReplaceError::Step));
    // Even if no text can be equal: the counters would start again.
    let other = |new: &mut Definition| {
        new.template = "B{date:yyyyMMdd}{counter:5}".into();
        new.reset = Reset::Month;
    };
    assert_eq!(new(other), Err(ReplaceError::Reset));
}

#[test]
fn a_definition_that_makes_no_sense_is_refused() {
    let new = |change: fn(&mut Definition)| {
        let mut definition = Definition::daily("order", "A");
        change(&mut definition);
        Series::new(definition).map(drop)
    };
    assert_eq!(new(|new| new.id = "a b".into()), Err(DefinitionError::Id("a b".into())));
    let zone = |zone: &str| Err(DefinitionError::Zone(zone.into()));
    assert_eq!(new(|new| new.zone = "Europe/Nowhere".into()), zone("Europe/Nowhere"));
    assert_eq!(new(|new| new.zone = String::new()), zone(""));
    assert_eq!(new(|new| new.step = 0), Err(DefinitionError::Step));
    assert_eq!(new(|new| new.warn_at_percent = 0), Err(DefinitionError::WarnAtPercent(0)));
    assert_eq!(new(|new| new.warn_at_percent = 101), Err(DefinitionError::WarnAtPercent(101)));
    assert_eq!(new(|new| new.start = 100_000), Ok(()), "the counter widens");
    assert_eq!(new(|new| (new.start, new.overflow) = (99_999, Overflow::Error)), Ok(()));
    let error = Err(DefinitionError::Start { start: 100_000, width: 5 });
    assert_eq!(new(|new| (new.start, new.overflow) = (100_000, Overflow::Error)), error);
    assert!(matches!(new(|new| new.template.clear()), Err(DefinitionError::Template(_))));
}

#[test]
fn the_daily_preset_has_the_numbers_of_its_example() {
    let orders = Series::new(Definition::daily("order", "ORDER")).unwrap();
    let text = |date, counter| {
        let number = orders.day(noon(date)).unwrap().number(WsId(1), counter).unwrap();
        assert_eq!((number.counter, number.to_string()), (counter, number.text.clone()));
        (number.text, number.is_nearly_full)
    };
    let day = date(2013, 5, 22);
    let start = orders.definition().start;
    assert_eq!(text(day, start).0, "ORDER2013-0522-00000");
    assert_eq!(text(day, start + orders.definition().step).0, "ORDER2013-0522-00001");
    assert_eq!(text(day, 100).0, "ORDER2013-0522-00100");
    assert_eq!(text(date(2013, 5, 23), 0).0, "ORDER2013-0523-00000");
    assert_eq!(text(day, 89_999), ("ORDER2013-0522-89999".into(), false));
    assert_eq!(text(day, 90_000), ("ORDER2013-0522-90000".into(), true));
    assert_eq!(text(day, 100_000), ("ORDER2013-0522-100000".into(), true));
    assert!(!orders.is_nearly_full(89_999) && orders.is_nearly_full(90_000));
    let braces = Series::new(Definition::daily("order", "{}")).unwrap();
    let number = braces.day(noon(day)).unwrap().number(WsId(1), 0).unwrap();
    assert_eq!(number.text, "{}2013-0522-00000");
}

#[test]
fn a_number_that_does_not_fit_is_refused() {
    let overflow = Overflow::Error;
    let new =
        |template| Series::new(Definition { overflow, ..Definition::new("x", template) }).unwrap();
    let number = |template, ws, counter| {
        new(template).day(noon(date(2026, 5, 22))).unwrap().number(WsId(ws), counter).map(drop)
    };
    assert_eq!(number("{counter:2}", 0, 99), Ok(()));
    let error = RenderError::CounterOverflow { counter: 100, width: 2 };
    assert_eq!(number("{counter:2}", 0, 100), Err(error));
    assert_eq!(number("{counter:19}", 0, 9_999_999_999_999_999_999), Ok(()));
    let error = RenderError::CounterOverflow { counter: u64::MAX, width: 19 };
    assert_eq!(number("{counter:19}", 0, u64::MAX), Err(error));
    assert_eq!(number("{counter:1}-{ws:3}", 999, 0), Ok(()));
    let error = RenderError::WorkspaceOverflow { ws: 1_000, width: 3 };
    assert_eq!(number("{counter:1}-{ws:3}", 1_000, 0), Err(error));
    assert_eq!(number("{counter:1}-{ws:20}", u64::MAX, 0), Ok(()));
    let short = new("{date:yy}-{counter:2}");
    for (year, is_allowed) in [(1999, false), (2000, true), (2099, true), (2100, false)] {
        let error = RenderError::TwoDigitYear { year };
        let found = short.day(noon(date(year, 5, 22))).map(drop);
        assert_eq!(found, if is_allowed { Ok(()) } else { Err(error) });
    }
}
