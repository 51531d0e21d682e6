//! The command `vvm elections verify`, as a process.

use std::{
    path::Path,
    process::{Command, Output},
};

use istorage::KeyspaceName;

use crate::keyspaces::exists;

fn verify_in(folder: &Path, args: &[&str]) -> Output {
    let mut command = Command::new(env!("CARGO_BIN_EXE_vvm"));
    let command = command.args(["elections", "verify"]).args(args).current_dir(folder);
    command.env_remove("RUST_LOG").output().unwrap()
}

fn verify(args: &[&str]) -> Output {
    let folder = tempfile::tempdir().unwrap();
    let output = verify_in(folder.path(), args);
    assert!(std::fs::read_dir(&folder).unwrap().next().is_none(), "something stays behind");
    output
}

const QUICK: [&str; 6] =
    ["--filter", "acquire::a_free_seat_is_led_at_once", "--takeovers", "1", "--lease", "1"];

#[test]
fn the_default_is_a_redb_file_and_takeovers_are_measured() {
    let output = verify(&QUICK);
    let (stdout, stderr) =
        (String::from_utf8(output.stdout).unwrap(), String::from_utf8(output.stderr).unwrap());
    assert_eq!(output.status.code(), Some(0), "{stderr}");
    for part in [
        "acquire::a_free_seat_is_led_at_once",
        "after a release (once)",
        "after a crash (once)",
        "if the leader dies, a waiting node leads within",
        "1 passed, 0 failed",
    ] {
        assert!(stdout.contains(part), "{part}: {stdout}");
    }
    for part in ["measuring takeovers after a crash, once", "a takeover after a crash: "] {
        assert!(stderr.contains(part), "{part}: {stderr}");
    }
}

/// The trials leave their rows in the keyspace, so the whole keyspace must be dropped.
#[test]
fn the_scratch_keyspace_is_dropped() {
    let folder = tempfile::tempdir().unwrap();
    let output =
        verify_in(folder.path(), &[["--storage", "redb:a.redb"].as_slice(), &QUICK].concat());
    let stderr = String::from_utf8(output.stderr).unwrap();
    assert_eq!(output.status.code(), Some(0), "{stderr}");
    let name = stderr.lines().find_map(|line| line.strip_prefix("scratch keyspace: ")).unwrap();
    let keyspace = KeyspaceName::new(name).unwrap();
    assert!(!exists(&folder.path().join("a.redb"), &keyspace));
}

#[test]
fn stdout_contains_only_the_result_as_json() {
    let output = verify(&[["--json", "--storage", "mem"].as_slice(), &QUICK].concat());
    let result: serde_json::Value = serde_json::from_slice(&output.stdout).unwrap();
    assert_eq!((result["passed"].as_u64(), result["failed"].as_u64()), (Some(1), Some(0)));
    let crash = &result["takeovers"][1];
    assert_eq!(crash["after"], "after a crash");
    // The leader died within about the first quarter of its lease.
    let median = crash["median_seconds"].as_f64().unwrap();
    assert!((0.3..3.0).contains(&median), "{median}");
    assert_eq!(result["lease"]["seconds"], 1.0);
    for not_measured in ["latencies", "clock_skew", "advice"] {
        assert!(result.get(not_measured).is_none(), "{not_measured}: {result}");
    }
}

#[test]
fn wrong_usage_is_reported() {
    for args in [["--filter", "no such trial"], ["--lease", "0"], ["--takeovers", "-1"]] {
        let output = verify(&args);
        assert_eq!(output.status.code(), Some(2), "{args:?}");
    }
}
