//! A node in memory, with one workspace.

use crate::node::NodeProcess;

/// The number of the workspace.
pub(crate) const WS: u64 = 1;

/// Starts the node with settings of `[http]`. Its folder lives as long as the first value.
pub(crate) fn node_with(http: &str) -> (tempfile::TempDir, NodeProcess) {
    let folder = tempfile::tempdir().unwrap();
    let config = format!("[storage]\ndriver = \"mem\"\n[http]\n{http}\n");
    let node = NodeProcess::start(folder.path(), &config).ready();
    node.create_workspace(WS);
    (folder, node)
}
