//! The variables and flags that override the file.

use super::*;

#[test]
fn flags_override_the_environment_and_the_environment_overrides_the_file() {
    let folder = tempfile::tempdir().unwrap();
    let path = folder.path().join("vvm.toml");
    let file = "[cluster]\nseats = 2\ndrain_seconds = 3\n[http]\nlisten = \"127.0.0.1:1\"\n";
    std::fs::write(&path, file).unwrap();
    let overrides = [
        variable("VVM__CLUSTER__SEATS", "3"),
        variable("VVM__HTTP__LISTEN", "127.0.0.1:2"),
        variable("VVM__LOG__FILTER", "debug"),
        ConfigOverride::of_flag("--listen", ["http", "listen"], "127.0.0.1:3"),
    ];
    let config = VvmConfig::read(Some(&path), &overrides).unwrap();
    assert_eq!((config.cluster.seats(false).get(), config.http.listen.port()), (3, 3));
    assert_eq!(config.cluster.drain_seconds.get(), Duration::from_secs(3));
    assert_eq!(config.node.lease_seconds, NodeConfig::default().lease_seconds);
    assert_eq!(config.log.filter, "debug");
    // All other keys that the file set in the section were dropped.
    let section = VvmConfig::read(Some(&path), &[variable("VVM__CLUSTER", "{ seats = 3 }")]);
    let message = section.unwrap_err().to_string();
    assert!(message.contains("as VVM__CLUSTER__"), "{message}");
}

#[test]
fn an_invalid_override_is_named() {
    for (one, what) in [
        (
            variable("VVM__CLUSTER__SEATS", "many"),
            "VVM__CLUSTER__SEATS=many: `cluster.seats`: a whole number from 1 to 65535 is expected",
        ),
        (variable("VVM__NODE__ADVERTISED", "localhost:1"), "such as 127.0.0.1:8822"),
        (variable("VVM__NODE", "[]"), "VVM__NODE=[]: `node`: a table is expected"),
        (
            variable("VVM__STORAGE__DYNAMODB__ACCESS_KEY_ID", "11"),
            "`storage.dynamodb.access_key_id`: a text in quotes (in a shell: '\"…\"')",
        ),
        (variable("VVM__CLUSTER__SEAT", "1"), "unknown key `seat`, did you mean `seats`?"),
        (variable("VVM__CLUSTER__SEATS__MORE", "1"), "VVM__CLUSTER__SEATS__MORE"),
        (variable("VVM__", "1"), "VVM__=1"),
        (
            ConfigOverride::of_flag("--listen", ["http", "listen"], "here"),
            "--listen=here: `http.listen`: an IP and a port",
        ),
    ] {
        let message = VvmConfig::read(None, &[one]).unwrap_err().to_string();
        assert!(message.contains(what), "{what}: {message}");
    }
}

/// A variable was read as a line of a file, so text after a comment sign or a line break was lost.
#[test]
fn a_variable_counts_with_all_its_text() {
    for value in ["1#2", "1\nx = 2"] {
        let error = VvmConfig::read(None, &[variable("VVM__CLUSTER__SEATS", value)]).unwrap_err();
        assert!(error.to_string().contains("a whole number"), "{value}: {error}");
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
    let message =
        VvmConfig::read(Some(&path), &[variable("VVM__CLUSTER__SEATS", "2")]).unwrap_err();
    assert!(message.to_string().contains("contact_points"), "{message}");
}

/// A variable with one underscore was ignored without a word, and the node listened on the default
/// address.
#[test]
fn a_variable_with_single_underscores_is_refused_with_the_right_name() {
    let check = |names: &[&str]| {
        let all: Vec<_> = names.iter().map(|name| ((*name).into(), "x".into())).collect();
        ConfigOverride::check_names(all.into_iter())
    };
    for (name, right) in [
        ("VVM_HTTP_LISTEN", "VVM__HTTP__LISTEN"),
        // Other programs have one underscore after their names, and two between keys.
        ("VVM_HTTP__LISTEN", "VVM__HTTP__LISTEN"),
        ("VVM_HTTP_BODY_BYTES", "VVM__HTTP__BODY_BYTES"),
        ("VVM_HTTP_TLS_CERT_FILE", "VVM__HTTP__TLS__CERT_FILE"),
        ("VVM_STORAGE_DRIVER", "VVM__STORAGE__DRIVER"),
        ("VVM_STORAGE_REDB_CACHE_BYTES", "VVM__STORAGE__REDB__CACHE_BYTES"),
        (
            "VVM_STORAGE_CASSANDRA_LOGIN_PASSWORD_FILE",
            "VVM__STORAGE__CASSANDRA__LOGIN__PASSWORD_FILE",
        ),
        ("VVM_ACCESS_KEYS_FILE", "VVM__ACCESS__KEYS_FILE"),
        ("VVM_LOG_FILTER", "VVM__LOG__FILTER"),
    ] {
        let why = check(&["PATH", name]).unwrap_err();
        assert!(why.starts_with(&format!("{name}: ")), "{why}");
        assert!(why.contains(&format!("call it {right}, or")), "{why}");
        check(&[right]).unwrap();
    }
    // Those of the commands, of tests, and of Kubernetes for a service `vvm-http` or `vvm-node`.
    check(&[
        "VVM_CA_FILE",
        "VVM_CERT_FILE",
        "VVM_KEY_FILE",
        "VVM_TOKEN_FILE",
        "VVM_TEST_CASSANDRA",
        "VVM_HTTP_PORT",
        "VVM_HTTP_SERVICE_HOST",
        "VVM_HTTP_PORT_8822_TCP_ADDR",
        "VVM_NODE_SERVICE_PORT",
        "VVM_HTTP_LISTEN_X",
        "VVM_",
        "VVM_HTTP",
        "VVM_HTTP_",
        "VVM_A_B_C_D_E_F_G_H_I_J_K_L_M_N_O_P_Q_R_S_T_U_V_W_X_Y_Z_A_B_C_D_E_F_G_H_I_J",
    ])
    .unwrap();
}
