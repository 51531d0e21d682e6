//! The logs and records at the end of a run.

use std::{cell::Cell, collections::BTreeMap, net::SocketAddr, time::Duration};

use clock::Clock;
use serde_json::Value;
use shop::http_client::workspace_path;

use crate::{
    api::{self, ANSWER_TIMEOUT, HttpAnswer, HttpRequest},
    history::{Event, Line, Part, PartitionEvent, Record, Version},
    recorder::Recorder,
};

/// The events of one request for a log, and the ids of one request for records.
const PAGE: u64 = 5_000;
const IDS: usize = 100;

/// The partitions of the demo application.
const PARTITIONS: u16 = 10;

/// The ids of a sequence lie in a block of this size, and begin at this place of it. Lower ids are
/// those of singletons.
pub(crate) const BLOCK: u64 = 5_000_000_000;
pub(crate) const FIRST: u64 = 131_072;

/// The blocks of the sequences of a workspace.
const BLOCKS: [u64; 2] = [64_536, 64_537];

/// The ids behind the last one of a block that are read. No record may have them.
const BEHIND: u64 = IDS as u64;

/// The table of which the final state has lists.
pub(crate) const LISTED: &str = "shop.Article";

/// The condition of a list of all documents, also of inactive ones:
/// `{"sys.IsActive":{"$in":[true,false]}}`.
const ALSO_INACTIVE: &str = "%7B%22sys.IsActive%22%3A%7B%22%24in%22%3A%5Btrue%2Cfalse%5D%7D%7D";

/// The time for one page. After the first page that is not answered, the others get less.
const PAGE_TIMEOUT: Duration = Duration::from_secs(60);
const LATER_TIMEOUT: Duration = Duration::from_secs(5);

const RETRY_DELAY: Duration = Duration::from_millis(200);

/// Reads the final state from the nodes, and adds it to the history. What cannot be read is noted
/// there as unreadable.
pub(crate) async fn read(
    recorder: &Recorder,
    clock: &Clock,
    nodes: &[SocketAddr],
    workspaces: &[u64],
) {
    let reader = Reader { recorder, clock, nodes, timeout: Cell::new(PAGE_TIMEOUT) };
    for ws in workspaces {
        let log = format!("{}/wlog", workspace_path(*ws));
        let events = reader.events(Part::Log(*ws), &log, api::event).await;
        reader.records(*ws, asked_ids(&events)).await;
        reader.list(*ws).await;
        for event in events {
            recorder.add(Line::LogEvent { ws: *ws, event });
        }
    }
    for partition in 0..PARTITIONS {
        let log = format!("/api/v2/apps/demo/shop/partitions/{partition}/plog");
        let part = Part::Partition(partition);
        for event in reader.events(part, &log, partition_event).await {
            recorder.add(Line::PartitionEvent { partition, event });
        }
    }
}

/// The ids of all records of a log, and those behind the last one of each block.
fn asked_ids(events: &[Event]) -> Vec<u64> {
    let mut last: BTreeMap<u64, u64> =
        BLOCKS.iter().map(|block| (*block, block * BLOCK + FIRST - 1)).collect();
    let mut ids: Vec<u64> = events.iter().flat_map(|event| &event.rows).map(|row| row.id).collect();
    for id in ids.iter().filter(|id| **id >= BLOCK) {
        let last = last.entry(id / BLOCK).or_default();
        *last = (*last).max(*id);
    }
    ids.extend(last.values().flat_map(|last| last + 1..=last + BEHIND));
    ids.sort_unstable();
    ids.dedup();
    ids
}

struct Reader<'a> {
    recorder: &'a Recorder,
    clock: &'a Clock,
    nodes: &'a [SocketAddr],
    timeout: Cell<Duration>,
}

impl Reader<'_> {
    /// Reads a log from its beginning to its end. `event` reads a line.
    async fn events<T>(&self, part: Part, log: &str, event: fn(&str) -> Option<T>) -> Vec<T> {
        let mut events = Vec::new();
        loop {
            let path = format!("{log}?from={}&limit={PAGE}", events.len() + 1);
            let read = |answer: &HttpAnswer| {
                let lines = answer.body.lines().filter(|line| !line.is_empty());
                lines.map(event).collect::<Option<Vec<T>>>()
            };
            match self.get(part, &path, read).await {
                Some(page) if !page.is_empty() => events.extend(page),
                _ => return events,
            }
        }
    }

    /// Reads records by their ids.
    async fn records(&self, ws: u64, mut ids: Vec<u64>) {
        while !ids.is_empty() {
            let later = ids.split_off(ids.len().min(IDS));
            let asked = ids.iter().map(u64::to_string).collect::<Vec<_>>().join(",");
            let path = format!("{}/docs?ids={asked}", workspace_path(ws));
            let Some((records, rest)) = self.get(Part::Records(ws), &path, some_records).await
            else {
                return;
            };
            for record in records {
                self.recorder.add(Line::FinalRecord { ws, record });
            }
            ids = rest.into_iter().chain(later).collect();
        }
    }

    /// Reads the list of all documents, also of the inactive ones.
    async fn list(&self, ws: u64) {
        let mut after = 0;
        loop {
            let list = format!("{}/cdocs/{LISTED}", workspace_path(ws));
            let path = format!("{list}?where={ALSO_INACTIVE}&after={after}&limit=1000");
            let Some((records, next)) = self.get(Part::List(ws), &path, page).await else {
                return;
            };
            for record in records {
                self.recorder.add(Line::FinalListed { ws, record });
            }
            match next {
                Some(next) if next > after => after = next,
                Some(next) => {
                    let why = format!("{path} goes on at {next}");
                    return self.recorder.add(Line::Unreadable { part: Part::List(ws), why });
                }
                None => return,
            }
        }
    }

    /// Reads from any node, and tries again until the time is over. Then the part is unreadable.
    async fn get<T>(
        &self,
        part: Part,
        path: &str,
        read: impl Fn(&HttpAnswer) -> Option<T>,
    ) -> Option<T> {
        let deadline = self.clock.now() + self.timeout.get();
        let request = HttpRequest::get(path.to_owned());
        let mut why = "there is no node".to_owned();
        for node in self.nodes.iter().cycle() {
            why = match api::send(self.clock, *node, &request, ANSWER_TIMEOUT).await {
                Ok(answer) if answer.status == 200 => match read(&answer) {
                    Some(read) => return Some(read),
                    None => format!("the answer makes no sense: {}", answer.body),
                },
                Ok(answer) => answer.body,
                Err(why) => why,
            };
            if self.clock.now() >= deadline {
                break;
            }
            self.clock.sleep(RETRY_DELAY).await;
        }
        self.timeout.set(LATER_TIMEOUT);
        let why: String = format!("{path}: {why}").chars().take(1_000).collect();
        self.recorder.note(format!("{part:?} is unreadable: {why}"));
        self.recorder.add(Line::Unreadable { part, why });
        None
    }
}

fn records_of(body: &Value) -> Option<Vec<Record>> {
    body["docs"].as_array()?.iter().map(api::record).collect()
}

/// The records of an answer, and the ids that it does not cover.
fn some_records(answer: &HttpAnswer) -> Option<(Vec<Record>, Vec<u64>)> {
    let body: Value = serde_json::from_str(&answer.body).ok()?;
    let rest = body["rest"].as_array()?.iter().map(Value::as_u64);
    Some((records_of(&body)?, rest.collect::<Option<_>>()?))
}

/// The records of a page of a list, and where the list goes on.
fn page(answer: &HttpAnswer) -> Option<(Vec<Record>, Option<u64>)> {
    let body: Value = serde_json::from_str(&answer.body).ok()?;
    Some((records_of(&body)?, body["next"].as_u64()))
}

fn partition_event(line: &str) -> Option<PartitionEvent> {
    let value: Value = serde_json::from_str(line).ok()?;
    Some(PartitionEvent {
        version: Version { epoch: value["epoch"].as_u64()?, offset: value["plogOffset"].as_u64()? },
        ws: value["workspace"].as_u64()?,
        wlog: value["wlogOffset"].as_u64()?,
        request: value["requestId"].as_str()?.to_owned(),
        time_micros: Some(value["timeMicros"].as_u64()?),
    })
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::checks::testing::{FIRST_ID, Scene};

    #[test]
    fn ids_behind_the_last_ones_are_read_too() {
        let mut scene = Scene::new();
        let of_others = FIRST_ID - BLOCK;
        let none = asked_ids(scene.log());
        assert!(none.contains(&FIRST_ID) && none.contains(&of_others));
        let id = scene.create("a");
        let ids = asked_ids(scene.log());
        assert!(ids.contains(&id) && ids.contains(&(id + BEHIND)));
        assert!(!ids.contains(&(id + BEHIND + 1)));
    }

    /// A node that does not listen leaves parts that are unreadable, and a verdict.
    #[tokio::test]
    async fn parts_that_cannot_be_read_are_noted() {
        let clock = Clock::system();
        let folder = tempfile::tempdir().unwrap();
        let first = Line::Run { seed: 1, settings: String::new() };
        let file = folder.path().join("history.jsonl");
        let recorder = Recorder::create(&file, clock.clone(), &first).unwrap();
        let nodes = [trialkit::free_address()];
        let timeout = Cell::new(Duration::ZERO);
        let reader = Reader { recorder: &recorder, clock: &clock, nodes: &nodes, timeout };
        assert!(reader.events(Part::Log(7), "/log", api::event).await.is_empty());
        reader.timeout.set(Duration::ZERO);
        reader.list(7).await;
        let end = recorder.end().unwrap().history.end;
        assert!(!end.is_whole(Part::Log(7)) && !end.is_whole(Part::List(7)));
        assert!(end.is_whole(Part::Records(7)));
    }
}
