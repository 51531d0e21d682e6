//! Commands, and the answers to them.

use std::collections::{BTreeMap, HashMap};

use bytes::Bytes;
use clock::Instant;
use eventlog::{
    Epoch, Fields, Name, Offset, Parent, QName, RecordChange, RecordId, Schema, Value, Version,
    WsId,
};
use opentelemetry::trace::SpanContext;
use serde::{Deserialize, Serialize};
use sha2::{Digest, Sha256};

use crate::Refused;

/// A request to change one workspace.
#[derive(Clone, Debug, PartialEq)]
pub struct Command {
    /// The workspace that the command changes.
    pub ws: WsId,
    /// The name of the command, which selects the handler.
    pub name: QName,
    /// The params, as the sender sent them. Only the handler knows their format.
    pub params: Bytes,
    /// The rows that the command writes.
    pub rows: Vec<RowChange>,
    /// The name of the request. Events and logs carry the name, so that a request can be traced.
    pub request: String,
    /// The sender of the command. The event carries the name. It is empty if the sender is not
    /// known.
    pub principal: String,
    /// The idempotency key, if the sender may send the command again.
    pub idempotency_key: Option<IdempotencyKey>,
    /// The span of the request. If it is sampled, the command has a span below it.
    pub span: SpanContext,
    /// The most bytes of the result. More than [`MOST_RESULT_BYTES`] count as that many.
    pub most_result_bytes: usize,
    /// The command must begin before this time. The sender waits for the answer until then.
    pub deadline: Instant,
}

impl Command {
    /// Creates a command without params, rows, a name of the request, a sender, an idempotency key,
    /// and a span. Its result has at most [`MOST_RESULT_BYTES`].
    pub fn new(ws: WsId, name: QName, deadline: Instant) -> Command {
        let (params, rows) = (Bytes::new(), Vec::new());
        let (request, principal, idempotency_key) = (String::new(), String::new(), None);
        Command {
            ws,
            name,
            params,
            rows,
            request,
            principal,
            idempotency_key,
            span: SpanContext::NONE,
            most_result_bytes: MOST_RESULT_BYTES,
            deadline,
        }
    }

    /// Sets the params.
    #[must_use]
    pub fn with_params(self, params: impl Into<Bytes>) -> Command {
        Command { params: params.into(), ..self }
    }

    /// Sets the rows that the command writes.
    #[must_use]
    pub fn with_rows(self, rows: Vec<RowChange>) -> Command {
        Command { rows, ..self }
    }

    /// Sets the name of the request.
    #[must_use]
    pub fn with_request(self, request: impl Into<String>) -> Command {
        Command { request: request.into(), ..self }
    }

    /// The number of bytes that the command carries.
    pub(crate) fn bytes(&self) -> usize {
        self.params.len() + self.rows.iter().map(RowChange::bytes).sum::<usize>()
    }

    /// Sets the idempotency key, so that the sender may send the command again.
    #[must_use]
    pub fn with_idempotency_key(self, key: IdempotencyKey) -> Command {
        Command { idempotency_key: Some(key), ..self }
    }
}

/// A change of one row.
#[derive(Clone, Debug, PartialEq)]
pub enum RowChange {
    /// Creates a row.
    Create {
        /// The raw id: other rows of the command name the new row by this number. It is from 1 to
        /// 65535 and unique in the command. The row gets a real id.
        raw: RecordId,
        /// The table of the new row.
        table: QName,
        /// The parent record and its container that the new row belongs to. The parent may be a row
        /// of the same command.
        parent: Option<Parent>,
        /// The fields of the new row. Raw ids in them are replaced by real ids.
        fields: Fields,
    },
    /// Changes an existing row.
    Update {
        /// The id of the row.
        id: RecordId,
        /// The expected table of the row; `None` accepts any table.
        table: Option<QName>,
        /// The expected version of the row; `None` accepts any version.
        version: Option<Version>,
        /// Whether the row is active after the change; `None` leaves the state as it is.
        is_active: Option<bool>,
        /// The fields that change.
        fields: BTreeMap<Name, FieldChange>,
    },
}

/// The change of a field of an existing row.
#[derive(Clone, Debug, PartialEq)]
pub enum FieldChange {
    /// The field gets a value.
    Set(Value),
    /// The field is emptied.
    Clear,
    /// The number in the field, an int32 or int64, grows by this one. An empty field counts as 0.
    /// The command meets the number that earlier commands left, so nobody has to read it before.
    /// The event has the sum.
    Add(i64),
}

impl From<Option<Value>> for FieldChange {
    fn from(value: Option<Value>) -> FieldChange {
        value.map_or(FieldChange::Clear, FieldChange::Set)
    }
}

impl FieldChange {
    /// The value that the field gets, if the change has it.
    fn value(&self) -> Option<&Value> {
        match self {
            FieldChange::Set(value) => Some(value),
            FieldChange::Clear | FieldChange::Add(_) => None,
        }
    }
}

impl RowChange {
    /// The records that the row refers to. Some may be raw ids.
    pub(crate) fn references(&self) -> impl Iterator<Item = RecordId> {
        let (new, changed) = match self {
            RowChange::Create { fields, .. } => (Some(fields), None),
            RowChange::Update { fields, .. } => (None, Some(fields)),
        };
        let new = new.into_iter().flat_map(|fields| fields.iter().map(|(_, value)| value));
        let changed = changed.into_iter().flatten().filter_map(|(_, change)| change.value());
        new.chain(changed).filter_map(|value| match value {
            Value::Ref(id) => Some(*id),
            _ => None,
        })
    }

    /// About the number of bytes that the row takes in a body.
    fn bytes(&self) -> usize {
        const ROW: usize = 64;
        const FIELD: usize = 16;
        let length = |name: &Name, value: Option<&Value>| {
            let value = match value {
                Some(Value::String(text)) => text.len(),
                Some(Value::Bytes(bytes)) => bytes.len(),
                _ => 0,
            };
            FIELD + name.as_str().len() + value
        };
        let fields: usize = match self {
            RowChange::Create { fields, .. } => {
                fields.iter().map(|(name, value)| length(name, Some(value))).sum()
            }
            RowChange::Update { fields, .. } => {
                fields.iter().map(|(name, change)| length(name, change.value())).sum()
            }
        };
        ROW + fields
    }
}

/// The idempotency key of a command that may be sent again. The command is done once, and each
/// repetition gets the first answer.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct IdempotencyKey {
    /// The hash of the principal and the key.
    pub(crate) key: [u8; 32],
    /// The hash of the body of the command.
    pub(crate) body: [u8; 32],
}

impl IdempotencyKey {
    /// Creates the idempotency key of a command. `key` is the name that the principal gave to the
    /// command. `body` is the whole content of the command: the same key with another body is
    /// refused.
    pub fn new(principal: &str, key: &[u8], body: &[u8]) -> IdempotencyKey {
        let mut both = Sha256::new();
        both.update((principal.len() as u64).to_be_bytes());
        both.update(principal);
        both.update(key);
        IdempotencyKey { key: both.finalize().into(), body: Sha256::digest(body).into() }
    }

    /// The idempotency key of a command of a batch, from the key of the batch and the place of the
    /// command in it.
    #[must_use]
    pub fn of_place(&self, place: u32) -> IdempotencyKey {
        let mut both = Sha256::new();
        both.update(self.key);
        both.update(place.to_be_bytes());
        IdempotencyKey { key: both.finalize().into(), body: self.body }
    }
}

/// The answer to a command that is done: its event is in the logs and applied.
#[derive(Clone, Debug, PartialEq)]
pub struct Done {
    /// The epoch of the leader that did the command.
    pub epoch: Epoch,
    /// The offset of the event in the PLog.
    pub plog: Offset,
    /// The offset of the event in the WLog.
    pub wlog: Offset,
    /// The answer of the command.
    pub answer: Answer,
    /// Whether the command was done before. Then `answer` is the first answer.
    pub is_repeated: bool,
}

impl Done {
    /// The version of all records that the command wrote. A later change of one of these records
    /// may [expect](RowChange::Update) this version.
    pub fn version(&self) -> Version {
        Version { epoch: self.epoch, plog: self.plog }
    }
}

/// The answer to the sender of a command.
pub(crate) type Answered = Result<Done, Refused>;

/// The most bytes of the result of a command. A command with a larger result is refused, and writes
/// nothing. So a node knows how large the answer to a forwarded command can be. A sender can lower
/// the limit by [`Command::most_result_bytes`].
pub const MOST_RESULT_BYTES: usize = 4 << 20;

/// The answer of a command that is done.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct Answer {
    /// The raw ids of the new rows, each with the real id of the row.
    pub ids: Vec<(RecordId, RecordId)>,
    /// The result that the handler returned, of at most [`MOST_RESULT_BYTES`].
    pub result: Bytes,
    /// The number fields and the sequence fields of the new rows, each row by its raw id.
    pub drawn: Vec<(RecordId, Fields)>,
}

#[derive(Serialize, Deserialize)]
struct WireAnswer<'a> {
    ids: Vec<(u64, u64)>,
    #[serde(borrow)]
    result: &'a [u8],
}

/// The drawn fields of the new rows, by raw id. They come after the [answer](WireAnswer), and are
/// absent if there are none, so an earlier version of the program reads such an answer, too.
type WireDrawn<'a> = Vec<(u64, Vec<(&'a str, WireNumber<'a>)>)>;

#[derive(Serialize, Deserialize)]
enum WireNumber<'a> {
    Text(&'a str),
    Number(i64),
}

impl Answer {
    pub(crate) fn to_bytes(&self) -> Bytes {
        const WRITTEN: &str = "memory takes all that is written, and all lengths are known";
        let ids = self.ids.iter().map(|(raw, id)| (raw.0, id.0)).collect();
        let written = postcard::to_stdvec(&WireAnswer { ids, result: &self.result });
        let written = written.expect(WRITTEN);
        if self.drawn.is_empty() {
            return written.into();
        }
        let drawn: WireDrawn<'_> =
            self.drawn.iter().map(|(raw, fields)| (raw.0, wire_fields(fields))).collect();
        postcard::to_extend(&drawn, written).expect(WRITTEN).into()
    }

    pub(crate) fn from_bytes(bytes: &[u8]) -> Option<Answer> {
        let (WireAnswer { ids, result }, rest) = postcard::take_from_bytes(bytes).ok()?;
        let drawn: WireDrawn<'_> = match rest {
            [] => Vec::new(),
            rest => postcard::from_bytes(rest).ok()?,
        };
        let ids = ids.into_iter().map(|(raw, id)| (RecordId(raw), RecordId(id))).collect();
        let drawn = drawn.into_iter().map(|(raw, of)| Some((RecordId(raw), fields_of_wire(of)?)));
        let drawn = drawn.collect::<Option<_>>()?;
        Some(Answer { ids, result: Bytes::copy_from_slice(result), drawn })
    }

    /// Adds the fields of new rows that drew their values. `changes` are those of the event.
    pub(crate) fn with_drawn(self, schema: &Schema, changes: &[RecordChange]) -> Answer {
        let mut raws = None;
        let mut drawn = Vec::new();
        for RecordChange { record, .. } in changes.iter().filter(|change| change.replaces.is_none())
        {
            let Some(table) = schema.table(&record.table) else { continue };
            let names = table.numbers().keys().chain(table.sequences().keys());
            let fields: Fields = names
                .filter_map(|name| Some((name.clone(), record.fields.get(name.as_str())?.clone())))
                .collect();
            if fields.is_empty() {
                continue;
            }
            let raws = raws.get_or_insert_with(|| {
                self.ids.iter().map(|(raw, id)| (*id, *raw)).collect::<HashMap<_, _>>()
            });
            drawn.extend(raws.get(&record.id).map(|raw| (*raw, fields)));
        }
        Answer { drawn, ..self }
    }
}

fn wire_fields(fields: &Fields) -> Vec<(&str, WireNumber<'_>)> {
    let numbers = fields.iter().filter_map(|(name, value)| match value {
        Value::String(text) => Some((name.as_str(), WireNumber::Text(text))),
        Value::Int64(number) => Some((name.as_str(), WireNumber::Number(*number))),
        // No other field draws its value.
        _ => None,
    });
    numbers.collect()
}

/// `None` if a name is not the name of a field.
fn fields_of_wire(fields: Vec<(&str, WireNumber<'_>)>) -> Option<Fields> {
    let field = |(name, number): (&str, WireNumber<'_>)| {
        let value = match number {
            WireNumber::Text(text) => Value::String(text.to_owned()),
            WireNumber::Number(number) => Value::Int64(number),
        };
        Some((name.parse().ok()?, value))
    };
    fields.into_iter().map(field).collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_key_belongs_to_its_principal() {
        let key = |principal: &str, key: &[u8]| IdempotencyKey::new(principal, key, b"").key;
        assert_eq!(key("joe", b"1"), key("joe", b"1"));
        assert_ne!(key("joe", b"1"), key("joe", b"2"));
        assert_ne!(key("joe", b"1"), key("jo", b"e1"), "where the name ends counts");
        assert_ne!(
            IdempotencyKey::new("joe", b"1", b"a").body,
            IdempotencyKey::new("joe", b"1", b"b").body
        );
    }

    /// The hashes are stored. A sender that repeats a command after an upgrade relies on the same
    /// hashes.
    #[test]
    fn hashes_of_keys_and_bodies_are_pinned() {
        let hex = |bytes: [u8; 32]| bytes.map(|byte| format!("{byte:02x}")).concat();
        let IdempotencyKey { key, body, .. } = IdempotencyKey::new("joe", b"key", b"body");
        assert_eq!(hex(key), "27476cfb89c9ec11a7eb38eb5d5e94a4a61932d3a9fedd37267cea68fc7a095e");
        assert_eq!(hex(body), "230d8358dc8e8890b4c58deeb62912ee2f20357ae92a5cc861b98e68fe31acb5");
        let of_place = IdempotencyKey { key, body }.of_place(7);
        assert_eq!(of_place.body, body, "the body is that of the batch");
        assert_eq!(
            hex(of_place.key),
            "5859b0d2f8f1a278e16f09a6e6c37764f8e39d059763ceb4b2f8a154e52d8231"
        );
    }

    #[test]
    fn an_answer_is_read_back() {
        let ids = vec![(RecordId(1), RecordId(322_680_000_131_072))];
        let answer = Answer { ids, result: Bytes::from_static(b"{}"), ..Answer::default() };
        // These bytes are a stored format, described in docs/event-format.md.
        let pinned = [1, 1, 0x80, 0xe0, 0xa2, 0xd6, 0x9c, 0xaf, 0x49, 2, b'{', b'}'];
        assert_eq!(answer.to_bytes(), pinned.as_slice());
        assert_eq!(Answer::from_bytes(&answer.to_bytes()), Some(answer.clone()));
        assert_eq!(Answer::from_bytes(b"\xff"), None);
        let fields = [("no", Value::Int64(-1)), ("of", Value::String("B1".to_owned()))];
        let fields = fields.map(|(name, value)| (name.parse().unwrap(), value));
        let drawn = vec![(RecordId(1), Fields::from_iter(fields))];
        let with_drawn = Answer { drawn, ..answer };
        let more = [1, 1, 2, 2, b'n', b'o', 1, 1, 2, b'o', b'f', 0, 2, b'B', b'1'];
        assert_eq!(with_drawn.to_bytes(), [&pinned[..], &more].concat());
        assert_eq!(Answer::from_bytes(&with_drawn.to_bytes()), Some(with_drawn));
    }

    /// Damaged bytes of an answer are either read or refused. The test changes each one or two
    /// bytes, and inserts lengths that no answer can have.
    #[test]
    fn damaged_bytes_of_an_answer_are_read_or_refused() {
        const HUGE: [u8; 10] = [0xff, 0xff, 0xff, 0xff, 0xff, 0xff, 0xff, 0xff, 0xff, 1];
        let read = |bytes: &[u8]| {
            if let Some(answer) = Answer::from_bytes(bytes) {
                let again = answer.to_bytes();
                assert!(again.len() <= bytes.len(), "{bytes:02x?}");
                assert_eq!(Answer::from_bytes(&again), Some(answer));
            }
        };
        let ids = vec![(RecordId(1), RecordId(322_680_000_131_072)), (RecordId(2), RecordId(3))];
        let whole = Answer { ids, result: Bytes::from_static(b"{}"), ..Answer::default() };
        let whole = whole.to_bytes().to_vec();
        for at in 0..whole.len() {
            read(&whole[..at]);
            for end in at + 1..=whole.len() {
                let huge = [&whole[..at], &HUGE, &whole[end..]].concat();
                read(&huge);
            }
            for byte in 0..=u8::MAX {
                let mut changed = whole.clone();
                changed[at] = byte;
                read(&changed);
                for other in [0, 1, 0x7f, 0x80, 0xff] {
                    changed[(at + 1) % whole.len()] = other;
                    read(&changed);
                }
            }
        }
    }
}
