//! A node as a process, and requests to it.

use std::{
    fs::File,
    io::{Read, Write},
    net::{SocketAddr, TcpListener, TcpStream},
    path::{Path, PathBuf},
    process::{Child, Command, ExitStatus, Stdio},
    time::{Duration, Instant},
};

use rustix::process::{Pid, Signal, kill_process};
use serde_json::Value;

pub(crate) const PATIENCE: Duration = Duration::from_secs(60);

/// A node as a process. Dropping it kills it.
pub(crate) struct NodeProcess {
    child: Child,
    pub(crate) api: SocketAddr,
    pub(crate) admin: SocketAddr,
    log: PathBuf,
}

/// Returns an address with a port that is free now.
pub(crate) fn free() -> SocketAddr {
    TcpListener::bind("127.0.0.1:0").unwrap().local_addr().unwrap()
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

    /// Returns the number of renewals that were confirmed when less than an eighth of a lease of so
    /// many seconds was left.
    #[allow(dead_code, reason = "only the suites of readers need it")]
    pub(crate) fn renewals_near_the_end(&self, lease_seconds: u64) -> u64 {
        let (_, metrics) = request(self.admin, "GET", "/metrics", &[], "");
        let metrics = metrics.as_str().unwrap();
        let eighth = lease_seconds as f64 / 8.0;
        let eighth = format!("ielections_left_seconds_bucket{{slot=\"1\",le=\"{eighth}\"}} ");
        let count = metrics.lines().find_map(|line| line.strip_prefix(&eighth));
        count.unwrap_or_else(|| panic!("{metrics}")).parse().unwrap()
    }

    /// Returns the ids of the requests in the log of a workspace.
    pub(crate) fn logged(&self, ws: u64) -> Vec<String> {
        let path = format!("{}/wlog?limit=1000000", workspace_path(ws));
        let (status, log) = try_request(self.api, "GET", &path, &[], "").unwrap();
        assert_eq!(status, 200, "{log}");
        let request = |line| {
            let event: Value = serde_json::from_str(line).unwrap();
            event["requestId"].as_str().unwrap().to_owned()
        };
        log.lines().map(request).collect()
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

pub(crate) fn workspace_path(ws: u64) -> String {
    format!("/api/v2/apps/demo/shop/workspaces/{ws}")
}

pub(crate) fn command_path(ws: u64, name: &str) -> String {
    format!("{}/commands/{name}", workspace_path(ws))
}

/// Sends one request on a new connection, and reads the answer as JSON.
pub(crate) fn request(
    address: SocketAddr,
    method: &str,
    path: &str,
    headers: &[(&str, &str)],
    body: &str,
) -> (u16, Value) {
    let (status, body) = try_request(address, method, path, headers, body).unwrap();
    (status, serde_json::from_str(&body).unwrap_or(Value::String(body)))
}

pub(crate) fn try_request(
    address: SocketAddr,
    method: &str,
    path: &str,
    headers: &[(&str, &str)],
    body: &str,
) -> std::io::Result<(u16, String)> {
    let mut stream = TcpStream::connect_timeout(&address, Duration::from_secs(5))?;
    stream.set_read_timeout(Some(Duration::from_secs(30)))?;
    let mut head = format!("{method} {path} HTTP/1.1\r\nhost: {address}\r\nconnection: close\r\n");
    for (name, value) in headers {
        head += &format!("{name}: {value}\r\n");
    }
    head += &format!("content-length: {}\r\n\r\n", body.len());
    stream.write_all(head.as_bytes())?;
    stream.write_all(body.as_bytes())?;
    answer(&mut stream)
}

/// Reads an answer until the end of the connection.
pub(crate) fn answer(stream: &mut TcpStream) -> std::io::Result<(u16, String)> {
    let mut bytes = Vec::new();
    stream.read_to_end(&mut bytes)?;
    let text = String::from_utf8_lossy(&bytes);
    let cut = || std::io::Error::other(format!("no whole answer: {text}"));
    let (head, body) = text.split_once("\r\n\r\n").ok_or_else(cut)?;
    let status = head.split(' ').nth(1).and_then(|status| status.parse().ok()).ok_or_else(cut)?;
    let is_chunked = head.to_ascii_lowercase().contains("transfer-encoding: chunked");
    let body = if is_chunked { unchunked(body).ok_or_else(cut)? } else { body.to_owned() };
    Ok((status, body))
}

fn unchunked(mut text: &str) -> Option<String> {
    let mut body = String::new();
    loop {
        let (size, rest) = text.split_once("\r\n")?;
        let size = usize::from_str_radix(size, 16).ok()?;
        if size == 0 {
            return Some(body);
        }
        body.push_str(rest.get(..size)?);
        text = rest.get(size + 2..)?;
    }
}
