//! Keyspaces that other programs prepared, and settings and servers that are wrong or missing.

use std::time::Duration;

use clock::Clock;
use istorage::{AppStorageExt, ErrorKind, Key, KeyspaceName, StorageDriver};
use istorage_cassandra::{
    CassandraConfig, CassandraDriver, CommitLogSync, Replication, SettingProblem,
};

use crate::support::{CassandraCluster, PATIENCE, ask, run, soon, unique_name};

async fn replication(session: &scylla::client::session::Session, name: &KeyspaceName) -> String {
    let text =
        format!("SELECT replication FROM system_schema.keyspaces WHERE keyspace_name = '{name}'");
    let rows = ask(session, &text).await;
    let (map,) = rows.single_row::<(std::collections::BTreeMap<String, String>,)>().unwrap();
    format!("{map:?}")
}

pub(crate) async fn a_foreign_keyspace_is_left_alone(cluster: CassandraCluster) {
    let (driver, raw) = (cluster.driver().await, cluster.raw().await);
    let ours = "values (p_key blob, c_col blob, value blob, PRIMARY KEY ((p_key), c_col))";
    for tables in [
        vec!["people (name text PRIMARY KEY)"],
        vec!["values (p_key blob, c_col blob, value text, PRIMARY KEY ((p_key), c_col))"],
        vec![
            "values (p_key blob, c_col blob, value blob, more blob, PRIMARY KEY ((p_key), c_col))",
        ],
        vec![
            "values (p_key blob, c_col blob, value blob, PRIMARY KEY ((p_key), c_col)) WITH CLUSTERING ORDER BY (c_col DESC)",
        ],
        vec![ours, "people (name text PRIMARY KEY)"],
    ] {
        let name = unique_name();
        let one = "{'class': 'SimpleStrategy', 'replication_factor': 1}";
        run(&raw, &format!("CREATE KEYSPACE {name} WITH replication = {one}")).await;
        for table in &tables {
            run(&raw, &format!("CREATE TABLE {name}.{table}")).await;
        }
        let kinds = [
            driver.create(&name, soon()).await.unwrap_err().kind(),
            driver.open(&name, soon()).await.unwrap_err().kind(),
            driver.drop_keyspace(&name, soon()).await.unwrap_err().kind(),
        ];
        assert_eq!(kinds, [ErrorKind::Corrupt; 3], "{tables:?}");
        let text =
            format!("SELECT table_name FROM system_schema.tables WHERE keyspace_name = '{name}'");
        assert_eq!(ask(&raw, &text).await.rows_num(), tables.len());
        run(&raw, &format!("DROP KEYSPACE {name}")).await;
    }
}

/// Ordered rows of an earlier version would hide those of this one. Without repairs that block, a
/// row that a node has read may be lost.
pub(crate) async fn a_table_with_other_options_is_refused(cluster: CassandraCluster) {
    let (driver, raw) = (cluster.driver().await, cluster.raw().await);
    for (option, kind, fix) in [
        ("comment = ''", ErrorKind::Corrupt, "begin with an empty storage"),
        ("read_repair = 'NONE'", ErrorKind::Invalid, "WITH read_repair = 'BLOCKING'"),
    ] {
        let name = unique_name();
        driver.create(&name, soon()).await.unwrap();
        assert!(driver.open(&name, soon()).await.unwrap().is_some());
        run(&raw, &format!("ALTER TABLE {name}.values WITH {option}")).await;
        let error = driver.open(&name, soon()).await.unwrap_err();
        assert_eq!(error.kind(), kind, "{error}");
        assert!(error.to_string().contains(fix), "{error}");
        driver.drop_keyspace(&name, soon()).await.unwrap();
    }
}

pub(crate) async fn an_empty_keyspace_is_used_and_keeps_its_replication(cluster: CassandraCluster) {
    let (driver, raw, name) = (cluster.driver().await, cluster.raw().await, unique_name());
    let one = "{'class': 'SimpleStrategy', 'replication_factor': 1}";
    run(&raw, &format!("CREATE KEYSPACE {name} WITH replication = {one}")).await;
    let before = replication(&raw, &name).await;
    assert!(driver.open(&name, soon()).await.unwrap().is_none());
    driver.create(&name, soon()).await.unwrap();
    assert!(driver.open(&name, soon()).await.unwrap().is_some());
    assert_eq!(replication(&raw, &name).await, before);
    driver.drop_keyspace(&name, soon()).await.unwrap();
    assert!(driver.open(&name, soon()).await.unwrap().is_none());
}

/// A node started together with its cluster, saw one server, and created a keyspace that kept one
/// replica forever.
pub(crate) async fn a_keyspace_with_one_replica_is_made_only_if_the_configuration_says_so(
    cluster: CassandraCluster,
) {
    let (raw, name) = (cluster.raw().await, unique_name());
    let config = CassandraConfig { replication: None, ..cluster.config() };
    let driver = CassandraDriver::connect(config, Clock::system(), soon()).await.unwrap();
    // More servers may join, so `create` waits for them.
    let deadline = Clock::system().now() + Duration::from_secs(1);
    let error = driver.create(&name, deadline).await.unwrap_err();
    assert_eq!(error.kind(), ErrorKind::Unavailable);
    let cause = std::error::Error::source(&error).unwrap().to_string();
    assert!(cause.contains("replication") && cause.contains("joined"), "{cause}");
    assert!(driver.open(&name, soon()).await.unwrap().is_none());

    let configured = cluster.driver().await;
    configured.create(&name, soon()).await.unwrap();
    assert!(replication(&raw, &name).await.contains("\"datacenter1\": \"1\""));
    // The keyspace exists, even though another driver created it.
    driver.create(&name, soon()).await.unwrap();
    configured.drop_keyspace(&name, soon()).await.unwrap();
}

pub(crate) async fn a_wrong_datacenter_is_named(cluster: CassandraCluster) {
    let config = CassandraConfig { datacenter: Some("nowhere".to_owned()), ..cluster.config() };
    let error = CassandraDriver::connect(config, Clock::system(), soon()).await.unwrap_err();
    assert_eq!(error.kind(), ErrorKind::Invalid);
    assert!(
        error.to_string().contains("`nowhere`") && error.to_string().contains("datacenter1"),
        "{error}"
    );

    let wrong = Replication::Datacenters([("nowhere".to_owned(), 1)].into());
    let config = CassandraConfig { replication: Some(wrong), ..cluster.config() };
    let driver = CassandraDriver::connect(config, Clock::system(), soon()).await.unwrap();
    let error = driver.create(&unique_name(), soon()).await.unwrap_err();
    assert_eq!(error.kind(), ErrorKind::Invalid, "{error:?}");
}

pub(crate) async fn a_server_that_is_not_there_is_unavailable(_: CassandraCluster) {
    // Port 1 refuses connections. An address of the range for documentation swallows all packets.
    for nowhere in ["127.0.0.1:1", "192.0.2.1:9042"] {
        let clock = Clock::system();
        let start = clock.now();
        let connected = CassandraDriver::connect(
            CassandraConfig::new([nowhere]),
            clock.clone(),
            start + Duration::from_secs(2),
        );
        assert_eq!(connected.await.unwrap_err().kind(), ErrorKind::Unavailable);
        assert!(clock.now() - start < Duration::from_secs(4));
    }
}

pub(crate) async fn a_closed_driver_reports_that_it_is_closed(cluster: CassandraCluster) {
    let scratch = cluster.scratch().await;
    scratch.driver.close().await;
    scratch.driver.close().await;
    let name = &scratch.name;
    let kinds = [
        scratch.driver.create(name, soon()).await.unwrap_err().kind(),
        scratch.driver.open(name, soon()).await.unwrap_err().kind(),
        scratch.driver.drop_keyspace(name, soon()).await.unwrap_err().kind(),
        scratch.storage.put(Key::new("p", "c"), "v".into(), soon()).await.unwrap_err().kind(),
        scratch.storage.ttl_get(&Key::new("p", "c"), PATIENCE).await.unwrap_err().kind(),
    ];
    assert_eq!(kinds, [ErrorKind::Closed; 5]);
    cluster.driver().await.drop_keyspace(name, soon()).await.unwrap();
}

/// A node worked with servers whose reads were not linearizable, whose writes could land later than
/// a lease of trust level 2 allows for, or that refused ordered writes. Nothing told the operator.
pub(crate) async fn a_server_tells_its_settings(cluster: CassandraCluster) {
    let (driver, raw) = (cluster.driver().await, cluster.raw().await);
    let text = "SELECT value FROM system_views.settings WHERE name = 'commitlog_sync'";
    let (told,) = ask(&raw, text).await.single_row::<(String,)>().unwrap();
    let expected = match told.as_str() {
        "periodic" => CommitLogSync::AfterAnswers,
        _ => CommitLogSync::BeforeAnswers,
    };
    let told = driver.server_settings(soon()).await.unwrap();
    let mut syncs: Vec<_> = told.iter().map(|it| (it.server(), it.commit_log_sync())).collect();
    let state = raw.get_cluster_state();
    let servers =
        state.get_nodes_info().iter().map(|node| (node.address.ip(), node.address.port()));
    let mut servers: Vec<_> = servers.map(|server| (server.into(), expected)).collect();
    syncs.sort_by_key(|(server, _)| *server);
    servers.sort_by_key(|(server, _)| *server);
    assert_eq!(syncs, servers);
    for server in told {
        let problems = server.problems();
        assert!(server.are_known() && problems.iter().all(|it| !it.is_fatal), "{server:?}");
        // A setting that the server did not tell would count as one that it does not have.
        let text =
            "SELECT value FROM system_views.settings WHERE name = 'native_transport_timeout'";
        let has_timeout = ask(&raw, text).await.single_row::<(String,)>().is_ok();
        let is_missing = |it: &SettingProblem| it.what.contains("has no native_transport_timeout");
        assert_eq!(problems.iter().any(is_missing), !has_timeout, "{problems:?}");
    }
    driver.close().await;
}
