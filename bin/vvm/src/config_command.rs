//! `vvm config`: checks, shows and begins a configuration.

use std::process::ExitCode;

use crate::{
    cli::{ConfigArgs, ConfigCommand, Example, ServeArgs},
    failure::Failure,
    print, serve,
};

pub(crate) fn run(command: ConfigCommand) -> Result<ExitCode, Failure> {
    match command {
        ConfigCommand::Check(args) => {
            let config = configuration(args)?;
            let memory_mib = serve::check(config)? >> 20;
            print(&format!(
                "the configuration can be used; a node takes up to {memory_mib} MiB of memory\n"
            ))?;
        }
        ConfigCommand::Show(args) => print(&configuration(args)?.to_toml()?)?,
        ConfigCommand::Init { storage } => print(example(storage))?,
    }
    Ok(ExitCode::SUCCESS)
}

fn configuration(ConfigArgs { config }: ConfigArgs) -> Result<crate::config::Config, Failure> {
    serve::configuration(&ServeArgs { config, ..ServeArgs::default() })
}

fn example(storage: Example) -> &'static str {
    match storage {
        Example::Redb => include_str!("../../../config/vvm.toml"),
        Example::Cassandra => include_str!("../../../config/cassandra.toml"),
        Example::Dynamodb => include_str!("../../../config/dynamodb.toml"),
        Example::Demo => include_str!("../../../config/demo.toml"),
    }
}
