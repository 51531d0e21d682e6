//! The configuration of a node, for the node itself and for operators' commands.

use std::{
    net::{IpAddr, Ipv4Addr, Ipv6Addr, SocketAddr},
    path::Path,
};

use ctl::{CommandError, NamedStorage, NodeConfiguration, client::NodeAddress};
use eventlog::{Schema, TrustLevel};
use sysvvm::AppName;
use vvm::NodeSettings;

use super::settings::{apps, settings_for};
use crate::{
    cli::ServeArgs,
    config::{ConfigOverride, VvmConfig},
};

/// Reads the configuration of a node: the file, the environment and the flags.
pub(crate) fn configuration(args: &ServeArgs) -> Result<VvmConfig, CommandError> {
    let mut overrides = environment()?;
    if let Some(listen) = args.listen {
        overrides.push(ConfigOverride::of_flag("--listen", ["http", "listen"], listen));
    }
    if let Some(listen) = args.admin {
        overrides.push(ConfigOverride::of_flag("--admin", ["admin", "listen"], listen));
    }
    VvmConfig::read(args.config.as_deref(), &overrides)
}

/// The settings in the environment of the process.
fn environment() -> Result<Vec<ConfigOverride>, CommandError> {
    ConfigOverride::check_names(std::env::vars_os()).map_err(CommandError::config)?;
    Ok(ConfigOverride::of_environment(std::env::vars_os()))
}

/// The functions that commands use to read the configuration.
pub(crate) const NODE_CONFIGURATION: NodeConfiguration =
    NodeConfiguration { admin, storage, tables, settings };

fn admin() -> Result<NodeAddress, CommandError> {
    let mut overrides = environment()?;
    // Variables of other sections may need settings from the file.
    overrides.retain(|one| one.path.first().is_some_and(|section| section == "admin"));
    Ok(reached_at(VvmConfig::read(None, &overrides)?.admin.listen).into())
}

fn storage(file: Option<&Path>) -> Result<NamedStorage, CommandError> {
    let config = of_file(file)?;
    let target = config.storage.to_target(&config.source)?;
    NamedStorage::new(target, config.storage.system_keyspace)
}

fn tables(file: Option<&Path>, app: &AppName) -> Result<Schema, CommandError> {
    let config = of_file(file)?;
    let apps = apps(&config)?;
    let found = apps.iter().find(|settings| settings.name == *app);
    let found = found.ok_or_else(|| {
        CommandError::config(format!("the configuration has no application {app}: add it"))
    })?;
    Ok(found.application.declarations().schema().clone())
}

fn settings(file: Option<&Path>, level: TrustLevel) -> Result<NodeSettings, CommandError> {
    let config = of_file(file)?;
    let target = config.storage.to_target(&config.source)?;
    settings_for(&config, &target, level)
}

fn of_file(file: Option<&Path>) -> Result<VvmConfig, CommandError> {
    configuration(&ServeArgs { config: file.map(Path::to_owned), ..ServeArgs::default() })
}

/// The address where this machine reaches a port: a node may listen on all addresses.
fn reached_at(listen: SocketAddr) -> SocketAddr {
    let ip = match listen.ip() {
        IpAddr::V4(ip) if ip.is_unspecified() => Ipv4Addr::LOCALHOST.into(),
        IpAddr::V6(ip) if ip.is_unspecified() => Ipv6Addr::LOCALHOST.into(),
        ip => ip,
    };
    SocketAddr::new(ip, listen.port())
}

#[cfg(test)]
mod tests {
    use super::reached_at;

    /// With the variable of a node that listens on all addresses, a command refused to send its
    /// token: 0.0.0.0 is not this machine.
    #[test]
    fn a_port_on_all_addresses_is_reached_on_this_machine() {
        for (listen, reached) in
            [("0.0.0.0:7", "127.0.0.1:7"), ("[::]:7", "[::1]:7"), ("10.0.0.1:7", "10.0.0.1:7")]
        {
            assert_eq!(reached_at(listen.parse().unwrap()), reached.parse().unwrap());
        }
    }
}
