//! The command that a newcomer calls to see a cluster: `cargo xtask cluster`.
//!
//! The command has fixed addresses. So these trials run one after another.

use std::{
    fs,
    io::{BufRead, BufReader, Read},
    net::{SocketAddr, TcpStream},
    os::unix::{fs::PermissionsExt, process::CommandExt},
    path::Path,
    process::{Child, Command, Stdio},
    time::{Duration, Instant},
};

use rustix::process::{Pid, Signal, kill_process, kill_process_group, test_kill_process};
use shop::http_client::{request, try_request};
use tck::trial::is_long;

use super::{
    fixture::{Storage, StorageFixture},
    node::PATIENCE,
};

/// The command, with everything that it started.
struct ClusterCommand(Child);

impl ClusterCommand {
    /// Starts the command with a program. A long round lets it start a Cassandra server of its own.
    fn start(cassandra: &str, binary: &Path) -> ClusterCommand {
        let mut command = xtask();
        command
            .args(["cluster", "--binary"])
            .arg(binary)
            .env("VVM_TEST_CASSANDRA", cassandra)
            .stdout(Stdio::piped())
            .stderr(Stdio::piped())
            .process_group(0);
        if is_long() {
            command.env_remove("VVM_TEST_CASSANDRA");
        }
        ClusterCommand(command.spawn().unwrap())
    }

    fn interrupt(&self) {
        kill_process_group(Pid::from_child(&self.0), Signal::INT).unwrap();
    }

    /// Waits for the end of a command that fails, and returns its errors.
    fn failed(mut self) -> String {
        let mut errors = String::new();
        self.0.stderr.take().unwrap().read_to_string(&mut errors).unwrap();
        assert!(!self.0.wait().unwrap().success(), "{errors}");
        errors
    }
}

impl Drop for ClusterCommand {
    fn drop(&mut self) {
        if matches!(self.0.try_wait(), Ok(None)) {
            self.interrupt();
            let _ = self.0.wait();
        }
    }
}

/// Returns the call of `xtask`. `cargo xtask test` names the program, because a call of cargo would
/// wait until the compilers of the other checks have ended.
fn xtask() -> Command {
    if let Some(program) = std::env::var_os("VVM_TEST_XTASK") {
        return Command::new(program);
    }
    let mut command = Command::new(env!("CARGO"));
    command.args(["run", "--quiet", "--package", "xtask", "--"]);
    command
}

/// Returns what stands between a word and the next space, in each line that has the word.
fn behind<T: std::str::FromStr>(lines: &[String], word: &str) -> Vec<T> {
    let texts = lines.iter().filter_map(|line| line.split(word).nth(1)?.split([' ', '/']).next());
    texts.filter_map(|text| text.trim_end_matches('.').parse().ok()).collect()
}

fn is_open(address: SocketAddr) -> bool {
    TcpStream::connect(address).is_ok()
}

/// The command starts three nodes that share the partitions. Ctrl-C ends it and everything that it
/// started. While it runs, another one leaves it alone.
pub(crate) fn one_command(fixture: &StorageFixture) {
    let Storage::Cassandra(cassandra) = &fixture.storage else { return };
    let binary = Path::new(env!("CARGO_BIN_EXE_vvm"));
    let mut command = ClusterCommand::start(cassandra, binary);
    let mut errors = BufReader::new(command.0.stderr.take().unwrap()).lines();
    let told = std::thread::spawn(move || errors.by_ref().map_while(Result::ok).for_each(drop));
    let lines = BufReader::new(command.0.stdout.take().unwrap()).lines().map(Result::unwrap);
    let lines: Vec<_> = lines.take_while(|line| !line.starts_with("Ctrl-C here")).collect();
    assert!(lines.iter().any(|line| line.starts_with("The cluster is ready.")), "{lines:?}");
    let (apis, admins): (Vec<SocketAddr>, Vec<SocketAddr>) =
        (behind(&lines, ": http://"), behind(&lines, "page http://"));
    let pids: Vec<i32> = behind(&lines, "  pid ");
    assert_eq!((apis.len(), admins.len(), pids.len()), (3, 3, 3), "{lines:?}");
    for admin in &admins {
        let (_, status) = request(*admin, "GET", "/cluster", &[], "");
        let members = status["members"].as_array().unwrap().iter();
        let mut counts: Vec<_> =
            members.map(|member| member["partitions"].as_u64().unwrap()).collect();
        counts.sort_unstable();
        assert_eq!(counts, [3, 3, 4], "{status}");
    }
    tried(&lines);

    let other = ClusterCommand::start(cassandra, binary).failed();
    assert!(other.contains("already runs in this checkout"), "{other}");
    assert!(apis.iter().all(|api| is_open(*api)), "another command stopped a node");

    command.interrupt();
    assert!(command.0.wait().unwrap().success());
    told.join().unwrap();
    for pid in pids {
        let gone = test_kill_process(Pid::from_raw(pid).unwrap());
        assert!(gone.is_err(), "the node of process {pid} goes on");
    }
    let own: Vec<SocketAddr> = behind(&lines, "Cassandra listens at ");
    assert_eq!(own.len(), 1, "{lines:?}");
    // A server that was there before stays.
    assert_eq!(is_open(own[0]), !is_long(), "Cassandra at {}", own[0]);
}

/// The two commands to try that the guide prints first do what it says.
fn tried(lines: &[String]) {
    let to_try = lines.iter().skip_while(|line| *line != "Try in another terminal:").skip(1);
    let to_try: Vec<_> = to_try.take(2).collect();
    assert_eq!(to_try.len(), 2, "{lines:?}");
    for line in to_try {
        // The bench of the guide takes a minute.
        let words = line.replace("--seconds 60", "--seconds 2");
        let mut words = words.split(' ');
        let output = Command::new(words.next().unwrap()).args(words).output().unwrap();
        let text = String::from_utf8_lossy(&output.stdout);
        assert!(output.status.success(), "{line}: {text}");
        assert!(text.contains("127.0.0.1:8824"), "{line}: {text}");
    }
}

/// A node does not start. The error names its log, and the others are stopped. The command before
/// was killed, and its node is stopped first.
pub(crate) fn one_part_fails(fixture: &StorageFixture) {
    let Storage::Cassandra(cassandra) = &fixture.storage else { return };
    let admin: SocketAddr = "127.0.0.1:55555".parse().unwrap();
    let mut killed = ClusterCommand::start(cassandra, Path::new(env!("CARGO_BIN_EXE_vvm")));
    let start = Instant::now();
    while !matches!(try_request(admin, "GET", "/livez", &[], ""), Ok((200, _))) {
        assert!(start.elapsed() < 3 * PATIENCE, "the first node does not start");
        std::thread::sleep(Duration::from_millis(50));
    }
    kill_process(Pid::from_child(&killed.0), Signal::KILL).unwrap();
    killed.0.wait().unwrap();
    assert!(is_open(admin), "nothing is left of a command that was killed");

    let folder = tempfile::tempdir().unwrap();
    let binary = folder.path().join("vvm");
    let script = format!(
        "#!/bin/sh\ncase \"$*\" in */node2/*) echo the disk is full >&2; exit 3;; esac\nexec {} \"$@\"\n",
        env!("CARGO_BIN_EXE_vvm")
    );
    fs::write(&binary, script).unwrap();
    fs::set_permissions(&binary, fs::Permissions::from_mode(0o755)).unwrap();
    let errors = ClusterCommand::start(cassandra, &binary).failed();
    let log = errors.split("node2 ended with exit status: 3: see ").nth(1).expect(&errors);
    let log = fs::read_to_string(log.lines().next().unwrap()).unwrap();
    assert!(log.contains("the disk is full"), "{log}");
    assert!(!is_open(admin), "the first node goes on");
}
