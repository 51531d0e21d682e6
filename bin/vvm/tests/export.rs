//! `vvm export` and `vvm import`, as processes: an application moves from redb to each storage and
//! back, with nodes on both sides.

#![allow(clippy::unwrap_used, clippy::disallowed_methods)]

#[allow(dead_code, reason = "this suite needs a part of it")]
#[path = "support/fixture.rs"]
mod fixture;
#[allow(dead_code, reason = "this suite needs a part of it")]
#[path = "support/node.rs"]
mod node;
#[path = "support/stream.rs"]
mod stream;

use std::{
    fs::{self, File},
    io::Read,
    path::{Path, PathBuf},
    process::{Child, Command, Stdio},
    thread::sleep,
    time::{Duration, Instant},
};

use bytes::Bytes;
use clock::Clock;
use eventlog::{AppRow, Offset};
use fixture::{Storage, StorageFixture};
use istorage::AppStorageExt;
use libtest_mimic::{Arguments, Trial};
use node::{NodeProcess, PATIENCE};
use serde_json::{Value, json};
use shop::http_client::{request, workspace_path};
use stream::{long_stream, memory_of, sorted_lines, stream_of};

const WORKSPACES: [u64; 3] = [1, 11, 2];

/// The series of the demo application: gapless with a period, fast with a period, and fast without.
const SERIES: &str = "[[apps]]\nname = \"demo/shop\"\ntables = \"demo.toml\"\nworkspaces = { Shop = 1 }\n\
    [apps.sequences.Shop]\nDelivery = { id = 256 }\n\
    [apps.series.bill]\ntemplate = \"BILL{date:yyyy}-{counter:4}\"\nreset = \"year\"\npolicy = \"gapless\"\nrecord = 65601\n\
    [apps.series.order]\ntemplate = \"O{date:yyyy}-{counter:5}\"\nreset = \"year\"\npolicy = \"fast\"\n\
    [apps.series.ticket]\ntemplate = \"T-{counter:5}\"\npolicy = \"fast\"\n";

/// A storage with a folder, and the commands and nodes that use it.
struct Place {
    fixture: StorageFixture,
    level: u8,
}

impl Place {
    fn new(storage: Storage, level: u8) -> Place {
        let place = Place { fixture: StorageFixture::new(storage), level };
        let demo = fs::read_to_string(
            Path::new(env!("CARGO_MANIFEST_DIR")).join("../../config/demo.toml"),
        );
        place.fixture.write("node", "demo.toml", &demo.unwrap());
        place.fixture.write("node", "vvm.toml", &place.config());
        place
    }

    fn config(&self) -> String {
        let (storage, level) = (self.fixture.config(&self.fixture.storage), self.level);
        // DynamoDB needs such a lease at level 2. The nodes release it.
        format!("{storage}[node]\nlease_seconds = 540\n{SERIES}")
            .replace("tables = ", &format!("trust_level = {level}\ntables = "))
    }

    fn folder(&self) -> PathBuf {
        self.fixture.redb_file("node").parent().unwrap().to_owned()
    }

    fn start(&self) -> NodeProcess {
        self.fixture.start("node", &self.config()).ready()
    }

    fn command(&self, args: &[&str]) -> Command {
        let mut command = Command::new(env!("CARGO_BIN_EXE_vvm"));
        command.args(args).args(["--config", "vvm.toml"]).current_dir(self.folder());
        command
    }

    /// Runs a command with an exit code. Returns stdout and stderr.
    fn run(&self, args: &[&str], code: i32) -> (String, String) {
        let output = self.command(args).output().unwrap();
        let text = |bytes| String::from_utf8(bytes).unwrap();
        let (stdout, stderr) = (text(output.stdout), text(output.stderr));
        assert_eq!(output.status.code(), Some(code), "{args:?}: {stdout}{stderr}");
        (stdout, stderr)
    }

    fn export(&self, name: &str) -> PathBuf {
        self.run(&["export", name], 0);
        self.folder().join(name)
    }

    /// The lines of a view.
    fn lines(&self, view: &[&str]) -> Vec<Value> {
        let view = [&["inspect"], view, &["--json"]].concat();
        let (stdout, _) = self.run(&view, 0);
        stdout.lines().map(|line| serde_json::from_str(line).unwrap()).collect()
    }

    /// All logs, records and numbers, without the places that differ between storages. A node that
    /// was idle has fenced the ends of logs, and the stored offsets are after these entries.
    fn contents(&self) -> Vec<Vec<Value>> {
        let mut offsets = self.lines(&["numbers"]);
        let mut all = Vec::new();
        for partition in 0..10 {
            let mut plog = self.lines(&["plog", "--partition", &partition.to_string()]);
            let fences = plog.extract_if(.., |entry| !entry["fencing"].is_null()).count();
            for line in offsets.iter_mut().filter(|line| line["partition"] == partition) {
                line["nextOffset"] = json!(line["nextOffset"].as_u64().unwrap() - fences as u64);
            }
            all.push(plog);
        }
        all.push(offsets);
        for ws in WORKSPACES {
            for view in ["wlog", "records", "numbers"] {
                all.push(self.lines(&[view, "--ws", &ws.to_string()]));
            }
        }
        all
    }
}

fn created(node: &NodeProcess, ws: u64, table: &str, body: &str) -> Value {
    let path = format!("{}/docs/shop.{table}", workspace_path(ws));
    let (status, answer) = request(node.api, "POST", &path, &[], body);
    assert_eq!(status, 201, "{answer}");
    answer
}

fn drawn(node: &NodeProcess, ws: u64, series: &str, count: u64) -> Value {
    let path = format!("{}/numbers/{series}/next", workspace_path(ws));
    let body = json!({ "count": count }).to_string();
    let (status, answer) = request(node.api, "POST", &path, &[], &body);
    assert_eq!(status, 200, "{answer}");
    answer["numbers"].clone()
}

/// Documents, changes, numbers of all kinds, and a command with an idempotency key.
fn fill(node: &NodeProcess) {
    for ws in WORKSPACES {
        node.create_workspace(ws);
        let docs = format!("{}/docs/shop.Article", workspace_path(ws));
        for n in 0..20 {
            let article = json!({ "fields": { "name": format!("tea {n}"), "cents": n } });
            let article = created(node, ws, "Article", &article.to_string());
            let path = format!("{docs}/{}", article["newIds"]["1"]);
            let (status, answer) =
                request(node.api, "PATCH", &path, &[], r#"{"fields":{"cents":7}}"#);
            assert_eq!(status, 200, "{answer}");
            created(node, ws, "Bill", "{}");
            created(node, ws, "Delivery", "{}");
        }
        drawn(node, ws, "order", 5);
        drawn(node, ws, "ticket", 150);
        assert_eq!(repeated(node, ws).0, 201);
    }
}

/// Sends the command with a key.
fn repeated(node: &NodeProcess, ws: u64) -> (u16, Value) {
    let path = format!("{}/docs/shop.Bill", workspace_path(ws));
    request(node.api, "POST", &path, &[("Idempotency-Key", "once")], "{}")
}

/// Everything that the next commands get, without the epoch, the time and the offset in the log of
/// the partition: an idle node may have fenced that log.
fn next(node: &NodeProcess) -> Vec<Value> {
    let mut seen = Vec::new();
    for ws in WORKSPACES {
        for table in ["Bill", "Article", "Delivery"] {
            let answer = created(node, ws, table, "{}");
            let id = &answer["newIds"]["1"];
            let path = format!("{}/docs/shop.{table}/{id}", workspace_path(ws));
            let (status, doc) = request(node.api, "GET", &path, &[], "");
            assert_eq!(status, 200, "{doc}");
            seen.push(json!([answer["wlogOffset"], id, doc["fields"]]));
        }
        seen.push(drawn(node, ws, "order", 2));
        seen.push(drawn(node, ws, "ticket", 2));
        // The sender gets the first answer again.
        let (status, mut answer) = repeated(node, ws);
        answer["plogOffset"].take();
        seen.push(json!([status, answer]));
    }
    seen
}

/// From redb to a storage, and from there to redb.
fn moved(storage: &Storage) {
    // At trust level 2 a storage may write the events one by one.
    for level in [0, 2] {
        let source = Place::new(Storage::Redb, level);
        let node = source.start();
        fill(&node);
        node.stop();
        let file = source.export("out");
        let target = Place::new(storage.clone(), level);
        fs::copy(&file, target.folder().join("in")).unwrap();
        let (stdout, _) = target.run(&["import", "in"], 0);
        assert!(stdout.contains(&format!("trust level {level}")), "{stdout}");
        assert!(stdout.contains("appear after a node has started with it"), "{stdout}");
        // Before a node has started, the storage gives the same stream.
        assert_eq!(sorted_lines(&target.export("again")), sorted_lines(&file));
        for view in ["records", "wlog"] {
            let (_, stderr) = target.run(&["inspect", view, "--ws", "1"], 0);
            assert!(stderr.contains("the view has no rows"), "{view}: {stderr}");
        }
        // A node reads the logs, writes the other rows, and stores the numbers.
        target.start().stop();
        assert_eq!(target.contents(), source.contents());

        let back = Place::new(Storage::Redb, level);
        let file = target.export("back");
        back.run(&["import", file.to_str().unwrap()], 0);
        let places = [&source, &target, &back];
        let [first, second, third] = places.map(|place| {
            let node = place.start();
            let next = next(&node);
            node.stop();
            next
        });
        assert_eq!(second, first);
        assert_eq!(third, first);
    }
}

/// A file that is damaged or of another version is refused before anything is written. So is an
/// application that exists.
fn refused(storage: &Storage) {
    let source = Place::new(Storage::Redb, 0);
    let node = source.start();
    fill(&node);
    let (_, stderr) = source.run(&["export", "out"], 4);
    assert!(stderr.contains("stop the node"), "{stderr}");
    node.stop();
    let file = source.export("out");
    let (_, stderr) = source.run(&["export", "out"], 2);
    assert!(stderr.contains("exists"), "{stderr}");
    let (_, stderr) = source.run(&["export", "other", "--app", "demo/none"], 3);
    assert!(stderr.contains("demo/none") && !source.folder().join("other").exists(), "{stderr}");

    let whole = fs::read(&file).unwrap();
    let target = Place::new(storage.clone(), 0);
    let given = target.folder().join("in");
    let mut flipped = whole.clone();
    flipped[whole.len() / 2] ^= 4;
    let newer =
        String::from_utf8(whole.clone()).unwrap().replacen("\"format\":2", "\"format\":3", 1);
    let cut = whole[..whole.len() * 2 / 3].to_vec();
    // No storage holds such a row. The command made the system keyspace before it refused the row.
    stream_of(&given, 2, 17 << 20);
    let wide = fs::read(&given).unwrap();
    for (bytes, part) in [
        (cut, "cut"),
        (flipped, "damaged"),
        (newer.into_bytes(), "format 3"),
        (b"vvm redb backup\n".to_vec(), "not an export"),
        (wide, "this storage takes at most"),
    ] {
        fs::write(&given, bytes).unwrap();
        let (_, stderr) = target.run(&["import", "in"], 3);
        assert!(stderr.contains(part), "{part}: {stderr}");
        assert!(!target.fixture.redb_file("node").exists(), "the storage was opened");
    }
    let (_, stderr) = target.run(&["import", "none"], 2);
    assert!(stderr.contains("none"), "{stderr}");
    target.run(&["import", "in", "--discard"], 2);
    target.run(&["import"], 2);

    fs::write(&given, &whole).unwrap();
    // There is no import to drop.
    target.run(&["import", "in", "--again"], 0);
    let before = target.export("before");
    for args in [&["import", "in"][..], &["import", "in", "--again"]] {
        let (_, stderr) = target.run(args, 3);
        assert!(stderr.contains("exists already"), "{stderr}");
    }
    let (_, stderr) = target.run(&["import", "--discard", "--app", "demo/shop"], 3);
    let expected = "is not an unfinished import: nothing was removed";
    assert!(stderr.contains(expected), "{stderr}");
    assert_eq!(sorted_lines(&target.export("after")), sorted_lines(&before));
}

/// An import is killed. A node refuses the application, and the import is repeated or removed.
fn killed(storage: &Storage) {
    let target = Place::new(storage.clone(), 0);
    let given = target.folder().join("in");
    let events = if matches!(storage, Storage::Redb) { 20_000 } else { 10_000 };
    long_stream(&given, events);
    kill_in_the_middle(&target);
    let mut node = target.fixture.start("node", &target.config());
    assert_eq!(node.ended().code(), Some(3), "{}", node.log_text());
    let advice = "has not finished: wait for it, repeat it or discard it";
    assert!(node.log_text().contains(advice), "{}", node.log_text());
    let (_, stderr) = target.run(&["import", "in"], 3);
    assert!(stderr.contains("--again") && stderr.contains("--discard"), "{stderr}");
    let (_, stderr) = target.run(&["export", "out"], 3);
    assert!(stderr.contains("import"), "{stderr}");
    target.run(&["import", "in", "--again"], 0);
    assert_eq!(sorted_lines(&target.export("out")), sorted_lines(&given));

    let other = Place::new(storage.clone(), 0);
    long_stream(&other.folder().join("in"), events);
    kill_in_the_middle(&other);
    let (stdout, _) = other.run(&["import", "--discard", "--app", "demo/shop"], 0);
    assert!(stdout.contains("removed"), "{stdout}");
    let (_, stderr) = other.run(&["import", "--discard", "--app", "demo/shop"], 3);
    assert!(stderr.contains("does not exist"), "{stderr}");
    // Nothing is left: a node makes the application anew.
    let node = other.start();
    node.create_workspace(1);
    assert_eq!(node.logged(1).len(), 1);
    node.stop();
}

/// Kills an import after half of its events.
fn kill_in_the_middle(target: &Place) {
    let mut import = import_half(target);
    import.0.kill().unwrap();
    assert!(!import.0.wait().unwrap().success(), "the import was finished");
    let (_, stderr) = target.run(&["export", "seen"], 3);
    assert!(stderr.contains("has not finished"), "{stderr}");
}

/// Starts an import, and waits until it has read half of its events. The import reads its file
/// twice: the whole for the check, and then for the import itself.
fn import_half(target: &Place) -> Killed {
    let bytes = fs::metadata(target.folder().join("in")).unwrap().len();
    let mut import =
        Killed(target.command(&["import", "in"]).stderr(Stdio::piped()).spawn().unwrap());
    let counters = format!("/proc/{}/io", import.0.id());
    let read = || -> Option<u64> {
        let counters = fs::read_to_string(&counters).ok()?;
        counters.lines().find_map(|line| line.strip_prefix("rchar: "))?.parse().ok()
    };
    while read().is_none_or(|read| read < bytes + bytes / 2) {
        assert!(import.0.try_wait().unwrap().is_none(), "the import was finished");
        sleep(Duration::from_millis(1));
    }
    import
}

/// The file of an import is cut while it is imported. The command ended as if the file had been
/// refused before anything was written.
fn cut(storage: &Storage) {
    let target = Place::new(storage.clone(), 0);
    let given = target.folder().join("in");
    long_stream(&given, if matches!(storage, Storage::Redb) { 20_000 } else { 10_000 });
    let mut import = import_half(&target);
    let file = File::options().write(true).open(&given).unwrap();
    file.set_len(file.metadata().unwrap().len() / 2).unwrap();
    let mut stderr = String::new();
    import.0.stderr.take().unwrap().read_to_string(&mut stderr).unwrap();
    assert_eq!(import.0.wait().unwrap().code(), Some(1), "{stderr}");
    for part in ["in: the export is cut", "has not finished", "no node starts with demo/shop"] {
        assert!(stderr.contains(part), "{part}: {stderr}");
    }
    let advised = stderr.split('`').filter_map(|part| part.strip_prefix("vvm "));
    let options = "--app demo/shop --config vvm.toml";
    let [again, discard] = ["import in --again", "import --discard"];
    let expected = [again, discard].map(|line| format!("{line} {options}"));
    assert!(advised.eq(&expected), "{stderr}");
    target.run(&["import", "--discard", "--app", "demo/shop"], 0);
}

/// An event is damaged. The export names it, and the command that it advises shows the event.
fn damaged(storage: &Storage) {
    let source = Place::new(storage.clone(), 0);
    let node = source.start();
    node.create_workspace(1);
    node.stop();
    source.fixture.change("node", async |storage| {
        let (key, soon) = (AppRow::Plog(1, Offset(1)).key(), Clock::system().now() + PATIENCE);
        let whole = storage.get_linearizable(&key, soon).await.unwrap().unwrap();
        let new = Bytes::from_static(b"damaged");
        let done = storage.compare_and_swap(key, whole, new, None, soon).await;
        assert!(done.unwrap().is_applied());
    });
    let (_, stderr) = source.run(&["export", "out"], 1);
    assert!(stderr.contains("event 1 of the log of partition 1"), "{stderr}");
    assert!(stderr.contains("`vvm repair list`"), "{stderr}");
    assert!(!source.folder().join("out").exists(), "{stderr}");
    let advised = stderr.split('`').find_map(|part| part.strip_prefix("vvm inspect ")).unwrap();
    let args: Vec<_> = ["inspect"].into_iter().chain(advised.split(' ')).collect();
    let (shown, _) = source.run(&args, 0);
    assert!(shown.contains("cannot be read") && shown.lines().count() == 1, "{shown}");
}

/// A process that ends with the test.
struct Killed(Child);

impl Drop for Killed {
    fn drop(&mut self) {
        let _ = self.0.kill();
        let _ = self.0.wait();
    }
}

const BOUNDED: &str = "the_memory_does_not_grow_with_the_log";

/// The memory of both commands does not grow with the log.
fn bounded(storage: &Storage) {
    let (short, long) = if tck::trial::is_long() { (20_000, 300_000) } else { (5_000, 60_000) };
    let used = [short, long].map(|events| {
        let place = Place::new(storage.clone(), 0);
        long_stream(&place.folder().join("in"), events);
        let start = Instant::now();
        let import = memory_of(place.command(&["import", "in"]));
        let imported = start.elapsed();
        let start = Instant::now();
        let export = memory_of(place.command(&["export", "out"]));
        eprintln!(
            "{events} events: import {imported:?}, {} MB; export {:?}, {} MB",
            import >> 20,
            start.elapsed(),
            export >> 20
        );
        assert_eq!(
            sorted_lines(&place.folder().join("out")),
            sorted_lines(&place.folder().join("in"))
        );
        // The file of redb is read through a cache, which the configuration limits to 32 MiB.
        [import, export]
    });
    let slack = (32 << 20) + (48 << 20);
    for (short, long) in used[0].into_iter().zip(used[1]) {
        assert!(long < short + slack, "{short} and {long} bytes");
    }
}

type Case = (&'static str, fn(&Storage));

fn main() {
    let cases: [Case; 6] = [
        ("an_application_moves_from_redb_and_back", moved),
        ("damaged_files_and_existing_applications_are_refused", refused),
        ("a_killed_import_is_repeated_or_removed", killed),
        ("an_import_whose_file_is_cut_is_unfinished", cut),
        ("an_export_names_a_damaged_event", damaged),
        (BOUNDED, bounded),
    ];
    let mut trials = Vec::new();
    for (name, storage) in Storage::all() {
        for (case, run) in cases {
            // Writing 60,000 events takes minutes on a server, and the commands are the same.
            if case == BOUNDED && name != "redb" && !tck::trial::is_long() {
                continue;
            }
            let is_ignored = storage.is_none();
            let storage = storage.clone();
            let run = move || {
                if let Some(storage) = &storage {
                    run(storage);
                }
                Ok(())
            };
            trials.push(Trial::test(format!("{name}::{case}"), run).with_ignored_flag(is_ignored));
        }
    }
    libtest_mimic::run(&Arguments::from_args(), trials).exit();
}
