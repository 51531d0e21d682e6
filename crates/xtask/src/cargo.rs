//! Calls of cargo, in the root of the checkout.

use std::{env, path::PathBuf, process::Command};

use crate::{
    error::{Error, Result},
    folders, process,
};

/// Makes a call of the same cargo that runs this program.
pub(crate) fn cargo(arguments: &[&str]) -> Result<Command> {
    let mut command = Command::new(env::var_os("CARGO").unwrap_or_else(|| "cargo".into()));
    command.args(arguments).current_dir(folders::root()?);
    remove_own_variables(&mut command);
    Ok(command)
}

/// Removes the variables that cargo sets for this program. Passed on, they would make the build
/// scripts that read them run again.
pub(crate) fn remove_own_variables(command: &mut Command) {
    for (name, _) in env::vars_os() {
        let name = name.to_string_lossy();
        if name.starts_with("CARGO_PKG_") || name.starts_with("CARGO_MANIFEST_") {
            command.env_remove(&*name);
        }
    }
}

/// Runs cargo to its end.
pub(crate) fn run(arguments: &[&str]) -> Result<()> {
    process::run(&mut cargo(arguments)?)
}

/// Returns the packages of this workspace as cargo describes them.
pub(crate) fn workspace_packages() -> Result<Vec<serde_json::Value>> {
    let packages = metadata()?["packages"].as_array().cloned();
    packages.ok_or_else(|| Error::Failed("cargo metadata lists no packages".to_owned()))
}

/// Returns the folder of cargo's output.
pub(crate) fn target_folder() -> Result<PathBuf> {
    let folder = metadata()?["target_directory"].as_str().map(PathBuf::from);
    folder.ok_or_else(|| Error::Failed("cargo metadata names no target folder".to_owned()))
}

fn metadata() -> Result<serde_json::Value> {
    let output = cargo(&["metadata", "--no-deps", "--format-version", "1"])?.output();
    let output =
        output.map_err(|error| Error::Failed(format!("cannot run cargo metadata: {error}")))?;
    if !output.status.success() {
        let reason = String::from_utf8_lossy(&output.stderr).into_owned();
        return Err(Error::Failed(format!("cargo metadata failed: {reason}")));
    }
    serde_json::from_slice(&output.stdout)
        .map_err(|error| Error::Failed(format!("cannot read cargo metadata: {error}")))
}
