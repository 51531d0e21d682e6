//! Checks that an answer is one that the documents name.

use std::{
    collections::{BTreeMap, HashSet},
    path::Path,
};

use libtest_mimic::Failed;
use serde_json::{Value, json};

use crate::{
    generator::FuzzRequest,
    heads::Framing,
    routes::{Port, ROUTES},
    wire::{Answer, Sent},
};

/// The codes of statuses from 500 on that a healthy node may answer: its limits, and requests that
/// no node does.
const FROM_500: &[(u16, &str)] = &[
    (501, "not_implemented"),
    (503, "keys_unread"),
    (503, "memory_full"),
    (503, "queue_full"),
    (503, "timed_out"),
    (503, "too_many_backups"),
    (503, "too_many_followers"),
    (503, "too_many_logs"),
    (503, "too_many_streams"),
    (503, "too_many_views"),
    (504, "unknown"),
    (505, "http_version"),
];

/// The statuses of a valid request: done, or refused because of the data or of a limit.
const VALID: &[u16] = &[200, 201, 202, 404, 409, 408, 429, 503];

/// Whether a request met a limit. A machine that is busy may take long to read a body.
pub(crate) fn is_limit(status: u16) -> bool {
    matches!(status, 408 | 429 | 503 | 504)
}

/// Codes of the admin endpoint that are in other documents: backup.md, cluster.md, inspect.md and
/// operations.md.
const ADMIN: &[(u16, &str)] = &[
    (409, "refused"),
    (409, "not_leading"),
    (503, "too_many_backups"),
    (503, "too_many_streams"),
    (503, "too_many_views"),
    (503, "not_owner"),
];

/// Judges answers.
pub(crate) struct Judge {
    /// The pairs of a status and a code in the tables of docs/http-api.md.
    documented: HashSet<(u16, String)>,
}

impl Judge {
    pub(crate) fn new() -> Judge {
        let file = Path::new(env!("CARGO_MANIFEST_DIR")).join("../../docs/http-api.md");
        let text = std::fs::read_to_string(file).unwrap();
        let mut documented: HashSet<_> = text.lines().flat_map(codes_of).collect();
        assert!(documented.len() > 50, "the tables of codes are not found: {documented:?}");
        documented.extend(ADMIN.iter().map(|(status, code)| (*status, (*code).to_owned())));
        Judge { documented }
    }

    /// Returns what is wrong with an answer.
    pub(crate) fn judge(&self, request: &FuzzRequest, sent: &Sent) -> Result<(), String> {
        let answer = match sent {
            Sent::Answered(answer) => answer,
            Sent::Closed if request.is_valid => return Err("a valid request has no answer".into()),
            Sent::Closed => return Ok(()),
        };
        let status = answer.status;
        if request.is_stranger && request.framing == Framing::Clean && status < 400 {
            return Err(format!("a request without a valid token was answered with {status}"));
        }
        if request.is_valid && !VALID.contains(&status) && !request.route.done.contains(&status) {
            return Err(format!("a valid request was refused with {status}"));
        }
        if answer.header("content-type").is_none() && !answer.body.is_empty() {
            return Err("the body has no type".to_owned());
        }
        // hyper answers bytes that are no HTTP request with a status alone. The answers of the node
        // have an id.
        let is_unread = matches!(status, 400 | 431) && answer.header("x-request-id").is_none();
        let is_bare = is_unread && request.framing != Framing::Clean && answer.body.is_empty();
        if status >= 400 && !request.is_head_method && !is_bare {
            self.judge_problem(answer)?;
        }
        if request.framing == Framing::Clean
            && request.route.port == Port::Api
            && answer.header("x-request-id").is_none()
        {
            return Err("the answer has no request id".to_owned());
        }
        if answer.is_whole && status < 300 {
            readable(answer)?;
        }
        Ok(())
    }

    fn judge_problem(&self, answer: &Answer) -> Result<(), String> {
        let status = answer.status;
        if answer.header("content-type") != Some("application/problem+json") {
            return Err(format!("{status} without a problem"));
        }
        let problem: Value = serde_json::from_slice(&answer.body)
            .map_err(|error| format!("the problem is not JSON: {error}"))?;
        let code = problem["code"].as_str().unwrap_or_default();
        if problem["status"] != status || problem["reason"].as_str().is_none_or(str::is_empty) {
            return Err(format!("the problem is not whole: {problem}"));
        }
        if !self.documented.contains(&(status, code.to_owned())) {
            return Err(format!("{status} `{code}` is not documented: {problem}"));
        }
        if status >= 500 && !FROM_500.contains(&(status, code)) {
            return Err(format!("{status} `{code}` of a healthy node: {problem}"));
        }
        let needed = match status {
            401 => "www-authenticate",
            405 => "allow",
            429 | 503 => "retry-after",
            _ => return Ok(()),
        };
        answer.header(needed).map(drop).ok_or_else(|| format!("{status} without `{needed}`"))
    }
}

/// The pairs in a row of a table of codes.
fn codes_of(line: &str) -> Vec<(u16, String)> {
    let mut cells = line.split('|').map(str::trim).skip(1);
    let (Some(statuses), Some(codes)) = (cells.next(), cells.next()) else { return Vec::new() };
    let statuses: Vec<u16> = statuses.split(", ").map_while(|text| text.parse().ok()).collect();
    let codes: Vec<&str> = codes.split('`').skip(1).step_by(2).collect();
    let pair = |status: &u16, code: &&str| (*status, (*code).to_owned());
    // A row with as many statuses as codes lists them in the same order.
    if statuses.len() > 1 && statuses.len() == codes.len() {
        return statuses.iter().zip(&codes).map(|(status, code)| pair(status, code)).collect();
    }
    statuses.iter().flat_map(|status| codes.iter().map(move |code| pair(status, code))).collect()
}

/// An answer of success can be read as the type that it names.
fn readable(answer: &Answer) -> Result<(), String> {
    let wrong = |error| format!("the body is not of its type: {error}");
    let body = &answer.body[..];
    match answer.header("content-type") {
        _ if body.is_empty() => Ok(()),
        Some("application/octet-stream") => Ok(()),
        Some("application/json") => serde_json::from_slice::<Value>(body).map(drop).map_err(wrong),
        Some("application/x-ndjson") => {
            let lines = body.split(|byte| *byte == b'\n').filter(|line| !line.is_empty());
            lines
                .map(serde_json::from_slice::<Value>)
                .try_for_each(|line| line.map(drop))
                .map_err(wrong)
        }
        _ => std::str::from_utf8(body).map(drop).map_err(|error| error.to_string()),
    }
}

/// How often each route had each status.
#[derive(Debug, Default)]
pub(crate) struct Counts(pub(crate) BTreeMap<(&'static str, u16), u64>);

impl Counts {
    pub(crate) fn count(&mut self, route: &'static str, sent: &Sent) {
        let status = match sent {
            Sent::Answered(answer) => answer.status,
            Sent::Closed => 0,
        };
        *self.0.entry((route, status)).or_default() += 1;
    }

    pub(crate) fn add(&mut self, other: Counts) {
        for (key, count) in other.0 {
            *self.0.entry(key).or_default() += count;
        }
    }

    /// A line for each route.
    pub(crate) fn report(&self) -> String {
        let mut report = String::new();
        let mut last = "";
        for ((route, status), count) in &self.0 {
            if *route != last {
                report += &format!("\n  {route}:");
                last = route;
            }
            report += &format!(" {status}x{count}");
        }
        report
    }

    fn of(&self, is_counted: impl Fn(&str, u16) -> bool) -> u64 {
        self.0.iter().filter(|((name, status), _)| is_counted(name, *status)).map(|(_, n)| n).sum()
    }

    /// Each route was reached, a good part of all requests was done, and few met a limit.
    pub(crate) fn judge(&self) -> Result<(), String> {
        for route in ROUTES.iter() {
            let done = self.of(|name, status| name == route.name && route.done.contains(&status));
            if done == 0 {
                return Err(format!("the route `{}` was never done", route.name));
            }
        }
        let all = self.of(|_, _| true);
        let done = self.of(|_, status| (200..300).contains(&status));
        let busy = self.of(|_, status| status != 408 && is_limit(status));
        for refusal in [401, 403] {
            if self.of(|_, status| status == refusal) == 0 {
                return Err(format!("no request was refused with {refusal}"));
            }
        }
        if done * 3 < all {
            return Err(format!("only {done} of {all} requests were done"));
        }
        if busy * 20 > all {
            return Err(format!("{busy} of {all} requests met a limit"));
        }
        Ok(())
    }
}

/// A wrong answer that the judge must find.
pub(crate) struct Defect {
    pub(crate) name: &'static str,
    answer: fn(&mut Answer),
    /// Whether the request has no valid token.
    is_of_stranger: bool,
}

/// Wrong answers. Without the change, the answer is right.
pub(crate) const DEFECTS: &[Defect] = &[
    Defect { is_of_stranger: false, name: "internal", answer: |it| problem(it, 500, "internal") },
    Defect { is_of_stranger: false, name: "storage", answer: |it| problem(it, 503, "storage") },
    Defect {
        is_of_stranger: false,
        name: "unknown_code",
        answer: |it| problem(it, 400, "made_up"),
    },
    Defect {
        is_of_stranger: false,
        name: "code_of_another_status",
        answer: |it| problem(it, 409, "bad_request"),
    },
    Defect {
        is_of_stranger: false,
        name: "no_retry_after",
        answer: |it| problem(it, 503, "queue_full"),
    },
    Defect {
        is_of_stranger: false,
        name: "no_challenge",
        answer: |it| problem(it, 401, "unauthenticated"),
    },
    Defect { is_of_stranger: false, name: "no_problem", answer: |it| it.status = 404 },
    Defect {
        is_of_stranger: false,
        name: "no_request_id",
        answer: |it| it.headers.retain(|(name, _)| name != "x-request-id"),
    },
    Defect { is_of_stranger: false, name: "no_json", answer: |it| it.body = b"{".to_vec() },
    Defect { is_of_stranger: true, name: "no_token", answer: |_| () },
];

fn problem(answer: &mut Answer, status: u16, code: &str) {
    answer.status = status;
    answer.headers[0].1 = "application/problem+json".to_owned();
    answer.body = json!({ "status": status, "code": code, "reason": "why" }).to_string().into();
}

/// Checks that the judge refuses the wrong answer, and only because of its defect.
pub(crate) fn is_found(defect: &Defect) -> Result<(), Failed> {
    let judge = Judge::new();
    let mut request = FuzzRequest {
        number: 0,
        route: &ROUTES[0],
        ws: 7,
        head: Vec::new(),
        body: Vec::new(),
        framing: Framing::Clean,
        is_valid: false,
        is_head_method: false,
        may_stream: false,
        has_own_id: true,
        is_keyed: false,
        is_stranger: false,
    };
    let mut answer = Answer {
        status: 200,
        headers: vec![
            ("content-type".to_owned(), "application/json".to_owned()),
            ("x-request-id".to_owned(), "f0".to_owned()),
        ],
        body: b"{}".to_vec(),
        is_whole: true,
    };
    judge.judge(&request, &Sent::Answered(answer.clone()))?;
    (defect.answer)(&mut answer);
    request.is_stranger = defect.is_of_stranger;
    match judge.judge(&request, &Sent::Answered(answer)) {
        Ok(()) => Err("the judge did not find it".into()),
        Err(_) => Ok(()),
    }
}
