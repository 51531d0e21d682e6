//! The commands that operators use to look at nodes and storages, and to change them: one file a
//! command, with its arguments and what it does.
//!
//! `vvm` is one program. It reads the command line and the configuration, and runs a [`CtlCommand`]
//! with a [`NodeConfiguration`]:
//!
//! ```text
//! main ─► CtlCommand::run ─► status, cluster, … ─► client    (asks a node)
//!                                              └─► storage_target (reads a storage itself)
//! ```
//!
//! A command that fails ends with a [`CommandError`], which is a message for the operator and the
//! exit code of the program.

#![cfg_attr(test, allow(clippy::unwrap_used))]

mod answer_text;
mod apps;
mod backup;
mod bench;
pub mod client;
pub mod clock_skew;
mod cluster;
mod command;
mod command_error;
mod configuration;
mod elections;
mod export;
mod inspect;
mod logs;
mod named_storage;
mod new_file;
mod numbers;
pub mod private_file;
mod regular_file;
mod repair;
mod status;
mod storage;
mod storage_args;
mod storage_target;
pub mod terminal;
mod token;
mod verify;

pub use self::{
    command::CtlCommand, command_error::CommandError, configuration::NodeConfiguration,
    named_storage::NamedStorage, storage_args::StorageArgs, storage_target::StorageTarget,
};
