//! The settings and files that let others in.

use std::path::Path;

use http_server::access::KeySet;

use super::finding::Finding;
use crate::{
    access_risks::{PRIVATE_FILE, access_risks},
    config::VvmConfig,
};

/// Judges the configuration, and the keys that a node reads.
pub(super) fn check(config: &VvmConfig, keys: Option<&KeySet>) -> Vec<Finding> {
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
    let file = config.access.as_ref().map(|access| &access.keys_file);
    findings.extend(file.zip(keys).map(|(file, keys)| judge_keys(file, keys)));
    findings
}

/// Judges the keys of tokens. A file that a node refuses is reported by the check of the
/// configuration.
fn judge_keys(file: &Path, keys: &KeySet) -> Finding {
    let (count, shown) = (keys.ids().count(), file.display());
    if count == 0 {
        let what = format!("`access.keys_file`: {shown} has no key, so all tokens are refused");
        let advice = "add the public keys of the issuer, or make keys with `vvm token keygen`";
        return Finding::warn("keys", what, advice);
    }
    let mut what = format!("`access.keys_file`: keys in {shown}: {count}");
    if !keys.skipped().is_empty() {
        what += &format!("; skipped: {}", keys.skipped().join("; "));
    }
    Finding::ok("keys", what)
}

#[cfg(test)]
mod tests {
    use std::fs;

    use clock::Clock;
    use http_server::access::SigningKey;

    use super::*;
    use crate::serve::NodeAccess;

    /// The file was read a second time. If it had changed meanwhile, the findings did not fit
    /// together, and a file that was gone had no finding.
    #[test]
    fn the_keys_are_those_that_were_read_with_the_configuration() {
        let folder = tempfile::tempdir().unwrap();
        let file = folder.path().join("keys.json");
        fs::write(&file, r#"{"keys": []}"#).unwrap();
        let config = format!("[access]\nkeys_file = {file:?}\nissuer = \"i\"\n");
        let config = VvmConfig::of_text(&config);
        let access = NodeAccess::read(&config, &Clock::system()).unwrap();
        fs::remove_file(&file).unwrap();
        let findings = check(&config, access.keys());
        let found = findings.iter().any(|finding| finding.to_string().contains("has no key"));
        assert!(found, "{}", findings.iter().map(|it| format!("{it}\n")).collect::<String>());
    }

    #[test]
    fn keys_that_a_node_skips_are_told() {
        let own = SigningKey::generate().unwrap().public_keys();
        let judged = |keys: &str| {
            let keys = KeySet::parse(keys.as_bytes()).unwrap();
            judge_keys(Path::new("keys.json"), &keys).what
        };
        assert_eq!(judged(&own), "`access.keys_file`: keys in keys.json: 1");
        let with_foreign = own.replacen('[', r#"[{"kty":"RSA","use":"enc","kid":"foreign"},"#, 1);
        let skipped = "keys.json: 1; skipped: key 1 (foreign): the key is not for signatures";
        assert_eq!(judged(&with_foreign), format!("`access.keys_file`: keys in {skipped}"));
    }
}
