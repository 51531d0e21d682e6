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
pub(crate) const PARTITIONS: u16 = 10;

/// The ids of a sequence lie in a block of this size, and begin at this place of it. Lower ids are
/// those of singletons.
pub(crate) const BLOCK: u64 = 5_000_000_000;
pub(crate) const FIRST: u64 = 131_072;

/// The blocks of the sequences of a workspace.
const BLOCKS: [u64; 2] = [64_536, 64_537];

/// The number of ids after the last one of a block that are read. No record may have them.
const BEHIND: u64 = IDS as u64;

/// The table whose lists the final state has.
pub(crate) const LISTED: &str = "shop.Article";

/// The condition of a list of all documents, also of inactive ones:
/// `{"sys.IsActive":{"$in":[true,false]}}`.
const ALSO_INACTIVE: &str = "%7B%22sys.IsActive%22%3A%7B%22%24in%22%3A%5Btrue%2Cfalse%5D%7D%7D";

/// The time for one page. After the first page that is not answered, the others get less.
const PAGE_TIMEOUT: Duration = Duration::from_secs(60);
const LATER_TIMEOUT: Duration = Duration::from_secs(5);

const RETRY_DELAY: Duration = Duration::from_millis(200);

/// Reads the final state from the nodes, and adds it to the history. A part that was read to its
/// end is marked there as whole, and one that cannot be read as unreadable. All clients have
/// stopped, so all operations are in the history, too.
pub(crate) async fn read(
    recorder: &Recorder,
    clock: &Clock,
    nodes: &[SocketAddr],
    workspaces: &[u64],
) {
    let reader = Reader { recorder, clock, nodes, timeout: Cell::new(PAGE_TIMEOUT) };
    for ws in workspaces {
        let whole = |part: Part| recorder.add(Line::Whole { part });
        whole(Part::Operations(*ws));
        let log = format!("{}/wlog", workspace_path(*ws));
        let (events, is_whole) = reader.events(Part::Log(*ws), &log, log_event).await;
        for event in &events {
            recorder.add(Line::LogEvent { ws: *ws, event: event.clone() });
        }
        if is_whole {
            whole(Part::Log(*ws));
        }
        if reader.records(*ws, asked_ids(&events)).await {
            whole(Part::Records(*ws));
        }
        if reader.list(*ws).await {
            whole(Part::List(*ws));
        }
    }
    for partition in 0..PARTITIONS {
        let log = format!("/api/v2/apps/demo/shop/partitions/{partition}/plog");
        let part = Part::Partition(partition);
        let (events, is_whole) = reader.events(part, &log, partition_event).await;
        for event in events {
            recorder.add(Line::PartitionEvent { partition, event });
        }
        if is_whole {
            recorder.add(Line::Whole { part });
        }
    }
}

/// The ids of all records of a log, and those after the last one of each block.
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
    /// Reads a log from its beginning, and returns whether it came to its end. `event` reads the
    /// offset and the event of a line. A page that begins before its offset makes no sense: with it
    /// the log would have no end.
    async fn events<T>(
        &self,
        part: Part,
        log: &str,
        event: fn(&str) -> Option<(u64, T)>,
    ) -> (Vec<T>, bool) {
        let mut events = Vec::new();
        loop {
            let from = events.len() as u64 + 1;
            let path = format!("{log}?from={from}&limit={PAGE}");
            let read = |answer: &HttpAnswer| {
                let lines = answer.body.lines().filter(|line| !line.is_empty());
                let page = lines.map(event).collect::<Option<Vec<(u64, T)>>>()?;
                let goes_on = page.first().is_none_or(|(offset, _)| *offset >= from);
                goes_on.then(|| page.into_iter().map(|(_, event)| event).collect::<Vec<T>>())
            };
            match self.get(part, &path, read).await {
                Some(page) if page.is_empty() => return (events, true),
                Some(page) => events.extend(page),
                None => return (events, false),
            }
        }
    }

    /// Reads records by their ids. Returns whether all of them were read.
    async fn records(&self, ws: u64, mut ids: Vec<u64>) -> bool {
        while !ids.is_empty() {
            let later = ids.split_off(ids.len().min(IDS));
            let asked = ids.iter().map(u64::to_string).collect::<Vec<_>>().join(",");
            let path = format!("{}/docs?ids={asked}", workspace_path(ws));
            let read = |answer: &HttpAnswer| some_records(answer, &ids);
            let Some((records, rest)) = self.get(Part::Records(ws), &path, read).await else {
                return false;
            };
            for record in records {
                self.recorder.add(Line::FinalRecord { ws, record });
            }
            ids = rest.into_iter().chain(later).collect();
        }
        true
    }

    /// Reads the list of all documents, also of the inactive ones. Returns whether it came to its
    /// end.
    async fn list(&self, ws: u64) -> bool {
        let mut after = 0;
        loop {
            let list = format!("{}/cdocs/{LISTED}", workspace_path(ws));
            let path = format!("{list}?where={ALSO_INACTIVE}&after={after}&limit=1000");
            let read = |answer: &HttpAnswer| page(answer, after);
            let Some((records, next)) = self.get(Part::List(ws), &path, read).await else {
                return false;
            };
            for record in records {
                self.recorder.add(Line::FinalListed { ws, record });
            }
            match next {
                Some(next) if next > after => after = next,
                Some(next) => {
                    let why = format!("{path} goes on at {next}");
                    self.recorder.add(Line::Unreadable { part: Part::List(ws), why });
                    return false;
                }
                None => return true,
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

/// The records of an answer, and the ids that it does not cover. `None` if the answer does not have
/// each id that was asked for once: a record, as missing, or as not covered. An answer that covers
/// none makes no sense either: with it the reading would have no end.
fn some_records(answer: &HttpAnswer, asked: &[u64]) -> Option<(Vec<Record>, Vec<u64>)> {
    let body: Value = serde_json::from_str(&answer.body).ok()?;
    let ids = |key: &str| -> Option<Vec<u64>> {
        body[key].as_array()?.iter().map(Value::as_u64).collect()
    };
    let (records, missing, rest) = (records_of(&body)?, ids("missing")?, ids("rest")?);
    let there = records.iter().map(|record| record.row.id);
    let mut all: Vec<u64> = there.chain(missing).chain(rest.iter().copied()).collect();
    all.sort_unstable();
    let mut asked = asked.to_vec();
    asked.sort_unstable();
    (all == asked && rest.len() < asked.len()).then_some((records, rest))
}

/// The records of a page of a list, and where the list goes on. `None` if the ids do not rise from
/// the id after which the page begins.
fn page(answer: &HttpAnswer, after: u64) -> Option<(Vec<Record>, Option<u64>)> {
    let body: Value = serde_json::from_str(&answer.body).ok()?;
    let records = records_of(&body)?;
    let mut last = after;
    for record in &records {
        if record.row.id <= last {
            return None;
        }
        last = record.row.id;
    }
    Some((records, body["next"].as_u64()))
}

fn log_event(line: &str) -> Option<(u64, Event)> {
    api::event(line).map(|event| (event.wlog, event))
}

fn partition_event(line: &str) -> Option<(u64, PartitionEvent)> {
    let value: Value = serde_json::from_str(line).ok()?;
    let offset = value["plogOffset"].as_u64()?;
    let version = Version { epoch: value["epoch"].as_u64()?, offset };
    let time_micros = Some(value["timeMicros"].as_u64()?);
    let event = match value["fencing"] == true {
        true => PartitionEvent { version, ws: 0, wlog: 0, request: String::new(), time_micros },
        false => PartitionEvent {
            version,
            ws: value["workspace"].as_u64()?,
            wlog: value["wlogOffset"].as_u64()?,
            request: value["requestId"].as_str()?.to_owned(),
            time_micros,
        },
    };
    Some((offset, event))
}

#[cfg(test)]
mod tests {
    use hyper::HeaderMap;
    use tokio::{
        io::{AsyncReadExt, AsyncWriteExt},
        net::TcpListener,
    };

    use super::*;
    use crate::checks::testing::{FIRST_ID, Scene};

    fn answered(body: &str) -> HttpAnswer {
        HttpAnswer { status: 200, headers: HeaderMap::new(), body: body.to_owned() }
    }

    fn doc(id: u64) -> String {
        let rest = r#""table":"a","isActive":true,"fields":{},"version":{"epoch":1,"offset":1}"#;
        format!(r#"{{"id":{id},{rest}}}"#)
    }

    #[test]
    fn each_id_is_answered_once() {
        for (docs, missing, rest, is_right) in [
            (&[7, 8][..], "9", "", true),
            (&[7], "9", "8", true),
            (&[7, 7, 8], "9", "", false),
            (&[7, 8], "8,9", "", false),
            (&[7, 8], "", "", false),
            (&[7, 8, 10], "9", "", false),
            (&[], "", "7,8,9", false),
        ] {
            let docs: Vec<String> = docs.iter().map(|id| doc(*id)).collect();
            let docs = docs.join(",");
            let body = format!(r#"{{"docs":[{docs}],"missing":[{missing}],"rest":[{rest}]}}"#);
            assert_eq!(some_records(&answered(&body), &[7, 8, 9]).is_some(), is_right, "{body}");
        }
    }

    #[test]
    fn the_ids_of_a_page_rise() {
        for (ids, is_right) in
            [(&[7, 8][..], true), (&[], true), (&[8, 7], false), (&[7, 7], false), (&[6], false)]
        {
            let docs: Vec<String> = ids.iter().map(|id| doc(*id)).collect();
            let body = format!(r#"{{"docs":[{}],"next":null}}"#, docs.join(","));
            assert_eq!(page(&answered(&body), 6).is_some(), is_right, "{ids:?}");
        }
    }

    /// A node with one event in each log, and with no records. It may answer each read of a log
    /// with this event.
    async fn serve(listener: TcpListener, begins_again: bool) {
        loop {
            let (mut stream, _) = listener.accept().await.unwrap();
            let mut request = vec![0; 8_192];
            // The requests are small, and each is one piece.
            let count = stream.read(&mut request).await.unwrap();
            let request = String::from_utf8_lossy(&request[..count]).into_owned();
            let event = concat!(
                r#"{"wlogOffset":1,"plogOffset":1,"epoch":1,"requestId":"a","timeMicros":17,"#,
                r#""workspace":7}"#
            );
            let ids = request.split_once("ids=").map(|(_, ids)| ids.split(' ').next().unwrap());
            let body = match ids {
                Some(ids) => format!(r#"{{"docs":[],"missing":[{ids}],"rest":[]}}"#),
                None if request.contains("cdocs") => r#"{"docs":[],"next":null}"#.to_owned(),
                None if begins_again || request.contains("from=1&") => event.to_owned(),
                None => String::new(),
            };
            let length = body.len();
            let answer = format!("HTTP/1.1 200 OK\r\ncontent-length: {length}\r\n\r\n{body}");
            stream.write_all(answer.as_bytes()).await.unwrap();
        }
    }

    #[test]
    fn a_fencing_entry_is_an_entry_of_a_partition() {
        let line = r#"{"epoch":2,"fencing":true,"plogOffset":3,"timeMicros":17}"#;
        let (offset, event) = partition_event(line).unwrap();
        assert_eq!((offset, event.is_fencing(), event.version.epoch), (3, true, 2));
        assert_eq!(partition_event(r#"{"epoch":2,"plogOffset":3,"timeMicros":17}"#), None);
    }

    /// The reading had no end.
    #[tokio::test]
    async fn a_log_that_begins_again_cannot_be_read() {
        let (clock, folder) = (Clock::system(), tempfile::tempdir().unwrap());
        let first = Line::Run { seed: 1, settings: String::new() };
        let file = folder.path().join("history.jsonl");
        let recorder = Recorder::create(&file, clock.clone(), &first).unwrap();
        let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
        let nodes = [listener.local_addr().unwrap()];
        let timeout = Cell::new(Duration::from_millis(300));
        let reader = Reader { recorder: &recorder, clock: &clock, nodes: &nodes, timeout };
        let (events, is_whole) = tokio::select! {
            () = serve(listener, true) => unreachable!(),
            read = reader.events(Part::Log(7), "/wlog", log_event) => read,
        };
        assert_eq!((events.len(), is_whole), (1, false));
        assert!(recorder.end().unwrap().history.end.unreadable.contains_key(&Part::Log(7)));
    }

    #[tokio::test]
    async fn all_parts_that_are_read_to_their_ends_are_marked_as_whole() {
        let clock = Clock::system();
        let folder = tempfile::tempdir().unwrap();
        let first = Line::Run { seed: 1, settings: String::new() };
        let file = folder.path().join("history.jsonl");
        let recorder = Recorder::create(&file, clock.clone(), &first).unwrap();
        let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
        let nodes = [listener.local_addr().unwrap()];
        tokio::select! {
            () = serve(listener, false) => unreachable!(),
            () = read(&recorder, &clock, &nodes, &[7, 8]) => {}
        }
        let end = recorder.end().unwrap().history.end;
        assert!(end.unreadable.is_empty(), "{:?}", end.unreadable);
        assert_eq!(end.logs[&8].len(), 1);
        let of_workspace = [Part::Operations, Part::Log, Part::Records, Part::List];
        let all = [7, 8].into_iter().flat_map(|ws| of_workspace.map(|part| part(ws)));
        let all = all.chain((0..PARTITIONS).map(Part::Partition));
        assert_eq!(end.whole, all.collect());
        // A mark comes after what it marks, so a file that is cut has no wrong one.
        let text = std::fs::read_to_string(&file).unwrap();
        let place = |part: &str| text.lines().position(|line| line.contains(part)).unwrap();
        assert!(place(r#""line":"logEvent","ws":7"#) < place(r#""part":{"log":7}"#));
    }

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
        let nodes = [tck::trial::free_address()];
        let timeout = Cell::new(Duration::ZERO);
        let reader = Reader { recorder: &recorder, clock: &clock, nodes: &nodes, timeout };
        assert!(!reader.events(Part::Log(7), "/log", log_event).await.1);
        reader.timeout.set(Duration::ZERO);
        assert!(!reader.list(7).await);
        let end = recorder.end().unwrap().history.end;
        let unreadable: Vec<&Part> = end.unreadable.keys().collect();
        assert_eq!(unreadable, [&Part::Log(7), &Part::List(7)]);
        assert!(end.whole.is_empty());
    }
}
