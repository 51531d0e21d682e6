//! The check of the logs after a bench: nothing that was answered is lost, and nothing was done
//! twice.

use std::{collections::HashMap, time::Duration};

use bytes::Bytes;
use clock::Clock;
use hyper::StatusCode;
use serde::Serialize;
use serde_json::Value;

use super::{
    load::{ANSWER_TIMEOUT, RequestLoad},
    outcome::SentCommand,
    tries::EndKind,
};
use crate::{
    CommandError,
    client::{NodeClient, NodeRequest},
};

/// The most events that one request reads from a log.
const PAGE: usize = 10_000;

/// The pause before a failed read of a log is repeated.
const PAUSE: Duration = Duration::from_millis(200);

/// The commands of a bench, compared with the logs.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize)]
#[serde(rename_all = "camelCase")]
pub(super) struct LogCheck {
    /// The events of this bench.
    events: u64,
    /// Commands that were answered as done, and have no event.
    lost: u64,
    /// Commands that have more than one event.
    doubled: u64,
    /// Commands that were answered as not done, and have an event.
    done_although_refused: u64,
    /// Commands whose outcome was not known, and that have an event.
    done_although_unknown: u64,
}

impl LogCheck {
    /// Whether the logs agree with all answers.
    pub(super) fn is_clean(&self) -> bool {
        self.lost == 0 && self.doubled == 0 && self.done_although_refused == 0
    }

    pub(super) fn text(&self) -> String {
        let LogCheck { events, lost, doubled, done_although_refused, done_although_unknown } = self;
        format!(
            "the logs have {events} events of this bench: {lost} commands are lost, {doubled} were done twice, {done_although_refused} were done although they were refused, {done_although_unknown} of unknown outcome were done\n"
        )
    }

    fn add(&mut self, end: EndKind, events: u64) {
        self.events += events;
        self.doubled += u64::from(events > 1);
        match end {
            EndKind::Done => self.lost += u64::from(events == 0),
            EndKind::NotDone => self.done_although_refused += u64::from(events > 0),
            EndKind::Unknown => self.done_although_unknown += u64::from(events > 0),
        }
    }
}

/// Compares the commands with the logs of their workspaces.
pub(super) async fn check(
    load: &RequestLoad,
    clock: &Clock,
    mut sent: Vec<SentCommand>,
) -> Result<LogCheck, CommandError> {
    let mut check = LogCheck::default();
    sent.sort_unstable_by_key(|command| command.ws);
    for of_workspace in sent.chunk_by(|one, next| one.ws == next.ws) {
        let Some(first) = of_workspace.first() else { continue };
        let events = events_of(load, clock, first.ws).await?;
        for SentCommand { client, number, end, .. } in of_workspace {
            let count = events.get(&load.request_id(*client, *number));
            check.add(*end, count.copied().unwrap_or(0));
        }
    }
    Ok(check)
}

/// The number of events of each request of a workspace.
async fn events_of(
    load: &RequestLoad,
    clock: &Clock,
    ws: u64,
) -> Result<HashMap<String, u64>, CommandError> {
    let mut events = HashMap::new();
    let mut from = 1;
    loop {
        let page = page_of(load, clock, ws, from).await?;
        let lines = page.split(|byte| *byte == b'\n').filter(|line| !line.is_empty());
        let mut last = None;
        for line in lines {
            let event: Value = serde_json::from_slice(line).map_err(|error| {
                CommandError::unfinished(format!(
                    "the log of workspace {ws} makes no sense: {error}"
                ))
            })?;
            last = event["wlogOffset"].as_u64().or(last);
            if let Some(id) = event["requestId"].as_str() {
                *events.entry(id.to_owned()).or_default() += 1;
            }
        }
        match last {
            Some(last) => from = last + 1,
            None => return Ok(events),
        }
    }
}

/// Reads a page of a log from any node, and tries again while no node can send it.
async fn page_of(
    load: &RequestLoad,
    clock: &Clock,
    ws: u64,
    from: u64,
) -> Result<Bytes, CommandError> {
    let until = clock.now() + ANSWER_TIMEOUT;
    let path = format!("{}/wlog?from={from}&limit={PAGE}", load.base(ws));
    loop {
        let node = load.next_node();
        let request = NodeRequest::get(&path);
        let why = match NodeClient::try_ask(clock, node, request, ANSWER_TIMEOUT).await {
            Ok(answer) if answer.status == StatusCode::OK => return Ok(answer.body),
            Ok(answer) => answer.reason(node),
            Err(why) => why,
        };
        if clock.now() >= until {
            let why = format!("the log of workspace {ws} cannot be read from {node}: {why}");
            return Err(CommandError::unfinished(why));
        }
        clock.sleep(PAUSE).await;
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn each_disagreement_of_answers_and_events_is_counted() {
        let mut check = LogCheck::default();
        for (end, events) in [(EndKind::Done, 1), (EndKind::NotDone, 0), (EndKind::Unknown, 0)] {
            check.add(end, events);
        }
        check.add(EndKind::Unknown, 1);
        assert!(check.is_clean());
        assert_eq!((check.events, check.done_although_unknown), (2, 1));
        for (end, events) in [(EndKind::Done, 0), (EndKind::NotDone, 1), (EndKind::Unknown, 2)] {
            let mut check = check;
            check.add(end, events);
            assert!(!check.is_clean(), "{end:?} with {events} events");
        }
    }
}
