//! A node on redb, as a process: its start, its work and its end.

use std::{
    fs,
    net::TcpListener,
    os::unix::fs::PermissionsExt,
    path::Path,
    process::Command,
    time::{Duration, Instant},
};

use futures::FutureExt;
use rustix::process::{Resource, Rlimit, Signal, prlimit};
use shop::http_client::{answer, command_path, request, workspace_path};
use tck::trial::finding_of;

use crate::{
    load::CommandLoad,
    node::{NodeProcess, free},
};

#[test]
fn sigterm_finishes_current_requests_and_releases_the_lease() {
    let folder = tempfile::tempdir().unwrap();
    let mut first = NodeProcess::start(folder.path(), "").ready();
    (1..=8).for_each(|ws| first.create_workspace(ws));
    let load = CommandLoad::start("a", vec![first.api], 8, false);
    load.until_more(100);
    let start = Instant::now();
    first.signal(Signal::TERM);
    let status = first.ended();
    let took = start.elapsed();
    let known = load.stop();
    assert_eq!(status.code(), Some(0), "{}", first.log_text());
    assert!(took < Duration::from_secs(2), "it took {took:?}");
    assert!(first.log_text().contains("lease released"), "{}", first.log_text());

    // The lease was released, so the next node need not wait.
    let start = Instant::now();
    let second = NodeProcess::start(folder.path(), "").ready();
    assert!(start.elapsed() < Duration::from_secs(2), "{:?}", start.elapsed());
    known.check(&[&second], 8);
    // A client with a connection that was not accepted any more gets no answer. Its command must
    // not be done.
    for name in &known.open {
        let ws = name.split_once('-').unwrap().0.parse().unwrap();
        assert!(!second.logged(ws).contains(name), "{name} was done, and not answered");
    }
    second.stop();
}

#[test]
fn a_second_signal_ends_the_node_at_once() {
    let folder = tempfile::tempdir().unwrap();
    let mut node = NodeProcess::start(folder.path(), "").ready();
    // A request that never ends keeps the node from stopping.
    let mut slow = std::net::TcpStream::connect(node.api).unwrap();
    let head = format!(
        "POST {} HTTP/1.1\r\nhost: localhost\r\ncontent-length: 9\r\n\r\n",
        command_path(1, "sys.CUD")
    );
    std::io::Write::write_all(&mut slow, head.as_bytes()).unwrap();
    std::thread::sleep(Duration::from_millis(100));
    node.signal(Signal::TERM);
    std::thread::sleep(Duration::from_millis(300));
    node.signal(Signal::INT);
    let start = Instant::now();
    assert_eq!(node.ended().code(), Some(12), "{}", node.log_text());
    assert!(start.elapsed() < Duration::from_millis(500));
    // The log blamed a panic for the end of the leadership, and no operator could explain that.
    assert!(!node.log_text().contains("panicked"), "{}", node.log_text());
}

/// Such a request had two seconds to end, however little time there was to stop the node.
#[test]
fn a_request_that_does_not_end_is_cut_in_time() {
    let folder = tempfile::tempdir().unwrap();
    let mut node = NodeProcess::start(folder.path(), "[node]\nstop_seconds = 3\n").ready();
    let mut slow = std::net::TcpStream::connect(node.api).unwrap();
    let path = command_path(1, "sys.CUD");
    let head = format!("POST {path} HTTP/1.1\r\nhost: localhost\r\ncontent-length: 9\r\n\r\n");
    std::io::Write::write_all(&mut slow, head.as_bytes()).unwrap();
    std::thread::sleep(Duration::from_millis(100));
    let start = Instant::now();
    node.signal(Signal::TERM);
    assert_eq!(node.ended().code(), Some(0), "{}", node.log_text());
    assert!(start.elapsed() < Duration::from_secs(3), "{:?}", start.elapsed());
}

/// The node went on answering commands for as long as the process lived, and nothing of these
/// commands was ever found again.
#[test]
fn a_node_that_lost_its_storage_file_ends() {
    let folder = tempfile::tempdir().unwrap();
    let (data, away) = (folder.path().join("data"), folder.path().join("away"));
    let mut node = NodeProcess::start(folder.path(), "[node]\nlease_seconds = 12\n").ready();
    node.create_workspace(1);
    fs::rename(&data, &away).unwrap();
    let body = r#"{"rows":[{"id":1,"table":"shop.Article"}]}"#;
    let (status, answer) = node.command(1, "sys.CUD", body);
    assert!(status >= 503, "{status} {answer}");
    assert_eq!(node.ended().code(), Some(7), "{}", node.log_text());
    assert!(node.log_text().contains("was removed or replaced"), "{}", node.log_text());
    fs::rename(&away, &data).unwrap();
    let node = NodeProcess::start(folder.path(), "").ready();
    assert_eq!(node.logged(1).len(), 1);
    assert_eq!(node.command(1, "sys.CUD", body).0, 200);
    node.stop();
}

/// Half a head is not a request yet, so the node does not wait for the rest.
#[test]
fn incomplete_heads_do_not_delay_a_stop() {
    let folder = tempfile::tempdir().unwrap();
    let mut node = NodeProcess::start(folder.path(), "").ready();
    let half = [node.api, node.admin].map(|address| {
        let mut stream = std::net::TcpStream::connect(address).unwrap();
        std::io::Write::write_all(&mut stream, b"GET /livez HTT").unwrap();
        stream
    });
    std::thread::sleep(Duration::from_millis(100));
    let start = Instant::now();
    node.signal(Signal::TERM);
    assert_eq!(node.ended().code(), Some(0), "{}", node.log_text());
    // For requests that are under way the node waits longer.
    assert!(start.elapsed() < Duration::from_secs(4), "{:?}", start.elapsed());
    drop(half);
}

/// A hangup of the terminal stops the node, unless the node was started with SIGHUP ignored.
#[test]
fn sighup_stops_the_node_unless_the_signal_is_ignored() {
    let folder = tempfile::tempdir().unwrap();
    let mut node = NodeProcess::start(folder.path(), "").ready();
    node.signal(Signal::HUP);
    assert_eq!(node.ended().code(), Some(0), "{}", node.log_text());
    let mut command = Command::new("sh");
    command.args(["-c", "trap '' HUP; exec \"$0\" \"$@\"", env!("CARGO_BIN_EXE_vvm")]);
    let node = NodeProcess::spawn(command, folder.path(), "", free(), free()).ready();
    node.signal(Signal::HUP);
    node.create_workspace(1);
    assert!(!node.log_text().contains("SIGHUP"), "{}", node.log_text());
    node.stop();
}

#[test]
fn a_killed_node_comes_back_at_once_with_every_acknowledged_event() {
    killed_in_rounds(&["a", "b", "c"], |_| {});
}

/// A driver that answers a write before it is in the log: a kill loses the last frames of the log.
#[test]
fn answers_before_the_log_has_them_are_found() {
    let lose = |folder: &Path| shop::lose_last_frames(&folder.join("data/vvm.redb"), 5);
    let trial = async { killed_in_rounds(&["a"], lose) };
    let found = finding_of(trial).now_or_never().flatten();
    assert!(found.as_ref().is_some_and(|found| found.contains("was acknowledged")), "{found:?}");
}

/// Kills a node under load in each round. `crash` happens to its folder after each kill.
fn killed_in_rounds(rounds: &[&'static str], crash: impl Fn(&Path)) {
    let folder = tempfile::tempdir().unwrap();
    // A node that comes back waits for late writes of its former process. At trust level 0 that
    // wait is zero, so only the long lease could delay the node.
    let config = "[node]\nlease_seconds = 60\n";
    let mut node = NodeProcess::start(folder.path(), config).ready();
    (1..=8).for_each(|ws| node.create_workspace(ws));
    for &round in rounds {
        let load = CommandLoad::start(round, vec![node.api], 8, false);
        load.until_more(200);
        node.signal(Signal::KILL);
        node.ended();
        let known = load.stop();
        crash(folder.path());
        let start = Instant::now();
        node = NodeProcess::start(folder.path(), config).ready();
        // The start did not wait for the lease, which has not expired.
        let took = start.elapsed();
        assert!(took < Duration::from_secs(4), "it took {took:?}: {}", node.log_text());
        known.check(&[&node], 8);
    }
    node.stop();
}

/// A client sends a command again with its key until the command is answered. The command is done
/// once, however often the node was killed in between.
#[test]
fn a_command_that_is_sent_again_with_its_key_is_done_once() {
    let folder = tempfile::tempdir().unwrap();
    let (api, admin) = (free(), free());
    let mut node = NodeProcess::start_at(folder.path(), "", api, admin).ready();
    (1..=8).for_each(|ws| node.create_workspace(ws));
    let load = CommandLoad::start("a", vec![api], 8, true);
    for _ in 0..2 {
        load.until_more(200);
        node.signal(Signal::KILL);
        node.ended();
        node = NodeProcess::start_at(folder.path(), "", api, admin).ready();
    }
    load.until_more(200);
    let known = load.stop();
    known.check(&[&node], 8);
    node.stop();
}

/// Starts a node that cannot begin, and returns its exit code and its log.
fn refused(folder: &Path, config: &str) -> (Option<i32>, String) {
    let mut node = NodeProcess::start(folder, config);
    let code = node.ended().code();
    (code, node.log_text())
}

#[test]
fn an_invalid_start_is_reported_and_changes_nothing() {
    let folder = tempfile::tempdir().unwrap();
    let (code, log) = refused(folder.path(), "[http]\nlisen = \"127.0.0.1:1\"\n");
    assert_eq!(code, Some(3), "{log}");
    for part in [".toml", "line 2", "lisen", "listen"] {
        assert!(log.contains(part), "{part}: {log}");
    }
    let (code, log) = refused(folder.path(), "[storage]\ndriver = \"cassandra\"\n");
    assert_eq!(code, Some(3), "{log}");
    assert!(log.contains("contact_points"), "{log}");
    let (code, log) = refused(
        folder.path(),
        "[[apps]]\nname = \"a/b\"\ntables = \"none.toml\"\nworkspaces = {}\n",
    );
    assert_eq!(code, Some(3), "{log}");
    assert!(log.contains("none.toml"), "{log}");
    let (code, log) = refused(folder.path(), "[node]\nlease_seconds = 1\ncall_seconds = 2\n");
    assert_eq!(code, Some(3), "{log}");
    assert!(log.contains("call"), "{log}");
    assert!(!folder.path().join("data/vvm.redb").exists(), "nothing was begun");
    let path = folder.path().join("data/vvm.redb");
    fs::create_dir_all(path.parent().unwrap()).unwrap();
    fs::write(&path, "a letter to somebody else".repeat(1_000)).unwrap();
    let (code, log) = refused(folder.path(), "");
    assert_eq!(code, Some(3), "{log}");
    assert!(log.contains("vvm.redb"), "{log}");
    assert!(fs::read(&path).unwrap().starts_with(b"a letter"), "it is left alone");
}

/// A node with such a file ended with code 4, "start it again", or did not end at all.
#[test]
fn a_damaged_storage_file_is_reported_with_code_3() {
    let folder = tempfile::tempdir().unwrap();
    let data = folder.path().join("data");
    NodeProcess::start(folder.path(), "").ready().stop();
    let whole = fs::read(data.join("vvm.redb")).unwrap();
    fs::write(data.join("cut.redb"), &whole[..whole.len() / 2]).unwrap();
    std::os::unix::fs::symlink("nowhere.redb", data.join("link.redb")).unwrap();
    let pipe = data.join("pipe.redb");
    assert!(Command::new("mkfifo").arg(&pipe).status().unwrap().success());
    for (path, part) in [
        ("data/cut.redb", "restore it from a backup"),
        ("data/link.redb", "which does not exist"),
        ("data/pipe.redb", "must be a file"),
        ("", "the path is empty"),
    ] {
        let config = format!("[storage.redb]\npath = \"{path}\"\n");
        let (code, log) = refused(folder.path(), &config);
        assert_eq!(code, Some(3), "{path}: {log}");
        assert!(log.contains(part), "{path}: {log}");
    }
}

/// Runs `vvm storage check` on a file in a folder.
fn check(folder: &Path, file: &str) -> (Option<i32>, String, String) {
    let mut command = Command::new(env!("CARGO_BIN_EXE_vvm"));
    command.args(["storage", "check", "--storage", file]).current_dir(folder);
    let output = command.env_remove("RUST_LOG").output().unwrap();
    let text = |bytes: Vec<u8>| String::from_utf8(bytes).unwrap();
    (output.status.code(), text(output.stdout), text(output.stderr))
}

#[test]
fn a_file_is_checked_without_being_changed() {
    let folder = tempfile::tempdir().unwrap();
    let path = folder.path().join("data/vvm.redb");
    let node = NodeProcess::start(folder.path(), "").ready();
    node.create_workspace(1);
    let (code, _, stderr) = check(folder.path(), "redb:data/vvm.redb");
    assert_eq!(code, Some(4), "a node works with it: {stderr}");
    node.stop();
    let (code, stdout, stderr) = check(folder.path(), "redb:data/vvm.redb");
    assert_eq!(code, Some(0), "{stdout}{stderr}");
    assert!(stdout.contains("rows in 2 keyspaces are whole"), "{stdout}");

    let mut file = fs::read(&path).unwrap();
    // Old pages of the file may contain the name, too.
    let is_name = |at: &usize| file[*at..].starts_with(b"demo/shop");
    let places: Vec<usize> = (0..file.len()).filter(is_name).collect();
    places.into_iter().for_each(|at| file[at] ^= 1);
    fs::write(&path, &file).unwrap();
    let (code, stdout, stderr) = check(folder.path(), "redb:data/vvm.redb");
    assert_eq!(code, Some(1), "{stdout}{stderr}");
    assert!(stdout.contains("damaged: the row 0x") && stdout.contains("checksum"), "{stdout}");
    assert!(stderr.contains("restore it from a backup"), "{stderr}");
    assert!(fs::read(&path).unwrap() == file, "it is left alone");

    assert_eq!(check(folder.path(), "redb:data/none.redb").0, Some(3));
    assert_eq!(check(folder.path(), "mem").0, Some(2));
}

#[test]
fn a_taken_port_is_reported_at_once() {
    let folder = tempfile::tempdir().unwrap();
    let taken = TcpListener::bind("127.0.0.1:0").unwrap();
    for (api, admin) in
        [(taken.local_addr().unwrap(), free()), (free(), taken.local_addr().unwrap())]
    {
        let mut node = NodeProcess::start_at(folder.path(), "", api, admin);
        assert_eq!(node.ended().code(), Some(5), "{}", node.log_text());
        let port = taken.local_addr().unwrap().to_string();
        assert!(node.log_text().contains(&port), "{}", node.log_text());
        assert!(node.log_text().contains("admin.listen"), "{}", node.log_text());
        assert!(!folder.path().join("data/vvm.redb").exists(), "nothing else is begun");
    }
}

#[test]
fn a_file_that_another_process_holds_is_reported() {
    let folder = tempfile::tempdir().unwrap();
    let first = NodeProcess::start(folder.path(), "").ready();
    let (code, log) = refused(folder.path(), "");
    assert_eq!(code, Some(4), "{log}");
    assert!(log.contains("another process"), "{log}");
    // With any other storage the second node went on without a lock file.
    let far =
        "[storage]\ndriver = \"cassandra\"\ncassandra = { contact_points = [\"127.0.0.1:9\"] }\n";
    let (code, log) = refused(folder.path(), far);
    assert_eq!(code, Some(4), "{log}");
    assert!(log.contains("set another `node.folder`"), "{log}");
    first.stop();
}

/// The test expected code 4, "start it again". It ran only as root, and root may write everywhere,
/// so it proved nothing.
#[test]
fn a_folder_that_cannot_be_written_is_reported_with_code_3() {
    let folder = tempfile::tempdir().unwrap();
    let data = folder.path().join("data");
    fs::create_dir(&data).unwrap();
    fs::set_permissions(&data, fs::Permissions::from_mode(0o500)).unwrap();
    let may_write = fs::write(data.join("probe"), "").is_ok();
    if !may_write {
        let (code, log) = refused(folder.path(), "");
        assert_eq!(code, Some(3), "{log}");
        assert!(log.contains("vvm.redb"), "{log}");
    }
    // No user may make a folder in these places, not even root.
    let advice = "the right to write in the folder above it";
    for (path, code, part) in [("/sys/none", 3, advice), ("/proc/none", 4, "")] {
        let config = format!("[storage.redb]\npath = \"{path}/vvm.redb\"\n");
        let (ended, log) = refused(folder.path(), &config);
        assert_eq!(ended, Some(code), "{log}");
        assert!(log.contains(path) && log.contains(part), "{log}");
    }
}

#[test]
fn a_node_does_not_listen_beyond_this_machine_unless_allowed() {
    let folder = tempfile::tempdir().unwrap();
    let mut node = NodeProcess::start_at(folder.path(), "", "0.0.0.0:0".parse().unwrap(), free());
    assert_eq!(node.ended().code(), Some(3), "{}", node.log_text());
    assert!(node.log_text().contains("allow_unauthenticated"), "{}", node.log_text());
}

#[test]
fn another_number_of_partitions_is_refused_and_the_stored_level_counts() {
    let folder = tempfile::tempdir().unwrap();
    let app = |partitions| {
        format!(
            "[[apps]]\nname = \"demo/shop\"\ntables = \"demo.toml\"\nworkspaces = {{ Shop = 1 }}\npartitions = {partitions}\n\
             [apps.sequences.Shop]\nDelivery = {{ id = 256 }}\n\
             [apps.series.bill]\ntemplate = \"B{{counter:4}}\"\npolicy = \"gapless\"\nrecord = 65601\n"
        )
    };
    let demo = concat!(env!("CARGO_MANIFEST_DIR"), "/../../config/demo.toml");
    fs::copy(demo, folder.path().join("demo.toml")).unwrap();
    let node = NodeProcess::start(folder.path(), &app(3)).ready();
    node.create_workspace(1);
    node.stop();
    let (code, log) = refused(folder.path(), &app(4));
    assert!(code == Some(3) && log.contains("3 partitions"), "{log}");
    let other_level = format!("[sequences]\ntrust_level = 1\n{}", app(3));
    let node = NodeProcess::start(folder.path(), &other_level).ready();
    assert_eq!(node.logged(1).len(), 1);
    let log = node.log_text();
    let counts = "the stored trust level counts, not that of the configuration";
    assert!(log.contains(counts) && log.contains("\"stored\":\"0\""), "{log}");
    node.stop();
}

/// With `seats = 10` the only process of an embedded storage led one seat. Nine tenths of all
/// commands were answered with 503 for ever.
#[test]
fn an_embedded_storage_has_one_seat() {
    let folder = tempfile::tempdir().unwrap();
    for driver in ["redb", "mem"] {
        let config = format!("[cluster]\nseats = 10\n[storage]\ndriver = \"{driver}\"\n");
        let (code, log) = refused(folder.path(), &config);
        let file = folder.path().join("checked.toml");
        fs::write(&file, &config).unwrap();
        let mut check = Command::new(env!("CARGO_BIN_EXE_vvm"));
        let check = check.args(["config", "check", "--config"]).arg(&file).output().unwrap();
        let checked = String::from_utf8(check.stderr).unwrap();
        for (code, log) in [(code, log), (check.status.code(), checked)] {
            assert_eq!(code, Some(3), "{log}");
            for part in ["line 2", "cluster.seats", driver, "the other 9", "seats = 1"] {
                assert!(log.contains(part), "{part}: {log}");
            }
        }
    }
    let mut dev = Command::new(env!("CARGO_BIN_EXE_vvm"));
    let dev = dev.arg("dev").env("VVM__CLUSTER__SEATS", "2").output().unwrap();
    assert_eq!(dev.status.code(), Some(3), "{}", String::from_utf8_lossy(&dev.stderr));
    assert!(!folder.path().join("data").exists(), "nothing was begun");
}

#[test]
fn stepping_down_ends_it_with_a_code_of_its_own() {
    let folder = tempfile::tempdir().unwrap();
    let mut node = NodeProcess::start(folder.path(), "").ready();
    let (status, _) = request(node.admin, "GET", "/step-down", &[], "");
    assert_eq!(status, 405, "looking does nothing");
    let (status, answer) = request(node.admin, "POST", "/step-down", &[], "");
    assert_eq!(status, 202, "{answer}");
    assert_eq!(node.ended().code(), Some(11), "{}", node.log_text());
}

/// Starts a node with files that can be kept from growing. A write beyond the limit is an error,
/// and does not end the process.
fn limited(folder: &Path, config: &str) -> NodeProcess {
    let mut command = Command::new("sh");
    let ignoring = "trap '' XFSZ; exec \"$0\" \"$@\"";
    command.args(["-c", ignoring, env!("CARGO_BIN_EXE_vvm")]);
    NodeProcess::spawn(command, folder, config, free(), free())
}

/// From now on the node can write nothing after this place in any file. `None` removes the limit.
fn limit_files(node: &NodeProcess, bytes: Option<u64>) {
    let limit = Rlimit { current: bytes, maximum: None };
    prlimit(Some(node.pid()), Resource::Fsize, limit).unwrap();
}

/// The node tried to store numbers after the end of its leadership, until the killer ended it.
#[test]
fn a_node_that_loses_its_leadership_before_numbers_are_stored_ends_in_order() {
    let folder = tempfile::tempdir().unwrap();
    let config = "[node]\nlease_seconds = 8\nstop_seconds = 30\n";
    let mut node = limited(folder.path(), config).ready();
    (1..=10).for_each(|ws| node.create_workspace(ws));
    let text = "x".repeat(900_000);
    let body =
        format!(r#"{{"rows":[{{"id":1,"table":"shop.Article","fields":{{"name":"{text}"}}}}]}}"#);
    for ws in 1..=10 {
        assert_eq!(node.command(ws, "sys.CUD", &body).0, 200);
    }
    // Small commands stay in the log of the storage. The limit is less than that log has then, and
    // more than the log of the process.
    let body = body.replace(&text, &text[..3_000]);
    for _ in 0..40 {
        assert_eq!(node.command(1, "sys.CUD", &body).0, 200);
    }
    limit_files(&node, Some(64 << 10));
    assert_eq!(node.ended().code(), Some(7), "{}", node.log_text());
}

/// A node had begun to step down when a signal came. The node took the signal for the second one,
/// ended at once, and cut off a client that waited for an answer.
#[test]
fn the_first_signal_after_a_step_down_changes_nothing() {
    let folder = tempfile::tempdir().unwrap();
    let mut node = NodeProcess::start(folder.path(), "").ready();
    let mut slow = std::net::TcpStream::connect(node.api).unwrap();
    let (path, body) = (command_path(1, "sys.CreateWorkspace"), r#"{"args":{"kind":"Shop"}}"#);
    let head = format!(
        "POST {path} HTTP/1.1\r\nhost: localhost\r\nconnection: close\r\ncontent-length: {}\r\n\r\n",
        body.len()
    );
    std::io::Write::write_all(&mut slow, head.as_bytes()).unwrap();
    std::thread::sleep(Duration::from_millis(100));
    assert_eq!(request(node.admin, "POST", "/step-down", &[], "").0, 202);
    std::thread::sleep(Duration::from_millis(100));
    node.signal(Signal::TERM);
    std::thread::sleep(Duration::from_millis(100));
    std::io::Write::write_all(&mut slow, body.as_bytes()).unwrap();
    let (status, answered) = answer(&mut slow).unwrap();
    assert_eq!(status, 200, "{answered}");
    assert_eq!(node.ended().code(), Some(11), "{}", node.log_text());
    assert!(node.log_text().contains("lease released"), "{}", node.log_text());
}

/// Names and values of the environment may be any bytes except zeros.
#[test]
fn variables_of_other_programs_may_be_invalid_text() {
    use std::os::unix::ffi::OsStrExt;
    let check = |name: &str| {
        let value = std::ffi::OsStr::from_bytes(b"\xff");
        let mut command = Command::new(env!("CARGO_BIN_EXE_vvm"));
        command.args(["config", "check"]).env(name, value).output().unwrap().status.code()
    };
    assert_eq!(check("OTHER"), Some(0));
    assert_eq!(check("VVM__HTTP__LISTEN"), Some(3));
}

/// The files cannot grow, as on a full disk. The node reports this, takes no commands, and goes on
/// by itself when the disk has room again.
#[test]
fn a_full_disk_is_reported_and_loses_nothing() {
    let folder = tempfile::tempdir().unwrap();
    let config = "[node]\nlease_seconds = 10\n";
    let mut node = limited(folder.path(), config).ready();
    (1..=4).for_each(|ws| node.create_workspace(ws));
    let load = CommandLoad::start("a", vec![node.api], 4, true);
    load.until_more(100);
    let half = fs::metadata(folder.path().join("data/vvm.redb")).unwrap().len() / 2;
    limit_files(&node, Some(half));
    node.until("/readyz", |status| status == 503);
    limit_files(&node, None);
    node.until("/readyz", |status| status == 200);
    load.until_more(100);

    // The disk stays full, so the node cannot keep its leadership. The node ends before it is
    // killed: it does not wait for writes that it may no longer send.
    limit_files(&node, Some(half));
    assert_eq!(node.ended().code(), Some(7), "{}", node.log_text());
    let known = load.stop();
    let node = NodeProcess::start(folder.path(), config).ready();
    known.check(&[&node], 4);
    node.stop();
}

/// The partitions could not store their numbers, and the lease was left to expire. The exit code
/// said that all was well.
#[test]
fn a_stop_on_a_full_disk_has_an_exit_code_of_its_own() {
    let folder = tempfile::tempdir().unwrap();
    let mut node = limited(folder.path(), "[node]\nlease_seconds = 40\nstop_seconds = 2\n").ready();
    (1..=4).for_each(|ws| node.create_workspace(ws));
    let load = CommandLoad::start("a", vec![node.api], 4, true);
    load.until_more(300);
    // The log of the storage is longer by now, so no write finds space.
    limit_files(&node, Some(64 << 10));
    node.until("/readyz", |status| status == 503);
    node.signal(Signal::TERM);
    assert_eq!(node.ended().code(), Some(9), "{}", node.log_text());
    let log = node.log_text();
    assert!(log.contains("partitions may have unanswered writes"), "{log}");
    assert!(log.contains("of demo/shop: "), "{log}");
    let known = load.stop();
    let node = NodeProcess::start(folder.path(), "").ready();
    known.check(&[&node], 4);
    node.stop();
}

/// The log records the numbers of events, so it does not matter which place stored the numbers.
#[test]
fn numbers_can_be_kept_in_the_view() {
    let folder = tempfile::tempdir().unwrap();
    let mut ids = Vec::new();
    for (round, place) in ["system", "view", "system", "view"].into_iter().enumerate() {
        let config = format!("[sequences]\nstorage = \"{place}\"\n");
        let node = NodeProcess::start(folder.path(), &config).ready();
        node.create_workspace(1);
        for number in 0..20 {
            let body = r#"{"rows":[{"id":1,"table":"shop.Article","fields":{"name":"Tea"}}]}"#;
            let (status, answer) = node.command(1, "sys.CUD", body);
            assert_eq!(status, 200, "{answer}");
            // The first event made the workspace.
            assert_eq!(answer["wlogOffset"], 20 * round as u64 + number + 2);
            ids.push(answer["newIds"]["1"].as_u64().unwrap());
        }
        let (_, list) = request(
            node.api,
            "GET",
            &format!("{}/cdocs/shop.Article?limit=1000", workspace_path(1)),
            &[],
            "",
        );
        assert_eq!(list["docs"].as_array().unwrap().len(), ids.len(), "{place}: {list}");
        node.stop();
    }
    assert!(ids.windows(2).all(|pair| pair[1] == pair[0] + 1), "{ids:?}");
}

/// The node ended at once with code 4, although its configuration told it to wait for ever.
#[test]
fn a_node_that_waits_for_ever_waits_for_a_storage_that_is_out_of_reach() {
    let config = format!(
        "[storage]\ndriver = \"cassandra\"\n[storage.cassandra]\ncontact_points = [\"{}\"]\n",
        free()
    );
    let folder = tempfile::tempdir().unwrap();
    let mut node = NodeProcess::start(folder.path(), &config);
    assert_eq!(node.ended().code(), Some(4), "{}", node.log_text());
    let mut node =
        NodeProcess::start(folder.path(), &format!("{config}[node]\nacquire_seconds = 0\n"));
    let start = Instant::now();
    while !node.log_text().contains("waiting for the storage") {
        assert!(start.elapsed() < Duration::from_secs(30), "{}", node.log_text());
        std::thread::sleep(Duration::from_millis(10));
    }
    node.until("/livez", |status| status == 200);
    node.signal(Signal::TERM);
    assert_eq!(node.ended().code(), Some(0), "{}", node.log_text());
}

/// The storage is a server that accepts connections and sends nothing.
#[test]
fn a_node_with_a_silent_storage_reports_its_state_and_can_be_stopped() {
    let silent = TcpListener::bind("127.0.0.1:0").unwrap();
    let config = format!(
        "[storage]\ndriver = \"cassandra\"\n[storage.cassandra]\ncontact_points = [\"{}\"]\n",
        silent.local_addr().unwrap()
    );
    let folder = tempfile::tempdir().unwrap();
    let mut node = NodeProcess::start(folder.path(), &config);
    node.until("/livez", |status| status == 200);
    let (_, status) = request(node.admin, "GET", "/status", &[], "");
    assert_eq!(status["node"]["stage"], "opening", "{status}");
    assert_eq!(status["node"]["storage"]["answers"], false, "{status}");
    let (status, answer) = node.command(1, "sys.CUD", "{}");
    assert_eq!((status, answer["code"].as_str()), (503, Some("not_owner")), "{answer}");
    let start = Instant::now();
    node.signal(Signal::TERM);
    assert_eq!(node.ended().code(), Some(0), "{}", node.log_text());
    assert!(start.elapsed() < Duration::from_secs(1), "{:?}", start.elapsed());
    // A port that is taken is reported before the node connects to the storage.
    let mut node =
        NodeProcess::start_at(folder.path(), &config, silent.local_addr().unwrap(), free());
    assert_eq!(node.ended().code(), Some(5), "{}", node.log_text());
}
