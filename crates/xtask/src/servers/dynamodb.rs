//! DynamoDB Local, in memory: its data end with it.

use std::{
    fs,
    net::{Ipv4Addr, SocketAddr},
    path::Path,
};

use super::{DataFiles, Purpose, node, ports, probe::http_is_ready};
use crate::error::{Error, ErrorContext, Result};

const MAIN_CLASS: &str = "software.amazon.dynamodb.services.local.main.ServerRunner";

/// Starts the server, and returns its endpoint. The server listens on all addresses of the machine,
/// because it has no setting for the address.
pub(super) fn start(folder: &Path, purpose: Purpose) -> Result<String> {
    let files = DataFiles::prepare("dynamodb")?;
    let [port] = ports::free(&["0.0.0.0"], 1)?[..] else {
        return Err(Error::Failed("one port is needed".to_owned()));
    };
    let node_folder = folder.join("node1");
    fs::create_dir_all(&node_folder).context(node_folder.display())?;
    let mut arguments =
        vec!["-Xmx2G".to_owned(), format!("-Djava.library.path={}", files.jars.display())];
    arguments.extend(purpose.java_options().iter().map(|&option| option.to_owned()));
    arguments.extend(["-cp".to_owned(), files.class_path(), MAIN_CLASS.to_owned()]);
    // With a shared database every access key and region sees the same tables.
    arguments.extend(["-inMemory", "-sharedDb", "-disableTelemetry"].map(str::to_owned));
    arguments.extend(["-port".to_owned(), port.to_string()]);
    node::launch(&files.java, &arguments, &node_folder)?;
    let socket = SocketAddr::from((Ipv4Addr::LOCALHOST, port));
    let what = format!("[dynamodb] waiting for the server at {socket}");
    eprintln!("{what}");
    node::wait_until(&what, &node_folder, || http_is_ready(socket))?;
    Ok(format!("http://{socket}"))
}
