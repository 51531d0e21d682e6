//! What a verification found, as a table or as JSON.

use std::io::{self, Write};

use comfy_table::{CellAlignment, Table, presets::UTF8_BORDERS_ONLY};
use istorage_tck::{Conclusion, Report};
use serde_json::{Value, json};

use crate::{elections_verify::Takeovers, latency::Latency, skew::Skew};

/// What a verification found.
#[derive(Debug)]
pub(crate) struct Verification {
    pub(crate) storage: String,
    pub(crate) report: Report,
    pub(crate) latencies: Vec<Latency>,
    pub(crate) takeovers: Vec<Takeovers>,
    pub(crate) skew: Option<Skew>,
    pub(crate) advice: Vec<String>,
}

impl Verification {
    /// Of trials that were run; the measurements are still missing.
    pub(crate) fn new(storage: String, report: Report) -> Verification {
        let (latencies, takeovers, advice) = (Vec::new(), Vec::new(), Vec::new());
        Verification { storage, report, latencies, takeovers, skew: None, advice }
    }

    /// Prints it to stdout. A reader that has gone (`| head`) is no error.
    pub(crate) fn print(&self, as_json: bool) -> io::Result<()> {
        let text = if as_json { format!("{:#}\n", self.json()) } else { self.text() };
        match io::stdout().write_all(text.as_bytes()) {
            Err(error) if error.kind() == io::ErrorKind::BrokenPipe => Ok(()),
            printed => printed,
        }
    }

    fn text(&self) -> String {
        let mut text = format!("Storage: {}\n\n{}\n", self.storage, self.trials());
        if !self.latencies.is_empty() {
            text.push_str(&format!("\n{}\n", self.times()));
        }
        if !self.takeovers.is_empty() {
            text.push_str(&format!("\n{}\n", self.takeovers()));
        }
        if let Some(skew) = self.skew {
            text.push_str(&format!("\n{skew}.\n"));
        }
        if !self.advice.is_empty() {
            text.push_str(&format!("\n* {}\n", self.advice.join("\n* ")));
        }
        let report = &self.report;
        text.push_str(&format!(
            "\n{} passed, {} failed, {} ignored, in {:.1} s\n",
            report.passed(),
            report.failed(),
            report.ignored(),
            report.took.as_secs_f64()
        ));
        text
    }

    fn trials(&self) -> Table {
        let mut table = table(["trial", "result", "time"]);
        for trial in &self.report.trials {
            let result = match &trial.conclusion {
                Conclusion::Passed => "passed".to_owned(),
                Conclusion::Ignored(reason) => format!("ignored: {reason}"),
                Conclusion::Failed(why) => format!("FAILED: {why}"),
            };
            table.add_row([
                trial.name.to_owned(),
                result,
                format!("{:.2} s", trial.took.as_secs_f64()),
            ]);
        }
        align_right(&mut table, &[2]);
        table
    }

    fn times(&self) -> Table {
        let mut table = table(["operation", "p50", "p99"]);
        for latency in &self.latencies {
            table.add_row([latency.operation.to_owned(), millis(latency.p50), millis(latency.p99)]);
        }
        align_right(&mut table, &[1, 2]);
        table
    }

    fn takeovers(&self) -> Table {
        let mut table = table(["takeover", "median", "worst"]);
        for takeovers in &self.takeovers {
            let name = format!("{} ({} times)", takeovers.after, takeovers.times);
            table.add_row([name, millis(takeovers.median), millis(takeovers.worst)]);
        }
        align_right(&mut table, &[1, 2]);
        table
    }

    fn json(&self) -> Value {
        let trials = self.report.trials.iter().map(|trial| {
            let (result, detail) = match &trial.conclusion {
                Conclusion::Passed => ("passed", None),
                Conclusion::Ignored(reason) => ("ignored", Some(*reason)),
                Conclusion::Failed(why) => ("failed", Some(why.as_str())),
            };
            json!({"name": trial.name, "result": result, "detail": detail, "seconds": trial.took.as_secs_f64()})
        });
        json!({
            "storage": self.storage,
            "passed": self.report.passed(),
            "failed": self.report.failed(),
            "ignored": self.report.ignored(),
            "seconds": self.report.took.as_secs_f64(),
            "trials": trials.collect::<Vec<_>>(),
            "latencies": self.latencies,
            "takeovers": self.takeovers,
            "clock_skew": self.skew,
            "advice": self.advice,
        })
    }
}

fn millis(time: std::time::Duration) -> String {
    format!("{:.2} ms", time.as_secs_f64() * 1_000.0)
}

fn table(header: [&str; 3]) -> Table {
    let mut table = Table::new();
    table.load_style(UTF8_BORDERS_ONLY).set_header(header);
    table
}

fn align_right(table: &mut Table, columns: &[usize]) {
    for column in columns {
        if let Some(column) = table.column_mut(*column) {
            column.set_cell_alignment(CellAlignment::Right);
        }
    }
}
