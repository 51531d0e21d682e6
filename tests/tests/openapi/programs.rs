//! The programs of Python that read the description.

use std::{
    env,
    path::{Path, PathBuf},
    process::Stdio,
};

use tokio::process::Command;

/// The folder of the programs: that of a virtual environment.
#[derive(Clone)]
pub(crate) struct Programs(PathBuf);

impl Programs {
    /// Finds the folder; `None` if the programs are not installed.
    pub(crate) fn find() -> Option<Programs> {
        let folders = env::var_os("PATH")?;
        let has_all = |folder: &PathBuf| {
            let all = ["openapi-python-client", "openapi-spec-validator", "python"];
            all.iter().all(|name| folder.join(name).is_file())
        };
        env::split_paths(&folders).find(has_all).map(Programs)
    }

    /// Runs a program in a folder. Returns what it wrote.
    ///
    /// # Panics
    /// If the program fails.
    pub(crate) async fn run(&self, program: &str, at: &Path, arguments: &[&str]) -> String {
        let output = Command::new(self.0.join(program))
            .args(arguments)
            .current_dir(at)
            .stdin(Stdio::null())
            .kill_on_drop(true)
            .output()
            .await
            .unwrap_or_else(|error| panic!("{program}: {error}"));
        let texts = [output.stdout, output.stderr].map(|text| String::from_utf8(text).unwrap());
        let text = texts.concat();
        assert!(output.status.success(), "{program}: {}\n{text}", output.status);
        text
    }
}
