//! Each answer is one that the API documents for its request (`docs/http-api.md`).

use super::{Facts, Found, numbers::split_text};
use crate::{
    clients::LISTED_AT_MOST,
    history::{Change, Outcome, Request, SentRow},
};

/// The codes of 503 that all requests may get.
const UNAVAILABLE: [&str; 10] = [
    "not_owner",
    "unreachable",
    "partition_busy",
    "peer_busy",
    "recovering",
    "memory_full",
    "stopping",
    "storage",
    "timed_out",
    "failed",
];

pub(super) fn find(facts: &Facts<'_>) -> Found {
    let mut found = Found::new();
    for operation in &facts.operations {
        let number = operation.number;
        let wrong = match &operation.outcome {
            Outcome::Wrong { why } => why.clone(),
            Outcome::Refused { status, code } if !may_get(&operation.request, *status, code) => {
                format!("{status} {code}")
            }
            outcome if !answers(&operation.request, outcome) => format!("{outcome:?}"),
            _ => continue,
        };
        let text = format!("operation {number} got an answer that it must not get: {wrong}");
        found.push((text, vec![number]));
    }
    found
}

/// Whether a request may be refused in this way.
fn may_get(request: &Request, status: u16, code: &str) -> bool {
    let is_write = matches!(request, Request::Write { .. });
    let is_log = matches!(request, Request::Log { .. } | Request::Follow { .. });
    match (status, code) {
        (503, "queue_full") => is_write || matches!(request, Request::Draw { .. }),
        (503, "too_many_logs" | "too_many_followers") => is_log,
        (503, code) => UNAVAILABLE.contains(&code),
        (429, "rate_limited") => true,
        (408, "body_too_slow") => is_write || matches!(request, Request::Draw { .. }),
        // Whether a version justifies these is a matter of the check `documents`.
        (409, "conflict") => {
            let Request::Write { change, .. } = request else { return false };
            matches!(change, Change::Update { if_match: Some(_), .. })
        }
        (404, "not_found") => {
            let Request::Write { change, .. } = request else { return false };
            matches!(change, Change::Update { .. })
        }
        _ => false,
    }
}

/// Whether an outcome is one of the request at all.
fn answers(request: &Request, outcome: &Outcome) -> bool {
    match outcome {
        Outcome::Refused { .. } | Outcome::Wrong { .. } => true,
        Outcome::Unknown { .. } => match request {
            Request::Write { .. } => true,
            Request::Draw { .. } => !outcome.says_not_applied(),
            // The outcome of a read is known: the answer has it, or there is none.
            _ => !outcome.says_not_applied() && !outcome.says_unknown(),
        },
        Outcome::Written(written) => {
            let Request::Write { rows, .. } = request else { return false };
            let mut new: Vec<u64> =
                rows.iter().filter(|row| row.is_new()).map(|row: &SentRow| row.id).collect();
            new.sort_unstable();
            written.ids.iter().map(|(raw, _)| *raw).eq(new)
        }
        Outcome::Document { record, .. } => {
            let Request::Read { id, .. } = request else { return false };
            record.as_ref().is_none_or(|record| record.row.id == *id)
        }
        Outcome::Listed { documents, .. } => {
            matches!(request, Request::List { .. }) && documents.len() <= LISTED_AT_MOST
        }
        Outcome::Events { .. } => matches!(
            request,
            Request::Log { .. } | Request::Follow { .. } | Request::FollowEnd { .. }
        ),
        Outcome::Drawn { numbers } => {
            let has_count =
                matches!(request, Request::Draw { count, .. } if *count == numbers.len() as u64);
            let mut periods =
                numbers.iter().map(|number| split_text(number).map(|(period, _)| period));
            let first = periods.next();
            has_count && periods.all(|period| Some(period) == first)
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::{
        checks::testing::{Scene, change, create, refusal},
        history::Version,
    };

    fn is_found(request: &Request, outcome: Outcome) -> bool {
        let mut scene = Scene::new();
        scene.operation(request.clone(), outcome);
        !find(&Facts::of(&scene.history)).is_empty()
    }

    #[test]
    fn wrong_answers_are_found() {
        let read = Request::Read { id: 1, eventual: false };
        assert!(is_found(&read, Outcome::Wrong { why: "500: internal".into() }));
        assert!(!is_found(&read, Outcome::Unknown { why: "cut".into() }));
        let not_applied = Outcome::Unknown { why: r#"500: {"code":"not_applied"}"#.into() };
        assert!(!is_found(&create("a", true), not_applied.clone()));
        assert!(is_found(&read, not_applied));
        let unknown = Outcome::Unknown { why: r#"504: {"code":"unknown"}"#.into() };
        assert!(!is_found(&create("a", true), unknown.clone()));
        assert!(is_found(&read, unknown));
        assert!(is_found(&read, Outcome::Events { events: Vec::new() }));
        let draw = Request::Draw { series: "order".into(), count: 2 };
        for (numbers, is_right) in [
            (&["A2026-1", "A2026-2"][..], true),
            (&["A2026-1"], false),
            (&["A2026-9", "A2027-1"], false),
        ] {
            let numbers = numbers.iter().map(ToString::to_string).collect();
            assert_eq!(!is_found(&draw, Outcome::Drawn { numbers }), is_right);
        }
    }

    #[test]
    fn answers_that_do_not_fit_their_requests_are_found() {
        let mut scene = Scene::new();
        let id = scene.create("a");
        let record = scene.record(id);
        scene.read_as(id, record.clone(), false);
        scene.list();
        let found = |scene: &Scene| find(&Facts::of(&scene.history)).len();
        assert_eq!(found(&scene), 0);
        scene.read_as(id + 1, record, true);
        assert_eq!(found(&scene), 1, "another document");
        for ids in [vec![], vec![(2, id)], vec![(1, id), (2, id + 1)]] {
            scene.answer(0).ids = ids;
            assert_eq!(found(&scene), 2, "other new ids");
        }
        let Outcome::Listed { documents, .. } = &mut scene.history.operations[2].outcome else {
            unreachable!()
        };
        *documents = vec![documents[0]; LISTED_AT_MOST + 1];
        assert_eq!(found(&scene), 3, "a list that is too long");
    }

    #[test]
    fn refusals_that_a_request_must_not_get_are_found() {
        let version = Version { epoch: 1, offset: 1 };
        let requests = [
            create("a", true),
            change("a", 1, None),
            change("a", 1, Some(version)),
            Request::Log { from: 1 },
        ];
        for (status, code, is_right) in [
            (503, "storage", [true; 4]),
            (503, "queue_full", [true, true, true, false]),
            (503, "too_many_logs", [false, false, false, true]),
            (503, "no code", [false; 4]),
            (404, "not_found", [false, true, true, false]),
            (409, "conflict", [false, false, true, false]),
            (409, "no_number", [false; 4]),
            (400, "invalid", [false; 4]),
            (422, "key_reused", [false; 4]),
        ] {
            let found = requests.each_ref().map(|of| !is_found(of, refusal(status, code)));
            assert_eq!(found, is_right, "{status} {code}");
        }
    }
}
