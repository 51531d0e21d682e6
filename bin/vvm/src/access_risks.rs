//! The settings and files of a node that let others in. `vvm serve` warns of them, and `vvm doctor`
//! reports them.

use ctl::private_file::needless_readers;

use crate::{
    config::VvmConfig,
    trusted_file::{NeedlessWriters, needless_writers},
};

/// The check of the ports.
pub(crate) const ACCESS: &str = "access";
/// The check of files that only the node should read.
pub(crate) const PRIVATE_FILE: &str = "private file";
/// The check of files that decide which clients are let in, with the configuration itself.
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

/// Judges a configuration that a node could start with.
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
        // Only this port can demand certificates.
        let other_way =
            if section == "admin" { "set `client_ca_file` in `[admin.tls]`, " } else { "" };
        if listen.ip().is_loopback() || section == "admin" && admin.asks_for_certificates() {
            continue;
        }
        let (what, advice) = match (is_open, access) {
            (false, Some(_)) if !has_tls => (
                format!(
                    "{port} listens on {listen} without TLS, so tokens can be read on their way"
                ),
                format!("set the section `{section}.tls`, unless a proxy in front has TLS"),
            ),
            (false, _) => continue,
            (true, _) => (
                format!("{port} listens on {listen}, and has no authentication"),
                format!(
                    "listen on 127.0.0.1, demand tokens with the section `access`, {other_way}or put an \
                     authenticating proxy in front"
                ),
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
        // The group of the node may need to read the file of another owner.
        let advice =
            format!("run `chmod o-rwx {file}`, and `chmod g-rwx {file}` if the node owns the file");
        Some(AccessRisk { check: PRIVATE_FILE, key: key.to_owned(), what, advice })
    });
    let trusted = config.trusted_files().into_iter().filter_map(|(key, path)| {
        let NeedlessWriters { what, advice } = needless_writers(path)?;
        let what = format!("`{key}`: {what}, and so let others in");
        Some(AccessRisk { check: TRUSTED_FILE, key: key.to_owned(), what, advice })
    });
    private.chain(trusted)
}

#[cfg(test)]
mod tests {
    use std::{fs, os::unix::fs::PermissionsExt, path::Path};

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
            // The advice for the API named certificates, which only the admin endpoint demands.
            let risk = access_risks(&VvmConfig::of_text(&allowed)).remove(0);
            assert_eq!(risk.advice.contains("client_ca_file"), section == "admin", "{risk:?}");
        }
        let certificates =
            format!("[admin]\nlisten = \"{OPEN}\"\nallow_unauthenticated = true\n{}", tls("admin"));
        assert_eq!(risks(&format!("{certificates}client_ca_file = \"none\"\n")), [""; 0]);
    }

    /// The password of Cassandra was not looked for.
    #[test]
    fn files_with_secrets_of_the_storage_are_found() {
        let folder = tempfile::tempdir().unwrap();
        let [secret, own] = ["secret", "vvm.toml"].map(|name| folder.path().join(name));
        fs::write(&secret, "").unwrap();
        let config = |more: &str| {
            let text = "[storage]\ndriver = \"cassandra\"\n[storage.cassandra]\ncontact_points = [\"a\"]\n";
            fs::write(&own, format!("{text}{more}")).unwrap();
            let config = VvmConfig::read(Some(&own), &[]).unwrap();
            access_risks(&config).into_iter().map(|risk| risk.key).collect::<Vec<_>>()
        };
        let path = secret.display();
        let by_file = format!("login = {{ username = \"u\", password_file = \"{path}\" }}\n");
        let tls = format!("tls = {{ ca_file = \"c\", key_file = \"{path}\" }}\n");
        for mode in [0o600, 0o644] {
            config("");
            [&secret, &own].into_iter().for_each(|file| set_mode(file, mode));
            let here = "login = { username = \"u\", password = \"p\" }\n";
            for (text, key) in [
                (&*by_file, "storage.cassandra.login.password_file"),
                (&*tls, "storage.cassandra.tls.key_file"),
                (here, "storage.cassandra.login.password"),
            ] {
                let found = if mode == 0o600 { vec![] } else { vec![key.to_owned()] };
                assert_eq!(config(text), found, "{mode:o}");
            }
        }
    }

    /// A node and the doctor looked for readers of private files only. But everybody that can write
    /// the file of keys can make tokens.
    #[test]
    fn files_that_others_can_write_are_found() {
        let folder = tempfile::tempdir().unwrap();
        let file = folder.path().join("keys");
        fs::write(&file, "").unwrap();
        let path = file.display();
        let config = format!(
            "[access]\nkeys_file = \"{path}\"\nissuer = \"i\"\n[admin.tls]\ncert_file = \"none\"\n\
             key_file = \"none\"\nclient_ca_file = \"{path}\"\n[cluster.tls]\n\
             cert_file = \"none\"\nkey_file = \"none\"\nca_file = \"{path}\"\n"
        );
        for (mode, writers) in [
            (0o644, None),
            (0o664, Some("the group of the file")),
            (0o646, Some("all users of this machine")),
        ] {
            set_mode(&file, mode);
            let expected = |key: &str| {
                let writers = writers?;
                Some(format!("{key}: `{key}`: {writers} can write {path}, and so let others in"))
            };
            let keys = ["access.keys_file", "admin.tls.client_ca_file", "cluster.tls.ca_file"];
            let expected: Vec<_> = keys.into_iter().filter_map(expected).collect();
            assert_eq!(risks(&config), expected, "{mode:o}");
        }
        // The writers of a folder can put another file in the place of a file.
        set_mode(&file, 0o644);
        for (mode, writers) in [
            (0o755, None),
            (0o1777, None),
            (0o777, Some("all users of this machine can replace")),
            (0o770, Some("the group of the folder can replace")),
        ] {
            set_mode(folder.path(), mode);
            let found = risks(&config);
            assert_eq!(found.len(), if writers.is_some() { 3 } else { 0 }, "{mode:o} {found:?}");
            let is_right = |risk: &String| writers.is_some_and(|writers| risk.contains(writers));
            assert!(found.iter().all(is_right), "{mode:o} {found:?}");
        }
    }

    /// The configuration names the other files, and nobody looked at its mode.
    #[test]
    fn a_configuration_that_others_can_write_is_found() {
        let folder = tempfile::tempdir().unwrap();
        let file = folder.path().join("vvm.toml");
        fs::write(&file, "").unwrap();
        let found = || {
            let config = VvmConfig::read(Some(&file), &[]).unwrap();
            access_risks(&config).into_iter().map(|risk| risk.what).collect::<Vec<_>>()
        };
        set_mode(&file, 0o644);
        assert_eq!(found(), [""; 0]);
        set_mode(&file, 0o666);
        let expected = format!(
            "`--config`: all users of this machine can write {}, and so let others in",
            file.display()
        );
        assert_eq!(found(), [expected]);
    }

    fn set_mode(path: &Path, mode: u32) {
        fs::set_permissions(path, fs::Permissions::from_mode(mode)).unwrap();
    }
}
