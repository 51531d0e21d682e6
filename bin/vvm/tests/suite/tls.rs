//! TLS of a node as a process, and the commands that talk to it.

use std::{
    fs,
    path::Path,
    process::{Command, Output},
    thread::sleep,
    time::{Duration, Instant},
};

use rcgen::{
    BasicConstraints, CertificateParams, CertifiedIssuer, DnType, ExtendedKeyUsagePurpose, IsCa,
    KeyPair,
};
use shop::http_client::try_request;

use crate::node::{self, NodeProcess, PATIENCE};

/// An authority that signs certificates.
struct Authority(CertifiedIssuer<'static, KeyPair>);

impl Authority {
    fn new(name: &str) -> Authority {
        let mut params = CertificateParams::new(Vec::new()).unwrap();
        params.is_ca = IsCa::Ca(BasicConstraints::Unconstrained);
        params.distinguished_name.push(DnType::CommonName, name);
        Authority(CertifiedIssuer::self_signed(params, KeyPair::generate().unwrap()).unwrap())
    }

    /// Writes the certificate of the authority.
    fn write(&self, path: &Path) {
        fs::write(path, self.0.as_ref().pem()).unwrap();
    }

    /// Writes a certificate for some names, and its key.
    fn sign(&self, folder: &Path, file: &str, names: &[&str]) {
        self.sign_changed(folder, file, names, |_| {});
    }

    fn sign_changed(
        &self,
        folder: &Path,
        file: &str,
        names: &[&str],
        change: impl FnOnce(&mut CertificateParams),
    ) {
        let names: Vec<_> = names.iter().copied().map(str::to_owned).collect();
        let mut params = CertificateParams::new(names).unwrap();
        params.extended_key_usages =
            vec![ExtendedKeyUsagePurpose::ServerAuth, ExtendedKeyUsagePurpose::ClientAuth];
        change(&mut params);
        let key = KeyPair::generate().unwrap();
        let own = params.signed_by(&key, &self.0).unwrap();
        fs::write(folder.join(format!("{file}.pem")), own.pem()).unwrap();
        fs::write(folder.join(format!("{file}-key.pem")), key.serialize_pem()).unwrap();
    }
}

/// Runs a command with the variables of the files in the folder.
fn vvm(folder: &Path, line: &[&str], variables: &[(&str, &str)]) -> Output {
    let mut command = Command::new(env!("CARGO_BIN_EXE_vvm"));
    command.args(line).current_dir(folder).env_remove("RUST_LOG");
    command.envs(variables.iter().copied()).output().unwrap()
}

fn text(bytes: &[u8]) -> String {
    String::from_utf8_lossy(bytes).into_owned()
}

/// The variables of an operator with a certificate.
const OPERATOR: [(&str, &str); 3] = [
    ("VVM_CA_FILE", "ca.pem"),
    ("VVM_CERT_FILE", "operator.pem"),
    ("VVM_KEY_FILE", "operator-key.pem"),
];

/// A folder with certificates, and the configuration of a node that uses them.
fn secured() -> (tempfile::TempDir, Authority, String) {
    let folder = tempfile::tempdir().unwrap();
    let (authority, operators) = (Authority::new("nodes"), Authority::new("operators"));
    authority.write(&folder.path().join("ca.pem"));
    operators.write(&folder.path().join("operators-ca.pem"));
    authority.sign(folder.path(), "node", &["localhost", "127.0.0.1"]);
    operators.sign(folder.path(), "operator", &["an operator"]);
    operators.sign_changed(folder.path(), "expired", &["an operator"], |params| {
        params.not_after = rcgen::date_time_ymd(2020, 1, 1);
    });
    operators.sign_changed(folder.path(), "serving", &["an operator"], |params| {
        params.extended_key_usages = vec![ExtendedKeyUsagePurpose::ServerAuth];
    });
    let files = "cert_file = \"node.pem\"\nkey_file = \"node-key.pem\"";
    let config = format!(
        "[storage]\ndriver = \"mem\"\n[http.tls]\n{files}\n\
         [admin.tls]\n{files}\nclient_ca_file = \"operators-ca.pem\"\n"
    );
    (folder, authority, config)
}

/// Waits until the node leads.
fn wait(node: &NodeProcess, folder: &Path) {
    let (start, admin) = (Instant::now(), node.admin.to_string());
    loop {
        let status = vvm(folder, &["status", "--admin", &admin], &OPERATOR);
        if text(&status.stdout).contains("leads seat 1") {
            return;
        }
        assert!(start.elapsed() < PATIENCE, "{} {}", text(&status.stderr), node.log_text());
        sleep(Duration::from_millis(50));
    }
}

#[test]
fn every_command_for_a_node_talks_tls() {
    let (folder, _, config) = secured();
    let folder = folder.path();
    let node = NodeProcess::start(folder, &config);
    wait(&node, folder);
    let port = |port: u16| format!("localhost:{port}");
    let (api, admin) = (port(node.api.port()), port(node.admin.port()));
    let (https_api, https_admin) = (format!("https://{api}"), format!("https://{admin}"));
    let lines: [(&[&str], &str); 6] = [
        (
            &["bench", "--node", &api, "--seconds", "1", "--clients", "4", "--check"],
            "0 commands are lost",
        ),
        (&["numbers", "list", "--node", &https_api], "order"),
        (&["numbers", "next", "order", "--node", &api], "ORDER"),
        (&["status", "--admin", &https_admin], "leads seat 1"),
        (&["cluster", "status", "--admin", &admin], "127.0.0.1"),
        (&["repair", "list", "--admin", &admin], ""),
    ];
    for (line, part) in lines {
        let output = vvm(folder, line, &OPERATOR);
        let (out, error) = (text(&output.stdout), text(&output.stderr));
        assert_eq!(output.status.code(), Some(0), "{line:?}: {out} {error}");
        assert!(out.contains(part), "{line:?}: {out}");
    }
    let plain_admin = format!("http://{admin}");
    let other = [("VVM_CA_FILE", "operators-ca.pem")];
    let of_node = [OPERATOR[0], ("VVM_CERT_FILE", "node.pem"), ("VVM_KEY_FILE", "node-key.pem")];
    let expired =
        [OPERATOR[0], ("VVM_CERT_FILE", "expired.pem"), ("VVM_KEY_FILE", "expired-key.pem")];
    let serving =
        [OPERATOR[0], ("VVM_CERT_FILE", "serving.pem"), ("VVM_KEY_FILE", "serving-key.pem")];
    let mixed = [OPERATOR[0], OPERATOR[1], ("VVM_KEY_FILE", "node-key.pem")];
    type Refusal<'r> = (&'r [&'r str], &'r [(&'r str, &'r str)], i32, &'r str);
    let other_key =
        format!("node-key.pem: the key does not belong to the first certificate in {}", mixed[1].1);
    let lines: [Refusal<'_>; 11] = [
        // The node says what is wrong with a plain request.
        (&["status", "--admin", &admin], &[], 1, "this port speaks TLS"),
        (&["status", "--admin", &plain_admin], &OPERATOR, 1, "this port speaks TLS"),
        (&["numbers", "list", "--node", &api], &[], 1, "this port speaks TLS"),
        (&["status", "--admin", &https_admin], &[], 2, "--ca-file FILE, or VVM_CA_FILE"),
        (&["numbers", "list", "--node", &api], &other, 4, "UnknownIssuer: --ca-file "),
        // The certificate of an operator is missing.
        (&["status", "--admin", &admin], &OPERATOR[..1], 4, "with --cert-file FILE"),
        // It is that of a node.
        (&["status", "--admin", &admin], &of_node, 4, "`admin.tls.client_ca_file`"),
        (&["status", "--admin", &admin], &expired, 4, "--cert-file has expired"),
        (&["status", "--admin", &admin], &serving, 4, "is not made for clients"),
        (&["status", "--admin", &admin], &mixed, 2, &other_key),
        // Without the certificate of the authority, the operator's own one was ignored.
        (&["status", "--admin", &admin], &OPERATOR[1..], 2, "--ca-file <FILE>"),
    ];
    for (line, variables, code, part) in lines {
        let output = vvm(folder, line, variables);
        let error = text(&output.stderr);
        assert_eq!(output.status.code(), Some(code), "{line:?}: {error}");
        assert!(error.contains(part), "{line:?}: {error}");
        // A node that refuses a certificate does run.
        assert!(!error.contains("check that the node runs"), "{line:?}: {error}");
    }
    let line = ["numbers", "list", "--node", &api, "--ca-file", "node-key.pem"];
    let output = vvm(folder, &line, &[]);
    let error = text(&output.stderr);
    assert!(output.status.code() == Some(2) && error.contains("has no certificate"), "{error}");
    node.stop();
}

/// The command sent its user to the doctor, which cannot know the name that clients use.
#[test]
fn a_command_under_a_wrong_name_lists_the_names_of_the_certificate() {
    let (folder, authority, config) = secured();
    let folder = folder.path();
    authority.sign(folder, "node", &["node1.example", "10.0.0.1"]);
    let node = NodeProcess::start(folder, &config);
    let line = ["numbers", "list", "--node", &format!("127.0.0.1:{}", node.api.port())];
    let start = Instant::now();
    let error = loop {
        let output = vvm(folder, &line, &OPERATOR);
        let error = text(&output.stderr);
        assert_eq!(output.status.code(), Some(4), "{error}");
        // The node may not listen yet.
        if !error.contains("no node answers") {
            break error;
        }
        assert!(start.elapsed() < PATIENCE, "{error}: {}", node.log_text());
        sleep(Duration::from_millis(50));
    };
    let names = "not for the name 127.0.0.1: use one of these names in the address: node1.example, \
                 10.0.0.1";
    assert!(error.contains(names) && !error.contains("vvm doctor"), "{error}");
    node.stop();
}

#[test]
fn a_command_with_tls_says_that_a_port_has_none() {
    let (folder, ..) = secured();
    let node = NodeProcess::start(folder.path(), "[storage]\ndriver = \"mem\"").ready();
    let admin = node.admin.to_string();
    let output = vvm(folder.path(), &["status", "--admin", &admin], &OPERATOR);
    let error = text(&output.stderr);
    assert_eq!(output.status.code(), Some(4), "{error}");
    assert!(error.ends_with("try http://\n"), "{error}");
    let plain = format!("http://{admin}");
    let output = vvm(folder.path(), &["status", "--admin", &plain], &OPERATOR);
    assert_eq!(output.status.code(), Some(0), "{}", text(&output.stderr));
    node.stop();
}

/// A node had to be restarted for each new certificate.
///
/// Each port looks at its files by itself. The test waited for the admin endpoint alone, so the API
/// could miss the first of two certificates.
#[test]
fn a_node_uses_new_files_without_a_restart() {
    let (folder, authority, config) = secured();
    let folder = folder.path();
    let node = NodeProcess::start(folder, &config);
    wait(&node, folder);
    let admin = node.admin.to_string();
    let status = || vvm(folder, &["status", "--admin", &admin], &OPERATOR).status.code();
    let until = |wanted| {
        let start = Instant::now();
        while status() != Some(wanted) {
            assert!(start.elapsed() < PATIENCE, "{}", node.log_text());
            sleep(Duration::from_millis(100));
        }
    };
    let until_exchanged = |count| {
        let start = Instant::now();
        while node.log_text().matches("certificate exchanged").count() < count {
            assert!(start.elapsed() < PATIENCE, "the API and the admin: {}", node.log_text());
            sleep(Duration::from_millis(100));
        }
    };
    // The new certificate is for another name, so the command refuses it.
    authority.sign(folder, "node", &["node2.example"]);
    until(4);
    until_exchanged(2);
    authority.sign(folder, "node", &["localhost", "127.0.0.1"]);
    until(0);
    until_exchanged(4);
    node.stop();
}

/// An admin endpoint that asks for certificates may be reached by other machines. Probes without a
/// certificate get nothing.
#[test]
fn an_admin_endpoint_with_client_certificates_may_listen_beyond_loopback() {
    let (folder, _, config) = secured();
    let folder = folder.path();
    let mut admin = node::free();
    admin.set_ip([0, 0, 0, 0].into());
    let node = NodeProcess::start_at(folder, &config, node::free(), admin);
    let reached = format!("localhost:{}", admin.port());
    let start = Instant::now();
    while vvm(folder, &["status", "--admin", &reached], &OPERATOR).status.code() != Some(0) {
        assert!(start.elapsed() < PATIENCE, "{}", node.log_text());
        sleep(Duration::from_millis(50));
    }
    let plain = try_request(([127, 0, 0, 1], admin.port()).into(), "GET", "/livez", &[], "");
    assert_eq!(plain.unwrap().0, 400);
    node.stop();
    let open = config.replace("client_ca_file = \"operators-ca.pem\"\n", "");
    let mut refused = NodeProcess::start_at(folder, &open, node::free(), admin);
    assert_eq!(refused.ended().code(), Some(3), "{}", refused.log_text());
    assert!(refused.log_text().contains("client_ca_file"), "{}", refused.log_text());
}
