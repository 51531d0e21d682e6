//! What commands find in the configuration of a node.

use std::path::Path;

use eventlog::{Schema, TrustLevel};
use sysvvm::AppName;
use vvm::NodeSettings;

use crate::{
    CommandError,
    client::{ConnectionArgs, NodeAddress, NodeTarget},
    named_storage::NamedStorage,
};

/// What commands find in the configuration of a node: in the file, if one is given, the environment
/// and the defaults. The program reads configurations, and gives these functions to commands.
#[derive(Clone, Copy, Debug)]
pub struct NodeConfiguration {
    /// The address of the admin endpoint in the environment or the defaults.
    pub admin: fn() -> Result<NodeAddress, CommandError>,
    /// The storage.
    pub storage: fn(Option<&Path>) -> Result<NamedStorage, CommandError>,
    /// The tables of an application.
    pub tables: fn(Option<&Path>, &AppName) -> Result<Schema, CommandError>,
    /// The settings of a node whose applications have this trust level.
    pub settings: fn(Option<&Path>, TrustLevel) -> Result<NodeSettings, CommandError>,
}

impl NodeConfiguration {
    /// Returns the admin endpoint that a command asks: at the given address, or else at the address
    /// from the environment or the defaults. The file of the node is not known here.
    pub(crate) fn admin_target(
        self,
        given: Option<NodeAddress>,
        connection: &ConnectionArgs,
    ) -> Result<NodeTarget, CommandError> {
        let address = given.map_or_else(self.admin, Ok)?;
        Ok(connection.target(address)?.of_admin_port())
    }

    /// A configuration that has nothing.
    #[cfg(test)]
    pub(crate) fn none() -> NodeConfiguration {
        NodeConfiguration {
            admin: || unreachable!(),
            storage: |_| unreachable!(),
            tables: |_, _| unreachable!(),
            settings: |_, _| unreachable!(),
        }
    }
}
