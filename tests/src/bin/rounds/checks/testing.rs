//! Small histories for the tests of the checks. What a scene makes is right; each test breaks it.

use serde_json::{Value, json};

use super::Found;
use crate::{
    final_state::PARTITIONS,
    history::{
        Change, Event, History, Operation, Outcome, Parent, Part, PartitionEvent, Record, Request,
        Row, SentRow, Version, Written,
    },
};

pub(crate) const WS: u64 = 11;
pub(crate) const PARTITION: u16 = 1;
pub(crate) const TABLE: &str = "shop.Article";
/// The first id of a document.
pub(crate) const FIRST_ID: u64 = 322_685_000_131_072;

/// A history of one workspace. Its operations follow each other: the operation with number `n`
/// begins at `10 * n` and ends at `10 * n + 5`. All parts are marked as whole.
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
        let of_workspace = [Part::Operations, Part::Log, Part::Records, Part::List];
        history.end.whole.extend(of_workspace.map(|part| part(WS)));
        history.end.whole.extend((0..PARTITIONS).map(Part::Partition));
        Scene { history, epoch: 1, ids: 0 }
    }

    /// Takes the marks away, so that nothing is known to be missing.
    pub(crate) fn unmark(&mut self) {
        self.history.end.whole.clear();
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
        let (client, node, ws) = (1, None, WS);
        let operation = Operation { number, client, node, begin, end, ws, request, outcome };
        self.history.operations.push(operation);
        number as usize
    }

    /// Adds an event to the end of both logs, and returns its version.
    pub(crate) fn append(&mut self, mut event: Event) -> Version {
        let offset = self.partition().len() as u64 + 1;
        event.wlog = self.log().len() as u64 + 1;
        event.version = Version { epoch: self.epoch, offset };
        // Events of one group have one time.
        event.time_micros = Some(1_000 * (offset / 2));
        let Event { version, wlog, time_micros, .. } = event;
        let request = event.request.clone();
        for row in &event.rows {
            let record = Record { row: row.clone(), version };
            if row.table == TABLE {
                self.history.end.listed.insert((WS, row.id), record.clone());
            }
            self.history.end.records.insert((WS, row.id), record);
        }
        self.partition().push(PartitionEvent { version, ws: WS, wlog, request, time_micros });
        self.log().push(event);
        version
    }

    pub(crate) fn event_of(&mut self, request: &str, row: Row) -> Version {
        self.event(request, vec![row])
    }

    pub(crate) fn event(&mut self, request: &str, rows: Vec<Row>) -> Version {
        let (version, request) = (Version { epoch: 0, offset: 0 }, request.to_owned());
        self.append(Event { wlog: 0, version, request, time_micros: None, rows })
    }

    pub(crate) fn written(&mut self, version: Version, ids: Vec<(u64, u64)>) -> Outcome {
        let wlog = self.log().len() as u64;
        Outcome::Written(Written { wlog, version, ids, repeated: false, served_by: None })
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
        let version = self.event_of(request, article(id, request));
        let outcome = self.written(version, vec![(1, id)]);
        self.operation(create(request, has_key), outcome);
        id
    }

    /// A client creates a bill with a line.
    pub(crate) fn bill(&mut self, request: &str) -> usize {
        let first = FIRST_ID - 5_000_000_000;
        let rows = vec![
            row(65_601, "sys.NumberCounter65601", json!({"next": 2})),
            row(first, "shop.Bill", json!({"customer": "Ann", "number": "INV2026-0001"})),
            Row {
                parent: Some(Parent { id: first, container: "lines".into() }),
                ..row(first + 1, "shop.Line", json!({"quantity": 2}))
            },
        ];
        let version = self.event(request, rows);
        let outcome = self.written(version, vec![(1, first), (2, first + 1)]);
        let parent = Some(Parent { id: 1, container: "lines".into() });
        let rows = vec![
            sent(1, "shop.Bill", json!({"customer": "Ann"})),
            SentRow { parent, ..sent(2, "shop.Line", json!({"quantity": 2})) },
        ];
        self.operation(write(request, false, Change::Create, rows), outcome)
    }

    /// A client changes a document. Returns the number of the operation.
    pub(crate) fn update(&mut self, request: &str, id: u64, if_match: Option<Version>) -> usize {
        let mut row = article(id, request);
        if let Some(before) = self.record(id) {
            row.fields = before.row.fields;
            row.fields["name"] = request.into();
        }
        let version = self.event_of(request, row);
        let outcome = self.written(version, Vec::new());
        self.operation(change(request, id, if_match), outcome)
    }

    pub(crate) fn refused(&mut self, request: &str) {
        self.operation(create(request, false), refusal(503, "queue_full"));
    }

    /// A command without an answer.
    pub(crate) fn unknown(&mut self, request: &str, is_done: bool) {
        if is_done {
            let id = self.new_id();
            self.event_of(request, article(id, request));
        }
        self.operation(create(request, false), Outcome::Unknown { why: "504".into() });
    }

    /// Another try of the command of an operation.
    pub(crate) fn again(&mut self, operation: usize, outcome: Outcome) -> usize {
        let request = self.history.operations[operation].request.clone();
        self.operation(request, outcome)
    }

    /// The answer of an operation.
    pub(crate) fn answer(&mut self, operation: usize) -> &mut Written {
        match &mut self.history.operations[operation].outcome {
            Outcome::Written(written) => written,
            other => panic!("{other:?}"),
        }
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
        let documents = self.history.end.listed.values();
        let documents = documents.filter(|record| record.row.is_active);
        let documents = documents.map(|record| (record.row.id, record.version)).collect();
        let table = "shop.Article".to_owned();
        let outcome = Outcome::Listed { documents, next: None };
        self.operation(Request::List { table, after: 0 }, outcome)
    }
}

/// The fields of a document when it is created.
fn fields(name: &str) -> Value {
    json!({"name": name, "cents": 5})
}

fn row(id: u64, table: &str, fields: Value) -> Row {
    Row { id, table: table.into(), is_active: true, parent: None, fields }
}

pub(crate) fn article(id: u64, name: &str) -> Row {
    row(id, "shop.Article", fields(name))
}

fn sent(id: u64, table: &str, fields: Value) -> SentRow {
    SentRow { id, table: table.into(), parent: None, is_active: None, fields }
}

pub(crate) fn write(request: &str, has_key: bool, change: Change, rows: Vec<SentRow>) -> Request {
    Request::Write { id: request.to_owned(), has_key, place: None, change, rows }
}

pub(crate) fn create(request: &str, has_key: bool) -> Request {
    write(request, has_key, Change::Create, vec![sent(1, "shop.Article", fields(request))])
}

pub(crate) fn change(request: &str, id: u64, if_match: Option<Version>) -> Request {
    let rows = vec![sent(id, "shop.Article", json!({"name": request}))];
    write(request, false, Change::Update { id, if_match }, rows)
}

pub(crate) fn refusal(status: u16, code: &str) -> Outcome {
    Outcome::Refused { status, code: code.to_owned() }
}

pub(crate) fn texts(found: Found) -> Vec<String> {
    found.into_iter().map(|(text, _)| text).collect()
}
