//! A node as a process, and requests to it.

use std::{
    fs::File,
    net::SocketAddr,
    path::{Path, PathBuf},
    process::{Child, Command, ExitStatus, Stdio},
    time::{Duration, Instant},
};

use rustix::process::{Pid, Signal, kill_process};
use serde_json::Value;
use shop::http_client::{self, command_path, request, try_request};
pub(crate) use tck::trial::free_address as free;

pub(crate) const PATIENCE: Duration = Duration::from_secs(60);

/// A node as a process. Dropping it kills it.
pub(crate) struct NodeProcess {
    child: Child,
    pub(crate) api: SocketAddr,
    pub(crate) admin: SocketAddr,
    log: PathBuf,
}

impl NodeProcess {
    /// Starts `vvm serve` in a folder with a configuration, which may be empty.
    pub(crate) fn start(folder: &Path, config: &str) -> NodeProcess {
        NodeProcess::start_at(folder, config, free(), free())
    }

    pub(crate) fn start_at(
        folder: &Path,
        config: &str,
        api: SocketAddr,
        admin: SocketAddr,
    ) -> NodeProcess {
        NodeProcess::spawn(Command::new(env!("CARGO_BIN_EXE_vvm")), folder, config, api, admin)
    }

    /// Starts a program that is `vvm` or becomes `vvm`.
    pub(crate) fn spawn(
        mut command: Command,
        folder: &Path,
        config: &str,
        api: SocketAddr,
        admin: SocketAddr,
    ) -> NodeProcess {
        let file = folder.join(format!("{}.toml", api.port()));
        std::fs::write(&file, config).unwrap();
        let log = folder.join(format!("{}.log", api.port()));
        let stderr = File::options().create(true).append(true).open(&log).unwrap();
        let child = command
            .args(["serve", "--listen", &api.to_string(), "--admin", &admin.to_string()])
            .arg("--config")
            .arg(&file)
            .current_dir(folder)
            .env_remove("RUST_LOG")
            .stdout(Stdio::null())
            .stderr(stderr)
            .spawn()
            .unwrap();
        NodeProcess { child, api, admin, log }
    }

    /// Waits until the node can take commands.
    pub(crate) fn ready(self) -> NodeProcess {
        self.until("/readyz", |status| status == 200);
        self
    }

    /// Waits until the admin endpoint answers with a wanted status.
    pub(crate) fn until(&self, path: &str, wanted: impl Fn(u16) -> bool) {
        let start = Instant::now();
        loop {
            match try_request(self.admin, "GET", path, &[], "") {
                Ok((status, _)) if wanted(status) => return,
                _ => std::thread::sleep(Duration::from_millis(10)),
            }
            assert!(start.elapsed() < PATIENCE, "{path}: {}", self.log_text());
        }
    }

    /// Returns the log that the node wrote to stderr.
    pub(crate) fn log_text(&self) -> String {
        std::fs::read_to_string(&self.log).unwrap()
    }

    pub(crate) fn signal(&self, signal: Signal) {
        kill_process(self.pid(), signal).unwrap();
    }

    pub(crate) fn pid(&self) -> Pid {
        Pid::from_child(&self.child)
    }

    /// Waits for the end of the process.
    pub(crate) fn ended(&mut self) -> ExitStatus {
        let start = Instant::now();
        loop {
            if let Some(status) = self.child.try_wait().unwrap() {
                return status;
            }
            assert!(start.elapsed() < PATIENCE, "it does not end: {}", self.log_text());
            std::thread::sleep(Duration::from_millis(5));
        }
    }

    /// Stops the node in order.
    pub(crate) fn stop(mut self) {
        self.signal(Signal::TERM);
        let status = self.ended();
        assert_eq!(status.code(), Some(0), "{}", self.log_text());
    }

    /// Sends a command to the demo application.
    pub(crate) fn command(&self, ws: u64, name: &str, body: &str) -> (u16, Value) {
        request(self.api, "POST", &command_path(ws, name), &[], body)
    }

    pub(crate) fn create_workspace(&self, ws: u64) {
        let body = r#"{"args":{"kind":"Shop"}}"#;
        let (status, answer) = self.command(ws, "sys.CreateWorkspace", body);
        assert!(status == 200 || status == 409, "{status} {answer}");
    }

    /// Returns the number of renewals that were confirmed when less than an eighth of a lease of
    /// this many seconds was left.
    #[allow(dead_code, reason = "only the suites of readers need it")]
    pub(crate) fn renewals_near_the_end(&self, lease_seconds: u64) -> u64 {
        let (_, metrics) = request(self.admin, "GET", "/metrics", &[], "");
        let metrics = metrics.as_str().unwrap();
        let eighth = lease_seconds as f64 / 8.0;
        let eighth = format!("ielections_left_seconds_bucket{{seat=\"1\",le=\"{eighth}\"}} ");
        let count = metrics.lines().find_map(|line| line.strip_prefix(&eighth));
        count.unwrap_or_else(|| panic!("{metrics}")).parse().unwrap()
    }

    /// Returns the most memory that the process ever had, in MiB.
    #[allow(dead_code, reason = "only the suites of greedy clients need it")]
    pub(crate) fn most_memory(&self) -> u64 {
        let status = format!("/proc/{}/status", self.pid().as_raw_nonzero());
        let status = std::fs::read_to_string(status).unwrap();
        let line = status.lines().find_map(|line| line.strip_prefix("VmHWM:")).unwrap();
        line.trim().trim_end_matches(" kB").parse::<u64>().unwrap() >> 10
    }

    /// Returns the ids of the requests in the log of a workspace.
    pub(crate) fn logged(&self, ws: u64) -> Vec<String> {
        http_client::logged(self.api, ws)
    }
}

impl Drop for NodeProcess {
    fn drop(&mut self) {
        if std::thread::panicking() {
            eprintln!("the log of the node:\n{}", self.log_text());
        }
        // An error means that the process has ended.
        let _ = self.child.kill();
        let _ = self.child.wait();
    }
}

/// Checks the most memory of a node, in MiB, against the bound in its log.
#[allow(dead_code, reason = "only the suites of greedy clients need it")]
pub(crate) fn check_memory(most: u64, log: &str) {
    let (_, rest) = log.split_once("\"memory_mib\":").unwrap_or_else(|| panic!("{log}"));
    let bound = rest.split(|c: char| !c.is_ascii_digit()).next().unwrap().parse().unwrap();
    assert!(most <= bound, "{most} MiB, and not {bound}");
}
