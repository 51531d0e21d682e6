//! The cost of a number: one allocation, and its time.

#![allow(clippy::unwrap_used)]

use std::hint::black_box;

use clock::Clock;
use docnumbers::{Definition, Series, WsId, clock};

const TEMPLATES: [&str; 4] = [
    "ORDER{date:yyyy-MMdd}-{counter:5}",
    "INV{ws}-{date:yyyy}/{counter:6}",
    "ORDER{date:yyyy-MMdd}-{counter:5}-{check:luhn}",
    "ORDER{date:yyyy-MMdd}-{counter:5}-{check:mod97}",
];

fn series(template: &str) -> Series {
    Series::new(Definition::new("x", template)).unwrap()
}

#[test]
fn a_number_is_one_allocation() {
    for template in TEMPLATES {
        let day = series(template).day(Clock::system().wall()).unwrap();
        for (ws, counter) in [(0, 0), (7, 42), (u64::MAX, 99_999), (12_345, 100_000), (1, u64::MAX)]
        {
            let info = allocation_counter::measure(|| {
                let _ = black_box(day.number(WsId(ws), counter)).unwrap();
            });
            assert_eq!(info.count_total, 1, "{template} {counter}");
        }
    }
}

/// Run it with `cargo test --release -p docnumbers --test cost -- --ignored --nocapture`.
#[test]
#[ignore = "the time means something only in a release build on an idle machine"]
fn a_number_takes_less_than_150_ns() {
    const ROUND: u32 = 1_000_000;
    let clock = Clock::system();
    let mut slow = Vec::new();
    for template in TEMPLATES {
        let series = series(template);
        let day = series.day(clock.wall()).unwrap();
        let round = || {
            let start = clock.now();
            for counter in 0..u64::from(ROUND) {
                let _ = black_box(day.number(WsId(black_box(7)), black_box(counter))).unwrap();
            }
            (clock.now() - start) / ROUND
        };
        let fastest = (0..7).map(|_| round()).min().unwrap();
        let start = clock.now();
        for _ in 0..ROUND / 100 {
            black_box(series.day(black_box(clock.wall()))).unwrap();
        }
        let a_day = (clock.now() - start) / (ROUND / 100);
        println!("{template}: {fastest:?} a number, {a_day:?} for the text of a day");
        if fastest.as_nanos() >= 150 {
            slow.push(template);
        }
    }
    assert!(slow.is_empty(), "{slow:?}");
}
