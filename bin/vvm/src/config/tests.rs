//! The values that a configuration has, and the configurations that are refused.

mod overrides;
mod refusals;
mod secrets;
mod tls;

use std::{path::PathBuf, time::Duration};

use ctl::StorageTarget;

use super::*;

fn shipped(name: &str) -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR")).join("../../config").join(name)
}

fn read(name: &str) -> String {
    std::fs::read_to_string(shipped(name)).unwrap()
}

fn target(text: &str) -> StorageTarget {
    let config = VvmConfig::of_text(text);
    config.storage.to_target(&config.source).unwrap()
}

#[test]
fn each_shipped_file_can_be_read_and_names_its_storage() {
    let target = |name| {
        let config = VvmConfig::read(Some(&shipped(name)), &[]).unwrap();
        config.storage.to_target(&config.source).unwrap()
    };
    assert!(
        matches!(target("vvm.toml"), StorageTarget::Redb(config) if config.path == Path::new("data/vvm.redb"))
    );
    assert!(matches!(target("cassandra.toml"), StorageTarget::Cassandra(_)));
    assert!(matches!(target("cluster.toml"), StorageTarget::Cassandra(_)));
    assert!(matches!(target("dynamodb.toml"), StorageTarget::DynamoDb(_)));
    assert_eq!(std::fs::read_dir(shipped("")).unwrap().count(), 5);
}

#[test]
fn cassandra_without_contact_points_is_refused() {
    let config = VvmConfig::of_text("[storage]\ndriver = \"cassandra\"");
    let message = config.storage.to_target(&config.source).unwrap_err().to_string();
    assert!(message.contains("contact_points"), "{message}");
}

#[test]
fn the_shipped_file_for_redb_equals_the_defaults() {
    assert_eq!(target(""), target(&read("vvm.toml")));
}

/// If a shipped file set another value than the default, deleting that line could make the node
/// look for its data in another place.
#[test]
fn each_setting_of_the_shipped_files_can_be_left_out() {
    let mut left_out = 0;
    for (name, needed) in [
        ("vvm.toml", [].as_slice()),
        ("cassandra.toml", ["driver", "contact_points"].as_slice()),
        ("dynamodb.toml", ["driver"].as_slice()),
    ] {
        let text = read(name);
        let is_setting = |line: &&str| !line.starts_with('#') && line.contains('=');
        let is_needed = |line: &&str| needed.iter().any(|key| line.starts_with(key));
        for line in text.lines().filter(is_setting).filter(|line| !is_needed(line)) {
            assert_eq!(target(&text.replace(line, "")), target(&text), "{name}: {line}");
            left_out += 1;
        }
    }
    assert_eq!(left_out, 9);
}

#[test]
fn the_shipped_file_for_a_cluster_is_complete_and_can_be_used() {
    let text = read("cluster.toml");
    let config = VvmConfig::of_text(&text);
    let cluster = &config.cluster;
    assert_eq!(cluster.seats(false), ClusterConfig::default().seats(false));
    assert_eq!(cluster.drain_seconds, ClusterConfig::default().drain_seconds);
    assert_eq!(cluster.reached_at(), Some(("10.0.0.1:8823".parse().unwrap(), "listen")));
    let tls = cluster.tls.as_ref().unwrap();
    assert_eq!(tls.ca_file, Path::new("/etc/vvm/cluster-ca.pem"));
    let all = toml::Table::try_from(cluster).unwrap();
    let tls = all["tls"].as_table().unwrap();
    let keys = all.keys().chain(tls.keys()).filter(|key| *key != "tls").map(String::as_str);
    for key in keys.chain(["advertised"]) {
        let is_there = text
            .lines()
            .any(|line| line.strip_prefix("# ").unwrap_or(line).starts_with(&format!("{key} = ")));
        assert!(is_there, "{key}");
    }
    // Each file is read, as a node does.
    let missing = crate::serve::check(&config).unwrap_err().to_string();
    assert!(missing.contains("`cluster.tls.cert_file`: /etc/vvm/node.pem: "), "{missing}");
    let folder = tempfile::tempdir().unwrap();
    let signed = rcgen::generate_simple_self_signed(["vvm-cluster".to_owned()]).unwrap();
    let (certificate, key) = (signed.cert.pem(), signed.signing_key.serialize_pem());
    for (name, pem) in [("node", &certificate), ("node-key", &key), ("cluster-ca", &certificate)] {
        std::fs::write(folder.path().join(format!("{name}.pem")), pem).unwrap();
    }
    let there = text.replace("/etc/vvm", folder.path().to_str().unwrap());
    crate::serve::check(&VvmConfig::of_text(&there)).unwrap();
    let other = text.replace("# advertised = \"10.0.0.1:8823\"", "advertised = \"10.0.0.9:1\"");
    let reached = VvmConfig::of_text(&other).cluster.reached_at();
    assert_eq!(reached, Some(("10.0.0.9:1".parse().unwrap(), "advertised")));
}

#[test]
fn the_demo_is_a_valid_application() {
    let (name, application) = demo();
    assert_eq!(name.to_string(), "demo/shop");
    assert!(application.declarations().schema().table(&"shop.Article".parse().unwrap()).is_some());
    assert_eq!(application.declarations().check_number_fields(), Ok(()));
}

/// The key `workspaces` was reported.
#[test]
fn a_table_that_an_application_may_not_have_is_reported_at_the_key_tables() {
    let folder = tempfile::tempdir().unwrap();
    std::fs::write(folder.path().join("t.toml"), "[tables.\"sys.A\"]\nkind = \"CDoc\"").unwrap();
    let app = "[[apps]]\nname = \"a/b\"\ntables = \"t.toml\"\nworkspaces = {}\n";
    let (key, why) = VvmConfig::of_text(app).apps[0].application(folder.path()).unwrap_err();
    assert!(key == "tables" && why.contains("t.toml: sys.A is in the package"), "{key}: {why}");
}

/// An operator with three mistakes in a file of tables started the node four times; in a later
/// version, if the mistakes were of three kinds.
#[test]
fn all_mistakes_of_a_file_of_tables_are_reported_at_once() {
    let folder = tempfile::tempdir().unwrap();
    let app = "[[apps]]\nname = \"a/b\"\ntables = \"t.toml\"\nworkspaces = {}\n";
    for (tables, expected) in [
        (
            "[tables.\"a.B\"]\nkind = \"Doc\"\nfields = { x = \"text\" }\n[tables.C]\nkind = \"CDoc\"",
            [
                "- line 2, column 8: unknown",
                "- line 3, column 16: unknown",
                "- line 4, column 9: `C`",
            ],
        ),
        (
            "[tables.\"sys.A\"]\nkind = \"CDoc\"\n[tables.\"sys.B\"]\nkind = \"CDoc\"\n[tables.\"sys.C\"]\nkind = \"WDoc\"",
            ["- sys.A is", "- sys.B is", "- sys.C is"],
        ),
        (
            "[tables.\"a.B\"]\nkind = \"CDoc\"\nnumbers = { x = \"bill\", y = \"order\" }\nsequences = { z = \"Visit\" }",
            [
                "the sequence `Visit`, which",
                "the series `bill`, which",
                "the series `order`, which",
            ],
        ),
        (
            "[tables.\"a.B\"]\nkind = \"Doc\"\n[tables.\"sys.A\"]\nkind = \"CDoc\"\nnumbers = { x = \"bill\" }",
            ["- line 2, column 8: unknown", "- sys.A is", "the series `bill`, which"],
        ),
    ] {
        std::fs::write(folder.path().join("t.toml"), tables).unwrap();
        let (key, why) = VvmConfig::of_text(app).apps[0].application(folder.path()).unwrap_err();
        let lines: Vec<&str> = why.lines().collect();
        assert!(key == "tables" && lines[0].ends_with("t.toml: 3 mistakes:"), "{key}: {why}");
        assert_eq!(lines.len(), 4, "{why}");
        for (line, expected) in lines[1..].iter().zip(expected) {
            assert!(line.contains(expected), "{expected}: {why}");
        }
    }
}

fn variable(name: &str, value: &str) -> ConfigOverride {
    let all = [(name.into(), value.into())].into_iter();
    ConfigOverride::of_environment(all).pop().unwrap()
}

#[test]
fn the_shown_configuration_equals_the_read_one_except_for_secrets() {
    let text = "[storage]\ndriver = \"dynamodb\"\n[storage.dynamodb]\nregion = \"r\"\naccess_key_id = \"a\"\nsecret_access_key = \"s3cret\"\n";
    let folder = tempfile::tempdir().unwrap();
    let path = folder.path().join("vvm.toml");
    std::fs::write(&path, text).unwrap();
    let shown = VvmConfig::read(Some(&path), &[]).unwrap().to_toml().unwrap();
    assert!(!shown.contains("s3cret"), "{shown}");
    assert!(shown.starts_with(&format!("# The file is {}.\n", path.display())), "{shown}");
    let logs = [variable("VVM__HTTP__LOGS", "7")];
    let redb = VvmConfig::read(None, &logs).unwrap().to_toml().unwrap();
    for part in [
        "# VVM__HTTP__LOGS sets `http.logs`.\n",
        "logs = 7\n",
        "runs the demo",
        "sysvvm",
        "data/vvm.redb",
        "cache_bytes",
    ] {
        assert!(redb.contains(part), "{part}: {redb}");
    }
    let again = VvmConfig::of_text(&shown);
    assert_eq!(again.http, HttpConfig::default());
    assert_eq!(again.node, NodeConfig::default());
    let seats = |config: &VvmConfig, is_embedded| config.cluster.seats(is_embedded).get();
    assert_eq!(seats(&again, false), 16, "the number of seats in force is shown");
    assert!(redb.contains("[cluster]\n") && redb.contains("seats = 1\n"), "{redb}");
}

#[test]
fn a_duration_out_of_range_is_refused() {
    for bad in ["-1", "1e12", "\"soon\"", "nan"] {
        let overrides = [variable("VVM__NODE__LEASE_SECONDS", bad)];
        assert!(VvmConfig::read(None, &overrides).is_err(), "{bad}");
    }
}

/// If an operator removes all comment signs from the shipped file, the configuration stays the
/// same.
#[test]
fn the_commented_out_settings_are_the_defaults() {
    let text = read("vvm.toml");
    let (settings, rest) = text.split_once("# These are the defaults").unwrap();
    let rest = rest.split_once('\n').unwrap().1;
    let is_setting = |line: &&str| line.starts_with("# [") || line.contains(" = ");
    let rest: Vec<&str> =
        rest.lines().filter(is_setting).map(|line| line.trim_start_matches("# ")).collect();
    let config = VvmConfig::of_text(&format!("{settings}\n{}", rest.join("\n")));
    assert_eq!(config.node, NodeConfig::default());
    assert_eq!(config.cluster, ClusterConfig::default());
    assert_eq!(config.http, HttpConfig::default());
    assert_eq!(config.admin, AdminConfig::default());
    assert_eq!(config.sequences, SequencesConfig::default());
    assert_eq!(config.log, LogConfig::default());
    assert_eq!(config.apps[0].name.to_string(), "demo/shop");
    let folder = shipped("");
    let series = |application: &processor::Application| {
        let series = application.declarations().series();
        series.map(|one| (one.series.definition().clone(), one.policy.clone())).collect::<Vec<_>>()
    };
    let application = config.apps[0].application(&folder).unwrap();
    assert_eq!(
        application.declarations().declared_sequences(),
        demo().1.declarations().declared_sequences()
    );
    assert_eq!(application.declarations().declared_sequences().len(), 1);
    let of_file = series(&application);
    assert_eq!(of_file, series(&demo().1));
    assert_eq!(of_file.len(), 2);
}

/// Each partition can keep 32 MiB of rows that it read ahead, 3 MiB of counter records, and
/// numbers. The memory that a node printed did not count these rows and numbers: with 10 partitions
/// 320 MiB were missing.
#[test]
fn the_memory_of_a_node_includes_the_rows_and_numbers_that_its_partitions_keep() {
    const OF_PARTITION: usize = (35 << 20) + 32 * 100_000;
    let folder = tempfile::tempdir().unwrap();
    std::fs::write(folder.path().join("t.toml"), "[tables]\n").unwrap();
    let path = folder.path().join("vvm.toml");
    let memory = |partitions: usize, seats: u32| {
        let app = format!(
            "[[apps]]\nname = \"a/b\"\ntables = \"t.toml\"\nworkspaces = {{}}\npartitions = {partitions}\n"
        );
        std::fs::write(&path, app).unwrap();
        let seats = variable("VVM__CLUSTER__SEATS", &seats.to_string());
        let driver = variable("VVM__STORAGE__DRIVER", "dynamodb");
        crate::serve::check(&VvmConfig::read(Some(&path), &[seats, driver]).unwrap()).unwrap()
    };
    let rest = memory(10, 1) - 10 * OF_PARTITION;
    // The last node that lives owns all partitions, however many seats there are.
    for (partitions, seats) in [(1, 16), (4, 3), (10, 2), (10, 16), (100, 16)] {
        assert_eq!(memory(partitions, seats), rest + partitions * OF_PARTITION, "{seats} seats");
    }
    let (fixed, of_32_kib) = (256 + 128 + 160 + 64 + 16, 15_000 + 2_000);
    let what = "bodies, answers, program, large events, new events; connections, followers";
    assert_eq!(rest >> 20, fixed + of_32_kib / 32, "{what}");
}

/// Each fast series can hold 10,000 counters, and as many can wait to be given back. The memory
/// that a node printed did not count them.
#[test]
fn the_memory_of_a_node_includes_the_counters_of_its_fast_series() {
    let memory = |fast: usize| {
        let tables = shipped("demo.toml");
        let bill = "template = \"B{counter:4}\"\npolicy = \"gapless\"\nrecord = 65601";
        let mut text = format!(
            "[[apps]]\nname = \"demo/shop\"\ntables = {tables:?}\nworkspaces = {{ Shop = 1 }}\n\
             [apps.sequences.Shop]\nDelivery = {{ id = 256 }}\n\
             [apps.series.bill]\n{bill}\n"
        );
        for at in 0..fast {
            let fast = format!("template = \"{at}-{{counter:4}}\"\npolicy = \"fast\"");
            text += &format!("[apps.series.s{at}]\n{fast}\n");
        }
        crate::serve::check(&VvmConfig::of_text(&text)).unwrap()
    };
    let (none, three) = (memory(0), memory(3));
    assert_eq!(three - none, 3 * 10_000 * (3 << 10));
}

/// The defaults of the docs were those of another version, or missing.
#[test]
fn each_number_of_the_configuration_has_its_default_in_the_docs() {
    let docs = include_str!("../../../../docs/operations.md");
    let (_, table) = docs.split_once("### Defaults\n").unwrap();
    let (table, _) = table.split_once("\n### ").unwrap();
    let rows = table.lines().filter_map(|line| line.strip_prefix("| `")?.split_once("` | "));
    let documented: std::collections::BTreeMap<String, String> = rows
        .map(|(key, rest)| (key.to_owned(), rest.split_once(" |").unwrap().0.to_owned()))
        .filter(|(_, default)| default.starts_with(|first: char| first.is_ascii_digit()))
        .collect();
    let defaults = toml::Table::try_from(VvmConfig::default()).unwrap();
    let is_number = |value: &toml::Value| value.is_integer() || value.is_float();
    let sections = ["node", "cluster", "http", "sequences"].into_iter();
    let numbers = sections.flat_map(|section| {
        let keys = defaults[section].as_table().unwrap().iter();
        keys.filter(|(_, value)| is_number(value))
            .map(move |(key, value)| (format!("{section}.{key}"), value.to_string()))
    });
    assert_eq!(documented, numbers.collect());
}

/// The parts of a lease could not be configured. Parts that do not fit are refused with their key.
#[test]
fn the_parts_of_a_lease_fit_into_the_lease() {
    let config = |parts: &str| -> VvmConfig {
        VvmConfig::of_text(&format!("[node]\nlease_seconds = 8\n{parts}"))
    };
    let timing =
        config("renew_seconds = 1\nrenew_retry_seconds = 2\nstop_grace_seconds = 3").node.timing();
    let seconds = |part: Duration| part.as_secs_f64();
    assert_eq!(seconds(timing.duration), 8.0);
    assert_eq!(
        [timing.renew_every, timing.retry_for, timing.stop_grace].map(seconds),
        [1.0, 2.0, 3.0]
    );
    assert_eq!([timing.call_timeout, timing.clock_skew].map(seconds), [0.4, 0.2]);
    let usual = config("").node.timing();
    assert_eq!(usual, ielections::Timing::of(Duration::from_secs(8)));
    for parts in ["renew_seconds = 9", "stop_grace_seconds = 6", "renew_call_seconds = 5"] {
        let refused = crate::serve::check(&config(parts)).unwrap_err().to_string();
        assert!(refused.contains("`node."), "{parts}: {refused}");
    }
}
