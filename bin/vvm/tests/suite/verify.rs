//! The command `vvm storage verify`, as a process.

use std::{
    fs,
    io::{BufRead, BufReader, Read},
    net::TcpListener,
    process::{Child, ChildStderr, Command, Output, Stdio},
};

use istorage::KeyspaceName;
use tempfile::TempDir;

use crate::keyspaces::exists;

/// Trials. One of them takes some seconds, and the others end at once.
const SLOW: [&str; 2] = ["--filter", "ttl::"];
const QUICK: [&str; 4] = ["--filter", "ttl::an_absent_row", "--calls", "2"];

fn verify(folder: &TempDir, args: &[&str]) -> Command {
    let mut command = Command::new(env!("CARGO_BIN_EXE_vvm"));
    command.args(["storage", "verify"]).args(args).current_dir(folder).env_remove("RUST_LOG");
    command
}

fn run(folder: &TempDir, args: &[&str]) -> Output {
    verify(folder, args).output().unwrap()
}

fn stdout(output: &Output) -> &str {
    std::str::from_utf8(&output.stdout).unwrap()
}

fn stderr(output: &Output) -> &str {
    std::str::from_utf8(&output.stderr).unwrap()
}

fn code(output: &Output) -> Option<i32> {
    output.status.code()
}

fn is_empty(folder: &TempDir) -> bool {
    fs::read_dir(folder).unwrap().next().is_none()
}

/// A process, and the lines that it writes.
struct RunningVerification {
    child: Child,
    stderr: BufReader<ChildStderr>,
}

impl RunningVerification {
    fn start(folder: &TempDir, args: &[&str]) -> RunningVerification {
        let mut command = verify(folder, args);
        let mut child = command.stdout(Stdio::piped()).stderr(Stdio::piped()).spawn().unwrap();
        let stderr = BufReader::new(child.stderr.take().unwrap());
        RunningVerification { child, stderr }
    }

    /// Waits for a line that contains `part`.
    fn line(&mut self, part: &str) -> String {
        let mut all = String::new();
        loop {
            let mut line = String::new();
            assert_ne!(self.stderr.read_line(&mut line).unwrap(), 0, "no `{part}` in:\n{all}");
            if line.contains(part) {
                return line;
            }
            all.push_str(&line);
        }
    }

    fn scratch_keyspace(&mut self) -> KeyspaceName {
        let line = self.line("scratch keyspace: ");
        let (_, name) = line.split_once(": ").unwrap();
        KeyspaceName::new(name.split(';').next().unwrap()).unwrap()
    }

    fn signal(&self, signal: &str) {
        let pid = self.child.id().to_string();
        assert!(Command::new("kill").args([signal, &pid]).status().unwrap().success());
    }

    /// Returns the exit code, and the rest of the lines.
    fn end(mut self) -> (Option<i32>, String) {
        let mut rest = String::new();
        self.stderr.read_to_string(&mut rest).unwrap();
        (self.child.wait().unwrap().code(), rest)
    }
}

#[test]
fn a_storage_that_passes_is_reported_on_stdout() {
    let folder = tempfile::tempdir().unwrap();
    let output = run(&folder, &[["--storage", "mem"].as_slice(), &QUICK].concat());
    assert_eq!(code(&output), Some(0), "{}", stderr(&output));
    for part in
        ["Storage: mem", "ttl::an_absent_row_has_no_ttl", "compare_and_swap", "1 passed, 0 failed"]
    {
        assert!(stdout(&output).contains(part), "{part}: {}", stdout(&output));
    }
    assert!(stderr(&output).contains("scratch keyspace: tck_"), "{}", stderr(&output));
}

#[test]
fn the_default_is_a_temporary_redb_file() {
    let folder = tempfile::tempdir().unwrap();
    let output = run(&folder, &QUICK);
    assert_eq!(code(&output), Some(0), "{}", stderr(&output));
    assert!(stdout(&output).contains("vvm-verify-"), "{}", stdout(&output));
    assert!(is_empty(&folder));
}

#[test]
fn stdout_contains_only_the_result_as_json() {
    let folder = tempfile::tempdir().unwrap();
    let output = run(&folder, &[["--json", "--storage", "mem"].as_slice(), &QUICK].concat());
    let result: serde_json::Value = serde_json::from_slice(&output.stdout).unwrap();
    assert_eq!((result["passed"].as_u64(), result["failed"].as_u64()), (Some(1), Some(0)));
}

/// "0 passed, 1 ignored" was a success. A script that looked only at the exit code was content.
#[test]
fn a_run_that_proves_nothing_fails_and_is_reported() {
    let folder = tempfile::tempdir().unwrap();
    let args = [
        "--storage",
        "mem",
        "--filter",
        "a_storage_without_the_call_answers_invalid",
        "--calls",
        "0",
    ];
    let output = run(&folder, &args);
    assert_eq!(code(&output), Some(1), "{}", stderr(&output));
    assert!(stdout(&output).contains("1 ignored"), "{}", stdout(&output));
    assert!(stderr(&output).contains("nothing was proved"), "{}", stderr(&output));
}

#[test]
fn a_filter_without_trials_is_wrong_usage_and_nothing_is_made() {
    let folder = tempfile::tempdir().unwrap();
    let output = run(&folder, &["--filter", "no such trial", "--storage", "redb:a.redb"]);
    assert_eq!(code(&output), Some(2));
    assert!(
        stderr(&output).contains("no trial's name contains `no such trial`"),
        "{}",
        stderr(&output)
    );
    assert!(is_empty(&folder));
}

#[test]
fn a_wrong_configuration_is_refused_with_the_file_the_key_and_the_correction() {
    let folder = tempfile::tempdir().unwrap();
    fs::write(folder.path().join("my.toml"), "[storage.redb]\npaht = \"x\"\n").unwrap();
    let output = run(&folder, &["--config", "my.toml"]);
    assert_eq!(code(&output), Some(3));
    let text = stderr(&output);
    let place = "my.toml, line 2, column 1: `storage.redb.paht`: ";
    assert!(text.contains(place), "{text}");
    assert!(text.contains("unknown key `paht`, did you mean `path`?"), "{text}");
    let output = run(&folder, &["--config", "none.toml"]);
    assert_eq!(code(&output), Some(3));
    assert!(
        stderr(&output).contains("cannot read the configuration file none.toml"),
        "{}",
        stderr(&output)
    );
}

/// The command read only the file, and proved another storage than the node used.
#[test]
fn the_environment_overrides_the_configuration_as_for_a_node() {
    let folder = tempfile::tempdir().unwrap();
    let config = "[storage]\ndriver = \"redb\"\n[storage.redb]\npath = \"a.redb\"\n";
    fs::write(folder.path().join("my.toml"), config).unwrap();
    let mut command = verify(&folder, &[["--config", "my.toml"].as_slice(), &QUICK].concat());
    let output = command.env("VVM__STORAGE__DRIVER", "mem").output().unwrap();
    assert_eq!(code(&output), Some(0), "{}", stderr(&output));
    assert!(stdout(&output).contains("Storage: mem"), "{}", stdout(&output));
    assert!(!folder.path().join("a.redb").exists());
}

#[test]
fn a_storage_that_cannot_be_opened_has_an_exit_code_of_its_own() {
    let folder = tempfile::tempdir().unwrap();
    fs::write(folder.path().join("a.redb"), "something else entirely").unwrap();
    let output = run(&folder, &["--storage", "redb:a.redb"]);
    assert_eq!(code(&output), Some(3), "{}", stderr(&output));
    assert!(stderr(&output).contains("a.redb"), "{}", stderr(&output));
    assert_eq!(fs::read(folder.path().join("a.redb")).unwrap(), b"something else entirely");
    let output = run(&folder, &["--storage", "redb:/proc/none/a.redb"]);
    assert_eq!(code(&output), Some(4), "{}", stderr(&output));
}

#[test]
fn a_signal_during_a_run_leaves_only_the_named_file_behind() {
    for (signal, name) in [("-INT", "Ctrl-C"), ("-TERM", "SIGTERM"), ("-HUP", "SIGHUP")] {
        let folder = tempfile::tempdir().unwrap();
        let args = [["--storage", "redb:a.redb"].as_slice(), &SLOW].concat();
        let mut running = RunningVerification::start(&folder, &args);
        let keyspace = running.scratch_keyspace();
        running.line("passed  ttl::an_absent_row");
        running.signal(signal);
        let line = running.line(&format!("{name} received"));
        assert!(line.contains(keyspace.as_str()), "{line}");
        let (code, rest) = running.end();
        assert_eq!(code, Some(1), "{rest}");
        assert!(rest.contains("error: interrupted"), "{rest}");
        let mut left: Vec<_> =
            fs::read_dir(&folder).unwrap().map(|file| file.unwrap().file_name()).collect();
        left.sort();
        assert_eq!(left, ["a.redb", "a.redb.log-0", "a.redb.log-1"], "the file and its log");
        assert!(!exists(&folder.path().join("a.redb"), &keyspace));
    }
}

/// In its first moments the command did not listen for signals. A signal then left behind
/// everything that the command had made.
#[test]
fn a_signal_at_the_start_leaves_nothing_behind() {
    let folder = tempfile::tempdir().unwrap();
    let mut running = RunningVerification::start(&folder, &SLOW);
    running.line("verifying");
    running.signal("-INT");
    let (code, rest) = running.end();
    assert_eq!(code, Some(1), "{rest}");
    assert!(is_empty(&folder), "{rest}");
}

#[test]
fn a_second_signal_ends_the_run_at_once_and_names_what_may_be_left() {
    let folder = tempfile::tempdir().unwrap();
    // The server accepts requests and never answers. So the keyspace may or may not have been made.
    let server = TcpListener::bind("127.0.0.1:0").unwrap();
    let storage = format!("dynamodb:http://{}", server.local_addr().unwrap());
    let mut running = RunningVerification::start(&folder, &["--storage", &storage]);
    let request = server.accept().unwrap();
    running.signal("-INT");
    let line = running.line("Ctrl-C received");
    let (_, keyspace) = line.trim_end().rsplit_once(' ').unwrap();
    running.signal("-INT");
    let (code, rest) = running.end();
    drop(request);
    assert_eq!(code, Some(1), "{rest}");
    assert!(rest.contains("left at once"), "{rest}");
    assert!(rest.contains(&format!("delete-table --table-name vvm.{keyspace}")), "{rest}");
}

#[test]
fn a_keyspace_that_cannot_be_dropped_is_named_with_the_way_to_remove_it() {
    let folder = tempfile::tempdir().unwrap();
    let address = tck::trial::free_address();
    let output = run(&folder, &["--storage", &format!("dynamodb:http://{address}")]);
    assert_eq!(code(&output), Some(4), "{}", stderr(&output));
    for part in ["may be left behind", "aws dynamodb delete-table --table-name vvm.tck_"] {
        assert!(stderr(&output).contains(part), "{part}: {}", stderr(&output));
    }
}

#[test]
fn a_report_that_cannot_be_printed_is_a_failure_and_nothing_stays() {
    let folder = tempfile::tempdir().unwrap();
    let full = fs::File::options().write(true).open("/dev/full").unwrap();
    let output = verify(&folder, &QUICK).stdout(full).output().unwrap();
    assert_eq!(code(&output), Some(1), "{}", stderr(&output));
    assert!(stderr(&output).contains("cannot print"), "{}", stderr(&output));
    assert!(is_empty(&folder));
}

/// A line that could not be written, because the reader had gone, ended the process, and its
/// scratch keyspace stayed.
#[test]
fn a_closed_stdout_does_not_end_the_run() {
    let folder = tempfile::tempdir().unwrap();
    let args = [["--storage", "redb:a.redb"].as_slice(), &QUICK].concat();
    let mut running = RunningVerification::start(&folder, &args);
    let keyspace = running.scratch_keyspace();
    let RunningVerification { child, stderr } = running;
    drop(stderr);
    let output = child.wait_with_output().unwrap();
    assert_eq!(code(&output), Some(0));
    assert!(stdout(&output).contains("1 passed"), "{}", stdout(&output));
    assert!(!exists(&folder.path().join("a.redb"), &keyspace));
}
