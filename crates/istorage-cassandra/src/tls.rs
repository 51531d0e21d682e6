//! The certificates that the driver trusts and shows.

use std::{
    fmt::Display,
    path::{Path, PathBuf},
    sync::Arc,
};

use istorage::InvalidSetting;
use rustls::{
    ClientConfig, RootCertStore,
    crypto::aws_lc_rs,
    pki_types::{CertificateDer, PrivateKeyDer, pem, pem::PemObject},
};
use serde::Deserialize;

/// The certificates for encrypted connections. The certificate of a server must name the address
/// that the driver connects to.
#[derive(Clone, Debug, PartialEq, Eq, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Tls {
    /// The certificates, in PEM, of the authorities that may sign the certificates of the cluster's
    /// servers.
    pub ca_file: PathBuf,
    /// The certificate, in PEM, that this process shows. Needed if the cluster asks for a client
    /// certificate.
    #[serde(default)]
    pub cert_file: Option<PathBuf>,
    /// The key of that certificate, in PEM.
    #[serde(default)]
    pub key_file: Option<PathBuf>,
}

const CA: &str = "tls.ca_file";
const CERT: &str = "tls.cert_file";
const KEY: &str = "tls.key_file";

pub(crate) fn client_config(tls: &Tls) -> Result<Arc<ClientConfig>, InvalidSetting> {
    let mut authorities = RootCertStore::empty();
    for certificate in certificates(CA, &tls.ca_file)? {
        authorities.add(certificate).map_err(|error| unusable(CA, &tls.ca_file, error))?;
    }
    // The provider is given explicitly, because a process with several providers has no default.
    let builder = ClientConfig::builder_with_provider(Arc::new(aws_lc_rs::default_provider()))
        .with_safe_default_protocol_versions()
        .map_err(|error| InvalidSetting::new("tls", format!("TLS cannot be used: {error}")))?
        .with_root_certificates(authorities);
    let config = match (&tls.cert_file, &tls.key_file) {
        (None, None) => builder.with_no_client_auth(),
        (Some(cert_file), Some(key_file)) => {
            let key = PrivateKeyDer::from_pem_file(key_file)
                .map_err(|error| unusable(KEY, key_file, error))?;
            builder.with_client_auth_cert(certificates(CERT, cert_file)?, key).map_err(|error| {
                match error {
                    rustls::Error::InconsistentKeys(_) => {
                        let cert_file = cert_file.display();
                        let why = format!(
                            "the key does not belong to the first certificate in {cert_file}"
                        );
                        unusable(KEY, key_file, why)
                    }
                    error => unusable(CERT, cert_file, error),
                }
            })?
        }
        _ => {
            return Err(InvalidSetting::new(
                "tls",
                "give both `cert_file` and `key_file`, or none of them",
            ));
        }
    };
    Ok(Arc::new(config))
}

fn certificates(
    key: &'static str,
    path: &Path,
) -> Result<Vec<CertificateDer<'static>>, InvalidSetting> {
    let certificates: Result<Vec<_>, pem::Error> =
        CertificateDer::pem_file_iter(path).and_then(Iterator::collect);
    match certificates {
        Ok(certificates) if certificates.is_empty() => {
            Err(InvalidSetting::new(key, format!("{} holds no certificate", path.display())))
        }
        Ok(certificates) => Ok(certificates),
        Err(error) => Err(unusable(key, path, error)),
    }
}

fn unusable(key: &'static str, path: &Path, error: impl Display) -> InvalidSetting {
    InvalidSetting::new(key, format!("{} cannot be used for TLS: {error}", path.display()))
}

#[cfg(test)]
mod tests {
    use super::*;

    fn refusal(tls: &str) -> InvalidSetting {
        client_config(&toml::from_str(tls).unwrap()).unwrap_err()
    }

    #[test]
    fn a_file_that_is_missing_or_holds_something_else_is_named() {
        assert!(refusal("ca_file = 'no/such/ca.pem'").to_string().contains("no/such/ca.pem"));
        let nothing = refusal("ca_file = 'Cargo.toml'");
        assert!(nothing.to_string().contains("Cargo.toml holds no certificate"), "{nothing}");
    }

    /// The error named only the file of the certificate.
    #[test]
    fn a_key_of_another_certificate_is_refused_with_both_files() {
        let folder = tempfile::tempdir().unwrap();
        let path = |name: &str| folder.path().join(name).display().to_string();
        let [own, other] =
            [(); 2].map(|()| rcgen::generate_simple_self_signed(["node".to_owned()]).unwrap());
        let (cert, key) = (path("own.pem"), path("other-key.pem"));
        std::fs::write(&cert, own.cert.pem()).unwrap();
        std::fs::write(&key, other.signing_key.serialize_pem()).unwrap();
        let config = format!("ca_file = '{cert}'\ncert_file = '{cert}'\nkey_file = '{key}'");
        let refused = refusal(&config).to_string();
        assert!(refused.contains(&cert) && refused.contains(&key), "{refused}");
        assert!(
            refused.contains("tls.key_file") && refused.contains("does not belong"),
            "{refused}"
        );
    }
}
