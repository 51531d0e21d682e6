//! TLS between nodes.

use std::{
    fs,
    io::{Read as _, Write as _},
    time::Duration,
};

use http_api::{ClusterSettings, ClusterSettingsError, HttpApi, HttpApiSettings};
use http_server::TlsFile;
use rcgen::{CertificateParams, ExtendedKeyUsagePurpose, IsCa, KeyPair};
use shop::http_client::{command_path, logged, workspace_path};

use crate::support::{
    ClusterNode, NodeOptions, ROW, TestAuthority, TestCluster, TestFiles, WS, connect,
};

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
    let files = |node| authority.files(folder.path(), node, NAME).cluster().unwrap();
    let options = |node| NodeOptions { tls: Some(files(node)), ..NodeOptions::default() };
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
    let tls = |authority: &TestAuthority, node, name| {
        Some(authority.files(folder.path(), node, name).cluster().unwrap())
    };
    let cluster = TestCluster::new();
    let owner = cluster
        .owner(NodeOptions { tls: tls(&authority, "owner", NAME), ..NodeOptions::default() });
    // The entry trusts only its own authority.
    let stranger = tls(&other, "stranger", NAME);
    refused(&cluster, &owner, NodeOptions { tls: stranger, ..NodeOptions::default() });
    // The entry trusts the owner, and the owner does not trust the entry.
    let mut half = authority.files(folder.path(), "half", NAME);
    let foreign = other.files(folder.path(), "foreign", NAME);
    (half.certificate, half.key) = (foreign.certificate, foreign.key);
    refused(&cluster, &owner, NodeOptions { tls: half.cluster().ok(), ..NodeOptions::default() });
    // The certificate is for something other than a node.
    let web = tls(&authority, "web", "www.example.com");
    refused(&cluster, &owner, NodeOptions { tls: web, ..NodeOptions::default() });
    // The entry has no certificate.
    refused(&cluster, &owner, NodeOptions::default());
    assert_eq!(owner.command(WS, "sys.CUD", ROW).0, 200);
    owner.stop();
}

/// A node started with a certificate that the other nodes refuse, and could connect to none of
/// them.
#[test]
fn a_node_can_see_that_the_others_will_refuse_its_certificate() {
    let folder = tempfile::tempdir().unwrap();
    let authority = TestAuthority::new();
    let check = |name, change: &dyn Fn(&mut CertificateParams)| {
        let files = authority.files(folder.path(), "node", NAME);
        files.write(authority.sign(name, change));
        files.cluster().unwrap().check_own().map_err(|error| error.to_string())
    };
    check(NAME, &|_| {}).unwrap();
    let over = |params: &mut CertificateParams| params.not_after = rcgen::date_time_ymd(2020, 1, 1);
    check(NAME, &over).expect("the node warns of the end of a certificate");
    use ExtendedKeyUsagePurpose::{ClientAuth, ServerAuth};
    let of_servers = |params: &mut CertificateParams| params.extended_key_usages = vec![ServerAuth];
    let of_clients = |params: &mut CertificateParams| params.extended_key_usages = vec![ClientAuth];
    type Change<'c> = &'c dyn Fn(&mut CertificateParams);
    let refused: [(&str, Change<'_>); 3] =
        [("www.example.com", &|_| {}), (NAME, &of_servers), (NAME, &of_clients)];
    for (name, change) in refused {
        let why = check(name, change).unwrap_err();
        assert!(why.contains("node-certificate.pem: the other nodes refuse"), "{why}");
    }
    let mut foreign = authority.files(folder.path(), "foreign", NAME);
    foreign.authority = TestAuthority::new().files(folder.path(), "other", NAME).authority;
    let why = foreign.cluster().unwrap().check_own().unwrap_err();
    assert_eq!(why.file, TlsFile::Certificate, "{why}");
}

/// A running node took over a certificate that the other nodes refuse, and could connect to none of
/// them.
#[test]
fn a_node_keeps_its_certificate_if_the_others_refuse_the_new_one() {
    let folder = tempfile::tempdir().unwrap();
    let authority = TestAuthority::new();
    let files = ["owner", "entry"].map(|node| authority.files(folder.path(), node, NAME));
    let options = |files: &TestFiles| NodeOptions {
        tls: Some(files.cluster().unwrap()),
        ..NodeOptions::default()
    };
    let cluster = TestCluster::new();
    let (owner, entry) = (cluster.owner(options(&files[0])), cluster.entry(options(&files[1])));
    let exchanges = |outcome| {
        let of = "httpapi_certificate_exchanges_total";
        owner.metric(&format!("{of}{{service=\"cluster\",outcome=\"{outcome}\"}}"))
    };
    let pair = authority.sign("www.example.com", |_| {});
    files[0].write(pair);
    while exchanges("refused") == 0.0 {
        assert_eq!(exchanges("taken"), 0.0);
        assert_eq!(entry.command(WS, "sys.CUD", ROW).0, 200);
    }
    // The node looks at its files some times more.
    std::thread::sleep(Duration::from_millis(500));
    assert_eq!(exchanges("taken"), 0.0);
    // A connection that rests for 5 s is closed, so the next command begins a new one.
    std::thread::sleep(Duration::from_millis(5_600));
    assert_eq!(entry.command(WS, "sys.CUD", ROW).0, 200);
    entry.stop();
    owner.stop();
}

/// rustls takes a self-signed certificate as its own authority.
#[test]
fn nodes_may_share_a_certificate_that_signed_itself() {
    let folder = tempfile::tempdir().unwrap();
    let authority = TestAuthority::new();
    let mut params = CertificateParams::new(vec![NAME.to_owned()]).unwrap();
    params.is_ca = IsCa::ExplicitNoCa;
    let key = KeyPair::generate().unwrap();
    let pair = [params.self_signed(&key).unwrap().pem(), key.serialize_pem()];
    let options = |node| {
        let files = authority.files(folder.path(), node, NAME);
        files.write(pair.clone());
        fs::write(&files.authority, &pair[0]).unwrap();
        let tls = files.cluster().unwrap();
        tls.check_own().unwrap();
        NodeOptions { tls: Some(tls), ..NodeOptions::default() }
    };
    let cluster = TestCluster::new();
    let (owner, entry) = (cluster.owner(options("owner")), cluster.entry(options("entry")));
    let done = entry.ask("POST", &command_path(WS, "sys.CUD"), "", ROW);
    assert_eq!(done.status, 200, "{done:?}");
    assert_eq!(done.header("x-vvm-served-by"), Some(&*owner.api.to_string()));
    entry.stop();
    owner.stop();
}

/// A node started with a leaf certificate in its file of authorities, and then no peer could
/// connect.
#[test]
fn a_leaf_in_the_place_of_the_authority_of_the_nodes_is_refused() {
    let folder = tempfile::tempdir().unwrap();
    let authority = TestAuthority::new();
    let files = authority.files(folder.path(), "node", NAME);
    let own = fs::read_to_string(&files.certificate).unwrap();
    for (text, number) in [(own.clone(), 1), (authority.pem() + &own, 2)] {
        fs::write(&files.authority, text).unwrap();
        let error = files.cluster().unwrap_err();
        assert_eq!((error.file, &error.path), (TlsFile::Authority, &files.authority));
        let why = format!("certificate {number} in the file is no authority (CA:TRUE): give");
        let error = error.to_string();
        assert!(error.contains(&why) && error.ends_with("of the clients or nodes"), "{error}");
    }
}

#[test]
fn settings_that_trust_other_machines_are_refused() {
    let api = HttpApiSettings::new("127.0.0.1:0".parse().unwrap());
    let with = |cluster| HttpApi::with_cluster(api.clone(), cluster).map(|_| ());
    let open = ClusterSettings::new("0.0.0.0:0".parse().unwrap());
    assert!(matches!(with(open.clone()), Err(ClusterSettingsError::Open(_))));
    let folder = tempfile::tempdir().unwrap();
    let files = TestAuthority::new().files(folder.path(), "node", NAME);
    let tls = files.cluster().unwrap();
    with(ClusterSettings { tls: Some(tls), ..open }).unwrap();
    let foreign = TestAuthority::new().files(folder.path(), "other", NAME);
    type Change<'c> = &'c dyn Fn(&mut TestFiles);
    let changes: [(TlsFile, Change<'_>); 4] = [
        (TlsFile::Key, &|files| files.key.clone_from(&files.certificate)),
        (TlsFile::Key, &|files| files.key.clone_from(&foreign.key)),
        (TlsFile::Certificate, &|files| files.certificate.clone_from(&files.key)),
        (TlsFile::Authority, &|files| files.authority.push("none.pem")),
    ];
    for (file, change) in changes {
        let mut files = files.clone();
        change(&mut files);
        let error = files.cluster().unwrap_err();
        assert_eq!(error.file, file, "{error}");
        assert!(error.to_string().contains(".pem"), "{error}");
    }
}

/// A change of the authority of a cluster takes three steps: trust both authorities, replace the
/// certificates, trust only the new one. Nodes had to restart after each step.
#[test]
fn the_authority_of_a_cluster_changes_without_a_restart() {
    let folder = tempfile::tempdir().unwrap();
    let (former, new) = (TestAuthority::new(), TestAuthority::new());
    let files = ["owner", "entry"].map(|node| former.files(folder.path(), node, NAME));
    let options = |files: &TestFiles| NodeOptions {
        tls: Some(files.cluster().unwrap()),
        ..NodeOptions::default()
    };
    let cluster = TestCluster::new();
    let (owner, entry) = (cluster.owner(options(&files[0])), cluster.entry(options(&files[1])));
    let taken = "httpapi_certificate_exchanges_total{service=\"cluster\",outcome=\"taken\"}";
    let steps: [&dyn Fn(&TestFiles); 3] = [
        &|files| fs::write(&files.authority, former.pem() + &new.pem()).unwrap(),
        &|files| files.write(new.sign(NAME, |_| {})),
        &|files| fs::write(&files.authority, new.pem()).unwrap(),
    ];
    let mut sent = 0;
    let mut send = || {
        let (status, answer) = entry.command(WS, "sys.CUD", ROW);
        assert_eq!(status, 200, "{answer}");
        sent += 1;
    };
    for (done, step) in (1..).zip(steps) {
        for (node, files) in [&owner, &entry].into_iter().zip(&files) {
            step(files);
            while node.metric(taken) < f64::from(done) {
                send();
            }
        }
    }
    // A connection that rests for 5 s is closed, so the next command begins a new one.
    std::thread::sleep(Duration::from_millis(5_600));
    assert_eq!(owner.metric("httpapi_connections{service=\"cluster\"}"), 0.0);
    send();
    assert_eq!(logged(owner.api, WS).len(), sent + 1);
    entry.stop();
    // A node of the former authority is no node of the cluster any more.
    let stranger = former.files(folder.path(), "stranger", NAME);
    refused(&cluster, &owner, options(&stranger));
    owner.stop();
}
