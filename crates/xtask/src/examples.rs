//! The examples of the crates: programs that end by themselves, with an error if they fail.

use std::{process::Command, time::Duration};

use crate::{
    cargo,
    error::{Result, failed},
    process,
};

/// The longest time of an example. Each ends within seconds on an idle machine.
const LIMIT: Duration = Duration::from_secs(300);

/// Builds and runs the examples of all crates, one after another.
pub(crate) fn run() -> Result<()> {
    cargo::run(&["build", "--workspace", "--examples"])?;
    let folder = cargo::target_folder()?.join("debug/examples");
    let packages = cargo::workspace_packages()?;
    let names = names(&packages);
    if names.is_empty() {
        return failed("no crate has an example");
    }
    for name in names {
        eprintln!("\n--> {name}");
        process::run_within(LIMIT, &mut Command::new(folder.join(name)))?;
    }
    Ok(())
}

/// Returns the names of all examples of the packages.
fn names(packages: &[serde_json::Value]) -> Vec<&str> {
    let targets = packages.iter().filter_map(|package| package["targets"].as_array()).flatten();
    let examples = targets.filter(|target| target["kind"][0] == "example");
    examples.filter_map(|target| target["name"].as_str()).collect()
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    #[test]
    fn the_examples_of_all_packages_are_found() {
        let target = |kind: &str, name: &str| json!({ "kind": [kind], "name": name });
        let packages = [
            json!({ "targets": [target("lib", "a"), target("example", "b")] }),
            json!({ "targets": [target("example", "c"), target("test", "d")] }),
        ];
        assert_eq!(names(&packages), ["b", "c"]);
    }
}
