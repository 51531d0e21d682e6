//! The settings and files that let others in.

use super::finding::Finding;
use crate::{
    access_risks::{PRIVATE_FILE, access_risks},
    config::VvmConfig,
};

pub(super) fn check(config: &VvmConfig) -> Vec<Finding> {
    let risks = access_risks(config);
    let is_private = |key| !risks.iter().any(|risk| risk.check == PRIVATE_FILE && risk.key == key);
    let private = config.private_files().into_iter().filter(|(key, _)| is_private(*key));
    let mut findings: Vec<_> = private
        .map(|(key, path)| {
            Finding::ok(PRIVATE_FILE, format!("`{key}`: {} is private", path.display()))
        })
        .collect();
    findings
        .extend(risks.into_iter().map(|risk| Finding::warn(risk.check, risk.what, risk.advice)));
    findings
}
