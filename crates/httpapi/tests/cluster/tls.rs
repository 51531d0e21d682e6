//! TLS between nodes.

use std::{
    io::{Read as _, Write as _},
    time::Duration,
};

use httpapi::{ClusterSettings, ClusterSettingsError, HttpApi, HttpApiSettings};
use shop::http_client::{command_path, logged, workspace_path};

use crate::support::{ClusterNode, NodeOptions, ROW, TestAuthority, TestCluster, WS, connect};

/// The name in the certificate of a node.
const NAME: &str = "vvm-cluster";

fn hasty(settings: &mut HttpApiSettings) {
    settings.command_time = Duration::from_millis(500);
}

/// Asserts that the entry cannot reach the owner, and that nothing is done.
fn refused(cluster: &TestCluster, owner: &ClusterNode, options: NodeOptions) {
    let entry = cluster.entry(NodeOptions { change: Some(hasty), ..options });
    let read = entry.ask("GET", &format!("{}/numbers", workspace_path(WS)), "", "");
    assert_eq!(read.status, 503, "{read:?}");
    let before = logged(owner.api, WS).len();
    let (status, answer) = entry.command(WS, "sys.CUD", ROW);
    assert!(matches!(status, 503 | 504), "{answer}");
    assert_eq!(logged(owner.api, WS).len(), before, "nothing was done");
    entry.stop();
}

#[test]
fn nodes_of_one_authority_forward_to_each_other() {
    let folder = tempfile::tempdir().unwrap();
    let authority = TestAuthority::new();
    let files = |node| Some(authority.files(folder.path(), node, NAME));
    let options = |node| NodeOptions { tls: files(node), ..NodeOptions::default() };
    let cluster = TestCluster::new();
    let owner = cluster.owner(options("owner"));
    let entry = cluster.entry(options("entry"));
    for _ in 0..10 {
        let done = entry.ask("POST", &command_path(WS, "sys.CUD"), "", ROW);
        assert_eq!(done.status, 200, "{done:?}");
        assert_eq!(done.header("x-vvm-served-by"), Some(&*owner.api.to_string()));
    }
    assert_eq!(logged(entry.api, WS).len(), 11);
    assert_eq!(owner.metric("httpapi_connections{service=\"cluster\"}"), 1.0);
    // A client that speaks no TLS gets nothing.
    let mut plain = connect(owner.cluster);
    plain.write_all(b"GET / HTTP/1.1\r\nhost: localhost\r\n\r\n").unwrap();
    let mut answer = Vec::new();
    let _ = plain.read_to_end(&mut answer);
    assert!(!answer.starts_with(b"HTTP/"), "{}", String::from_utf8_lossy(&answer));
    entry.stop();
    owner.stop();
}

#[test]
fn a_node_of_another_authority_or_name_is_refused() {
    let folder = tempfile::tempdir().unwrap();
    let (authority, other) = (TestAuthority::new(), TestAuthority::new());
    let tls =
        |authority: &TestAuthority, node, name| Some(authority.files(folder.path(), node, name));
    let cluster = TestCluster::new();
    let owner = cluster
        .owner(NodeOptions { tls: tls(&authority, "owner", NAME), ..NodeOptions::default() });
    // The entry trusts nobody but its own authority.
    let stranger = tls(&other, "stranger", NAME);
    refused(&cluster, &owner, NodeOptions { tls: stranger, ..NodeOptions::default() });
    // The entry trusts the owner, and the owner does not trust the entry.
    let mut half = authority.files(folder.path(), "half", NAME);
    let foreign = other.files(folder.path(), "foreign", NAME);
    (half.certificate, half.key) = (foreign.certificate, foreign.key);
    refused(&cluster, &owner, NodeOptions { tls: Some(half), ..NodeOptions::default() });
    // The certificate is for something else than a node.
    let web = tls(&authority, "web", "www.example.com");
    refused(&cluster, &owner, NodeOptions { tls: web, ..NodeOptions::default() });
    // The entry has no certificate.
    refused(&cluster, &owner, NodeOptions::default());
    assert_eq!(owner.command(WS, "sys.CUD", ROW).0, 200);
    owner.stop();
}

#[test]
fn settings_that_trust_other_machines_are_refused() {
    let api = HttpApiSettings::new("127.0.0.1:0".parse().unwrap());
    let with = |cluster| HttpApi::with_cluster(api, cluster).map(|_| ());
    let open = ClusterSettings::new("0.0.0.0:0".parse().unwrap());
    assert!(matches!(with(open.clone()), Err(ClusterSettingsError::Open(_))));
    let folder = tempfile::tempdir().unwrap();
    let files = TestAuthority::new().files(folder.path(), "node", NAME);
    let tls = |change: fn(&mut httpapi::ClusterTlsFiles)| {
        let mut files = files.clone();
        change(&mut files);
        with(ClusterSettings { tls: Some(files), ..open.clone() })
    };
    tls(|_| {}).unwrap();
    for change in [
        |files: &mut httpapi::ClusterTlsFiles| files.key = files.certificate.clone(),
        |files: &mut httpapi::ClusterTlsFiles| files.certificate = files.key.clone(),
        |files: &mut httpapi::ClusterTlsFiles| files.authority.push("none.pem"),
    ] {
        let error = tls(change).unwrap_err();
        assert!(matches!(error, ClusterSettingsError::Tls(_)), "{error:?}");
        assert!(error.to_string().contains(".pem"), "{error}");
    }
}
