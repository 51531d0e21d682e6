//! The settings and files of a node that let others in. `vvm serve` warns of them, and `vvm doctor`
//! reports them.

use crate::{
    config::VvmConfig,
    private_file::{advice, needless_readers, needless_writers},
};

/// The check of the ports.
pub(crate) const ACCESS: &str = "access";
/// The check of files that only the node should read.
pub(crate) const PRIVATE_FILE: &str = "private file";
/// The check of files that decide which clients are let in.
pub(crate) const TRUSTED_FILE: &str = "trusted file";

/// A setting or a file that lets others in, in words for the operator.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct AccessRisk {
    pub(crate) check: &'static str,
    pub(crate) key: String,
    pub(crate) what: String,
    /// What the operator can do about it.
    pub(crate) advice: String,
}

/// Judges a configuration with which a node could start.
pub(crate) fn access_risks(config: &VvmConfig) -> Vec<AccessRisk> {
    let mut risks = of_ports(config);
    risks.extend(of_files(config));
    risks
}

fn of_ports(VvmConfig { http, admin, access, .. }: &VvmConfig) -> Vec<AccessRisk> {
    let (http_tls, admin_tls) = (http.tls.is_some(), admin.tls.is_some());
    let ports = [
        ("http", "the API", http.listen, http.allow_unauthenticated, http_tls),
        ("admin", "the admin endpoint", admin.listen, admin.allow_unauthenticated, admin_tls),
    ];
    let mut risks = Vec::new();
    for (section, port, listen, is_open, has_tls) in ports {
        if listen.ip().is_loopback() || section == "admin" && admin.asks_for_certificates() {
            continue;
        }
        let (what, advice) = match (is_open, access) {
            (false, Some(_)) if !has_tls => (
                format!("{port} listens on {listen} without TLS, so tokens can be read on their way"),
                format!("set the section `{section}.tls`, unless a proxy in front has TLS"),
            ),
            (false, _) => continue,
            (true, _) => (
                format!("{port} listens on {listen}, and has no authentication"),
                "listen on 127.0.0.1, ask for tokens or certificates, or put an authenticating proxy in front"
                    .to_owned(),
            ),
        };
        risks.push(AccessRisk { check: ACCESS, key: format!("{section}.listen"), what, advice });
    }
    risks
}

fn of_files(config: &VvmConfig) -> impl Iterator<Item = AccessRisk> {
    let private = config.private_files().into_iter().filter_map(|(key, path)| {
        let (readers, file) = (needless_readers(path)?, path.display());
        let what = format!("`{key}`: {readers} can read {file}");
        Some(AccessRisk { check: PRIVATE_FILE, key: key.to_owned(), what, advice: advice(path) })
    });
    let trusted = config.trusted_files().into_iter().filter_map(|(key, path)| {
        let (writers, file) = (needless_writers(path)?, path.display());
        let what = format!("`{key}`: {writers} can write {file}, and let themselves in");
        let advice = format!("run `chmod go-w {file}`");
        Some(AccessRisk { check: TRUSTED_FILE, key: key.to_owned(), what, advice })
    });
    private.chain(trusted)
}

#[cfg(test)]
mod tests {
    use std::{fs, os::unix::fs::PermissionsExt};

    use super::*;

    const OPEN: &str = "0.0.0.0:1";

    fn risks(text: &str) -> Vec<String> {
        let risks = access_risks(&VvmConfig::of_text(text));
        risks.into_iter().map(|risk| format!("{}: {}", risk.key, risk.what)).collect()
    }

    #[test]
    fn a_port_is_judged_by_its_address_its_tokens_and_its_tls() {
        let tokens = "[access]\nkeys_file = \"none\"\nissuer = \"i\"\n";
        let tls =
            |section: &str| format!("[{section}.tls]\ncert_file = \"none\"\nkey_file = \"none\"\n");
        for section in ["http", "admin"] {
            let open = format!("[{section}]\nlisten = \"{OPEN}\"\n");
            let allowed = format!("{open}allow_unauthenticated = true\n");
            for (config, parts) in [
                (format!("[{section}]\nlisten = \"127.0.0.1:1\"\n{tokens}"), None),
                (format!("{allowed}{tokens}"), Some("no authentication")),
                (format!("{allowed}{}", tls(section)), Some("no authentication")),
                (format!("{open}{tokens}"), Some("without TLS")),
                (format!("{open}{}{tokens}", tls(section)), None),
            ] {
                let found = risks(&config);
                assert_eq!(found.len(), usize::from(parts.is_some()), "{config}: {found:?}");
                for (found, part) in found.iter().zip(parts) {
                    assert!(found.starts_with(section) && found.contains(part), "{found}");
                }
            }
        }
        let certificates =
            format!("[admin]\nlisten = \"{OPEN}\"\nallow_unauthenticated = true\n{}", tls("admin"));
        assert_eq!(risks(&format!("{certificates}client_ca_file = \"none\"\n")), [""; 0]);
    }

    /// A node and the doctor looked for readers of private files only. But everybody that can write
    /// the file of keys can make tokens.
    #[test]
    fn files_that_others_can_write_are_found() {
        let file = tempfile::NamedTempFile::new().unwrap();
        let path = file.path().display();
        let config = format!(
            "[access]\nkeys_file = \"{path}\"\nissuer = \"i\"\n[admin.tls]\ncert_file = \"none\"\n\
             key_file = \"none\"\nclient_ca_file = \"{path}\"\n"
        );
        for (mode, writers) in [
            (0o644, None),
            (0o664, Some("the group of the file")),
            (0o646, Some("all users of this machine")),
        ] {
            fs::set_permissions(file.path(), fs::Permissions::from_mode(mode)).unwrap();
            let expected = |key: &str| {
                let writers = writers?;
                Some(format!("{key}: `{key}`: {writers} can write {path}, and let themselves in"))
            };
            let keys = ["access.keys_file", "admin.tls.client_ca_file"];
            let expected: Vec<_> = keys.into_iter().filter_map(expected).collect();
            assert_eq!(risks(&config), expected, "{mode:o}");
        }
    }
}
