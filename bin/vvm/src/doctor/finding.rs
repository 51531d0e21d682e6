//! The result of a check.

use std::fmt;

use serde::Serialize;

/// The verdict of a check. A node starts in spite of a warning.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize)]
#[serde(rename_all = "lowercase")]
pub(super) enum Verdict {
    Ok,
    Warn,
    Fail,
}

/// The result of a check, in words for the operator.
#[derive(Clone, Debug, PartialEq, Eq, Serialize)]
pub(super) struct Finding {
    pub(super) check: &'static str,
    pub(super) verdict: Verdict,
    pub(super) what: String,
    /// What the operator can do about it.
    pub(super) advice: Option<String>,
}

impl Finding {
    pub(super) fn ok(check: &'static str, what: impl ToString) -> Finding {
        Finding { check, verdict: Verdict::Ok, what: what.to_string(), advice: None }
    }

    pub(super) fn warn(check: &'static str, what: impl ToString, advice: impl ToString) -> Finding {
        let (what, advice) = (what.to_string(), Some(advice.to_string()));
        Finding { check, verdict: Verdict::Warn, what, advice }
    }

    pub(super) fn fail(check: &'static str, what: impl ToString, advice: impl ToString) -> Finding {
        Finding { verdict: Verdict::Fail, ..Finding::warn(check, what, advice) }
    }
}

impl fmt::Display for Finding {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let verdict = match self.verdict {
            Verdict::Ok => "ok",
            Verdict::Warn => "warn",
            Verdict::Fail => "FAIL",
        };
        write!(f, "{verdict:<5} {:<14} {}", self.check, self.what)?;
        match &self.advice {
            Some(advice) => write!(f, "\n{:20} -> {advice}", ""),
            None => Ok(()),
        }
    }
}
