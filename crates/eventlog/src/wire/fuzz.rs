//! Fuzzing: bytes that no program wrote are read or refused. All of them follow from seeds.

use clock::WallTime;
use fastrand::Rng;

use super::{format::*, *};
use crate::{
    Deployment, DrawnNumber, Epoch, Fields, Idempotency, Offset, Parent, QName, Record,
    RecordChange, RecordId, TableKind, TrustLevel, Value, Version, WsId, deployment::BegunChange,
};

/// The number of random changes of each kind of bytes.
const ROUNDS: usize = 20_000;

/// Lengths that are larger than any value.
const HUGE: [u64; 4] = [1 << 31, 1 << 40, i64::MAX as u64, u64::MAX];

/// A kind of stored bytes.
struct StoredFormat {
    name: &'static str,
    /// Bytes that can be read.
    whole: Vec<Bytes>,
    /// Reads bytes, and writes the value that was read.
    again: fn(&[u8]) -> Result<Bytes, DecodeError>,
}

fn place() -> EventPlace {
    EventPlace { epoch: Epoch(7), plog: Offset(300), ws: WsId(1 << 40), wlog: Offset(5) }
}

fn record(fields: impl Into<Fields>, parent: Option<Parent>) -> Record {
    let table: QName = "shop.Article".parse().unwrap();
    let id = RecordId(322_685_000_131_072);
    Record { table, kind: TableKind::CDoc, id, parent, is_active: true, fields: fields.into() }
}

/// Returns records with a value of each type.
fn records() -> [Record; 2] {
    let values = [
        ("a", Value::Bool(true)),
        ("b", Value::Int32(-2)),
        ("c", Value::Int64(i64::MIN)),
        ("d", Value::Float32(1.5)),
        ("e", Value::Float64(-0.0)),
        ("f", Value::String("grüße".to_owned())),
        ("g", Value::Bytes(Bytes::from_static(&[0, 255]))),
        ("h", Value::QName("shop.Price".parse().unwrap())),
        ("i", Value::Ref(RecordId(322_685_000_131_072))),
    ];
    let values = values.map(|(name, value)| (name.parse().unwrap(), value));
    let parent = Parent { id: RecordId(70), container: "prices".parse().unwrap() };
    [record(values, None), record([], Some(parent))]
}

fn entries() -> Vec<Bytes> {
    let version = Version { epoch: Epoch(7), plog: Offset(200) };
    let changes = [None, Some(version)].into_iter().zip(records());
    let event = Event {
        place: place(),
        time: WallTime::from_millis(1_700_000_000_000),
        request: "r-1".to_owned(),
        principal: "joe".to_owned(),
        idempotency: Some(Idempotency {
            key: [1; 32],
            body: [2; 32],
            answer: Bytes::from_static(b"{}"),
        }),
        command: "sys.CUD".parse().unwrap(),
        params: Bytes::from_static(b"{}"),
        changes: changes.map(|(replaces, record)| RecordChange { replaces, record }).collect(),
        drawn: vec![
            DrawnNumber { seq: 1, last: 5 },
            DrawnNumber { seq: 3, last: 322_685_000_131_073 },
        ],
    };
    let drawn = vec![DrawnNumber { seq: 1, last: 5 }];
    let bytes = Bytes::from_static(b"damaged");
    let marker = Marker { place: place(), marked: Epoch(9), drawn, bytes };
    let time = WallTime::from_millis(1_700_000_000_000);
    let fencing = FencingEntry { epoch: Epoch(7), partition: 300, plog: Offset(301), time };
    vec![event.to_bytes(), marker.to_bytes(), fencing.to_bytes()]
}

fn kinds() -> [StoredFormat; 4] {
    let version = Version { epoch: Epoch(7), plog: Offset(200) };
    let stored = |record| StoredRecord { ws: WsId(9), version, record }.to_bytes();
    let answer = Bytes::from_static(b"{}");
    let answer = StoredAnswer { place: place(), key: [1; 32], body: [2; 32], answer };
    let schema = r#"
        [tables."shop.Article"]
        kind = "CDoc"
        fields = { name = "string", weight = "float64" }
        containers = { prices = "shop.Price" }
        [tables."shop.Price"]
        kind = "CRecord"
        [tables."shop.Settings"]
        kind = "Singleton"
        id = 65600
    "#;
    let deployment = Deployment::new(TrustLevel::One, schema.parse().unwrap());
    let change = BegunChange { to: TrustLevel::Two, attempt: 300 };
    [
        StoredFormat {
            name: "entry",
            whole: entries(),
            again: |bytes| Ok(Entry::from_bytes(bytes)?.to_bytes()),
        },
        StoredFormat {
            name: "record",
            whole: records().map(stored).into(),
            again: |bytes| Ok(StoredRecord::from_bytes(bytes)?.to_bytes()),
        },
        StoredFormat {
            name: "answer",
            whole: vec![answer.to_bytes()],
            again: |bytes| Ok(StoredAnswer::from_bytes(bytes)?.to_bytes()),
        },
        StoredFormat {
            name: "deployment",
            whole: vec![deployment.to_bytes(), deployment.clone().changing(change).to_bytes()],
            again: |bytes| Ok(Deployment::from_bytes(bytes)?.to_bytes()),
        },
    ]
}

/// Returns bytes with a correct checksum.
fn sealed(body: &[u8]) -> Vec<u8> {
    [body, &crc32fast::hash(body).to_be_bytes()].concat()
}

/// Returns the bytes without their checksum.
fn body(bytes: &Bytes) -> Vec<u8> {
    bytes[..bytes.len() - CHECKSUM].to_vec()
}

/// Returns a number as it is written.
fn varint(mut number: u64) -> Vec<u8> {
    let mut bytes = Vec::new();
    while number > 0x7f {
        bytes.push(number as u8 | 0x80);
        number >>= 7;
    }
    bytes.push(number as u8);
    bytes
}

/// Damages bytes in one of several ways.
fn change(body: &mut Vec<u8>, random: &mut Rng) {
    if body.is_empty() {
        body.push(random.u8(..));
    }
    let (at, other) = (random.usize(..body.len()), random.usize(..body.len()));
    let (from, to) = (at.min(other), at.max(other));
    match random.u8(..7) {
        0 => body[at] ^= 1 << random.u8(..8),
        1 => body[at] = random.u8(..),
        2 => body.insert(at, random.u8(..)),
        3 => drop(body.remove(at)),
        4 => body.truncate(at),
        5 => {
            let part = body[from..to].to_vec();
            body.splice(other..other, part);
        }
        _ => drop(body.splice(at..=at, varint(random.u64(..) >> random.u8(..64)))),
    }
}

/// Reads bytes. A value that was read can be written and read again without a change. The written
/// bytes are not larger than the bytes that were read, except for TOML, which can express some
/// values in fewer letters.
fn read(kind: &StoredFormat, body: &[u8]) -> bool {
    let bytes = sealed(body);
    let Ok(written) = (kind.again)(&bytes) else { return false };
    assert_eq!((kind.again)(&written).as_ref(), Ok(&written), "{} of {body:02x?}", kind.name);
    let most = if kind.name == "deployment" { 64 + 8 * bytes.len() } else { bytes.len() };
    assert!(written.len() <= most, "{} grew from {body:02x?}", kind.name);
    true
}

#[test]
fn written_bytes_are_read_back_unchanged() {
    for kind in kinds() {
        for whole in &kind.whole {
            assert_eq!((kind.again)(whole).as_ref(), Ok(whole), "{}", kind.name);
        }
    }
}

#[test]
fn changed_bytes_are_read_or_refused() {
    for (seed, kind) in (0..).zip(kinds()) {
        let (mut random, mut understood) = (Rng::with_seed(seed), 0);
        for _ in 0..ROUNDS {
            let mut body = body(&kind.whole[random.usize(..kind.whole.len())]);
            for _ in 0..random.usize(1..6) {
                change(&mut body, &mut random);
            }
            understood += usize::from(read(&kind, &body));
        }
        assert!(understood > ROUNDS / 1_000, "only {understood} of kind {}", kind.name);
    }
}

#[test]
fn arbitrary_bytes_are_read_or_refused() {
    let mut random = Rng::with_seed(7);
    for kind in kinds() {
        for _ in 0..ROUNDS {
            let mut body: Vec<u8> = (0..random.usize(..200)).map(|_| random.u8(..)).collect();
            let _ = (kind.again)(&body);
            // The same bytes, with the first byte of this kind.
            if let Some(first) = body.first_mut() {
                *first = kind.whole[random.usize(..kind.whole.len())][0];
            }
            read(&kind, &body);
        }
    }
}

/// A length takes memory only for bytes that exist. Otherwise a damaged length would take more
/// memory than the machine has.
#[test]
fn a_length_that_is_too_large_takes_no_memory() {
    for kind in kinds() {
        for whole in &kind.whole {
            let body = body(whole);
            for at in 1..body.len() {
                for huge in HUGE {
                    let mut body = body.clone();
                    body.splice(at..=at, varint(huge));
                    read(&kind, &body);
                }
            }
        }
    }
}

/// A TOML text can be nested to any depth.
#[test]
fn a_deeply_nested_deployment_is_refused() {
    for nested in ["[", "a = [", "a = {a = ", "[a.a.a.a."] {
        let text = nested.repeat(20_000);
        let level = DeployedLevel { level: 0, stray_before: 0, change: None };
        assert!(Deployment::from_bytes(&deployment(level, &text)).is_err());
    }
}

#[test]
fn unordered_or_repeated_fields_are_refused() {
    let stored = |names: &[&'static str]| {
        let names: Vec<&str> = [&["shop.Article"], names].concat();
        let fields: Vec<(u32, (u32, bool))> =
            (1..names.len() as u32).map(|name| (name, (0, true))).collect();
        let record = (0u32, 0u32, 9u64, None::<(u64, u32)>, true, fields);
        write(RECORD, &(9u64, (7u64, 200u64), names, record))
    };
    assert!(StoredRecord::from_bytes(&stored(&["a", "b"])).is_ok());
    for wrong in [["b", "a"], ["a", "a"]] {
        let refused = StoredRecord::from_bytes(&stored(&wrong));
        assert!(matches!(refused, Err(DecodeError::Malformed(_))), "{refused:?}");
    }
}
