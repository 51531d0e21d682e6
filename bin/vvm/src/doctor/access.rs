//! The settings and files that let others in.

use std::{fs, path::Path};

use httpapi::access::KeySet;

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
    findings.extend(config.access.as_ref().and_then(|access| keys(&access.keys_file)));
    findings
}

/// Judges the keys of tokens. A file that a node refuses is reported by the check of the
/// configuration.
fn keys(file: &Path) -> Option<Finding> {
    let keys = KeySet::parse(&fs::read(file).ok()?).ok()?;
    let (count, shown) = (keys.ids().count(), file.display());
    if count == 0 {
        let what = format!("`access.keys_file`: {shown} has no key, so all tokens are refused");
        let advice = "add the public keys of the issuer, or make keys with `vvm token keygen`";
        return Some(Finding::warn("keys", what, advice));
    }
    let mut what = format!("`access.keys_file`: keys in {shown}: {count}");
    if !keys.skipped().is_empty() {
        what += &format!("; skipped: {}", keys.skipped().join("; "));
    }
    Some(Finding::ok("keys", what))
}
