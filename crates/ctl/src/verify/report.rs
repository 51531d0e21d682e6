//! The result of a verification, as a table or as JSON.

use std::{process::ExitCode, time::Duration};

use ielections::Budget;
use serde::Serialize;
use serde_json::{Map, Value, json};
use tck::trial::{Conclusion, Report};

use super::{
    latency::{OperationLatency, as_seconds},
    trials::times,
};
use crate::{
    CommandError, answer_text::table_with_numbers, clock_skew::ClockSkew, terminal::print,
};

/// How long seats were without a leader.
#[derive(Clone, Debug, Serialize)]
pub(crate) struct TakeoverTimes {
    pub(crate) after: &'static str,
    pub(crate) times: u16,
    #[serde(rename = "median_seconds", serialize_with = "as_seconds")]
    pub(crate) median: Duration,
    #[serde(rename = "worst_seconds", serialize_with = "as_seconds")]
    pub(crate) worst: Duration,
}

/// The result of a verification. Measurements that were not made are empty, and are not printed.
#[derive(Debug)]
pub(crate) struct Verification {
    pub(crate) storage: String,
    pub(crate) report: Report,
    pub(crate) latencies: Vec<OperationLatency>,
    pub(crate) takeovers: Vec<TakeoverTimes>,
    /// The time budget of the leases of measured takeovers.
    pub(crate) lease: Option<Budget>,
    pub(crate) skew: Option<ClockSkew>,
    pub(crate) advice: Vec<String>,
}

impl Verification {
    /// Makes the result of the trials. The measurements are still missing.
    pub(crate) fn new(storage: String, report: Report) -> Verification {
        let (latencies, takeovers, advice) = (Vec::new(), Vec::new(), Vec::new());
        Verification { storage, report, latencies, takeovers, lease: None, skew: None, advice }
    }

    /// Prints the result, even if measuring failed, and returns the exit code of the command.
    pub(crate) fn conclude(
        &self,
        as_json: bool,
        measured: Result<(), CommandError>,
    ) -> Result<ExitCode, CommandError> {
        print(&if as_json { format!("{:#}\n", self.json()) } else { self.text() })?;
        measured?;
        match (self.report.failed(), self.report.passed()) {
            (0, 0) => Err(CommandError::unfinished("nothing was proved: all trials were ignored")),
            (0, _) => Ok(ExitCode::SUCCESS),
            _ => Ok(ExitCode::FAILURE),
        }
    }

    fn text(&self) -> String {
        let report = &self.report;
        let mut parts = vec![format!("Storage: {}\n", self.storage), trials(report)];
        if !self.latencies.is_empty() {
            let row =
                |it: &OperationLatency| [it.operation.to_owned(), millis(it.p50), millis(it.p99)];
            let rows = self.latencies.iter().map(row);
            parts.push(table_with_numbers(["operation", "p50", "p99"], 1, rows));
        }
        if !self.takeovers.is_empty() {
            let row = |it: &TakeoverTimes| {
                let name = format!("{} ({})", it.after, times(it.times));
                [name, millis(it.median), millis(it.worst)]
            };
            let rows = self.takeovers.iter().map(row);
            parts.push(table_with_numbers(["takeover", "median", "worst"], 1, rows));
        }
        if let Some(budget) = &self.lease {
            let rows = lease_times(budget).map(|(_, what, time)| [what.to_owned(), seconds(time)]);
            parts.push(table_with_numbers(["lease", "time"], 1, rows.into_iter()));
        }
        parts.extend(self.skew.map(|skew| format!("{skew}.\n")));
        if !self.advice.is_empty() {
            parts.push(format!("* {}\n", self.advice.join("\n* ")));
        }
        let [passed, failed, ignored] = [report.passed(), report.failed(), report.ignored()];
        let took = report.took.as_secs_f64();
        parts
            .push(format!("{passed} passed, {failed} failed, {ignored} ignored, in {took:.1} s\n"));
        parts.join("\n")
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
        let lease = self.lease.as_ref().map(|budget| {
            let seconds =
                |(name, _, time): (&str, _, Duration)| (name.to_owned(), json!(time.as_secs_f64()));
            lease_times(budget).map(seconds).into_iter().collect::<Map<_, _>>()
        });
        let mut found = json!({
            "storage": self.storage,
            "passed": self.report.passed(),
            "failed": self.report.failed(),
            "ignored": self.report.ignored(),
            "seconds": self.report.took.as_secs_f64(),
            "trials": trials.collect::<Vec<_>>(),
            "latencies": self.latencies,
            "takeovers": self.takeovers,
            "lease": lease,
            "clock_skew": self.skew,
            "advice": self.advice,
        });
        if let Some(found) = found.as_object_mut() {
            found.retain(|_, value| !value.is_null() && *value != json!([]));
        }
        found
    }
}

/// The times that follow from the length of a lease: each with its name in JSON, and its name in
/// the table.
fn lease_times(budget: &Budget) -> [(&'static str, &'static str, Duration); 5] {
    let timing = budget.timing();
    [
        ("seconds", "duration", timing.duration),
        ("renew_every_seconds", "renewed every", timing.renew_every),
        ("retry_for_seconds", "a failed renewal is retried for", timing.retry_for),
        ("stop_seconds", "if the store does not answer, all work ends within", budget.stop_bound()),
        (
            "failover_seconds",
            "if the leader dies, a waiting node leads within",
            budget.failover_bound(),
        ),
    ]
}

fn trials(report: &Report) -> String {
    let rows = report.trials.iter().map(|trial| {
        let result = match &trial.conclusion {
            Conclusion::Passed => "passed".to_owned(),
            Conclusion::Ignored(reason) => format!("ignored: {reason}"),
            Conclusion::Failed(why) => format!("FAILED: {why}"),
        };
        [trial.name.to_owned(), result, seconds(trial.took)]
    });
    table_with_numbers(["trial", "result", "time"], 2, rows)
}

fn seconds(time: Duration) -> String {
    format!("{:.2} s", time.as_secs_f64())
}

fn millis(time: Duration) -> String {
    format!("{:.2} ms", time.as_secs_f64() * 1_000.0)
}
