//! Repair by an operator, with a node as a process on each storage: rows are damaged while the node
//! is stopped, the node cannot recover its partition, and `vvm repair` finds and marks the event.

#![allow(clippy::unwrap_used, clippy::disallowed_methods)]

#[path = "support/fixture.rs"]
mod fixture;
#[allow(dead_code, reason = "this suite needs a part of it")]
#[path = "support/node.rs"]
mod node;

use std::{
    process::{Command, Output, Stdio},
    sync::Mutex,
    thread,
    time::{Duration, Instant},
};

use bytes::Bytes;
use clock::Clock;
use eventlog::{AppRow, Entry, Offset, RecordId, WsId};
use fixture::{Storage, StorageFixture};
use istorage::{AppStorageExt, Key, SharedStorage};
use libtest_mimic::{Arguments, Trial};
use node::NodeProcess;
use rustix::process::Signal;
use serde_json::{Value, json};
use shop::http_client::{request, workspace_path};

const WS: u64 = 1;

/// The partition of the workspace.
const PARTITION: u16 = 1;

/// Workspace 1 has the events 1 to 4 of its partition: its creation, and three bills.
const LAST: u64 = 4;

fn start(fixture: &StorageFixture) -> NodeProcess {
    fixture.start("node", &fixture.config(&fixture.storage))
}

/// A node whose workspace has three bills, and which was stopped.
fn stopped_node(fixture: &StorageFixture) {
    let node = start(fixture).ready();
    node.create_workspace(WS);
    for bill in 2..=LAST {
        assert_eq!(create_bill(&node), bill);
    }
    node.stop();
}

/// Creates a bill. Returns the offset of its event in the log of the workspace.
fn create_bill(node: &NodeProcess) -> u64 {
    let path = format!("{}/docs/shop.Bill", workspace_path(WS));
    let (status, answer) = request(node.api, "POST", &path, &[], "{}");
    assert_eq!(status, 201, "{answer}");
    answer["wlogOffset"].as_u64().unwrap()
}

/// Replaces the bytes of a row. `None` removes the row.
async fn replace(storage: &SharedStorage, row: AppRow, new: Option<&Bytes>) {
    let (key, soon) = (row.key(), Clock::system().now() + Duration::from_secs(30));
    let old = storage.get_linearizable(&key, soon).await.unwrap();
    let done = match (old, new) {
        (Some(old), Some(new)) => storage.compare_and_swap(key, old, new.clone(), None, soon).await,
        (Some(old), None) => storage.compare_and_delete(key, old, soon).await,
        (None, Some(new)) => storage.insert_if_not_exists(key, new.clone(), None, soon).await,
        (None, None) => panic!("there is no row"),
    };
    assert!(done.unwrap().is_applied());
}

fn repair(node: &NodeProcess, args: &[&str]) -> Output {
    let mut command = Command::new(env!("CARGO_BIN_EXE_vvm"));
    command.arg("repair").args(args).args(["--admin", &node.admin.to_string()]);
    command.stdin(Stdio::null()).output().unwrap()
}

/// Runs `vvm repair` with an exit code. Returns stdout and stderr.
fn repaired(node: &NodeProcess, args: &[&str], code: i32) -> (String, String) {
    let Output { status, stdout, stderr } = repair(node, args);
    let text = |bytes| String::from_utf8(bytes).unwrap();
    let (stdout, stderr) = (text(stdout), text(stderr));
    assert_eq!(status.code(), Some(code), "{stdout}{stderr}");
    (stdout, stderr)
}

fn list(node: &NodeProcess) -> Value {
    let (stdout, _) = repaired(node, &["list", "--json"], 0);
    serde_json::from_str(&stdout).unwrap()
}

/// Asks for the stored numbers of the workspace.
fn stored_numbers(node: &NodeProcess) -> (u16, Value) {
    request(node.admin, "GET", &format!("/sequences?app=demo/shop&ws={WS}"), &[], "")
}

/// Waits until a partition waits for the repair of a row, and returns its entry of the list.
fn stuck(node: &NodeProcess) -> Value {
    node.until("/livez", |status| status == 200);
    let start = Instant::now();
    loop {
        let list = list(node);
        if let Some(stuck) =
            list["stuck"].as_array().unwrap().iter().find(|stuck| !stuck["row"].is_null())
        {
            return stuck.clone();
        }
        assert!(start.elapsed() < node::PATIENCE, "{list}\n{}", node.log_text());
        thread::sleep(Duration::from_millis(20));
    }
}

/// The numbers of events are stored after an hour, and so never in a test.
const SLOW_FLUSH: &str = "[sequences]\nflush_delay_seconds = 3600\n";

const DAMAGED: Bytes = Bytes::from_static(b"damaged");

/// The event before the last one is damaged in both logs. A dry run writes nothing, a repair needs
/// a confirmation, wrong facts are refused, and after the repair the partition goes on by itself.
fn mark(fixture: &StorageFixture) {
    stopped_node(fixture);
    let lost = Offset(LAST);
    fixture.change("node", async |storage| {
        replace(&storage, AppRow::Plog(PARTITION, lost), Some(&DAMAGED)).await;
        replace(&storage, AppRow::Wlog(WsId(WS), lost), Some(&DAMAGED)).await;
    });
    let node = start(fixture);
    let entry = stuck(&node);
    assert_eq!((&entry["app"], &entry["partition"]), (&"demo/shop".into(), &PARTITION.into()));
    assert_eq!(entry["row"]["event"], LAST, "{entry}");
    assert_eq!(entry["row"]["found"]["hex"], "64616d61676564", "{entry}");
    assert_eq!(entry["row"]["repair"], "mark", "{entry}");
    // Before the log is read, no numbers are shown.
    let (status, answer) = stored_numbers(&node);
    assert_eq!(status, 503, "{answer}");
    let (text, _) = repaired(&node, &["list"], 0);
    assert!(
        text.contains(" --app demo/shop --partition 1 --event 4 --ws 1 --offset 4   # the log"),
        "{text}"
    );
    assert_eq!(entry["row"]["hint"], Value::Null, "{entry}");
    let why = "the log of the workspace has a damaged row there";
    let candidates = json!([{ "ws": WS, "offset": LAST, "why": why }]);
    assert_eq!(entry["row"]["candidates"], candidates, "{entry}");

    let place = ["mark", "--app", "demo/shop", "--partition", "1", "--ws", "1"];
    let mark = |more: &[&str], code| repaired(&node, &[&place[..], more].concat(), code);
    let here = ["--event", "4", "--offset", "4"];
    let (_, readable) = mark(&["--event", "3", "--offset", "3", "--yes"], 1);
    assert!(readable.contains("event 3 can be read"), "{readable}");
    // One place too far: the next event of the workspace would have met the marker, and nothing
    // could have repaired that.
    let (_, next) = mark(&["--event", "4", "--offset", "5", "--no-numbers", "--yes"], 1);
    assert!(next.contains("cannot be read") || next.contains("at most"), "{next}");
    let (_, far) = mark(&["--event", "4", "--offset", "9", "--no-numbers", "--yes"], 1);
    assert!(far.contains("event 8 of the log of workspace 1"), "{far}");
    let readable = refused(&node, "mark?event=3&ws=1&offset=3");
    assert_eq!(readable, (409, "event_readable".to_owned()));
    let elsewhere = refused(&node, "mark?event=4&ws=2&offset=4");
    assert_eq!(elsewhere, (422, "other_partition".to_owned()));
    let other_event = refused(&node, "mark?event=4&ws=1&offset=3");
    assert_eq!(other_event, (422, "other_event".to_owned()));
    let missing = refused(&node, "mark?event=9&ws=1&offset=9");
    assert_eq!(missing, (409, "row_missing".to_owned()));
    // The event is before the stored offset, because the node stopped in order. So its numbers are
    // known.
    let (plan, _) = mark(&[&here[..], &["--dry-run"]].concat(), 0);
    assert!(plan.contains("nothing was written"), "{plan}");
    let (_, unconfirmed) = mark(&here, 2);
    assert!(unconfirmed.contains("--yes"), "{unconfirmed}");
    // The status says `recovering` while the partition reads its log again.
    assert_eq!(stuck(&node)["row"], entry["row"], "nothing was written");
    assert_eq!(list(&node)["repairs"], json!([]));

    mark(&[&here[..], &["--yes"]].concat(), 0);
    works_again(&node);
    assert_eq!(stored_numbers(&node).0, 200);
    let list = list(&node);
    assert_eq!(list["stuck"], json!([]), "{list}");
    let note = &list["repairs"][0];
    assert_eq!((&note["event"], &note["isDone"]), (&LAST.into(), &true.into()), "{list}");
    assert_eq!(note["replaced"], "64616d61676564", "{list}");
    assert_eq!(note["action"], "marked", "{list}");
    assert!(node.log_text().contains("row repaired"), "{}", node.log_text());
    let (_, again) = mark(&[&here[..], &["--yes"]].concat(), 1);
    assert!(again.contains("can be read"), "{again}");
    node.stop();
    fixture.change("node", async |storage| {
        let soon = Clock::system().now() + Duration::from_secs(30);
        let key = AppRow::Plog(PARTITION, lost).key();
        let bytes = storage.get_linearizable(&key, soon).await.unwrap().unwrap();
        let Entry::Marker(marker) = Entry::from_bytes(&bytes).unwrap() else { panic!("no marker") };
        assert_eq!(marker.bytes, DAMAGED);
    });
}

/// One bit of the last event is flipped in both logs, and its numbers were not stored, because the
/// node was killed. The list still reads the place of the event. Without numbers the repair is
/// refused, and the refusal has safe numbers. No id is given twice.
fn flipped(fixture: &StorageFixture) {
    let mut node = fixture.start("node", &(fixture.config(&fixture.storage) + SLOW_FLUSH)).ready();
    node.create_workspace(WS);
    (2..=LAST).for_each(|bill| assert_eq!(create_bill(&node), bill));
    node.signal(Signal::KILL);
    node.ended();
    fixture.change("node", async |storage| {
        for row in [AppRow::Plog(PARTITION, Offset(LAST)), AppRow::Wlog(WsId(WS), Offset(LAST))] {
            let soon = Clock::system().now() + Duration::from_secs(30);
            let whole = storage.get_linearizable(&row.key(), soon).await.unwrap().unwrap();
            let mut flipped = whole.to_vec();
            *flipped.last_mut().unwrap() ^= 1;
            replace(&storage, row, Some(&flipped.into())).await;
        }
    });
    let node = start(fixture);
    let entry = stuck(&node);
    assert_eq!(entry["row"]["hint"], json!({ "ws": WS, "offset": LAST }), "{entry}");
    let (text, _) = repaired(&node, &["list"], 0);
    let command = text.lines().find_map(|line| line.trim().strip_prefix("vvm repair ")).unwrap();
    let (before, after) = command.split_once(&format!(" --admin {}", node.admin)).unwrap();
    let command = format!("{before}{after}");
    let mark = |more: &[&str], code| {
        repaired(&node, &[&command.split(' ').collect::<Vec<_>>()[..], more].concat(), code)
    };
    // Another workspace of the partition was accepted. The ids of the event were given again.
    let elsewhere = ["mark", "--app", "demo/shop", "--partition", "1", "--event", "4", "--yes"];
    let elsewhere = [&elsewhere[..], &["--ws", "11", "--offset", "1"]].concat();
    let (_, other) = repaired(&node, &[&elsewhere[..], &["--no-numbers"]].concat(), 1);
    assert!(other.contains("name event 4 of workspace 1"), "{other}");
    let ignoring = [&elsewhere[..], &["--no-numbers", "--ignore-hint", "--dry-run"]].concat();
    repaired(&node, &ignoring, 0);
    let other_place = refused(&node, "mark?event=4&ws=11&offset=1");
    assert_eq!(other_place, (422, "other_place".to_owned()));
    let unnumbered = refused(&node, "mark?event=4&ws=1&offset=4");
    assert_eq!(unnumbered, (422, "numbers_needed".to_owned()));
    let twice = refused(&node, "mark?event=4&ws=1&offset=4&numbers=2:9,2:10");
    assert_eq!(twice, (422, "number_twice".to_owned()));
    let low = refused(&node, "mark?event=4&ws=1&offset=4&numbers=2:9,3:9");
    assert_eq!(low, (422, "number_not_above".to_owned()));
    let (_, needed) = mark(&["--yes"], 1);
    let (_, safe) = needed.trim().split_once("safe numbers are ").unwrap();
    let numbers: Vec<&str> = safe.split(' ').flat_map(|safe| ["--number", safe]).collect();
    assert_eq!(numbers.len(), 6, "{needed}");
    assert_eq!(numbers[5], "256:4096", "the sequence of deliveries");
    let (_, partial) = mark(&[&numbers[..2], &["--yes"]].concat(), 1);
    assert!(partial.contains("safe numbers are 3:"), "{partial}");
    let (plan, _) = mark(&[&numbers[..], &["--dry-run"]].concat(), 0);
    assert!(plan.contains(numbers[1]), "{plan}");
    mark(&[&numbers[..], &["--yes"]].concat(), 0);
    works_again(&node);
    let (_, last) = numbers[1].split_once(':').unwrap();
    let path = format!("{}/docs/shop.Bill", workspace_path(WS));
    let (_, answer) = request(node.api, "POST", &path, &[], "{}");
    let id = answer["newIds"].as_object().unwrap().values().next().unwrap().as_u64();
    assert!(id > last.parse().ok(), "{id:?} may be the id of the lost bill");
    node.stop();
}

/// The last event is damaged in the log of its partition only. Such an event was marked, and its
/// content was lost: a command with a gapless number was done, and its number was given again.
fn restored(fixture: &StorageFixture) {
    stopped_node(fixture);
    let lost = AppRow::Plog(PARTITION, Offset(LAST));
    let whole = Mutex::new(Bytes::new());
    fixture.change("node", async |storage| {
        let soon = Clock::system().now() + Duration::from_secs(30);
        let bytes = storage.get_linearizable(&lost.key(), soon).await.unwrap().unwrap();
        replace(&storage, lost, Some(&DAMAGED)).await;
        *whole.lock().unwrap() = bytes;
    });
    let node = start(fixture);
    stuck(&node);
    // The event is not a foreign row, whatever the operator says.
    assert_eq!(refused(&node, "remove?foreign=true&dryRun=true"), (409, "was_event".to_owned()));
    let here = ["mark", "--app", "demo/shop", "--partition", "1", "--event", "4"];
    let here = [&here[..], &["--ws", "1", "--offset", "4", "--yes"]].concat();
    let (text, _) = repaired(&node, &here, 0);
    assert!(text.contains("the event is restored"), "{text}");
    works_again(&node);
    assert_eq!(list(&node)["repairs"][0]["action"], "restored");
    node.stop();
    fixture.change("node", async |storage| {
        let soon = Clock::system().now() + Duration::from_secs(30);
        let bytes = storage.get_linearizable(&lost.key(), soon).await.unwrap().unwrap();
        assert_eq!(bytes, *whole.lock().unwrap());
    });
}

/// Waits until all partitions run commands, and runs one.
fn works_again(node: &NodeProcess) {
    until_at_work(node);
    assert_eq!(create_bill(node), LAST + 1);
}

/// The list names a foreign, a missing and a misplaced row, with what the row holds and what it
/// must hold. A missing event is not marked.
fn named(fixture: &StorageFixture) {
    stopped_node(fixture);
    let whole = Mutex::new(Bytes::new());
    let plog = |offset| AppRow::Plog(PARTITION, Offset(offset));
    // An event past the end that is the copy of another one.
    fixture.change("node", async |storage| {
        let soon = Clock::system().now() + Duration::from_secs(30);
        let bytes = storage.get_linearizable(&plog(LAST).key(), soon).await.unwrap().unwrap();
        replace(&storage, plog(LAST), Some(&Bytes::from_static(&[1]))).await;
        *whole.lock().unwrap() = bytes;
    });
    let node = start(fixture);
    let foreign = stuck(&node);
    assert_eq!(foreign["row"]["found"]["bytes"], 1, "{foreign}");
    node.stop();

    fixture.change("node", async |storage| replace(&storage, plog(LAST), None).await);
    let node = start(fixture);
    let missing = stuck(&node);
    assert_eq!(missing["row"]["found"], Value::Null, "{missing}");
    assert_eq!(missing["row"]["repair"], "restore", "{missing}");
    let mark = ["mark", "--app", "demo/shop", "--partition", "1", "--ws", "1"];
    let here = ["--event", "4", "--offset", "4", "--no-numbers", "--yes"];
    let (_, refused) = repaired(&node, &[&mark[..], &here].concat(), 1);
    assert!(refused.contains("is missing"), "{refused}");
    node.stop();

    // An event of another place.
    fixture.change("node", async |storage| {
        let soon = Clock::system().now() + Duration::from_secs(30);
        let other = storage.get_linearizable(&plog(2).key(), soon).await.unwrap();
        replace(&storage, plog(LAST), other.as_ref()).await;
    });
    let node = start(fixture);
    let misplaced = stuck(&node);
    let meaning = misplaced["row"]["found"]["meaning"].as_str().unwrap();
    assert!(meaning.starts_with("event 2 of epoch"), "{misplaced}");
    node.stop();

    // The whole event is restored, and the partition works again.
    let whole = whole.into_inner().unwrap();
    fixture.change("node", async |storage| replace(&storage, plog(LAST), Some(&whole)).await);
    let node = start(fixture).ready();
    assert_eq!(create_bill(&node), LAST + 1);
    let (_, unknown) = repaired(
        &node,
        &[
            "mark",
            "--app",
            "no/app",
            "--partition",
            "1",
            "--event",
            "4",
            "--ws",
            "1",
            "--offset",
            "4",
            "--yes",
        ],
        1,
    );
    assert!(unknown.contains("no application"), "{unknown}");
    node.stop();
}

/// Sends a repair to the admin endpoint. Returns the status and the code of the refusal.
fn refused(node: &NodeProcess, path: &str) -> (u16, String) {
    let path = format!("/repairs/{path}&app=demo/shop&partition=1");
    let (status, answer) = request(node.admin, "POST", &path, &[], "");
    (status, answer["code"].as_str().unwrap_or_default().to_owned())
}

/// A foreign row stands in the way of a write, and another one stands past the end of the log. The
/// program had no tool to remove such a row, and the file of redb can be opened by no other
/// program.
fn removed(fixture: &StorageFixture) {
    stopped_node(fixture);
    let foreign = AppRow::Wlog(WsId(WS), Offset(LAST + 1));
    fixture.change("node", async |storage| replace(&storage, foreign, Some(&DAMAGED)).await);
    let node = start(fixture).ready();
    let remove = |node: &NodeProcess, more: &[&str], code| {
        let row = ["remove", "--app", "demo/shop", "--partition", "1"];
        repaired(node, &[&row[..], more].concat(), code)
    };
    let (_, nothing) = remove(&node, &["--yes"], 1);
    assert!(nothing.contains("no row of the application is in the way"), "{nothing}");
    let path = format!("{}/docs/shop.Bill", workspace_path(WS));
    let (status, answer) = request(node.api, "POST", &path, &[], "{}");
    assert_ne!(status, 201, "{answer}");
    let entry = stuck(&node);
    assert_eq!(
        (&entry["row"]["repair"], &entry["row"]["name"]),
        (&"remove".into(), &foreign.to_string().into())
    );
    let expected = &entry["row"]["expected"];
    let meaning = expected["meaning"].as_str().unwrap();
    assert!(expected["bytes"].as_u64() > Some(0) && !meaning.is_empty(), "{expected}");
    let (text, _) = repaired(&node, &["list"], 0);
    assert!(text.contains(" --app demo/shop --partition 1\n"), "{text}");
    assert!(text.contains(&format!("  to be written: {} bytes", expected["bytes"])), "{text}");
    let (plan, _) = remove(&node, &["--dry-run"], 0);
    assert!(plan.contains("64616d61676564 (7-"), "{plan}");
    let (_, unconfirmed) = remove(&node, &[], 2);
    assert!(unconfirmed.contains("--yes"), "{unconfirmed}");
    let changed = refused(&node, "remove?digest=7-00000000");
    assert_eq!(changed, (409, "row_changed".to_owned()));
    assert_eq!(refused(&node, "remove?foreign=true"), (400, "bad_request".to_owned()));
    assert_eq!(stuck(&node)["row"], entry["row"], "nothing was removed");
    remove(&node, &["--yes"], 0);
    until_at_work(&node);
    // Where the storage writes all rows at once, nothing of the first bill was written.
    let next = create_bill(&node);
    assert!((LAST + 1..=LAST + 2).contains(&next), "{next}");
    let done = list(&node)["repairs"][0].clone();
    assert_eq!((&done["action"], &done["isDone"]), (&"removed".into(), &true.into()), "{done}");
    assert_eq!(done["row"], foreign.to_string(), "{done}");
    assert!(node.log_text().contains("row repaired"), "{}", node.log_text());
    assert!(node.log_text().contains("`vvm repair list` shows the row"), "{}", node.log_text());
    node.stop();

    let behind = AppRow::Plog(PARTITION, Offset(next + 1));
    fixture.change("node", async |storage| replace(&storage, behind, Some(&DAMAGED)).await);
    let node = start(fixture);
    stuck(&node);
    let (_, unsure) = remove(&node, &["--yes"], 1);
    assert!(unsure.contains("may be a damaged event"), "{unsure}");
    assert_eq!(refused(&node, "remove?dryRun=true"), (409, "may_be_event".to_owned()));
    remove(&node, &["--foreign", "--yes"], 0);
    until_at_work(&node);
    assert_eq!(create_bill(&node), next + 1);
    node.stop();
}

/// Waits until all partitions run commands.
fn until_at_work(node: &NodeProcess) {
    let start = Instant::now();
    while list(node)["stuck"] != json!([]) {
        assert!(start.elapsed() < node::PATIENCE, "{}", node.log_text());
    }
}

/// The key of the stored offset of the partition, in the system keyspace.
fn offset_key() -> Key {
    let pkey = [&[0, 0, 0, 2, 0, 0, 0, 1][..], &PARTITION.to_be_bytes()].concat();
    Key::new(pkey, vec![0; 4])
}

/// The key of the number of a sequence of the workspace, in the system keyspace.
fn number_key(seq: u16) -> Key {
    let pkey = [&[0, 0, 0, 3, 0, 0, 0, 1][..], &WS.to_be_bytes()].concat();
    Key::new(pkey, seq.to_be_bytes().to_vec())
}

/// Damages a row of the stored numbers, as another program does that writes it.
fn damage_number(fixture: &StorageFixture, key: &Key) {
    fixture.change_system("node", async |storage| {
        let soon = Clock::system().now() + Duration::from_secs(30);
        let there = storage.get_linearizable(key, soon).await.unwrap().unwrap();
        let new = Bytes::from_static(&[7, 7, 7]);
        let swap = storage.compare_and_swap(key.clone(), there, new, None, soon).await;
        assert!(swap.unwrap().is_applied());
    });
}

/// Starts a node that meets a damaged row of the stored numbers. Returns the row in the list.
fn until_number_is_listed(fixture: &StorageFixture) -> (NodeProcess, Value) {
    let node = start(fixture);
    node.until("/livez", |status| status == 200);
    let start = Instant::now();
    loop {
        let path = format!("{}/docs/shop.Bill", workspace_path(WS));
        let (status, _) = request(node.api, "POST", &path, &[], "{}");
        assert_ne!(status, 201, "the number is damaged");
        let list = list(&node);
        let entry = &list["stuck"][0];
        for row in [&entry["row"], &entry["damaged"][0]] {
            if !row.is_null() {
                return (node, row.clone());
            }
        }
        assert!(start.elapsed() < node::PATIENCE, "{list}\n{}", node.log_text());
        thread::sleep(Duration::from_millis(20));
    }
}

/// Creates a bill. Returns its id.
fn bill_id(node: &NodeProcess) -> u64 {
    let path = format!("{}/docs/shop.Bill", workspace_path(WS));
    let (status, answer) = request(node.api, "POST", &path, &[], "{}");
    assert_eq!(status, 201, "{answer}");
    answer["newIds"].as_object().unwrap().values().next().unwrap().as_u64().unwrap()
}

/// The stored offset of the partition and two numbers of the workspace are damaged, one after the
/// other. The list said only that the partition had a violation, or nothing at all. Later it said
/// to write the row of the number by another program. The numbers of that row were given again
/// after each restart, because the row hid what the node stored.
fn numbers(fixture: &StorageFixture) {
    stopped_node(fixture);
    // The first three ids are given.
    let first_id = isequencer::standard::FIRST_RECORD_ID + 3;
    let offset = "the stored offset of partition 1 (key 0000000200000001";
    number_is_repaired(fixture, &offset_key(), offset, None, 1);
    two_bills(fixture, first_id);
    // The offset in the log of the workspace must be that of the last event.
    let wlog = "the number of sequence 1 of workspace 1 (key 0000000300000001";
    number_is_repaired(fixture, &number_key(1), wlog, Some("1"), LAST + 2);
    two_bills(fixture, first_id + 2);
    let ids = "the number of sequence 2 of workspace 1 (key 0000000300000001";
    number_is_repaired(fixture, &number_key(2), ids, Some("2"), first_id + 3);
    two_bills(fixture, first_id + 4);
    let node = start(fixture).ready();
    assert_eq!(list(&node)["stuck"], json!([]));
    assert_eq!(create_bill(&node), LAST + 7);
    node.stop();
}

/// Two leaders give one id each. The first one stores it over the row of the repair.
fn two_bills(fixture: &StorageFixture, first_id: u64) {
    for id in [first_id, first_id + 1] {
        let node = start(fixture).ready();
        assert_eq!(bill_id(&node), id);
        node.stop();
    }
}

/// Damages the row of a number, and repairs it with the number that the node proposes.
fn number_is_repaired(
    fixture: &StorageFixture,
    key: &Key,
    name: &str,
    sequence: Option<&str>,
    safe: u64,
) {
    damage_number(fixture, key);
    let (node, row) = until_number_is_listed(fixture);
    let named = row["name"].as_str().unwrap();
    assert!(named.starts_with(name), "{row}");
    assert_eq!((&row["found"]["hex"], &row["repair"]), (&"070707".into(), &"number".into()));
    let place = sequence.into_iter().flat_map(|seq| ["--ws", "1", "--sequence", seq]);
    let command = ["number", "--app", "demo/shop", "--partition", "1"].into_iter().chain(place);
    let command: Vec<&str> = command.collect();
    let (text, _) = repaired(&node, &["list"], 0);
    assert!(text.contains(&format!(" {}\n", command[1..].join(" "))), "{text}");
    assert!(text.contains(named) && text.contains("3 bytes (070707)"), "{text}");

    // A safe number is proposed, and a number that would be given twice is refused, and so is an
    // offset past the end of the log.
    let run = |more: &[&str], code| repaired(&node, &[&command, more].concat(), code);
    let (plan, _) = run(&["--dry-run"], 0);
    assert!(plan.contains(&format!("storing {safe} as {named}")), "{plan}");
    let wrong = if sequence.is_some() { safe - 1 } else { LAST + 9 };
    run(&["--number", &wrong.to_string(), "--yes"], 1);
    let of_row = sequence.map_or_else(String::new, |seq| format!("&ws=1&sequence={seq}"));
    let changed = refused(&node, &format!("number?number={safe}&digest=3-00000000{of_row}"));
    assert_eq!(changed, (409, "row_changed".to_owned()));
    let unseen = refused(&node, &format!("number?number={safe}{of_row}"));
    assert_eq!(unseen, (400, "bad_request".to_owned()));
    let (_, unconfirmed) = run(&[], 2);
    assert!(unconfirmed.contains("--yes"), "{unconfirmed}");
    run(&["--yes"], 0);

    // The partition goes on by itself.
    until_at_work(&node);
    let done = list(&node)["repairs"][0].clone();
    assert_eq!((&done["action"], &done["isDone"]), (&"numbered".into(), &true.into()), "{done}");
    assert!(node.log_text().contains("row repaired"), "{}", node.log_text());
    let whole = refused(&node, &format!("number?dryRun=true{of_row}"));
    assert_eq!(whole, (409, "number_readable".to_owned()));
    node.stop();
}

/// A record is damaged. Only the commands that need the record fail.
fn damaged_record(fixture: &StorageFixture) {
    stopped_node(fixture);
    // The first bill.
    let id = isequencer::standard::FIRST_RECORD_ID;
    let row = AppRow::Record(WsId(WS), RecordId(id));
    fixture.change("node", async |storage| replace(&storage, row, Some(&DAMAGED)).await);
    let node = start(fixture).ready();
    let path = format!("{}/docs/shop.Bill/{id}", workspace_path(WS));
    let (status, answer) = request(node.api, "PATCH", &path, &[], r#"{"isActive":false}"#);
    assert_eq!(status, 500, "{answer}");
    let entry = list(&node)["stuck"][0].clone();
    assert_eq!(entry["status"], "ready", "{entry}");
    assert_eq!(entry["damaged"][0]["name"], row.to_string(), "{entry}");
    assert_eq!(entry["damaged"][0]["found"]["hex"], "64616d61676564", "{entry}");
    node.stop();
}

/// A page of the file of redb is damaged. The list said only that the partition had a violation.
fn damaged_file(fixture: &StorageFixture) {
    if !matches!(fixture.storage, Storage::Redb) {
        return;
    }
    stopped_node(fixture);
    let row = AppRow::Plog(PARTITION, Offset(LAST));
    let stored = Mutex::new(Bytes::new());
    fixture.change("node", async |storage| {
        let soon = Clock::system().now() + Duration::from_secs(30);
        *stored.lock().unwrap() =
            storage.get_linearizable(&row.key(), soon).await.unwrap().unwrap();
    });
    let file = fixture.redb_file("node");
    let (mut bytes, stored) = (std::fs::read(&file).unwrap(), stored.into_inner().unwrap());
    let at: Vec<usize> = bytes
        .windows(stored.len())
        .enumerate()
        .filter_map(|(at, there)| (there == &stored[..]).then_some(at))
        .collect();
    assert!(!at.is_empty());
    for at in at {
        bytes[at + 9] ^= 1;
    }
    std::fs::write(&file, bytes).unwrap();
    let node = start(fixture);
    let entry = stuck(&node);
    assert_eq!(entry["row"]["repair"], "restore_storage", "{entry}");
    let meaning = entry["row"]["found"]["meaning"].as_str().unwrap();
    assert!(meaning.contains("is damaged"), "{entry}");
    let (text, _) = repaired(&node, &["list"], 0);
    assert!(text.contains("restore the file of redb"), "{text}");
    node.stop();
}

type Run = fn(&StorageFixture);

fn main() {
    let arguments = Arguments::from_args();
    let trials: [(&str, Run); 8] = [
        ("a_foreign_row_is_removed", removed),
        ("a_damaged_file_is_named", damaged_file),
        ("damaged_numbers_are_repaired_and_none_is_given_twice", numbers),
        ("damaged_records_are_listed", damaged_record),
        ("an_event_with_a_whole_copy_is_restored", restored),
        ("an_operator_marks_an_event_that_is_lost", mark),
        ("an_operator_marks_an_event_with_a_flipped_bit", flipped),
        ("the_list_names_the_row_in_the_way", named),
    ];
    let trials = Storage::all().into_iter().flat_map(|(server, storage)| {
        trials.map(|(name, trial)| {
            let (storage, is_ignored) = (storage.clone(), storage.is_none());
            let run = move || {
                trial(&StorageFixture::new(storage.unwrap()));
                Ok(())
            };
            Trial::test(format!("{server}::{name}"), run).with_ignored_flag(is_ignored)
        })
    });
    libtest_mimic::run(&arguments, trials.collect()).exit();
}
