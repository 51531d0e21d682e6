//! Apache Cassandra: one node, or three that form a cluster. Each node has an address of its own in
//! the loopback network.

use std::{fs, net::SocketAddr, path::Path};

use super::{
    DataFiles, Purpose, node, ports,
    probe::{cassandra_is_ready, cassandra_sees_three},
};
use crate::{
    error::{Error, ErrorContext, Result},
    interrupt,
};

/// The addresses of the nodes for clients.
const ADDRESSES: [&str; 3] = ["127.0.0.1", "127.0.0.2", "127.0.0.3"];
/// The addresses of the nodes for each other.
const PEERS: [&str; 3] = ["127.0.1.1", "127.0.1.2", "127.0.1.3"];
const MAIN_CLASS: &str = "org.apache.cassandra.service.CassandraDaemon";

/// A node that joins listens to the gossip of the others for this time. With less time it finds no
/// seed.
const JOIN_DELAY_MS: u32 = 8_000;

/// Starts one node, and returns its address.
pub(super) fn start_single(folder: &Path, purpose: Purpose) -> Result<String> {
    start(folder, "cassandra", &ADDRESSES[..1], "2G", purpose)
}

/// Starts three nodes, and returns their addresses, separated by commas.
pub(super) fn start_cluster(folder: &Path, purpose: Purpose) -> Result<String> {
    start(folder, "cluster", &ADDRESSES, "512M", purpose)
}

fn start(
    folder: &Path,
    name: &str,
    addresses: &[&str],
    heap: &str,
    purpose: Purpose,
) -> Result<String> {
    let files = DataFiles::prepare("cassandra")?;
    let all = [addresses, &PEERS[..addresses.len()]].concat();
    let [native_port, storage_port] = ports::free(&all, 2)?[..] else {
        return Err(Error::Failed("two ports are needed".to_owned()));
    };
    let sockets =
        addresses.iter().map(|address| format!("{address}:{native_port}")).collect::<Vec<_>>();
    let sockets = sockets.iter().map(|text| socket(text)).collect::<Result<Vec<_>>>()?;
    let mut java_options = vec![format!("-Xmx{heap}")];
    java_options.extend(purpose.java_options().iter().map(|&option| option.to_owned()));
    for (i, (address, &socket)) in addresses.iter().zip(&sockets).enumerate() {
        let (native_port, storage_port) = (native_port.to_string(), storage_port.to_string());
        let words = [
            ("cluster", format!("vvm-{name}-{storage_port}")),
            ("address", (*address).to_owned()),
            ("peer_address", PEERS[i].to_owned()),
            ("native_port", native_port),
            ("storage_port", storage_port),
            ("commit_log", purpose.commit_log().to_owned()),
        ];
        let node_folder = folder.join(format!("node{}", i + 1));
        let join_delay_ms = if i == 0 { 0 } else { JOIN_DELAY_MS };
        launch(&files, &node_folder, &words, &java_options, join_delay_ms)?;
        let what =
            format!("[{name}] waiting for node {} of {} at {socket}", i + 1, addresses.len());
        eprintln!("{what}");
        node::wait_until(&what, &node_folder, || cassandra_is_ready(socket))?;
    }
    if addresses.len() == 3 {
        wait_until_joined(folder, name, &sockets)?;
    }
    Ok(sockets.iter().map(SocketAddr::to_string).collect::<Vec<_>>().join(","))
}

/// Waits until each node sees all nodes. A node answers drivers before it knows all others.
fn wait_until_joined(folder: &Path, name: &str, sockets: &[SocketAddr]) -> Result<()> {
    for (i, &socket) in sockets.iter().enumerate() {
        interrupt::check()?;
        let what = format!("[{name}] waiting for node {} to see all nodes", i + 1);
        node::wait_until(&what, &folder.join(format!("node{}", i + 1)), || {
            cassandra_sees_three(socket)
        })?;
    }
    Ok(())
}

fn launch(
    files: &DataFiles,
    folder: &Path,
    words: &[(&str, String)],
    java_options: &[String],
    join_delay_ms: u32,
) -> Result<()> {
    fs::create_dir_all(folder).context(folder.display())?;
    let template = files.path("cassandra.yaml");
    let template = fs::read_to_string(&template).context(template.display())?;
    let yaml = folder.join("cassandra.yaml");
    fs::write(&yaml, filled_in(&template, words)).context(yaml.display())?;
    let arguments = [
        format!("@{}", files.path("jvm.options").display()),
        format!("-Dcassandra.config={}", url(&yaml)),
        format!("-Dcassandra.storagedir={}", folder.join("data").display()),
        format!("-Dcassandra.logdir={}", folder.display()),
        format!("-Dcassandra.ring_delay_ms={join_delay_ms}"),
        format!("-Dlogback.configurationFile={}", files.path("logback.xml").display()),
        "-cp".to_owned(),
        files.class_path(),
        MAIN_CLASS.to_owned(),
    ];
    node::launch(&files.java, &[java_options, &arguments].concat(), folder)
}

fn url(path: &Path) -> String {
    format!("file://{}", path.display())
}

fn socket(text: &str) -> Result<SocketAddr> {
    text.parse().map_err(|error| Error::Failed(format!("{text}: {error}")))
}

/// Returns the template with each `${word}` replaced.
fn filled_in(template: &str, words: &[(&str, String)]) -> String {
    words.iter().fold(template.to_owned(), |text, (word, value)| {
        text.replace(&format!("${{{word}}}"), value)
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_variable_of_the_yaml_is_replaced() {
        let template = include_str!("../../../../tests/servers/cassandra/cassandra.yaml");
        let words =
            ["cluster", "address", "peer_address", "native_port", "storage_port", "commit_log"]
                .map(|word| (word, "X".to_owned()));
        let yaml = filled_in(template, &words);
        let settings = yaml.lines().filter(|line| !line.starts_with('#')).collect::<Vec<_>>();
        assert!(settings.contains(&"native_transport_port: X"), "{yaml}");
        assert!(settings.iter().all(|line| !line.contains("${")), "{yaml}");
    }
}
