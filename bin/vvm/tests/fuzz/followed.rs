//! Followed logs: a follower must get the events that it asked for, as the log has them at the end.

use std::{
    collections::{BTreeMap, HashMap},
    hash::{DefaultHasher, Hash, Hasher},
    sync::{Mutex, MutexGuard},
};

use serde_json::Value;

use crate::{
    answers::Promises, generator::FuzzRequest, heads::Framing, logs, node::NodeProcess,
    wire::Answer,
};

/// The first event that a follower asks for.
#[derive(Clone, Copy, Debug)]
enum Start {
    At(u64),
    /// The first event that was not there yet. An earlier answer named this last event.
    Behind(u64),
}

/// A request that follows a log, as the node must read it.
#[derive(Debug)]
pub(crate) struct FollowedLog {
    path: String,
    /// The key of the offset in the events of the log.
    key: &'static str,
    start: Start,
    limit: Option<u64>,
    are_server_sent: bool,
}

impl FollowedLog {
    /// Reads a request. `None` if it follows no log, or if its query is encoded. The promises are
    /// those from before the request is sent.
    pub(crate) fn of(request: &FuzzRequest, promises: &Promises) -> Option<FollowedLog> {
        if request.framing != Framing::Clean || request.is_head_method {
            return None;
        }
        let head = String::from_utf8_lossy(&request.head);
        let (path, query) = head.split(' ').nth(1)?.split_once('?')?;
        let key = match path.rsplit('/').next()? {
            "wlog" => "wlogOffset",
            "plog" => "plogOffset",
            _ => return None,
        };
        let value = |name: &str| {
            query.split('&').find_map(|pair| pair.strip_prefix(name)?.strip_prefix('='))
        };
        if value("follow") != Some("true") || query.contains(['%', '+', '#']) {
            return None;
        }
        let headers = || head.lines().skip(1).filter_map(|line| line.split_once(": "));
        let all = |name: &'static str| {
            headers().filter(move |(known, _)| known.eq_ignore_ascii_case(name)).map(|it| it.1)
        };
        let are_server_sent = all("accept").any(|value| value.contains("text/event-stream"));
        let last: Option<u64> = all("last-event-id").next().and_then(|id| id.trim().parse().ok());
        let start = match (last.filter(|_| are_server_sent), value("from")) {
            (Some(last), _) => Start::At(last.saturating_add(1)),
            (None, None) => Start::At(1),
            (None, Some("end")) => {
                let last = promises.workspaces.get(&request.ws).filter(|_| request.is_valid);
                Start::Behind(last.filter(|_| key == "wlogOffset").copied().unwrap_or_default())
            }
            (None, Some(from)) => Start::At(from.parse().ok()?),
        };
        let limit = value("limit").map(str::parse).transpose().ok()?;
        Some(FollowedLog { path: path.to_owned(), key, start, limit, are_server_sent })
    }

    /// Reads an answer. Returns its events, each with its offset.
    fn events<'a>(&self, answer: &'a Answer) -> Result<Vec<(u64, &'a str)>, String> {
        let (wanted, separator) = match self.are_server_sent {
            true => ("text/event-stream", "\n\n"),
            false => ("application/x-ndjson", "\n"),
        };
        let found = answer.header("content-type").unwrap_or_default();
        if found != wanted {
            return Err(format!("the log has the type {found}"));
        }
        let mut windows = answer.body.windows(separator.len());
        let end = windows.rposition(|bytes| bytes == separator.as_bytes());
        let end = end.map_or(0, |at| at + separator.len());
        if answer.is_whole && end < answer.body.len() {
            return Err("the log is whole, and ends within an event".to_owned());
        }
        let text = str::from_utf8(&answer.body[..end]).map_err(|error| error.to_string())?;
        let mut next = match self.start {
            Start::At(first) => first..=first,
            Start::Behind(last) => last + 1..=u64::MAX,
        };
        let mut pieces = text.split_terminator(separator);
        if self.are_server_sent
            && let Some(opening) = pieces.next()
        {
            let before = opening.strip_prefix("retry: 1000\nid: ").and_then(|id| id.parse().ok());
            let first = before.map(|before: u64| before.saturating_add(1));
            let first = first.filter(|first| next.contains(first));
            let first = first.ok_or_else(|| format!("the log begins with {opening:?}"))?;
            next = first..=first;
        }
        let mut events = Vec::new();
        for piece in pieces.filter(|piece| !matches!(*piece, "" | ":")) {
            let (offset, event) = self.event(piece)?;
            if !next.contains(&offset) {
                return Err(format!("the event {offset} is in the place of {next:?}"));
            }
            next = offset + 1..=offset + 1;
            events.push((offset, event));
        }
        Ok(events)
    }

    /// Reads an event, and its offset.
    fn event<'a>(&self, piece: &'a str) -> Result<(u64, &'a str), String> {
        let wrong = || format!("this is no event of a followed log: {piece:?}");
        let (id, line) = match self.are_server_sent {
            true => {
                let rest = piece.strip_prefix("id: ").ok_or_else(wrong)?;
                let (id, line) = rest.split_once("\ndata: ").ok_or_else(wrong)?;
                (Some(id), line)
            }
            false => (None, piece),
        };
        let event: Value = serde_json::from_str(line).map_err(|_| wrong())?;
        let offset = event[self.key].as_u64().ok_or_else(wrong)?;
        match id.is_none_or(|id| id == offset.to_string()) {
            true => Ok((offset, line)),
            false => Err(wrong()),
        }
    }
}

/// The events that followers received.
#[derive(Debug, Default)]
struct Received {
    /// The hash of each event, by the path of its log and by its offset.
    events: HashMap<String, BTreeMap<u64, u64>>,
    /// The number of events by the key of their offsets, and whether they were server-sent.
    counts: BTreeMap<(&'static str, bool), u64>,
}

/// The events that all followers received.
#[derive(Debug, Default)]
pub(crate) struct Followed(Mutex<Received>);

impl Followed {
    fn received(&self) -> MutexGuard<'_, Received> {
        self.0.lock().unwrap()
    }

    /// Returns what is wrong with the answer to a follower. No partition moves and no token ends,
    /// so an answer has no end but that of its limit.
    pub(crate) fn judge(&self, log: &FollowedLog, answer: &Answer) -> Result<(), String> {
        if answer.status != 200 {
            return Ok(());
        }
        let events = log.events(answer)?;
        let count = events.len() as u64;
        if log.limit.is_some_and(|limit| count > limit)
            || (answer.is_whole && log.limit != Some(count))
        {
            return Err(format!("the answer ends after {count} events of {:?}", log.limit));
        }
        let mut received = self.received();
        *received.counts.entry((log.key, log.are_server_sent)).or_default() += count;
        let known = received.events.entry(log.path.clone()).or_default();
        for (offset, event) in events {
            if *known.entry(offset).or_insert_with(|| hash_of(event)) != hash_of(event) {
                return Err(format!("another follower received another event {offset}: {event}"));
            }
        }
        Ok(())
    }

    /// Followers of each kind received events, and the logs have these events.
    pub(crate) fn check(&self, node: &NodeProcess, token: &str) -> Result<(), String> {
        let received = self.received();
        for kind in ["wlogOffset", "plogOffset"].iter().flat_map(|key| [(*key, true), (key, false)])
        {
            if received.counts.get(&kind).is_none_or(|count| *count == 0) {
                return Err(format!("no follower of {kind:?} received an event"));
            }
        }
        for (path, events) in &received.events {
            let plain = logs::get(node, &format!("{path}?limit=1000000"), token)?;
            compare(events, &plain).map_err(|wrong| format!("{path}: {wrong}"))?;
        }
        Ok(())
    }

    /// A line for the report of a run.
    pub(crate) fn report(&self) -> String {
        let received = self.received();
        let kept: usize = received.events.values().map(BTreeMap::len).sum();
        format!("followed events {:?}, {kept} different ones", received.counts)
    }
}

/// Compares events by their offsets with the lines of the whole log.
fn compare(events: &BTreeMap<u64, u64>, plain: &str) -> Result<(), String> {
    let lines: Vec<&str> = plain.lines().collect();
    for (offset, hash) in events {
        let at = usize::try_from(*offset).ok().and_then(|offset| offset.checked_sub(1));
        let line = at.and_then(|at| lines.get(at));
        if line.map(|line| hash_of(line)) != Some(*hash) {
            return Err(format!(
                "a follower received another event {offset}; the log has {line:?}"
            ));
        }
    }
    Ok(())
}

fn hash_of(event: &str) -> u64 {
    let mut hasher = DefaultHasher::new();
    event.hash(&mut hasher);
    hasher.finish()
}

/// Wrong answers to followers that the judge must find.
pub(crate) mod defects {
    use libtest_mimic::Failed;

    use super::*;

    /// A wrong answer to a follower that asks for three events from the event 3 on.
    pub(crate) struct FollowerDefect {
        pub(crate) name: &'static str,
        are_server_sent: bool,
        body: fn() -> String,
    }

    pub(crate) const DEFECTS: &[FollowerDefect] = &[
        lines("lost_event", || body(&[3, 5, 6])),
        lines("event_twice", || body(&[3, 3, 4])),
        lines("events_out_of_order", || body(&[4, 3, 5])),
        lines("other_place", || body(&[4, 5, 6])),
        lines("too_many_events", || body(&[3, 4, 5, 6])),
        lines("early_end", || body(&[3, 4])),
        lines("half_an_event", || body(&[3, 4, 5]).trim_end().to_owned()),
        lines("other_event", || body(&[3, 4, 5]).replace("4}", "4,\"a\":1}")),
        lines("event_of_another_log", || body(&[3, 4, 5]).replace("wlog", "plog")),
        server_sent("lost_server_sent_event", || sent(&[3, 5, 6])),
        server_sent("other_opening", || sent(&[3, 4, 5]).replace("id: 2", "id: 3")),
        server_sent("no_opening", || sent(&[3, 4, 5]).replace("retry: 1000\nid: 2\n\n", "")),
        server_sent("other_id", || sent(&[3, 4, 5]).replace("id: 4", "id: 5")),
        server_sent("half_a_server_sent_event", || sent(&[3, 4, 5]).trim_end().to_owned()),
        server_sent("lines_for_server_sent_events", || body(&[3, 4, 5])),
    ];

    const fn lines(name: &'static str, body: fn() -> String) -> FollowerDefect {
        FollowerDefect { name, are_server_sent: false, body }
    }

    const fn server_sent(name: &'static str, body: fn() -> String) -> FollowerDefect {
        FollowerDefect { name, are_server_sent: true, body }
    }

    fn body(offsets: &[u64]) -> String {
        offsets.iter().map(|offset| format!("{{\"wlogOffset\":{offset}}}\n")).collect()
    }

    fn sent(offsets: &[u64]) -> String {
        let event = |offset| format!("id: {offset}\ndata: {{\"wlogOffset\":{offset}}}\n\n");
        "retry: 1000\nid: 2\n\n".to_owned() + &offsets.iter().map(event).collect::<String>()
    }

    /// Checks that the judge accepts the right answer, and refuses the wrong one.
    pub(crate) fn is_found(defect: &FollowerDefect) -> Result<(), Failed> {
        let FollowerDefect { are_server_sent, .. } = *defect;
        let log = FollowedLog {
            path: "/wlog".to_owned(),
            key: "wlogOffset",
            start: Start::At(3),
            limit: Some(3),
            are_server_sent,
        };
        let content = if are_server_sent { "text/event-stream" } else { "application/x-ndjson" };
        let answer = |body: String| Answer {
            status: 200,
            headers: vec![("content-type".to_owned(), content.to_owned())],
            body: body.into_bytes(),
            is_whole: true,
        };
        let right = if are_server_sent { sent(&[3, 4, 5]) } else { body(&[3, 4, 5]) };
        let followed = Followed::default();
        followed.judge(&log, &answer(right))?;
        match followed.judge(&log, &answer((defect.body)())) {
            Ok(()) => Err("the judge did not find it".into()),
            Err(_) => Ok(()),
        }
    }

    /// Checks that an event that the log does not have is found at the end.
    pub(crate) fn are_compared() -> Result<(), Failed> {
        let plain = body(&[1, 2, 3]);
        let events = |lines: &str| (1..).zip(lines.lines().map(hash_of)).collect();
        compare(&events(&plain), &plain)?;
        for wrong in [body(&[1, 2, 3, 4]), body(&[1, 2, 4])] {
            if compare(&events(&wrong), &plain).is_ok() {
                return Err(format!("it was not found: {wrong}").into());
            }
        }
        Ok(())
    }
}
