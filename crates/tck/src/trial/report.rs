//! The results of trials.

use std::time::Duration;

use crate::trial::{EarlyEnd, Verdict};

/// The result of one trial.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Conclusion {
    /// The subject keeps this part of the contract.
    Passed,
    /// The subject breaks this part of the contract. The text has the finding.
    Failed(String),
    /// The contract does not require this ability, and the subject lacks it, for this reason.
    Ignored(&'static str),
}

impl From<Verdict> for Conclusion {
    fn from(verdict: Verdict) -> Conclusion {
        match verdict {
            Ok(()) => Conclusion::Passed,
            Err(EarlyEnd::Ignored(reason)) => Conclusion::Ignored(reason),
            Err(end) => Conclusion::Failed(end.to_string()),
        }
    }
}

/// A trial that was run.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct TrialReport {
    /// The name of the trial.
    pub name: &'static str,
    /// The result of the trial.
    pub conclusion: Conclusion,
    /// The duration of the trial, including its waits for time to pass.
    pub took: Duration,
}

/// News while trials run.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Progress<'a> {
    /// A trial has begun.
    Started(&'static str),
    /// A trial is over.
    Finished(&'a TrialReport),
}

/// The results of all trials, in the order of the trials.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Report {
    /// The report of each trial that was run.
    pub trials: Vec<TrialReport>,
    /// The duration of all trials together.
    pub took: Duration,
}

impl Report {
    /// The number of trials that passed.
    #[must_use]
    pub fn passed(&self) -> usize {
        self.count(|conclusion| matches!(conclusion, Conclusion::Passed))
    }

    /// The number of trials that failed.
    #[must_use]
    pub fn failed(&self) -> usize {
        self.count(|conclusion| matches!(conclusion, Conclusion::Failed(_)))
    }

    /// The number of trials that were ignored.
    #[must_use]
    pub fn ignored(&self) -> usize {
        self.count(|conclusion| matches!(conclusion, Conclusion::Ignored(_)))
    }

    fn count(&self, which: impl Fn(&Conclusion) -> bool) -> usize {
        self.trials.iter().filter(|trial| which(&trial.conclusion)).count()
    }
}
