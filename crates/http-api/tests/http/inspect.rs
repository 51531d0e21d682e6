//! Views of the storage at the admin endpoint: damaged rows, and the limits of the endpoint.

use std::{
    io::Write,
    net::TcpStream,
    sync::{
        Arc,
        atomic::{AtomicBool, Ordering},
    },
    thread::sleep,
    time::{Duration, Instant},
};

use clock::Clock;
use serde_json::{Value, json};
use shop::http_client::{request, try_request, workspace_path};
use tck::storage::{Fault, Faulty};
use vvm::{
    eventlog::{AppRow, Offset, RecordId, WsId},
    istorage::{
        CallKind, Conditional, Consistency, KeyspaceName, SharedStorage, StorageDriver,
        WrappedDriver, mem::MemDriver,
    },
};

use crate::support::{ROW, TestNode, WS};

fn node() -> TestNode {
    let node = TestNode::with_storage();
    let body = r#"{"args":{"kind":"Shop"}}"#;
    assert_eq!(node.command(WS, "sys.CreateWorkspace", body).0, 200);
    for _ in 0..3 {
        let (status, answer) = node.command(WS, "sys.CUD", ROW);
        assert_eq!(status, 200, "{answer}");
    }
    node
}

fn lines(node: &TestNode, path: &str) -> Vec<Value> {
    let (status, text) = try_request(node.admin, "GET", path, &[], "").unwrap();
    assert_eq!(status, 200, "{path}: {text}");
    text.lines().map(|line| serde_json::from_str(line).unwrap()).collect()
}

/// Replaces the bytes of a row, as damage would.
fn damage(driver: &Arc<MemDriver>, runtime: &tokio::runtime::Runtime, row: AppRow) {
    let (key, soon) = (row.key(), clock::Instant::FAR_FUTURE);
    runtime.block_on(async {
        let keyspace = KeyspaceName::new("sysvvm_1_demo_shop").unwrap();
        let storage = driver.open(&keyspace, soon).await.unwrap().unwrap();
        let old = storage.get(&key, Consistency::Plain, soon).await.unwrap().unwrap();
        let (ccols, new) = (key.ccols, "damaged".into());
        let swap = Conditional::Swap { ccols, old, new, ttl: None };
        assert!(storage.write_if(key.pkey, vec![swap], soon).await.unwrap().is_applied());
    });
}

#[test]
fn a_damaged_row_is_a_line_and_the_rows_behind_it_follow() {
    let node = node();
    let logs = [
        format!("/inspect/plog?app=demo/shop&partition={WS}"),
        format!("/inspect/wlog?app=demo/shop&ws={WS}"),
    ];
    let records = format!("/inspect/records?app=demo/shop&ws={WS}");
    let id = lines(&node, &logs[0])[1]["rows"][0]["id"].as_u64().unwrap();
    let whole = logs.clone().map(|log| lines(&node, &log));
    let all = lines(&node, &records);
    let ws = WsId(WS);
    for row in [
        AppRow::Plog(WS as u16, Offset(2)),
        AppRow::Wlog(ws, Offset(2)),
        AppRow::Record(ws, RecordId(id)),
    ] {
        damage(&node.driver, &node.runtime, row);
    }
    for (log, whole) in logs.iter().zip(whole) {
        let found = lines(&node, log);
        assert_eq!(found.len(), 4);
        assert!(found[1]["damaged"].as_str().unwrap().contains("checksum"), "{}", found[1]);
        assert_eq!(found[1]["value"], "64616d61676564");
        assert!(found[1]["row"].as_str().unwrap().starts_with("event 2 of the log"));
        assert_eq!((&found[0], &found[2..]), (&whole[0], &whole[2..]));
    }
    let found = lines(&node, &records);
    assert_eq!(found.len(), all.len());
    let differs: Vec<_> = found.iter().filter(|line| !all.contains(line)).collect();
    assert_eq!((differs.len(), &differs[0]["id"]), (1, &json!(id)));
    assert!(differs[0]["damaged"].is_string());
    node.stop();
}

#[test]
fn wrong_views_are_refused() {
    let node = node();
    for (path, status, is_path) in [
        ("/inspect/none", 404, false),
        ("/inspect/", 404, false),
        ("/inspect/plog?app=demo/shop", 400, true),
        ("/inspect/apps?x=1", 400, true),
        ("/inspect/plog?app=demo/none&partition=1", 404, true),
    ] {
        let (found, answer) = request(node.admin, "GET", path, &[], "");
        assert_eq!(found, status, "{path}: {answer}");
        let port = if is_path { Value::Null } else { json!("admin") };
        assert_eq!(answer["port"], port, "{path}: {answer}");
    }
    assert_eq!(request(node.admin, "POST", "/inspect/apps", &[], "").0, 405);
    node.stop();
    let without = TestNode::with_admin(|_, _| {});
    assert_eq!(request(without.admin, "GET", "/inspect/apps", &[], "").0, 404);
    without.stop();
}

/// A storage that answers no read of a range while the switch is on.
fn hanging(switch: &Arc<AtomicBool>) -> TestNode {
    let memory = Arc::new(MemDriver::new(Clock::system()));
    let switch = Arc::clone(switch);
    let wrap = move |storage| {
        let switch = Arc::clone(&switch);
        let script = move |kind| match kind == CallKind::Read && switch.load(Ordering::SeqCst) {
            true => Fault::Hang,
            false => Fault::None,
        };
        Arc::new(Faulty::scripted(storage, Clock::system(), script)) as SharedStorage
    };
    let storage = Arc::new(WrappedDriver::new(Arc::clone(&memory) as _, wrap));
    TestNode::with_storage_of(memory, storage)
}

#[test]
fn a_node_sends_two_views_at_a_time_and_an_abandoned_one_ends() {
    let hangs = Arc::new(AtomicBool::new(false));
    let node = hanging(&hangs);
    assert_eq!(lines(&node, "/inspect/apps").len(), 1);
    hangs.store(true, Ordering::SeqCst);
    let begin = || {
        let mut stream = TcpStream::connect(node.admin).unwrap();
        stream.write_all(b"GET /inspect/apps HTTP/1.1\r\nhost: localhost\r\n\r\n").unwrap();
        stream
    };
    let under_way = [begin(), begin()];
    let code = || request(node.admin, "GET", "/inspect/none", &[], "").0;
    assert_eq!(code(), 404, "a wrong view takes no place");
    let start = Instant::now();
    while node.log_text().matches("storage inspected").count() < 3 {
        assert!(start.elapsed().as_secs() < 20, "the views do not begin");
        sleep(Duration::from_millis(5));
    }
    let (status, answer) = request(node.admin, "GET", "/inspect/apps", &[], "");
    assert_eq!((status, &answer["code"]), (503, &json!("too_many_views")));
    hangs.store(false, Ordering::SeqCst);
    drop(under_way);
    let start = Instant::now();
    while request(node.admin, "GET", "/inspect/apps", &[], "").0 != 200 {
        assert!(start.elapsed().as_secs() < 10, "a place is not given back");
        sleep(Duration::from_millis(5));
    }
    node.stop();
}

/// The series of the node are defined when it starts. A fast one has a counter after its first
/// draw.
#[test]
fn numbers_show_the_series_of_documents() {
    let node = node();
    let path = format!("{}/numbers/order/next", workspace_path(WS));
    let (status, answer) = request(node.api, "POST", &path, &[], "{}");
    assert_eq!(status, 200, "{answer}");
    let numbers = |ws: &str| lines(&node, &format!("/inspect/numbers?app=demo/shop{ws}"));
    let find = |lines: &[Value], id: &str| lines.iter().find(|it| it["series"] == id).cloned();
    let of_ws = numbers(&format!("&ws={WS}"));
    let order = find(&of_ws, "order").unwrap();
    assert_eq!((&order["policy"], &order["period"]), (&json!("fast"), &json!("all")), "{order}");
    assert!(order["nextReserved"].as_u64() > Some(0), "{order}");
    assert_eq!(order["definition"]["template"], "O-{counter:5}");
    assert!(find(&of_ws, "bill").unwrap().get("nextReserved").is_none());
    assert!(find(&of_ws, "ticket").is_none(), "it belongs to no workspace");
    let ticket = find(&numbers(""), "ticket").unwrap();
    assert_eq!(ticket["nextReserved"], Value::Null, "{ticket}");
    node.stop();
}
