//! The files with secrets that the configuration names.

use super::finding::Finding;
use crate::{
    config::VvmConfig,
    private_file::{advice, needless_readers},
};

pub(super) fn check(config: &VvmConfig) -> Vec<Finding> {
    const CHECK: &str = "private file";
    let judge = |(key, path): (&'static str, &std::path::Path)| {
        let path_shown = path.display();
        match needless_readers(path) {
            Some(who) => {
                let what = format!("`{key}`: {who} can read {path_shown}");
                Finding::warn(CHECK, what, advice(path))
            }
            None => Finding::ok(CHECK, format!("`{key}`: {path_shown} is private")),
        }
    };
    config.private_files().into_iter().map(judge).collect()
}
