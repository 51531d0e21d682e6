//! The codes of the problems of the API: the only list of them. The description of the API is made
//! from it, and a test compares it with the documentation.

/// A code of problems, and the requests that may be answered with it.
#[derive(Debug)]
pub(crate) struct ProblemCode {
    pub(crate) status: u16,
    pub(crate) code: &'static str,
    pub(crate) of: ProblemOf,
}

/// The requests that may be answered with a code.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum ProblemOf {
    /// All requests.
    All,
    /// Requests for an application, which the owner of a partition answers.
    App,
    /// Requests with a body.
    Body,
    /// Requests that change a workspace.
    Change,
    /// Requests that change a workspace or draw numbers.
    Write,
    /// Requests that write and have an idempotency key.
    Key,
    /// Requests for document numbers.
    Numbers,
    /// Requests for a log.
    Log,
    /// Requests that no operation of the API answers: another method, or not HTTP.
    Nothing,
}

const fn of(status: u16, code: &'static str, of: ProblemOf) -> ProblemCode {
    ProblemCode { status, code, of }
}

/// All codes, by status.
pub(crate) static PROBLEM_CODES: &[ProblemCode] = &[
    of(400, "bad_request", ProblemOf::All),
    of(400, "invalid", ProblemOf::Change),
    of(401, "unauthenticated", ProblemOf::All),
    of(403, "forbidden", ProblemOf::All),
    of(403, "foreign", ProblemOf::All),
    of(404, "not_deployed", ProblemOf::All),
    of(404, "not_found", ProblemOf::App),
    of(405, "method_not_allowed", ProblemOf::Nothing),
    of(408, "body_too_slow", ProblemOf::Body),
    of(409, "conflict", ProblemOf::Change),
    of(409, "gapless", ProblemOf::Numbers),
    of(409, "no_number", ProblemOf::Numbers),
    of(409, "no_number", ProblemOf::Change),
    of(413, "body_too_large", ProblemOf::Body),
    of(413, "too_large", ProblemOf::Change),
    of(417, "expectation_failed", ProblemOf::Nothing),
    of(421, "misdirected", ProblemOf::All),
    of(422, "key_reused", ProblemOf::Key),
    of(422, "rule", ProblemOf::Change),
    of(429, "rate_limited", ProblemOf::App),
    of(500, "internal", ProblemOf::App),
    of(500, "not_applied", ProblemOf::Change),
    of(501, "not_implemented", ProblemOf::Nothing),
    of(503, "not_owner", ProblemOf::App),
    of(503, "unreachable", ProblemOf::App),
    of(503, "partition_busy", ProblemOf::App),
    of(503, "peer_busy", ProblemOf::App),
    of(503, "recovering", ProblemOf::App),
    of(503, "queue_full", ProblemOf::Change),
    of(503, "memory_full", ProblemOf::All),
    of(503, "keys_unread", ProblemOf::All),
    of(503, "too_many_logs", ProblemOf::Log),
    of(503, "too_many_followers", ProblemOf::Log),
    of(503, "stopping", ProblemOf::App),
    of(503, "storage", ProblemOf::App),
    of(503, "timed_out", ProblemOf::All),
    of(503, "violation", ProblemOf::App),
    of(503, "failed", ProblemOf::App),
    of(504, "unknown", ProblemOf::Write),
    of(505, "http_version", ProblemOf::Log),
];

/// Whether a client may get a problem with this status and this code.
pub(crate) fn is_listed(status: u16, code: &str) -> bool {
    PROBLEM_CODES.iter().any(|listed| listed.status == status && listed.code == code)
}

#[cfg(test)]
mod tests {
    use std::collections::BTreeSet;

    use super::*;

    /// The statuses and codes of the first table below a heading of the documentation.
    fn documented(heading: &str) -> BTreeSet<(u16, String)> {
        let docs = include_str!("../../../../docs/http-api.md");
        let (_, section) = docs.split_once(heading).unwrap();
        let mut codes = BTreeSet::new();
        let rows = section.lines().skip_while(|line| !line.starts_with("|---"));
        for row in rows.skip(1).take_while(|line| line.starts_with('|')) {
            let cells: Vec<&str> = row.split('|').map(str::trim).collect();
            let statuses = cells[1].split(", ").map(|status| status.parse().unwrap());
            let names = cells[2].split(", ").map(|code| code.trim_matches('`').to_owned());
            let (statuses, names): (Vec<u16>, Vec<String>) = (statuses.collect(), names.collect());
            match statuses[..] {
                [status] => codes.extend(names.into_iter().map(|name| (status, name))),
                _ => {
                    assert_eq!(statuses.len(), names.len(), "{row}");
                    codes.extend(statuses.into_iter().zip(names));
                }
            }
        }
        codes
    }

    #[test]
    fn the_documentation_lists_the_same_codes() {
        let listed = PROBLEM_CODES.iter().map(|listed| (listed.status, listed.code.to_owned()));
        assert_eq!(listed.collect::<BTreeSet<_>>(), documented("\n## Problems\n"));
    }
}
