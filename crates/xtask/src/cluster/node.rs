//! A node of the cluster: its folder, its configuration and its process.
//!
//! The folder of a node holds its configuration, its log, its data and its process id. If this
//! command is killed, the next one finds the node by this folder and stops it.

use std::{
    fs::{self, File},
    io::{Read, Write},
    net::{Ipv4Addr, SocketAddr, TcpListener, TcpStream},
    path::{Path, PathBuf},
    process::Command,
    time::{Duration, Instant},
};

use crate::{
    error::{ErrorContext, Result, failed},
    process::RunningChild,
    servers,
};

/// The number of nodes.
pub(super) const NODES: u16 = 3;

/// The ports of the first node: of the API, of the admin endpoint and for the other nodes. Each
/// other node has the next ports.
const PORTS: [u16; 3] = [8822, 55_555, 8832];

/// The addresses and the folder of a node.
pub(super) struct NodePlace {
    name: String,
    folder: PathBuf,
    pub(super) api: SocketAddr,
    pub(super) admin: SocketAddr,
    peers: SocketAddr,
}

impl NodePlace {
    /// Returns the places of all nodes, in a folder of the cluster.
    pub(super) fn all(cluster: &Path) -> Vec<NodePlace> {
        let place = |number| {
            let [api, admin, peers] =
                PORTS.map(|port| SocketAddr::from((Ipv4Addr::LOCALHOST, port + number)));
            let name = format!("node{}", number + 1);
            NodePlace { folder: cluster.join(&name), name, api, admin, peers }
        };
        (0..NODES).map(place).collect()
    }

    pub(super) fn config(&self) -> PathBuf {
        self.folder.join("vvm.toml")
    }

    pub(super) fn log(&self) -> PathBuf {
        self.folder.join("log")
    }

    /// Fails if another process listens at an address of the node.
    fn check_addresses(&self) -> Result<()> {
        for address in [self.api, self.admin, self.peers] {
            if let Err(error) = TcpListener::bind(address) {
                return failed(format!(
                    "{} of the cluster cannot listen at {address}: {error}: stop the node that runs there",
                    self.name
                ));
            }
        }
        Ok(())
    }

    /// The configuration, as in `config/cluster.toml`. Without TLS the cluster port can only be on
    /// this machine.
    fn config_text(&self, cassandra: &str) -> String {
        let servers: Vec<_> = cassandra.split(',').map(|address| format!("{address:?}")).collect();
        let NodePlace { folder, api, admin, peers, .. } = self;
        format!(
            "[storage]\ndriver = \"cassandra\"\n\n\
             [storage.cassandra]\ncontact_points = [{}]\nreplication = \"up_to_three\"\n\n\
             [node]\nfolder = {:?}\nacquire_seconds = 0\n\n\
             [cluster]\nlisten = \"{peers}\"\n\n\
             [http]\nlisten = \"{api}\"\n\n\
             [admin]\nlisten = \"{admin}\"\n",
            servers.join(", "),
            folder.join("data"),
        )
    }
}

/// Stops the nodes of a command that was killed. Fails if other processes use their addresses.
pub(super) fn make_room(places: &[NodePlace]) -> Result<()> {
    let folders: Vec<_> = places.iter().map(|place| place.folder.clone()).collect();
    servers::stop_processes(&folders)?;
    places.iter().try_for_each(NodePlace::check_addresses)
}

/// A running node.
pub(super) struct ClusterNode {
    pub(super) place: NodePlace,
    child: RunningChild,
}

impl ClusterNode {
    /// Starts a node in its folder, which does not exist yet.
    pub(super) fn start(place: NodePlace, cassandra: &str, binary: &Path) -> Result<ClusterNode> {
        fs::create_dir_all(&place.folder).context(place.folder.display())?;
        fs::write(place.config(), place.config_text(cassandra))
            .context(place.config().display())?;
        let log = File::create(place.log()).context(place.log().display())?;
        let mut command = Command::new(binary);
        command.args(["serve", "--config"]).arg(place.config());
        command.stdout(log.try_clone().context("cannot share the log")?).stderr(log);
        eprintln!("[{}] starting at {}", place.name, place.api);
        let child = RunningChild::start(&mut command)?;
        fs::write(place.folder.join("pid"), child.id().to_string())
            .context("cannot note the process id")?;
        Ok(ClusterNode { place, child })
    }

    pub(super) fn pid(&self) -> u32 {
        self.child.id()
    }

    pub(super) fn is_running(&mut self) -> Result<bool> {
        Ok(self.child.ended()?.is_none())
    }

    /// Fails if the node has ended.
    pub(super) fn check(&mut self) -> Result<()> {
        match self.child.ended()? {
            Some(status) => {
                let (NodePlace { name, .. }, log) = (&self.place, self.place.log());
                failed(format!("{name} ended with {status}: see {}", log.display()))
            }
            None => Ok(()),
        }
    }

    pub(super) fn ask_to_end(&self) {
        self.child.ask_to_end();
    }

    /// Waits until the node has ended. Kills it at the deadline, and says so.
    pub(super) fn end_by(self, deadline: Instant) {
        let (name, log) = (&self.place.name, self.place.log());
        if !self.child.end_by(deadline) {
            eprintln!("[{name}] did not stop in time and was killed: see {}", log.display());
        }
    }

    pub(super) fn is_ready(&self) -> bool {
        self.get("/readyz").is_some_and(|(status, _)| status == 200)
    }

    /// Whether each node owns a fair share of the partitions, as this node sees the cluster.
    pub(super) fn sees_fair_shares(&self) -> bool {
        self.get("/cluster").is_some_and(|(status, body)| status == 200 && are_fair_shares(&body))
    }

    /// Asks the admin endpoint, and returns the status and the body of the answer.
    fn get(&self, path: &str) -> Option<(u16, String)> {
        const WITHIN: Duration = Duration::from_secs(2);
        let address = self.place.admin;
        let mut stream = TcpStream::connect_timeout(&address, WITHIN).ok()?;
        stream.set_read_timeout(Some(WITHIN)).ok()?;
        let request =
            format!("GET {path} HTTP/1.1\r\nhost: {address}\r\nconnection: close\r\n\r\n");
        stream.write_all(request.as_bytes()).ok()?;
        let mut answer = String::new();
        stream.read_to_string(&mut answer).ok()?;
        let (head, body) = answer.split_once("\r\n\r\n")?;
        Some((head.split(' ').nth(1)?.parse().ok()?, body.to_owned()))
    }
}

fn are_fair_shares(status: &str) -> bool {
    let status: serde_json::Value = serde_json::from_str(status).unwrap_or_default();
    let partitions = status["partitions"].as_array().map_or(0, Vec::len) as u64;
    let counts = status["members"].as_array().into_iter().flatten();
    let counts: Vec<_> = counts.filter_map(|member| member["partitions"].as_u64()).collect();
    counts.len() == usize::from(NODES)
        && partitions > 0
        && counts.iter().sum::<u64>() == partitions
        && counts.iter().max() <= counts.iter().min().map(|least| least + 1).as_ref()
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::servers::ports;

    #[test]
    fn shares_are_fair_if_they_differ_by_one_and_nothing_is_free() {
        let status = |counts: &[u64]| {
            let members: Vec<_> =
                counts.iter().map(|count| serde_json::json!({ "partitions": count })).collect();
            serde_json::json!({ "partitions": vec![0; 10], "members": members }).to_string()
        };
        assert!(are_fair_shares(&status(&[3, 4, 3])));
        for unfair in [&[5, 5, 0][..], &[2, 4, 4], &[3, 3, 3], &[5, 5], &[]] {
            assert!(!are_fair_shares(&status(unfair)), "{unfair:?}");
        }
        assert!(!are_fair_shares("{}"));
    }

    #[test]
    fn nodes_have_addresses_and_folders_of_their_own() {
        let places = NodePlace::all(Path::new("/cluster"));
        let mut addresses: Vec<_> =
            places.iter().flat_map(|place| [place.api, place.admin, place.peers]).collect();
        addresses.sort_unstable();
        addresses.dedup();
        assert_eq!(addresses.len(), 9);
        let text = places[2].config_text("127.0.0.1:1,127.0.0.1:2");
        assert!(text.contains("contact_points = [\"127.0.0.1:1\", \"127.0.0.1:2\"]"), "{text}");
        assert!(text.contains("folder = \"/cluster/node3/data\""), "{text}");
    }

    #[test]
    fn a_taken_address_is_named() {
        // The system gives ports from 32768 on to clients, and gave one to another test.
        let port = ports::free(&["127.0.0.1"], 1).unwrap()[0];
        let taken = SocketAddr::from(([127, 0, 0, 1], port));
        let mut place = NodePlace::all(Path::new("/cluster")).remove(0);
        (place.api, place.admin, place.peers) = (taken, taken, taken);
        place.check_addresses().unwrap();
        let _listener = TcpListener::bind(taken).unwrap();
        let error = place.check_addresses().unwrap_err().to_string();
        assert!(error.contains(&format!("cannot listen at {taken}")), "{error}");
    }
}
