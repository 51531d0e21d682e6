//! The answers of commands that are done, and their largest sizes.
//!
//! Invariant: a node that forwards a command or a batch accepts every answer that the owner can
//! give, because the commands are done already. So each part of an answer is bounded: all results
//! of a batch together have at most as many bytes as the result of one command.

use http_server::{
    limits::Permit,
    response::{Body, JSON, bytes_response},
};
use hyper::{Response, StatusCode};
use processor::{Done, MOST_RESULT_BYTES};
use serde::{Serialize, Serializer};
use serde_json::{
    Map,
    value::{RawValue, to_raw_value},
};
use vvm::eventlog::{Fields, RecordId};

use crate::{
    route::MOST_COMMANDS,
    rows::{BytesBody, ShownFields, json_of_fields},
};

/// The most bytes of results in an answer. Base64 turns three bytes into four.
const RESULTS_BYTES: usize = MOST_RESULT_BYTES.div_ceil(3) * 4;

/// The most bytes of the answer of one command besides its result: the ids of 4,096 new rows, with
/// at most 29 bytes each, or a problem.
const REST_BYTES: usize = 128 << 10;

/// The most bytes of the drawn fields in an answer. Those of 4,096 rows with one number each need
/// less than 256 KiB.
const DRAWN_BYTES: usize = 1 << 20;

/// The most bytes of the answer to a command that is done.
pub(crate) const DONE_BYTES: usize = RESULTS_BYTES + DRAWN_BYTES + REST_BYTES;

/// The most bytes of the answer to a batch.
pub(crate) const BATCH_BYTES: usize = RESULTS_BYTES + DRAWN_BYTES + MOST_COMMANDS * REST_BYTES;

/// The most bytes of the result of each command, if this many commands share one answer.
pub(crate) fn most_result_bytes(commands: usize) -> usize {
    MOST_RESULT_BYTES / commands.max(1)
}

/// The answer of a command that is done, as JSON.
#[derive(Serialize)]
#[serde(rename_all = "camelCase")]
pub(crate) struct DoneBody<'d> {
    #[serde(skip_serializing_if = "Option::is_none")]
    drawn: Option<Box<RawValue>>,
    epoch: u64,
    new_ids: NewIds<'d>,
    plog_offset: u64,
    #[serde(skip_serializing_if = "Option::is_none")]
    repeated: Option<bool>,
    #[serde(skip_serializing_if = "Option::is_none")]
    result: Option<BytesBody<'d>>,
    /// The status of a command of a batch.
    #[serde(skip_serializing_if = "Option::is_none")]
    status: Option<u16>,
    wlog_offset: u64,
}

impl<'d> DoneBody<'d> {
    /// The answer of a command that has a response of its own.
    pub(crate) fn alone(done: &'d Done) -> DoneBody<'d> {
        DoneBody::one_of(done, 1)
    }

    /// The answer of a command that shares its response with others.
    fn one_of(done: &'d Done, commands: usize) -> DoneBody<'d> {
        let Done { epoch, plog, wlog, answer, is_repeated } = done;
        DoneBody {
            drawn: json_of_drawn(&answer.drawn, DRAWN_BYTES / commands.max(1)),
            epoch: epoch.0,
            new_ids: NewIds(&answer.ids),
            plog_offset: plog.0,
            repeated: is_repeated.then_some(true),
            result: (!answer.result.is_empty()).then(|| BytesBody::of(&answer.result)),
            status: None,
            wlog_offset: wlog.0,
        }
    }

    /// The answer of a command in a batch of this many commands.
    pub(crate) fn in_batch(done: &'d Done, commands: usize) -> DoneBody<'d> {
        let status = Some(StatusCode::OK.as_u16());
        DoneBody { status, ..DoneBody::one_of(done, commands) }
    }
}

/// The fields of new rows that drew their values, by the raw id of the row. `None` if there are
/// none, or if they have more than `most` bytes. The command is done anyway, and its records have
/// the fields, too.
fn json_of_drawn(drawn: &[(RecordId, Fields)], most: usize) -> Option<Box<RawValue>> {
    if drawn.is_empty() {
        return None;
    }
    let fields = |fields: &Fields| json_of_fields(fields, &ShownFields::All, None);
    let rows = drawn.iter().map(|(raw, of)| (raw.0.to_string(), fields(of)));
    to_raw_value(&rows.collect::<Map<_, _>>()).ok().filter(|json| json.get().len() <= most)
}

/// The real id of each new row, by its raw id.
struct NewIds<'d>(&'d [(RecordId, RecordId)]);

impl Serialize for NewIds<'_> {
    fn serialize<S: Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
        serializer.collect_map(self.0.iter().map(|(raw, id)| (raw.0, id.0)))
    }
}

/// An answer of commands as JSON. All its keys are texts or numbers, so the conversion cannot fail.
pub(crate) fn json_of_answer(answer: &impl Serialize) -> Vec<u8> {
    serde_json::to_vec(answer).unwrap_or_default()
}

/// The answer of a command. It takes over the memory of the body, and makes the permit as large as
/// the answer. If there is no free memory, the answer is sent anyway, because the command is done.
/// It then takes the rest of the memory of its principal, who begins no further command meanwhile.
pub(crate) fn done_response(
    status: StatusCode,
    done: &Done,
    memory: Option<Permit>,
) -> Response<Body> {
    let json = json_of_answer(&DoneBody::alone(done));
    bytes_response(status, JSON, Permit::around(memory, json))
}

#[cfg(test)]
mod tests {
    use bytes::Bytes;
    use processor::Answer;
    use serde_json::{Value as Json, json};
    use vvm::eventlog::{Epoch, Offset, Value};

    use super::*;

    fn done(result: impl Into<Bytes>, ids: Vec<(RecordId, RecordId)>) -> Done {
        let (epoch, plog, wlog) = (Epoch(1), Offset(2), Offset(3));
        let answer = Answer { ids, result: result.into(), ..Answer::default() };
        Done { epoch, plog, wlog, answer, is_repeated: false }
    }

    fn text(body: &DoneBody<'_>) -> String {
        String::from_utf8(json_of_answer(body)).unwrap()
    }

    #[test]
    fn a_done_command_has_its_offsets_and_the_ids_of_its_rows() {
        let ids = vec![(RecordId(1), RecordId(322_685_000_131_072)), (RecordId(12), RecordId(7))];
        let mut done = done("", ids);
        let expected =
            r#"{"epoch":1,"newIds":{"1":322685000131072,"12":7},"plogOffset":2,"wlogOffset":3}"#;
        assert_eq!(text(&DoneBody::alone(&done)), expected);
        done.is_repeated = true;
        let json: Json = serde_json::from_str(&text(&DoneBody::in_batch(&done, 1))).unwrap();
        let expected = json!({
            "epoch": 1, "newIds": { "1": 322_685_000_131_072_u64, "12": 7 }, "plogOffset": 2,
            "repeated": true, "status": 200, "wlogOffset": 3,
        });
        assert_eq!(json, expected);
    }

    /// A result was parsed and written again. It became up to four times as long, lost duplicate
    /// keys, and got other digits.
    #[test]
    fn the_result_of_a_command_is_in_its_answer_as_it_is() {
        let with_result = |result: &'static str| text(&DoneBody::alone(&done(result, Vec::new())));
        let result = r#"{ "a": 1e15, "a": 0.10 }"#;
        assert!(with_result(result).contains(&format!(r#","result":{result},"#)));
        assert!(!with_result("").contains("result"));
    }

    /// A node that forwards a command accepts an answer of at most [`DONE_BYTES`].
    #[test]
    fn the_largest_answer_of_a_command_has_a_bound() {
        let id = |raw| (RecordId(raw), RecordId(u64::MAX));
        let largest = |result: Vec<u8>| Done {
            epoch: Epoch(u64::MAX),
            plog: Offset(u64::MAX),
            wlog: Offset(u64::MAX),
            is_repeated: true,
            ..done(result, (61_440..65_536).map(id).collect())
        };
        let bytes = MOST_RESULT_BYTES;
        let json = |of: &str| {
            let numbers = format!("[{}", vec![of; bytes / (of.len() + 1) - 1].join(","));
            format!("{numbers}{}]", " ".repeat(bytes - 1 - numbers.len())).into_bytes()
        };
        for result in [json("1e15"), json("-0"), vec![0; bytes], vec![b'x'; bytes]] {
            assert_eq!(result.len(), MOST_RESULT_BYTES);
            let begin = result[..5].to_owned();
            let answer = text(&DoneBody::in_batch(&largest(result), 1)).len();
            assert!(answer > bytes && answer <= DONE_BYTES, "{begin:?}: {answer}");
        }
        let rest = text(&DoneBody::in_batch(&largest(Vec::new()), 1)).len();
        assert!(rest + r#""result":{"base64":""}"#.len() < REST_BYTES, "{rest}");
    }

    /// A node that forwards a command accepts an answer of at most [`DONE_BYTES`], whatever the
    /// fields of the rows are called.
    #[test]
    fn drawn_fields_that_are_too_large_are_left_out() {
        let with = |rows: u64, digits: usize| {
            let number = Value::String("9".repeat(digits));
            let fields = Fields::from_iter([("number".parse().unwrap(), number)]);
            let mut done = done("", Vec::new());
            done.answer.drawn = (1..=rows).map(|raw| (RecordId(raw), fields.clone())).collect();
            done
        };
        let few = text(&DoneBody::alone(&with(2, 3)));
        let expected = r#"{"drawn":{"1":{"number":"999"},"2":{"number":"999"}},"epoch":1,"#;
        assert!(few.starts_with(expected), "{few}");
        let many = with(4_096, 20);
        let one = text(&DoneBody::alone(&many));
        assert!(one.contains("drawn") && one.len() < 256 << 10, "{}", one.len());
        assert!(!text(&DoneBody::in_batch(&many, 100)).contains("drawn"));
        assert!(text(&DoneBody::in_batch(&with(100, 20), 100)).contains("drawn"));
        assert!(!text(&DoneBody::alone(&with(4_096, 300))).contains("drawn"));
    }

    /// Each command of a batch had as large a result as a command alone: 100 results of 4 MiB.
    #[test]
    fn the_commands_of_a_batch_share_the_room_of_one_result() {
        assert_eq!(most_result_bytes(1), MOST_RESULT_BYTES);
        for commands in 1..=MOST_COMMANDS {
            let most = most_result_bytes(commands);
            assert!(most > 0 && most * commands <= MOST_RESULT_BYTES, "{commands}: {most}");
            let base64 = commands * base64::encoded_len(most, true).unwrap();
            assert!(base64 <= RESULTS_BYTES + commands * 4, "{commands}: {base64}");
        }
    }
}
