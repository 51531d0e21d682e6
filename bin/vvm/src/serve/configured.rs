//! What operators' commands find in the configuration of a node.

use std::{
    net::{IpAddr, Ipv4Addr, Ipv6Addr, SocketAddr},
    path::Path,
};

use ctl::{CommandError, NamedStorage, NodeConfiguration, client::NodeAddress};
use eventlog::TrustLevel;
use vvm::NodeSettings;

use super::{configuration, environment, settings::settings_for};
use crate::{cli::ServeArgs, config::VvmConfig};

/// The functions by which commands ask the configuration.
pub(crate) const NODE_CONFIGURATION: NodeConfiguration =
    NodeConfiguration { admin, storage, settings };

fn admin(file: Option<&Path>) -> Result<NodeAddress, CommandError> {
    if file.is_some() {
        let admin = of_file(file)?.admin;
        let is_secured = Some(admin.tls.is_some());
        return Ok(NodeAddress { is_secured, ..reached_at(admin.listen).into() });
    }
    let mut overrides = environment()?;
    // Variables of other sections may need settings from the file.
    overrides.retain(|one| one.path.first().is_some_and(|section| section == "admin"));
    Ok(VvmConfig::read(None, &overrides)?.admin.listen.into())
}

fn storage(file: Option<&Path>) -> Result<NamedStorage, CommandError> {
    let config = of_file(file)?;
    let target = config.storage.to_target(&config.source)?;
    NamedStorage::new(target, config.storage.system_keyspace)
}

fn settings(file: Option<&Path>, level: TrustLevel) -> Result<NodeSettings, CommandError> {
    let config = of_file(file)?;
    let target = config.storage.to_target(&config.source)?;
    settings_for(&config, &target, level)
}

fn of_file(file: Option<&Path>) -> Result<VvmConfig, CommandError> {
    configuration(&ServeArgs { config: file.map(Path::to_owned), ..ServeArgs::default() })
}

/// The address at which this machine reaches a port: a node may listen on all addresses.
fn reached_at(listen: SocketAddr) -> SocketAddr {
    let ip = match listen.ip() {
        IpAddr::V4(ip) if ip.is_unspecified() => Ipv4Addr::LOCALHOST.into(),
        IpAddr::V6(ip) if ip.is_unspecified() => Ipv6Addr::LOCALHOST.into(),
        ip => ip,
    };
    SocketAddr::new(ip, listen.port())
}
