//! Files of exports, and the memory of commands.

use std::{
    fs::{self, File},
    io::{BufWriter, Write},
    path::Path,
    process::{Command, Stdio},
    time::Duration,
};

use appstream::eventlog::{
    DrawnNumber, Epoch, Event, EventPlace, Offset, Record, RecordChange, RecordId, TableKind,
    Value, WsId, row_formats,
};
use base64::{Engine as _, engine::general_purpose::STANDARD};
use clock::WallTime;
use serde_json::json;
use sha2::{Digest, Sha256};

const TABLES: &str = "[tables.\"shop.Article\"]\nkind = \"CDoc\"\nfields = { name = \"string\" }\n";

/// Writes an export of this many events, each with a record, in two partitions.
pub(crate) fn long_stream(path: &Path, events: u64) {
    stream_of(path, events, 100);
}

/// Writes an export of this many events. The record of each event has a text of `length` bytes.
pub(crate) fn stream_of(path: &Path, events: u64, length: usize) {
    let mut out = BufWriter::new(File::create(path).unwrap());
    let (mut digest, mut lines) = (Sha256::new(), 0);
    let mut write = |line: &serde_json::Value| {
        let line = format!("{line}\n");
        digest.update(&line);
        lines += 1;
        out.write_all(line.as_bytes()).unwrap();
    };
    write(&json!({ "header": {
        "format": 2, "app": "demo/shop", "partitions": 10, "trustLevel": 0,
        "rowFormats": row_formats(), "schema": TABLES,
    }}));
    for partition in [1_u64, 2] {
        for offset in 1..=events / 2 {
            let bytes = STANDARD.encode(event(partition, offset, length).to_bytes());
            write(&json!({ "event": {
                "partition": partition, "offset": offset, "ws": partition, "wlog": offset,
                "bytes": bytes,
            }}));
        }
    }
    let sha256: String = digest.finalize().iter().map(|byte| format!("{byte:02x}")).collect();
    let end = json!({ "end": { "lines": lines, "events": events, "sha256": sha256 } });
    writeln!(out, "{end}").unwrap();
    out.into_inner().unwrap().sync_all().unwrap();
}

fn event(ws: u64, offset: u64, length: usize) -> Event {
    let (epoch, plog, wlog) = (Epoch(1), Offset(offset), Offset(offset));
    let place = EventPlace { epoch, plog, ws: WsId(ws), wlog };
    let id = 322_685_000_131_071 + offset;
    let name = Value::String(format!("article {offset} {}", "x".repeat(length)));
    let record = Record {
        table: "shop.Article".parse().unwrap(),
        kind: TableKind::CDoc,
        id: RecordId(id),
        parent: None,
        is_active: true,
        fields: [("name".parse().unwrap(), name)].into(),
    };
    Event {
        request: format!("request {offset}"),
        changes: vec![RecordChange { replaces: None, record }],
        drawn: vec![DrawnNumber { seq: 1, last: offset }, DrawnNumber { seq: 3, last: id }],
        ..Event::new(place, WallTime::from_millis(1_000 + offset), "sys.CUD".parse().unwrap())
    }
}

/// The facts of an export, in the order of their texts: the counters of a storage have no order,
/// and a program may write the fields of a line in another order.
pub(crate) fn sorted_lines(path: &Path) -> Vec<String> {
    let text = fs::read_to_string(path).unwrap();
    let mut lines: Vec<String> = text
        .lines()
        .filter(|line| !line.starts_with("{\"end\"") && !line.starts_with("{\"header\""))
        .map(|line| serde_json::from_str::<serde_json::Value>(line).unwrap().to_string())
        .collect();
    lines.sort();
    lines
}

/// Runs a command to its end. Returns the most memory that it had, in bytes.
pub(crate) fn memory_of(mut command: Command) -> u64 {
    let mut child = command.stdout(Stdio::null()).spawn().unwrap();
    let status = format!("/proc/{}/status", child.id());
    let mut most = 0;
    loop {
        let text = fs::read_to_string(&status).unwrap_or_default();
        let peak = text.lines().find_map(|line| line.strip_prefix("VmHWM:"));
        let peak = peak.and_then(|peak| peak.split_whitespace().next()?.parse::<u64>().ok());
        most = peak.map_or(most, |peak| most.max(peak << 10));
        if let Some(status) = child.try_wait().unwrap() {
            assert!(status.success(), "{status}");
            return most;
        }
        std::thread::sleep(Duration::from_millis(5));
    }
}
