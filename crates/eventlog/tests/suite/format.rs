//! The bytes of events are pinned, are read back without a change, and any damage is detected.

use bytes::Bytes;
use clock::WallTime;
use eventlog::{
    AppRow, DamagedRow, DecodeError, DrawnNumber, Entry, Epoch, Event, EventPlace, FencingEntry,
    Idempotency, Marker, Offset, Parent, Record, RecordChange, RecordId, StoredAnswer,
    StoredRecord, TableKind, Value, Version, WsId,
};

/// The advice for a changed format. A new first byte changes the deployment, too: a program refuses
/// a keyspace with the old bytes, and does not read it as a damaged one.
const NEW_FORMAT: &str = "the format changed: give it a first byte that was never used. ";

fn place() -> EventPlace {
    EventPlace { epoch: Epoch(7), plog: Offset(300), ws: WsId(1 << 40), wlog: Offset(5) }
}

fn version() -> Version {
    Version { epoch: Epoch(7), plog: Offset(200) }
}

/// Returns the smallest event.
fn empty() -> Entry {
    Entry::Event(Box::new(Event {
        place: place(),
        time: WallTime::from_millis(1_700_000_000_000),
        request: String::new(),
        principal: String::new(),
        idempotency: None,
        command: "sys.CUD".parse().unwrap(),
        params: Bytes::new(),
        changes: Vec::new(),
        drawn: Vec::new(),
    }))
}

/// Returns an event with a value of each type.
fn full() -> Entry {
    let values = [
        ("a_bool", Value::Bool(true)),
        ("b_int32", Value::Int32(-2)),
        ("c_int64", Value::Int64(i64::MIN)),
        ("d_float32", Value::Float32(1.5)),
        ("e_float64", Value::Float64(-0.0)),
        ("f_string", Value::String("grüße".to_owned())),
        ("g_bytes", Value::Bytes(Bytes::from_static(&[0, 255]))),
        ("h_qname", Value::QName("shop.Article".parse().unwrap())),
        ("i_ref", Value::Ref(RecordId(322_685_000_131_072))),
    ];
    let fields = values.into_iter().map(|(name, value)| (name.parse().unwrap(), value)).collect();
    let article = Record {
        table: "shop.Article".parse().unwrap(),
        kind: TableKind::CDoc,
        id: RecordId(322_685_000_131_072),
        parent: None,
        is_active: true,
        fields,
    };
    let price = Record {
        table: "shop.Price".parse().unwrap(),
        kind: TableKind::CRecord,
        id: RecordId(322_685_000_131_073),
        parent: Some(Parent { id: article.id, container: "prices".parse().unwrap() }),
        is_active: false,
        fields: [("a_bool".parse().unwrap(), Value::Bool(false))].into(),
    };
    let Entry::Event(event) = empty() else { unreachable!() };
    Entry::Event(Box::new(Event {
        request: "r-1".to_owned(),
        principal: "joe".to_owned(),
        idempotency: Some(Idempotency {
            key: [1; 32],
            body: [2; 32],
            answer: Bytes::from_static(b"{}"),
        }),
        params: Bytes::from_static(b"{\"a\":1}"),
        changes: vec![
            RecordChange { replaces: None, record: article },
            RecordChange { replaces: Some(version()), record: price },
        ],
        drawn: vec![
            DrawnNumber { seq: 1, last: 5 },
            DrawnNumber { seq: 3, last: 322_685_000_131_073 },
        ],
        ..*event
    }))
}

fn corrupted() -> Entry {
    let drawn = vec![DrawnNumber { seq: 1, last: 5 }];
    let (marked, bytes) = (Epoch(9), Bytes::from_static(b"what?"));
    Entry::Marker(Marker { place: place(), marked, drawn, bytes })
}

fn fencing() -> Entry {
    let time = WallTime::from_millis(1_700_000_000_000);
    Entry::Fencing(FencingEntry { epoch: Epoch(7), partition: 300, plog: Offset(301), time })
}

fn hex(bytes: &[u8]) -> String {
    let lines =
        bytes.chunks(32).map(|line| line.iter().map(|byte| format!("{byte:02x}")).collect());
    lines.collect::<Vec<String>>().join("\n") + "\n"
}

#[test]
fn every_byte_is_pinned() {
    for (entry, golden) in [
        (empty(), include_str!("../golden/empty.hex")),
        (full(), include_str!("../golden/full.hex")),
        (corrupted(), include_str!("../golden/corrupted.hex")),
        (fencing(), include_str!("../golden/fencing.hex")),
    ] {
        let bytes = entry.to_bytes();
        assert_eq!(hex(&bytes), golden, "{NEW_FORMAT}{entry:?}");
        assert_eq!(Entry::from_bytes(&bytes).unwrap(), entry);
    }
}

#[test]
fn a_wrong_bit_is_detected() {
    for entry in [empty(), full(), corrupted(), fencing()] {
        let bytes = entry.to_bytes().to_vec();
        for bit in 0..bytes.len() * 8 {
            let mut damaged = bytes.clone();
            damaged[bit / 8] ^= 1 << (bit % 8);
            assert_eq!(Entry::from_bytes(&damaged), Err(DecodeError::Checksum), "bit {bit}");
        }
        for length in 0..bytes.len() {
            assert_eq!(Entry::from_bytes(&bytes[..length]), Err(DecodeError::Checksum), "{length}");
        }
    }
}

/// Returns bytes with a correct checksum.
fn sealed(body: &[u8]) -> Vec<u8> {
    [body, &crc32fast::hash(body).to_be_bytes()].concat()
}

#[test]
fn bytes_with_a_right_checksum_and_wrong_content_are_reported_as_such() {
    assert_eq!(Entry::from_bytes(&sealed(&[])), Err(DecodeError::Checksum));
    assert_eq!(Entry::from_bytes(&sealed(&[200, 1])), Err(DecodeError::OtherVersion(200)));
    for entry in [empty(), full(), corrupted(), fencing()] {
        let bytes = entry.to_bytes();
        let body = &bytes[..bytes.len() - 4];
        let more = Entry::from_bytes(&sealed(&[body, &[0]].concat()));
        assert_eq!(more, Err(DecodeError::Malformed("1 bytes follow the value".to_owned())));
        let less = Entry::from_bytes(&sealed(&body[..body.len() - 1]));
        assert!(matches!(less, Err(DecodeError::Malformed(_))), "{less:?}");
    }
}

/// A fencing entry belongs to one row of the log of its partition, and to no log of a workspace.
#[test]
fn a_fencing_entry_is_read_only_in_its_own_row() {
    let (bytes, partitions) = (fencing().to_bytes(), 1_000.try_into().unwrap());
    let own = AppRow::Plog(300, Offset(301));
    assert_eq!(own.entry(&bytes, partitions), Ok(fencing()));
    for row in [
        AppRow::Plog(300, Offset(302)),
        AppRow::Plog(299, Offset(301)),
        AppRow::Wlog(WsId(300), Offset(301)),
    ] {
        let misplaced = DamagedRow::Misplaced { row, named: own };
        assert_eq!(row.entry(&bytes, partitions), Err(misplaced));
    }
    assert!(own.hints_at_fencing(&[&bytes[..bytes.len() - 1], &[0]].concat()));
    assert!(!AppRow::Plog(299, Offset(301)).hints_at_fencing(&bytes));
    assert!(!own.hints_at_fencing(&empty().to_bytes()));
    assert_eq!(own.hinted_place(&bytes), None);
    assert_eq!(own.describe(&bytes), "fencing entry 301 of epoch 7 of partition 300");
}

#[test]
fn a_record_is_stored_with_the_event_that_wrote_it() {
    let Entry::Event(event) = full() else { unreachable!() };
    for RecordChange { record, .. } in event.changes {
        let stored = StoredRecord { ws: place().ws, version: version(), record };
        let bytes = stored.to_bytes();
        assert_eq!(StoredRecord::from_bytes(&bytes).unwrap(), stored);
        assert_eq!(StoredRecord::from_bytes(&bytes[1..]), Err(DecodeError::Checksum));
        if stored.record.parent.is_some() {
            assert_eq!(hex(&bytes), include_str!("../golden/record.hex"), "{NEW_FORMAT}");
        }
        let other = Entry::from_bytes(&bytes);
        assert!(matches!(other, Err(DecodeError::Malformed(_))), "{other:?}");
    }
    for entry in [empty(), corrupted(), fencing()] {
        let other = StoredRecord::from_bytes(&entry.to_bytes());
        assert!(matches!(other, Err(DecodeError::Malformed(_))), "{other:?}");
    }
    assert_eq!(StoredRecord::from_bytes(&sealed(&[200])), Err(DecodeError::OtherVersion(200)));
}

#[test]
fn every_byte_of_an_answer_is_pinned() {
    let answer = StoredAnswer {
        place: place(),
        key: [1; 32],
        body: [2; 32],
        answer: Bytes::from_static(b"{}"),
    };
    let bytes = answer.to_bytes();
    assert_eq!(hex(&bytes), include_str!("../golden/answer.hex"), "{NEW_FORMAT}");
    assert_eq!(StoredAnswer::from_bytes(&bytes).unwrap(), answer);
    let other = StoredAnswer::from_bytes(&empty().to_bytes());
    assert!(matches!(other, Err(DecodeError::Malformed(_))), "{other:?}");
}
