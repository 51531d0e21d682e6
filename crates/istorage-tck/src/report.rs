//! How the trials went.

use std::time::Duration;

/// How a trial went.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Conclusion {
    /// The storage keeps this part of the contract.
    Passed,
    /// It does not: what was expected and what was found.
    Failed(String),
    /// The contract leaves it to the storage whether it can do this, and this one cannot, for this reason.
    Ignored(&'static str),
}

/// A trial that was run.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct TrialReport {
    /// The trial.
    pub name: &'static str,
    /// How it went.
    pub conclusion: Conclusion,
    /// How long it took, its waiting for time to pass included.
    pub took: Duration,
}

/// What is told while trials run.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Progress<'a> {
    /// A trial has begun.
    Started(&'static str),
    /// A trial is over.
    Finished(&'a TrialReport),
}

/// How all trials went, in their order.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Report {
    /// Each trial that was run.
    pub trials: Vec<TrialReport>,
    /// How long all of them took together.
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
