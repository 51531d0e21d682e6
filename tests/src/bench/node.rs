//! The `vvm` program: nodes as processes, and clients.

#![expect(clippy::disallowed_methods, reason = "it waits for a process")]

use std::{
    fs::File,
    net::SocketAddr,
    path::{Path, PathBuf},
    process::{Child, Command, Stdio},
    time::Duration,
};

use super::BenchError;
use clock::Clock;
use rustix::{
    param::{clock_ticks_per_second, page_size},
    process::{Pid, Signal, kill_process},
};
use serde_json::Value;
use shop::http_client::try_request;
use tck::trial::free_address;

/// The longest time for anything.
const PATIENCE: Duration = Duration::from_secs(60);

/// The `vvm` program.
#[derive(Debug)]
pub struct BenchBinary {
    path: PathBuf,
    clock: Clock,
}

/// The figures of a round, as clients measured them.
#[derive(Clone, Copy, Debug)]
pub struct BenchFigures {
    /// The number of requests.
    pub count: f64,
    /// The requests in a second.
    pub per_second: f64,
    /// The median, in microseconds.
    pub p50: f64,
    /// The 99th percentile, in microseconds.
    pub p99: f64,
}

/// A process that is killed when this value is dropped.
#[derive(Debug)]
pub struct BenchProcess(Child);

impl Drop for BenchProcess {
    fn drop(&mut self) {
        // The process may already have ended.
        let _ = self.0.kill();
        let _ = self.0.wait();
    }
}

/// A node that is ready for commands.
#[derive(Debug)]
pub struct BenchNode {
    process: BenchProcess,
    api: SocketAddr,
}

impl BenchBinary {
    /// The program at this path.
    pub fn new(path: PathBuf, clock: Clock) -> BenchBinary {
        BenchBinary { path, clock }
    }

    /// Starts a node in a folder, and waits until it is ready.
    ///
    /// # Errors
    /// If the node is not ready in time.
    pub fn start(&self, command: &[&str], folder: &Path) -> Result<BenchNode, BenchError> {
        let (api, admin) = (free_address(), free_address());
        let log = folder.join("node.log");
        let child = Command::new(&self.path)
            .args(command)
            .args(["--listen", &api.to_string(), "--admin", &admin.to_string()])
            .current_dir(folder)
            .stdout(Stdio::null())
            .stderr(File::create(&log)?)
            .spawn()?;
        let mut process = BenchProcess(child);
        let end = self.clock.now() + PATIENCE;
        while !is_ready(admin) {
            if process.0.try_wait()?.is_some() || self.clock.now() > end {
                let text = std::fs::read_to_string(&log)?;
                return Err(format!("the node is not ready: {text}").into());
            }
            std::thread::sleep(Duration::from_millis(1));
        }
        Ok(BenchNode { process, api })
    }

    fn client(&self, node: &BenchNode, clients: u32) -> Command {
        let mut command = Command::new(&self.path);
        let (api, clients) = (node.api.to_string(), clients.to_string());
        command.args(["bench", "--json", "--node", &api, "--clients", &clients]);
        command
    }

    /// Sends requests for a time, and returns the figures. `more` are arguments of `vvm bench`;
    /// without them, the requests are commands.
    ///
    /// # Errors
    /// If a request fails.
    pub fn bench(
        &self,
        node: &BenchNode,
        clients: u32,
        workspaces: u32,
        seconds: u64,
        more: &[&str],
    ) -> Result<BenchFigures, BenchError> {
        let (workspaces, seconds) = (workspaces.to_string(), seconds.to_string());
        let mut command = self.client(node, clients);
        command.args(["--workspaces", &workspaces, "--seconds", &seconds]).args(more);
        let output = command.stderr(Stdio::null()).output()?;
        let report: Value = serde_json::from_slice(&output.stdout)?;
        if !output.status.success() {
            return Err(format!("requests failed: {report}").into());
        }
        let figure = |value: &Value| value.as_f64().ok_or_else(|| format!("no figure: {report}"));
        Ok(BenchFigures {
            count: figure(&report["done"])?,
            per_second: figure(&report["perSecond"])?,
            p50: figure(&report["micros"]["p50"])?,
            p99: figure(&report["micros"]["p99"])?,
        })
    }

    /// Begins to send commands, and waits until this has gone on for a while.
    ///
    /// # Errors
    /// If the program does not start.
    pub fn load(&self, node: &BenchNode, clients: u32) -> Result<BenchProcess, BenchError> {
        let mut command = self.client(node, clients);
        command.args(["--workspaces", "1000", "--seconds", "3600"]);
        let child = command.stdout(Stdio::null()).stderr(Stdio::null()).spawn()?;
        std::thread::sleep(Duration::from_secs(2));
        Ok(BenchProcess(child))
    }
}

impl BenchNode {
    /// The address of the API.
    pub fn api(&self) -> SocketAddr {
        self.api
    }

    /// Ends the node with a signal.
    ///
    /// # Errors
    /// If the node has ended already.
    pub fn end(mut self, signal: Signal) -> Result<(), BenchError> {
        kill_process(Pid::from_child(&self.process.0), signal)?;
        self.process.0.wait()?;
        Ok(())
    }

    /// The CPU time of the node so far.
    ///
    /// # Errors
    /// If the node has ended.
    pub fn cpu(&self) -> Result<Duration, BenchError> {
        let stat = self.read("stat")?;
        // The name of the program, in parentheses, may hold spaces.
        let rest = stat.rsplit_once(')').ok_or("no stat")?.1;
        let mut ticks = rest.split_ascii_whitespace().skip(11).map(str::parse::<u64>);
        let (user, system) = ticks.next().zip(ticks.next()).ok_or("no times")?;
        let seconds = (user? + system?) as f64 / clock_ticks_per_second() as f64;
        Ok(Duration::from_secs_f64(seconds))
    }

    /// The resident memory of the node, in bytes.
    ///
    /// # Errors
    /// If the node has ended.
    pub fn memory(&self) -> Result<usize, BenchError> {
        let statm = self.read("statm")?;
        let pages: usize = statm.split(' ').nth(1).ok_or("no statm")?.parse()?;
        Ok(pages * page_size())
    }

    /// The number of threads of the node.
    ///
    /// # Errors
    /// If the node has ended.
    pub fn threads(&self) -> Result<usize, BenchError> {
        let status = self.read("status")?;
        let threads = status.lines().find_map(|line| line.strip_prefix("Threads:"));
        Ok(threads.ok_or("no threads")?.trim().parse()?)
    }

    fn read(&self, name: &str) -> std::io::Result<String> {
        std::fs::read_to_string(format!("/proc/{}/{name}", self.process.0.id()))
    }
}

fn is_ready(admin: SocketAddr) -> bool {
    try_request(admin, "GET", "/readyz", &[], "").is_ok_and(|(status, _)| status == 200)
}
