//! Bodies: valid ones, and changes of them.

use fastrand::Rng;
use serde_json::{Value, json};

use crate::{known::Known, routes::BodyKind};

/// A valid body.
pub(crate) fn valid(kind: BodyKind, ws: u64, known: &Known, rng: &mut Rng) -> Vec<u8> {
    let body = match kind {
        BodyKind::None => return Vec::new(),
        BodyKind::CreateWorkspace => json!({ "args": { "kind": "Shop", "name": text(rng) } }),
        BodyKind::Rows => json!({ "rows": rows(ws, known, rng) }),
        BodyKind::Batch => {
            let mut command = || json!({ "command": "sys.CUD", "rows": rows(ws, known, rng) });
            let commands: Vec<Value> = (0..3).map(|_| command()).collect();
            json!({ "commands": commands })
        }
        BodyKind::NewDoc("shop.Article") => json!({ "fields": article(rng) }),
        BodyKind::NewDoc(_) if rng.u8(..8) == 0 => json!({}),
        BodyKind::NewDoc(_) => json!({ "fields": { "customer": text(rng) } }),
        BodyKind::Change(_) => match rng.u8(..4) {
            0 => json!({ "isActive": rng.bool() }),
            1 => json!({ "fields": { "name": null }, "isActive": true }),
            _ => json!({ "fields": article(rng) }),
        },
        BodyKind::Draw if rng.bool() => return Vec::new(),
        BodyKind::Draw => json!({ "count": rng.u8(1..4) }),
    };
    body.to_string().into_bytes()
}

fn article(rng: &mut Rng) -> Value {
    json!({ "name": text(rng), "cents": rng.i64(..) })
}

fn text(rng: &mut Rng) -> String {
    const TEXTS: [&str; 6] = ["Tea", "", "\u{0}\u{7f}", "\u{1f600} \u{202e}", "\"\\", "Ann"];
    match rng.u8(..10) {
        0 => "x".repeat(rng.usize(..3_000)),
        _ => rng.choice(TEXTS).unwrap().to_owned(),
    }
}

/// New rows that refer to each other, and changes of a row that exists.
fn rows(ws: u64, known: &Known, rng: &mut Rng) -> Vec<Value> {
    let mut rows = Vec::new();
    if rng.bool() {
        rows.push(json!({ "id": 1, "table": "shop.Bill", "fields": { "customer": text(rng) } }));
        for line in 0..rng.u64(..4) {
            rows.push(json!({ "id": 2 + line, "table": "shop.Line",
                "parent": { "id": 1, "container": "lines" },
                "fields": { "quantity": rng.i32(..), "cents": rng.i64(..) } }));
        }
    } else {
        rows.push(json!({ "id": 65_535, "table": "shop.Article", "fields": article(rng) }));
    }
    if rng.u8(..3) == 0 {
        let article = known.doc(ws, "shop.Article", rng).id;
        let change = json!({ "id": article, "table": "shop.Article",
            "fields": { "cents": rng.i64(..) } });
        // A workspace without articles gives a new one the id that is tried here.
        if rows[0]["table"] != "shop.Article" {
            rows.push(change);
        }
    }
    rows
}

/// Changes a body. Some changes leave it valid.
pub(crate) fn change(body: &mut Vec<u8>, rng: &mut Rng) {
    match rng.u8(..12) {
        0 => body.truncate(rng.usize(..=body.len())),
        1..4 => bytes(body, rng),
        4 => *body = deep(rng),
        5 => *body = rng.choice(WHOLE).unwrap().to_vec(),
        6 => *body = vec![b' '; rng.usize(1_000..200_000)],
        7 => doubled_key(body),
        _ => match serde_json::from_slice(body) {
            Ok(mut json) => {
                node(&mut json, rng);
                *body = json.to_string().into_bytes();
                if rng.u8(..4) == 0 {
                    huge_number(body, rng);
                }
            }
            Err(_) => bytes(body, rng),
        },
    }
}

/// Bodies without any valid part, or that need special care.
const WHOLE: &[&[u8]] = &[
    b"",
    b"null",
    b"[]",
    b"{",
    b"\xff\xfe{\x00}\x00",
    b"\xef\xbb\xbf{}",
    b"{\"rows\":[[1,\"shop.Bill\"]]}",
    b"{\"rows\":[{\"id\":0,\"table\":\"shop.Bill\"}]}",
    b"{\"rows\":[{\"id\":1,\"table\":\"shop.Bill\"},{\"id\":1,\"table\":\"shop.Bill\"}]}",
    b"{\"rows\":[{\"id\":1,\"table\":\"shop.Line\",\"parent\":{\"id\":1,\"container\":\"lines\"}}]}",
    b"{\"rows\":[{\"id\":18446744073709551615,\"table\":\"shop.Bill\"}]}",
    b"{\"rows\":[{\"id\":65537,\"table\":\"sys.Workspace\",\"fields\":{}}]}",
    b"{\"rows\":[{\"id\":1,\"table\":\"shop.Bill\",\"fields\":{\"number\":\"INV1\"}}]}",
    b"{\"rows\":[{\"id\":1,\"table\":\"shop.Bill\",\"fields\":{\"customer\":\"\\ud800\"}}]}",
    b"{\"fields\":{\"name\":1e999}}",
    b"{\"fields\":{\"cents\":1.5}}",
    b"{\"fields\":{\"cents\":9223372036854775808}}",
    b"{\"fields\":{\"cents\":-9223372036854775809}}",
    b"{\"fields\":{\"name\":\"a\"},\"fields\":{}}",
    b"{\"commands\":[]}",
    b"{\"commands\":[{\"command\":\"sys.CUD\"}]}",
    b"{\"commands\":[{\"command\":\"\",\"rows\":[]},{\"command\":\"shop.None\"}]}",
    b"{\"count\":0}",
    b"{\"count\":1000}",
    b"{\"count\":18446744073709551616}",
    b"{\"count\":-1}",
    b"{\"args\":{\"kind\":\"Shop\"},\"rows\":[]}",
    b"{\"args\":{\"kind\":\"None\"}}",
    b"{\"args\":\"Shop\"}",
    b"NaN",
    b"{\"rows\":[]} trailing",
];

/// Changes some bytes.
fn bytes(body: &mut Vec<u8>, rng: &mut Rng) {
    for _ in 0..=rng.u8(..4) {
        let at = rng.usize(..=body.len());
        match rng.u8(..4) {
            0 if at < body.len() => drop(body.remove(at)),
            1 if at < body.len() => body[at] = rng.u8(..),
            2 if at < body.len() => body[at] ^= 1 << rng.u8(..8),
            _ => body.insert(at, *rng.choice(b"{}[]\",:0-9e.\\u\0\xc3").unwrap()),
        }
    }
}

/// Arrays or objects in each other, deeper than any body that makes sense.
fn deep(rng: &mut Rng) -> Vec<u8> {
    let depth = *rng.choice(&[100, 127, 128, 129, 1_000, 100_000]).unwrap();
    let (open, close) = *rng.choice(&[("[", "]"), ("{\"a\":", "}"), ("[{\"a\":", "}]")]).unwrap();
    let args = format!("{}0{}", open.repeat(depth), close.repeat(depth));
    match rng.bool() {
        true => args.into_bytes(),
        false => format!("{{\"args\":{args}}}").into_bytes(),
    }
}

/// Names the first key of an object twice.
fn doubled_key(body: &mut Vec<u8>) {
    let Some(key) = body.iter().position(|byte| *byte == b':') else { return };
    let Some(start) = body[..key].iter().rposition(|byte| *byte == b'{') else { return };
    let doubled = [&body[start + 1..key], b":null,"].concat();
    body.splice(start + 1..start + 1, doubled);
}

/// Makes a number of a body much longer.
fn huge_number(body: &mut Vec<u8>, rng: &mut Rng) {
    let Some(at) = body.iter().rposition(u8::is_ascii_digit) else { return };
    let digits = vec![b'9'; *rng.choice(&[1, 20, 400, 5_000]).unwrap()];
    body.splice(at..at, digits);
}

/// Changes one value of a JSON tree.
fn node(json: &mut Value, rng: &mut Rng) {
    match json {
        Value::Object(map) if !map.is_empty() && rng.u8(..4) > 0 => {
            let at = rng.usize(..map.len());
            let (key, value) = map.iter_mut().nth(at).unwrap();
            if rng.u8(..5) > 0 {
                node(value, rng);
                return;
            }
            let (key, value) = (key.clone(), value.clone());
            match rng.bool() {
                true => drop(map.remove(&key)),
                false => drop(map.insert(rng.choice(KEYS).unwrap().to_string(), value)),
            }
        }
        Value::Array(list) if !list.is_empty() && rng.u8(..4) > 0 => {
            let at = rng.usize(..list.len());
            match rng.u8(..6) {
                0 => drop(list.remove(at)),
                1 => {
                    let copy = vec![list[at].clone(); *rng.choice(&[1, 100, 5_000]).unwrap()];
                    list.extend(copy);
                }
                _ => node(&mut list[at], rng),
            }
        }
        other => *other = value(rng),
    }
}

const KEYS: &[&str] = &[
    "",
    "id",
    "table",
    "fields",
    "parent",
    "container",
    "version",
    "epoch",
    "offset",
    "isActive",
    "args",
    "command",
    "commands",
    "rows",
    "kind",
    "name",
    "number",
    "article",
    "\u{0}",
    "sys.ID",
    "__proto__",
];

fn value(rng: &mut Rng) -> Value {
    match rng.u8(..14) {
        0 => Value::Null,
        1 => json!(rng.bool()),
        2 => json!(0),
        3 => json!(-1),
        4 => json!(i64::MIN),
        5 => json!(u64::MAX),
        6 => json!(1e308),
        7 => json!(-0.0),
        8 => json!("x".repeat(rng.usize(..50_000))),
        9 => json!([]),
        10 => json!({}),
        11 => json!({ "epoch": rng.u64(..), "offset": rng.u64(..) }),
        12 => json!(
            *rng.choice(&["sys.Record", "shop.Line", "shop", ".", "a.b.c", "shop.\u{e9}"]).unwrap()
        ),
        _ => json!(rng.u64(..70_000)),
    }
}
