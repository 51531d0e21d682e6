//! The rules of a limit, and the texts of its refusals.

use metrics::Gauge;

use crate::problem::TOO_MANY_FOLLOWERS;

/// The rules of a limit, fixed when it is made.
#[derive(Clone, Debug)]
pub struct LimitRules {
    /// The number of units. 0 counts as 1, so half of one thread is still one turn.
    pub most: usize,
    /// The share of one principal, if principals have shares.
    pub share: Option<ShareRules>,
    /// Whether requests wait for units. Otherwise they are refused at once.
    pub waits: bool,
    /// The code of a refusal if all units are taken. It also names the limit in the metric of
    /// refused shares.
    pub code: &'static str,
    /// What the units are, or who has them, for the text of the reason.
    pub of: &'static str,
    /// Makes the reason of a refusal.
    pub reason: Reason,
    /// Shows the units that are taken.
    pub shown: Option<Gauge>,
}

/// Makes the reason of a refusal from what the units are, their number, and the words " of one
/// principal", which follow a noun or are empty.
pub type Reason = fn(&str, usize, &str) -> String;

/// The share of one principal in a limit: half of the units, or `least` if that is more.
#[derive(Clone, Copy, Debug)]
pub struct ShareRules {
    /// The least number of units of a share, if the limit has as many.
    pub least: usize,
    /// The number of requests of a principal that may wait for its share.
    pub waiting: usize,
}

impl Default for LimitRules {
    fn default() -> LimitRules {
        LimitRules {
            most: 1,
            share: None,
            waits: true,
            code: "overloaded",
            of: "requests",
            reason: |of, most, of_one| {
                format!(
                    "this node does at most {most} {of}{of_one} at the same time: send the request \
                     again later"
                )
            },
            shown: None,
        }
    }
}

impl LimitRules {
    /// A limit that refuses at once: nobody waits for it.
    pub fn at_once(most: usize, code: &'static str, reason: Reason) -> LimitRules {
        LimitRules { most, waits: false, code, reason, ..LimitRules::default() }
    }

    /// The clients that follow logs, and may stay for days.
    pub fn followers(most: usize, reason: Reason) -> LimitRules {
        LimitRules {
            share: Some(ShareRules { least: 1, waiting: 0 }),
            ..LimitRules::at_once(most, TOO_MANY_FOLLOWERS, reason)
        }
    }

    /// The memory for `of`, in bytes.
    pub fn memory(of: &'static str, bytes: usize) -> LimitRules {
        LimitRules {
            most: bytes,
            code: "memory_full",
            of,
            reason: |of, bytes, of_one| {
                let mib = bytes as f64 / 1_048_576.0;
                format!(
                    "the memory for {of}{of_one} is used up, {mib} MiB: send the request again \
                     later"
                )
            },
            shown: Some(metrics::gauge!("httpapi_memory_reserved_bytes", "of" => of)),
            ..LimitRules::default()
        }
    }

    /// The logs that `sends` names: the sender with a verb, such as "this node sends".
    pub fn logs(sends: &'static str, most: usize) -> LimitRules {
        LimitRules {
            most,
            share: Some(ShareRules { least: 1, waiting: (most / 2).max(1) }),
            code: "too_many_logs",
            of: sends,
            reason: |sends, most, of_one| {
                format!(
                    "{sends} at most {most} logs{of_one} at the same time: wait until one of them \
                     has ended"
                )
            },
            ..LimitRules::default()
        }
    }
}
