//! Stopping and killing processes of this machine: servers that `cargo xtask` started, and
//! processes that a test started itself.

use std::{
    fs,
    net::{SocketAddr, TcpStream},
    os::unix::process::CommandExt,
    path::PathBuf,
    process::{Child, Command, Stdio},
    sync::{Mutex, PoisonError},
    thread,
    time::Duration,
};

use clock::Clock;

/// Processes that are suspended until this value is dropped.
#[derive(Debug)]
pub struct SuspendedProcesses(Vec<u32>);

impl SuspendedProcesses {
    /// Suspends a process that the test started.
    ///
    /// # Errors
    /// If the process cannot be suspended.
    pub fn process(pid: u32) -> Result<SuspendedProcesses, String> {
        signal(pid, "-STOP")?;
        Ok(SuspendedProcesses(vec![pid]))
    }

    /// Suspends the DynamoDB Local that was started for this port.
    ///
    /// # Errors
    /// If DynamoDB Local is not a process of this machine, or cannot be suspended.
    pub fn dynamodb_at(port: u16) -> Result<SuspendedProcesses, String> {
        let option = ["-port".to_owned(), port.to_string()];
        let has_option = |pid: &u32| {
            command_of(*pid).is_some_and(|words| words.windows(2).any(|pair| pair == option))
        };
        let pid = pids().and_then(|mut pids| pids.find(has_option));
        let pid = pid.ok_or_else(|| format!("port {port} is of no process of this machine"))?;
        SuspendedProcesses::process(pid)
    }

    /// Suspends the Cassandra nodes at these addresses.
    ///
    /// # Errors
    /// If one of the nodes is not a process of this machine, or cannot be suspended. Then no node
    /// stays suspended.
    pub fn nodes_at(addresses: &[&str]) -> Result<SuspendedProcesses, String> {
        let mut found = Vec::new();
        for address in addresses {
            let node = node_at(address);
            found.push(node.ok_or_else(|| format!("{address} is no process of this machine"))?);
        }
        let mut stopped = SuspendedProcesses(Vec::new());
        for pid in found {
            signal(pid, "-STOP")?;
            stopped.0.push(pid);
        }
        Ok(stopped)
    }
}

impl Drop for SuspendedProcesses {
    fn drop(&mut self) {
        for pid in &self.0 {
            // A process that cannot be resumed has ended.
            let _ = signal(*pid, "-CONT");
        }
    }
}

/// A Cassandra node that was killed. The node is started again, with its data, when this value is
/// dropped.
#[derive(Debug)]
pub struct KilledServer {
    command: Vec<String>,
    folder: PathBuf,
}

impl KilledServer {
    /// Kills the Cassandra node at this address, and waits until nothing listens there any more: a
    /// process that was killed keeps its connections until its memory is free.
    ///
    /// # Errors
    /// If the node is not a process of this machine, or cannot be killed.
    pub fn node_at(address: &str) -> Result<KilledServer, String> {
        let pid =
            node_at(address).ok_or_else(|| format!("{address} is no process of this machine"))?;
        let command = command_of(pid).ok_or_else(|| format!("{pid} has no command line"))?;
        let folder = folder_of(&command).ok_or_else(|| format!("{pid} has no folder"))?;
        signal(pid, "-KILL")?;
        reap(pid);
        let killed = KilledServer { command, folder };
        until_deaf(address)?;
        Ok(killed)
    }
}

impl Drop for KilledServer {
    fn drop(&mut self) {
        let started = Command::new(&self.command[0])
            .args(&self.command[1..])
            .current_dir(&self.folder)
            .stdin(Stdio::null())
            .stdout(Stdio::null())
            .stderr(Stdio::null())
            .process_group(0)
            .spawn();
        // `cargo xtask`, which started the first process of the node, finds the new process by this
        // file.
        let noted = started.and_then(|child| {
            let noted = fs::write(self.folder.join("pid"), child.id().to_string());
            RESTARTED.lock().unwrap_or_else(PoisonError::into_inner).push(child);
            noted
        });
        if let Err(error) = noted {
            eprintln!("{} is not started again: {error}", self.folder.display());
        }
    }
}

fn until_deaf(address: &str) -> Result<(), String> {
    let clock = Clock::system();
    let deadline = clock.now() + Duration::from_secs(10);
    while TcpStream::connect(address).is_ok() {
        if clock.now() >= deadline {
            return Err(format!("{address} was killed, and takes connections"));
        }
        thread::yield_now();
    }
    Ok(())
}

/// The nodes that this process started again. Each must be waited for when it was killed:
/// otherwise it stays in the table of processes until this process ends.
static RESTARTED: Mutex<Vec<Child>> = Mutex::new(Vec::new());

/// Waits for the end of a process that was killed, if it is a child of this process.
fn reap(pid: u32) {
    let mut restarted = RESTARTED.lock().unwrap_or_else(PoisonError::into_inner);
    if let Some(place) = restarted.iter().position(|child| child.id() == pid) {
        // If this call fails, the process is not in the table any more.
        let _ = restarted.swap_remove(place).wait();
    }
}

fn pids() -> Option<impl Iterator<Item = u32>> {
    Some(fs::read_dir("/proc").ok()?.filter_map(|entry| {
        entry.ok()?.file_name().to_str().and_then(|name| name.parse::<u32>().ok())
    }))
}

fn command_of(pid: u32) -> Option<Vec<String>> {
    let command = fs::read(format!("/proc/{pid}/cmdline")).ok()?;
    let command = String::from_utf8_lossy(&command);
    Some(command.trim_end_matches('\0').split('\0').map(str::to_owned).collect())
}

/// The folder of a node, as the command line of the node names the folder.
fn folder_of(command: &[String]) -> Option<PathBuf> {
    command.iter().find_map(|word| word.strip_prefix("-Dcassandra.logdir=")).map(PathBuf::from)
}

/// Finds the process of the node that answers at an address. The command line of the process names
/// the folder of the node, and the configuration in the folder names the address.
fn node_at(address: &str) -> Option<u32> {
    let address: SocketAddr = address.parse().ok()?;
    pids()?.find(|pid| serves(*pid, address).unwrap_or(false))
}

fn serves(pid: u32, address: SocketAddr) -> Option<bool> {
    let folder = folder_of(&command_of(pid)?)?;
    let yaml = fs::read_to_string(folder.join("cassandra.yaml")).ok()?;
    let says = |line: String| yaml.lines().any(|there| there == line);
    Some(
        says(format!("rpc_address: {}", address.ip()))
            && says(format!("native_transport_port: {}", address.port())),
    )
}

fn signal(pid: u32, signal: &str) -> Result<(), String> {
    let status = Command::new("kill").args([signal, &pid.to_string()]).status();
    match status {
        Ok(status) if status.success() => Ok(()),
        other => Err(format!("kill {signal} {pid}: {other:?}")),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_node_that_is_killed_again_leaves_the_table_of_processes() {
        let folder = tempfile::tempdir().unwrap();
        let address = "127.0.0.9:9";
        let yaml = "rpc_address: 127.0.0.9\nnative_transport_port: 9\n";
        fs::write(folder.path().join("cassandra.yaml"), yaml).unwrap();
        let option = format!("-Dcassandra.logdir={}", folder.path().display());
        // It ends by itself, so nothing stays behind if the test fails.
        let script = "for i in 1 2 3 4 5 6 7 8 9 10; do sleep 1; done";
        let command = ["sh", "-c", script, "sh", &option].map(str::to_owned).to_vec();
        drop(KilledServer { command, folder: folder.path().to_owned() });
        let pid = fs::read_to_string(folder.path().join("pid")).unwrap();
        assert!(PathBuf::from("/proc").join(&pid).exists());
        until_named(pid.parse().unwrap());
        let killed = KilledServer::node_at(address).unwrap();
        assert!(!PathBuf::from("/proc").join(&pid).exists(), "{pid} was not waited for");
        // It must not start again.
        std::mem::forget(killed);
    }

    /// Waits for the command line of a new process. The system lets the parent go on a moment
    /// before it shows the command line: on a busy machine this test looked in that moment, one
    /// time in eight.
    fn until_named(pid: u32) {
        let clock = Clock::system();
        let deadline = clock.now() + Duration::from_secs(10);
        while command_of(pid).and_then(|command| folder_of(&command)).is_none() {
            assert!(clock.now() < deadline, "{pid} has no command line");
            thread::yield_now();
        }
    }
}
