//! Changes of the target and of the method of a request.

use fastrand::Rng;

use crate::routes::ROUTES;

const METHODS: &[&str] = &[
    "GET",
    "HEAD",
    "POST",
    "PUT",
    "PATCH",
    "DELETE",
    "OPTIONS",
    "TRACE",
    "CONNECT",
    "get",
    "PROPFIND",
    "X",
    "POSTPOSTPOSTPOSTPOSTPOSTPOST",
    "M-SEARCH",
];

/// Parts of a path, and parts that belong nowhere.
const SEGMENTS: &[&str] = &[
    "",
    ".",
    "..",
    "%2e%2e",
    "%00",
    "%",
    "%zz",
    "api",
    "v2",
    "apps",
    "demo",
    "shop",
    "other",
    "workspaces",
    "partitions",
    "plog",
    "wlog",
    "commands",
    "docs",
    "cdocs",
    "numbers",
    "next",
    "peek",
    "gaps",
    "order",
    "bill",
    "sys.CUD",
    "sys.CreateWorkspace",
    "shop.Article",
    "shop.Line",
    "sys.Record",
    "shop",
    "a.b.c",
    "0",
    "7",
    "9",
    "10",
    "65535",
    "65536",
    "4294967296",
    "140737488355328",
    "18446744073709551615",
    "18446744073709551616",
    "-1",
    "+7",
    "07",
    "1e3",
    "0x7",
    "7 ",
    "cluster",
    "events",
    "move",
    "status",
    "repairs",
    "mark",
    "metrics",
    "livez",
    "*",
    "\u{e9}",
    "{}",
    "[",
    "a b",
    "x;y=1",
    "322685000131072",
];

const QUERIES: &[&str] = &[
    "",
    "&",
    "=",
    "a",
    "limit",
    "limit=",
    "limit=0",
    "limit=1",
    "limit=1001",
    "limit=1000000",
    "limit=1000001",
    "limit=-1",
    "limit=18446744073709551616",
    "limit=1&limit=2",
    "from=0",
    "from=18446744073709551615",
    "from=end",
    "from=x",
    "follow=true",
    "follow=false",
    "follow=1",
    "follow=true&from=end",
    "after=0",
    "after=18446744073709551615",
    "after=x",
    "period=2026",
    "period=%00",
    "period=all",
    "consistency=eventual",
    "consistency=strong",
    "verbose",
    "verbose=1",
    "app=demo/shop",
    "app=demo/none",
    "app=x",
    "ws=7",
    "ws=x",
    "partition=65536",
    "member=0",
    "to=1",
    "cancel=maybe",
    "event=0",
    "offset=1",
    "numbers=1:2,3",
    "dryRun=true",
    "action=mark",
    "digest=00",
    "%6cimit=1",
    "limit=%31",
    "a=b?c=d",
    "limit=1#x",
    "\u{1f600}=1",
];

/// Another method.
pub(crate) fn method(rng: &mut Rng) -> &'static str {
    rng.choice(METHODS).unwrap()
}

/// Changes a target. Returns whether the change may have broken the line of the request.
pub(crate) fn change(target: &mut Vec<u8>, rng: &mut Rng) -> bool {
    match rng.u8(..14) {
        0..5 => segment(target, rng),
        5..9 => query(target, rng),
        9 => {
            let other = rng.choice(ROUTES).unwrap().path;
            *target = other.replace(['{', '}'], "").into_bytes();
        }
        10 => {
            let host =
                rng.choice(&["http://127.0.0.1:1", "https://a", "http://", "x://u@h"]).unwrap();
            target.splice(..0, host.bytes());
        }
        11 => {
            let filler = *rng.choice(b"a/%&").unwrap();
            let length = *rng.choice(&[300, 4_000, 15_000, 17_000, 70_000]).unwrap();
            target.extend(vec![filler; length]);
        }
        12 => {
            *target =
                rng.choice(&["*", "/", "//", "?", "a:1", "", "http:/"]).unwrap().bytes().collect()
        }
        _ => {
            let at = rng.usize(..target.len().max(1)).min(target.len());
            target.insert(at, rng.u8(..));
            return true;
        }
    }
    // Such a target, and bytes that are not allowed in a target, make the head malformed.
    target.first() != Some(&b'/') || target.iter().any(|byte| !byte.is_ascii_graphic())
}

/// Removes, replaces, doubles or adds a part of the path.
fn segment(target: &mut Vec<u8>, rng: &mut Rng) {
    let text = String::from_utf8_lossy(target).into_owned();
    let (path, query) = text.split_once('?').unwrap_or((&text, ""));
    let mut parts: Vec<&str> = path.split('/').collect();
    let at = rng.usize(..parts.len());
    match rng.u8(..5) {
        0 => drop(parts.remove(at)),
        1 => parts.insert(at, parts[at]),
        2 => parts.insert(at, rng.choice(SEGMENTS).unwrap()),
        3 => parts.push(rng.choice(SEGMENTS).unwrap()),
        _ => parts[at] = rng.choice(SEGMENTS).unwrap(),
    }
    let path = parts.join("/");
    *target = if query.is_empty() { path } else { format!("{path}?{query}") }.into_bytes();
}

fn query(target: &mut Vec<u8>, rng: &mut Rng) {
    for _ in 0..=rng.u8(..2) {
        target.push(if target.contains(&b'?') { b'&' } else { b'?' });
        target.extend(rng.choice(QUERIES).unwrap().bytes());
    }
}
