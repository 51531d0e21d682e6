//! Periods, civil dates and their spans, against a reference that computes with day numbers.

#![allow(clippy::unwrap_used)]

use std::{collections::HashSet, time::Duration};

use clock::WallTime;
use docnumbers::{Calendar, Definition, Period, Reset, Series, WsId, clock, jiff};
use jiff::tz::TimeZoneDatabase;

const RESETS: [Reset; 5] = [Reset::Never, Reset::Year, Reset::Month, Reset::Week, Reset::Day];

/// Zones with all kinds of changes. Clocks change at midnight in Sao Paulo (until 2019), Havana and
/// Beirut, and one minute after it in St. John's (until 2011). Apia has skipped a day.
const ZONES: [&str; 9] = [
    "UTC",
    "Europe/Berlin",
    "America/Sao_Paulo",
    "Pacific/Apia",
    "Asia/Kathmandu",
    "America/St_Johns",
    "America/Havana",
    "Asia/Beirut",
    "Pacific/Kwajalein",
];

const SECOND: u64 = 1_000_000_000;
const DAY: u64 = 24 * 60 * 60 * SECOND;

fn calendar(zone: &str) -> Calendar {
    Calendar::named(zone).unwrap_or_else(|| panic!("no zone {zone}"))
}

fn at(nanos: u64) -> WallTime {
    WallTime::from_nanos(nanos)
}

/// The moment of a text such as `2013-05-22T00:00+02`.
fn moment(text: &str) -> WallTime {
    let nanos = text.parse::<jiff::Timestamp>().unwrap().as_nanosecond();
    at(u64::try_from(nanos).unwrap())
}

fn offset_seconds(calendar: &Calendar, at: WallTime) -> i64 {
    let timestamp = jiff::Timestamp::from_nanosecond(at.as_nanos().into()).unwrap();
    calendar.zone().to_offset(timestamp).seconds().into()
}

/// The number of days from 1970-01-01 to the civil date of a moment.
fn day_number(calendar: &Calendar, at: WallTime) -> i64 {
    let seconds = i64::try_from(at.as_nanos() / SECOND).unwrap();
    (seconds + offset_seconds(calendar, at)).div_euclid(86_400)
}

fn is_leap(year: i64) -> bool {
    year % 4 == 0 && (year % 100 != 0 || year % 400 == 0)
}

/// Year, month and day of a day number, by walking over years and months.
fn civil(day_number: i64) -> (i64, i64, i64) {
    let (mut year, mut rest) = (1969, day_number + 365);
    while rest >= 365 + i64::from(is_leap(year)) {
        rest -= 365 + i64::from(is_leap(year));
        year += 1;
    }
    let february = 28 + i64::from(is_leap(year));
    let mut month = 1;
    for days in [31, february, 31, 30, 31, 30, 31, 31, 30, 31, 30, 31] {
        if rest < days {
            break;
        }
        rest -= days;
        month += 1;
    }
    (year, month, rest + 1)
}

/// A number that is equal for two days exactly if they are in one period.
fn reference_key(reset: Reset, day_number: i64) -> i64 {
    let (year, month, _) = civil(day_number);
    match reset {
        Reset::Never => 0,
        Reset::Year => year,
        Reset::Month => year * 12 + month,
        // 1970-01-01 was a Thursday.
        Reset::Week => (day_number + 3).div_euclid(7),
        Reset::Day => day_number,
    }
}

/// A definition whose text has the whole date.
fn series(zone: &str, reset: Reset) -> Series {
    let template = "{date:yyyy-MM-dd}/{counter:1}";
    let zone = zone.to_owned();
    Series::new(Definition { reset, zone, ..Definition::new("x", template) }).unwrap()
}

fn period(series: &Series, at: WallTime) -> Period {
    series.day(at).unwrap().period()
}

/// A random moment before the year 2554.
fn any_moment(rng: &mut fastrand::Rng) -> u64 {
    rng.u64(..584 * 365 * DAY)
}

/// Returns `nanos` moved by a random time, from nanoseconds to years, in both directions.
fn moved(rng: &mut fastrand::Rng, nanos: u64) -> u64 {
    let scale =
        *rng.choice(&[1, SECOND, 3_600 * SECOND, DAY, 7 * DAY, 31 * DAY, 400 * DAY]).unwrap();
    let by = rng.u64(..=2 * scale);
    if rng.bool() { nanos.saturating_add(by) } else { nanos.saturating_sub(by) }
}

#[test]
fn two_moments_have_one_period_exactly_if_the_reference_says_so() {
    let mut rng = fastrand::Rng::with_seed(1);
    for zone in ZONES {
        let all = RESETS.map(|reset| series(zone, reset));
        let (mut same, mut different) = ([0; 5], [0; 5]);
        for _ in 0..100_000 / ZONES.len() {
            let a = any_moment(&mut rng);
            let b = moved(&mut rng, a);
            let days = [a, b].map(|nanos| day_number(all[0].calendar(), at(nanos)));
            for (i, series) in all.iter().enumerate() {
                let [a, b] = [a, b].map(|nanos| period(series, at(nanos)));
                let [key_a, key_b] = days.map(|day| reference_key(RESETS[i], day));
                assert_eq!(a.cmp(&b), key_a.cmp(&key_b), "{zone}: {a} {b}");
                same[i] += u32::from(a == b);
                different[i] += u32::from(a != b);
            }
        }
        assert!(same.iter().all(|&count| count > 1_000), "{same:?}");
        assert!(different[1..].iter().all(|&count| count > 500), "{different:?}");
    }
}

#[test]
fn the_date_in_the_text_is_that_of_the_moment() {
    let mut rng = fastrand::Rng::with_seed(2);
    for zone in ZONES {
        let series = series(zone, Reset::Day);
        for _ in 0..2_000 {
            let at = at(any_moment(&mut rng));
            let number = series.day(at).unwrap().number(WsId(0), 7).unwrap();
            let (year, month, day) = civil(day_number(series.calendar(), at));
            assert_eq!(number.text, format!("{year:04}-{month:02}-{day:02}/7"), "{zone}");
        }
    }
}

/// The reference offsets, in seconds: Berlin from 1996 and Kathmandu from 1986.
#[test]
fn the_offsets_are_those_of_the_law() {
    // 01:00 UTC on the last Sunday of a month with 31 days.
    let change = |year: i64, month: i64| {
        let day = (0..800_000).find(|&day| civil(day) == (year, month, 31)).unwrap();
        let sunday = day - (day + 4).rem_euclid(7);
        u64::try_from(sunday * 86_400 + 3_600).unwrap()
    };
    let berlin = calendar("Europe/Berlin");
    for year in [1996, 2000, 2026, 2037, 2038, 2100, 2400, 2553] {
        for (change, before, behind) in
            [(change(year, 3), 3_600, 7_200), (change(year, 10), 7_200, 3_600)]
        {
            assert_eq!(offset_seconds(&berlin, at(change * SECOND - 1)), before, "{year}");
            assert_eq!(offset_seconds(&berlin, at(change * SECOND)), behind, "{year}");
        }
    }
    let kathmandu = calendar("Asia/Kathmandu");
    assert_eq!(offset_seconds(&kathmandu, moment("1985-12-31T00:00+05:30")), 19_800);
    assert_eq!(offset_seconds(&kathmandu, moment("2026-05-22T00:00Z")), 20_700);
}

/// Checks the span of a moment: no other date and no other offset is in it, and it cannot be
/// longer.
fn check_span(calendar: &Calendar, rng: &mut fastrand::Rng, moment: WallTime) {
    let day = calendar.day(moment);
    assert!(day.contains(moment), "{day:?} {moment:?}");
    assert!(!day.contains(day.until));
    let answer = |at: WallTime| (day_number(calendar, at), offset_seconds(calendar, at));
    let expected = answer(moment);
    let (year, month, day_of_month) = civil(expected.0);
    assert_eq!(day.date.to_string(), format!("{year:04}-{month:02}-{day_of_month:02}"));
    let (from, until) = (day.from.as_nanos(), day.until.as_nanos());
    for nanos in [from, until - 1, rng.u64(from..until), rng.u64(from..until)] {
        assert_eq!(answer(at(nanos)), expected, "{day:?} {nanos}");
        assert_eq!(calendar.day(at(nanos)), day);
    }
    if from > 0 {
        assert_ne!(answer(at(from - 1)), expected, "{day:?}");
    }
    assert_ne!(answer(day.until), expected, "{day:?}");
}

#[test]
fn the_span_of_a_day_has_one_date() {
    let mut rng = fastrand::Rng::with_seed(3);
    for zone in ZONES {
        let calendar = calendar(zone);
        for _ in 0..5_000 {
            let moment = at(any_moment(&mut rng));
            check_span(&calendar, &mut rng, moment);
        }
        // All days from 1970 to 2045, one after another.
        let mut now = at(0);
        while now < at(75 * 365 * DAY) {
            check_span(&calendar, &mut rng, now);
            let next = calendar.day(now).until;
            assert_eq!(calendar.day(next).from, next, "{zone}");
            now = next;
        }
    }
}

#[test]
fn the_span_of_a_day_has_one_date_at_all_changes_of_all_zones() {
    let mut rng = fastrand::Rng::with_seed(4);
    let (mut zones, mut changes) = (0, 0);
    for zone in TimeZoneDatabase::bundled().available() {
        let calendar = calendar(zone.as_str());
        zones += 1;
        // Steps of a week find all changes except those that are undone within a week.
        let mut offset = offset_seconds(&calendar, at(0));
        for week in 1..52 * 75 {
            let now = at(week * 7 * DAY);
            let last = std::mem::replace(&mut offset, offset_seconds(&calendar, now));
            if offset != last {
                changes += 1;
                for back in 0..8 {
                    let nanos = (week * 7 - back) * DAY + rng.u64(..DAY);
                    check_span(&calendar, &mut rng, at(nanos));
                }
            }
        }
    }
    assert!(zones > 400 && changes > 20_000, "{zones} {changes}");
}

#[test]
fn the_ends_of_time_have_a_day() {
    for zone in ZONES {
        let calendar = calendar(zone);
        let first = calendar.day(at(0));
        assert!(first.from == at(0) && first.contains(at(0)), "{first:?}");
        let last = calendar.day(at(u64::MAX));
        assert!(last.contains(at(u64::MAX - 1)) && last.until == at(u64::MAX), "{last:?}");
        assert!(!last.contains(at(u64::MAX)), "the caller asks again");
    }
}

/// The hours of a civil date, over all its spans, and the number of spans.
fn hours(zone: &str, noon: &str) -> (f64, usize) {
    let calendar = calendar(zone);
    let noon = moment(noon);
    let date = calendar.day(noon).date;
    let mut spans = HashSet::new();
    for minute in 0..48 * 60 {
        let day = calendar.day(at(noon.as_nanos() - DAY) + Duration::from_secs(60 * minute));
        if day.date == date {
            spans.insert((day.from, day.until));
        }
    }
    let nanos: u64 = spans.iter().map(|(from, until)| until.as_nanos() - from.as_nanos()).sum();
    (nanos as f64 / (3_600 * SECOND) as f64, spans.len())
}

#[test]
fn days_are_longer_and_shorter_when_clocks_change() {
    // The cases of Berlin and Havana change inside of the day, so the day has two parts.
    assert_eq!(hours("Europe/Berlin", "2026-03-29T12:00+02"), (23.0, 2));
    assert_eq!(hours("Europe/Berlin", "2026-10-25T12:00+01"), (25.0, 2));
    assert_eq!(hours("America/Havana", "2025-11-02T12:00-05"), (25.0, 2));
    assert_eq!(hours("Europe/Berlin", "2026-05-22T12:00+02"), (24.0, 1));
    // The day begins at 01:00, and the clocks go back at midnight.
    assert_eq!(hours("America/Sao_Paulo", "2017-10-15T12:00-02"), (23.0, 1));
    assert_eq!(hours("America/Sao_Paulo", "2018-02-17T12:00-02"), (25.0, 2));
}

#[test]
fn a_day_may_begin_at_one_o_clock() {
    let day = calendar("America/Sao_Paulo").day(moment("2017-10-15T12:00-02"));
    assert_eq!(day.from, moment("2017-10-15T01:00-02"));
    assert_eq!(day.from, moment("2017-10-15T00:00-03"));
}

/// At 08:00 UTC the zone moved from Central to Eastern time and began its summer time, two hours at
/// once. By its new rules the summer time began at 07:00 UTC, and `TimeZone::preceding` says so. A
/// day from 07:00 on would have an hour with another offset.
#[test]
fn a_zone_may_get_new_rules_with_a_change() {
    let day = calendar("America/Indiana/Winamac").day(moment("2007-03-11T12:00Z"));
    assert_eq!(day.from, moment("2007-03-11T08:00Z"));
}

#[test]
fn a_zone_may_skip_a_day() {
    let series = series("Pacific/Apia", Reset::Day);
    let last = series.day(moment("2011-12-29T23:59:59-10")).unwrap();
    let next = series.day(last.day().until).unwrap();
    assert_eq!(last.period().to_string(), "2011-12-29");
    assert_eq!(next.period().to_string(), "2011-12-31");
}

/// In St. John's the clocks went from 00:01 on Sunday back to 23:01 on Saturday. So the first
/// minute of Sunday is followed by an hour of Saturday, and the counters of both days count on.
#[test]
fn a_date_may_come_again() {
    let series = series("America/St_Johns", Reset::Day);
    let moments = [
        ("2010-11-06T23:59:59-02:30", "2010-11-06"),
        ("2010-11-07T00:00:00-02:30", "2010-11-07"),
        ("2010-11-07T00:00:59-02:30", "2010-11-07"),
        ("2010-11-06T23:01:00-03:30", "2010-11-06"),
        ("2010-11-06T23:59:59-03:30", "2010-11-06"),
        ("2010-11-07T00:00:00-03:30", "2010-11-07"),
    ];
    let mut texts = Vec::new();
    for (text, date) in moments {
        let day = series.day(moment(text)).unwrap();
        assert_eq!(day.period().to_string(), date, "{text}");
        texts.push(day);
    }
    // A text of the first part of Saturday is not used in the minute of Sunday.
    assert!(!texts[0].contains(moment(moments[1].0)) && !texts[0].contains(moment(moments[3].0)));
    assert!(!texts[1].contains(moment(moments[3].0)) && !texts[1].contains(moment(moments[5].0)));
    assert!(texts[1].contains(moment(moments[2].0)) && texts[3].contains(moment(moments[4].0)));
}

#[test]
fn weeks_begin_on_monday_in_the_zone() {
    let series = series("Asia/Kathmandu", Reset::Week);
    let sunday = period(&series, moment("2026-11-22T23:59:59.999999999+05:45"));
    let monday = period(&series, moment("2026-11-23T00:00+05:45"));
    assert_eq!((sunday.to_string(), monday.to_string()), ("2026-W47".into(), "2026-W48".into()));
    // The whole Monday and Tuesday are in one week: no call on a Monday begins a new one.
    for text in ["2026-11-23T09:00+05:45", "2026-11-23T09:01+05:45", "2026-11-24T09:00+05:45"] {
        assert_eq!(period(&series, moment(text)), monday);
    }
}

#[test]
fn leap_days_and_turns_of_the_year_are_where_they_belong() {
    let show = |reset, text| period(&series("UTC", reset), moment(text)).to_string();
    assert_eq!(show(Reset::Day, "2024-02-29T12:00Z"), "2024-02-29");
    assert_eq!(show(Reset::Day, "2100-03-01T00:00Z"), "2100-03-01");
    assert_eq!(show(Reset::Month, "2024-02-29T23:59:59Z"), "2024-02");
    assert_eq!(show(Reset::Year, "2024-12-31T23:59:59.999Z"), "2024");
    assert_eq!(show(Reset::Week, "2024-12-31T23:59:59Z"), "2025-W01");
    assert_eq!(show(Reset::Year, "2025-01-01T00:00Z"), "2025");
    assert_eq!(show(Reset::Never, "2025-01-01T00:00Z"), "all");
}

/// A clock that goes back over midnight gives the numbers of the former day again, so the counter
/// of the former day counts on. No pair of a text and a period is mixed.
#[test]
fn a_clock_that_goes_back_gives_the_former_period() {
    let series = series("Europe/Berlin", Reset::Day);
    let (before, behind) = (moment("2026-05-21T23:59:59+02"), moment("2026-05-22T00:00+02"));
    let days = [before, behind, before].map(|at| series.day(at).unwrap());
    assert_eq!(days[0].period(), days[2].period());
    assert!(days[0].period() < days[1].period() && !days[1].contains(before));
    let texts = days.map(|day| day.number(WsId(1), 3).unwrap().text);
    assert_eq!(texts, ["2026-05-21/3", "2026-05-22/3", "2026-05-21/3"]);
}
