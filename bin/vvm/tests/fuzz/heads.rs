//! Changes of the headers of a request.

use fastrand::Rng;

/// The names of headers that the node knows, and of some that it does not know.
const NAMES: &[&str] = &[
    "Authorization",
    "Content-Type",
    "Accept",
    "If-Match",
    "If-None-Match",
    "Idempotency-Key",
    "X-Request-Id",
    "Last-Event-ID",
    "Origin",
    "Sec-Fetch-Site",
    "Sec-Fetch-Mode",
    "Access-Control-Request-Method",
    "Access-Control-Request-Headers",
    "traceparent",
    "tracestate",
    "baggage",
    "X-Vvm-Incarnation",
    "X-Vvm-Partition",
    "X-Vvm-Epoch",
    "X-Vvm-Deadline-Ms",
    "X-Vvm-Admin",
    "X-Vvm-Problem",
    "X-Vvm-Served-By",
    "X-Forwarded-For",
    "Forwarded",
    "Cookie",
    "Range",
    "Date",
    "Trailer",
    "TE",
    "Via",
    "Max-Forwards",
    "Accept-Encoding",
    "Content-Encoding",
    "X-HTTP-Method-Override",
    "a",
];

/// Headers that decide where a request ends, or whether it is one.
const FRAMING: &[(&str, &str)] = &[
    ("Content-Length", "0"),
    ("Content-Length", "5"),
    ("Content-Length", "-1"),
    ("Content-Length", "+5"),
    ("Content-Length", "0x10"),
    ("Content-Length", "18446744073709551615"),
    ("Content-Length", "18446744073709551616"),
    ("Content-Length", "1048577"),
    ("Content-Length", "5, 5"),
    ("Content-Length", ""),
    ("Transfer-Encoding", "chunked"),
    ("Transfer-Encoding", "Chunked"),
    ("Transfer-Encoding", "gzip, chunked"),
    ("Transfer-Encoding", "chunked, chunked"),
    ("Transfer-Encoding", "chunked, gzip"),
    ("Transfer-Encoding", "identity"),
    ("Transfer-Encoding", "\u{b}chunked"),
    ("Expect", "100-continue"),
    ("Expect", "200-ok"),
    ("Expect", "100-continue, 100-continue"),
    ("Connection", "close"),
    ("Connection", "keep-alive"),
    ("Connection", "Upgrade, content-length"),
    ("Upgrade", "h2c"),
    ("Upgrade", "websocket"),
    ("Host", ""),
    ("Host", "127.0.0.1:1"),
    ("Host", "user@host"),
    ("Host", "[::1%25lo]"),
    ("Host", "evil.example:99999"),
];

const VALUES: &[&[u8]] = &[
    b"",
    b"*",
    b"\"1.1\"",
    b"\"18446744073709551616.0\"",
    b"\"0.0\"",
    b"W/\"1.1\"",
    b"1",
    b"0",
    b"18446744073709551615",
    b"18446744073709551616",
    b"-1",
    b"end",
    b"key-1",
    b"\xff\xfe\x80",
    b"\xc3\xa9",
    b"\t",
    b"a, b;q=0.1",
    b"application/json",
    b"text/event-stream",
    b"text/event-stream;q=0",
    b"*/*",
    b"multipart/form-data; boundary=\"",
    b"https://page.example",
    b"null",
    b"http://127.0.0.1",
    b"cross-site",
    b"same-origin",
    b"POST",
    b"authorization, x-a",
    b"00-0af7651916cd43dd8448eb211c80319c-b7ad6b7169203331-01",
    b"00-0af7651916cd43dd8448eb211c80319c-b7ad6b7169203331-00",
    b"00-00000000000000000000000000000000-0000000000000000-01",
    b"ff-0af7651916cd43dd8448eb211c80319c-b7ad6b7169203331-01",
    b"00-0AF7651916CD43DD8448EB211C80319C-b7ad6b7169203331-01-extra",
    b"00-\xe9-\xe9-01",
    b"vendor=1,other=2",
    b"=,=,,",
    b"bytes=0-1",
    b"000000000000000000000000000000ab",
];

/// The effect of a change on how a request is read.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub(crate) enum Framing {
    /// The request is one request, and its end is clear.
    Clean,
    /// The head is whole, and the body may be anything.
    Body,
    /// The head may be anything.
    Head,
}

pub(crate) type Headers = Vec<(Vec<u8>, Vec<u8>)>;

/// Changes the headers.
pub(crate) fn change(headers: &mut Headers, rng: &mut Rng) -> Framing {
    let at = rng.usize(..=headers.len());
    match rng.u8(..16) {
        0..7 => {
            let value = rng.choice(VALUES).unwrap().to_vec();
            headers.insert(at, (name(rng), value));
            Framing::Clean
        }
        7 => {
            let length = *rng.choice(&[255, 256, 257, 1_000, 8_193]).unwrap();
            let filler = *rng.choice(b"a1,\xff").unwrap();
            headers.insert(at, (name(rng), vec![filler; length]));
            Framing::Clean
        }
        8 if at < headers.len() => {
            headers.push(headers[at].clone());
            Framing::Body
        }
        9 if at < headers.len() => {
            headers.remove(at);
            Framing::Body
        }
        10..13 => {
            let (name, value) = rng.choice(FRAMING).unwrap();
            let (name, value) = (name.as_bytes().to_vec(), value.as_bytes().to_vec());
            if rng.bool() {
                headers.retain(|(known, _)| !known.eq_ignore_ascii_case(&name));
            }
            headers.insert(rng.usize(..=headers.len()), (name, value));
            Framing::Body
        }
        13 => {
            let (count, bytes) = *rng.choice(&[(50, 10), (95, 10), (101, 10), (120, 200)]).unwrap();
            headers.extend((0..count).map(|n| (format!("x-{n}").into_bytes(), vec![b'v'; bytes])));
            Framing::Head
        }
        14 => {
            headers.insert(at, (name(rng), vec![b'v'; 17 << 10]));
            Framing::Head
        }
        _ => {
            const BROKEN: [(&[u8], &[u8]); 7] = [
                (b"a b", b"1"),
                (b"", b"1"),
                (b"a ", b"1"),
                (b"a", b"1\r\n folded"),
                (b"a", b"1\r\r\n"),
                (b"a", b"\x00"),
                (b"\xc3\xa9", b"1"),
            ];
            let (name, value) = *rng.choice(&BROKEN).unwrap();
            headers.insert(at, (name.to_vec(), value.to_vec()));
            Framing::Head
        }
    }
}

fn name(rng: &mut Rng) -> Vec<u8> {
    let mut name = rng.choice(NAMES).unwrap().as_bytes().to_vec();
    if rng.u8(..4) == 0 {
        name.make_ascii_uppercase();
    }
    name
}

/// A body in chunks. The chunks are right, or not.
pub(crate) fn chunked(body: &[u8], rng: &mut Rng) -> (Vec<u8>, Framing) {
    let mut bytes = Vec::new();
    for piece in body.chunks(rng.usize(1..2_000)) {
        let extension = if rng.u8(..8) == 0 { ";name=\"value\"" } else { "" };
        bytes.extend(format!("{:x}{extension}\r\n", piece.len()).bytes());
        bytes.extend(piece);
        bytes.extend(b"\r\n");
    }
    bytes.extend(if rng.u8(..4) == 0 { &b"0\r\nx-trailer: 1\r\n\r\n"[..] } else { b"0\r\n\r\n" });
    if rng.u8(..3) > 0 {
        return (bytes, Framing::Clean);
    }
    const WRONG: [&[u8]; 7] = [
        b"ffffffffffffffff\r\n",
        b"10000000000000000\r\n",
        b"-1\r\n",
        b"5;\n",
        b"\r\n",
        b"0x5\r\n",
        b"zz\r\n",
    ];
    let at = if rng.bool() { 0 } else { rng.usize(..bytes.len()) };
    bytes.splice(at..at, rng.choice(WRONG).unwrap().iter().copied());
    (bytes, Framing::Body)
}
