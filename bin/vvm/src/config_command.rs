//! `vvm config`: checks, shows and prints a configuration.

use std::process::ExitCode;

use ctl::{CommandError, terminal::print};

use crate::{
    cli::{ConfigArgs, ConfigCommand, ExampleFile, ServeArgs},
    doctor, serve,
};

pub(crate) async fn run(command: ConfigCommand) -> Result<ExitCode, CommandError> {
    match command {
        ConfigCommand::Check(args) => {
            let config = configuration(args)?;
            let sockets_mib = serve::most_socket_memory(config.http.connections.get()) >> 20;
            let memory_mib = serve::check(&config)? >> 20;
            let compared = doctor::compare_deployed(&config).await?;
            print(&format!(
                "the configuration is valid; a node takes up to {memory_mib} MiB of memory, and the \
                 kernel up to {sockets_mib} MiB for connections that are not read\n{compared}\n"
            ))?;
        }
        ConfigCommand::Show(args) => print(&configuration(args)?.to_toml()?)?,
        ConfigCommand::Init { storage } => print(example(storage))?,
    }
    Ok(ExitCode::SUCCESS)
}

fn configuration(
    ConfigArgs { config }: ConfigArgs,
) -> Result<crate::config::VvmConfig, CommandError> {
    serve::configuration(&ServeArgs { config, ..ServeArgs::default() })
}

fn example(storage: ExampleFile) -> &'static str {
    match storage {
        ExampleFile::Redb => include_str!("../config/vvm.toml"),
        ExampleFile::Cassandra => include_str!("../config/cassandra.toml"),
        ExampleFile::Dynamodb => include_str!("../config/dynamodb.toml"),
        ExampleFile::Cluster => include_str!("../config/cluster.toml"),
        ExampleFile::Demo => include_str!("../config/demo.toml"),
    }
}
