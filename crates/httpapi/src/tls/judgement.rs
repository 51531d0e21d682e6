//! The certificate of a server, as its clients judge it.

use std::time::Duration;

use tokio_rustls::rustls::{
    CertificateError, Error, OtherError, RootCertStore,
    client::{verify_server_cert_signed_by_trust_anchor, verify_server_name},
    crypto::aws_lc_rs,
    pki_types::{CertificateDer, ServerName, UnixTime},
    server::ParsedCertificate,
};

/// The reason why clients refuse the certificate of a server.
#[derive(Debug, thiserror::Error)]
pub(super) enum RefusedByClients {
    #[error(
        "clients refuse the certificate, because it is that of an authority (CA:TRUE): use one with \
         `basicConstraints = CA:FALSE`"
    )]
    Authority,
    #[error(
        "clients refuse the certificate, because its `extendedKeyUsage` lacks `serverAuth`: use one \
         with `extendedKeyUsage = serverAuth`"
    )]
    Purpose,
    #[error(
        "clients refuse the certificate, because it has no `subjectAltName`: use one that has the \
         hosts and IPs of the node there"
    )]
    NoName,
    #[error("clients refuse the certificate: {0}")]
    Other(Error),
}

impl From<Error> for RefusedByClients {
    fn from(error: Error) -> RefusedByClients {
        match error {
            Error::InvalidCertificate(CertificateError::InvalidPurposeContext { .. }) => {
                RefusedByClients::Purpose
            }
            // rustls has no variant for this one.
            Error::InvalidCertificate(CertificateError::Other(OtherError(why)))
                if why.to_string() == "CaUsedAsEndEntity" =>
            {
                RefusedByClients::Authority
            }
            error => RefusedByClients::Other(error),
        }
    }
}

/// Checks that a client could accept the certificate of a server, if the client trusts its
/// authority and asks for one of its names. `ends` is the end of the certificate, in seconds
/// since 1970.
///
/// rustls judges the authority last. So the certificate is judged without any authority, and each
/// other error is one that every client has. A certificate that is over is not refused here, so it
/// is judged as of its end.
pub(super) fn check(certificate: &CertificateDer<'_>, ends: u64) -> Result<(), RefusedByClients> {
    let parsed = ParsedCertificate::try_from(certificate)?;
    let judged = verify_server_cert_signed_by_trust_anchor(
        &parsed,
        &RootCertStore::empty(),
        &[],
        UnixTime::since_unix_epoch(Duration::from_secs(ends)),
        aws_lc_rs::default_provider().signature_verification_algorithms.all,
    );
    match judged {
        Ok(()) | Err(Error::InvalidCertificate(CertificateError::UnknownIssuer)) => {}
        Err(error) => return Err(error.into()),
    }
    // Any name will do: the error has the names of the certificate.
    let name = ServerName::try_from("vvm.invalid");
    let name = name.map_err(|error| Error::General(error.to_string()))?;
    match verify_server_name(&parsed, &name) {
        Err(Error::InvalidCertificate(CertificateError::NotValidForNameContext {
            presented,
            ..
        })) if presented.is_empty() => Err(RefusedByClients::NoName),
        Ok(())
        | Err(Error::InvalidCertificate(CertificateError::NotValidForNameContext { .. })) => Ok(()),
        Err(error) => Err(error.into()),
    }
}
