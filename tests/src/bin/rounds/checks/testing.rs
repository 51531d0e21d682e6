//! Small histories for the tests of the checks. What a scene makes is right; each test breaks it.

use serde_json::json;

use super::Found;
use crate::history::{
    Change, Event, History, Operation, Outcome, PartitionEvent, Record, Request, Row, Version,
    Written,
};

pub(crate) const WS: u64 = 11;
pub(crate) const PARTITION: u16 = 1;
/// The first id of a document.
pub(crate) const FIRST_ID: u64 = 322_685_000_131_072;

/// A history of one workspace. Its operations follow each other: the operation with number `n`
/// begins at `10 * n` and ends at `10 * n + 5`.
pub(crate) struct Scene {
    pub(crate) history: History,
    pub(crate) epoch: u64,
    ids: u64,
}

impl Scene {
    pub(crate) fn new() -> Scene {
        let mut history = History::default();
        history.end.logs.insert(WS, Vec::new());
        history.end.partitions.insert(PARTITION, Vec::new());
        Scene { history, epoch: 1, ids: 0 }
    }

    pub(crate) fn log(&mut self) -> &mut Vec<Event> {
        self.history.end.logs.get_mut(&WS).unwrap()
    }

    pub(crate) fn partition(&mut self) -> &mut Vec<PartitionEvent> {
        self.history.end.partitions.get_mut(&PARTITION).unwrap()
    }

    /// Adds an operation, and returns its number.
    pub(crate) fn operation(&mut self, request: Request, outcome: Outcome) -> usize {
        let number = self.history.operations.len() as u64;
        let (begin, end) = (10 * number, 10 * number + 5);
        let operation = Operation { number, client: 1, begin, end, ws: WS, request, outcome };
        self.history.operations.push(operation);
        number as usize
    }

    /// Adds an event to the end of both logs, and returns its version.
    pub(crate) fn append(&mut self, mut event: Event) -> Version {
        let offset = self.partition().len() as u64 + 1;
        event.wlog = self.log().len() as u64 + 1;
        event.version = Version { epoch: self.epoch, offset };
        let (version, wlog, request) = (event.version, event.wlog, event.request.clone());
        for row in &event.rows {
            let record = Record { row: row.clone(), version };
            self.history.end.records.insert((WS, row.id), record);
        }
        self.partition().push(PartitionEvent { version, ws: WS, wlog, request });
        self.log().push(event);
        version
    }

    fn event(&mut self, request: &str, id: u64, fields: serde_json::Value) -> Version {
        self.event_of(request, Row { id, table: "shop.Article".into(), is_active: true, fields })
    }

    pub(crate) fn event_of(&mut self, request: &str, row: Row) -> Version {
        let (version, request) = (Version { epoch: 0, offset: 0 }, request.to_owned());
        self.append(Event { wlog: 0, version, request, rows: vec![row] })
    }

    fn written(&mut self, version: Version, ids: Vec<u64>) -> Outcome {
        let wlog = self.log().len() as u64;
        Outcome::Written(Written { wlog, version, ids, repeated: false })
    }

    fn new_id(&mut self) -> u64 {
        self.ids += 1;
        FIRST_ID + self.ids - 1
    }

    /// A client creates a document. Returns its id.
    pub(crate) fn create(&mut self, request: &str) -> u64 {
        self.create_by(request, false)
    }

    pub(crate) fn create_with_key(&mut self, request: &str) -> u64 {
        self.create_by(request, true)
    }

    fn create_by(&mut self, request: &str, has_key: bool) -> u64 {
        let id = self.new_id();
        let version = self.event(request, id, json!({"name": request}));
        let outcome = self.written(version, vec![id]);
        self.operation(create(request, has_key), outcome);
        id
    }

    /// A client changes a document. Returns the number of the operation.
    pub(crate) fn update(&mut self, request: &str, id: u64, if_match: Option<Version>) -> usize {
        let version = self.event(request, id, json!({"name": request}));
        let outcome = self.written(version, Vec::new());
        let change = Change::Update { id, if_match };
        self.operation(Request::Write { id: request.into(), has_key: false, change }, outcome)
    }

    pub(crate) fn refused(&mut self, request: &str) {
        let outcome = Outcome::Refused { status: 503, code: "queue_full".into() };
        self.operation(create(request, false), outcome);
    }

    /// A command without an answer.
    pub(crate) fn unknown(&mut self, request: &str, is_done: bool) {
        if is_done {
            let id = self.new_id();
            self.event(request, id, json!({"name": request}));
        }
        self.operation(create(request, false), Outcome::Unknown { why: "504".into() });
    }

    /// A read of a document. Returns the number of the operation.
    pub(crate) fn read(&mut self, id: u64) -> usize {
        let record = self.record(id);
        self.read_as(id, record, false)
    }

    pub(crate) fn read_as(&mut self, id: u64, record: Option<Record>, eventual: bool) -> usize {
        let outcome = Outcome::Document { record, says_eventual: eventual };
        self.operation(Request::Read { id, eventual }, outcome)
    }

    /// The present record.
    pub(crate) fn record(&self, id: u64) -> Option<Record> {
        self.history.end.records.get(&(WS, id)).cloned()
    }

    pub(crate) fn read_log(&mut self, from: u64) -> usize {
        let events = self.log().iter().filter(|event| event.wlog >= from).cloned().collect();
        self.operation(Request::Log { from }, Outcome::Events { events })
    }

    pub(crate) fn list(&mut self) -> usize {
        let documents = self.history.end.records.values();
        let documents = documents.filter(|record| record.row.is_active);
        let documents = documents.map(|record| (record.row.id, record.version)).collect();
        let table = "shop.Article".to_owned();
        let outcome = Outcome::Listed { documents, next: None };
        self.operation(Request::List { table, after: 0 }, outcome)
    }
}

fn create(request: &str, has_key: bool) -> Request {
    Request::Write { id: request.to_owned(), has_key, change: Change::Create }
}

pub(crate) fn texts(found: Found) -> Vec<String> {
    found.into_iter().map(|(text, _)| text).collect()
}
