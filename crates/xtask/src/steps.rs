//! Named steps that run one after another, and a summary of their outcomes.

use std::time::{Duration, Instant};

use crate::error::{Error, Result};

/// The steps of one command so far.
#[derive(Default)]
pub(crate) struct Steps {
    done: Vec<FinishedStep>,
}

struct FinishedStep {
    name: String,
    time: Duration,
    outcome: &'static str,
}

impl Steps {
    /// Runs a step, and remembers its outcome.
    pub(crate) fn run<T>(&mut self, name: &str, step: impl FnOnce() -> Result<T>) -> Result<T> {
        eprintln!("\n==> {name}");
        let started = Instant::now();
        let result = step();
        let outcome = match &result {
            Ok(_) => "ok",
            Err(Error::Interrupted) => "interrupted",
            Err(_) => "FAILED",
        };
        self.done.push(FinishedStep { name: name.to_owned(), time: started.elapsed(), outcome });
        result
    }

    /// Reports that a step was not run, and why.
    pub(crate) fn skip(&mut self, name: &str, why: &str) {
        eprintln!("\n==> {name}\nNOT RUN: {why}");
        let step = FinishedStep { name: name.to_owned(), time: Duration::ZERO, outcome: "NOT RUN" };
        self.done.push(step);
    }

    /// Returns one line for each step, run or not.
    pub(crate) fn summary(&self) -> String {
        let width = self.done.iter().map(|step| step.name.len()).max().unwrap_or(0);
        let line = |step: &FinishedStep| {
            format!("{:width$}  {:>7.1} s  {}\n", step.name, step.time.as_secs_f64(), step.outcome)
        };
        self.done.iter().map(line).collect()
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::error::failed;

    #[test]
    fn the_summary_has_a_line_for_each_step() {
        let mut steps = Steps::default();
        steps.run("format", || Ok(())).unwrap();
        steps.run("the tests", || failed::<()>("no")).unwrap_err();
        steps.skip("licences", "there is no tool");
        let summary = steps.summary();
        let lines = summary.lines().collect::<Vec<_>>();
        assert!(lines[0].starts_with("format   ") && lines[0].ends_with(" ok"), "{summary}");
        assert!(lines[1].starts_with("the tests") && lines[1].ends_with(" FAILED"), "{summary}");
        assert!(lines[2].starts_with("licences") && lines[2].ends_with(" NOT RUN"), "{summary}");
    }
}
