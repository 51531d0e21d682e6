//! The command `vvm elections verify` itself, as a process.

#![allow(clippy::unwrap_used)]

use std::process::{Command, Output};

fn verify(args: &[&str]) -> Output {
    let folder = tempfile::tempdir().unwrap();
    let mut command = Command::new(env!("CARGO_BIN_EXE_vvm"));
    let command = command.args(["elections", "verify"]).args(args).current_dir(&folder);
    let output = command.env_remove("RUST_LOG").output().unwrap();
    assert!(std::fs::read_dir(&folder).unwrap().next().is_none(), "something stays behind");
    output
}

const QUICK: [&str; 6] =
    ["--filter", "acquire::a_free_slot_is_led_at_once", "--takeovers", "1", "--lease", "1"];

#[test]
fn the_default_is_a_redb_file_and_takeovers_are_measured() {
    let output = verify(&QUICK);
    let (told, said) =
        (String::from_utf8(output.stdout).unwrap(), String::from_utf8(output.stderr).unwrap());
    assert_eq!(output.status.code(), Some(0), "{said}");
    for part in [
        "acquire::a_free_slot_is_led_at_once",
        "after a release (1 times)",
        "after a crash (1 times)",
        "leases of 1s",
        "1 passed, 0 failed",
    ] {
        assert!(told.contains(part), "{part}: {told}");
    }
    assert!(said.contains("scratch keyspace: elections_"), "{said}");
}

#[test]
fn the_result_as_json_is_all_there_is_on_stdout() {
    let output = verify(&[["--json", "--storage", "mem"].as_slice(), &QUICK].concat());
    let result: serde_json::Value = serde_json::from_slice(&output.stdout).unwrap();
    assert_eq!((result["passed"].as_u64(), result["failed"].as_u64()), (Some(1), Some(0)));
    let crash = &result["takeovers"][1];
    assert_eq!(crash["after"], "after a crash");
    // Died within the first quarter of its lease, about.
    let median = crash["median_seconds"].as_f64().unwrap();
    assert!((0.3..3.0).contains(&median), "{median}");
}

#[test]
fn wrong_usage_is_told() {
    for args in [["--filter", "no such trial"], ["--lease", "0"], ["--takeovers", "-1"]] {
        let output = verify(&args);
        assert_eq!(output.status.code(), Some(2), "{args:?}");
    }
}
