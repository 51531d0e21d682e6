//! `vvm doctor`: each problem that can be made on this machine is found, and nothing is changed.

#![allow(clippy::unwrap_used, clippy::disallowed_methods)]

#[allow(dead_code, reason = "this suite needs a part of it")]
#[path = "support/fixture.rs"]
mod fixture;
#[allow(dead_code, reason = "this suite needs a part of it")]
#[path = "support/node.rs"]
mod node;
#[path = "support/trials.rs"]
mod trials;

use std::{
    collections::BTreeMap,
    fs,
    net::TcpListener,
    os::unix::fs::{PermissionsExt, chown},
    path::Path,
    process::{Command, Stdio},
    time::{Duration, SystemTime},
};

use fixture::{Storage, StorageFixture};
use ielections::LockFile;
use istorage_cassandra::{CommitLogSync, ServerSettings};
use node::{NodeProcess, free};
use rustix::process::Signal;
use serde_json::Value;
use tempfile::TempDir;

const VVM: &str = env!("CARGO_BIN_EXE_vvm");

/// The result of the command: its exit code and its checks.
struct Diagnosis {
    code: Option<i32>,
    checks: Vec<Value>,
}

impl Diagnosis {
    /// Runs a command that becomes `vvm doctor --json`, in a folder.
    fn of(command: &mut Command, folder: &Path) -> Diagnosis {
        let output = command.current_dir(folder).output().unwrap();
        let errors = String::from_utf8_lossy(&output.stderr);
        let answer: Value = serde_json::from_slice(&output.stdout).expect(&errors);
        assert_eq!(answer["ok"] == true, output.status.success(), "{answer}");
        let checks = answer["checks"].as_array().unwrap().clone();
        Diagnosis { code: output.status.code(), checks }
    }

    fn in_folder(folder: &Path, config: &str) -> Diagnosis {
        fs::write(folder.join("doctor.toml"), config).unwrap();
        Diagnosis::of(
            Command::new(VVM).args(["doctor", "--json", "--config", "doctor.toml"]),
            folder,
        )
    }

    fn all(&self, verdict: &str) -> Vec<&Value> {
        self.checks.iter().filter(|check| check["verdict"] == verdict).collect()
    }

    /// The only failure is this one, and its text has these parts. There is an advice.
    fn fails(&self, check: &str, parts: &[&str]) {
        assert_eq!(self.code, Some(1), "{:?}", self.checks);
        let failures = self.all("fail");
        assert!(
            !failures.is_empty() && failures.iter().all(|it| it["check"] == check),
            "{failures:?}"
        );
        has(failures[0], parts);
    }

    /// Nothing fails, and there is a warning of this check with these parts.
    fn warns(&self, check: &str, parts: &[&str]) {
        assert_eq!(self.code, Some(0), "{:?}", self.checks);
        let warnings = self.all("warn");
        let warning = warnings.iter().find(|it| it["check"] == check);
        has(warning.unwrap_or_else(|| panic!("{:?}", self.checks)), parts);
    }

    fn is_ok(&self, check: &str, parts: &[&str]) {
        let found = self.checks.iter().find(|it| it["check"] == check).unwrap();
        assert_eq!(found["verdict"], "ok", "{found}");
        let what = found["what"].as_str().unwrap();
        assert!(parts.iter().all(|part| what.contains(part)), "{found}");
    }
}

fn has(finding: &Value, parts: &[&str]) {
    let (what, advice) = (finding["what"].as_str().unwrap(), finding["advice"].as_str());
    for part in parts {
        assert!(what.contains(part), "{part}: {finding}");
    }
    assert!(advice.is_some_and(|advice| !advice.is_empty()), "{finding}");
}

fn folder() -> TempDir {
    tempfile::tempdir().unwrap()
}

/// A configuration with free ports.
fn with_ports(more: &str) -> String {
    let (api, admin) = (free(), free());
    format!("[http]\nlisten = \"{api}\"\n[admin]\nlisten = \"{admin}\"\n{more}\n")
}

fn new_machine() {
    let folder = folder();
    let found = Diagnosis::in_folder(folder.path(), &with_ports(""));
    assert_eq!(found.code, Some(0), "{:?}", found.checks);
    for check in ["configuration", "open files", "clock", "port", "folder", "sync"] {
        found.is_ok(check, &[]);
    }
    found.is_ok("storage", &["the node makes it"]);
    let manual = Path::new(env!("CARGO_MANIFEST_DIR")).join("../../docs/install.md");
    let manual = fs::read_to_string(manual).unwrap();
    for found in &found.checks {
        let row = format!("\n| `{}` | ", found["check"].as_str().unwrap());
        assert!(manual.contains(&row), "docs/install.md does not list {found}");
    }
    let left: Vec<_> = fs::read_dir(&folder).unwrap().collect();
    assert_eq!(left.len(), 1, "the check left something behind: {left:?}");
    let mut command = Command::new(VVM);
    command.args(["doctor", "--config", "doctor.toml"]).current_dir(&folder);
    let text = String::from_utf8(command.output().unwrap().stdout).unwrap();
    assert!(text.starts_with("ok    configuration  a node could start with it\n"), "{text}");
}

fn configuration() {
    let folder = folder();
    let found = Diagnosis::in_folder(folder.path(), "[http]\nlisten = \"nowhere\"\n");
    found.fails("configuration", &["doctor.toml, line 2", "`http.listen`"]);
}

/// A node does not start with files of TLS that it cannot use, and clients refuse a certificate
/// that has expired.
fn certificates() {
    let folder = folder();
    let path = |file: &str| folder.path().join(file);
    let sign_with = |ends: (i32, u8), change: fn(&mut rcgen::CertificateParams)| {
        let mut params = rcgen::CertificateParams::new(["localhost".to_owned()]).unwrap();
        params.not_before = rcgen::date_time_ymd(2020, 1, 1);
        params.not_after = rcgen::date_time_ymd(ends.0, ends.1, 1);
        change(&mut params);
        let key = rcgen::KeyPair::generate().unwrap();
        fs::write(path("node.pem"), params.self_signed(&key).unwrap().pem()).unwrap();
        fs::write(path("node-key.pem"), key.serialize_pem()).unwrap();
    };
    let sign = |ends| sign_with(ends, |_| {});
    let tls = "[admin.tls]\ncert_file = \"node.pem\"\nkey_file = \"node-key.pem\"";
    let diagnosis = || Diagnosis::in_folder(folder.path(), &with_ports(tls));
    diagnosis().fails("configuration", &["`admin.tls.cert_file`", "node.pem"]);
    sign((2090, 1));
    diagnosis().is_ok("certificate", &["`admin.tls` ends in"]);
    let mode = |mode| {
        fs::set_permissions(path("node-key.pem"), fs::Permissions::from_mode(mode)).unwrap();
    };
    mode(0o644);
    diagnosis().warns("private file", &["`admin.tls.key_file`", "all users", "node-key.pem"]);
    mode(0o640);
    diagnosis().warns("private file", &["the group of the file can read node-key.pem"]);
    mode(0o600);
    diagnosis().is_ok("private file", &["`admin.tls.key_file`: node-key.pem is private"]);
    sign((2021, 1));
    diagnosis().fails("certificate", &["`admin.tls` has expired"]);
    sign_with((2090, 1), |params| params.subject_alt_names.clear());
    diagnosis().fails("configuration", &["`admin.tls.cert_file`", "no `subjectAltName`"]);
    sign((2090, 1));
    // A certificate in the place of its authority was accepted.
    let tls = format!("{tls}\nclient_ca_file = \"node.pem\"");
    Diagnosis::in_folder(folder.path(), &with_ports(&tls)).fails(
        "configuration",
        &["`admin.tls.client_ca_file`", "node.pem", "is no authority (CA:TRUE): give"],
    );
}

/// Other machines reach the admin endpoint. A node does not start without the keys of its tokens.
fn access() {
    let folder = folder();
    let mut admin = free();
    admin.set_ip([0, 0, 0, 0].into());
    let ports = format!("[http]\nlisten = \"{}\"\n[admin]\nlisten = \"{admin}\"\n", free());
    let open = format!("{ports}allow_unauthenticated = true\n");
    Diagnosis::in_folder(folder.path(), &open).warns("access", &["has no authentication"]);
    let asks = "[access]\nkeys_file = \"keys.json\"\nissuer = \"https://issuer.example\"\n";
    let config = format!("{ports}{asks}");
    let found = Diagnosis::in_folder(folder.path(), &config);
    found.fails("configuration", &["`access.keys_file`", "keys.json"]);
    let mut keys = Command::new(VVM);
    keys.args(["token", "keygen", "--out", "key.json", "--public", "keys.json"]);
    assert!(keys.current_dir(&folder).output().unwrap().status.success());
    let found = Diagnosis::in_folder(folder.path(), &config);
    found.warns("access", &["the admin endpoint", "without TLS", "tokens can be read"]);
    found.is_ok("keys", &["`access.keys_file`", "keys in keys.json: 1"]);
    let keys = fs::read(folder.path().join("keys.json")).unwrap();
    fs::write(folder.path().join("keys.json"), "{\"keys\": []}").unwrap();
    let found = Diagnosis::in_folder(folder.path(), &config);
    found.warns("keys", &["keys.json has no key", "all tokens are refused"]);
    fs::write(folder.path().join("keys.json"), keys).unwrap();
    // A node warns of the same.
    let node = NodeProcess::start_at(folder.path(), &config, free(), admin);
    // A node that is killed earlier leaves a system keyspace that is not finished.
    node.until("/readyz", |status| status == 200);
    let log = node.log_text();
    assert!(log.contains("access at risk") && log.contains("tokens can be read"), "{log}");
    drop(node);
    let mode = |mode| {
        fs::set_permissions(folder.path().join("keys.json"), fs::Permissions::from_mode(mode))
    };
    mode(0o646).unwrap();
    let found = Diagnosis::in_folder(folder.path(), &config);
    found.warns("trusted file", &["`access.keys_file`", "all users", "can write keys.json"]);
    mode(0o644).unwrap();
    trusted_files(folder.path(), &config);
}

/// The command and the node did not find a link to a file of keys that others can replace, nor a
/// configuration that others can write.
fn trusted_files(folder: &Path, config: &str) {
    let set_mode = |name: &str, mode| {
        fs::set_permissions(folder.join(name), fs::Permissions::from_mode(mode)).unwrap();
    };
    fs::create_dir(folder.join("shared")).unwrap();
    fs::rename(folder.join("keys.json"), folder.join("shared/keys.json")).unwrap();
    std::os::unix::fs::symlink("shared/keys.json", folder.join("keys.json")).unwrap();
    set_mode("shared", 0o777);
    set_mode("doctor.toml", 0o644);
    let link = ["`access.keys_file`", "all users", "can replace keys.json through", "/shared"];
    Diagnosis::in_folder(folder, config).warns("trusted file", &link);
    set_mode("shared", 0o755);
    set_mode("doctor.toml", 0o666);
    let found = Diagnosis::in_folder(folder, config);
    found.warns("trusted file", &["`--config`", "all users", "can write doctor.toml"]);
    let (api, admin) = (free(), free());
    let own = format!("{}.toml", api.port());
    fs::write(folder.join(&own), "").unwrap();
    set_mode(&own, 0o666);
    let node = NodeProcess::start_at(folder, "", api, admin).ready();
    let warning = format!("all users of this machine can write {}", folder.join(own).display());
    let log = node.log_text();
    assert!(log.contains("access at risk") && log.contains(&warning), "{log}");
    node.stop();
}

fn port() {
    let (folder, taken) = (folder(), TcpListener::bind("127.0.0.1:0").unwrap());
    let config = with_ports(&format!("[cluster]\nlisten = \"{}\"\n", taken.local_addr().unwrap()));
    let config = format!("{config}[storage]\ndriver = \"dynamodb\"\n");
    let config =
        format!("{config}dynamodb = {{ endpoint = \"http://127.0.0.1:9\", region = \"local\" }}\n");
    let found = Diagnosis::in_folder(folder.path(), &config);
    let process = format!("process {}", std::process::id());
    let failures = found.all("fail");
    let failed = failures.iter().find(|it| it["check"] == "port").unwrap();
    has(failed, &["`cluster.listen`", "is held by doctor", &process]);
    let failed = failures.iter().find(|it| it["check"] == "storage").unwrap();
    has(failed, &["127.0.0.1:9"]);
}

fn address() {
    let folder = folder();
    // This network is for documents only (RFC 5737).
    let config = "[http]\nlisten = \"192.0.2.1:8822\"\nallow_unauthenticated = true\n";
    let config = format!("{config}[admin]\nlisten = \"{}\"\n", free());
    let found = Diagnosis::in_folder(folder.path(), &config);
    found.fails("port", &["192.0.2.1:8822", "does not belong to this machine"]);
}

fn folders() {
    let folder = folder();
    fs::write(folder.path().join("data"), "").unwrap();
    let found = Diagnosis::in_folder(folder.path(), &with_ports(""));
    found.fails("folder", &["data", "is not a folder"]);
    let other =
        with_ports("[node]\nfolder = \"/proc/vvm\"\n[storage.redb]\npath = \"x/vvm.redb\"\n");
    let found = Diagnosis::in_folder(folder.path(), &other);
    found.fails("folder", &["/proc/vvm", "cannot write to /proc: "]);
    // The advice was to give the folder above to the user of the node.
    let advice = found.all("fail")[0]["advice"].as_str().unwrap().to_owned();
    assert!(advice.ends_with("install -d -o vvm -m 750 /proc/vvm"), "{advice}");
    // A relative path of a folder that exists is not that of a missing one.
    let depth = folder.path().components().count() - 1;
    let there = format!("{}proc", "../".repeat(depth));
    let other = with_ports(&format!("[node]\nfolder = \"{there}\"\n"));
    let found = Diagnosis::in_folder(folder.path(), &other);
    let failures = found.all("fail");
    let advice = failures[0]["advice"].as_str().unwrap();
    assert!(advice.ends_with(&format!("chown vvm: {there}")), "{failures:?}");
    let open = folder.path().join("open");
    fs::create_dir(&open).unwrap();
    fs::set_permissions(&open, fs::Permissions::from_mode(0o777)).unwrap();
    let other = with_ports("[node]\nfolder = \"open\"\n[storage.redb]\npath = \"open/vvm.redb\"\n");
    Diagnosis::in_folder(folder.path(), &other).warns("folder", &["open", "every user"]);
    fs::set_permissions(&open, fs::Permissions::from_mode(0o755)).unwrap();
    // Only root may give a folder away.
    if chown(&open, Some(1), None).is_ok() {
        let owner = ["open belongs to the user 1, and not to this one"];
        Diagnosis::in_folder(folder.path(), &other).warns("folder", &owner);
    }
}

fn limit_of_files() {
    let folder = folder();
    fs::write(folder.path().join("doctor.toml"), with_ports("")).unwrap();
    let script = format!("ulimit -n 300 && exec {VVM} doctor --json --config doctor.toml");
    let found = Diagnosis::of(Command::new("sh").args(["-c", &script]), folder.path());
    found.warns("open files", &["up to 300", "50 connections"]);
}

/// A file system in memory that is nearly full.
fn small_disk() {
    let folder = folder();
    let config =
        with_ports("[node]\nfolder = \"small\"\n[storage.redb]\npath = \"small/vvm.redb\"\n");
    fs::write(folder.path().join("doctor.toml"), config).unwrap();
    fs::create_dir(folder.path().join("small")).unwrap();
    let script = format!(
        "mount -t tmpfs -o size=8m,mode=700 none small && exec {VVM} doctor --json --config doctor.toml"
    );
    let found =
        Diagnosis::of(Command::new("unshare").args(["-m", "sh", "-c", &script]), folder.path());
    found.fails("disk space", &["small", "of 8 MiB"]);
    let warnings = found.all("warn");
    let warned = warnings.iter().find(|it| it["check"] == "file system").unwrap();
    has(warned, &["is in memory"]);
}

fn can_mount() -> bool {
    let folder = folder();
    let mut mount = Command::new("unshare");
    mount.args(["-m", "mount", "-t", "tmpfs", "none"]).arg(folder.path());
    let mounted = mount.stdout(Stdio::null()).stderr(Stdio::null()).status();
    mounted.is_ok_and(|status| status.success())
}

/// A node works with the storage. It is not disturbed.
fn running_node() {
    let folder = folder();
    let node = NodeProcess::start(folder.path(), "").ready();
    let config =
        format!("[http]\nlisten = \"{}\"\n[admin]\nlisten = \"{}\"\n", node.api, node.admin);
    let found = Diagnosis::in_folder(folder.path(), &config);
    let process = format!("held by vvm, process {}", node.pid().as_raw_nonzero());
    found.warns("port", &["`http.listen`", &process]);
    found.is_ok("storage", &["a node works with this storage"]);
    node.create_workspace(1);
    node.stop();
}

/// The storage of a node that was stopped is checked like the node checks it at its start.
fn deployment() {
    let folder = folder();
    NodeProcess::start(folder.path(), "").ready().stop();
    let found = Diagnosis::in_folder(folder.path(), &with_ports(""));
    found.is_ok("deployment", &["demo/shop fits its deployment"]);
    found.is_ok("leases", &["0 of 1 seats"]);
    // A node that starts has its lock before it opens the storage.
    let lock = LockFile::lock(&folder.path().join("data")).unwrap();
    let found = Diagnosis::in_folder(folder.path(), &with_ports(""));
    found.is_ok("storage", &["a node works with this storage"]);
    drop(lock);
    let found = Diagnosis::in_folder(folder.path(), &with_ports("[sequences]\ntrust_level = 2\n"));
    let counts = "trust level 0, and the configuration says 2: the stored level counts";
    found.warns("deployment", &["demo/shop is deployed with", counts]);
    fs::write(folder.path().join("tables.toml"), "[tables]\n").unwrap();
    let app = "[[apps]]\nname = \"demo/shop\"\npartitions = 3\ntables = \"tables.toml\"\nworkspaces = {}\n";
    let found = Diagnosis::in_folder(folder.path(), &with_ports(app));
    found.fails("deployment", &["it has 10 partitions, and the configuration says 3"]);
    NodeProcess::start(folder.path(), "").ready().stop();
    let file = folder.path().join("data/vvm.redb");
    let bytes = fs::read(&file).unwrap();
    fs::write(&file, &bytes[..bytes.len() / 2]).unwrap();
    Diagnosis::in_folder(folder.path(), &with_ports("")).fails("storage", &["vvm.redb"]);
}

/// The command repeated the log of a node that had been killed. It also began the next log, and as
/// another user it left a file that the node could not read.
fn unchanged() {
    let folder = folder();
    let mut node = NodeProcess::start(folder.path(), "").ready();
    node.create_workspace(1);
    node.signal(Signal::KILL);
    node.ended();
    let files = || {
        let entries = fs::read_dir(folder.path().join("data")).unwrap();
        let file = |entry: fs::DirEntry| (entry.file_name(), fs::read(entry.path()).unwrap());
        entries.map(|entry| file(entry.unwrap())).collect::<BTreeMap<_, _>>()
    };
    let before = files();
    assert!(before.len() > 1, "{:?}", before.keys());
    let config = with_ports("");
    // A read of the file of the lock would change this time. The command took the lock for a
    // moment, and a node that started meanwhile had no lock for all its life.
    let lock = folder.path().join("data/lease.lock");
    let read_at = SystemTime::UNIX_EPOCH + Duration::from_secs(1);
    let times = fs::FileTimes::new().set_accessed(read_at);
    fs::File::open(&lock).unwrap().set_times(times).unwrap();
    let accessed = || fs::metadata(&lock).unwrap().accessed().unwrap();
    Diagnosis::in_folder(folder.path(), &config)
        .is_ok("deployment", &["demo/shop fits its deployment"]);
    assert_eq!(accessed(), read_at, "the command has opened the lock");
    assert!(files() == before, "{:?}", files().keys());
}

/// The lease of a process that was killed is in the storage.
fn lease() {
    let folder = folder();
    let mut node = NodeProcess::start(folder.path(), "").ready();
    node.signal(Signal::KILL);
    node.ended();
    let config = with_ports(&format!("[node]\nadvertised = \"{}\"\n", node.api));
    let found = Diagnosis::in_folder(folder.path(), &config);
    found.warns("leases", &["seat 1 is held by", &node.api.to_string()]);
}

/// The storage is a server, and another node works with it.
fn server(fixture: &StorageFixture) {
    let folder = folder();
    let storage = fixture.config(&fixture.storage);
    let found = Diagnosis::in_folder(folder.path(), &with_ports(&storage));
    found.is_ok("storage", &["does not exist: the node makes it"]);
    let node = fixture.start("node", &storage).ready();
    let found = Diagnosis::in_folder(folder.path(), &with_ports(&storage));
    assert_eq!(found.code, Some(0), "{:?}", found.checks);
    found.is_ok("storage", &["it answers, and has the keyspace"]);
    found.is_ok("storage clock", &[]);
    if let Storage::Cassandra(addresses) = &fixture.storage {
        // Those of the tests sync late, as Cassandra does by default. Other servers may not.
        let servers = StorageFixture::server_settings(addresses);
        let late = |it: &&ServerSettings| it.commit_log_sync() == CommitLogSync::AfterAnswers;
        let late = servers.iter().filter(late).map(|it| it.server().to_string());
        match &late.collect::<Vec<_>>()[..] {
            [] => found.is_ok("commit log", &[]),
            late => found.warns("commit log", &["acknowledge writes before", &late.join(", ")]),
        }
        // Those of the tests have longer timeouts than Cassandra by default. Other servers may not.
        let problem = |it: &ServerSettings| Some((it.server().to_string(), it.problems().pop()?));
        match servers.iter().find_map(problem) {
            None => found.is_ok("servers", &[]),
            Some((server, problem)) => {
                let named = |it: &&Value| it["what"] == format!("{server}: {}", problem.what);
                assert!(found.all("warn").iter().any(named), "{:?}", found.checks);
            }
        }
    }
    found.is_ok("deployment", &["demo/shop fits its deployment"]);
    found.is_ok("leases", &["1 of 16 seats"]);
    node.create_workspace(1);
    node.stop();
}

fn memory() {
    let folder = folder();
    let found = Diagnosis::in_folder(folder.path(), &with_ports("[storage]\ndriver = \"mem\"\n"));
    found.warns("storage", &["all data are in memory"]);
    let huge = with_ports("[storage.redb]\ncache_bytes = 100000000000000\n");
    Diagnosis::in_folder(folder.path(), &huge).warns("memory", &["takes up to"]);
}

fn main() {
    let alone: [(&str, fn()); 14] = [
        ("a_new_machine_has_nothing_to_complain_about", new_machine),
        ("a_wrong_configuration_is_found", configuration),
        ("a_port_that_is_held_and_a_storage_that_does_not_answer_are_found", port),
        ("files_of_tls_and_certificates_that_are_over_are_found", certificates),
        ("open_access_and_missing_keys_are_found", access),
        ("an_address_of_another_machine_is_found", address),
        ("folders_that_cannot_be_used_are_found", folders),
        ("a_small_limit_of_files_is_found", limit_of_files),
        ("a_small_disk_is_found", small_disk),
        ("a_node_at_work_is_found_and_not_disturbed", running_node),
        ("a_deployment_that_does_not_fit_is_found", deployment),
        ("the_storage_of_a_killed_process_is_not_changed", unchanged),
        ("the_lease_of_a_killed_process_is_found", lease),
        ("a_storage_in_memory_and_too_little_memory_are_found", memory),
    ];
    let can_mount = can_mount();
    let alone = alone.map(|(name, run)| (name, run, name != "a_small_disk_is_found" || can_mount));
    trials::run(alone, ("the_storage_of_a_node_at_work_is_checked", server))
}
