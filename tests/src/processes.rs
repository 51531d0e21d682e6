//! Processes of this machine that stand still: servers that `cargo xtask` started, and those that a test started itself.

use std::{fs, net::SocketAddr, path::Path, process::Command};

/// Processes that stand still until this is dropped.
#[derive(Debug)]
pub struct Stopped(Vec<u32>);

impl Stopped {
    /// Stops a process that the test started.
    ///
    /// # Errors
    /// If it cannot be stopped.
    pub fn process(pid: u32) -> Result<Stopped, String> {
        signal(pid, "-STOP")?;
        Ok(Stopped(vec![pid]))
    }

    /// Stops the Cassandra nodes at these addresses.
    ///
    /// # Errors
    /// If one of them is no process of this machine, or cannot be stopped. None is then.
    pub fn nodes_at(addresses: &[&str]) -> Result<Stopped, String> {
        let mut found = Vec::new();
        for address in addresses {
            let node = node_at(address);
            found.push(node.ok_or_else(|| format!("{address} is no process of this machine"))?);
        }
        let mut stopped = Stopped(Vec::new());
        for pid in found {
            signal(pid, "-STOP")?;
            stopped.0.push(pid);
        }
        Ok(stopped)
    }
}

impl Drop for Stopped {
    fn drop(&mut self) {
        for pid in &self.0 {
            // What cannot be woken has ended.
            let _ = signal(*pid, "-CONT");
        }
    }
}

/// The process of the node that answers at an address: its command line names its folder, and the configuration in there the address.
fn node_at(address: &str) -> Option<u32> {
    let address: SocketAddr = address.parse().ok()?;
    let pids = fs::read_dir("/proc").ok()?.filter_map(|entry| {
        entry.ok()?.file_name().to_str().and_then(|name| name.parse::<u32>().ok())
    });
    let mut pids = pids.filter(|pid| serves(*pid, address).unwrap_or(false));
    pids.next()
}

fn serves(pid: u32, address: SocketAddr) -> Option<bool> {
    let command = fs::read(format!("/proc/{pid}/cmdline")).ok()?;
    let command = String::from_utf8_lossy(&command);
    let folder = command.split('\0').find_map(|word| word.strip_prefix("-Dvvm.node="))?;
    let yaml = fs::read_to_string(Path::new(folder).join("cassandra.yaml")).ok()?;
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
