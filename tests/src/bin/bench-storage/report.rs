//! The table of results, for a reader and for `docs/benchmarks.md`.

use std::fmt::Write as _;

use vvm_tests::bench::{Sample, millis};

use crate::measure::Row;

/// Formats the rows of one driver as a Markdown table.
pub(crate) fn table(driver: &str, floor: Option<&str>, rows: &[Row]) -> String {
    let mut text = format!("### {driver}\n\n");
    if let Some(floor) = floor {
        let _infallible = writeln!(text, "Floor: {floor}.\n");
    }
    text.push_str(
        "| operation | tasks | driver, calls/s | p50 | p99 | CPU | floor, calls/s | p50 | CPU | ratio |\n",
    );
    text.push_str("|---|---:|---:|---:|---:|---:|---:|---:|---:|---:|\n");
    for row in rows {
        let (floor, floor_p50, floor_cpu) = match &row.floor {
            Some(floor) => (rate(floor), millis(floor.p50), micros(floor.cpu)),
            None => Default::default(),
        };
        let ratio = row.ratio.map(|ratio| format!("{ratio:.2}")).unwrap_or_default();
        let Row { op, tasks, driver, .. } = row;
        let (p50, p99) = (millis(driver.p50), millis(driver.p99));
        let _infallible = writeln!(
            text,
            "| {op} | {tasks} | {} | {p50} | {p99} | {} | {floor} | {floor_p50} | {floor_cpu} | {ratio} |",
            rate(driver),
            micros(driver.cpu)
        );
    }
    text
}

fn rate(sample: &Sample) -> String {
    format!("{:.0}", sample.per_second)
}

fn micros(duration: std::time::Duration) -> String {
    format!("{:.0} µs", duration.as_secs_f64() * 1_000_000.0)
}
