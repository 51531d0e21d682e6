//! Which certificates are trusted and shown.

use std::{path::Path, sync::Arc};

use istorage::{Error, Result};
use rustls::{
    ClientConfig, RootCertStore,
    crypto::aws_lc_rs,
    pki_types::{CertificateDer, PrivateKeyDer, pem, pem::PemObject},
};

use crate::Tls;

pub(crate) fn client_config(tls: &Tls) -> Result<Arc<ClientConfig>> {
    let mut authorities = RootCertStore::empty();
    for certificate in certificates(&tls.ca_file)? {
        authorities.add(certificate).map_err(|error| unusable(&tls.ca_file, error))?;
    }
    // The provider is named because a process that has several has no default.
    let builder = ClientConfig::builder_with_provider(Arc::new(aws_lc_rs::default_provider()))
        .with_safe_default_protocol_versions()
        .map_err(|error| Error::invalid("TLS cannot be used").because(error))?
        .with_root_certificates(authorities);
    let config = match (&tls.cert_file, &tls.key_file) {
        (None, None) => builder.with_no_client_auth(),
        (Some(cert_file), Some(key_file)) => {
            let key = PrivateKeyDer::from_pem_file(key_file)
                .map_err(|error| unusable(key_file, error))?;
            builder
                .with_client_auth_cert(certificates(cert_file)?, key)
                .map_err(|error| unusable(cert_file, error))?
        }
        _ => return Err(Error::invalid("`cert_file` and `key_file` go together")),
    };
    Ok(Arc::new(config))
}

fn certificates(path: &Path) -> Result<Vec<CertificateDer<'static>>> {
    let certificates: std::result::Result<Vec<_>, pem::Error> =
        CertificateDer::pem_file_iter(path).and_then(Iterator::collect);
    match certificates {
        Ok(certificates) if certificates.is_empty() => {
            Err(Error::invalid(format!("{} holds no certificate", path.display())))
        }
        Ok(certificates) => Ok(certificates),
        Err(error) => Err(unusable(path, error)),
    }
}

fn unusable(path: &Path, error: impl std::error::Error + Send + Sync + 'static) -> Error {
    Error::invalid(format!("{} cannot be used for TLS", path.display())).because(error)
}

#[cfg(test)]
mod tests {
    use istorage::ErrorKind;

    use super::*;

    fn refusal(tls: &str) -> Error {
        let error = client_config(&toml::from_str(tls).unwrap()).unwrap_err();
        assert_eq!(error.kind(), ErrorKind::Invalid);
        error
    }

    #[test]
    fn a_file_that_is_missing_or_holds_something_else_is_named() {
        assert!(refusal("ca_file = 'no/such/ca.pem'").to_string().contains("no/such/ca.pem"));
        let nothing = refusal("ca_file = 'Cargo.toml'");
        assert!(nothing.to_string().contains("Cargo.toml holds no certificate"), "{nothing}");
    }
}
