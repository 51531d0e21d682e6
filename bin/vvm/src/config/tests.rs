//! The values that a configuration has, and the configurations that are refused.

use std::path::PathBuf;

use super::*;
use crate::storage_target::StorageTarget;

fn shipped(name: &str) -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR")).join("../../config").join(name)
}

fn read(name: &str) -> String {
    std::fs::read_to_string(shipped(name)).unwrap()
}

fn target(text: &str) -> StorageTarget {
    let config = toml::from_str::<VvmConfig>(text).unwrap();
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
    assert!(matches!(target("dynamodb.toml"), StorageTarget::DynamoDb(_)));
    assert_eq!(std::fs::read_dir(shipped("")).unwrap().count(), 4);
}

#[test]
fn an_invalid_file_is_refused_with_the_line_and_the_expected_value() {
    let folder = tempfile::tempdir().unwrap();
    let path = folder.path().join("vvm.toml");
    std::fs::write(&path, "[storage]\ndriver = \"redb\"\n\n[storage.redb]\npaht = \"x\"\n")
        .unwrap();
    let message = VvmConfig::read(Some(&path), &[]).unwrap_err().to_string();
    for part in ["vvm.toml", "line 5", "paht", "path"] {
        assert!(message.contains(part), "{part}: {message}");
    }
}

#[test]
fn cassandra_without_contact_points_is_refused() {
    let config: VvmConfig = toml::from_str("[storage]\ndriver = \"cassandra\"").unwrap();
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
fn the_demo_is_a_valid_application() {
    let (name, application) = demo().unwrap();
    assert_eq!(name.to_string(), "demo/shop");
    assert!(application.schema().table(&"shop.Article".parse().unwrap()).is_some());
}

fn variable(name: &str, value: &str) -> ConfigOverride {
    let all = [(name.into(), value.into())].into_iter();
    ConfigOverride::of_environment(all).pop().unwrap()
}

#[test]
fn flags_override_the_environment_and_the_environment_overrides_the_file() {
    let folder = tempfile::tempdir().unwrap();
    let path = folder.path().join("vvm.toml");
    let file = "[node]\nslots = 2\nstop_seconds = 3\n[http]\nlisten = \"127.0.0.1:1\"\n";
    std::fs::write(&path, file).unwrap();
    let overrides = [
        variable("VVM__NODE__SLOTS", "3"),
        variable("VVM__HTTP__LISTEN", "127.0.0.1:2"),
        variable("VVM__LOG__FILTER", "debug"),
        ConfigOverride::of_flag("--listen", ["http", "listen"], "127.0.0.1:3"),
    ];
    let config = VvmConfig::read(Some(&path), &overrides).unwrap();
    assert_eq!((config.node.slots.get(), config.http.listen.port()), (3, 3));
    assert_eq!(config.node.stop_seconds.get(), std::time::Duration::from_secs(3));
    assert_eq!(config.node.lease_seconds, NodeConfig::default().lease_seconds);
    assert_eq!(config.log.filter, "debug");
    // All other keys that the file set in the section were dropped.
    let section = VvmConfig::read(Some(&path), &[variable("VVM__NODE", "{ slots = 3 }")]);
    let message = section.unwrap_err().to_string();
    assert!(message.contains("as VVM__NODE__"), "{message}");
}

#[test]
fn an_invalid_override_is_named() {
    for (one, what) in [
        (variable("VVM__NODE__SLOTS", "many"), "VVM__NODE__SLOTS=many"),
        (variable("VVM__NODE__SLOTS", "many"), "from 0 to 4294967295"),
        (variable("VVM__NODE__ADVERTISED", "localhost:1"), "such as 127.0.0.1:8822"),
        (variable("VVM__NODE", "[]"), "VVM__NODE=[]: a table is expected"),
        (
            variable("VVM__STORAGE__DYNAMODB__ACCESS_KEY_ID", "11"),
            "the shell removes the outer quotes",
        ),
        (variable("VVM__NODE__SLOT", "1"), "slot"),
        (variable("VVM__NODE__SLOTS__MORE", "1"), "VVM__NODE__SLOTS__MORE"),
        (variable("VVM__", "1"), "VVM__=1"),
        (ConfigOverride::of_flag("--listen", ["http", "listen"], "here"), "--listen=here"),
    ] {
        let message = VvmConfig::read(None, &[one]).unwrap_err().to_string();
        assert!(message.contains(what), "{what}: {message}");
    }
}

/// The overrides were judged one after another, so variables alone could not give all settings that
/// a storage needs. The error for a wrong override showed its value, even a password.
#[test]
fn overrides_are_read_together_and_their_secrets_are_not_shown() {
    let cassandra = [
        ("VVM__STORAGE__DRIVER", "cassandra"),
        ("VVM__STORAGE__CASSANDRA__CONSISTENCY", "quorum"),
        ("VVM__STORAGE__CASSANDRA__CONTACT_POINTS", "[\"127.0.0.1:9042\"]"),
        ("VVM__STORAGE__CASSANDRA__LOGIN__PASSWORD", "12345"),
        ("VVM__STORAGE__CASSANDRA__LOGIN__USERNAME", "vvm"),
    ];
    let mut overrides = cassandra.map(|(name, value)| variable(name, value)).to_vec();
    let config = VvmConfig::read(None, &overrides).unwrap();
    let target = config.storage.to_target(&config.source).unwrap();
    assert_eq!(target.to_string(), "cassandra:127.0.0.1:9042");
    let shown = config.to_toml().unwrap();
    assert!(!shown.contains("12345") && shown.contains("vvm"), "{shown}");

    overrides.push(variable("VVM__STORAGE__CASSANDRA__LOGIN__PASWORD", "hunter2"));
    let message = VvmConfig::read(None, &overrides).unwrap_err().to_string();
    assert!(message.starts_with("VVM__STORAGE__CASSANDRA__LOGIN__PASWORD: "), "{message}");
    assert!(!message.contains("hunter2"), "{message}");

    // A variable can give a setting that the file lacks.
    let folder = tempfile::tempdir().unwrap();
    let path = folder.path().join("vvm.toml");
    std::fs::write(&path, "[storage]\ndriver = \"cassandra\"\n[storage.cassandra]\n").unwrap();
    assert!(VvmConfig::read(Some(&path), &overrides[2..3]).is_ok());
    let message = VvmConfig::read(Some(&path), &[variable("VVM__NODE__SLOTS", "2")]).unwrap_err();
    assert!(message.to_string().contains("contact_points"), "{message}");
}

#[test]
fn the_shown_configuration_equals_the_read_one_except_for_secrets() {
    let text = "[storage]\ndriver = \"dynamodb\"\n[storage.dynamodb]\nregion = \"r\"\naccess_key_id = \"a\"\nsecret_access_key = \"s3cret\"\n";
    let folder = tempfile::tempdir().unwrap();
    let path = folder.path().join("vvm.toml");
    std::fs::write(&path, text).unwrap();
    let shown = VvmConfig::read(Some(&path), &[]).unwrap().to_toml().unwrap();
    assert!(!shown.contains("s3cret"), "{shown}");
    let redb = VvmConfig::read(None, &[]).unwrap().to_toml().unwrap();
    for part in ["runs the demo", "sysvvm", "data/vvm.redb", "cache_bytes"] {
        assert!(redb.contains(part), "{part}: {redb}");
    }
    let again: VvmConfig = toml::from_str(&shown).unwrap();
    assert_eq!(again.http, HttpConfig::default());
    assert_eq!(again.node, NodeConfig::default());
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
    let (said, rest) = text.split_once("# These are the defaults").unwrap();
    let rest = rest.split_once('\n').unwrap().1;
    let is_setting = |line: &&str| line.starts_with("# [") || line.contains(" = ");
    let rest: Vec<&str> =
        rest.lines().filter(is_setting).map(|line| line.trim_start_matches("# ")).collect();
    let config: VvmConfig = toml::from_str(&format!("{said}\n{}", rest.join("\n"))).unwrap();
    assert_eq!(config.node, NodeConfig::default());
    assert_eq!(config.http, HttpConfig::default());
    assert_eq!(config.admin, AdminConfig::default());
    assert_eq!(config.sequences, SequencesConfig::default());
    assert_eq!(config.log, LogConfig::default());
    assert_eq!(config.apps[0].name.to_string(), "demo/shop");
    let folder = shipped("");
    assert!(config.apps[0].application(&folder).is_ok());
}

/// Each partition can keep 32 MiB of rows that it read ahead. The memory that a node printed did
/// not count these rows: with 10 partitions 320 MiB were missing.
#[test]
fn the_memory_of_a_node_includes_the_rows_that_its_partitions_read_ahead() {
    let memory_mib = |slots: u32| {
        let slots = variable("VVM__NODE__SLOTS", &slots.to_string());
        let driver = variable("VVM__STORAGE__DRIVER", "dynamodb");
        crate::serve::check(VvmConfig::read(None, &[slots, driver]).unwrap()).unwrap() >> 20
    };
    let rest = memory_mib(10) - 32;
    for (slots, partitions) in [(1, 10), (2, 5), (3, 4), (10, 1)] {
        assert_eq!(memory_mib(slots), rest + partitions * 32, "{slots} slots");
    }
    assert_eq!(rest, 256 + 128 + 160 + 15_000 / 32, "bodies, answers, program, connections");
}

/// Returns the error of `config check` for a file, or for a file with overrides.
fn wrong(text: &str, overrides: &[ConfigOverride]) -> String {
    let folder = tempfile::tempdir().unwrap();
    let path = folder.path().join("vvm.toml");
    std::fs::write(&path, text).unwrap();
    let checked = VvmConfig::read(Some(&path), overrides).and_then(crate::serve::check);
    checked.unwrap_err().to_string()
}

#[test]
fn an_invalid_setting_is_reported_with_its_line_its_key_and_the_correction() {
    let cassandra = |more| {
        format!(
            "[storage]\ndriver = \"cassandra\"\n[storage.cassandra]\ncontact_points = [\"a\"]\n{more}\n"
        )
    };
    let dynamodb = |more| format!("[storage]\ndriver = \"dynamodb\"\n[storage.dynamodb]\n{more}\n");
    let app = "[[apps]]\nname = \"a/b\"\ntables = \"none.toml\"\nworkspaces = {}\n";
    for (text, line, parts) in [
        ("[node]\nslots = 0\n", 2, ["slots", "1 or more"]),
        (
            &dynamodb("[node]\nslots = 11\nadvertised = \"10.0.0.1:1\""),
            5,
            ["node.slots", "10 partitions"],
        ),
        ("[node]\nslots = 2\n", 2, ["node.slots", "set `slots = 1`"]),
        ("[node]\nlease_seconds = 0.5\n", 2, ["lease_seconds", "a second or more"]),
        ("[node]\nlease_seconds = 5\ncall_seconds = 2\n", 3, ["node.call_seconds", "1s"]),
        (
            &dynamodb("[node]\nlease_seconds = 20\n[sequences]\ntrust_level = 2"),
            5,
            ["node.lease_seconds", "a lease of 536 s or more"],
        ),
        ("[node]\nstop_seconds = 0\n", 2, ["stop_seconds", "more than 0"]),
        ("[http]\nlisten = \"0.0.0.0:1\"\n", 2, ["http.listen", "http.allow_unauthenticated"]),
        ("\n[admin]\nlisten = \"0.0.0.0:1\"\n", 3, ["admin.listen", "admin.allow_unauthenticated"]),
        ("[http]\nqueue = 0\n", 2, ["queue", "from 1 on"]),
        ("[node]\nslots = \"many\"\n", 2, ["from 0 to 4294967295", "the text \"many\""]),
        ("node = 5\n", 1, ["a table is expected", "the number `5`"]),
        ("node = []\n", 1, ["`node`", "a table is expected"]),
        ("\n[[node]]\nslots = 1\n", 2, ["node", "a table is expected"]),
        ("[[storage.redb]]\npath = \"x\"\n", 1, ["`storage.redb`", "a table is expected"]),
        ("[http]\nqeue = [1]\n", 2, ["unknown key `qeue`", "`queue`"]),
        ("[storage.redb]\ncache_bytes = 99999999999999999999\n", 2, ["cache_bytes", "smaller"]),
        ("[http]\nqueue = [1]\n", 2, ["from 1 on", "not a list"]),
        ("[storage]\ndriver = [\"redb\"]\n", 2, ["driver", "a name in quotes"]),
        ("admin = [\"127.0.0.1:1\", true]\n", 1, ["`admin`", "a table is expected"]),
        ("[storage]\nredb = [\"x.redb\", 5]\n", 2, ["`storage.redb`", "a table is expected"]),
        ("[node]\nfolder = 5\n", 2, ["a path in quotes", "the number `5`"]),
        ("[node]\nadvertised = \"localhost:1\"\n", 2, ["advertised", "such as 127.0.0.1:8822"]),
        ("[http]\nlisten = true\n", 2, ["such as \"127.0.0.1:8822\"", "not `true`"]),
        ("[http]\nallow_unauthenticated = 1\n", 2, ["true or false", "the number `1`"]),
        ("[sequences]\ntrust_level = 3\n", 2, ["trust_level", "0, 1 or 2"]),
        ("[sequences]\ncached_numbers = [1]\n", 2, ["from 0 on", "a list"]),
        ("[sequences]\nstorage = \"redb\"\n", 2, ["unknown value", "`system` or `view`"]),
        ("[storage]\ndriver = 5\n", 2, ["driver", "a name in quotes"]),
        ("apps = [[\"a/b\", 1, \"t.toml\", {}]]\n", 1, ["`apps.0`", "a table is expected"]),
        (
            &dynamodb("billing = { provisioned = [1, 1] }"),
            4,
            ["`storage.dynamodb.billing.provisioned`", "a table is expected"],
        ),
        (&cassandra("login = [\"x\"]"), 5, ["`storage.cassandra.login`", "a table is expected"]),
        (&cassandra("datacenter = 1"), 5, ["a text in quotes", "the number `1`"]),
        ("[log]\nfilter = \"a=b=c\"\n", 2, ["filter", "a=b=c"]),
        ("[storage]\nsystem_keyspace = \"A\"\n", 2, ["system_keyspace", "3 to 48"]),
        ("[storage]\ndriver = \"cassandra\"\n", 2, ["storage.driver", "contact_points"]),
        (
            "[storage]\ndriver = \"dynamodb\"\n[node]\nadvertised = \"0.0.0.0:1\"\n",
            4,
            ["node.advertised", "set an address"],
        ),
        (
            "[storage]\ndriver = \"cassandra\"\n[storage.cassandra]\ncontact_points = []\n",
            4,
            ["storage.cassandra.contact_points", "at least one server"],
        ),
        (
            &cassandra("consistency = \"local_quorum\""),
            5,
            ["storage.cassandra.consistency", "needs the setting `datacenter`"],
        ),
        (
            &cassandra("serial_consistency = \"local_serial\""),
            5,
            ["storage.cassandra.serial_consistency", "needs the setting `datacenter`"],
        ),
        (
            &cassandra("login = { username = \"x\" }"),
            5,
            ["storage.cassandra.login", "`password` or `password_file`"],
        ),
        (
            &cassandra("[storage.cassandra.login]\nusername = \"x\"\npassword_file = \"none\""),
            7,
            ["storage.cassandra.login.password_file", "none cannot be read"],
        ),
        (
            &cassandra("replication = { simple = 0 }"),
            5,
            ["storage.cassandra.replication", "at least one replica"],
        ),
        (
            &cassandra("tls = { ca_file = \"none.pem\" }"),
            5,
            ["storage.cassandra.tls.ca_file", "none.pem"],
        ),
        (&dynamodb("table_prefix = \"!!\""), 4, ["storage.dynamodb.table_prefix", "a-z"]),
        (&dynamodb("endpoint = \"localhost:8000\""), 4, ["storage.dynamodb.endpoint", "http://"]),
        (
            &dynamodb("access_key_id = \"x\""),
            4,
            ["storage.dynamodb.access_key_id", "secret_access_key"],
        ),
        (&dynamodb("[node]\nadvertised = \"10.0.0.1:0\""), 5, ["node.advertised", "choose a port"]),
        (&dynamodb("[http]\nlisten = \"127.0.0.1:0\""), 5, ["http.listen", "choose a port"]),
        ("[node]\ncall_seconds = 0.0000001\n", 2, ["call_seconds", "0.001"]),
        ("[node]\nacquire_seconds = 0.0000001\n", 2, ["acquire_seconds", "0.001"]),
        ("[http]\nbody_bytes = 268435457\n", 2, ["http.body_bytes", "268435456"]),
        ("[http]\nlogs = 33\n", 2, ["http.logs", "32 logs"]),
        ("[http]\nanswers_bytes = 1000\nlogs = 1\n", 3, ["http.logs", "more bytes"]),
        // Ordinary answers have 3 of the 4 MiB. The log would take 2 MiB, and each document needs 2
        // MiB.
        ("[http]\nanswers_bytes = 4194304\nlogs = 1\n", 3, ["http.logs", "0 logs"]),
        (
            "[http]\nlisten = \"127.0.0.1:1\"\n[admin]\nlisten = \"127.0.0.1:1\"\n",
            4,
            ["admin.listen", "another port"],
        ),
        ("[[apps]]\nname = \"a\"\n", 2, ["name", "owner/name"]),
        (app, 3, ["apps.0.tables", "none.toml"]),
    ] {
        let message = wrong(text, &[]);
        assert!(message.contains("vvm.toml"), "{message}");
        for part in [&format!("line {line}"), parts[0], parts[1]] {
            assert!(message.contains(part), "{part}: {message}");
        }
    }
    let listen = variable("VVM__HTTP__LISTEN", "0.0.0.0:1");
    let message = wrong("[http]\nlisten = \"127.0.0.1:1\"\n", &[listen]);
    assert!(message.starts_with("VVM__HTTP__LISTEN=0.0.0.0:1: "), "{message}");
}
