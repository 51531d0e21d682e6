//! The certificate of a server, as its clients judge it.

use std::time::Duration;

use tokio_rustls::rustls::{
    CertificateError, Error, OtherError, RootCertStore,
    client::{verify_server_cert_signed_by_trust_anchor, verify_server_name},
    crypto::aws_lc_rs,
    pki_types::{CertificateDer, ServerName, UnixTime},
    server::ParsedCertificate,
};

/// The reason why clients that use rustls refuse the certificate of a server. The nodes of a
/// cluster are such clients, and so are the commands of `vvm`.
#[derive(Debug, thiserror::Error)]
pub(super) enum RefusedByClients {
    #[error(
        "clients that use rustls, such as the nodes, refuse the certificate, because it is that of \
         an authority (CA:TRUE): use one with `basicConstraints = CA:FALSE`"
    )]
    Authority,
    #[error(
        "clients that use rustls, such as the nodes, refuse the certificate, because its \
         `extendedKeyUsage` lacks `serverAuth`: use one with `extendedKeyUsage = serverAuth`"
    )]
    Purpose,
    #[error(
        "clients that use rustls, such as the nodes, refuse the certificate, because it has no \
         `subjectAltName`: use one that has the hosts and IPs of the node there"
    )]
    NoName,
    #[error("clients that use rustls, such as the nodes, refuse the certificate: {0}")]
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

/// Checks that a client with rustls could accept the certificate of a server, if the client trusts
/// its authority and asks for one of its names. `ends` is the end of the certificate, in seconds
/// since 1970.
///
/// rustls judges the authority last. So the certificate is judged without any authority, and every
/// client with rustls has each of the other errors. A certificate that has expired is not refused
/// here, so it is judged as of its end.
pub(super) fn check(certificate: &CertificateDer<'_>, ends: u64) -> Result<(), RefusedByClients> {
    let parsed = ParsedCertificate::try_from(certificate)?;
    check_kind(&parsed, ends)?;
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

/// Checks all but the names.
fn check_kind(parsed: &ParsedCertificate<'_>, ends: u64) -> Result<(), RefusedByClients> {
    match judge(parsed, &RootCertStore::empty(), ends) {
        Ok(()) | Err(Error::InvalidCertificate(CertificateError::UnknownIssuer)) => Ok(()),
        Err(error) => Err(error.into()),
    }
}

/// Judges the certificate of a server by its authorities, as of its end.
fn judge(parsed: &ParsedCertificate<'_>, roots: &RootCertStore, ends: u64) -> Result<(), Error> {
    verify_server_cert_signed_by_trust_anchor(
        parsed,
        roots,
        &[],
        UnixTime::since_unix_epoch(Duration::from_secs(ends)),
        aws_lc_rs::default_provider().signature_verification_algorithms.all,
    )
}

/// Whether a certificate is certainly not that of an authority. `ends` is the end of the
/// certificate, in seconds since 1970.
///
/// rustls trusts each certificate that it is given as an authority, even that of a client. rustls
/// does not show the kind of a certificate, but refuses an authority in the place of a server. A
/// certificate without a version has no mark of its kind, and is not refused.
pub(super) fn is_leaf(certificate: &CertificateDer<'_>, ends: u64) -> bool {
    let Ok(parsed) = ParsedCertificate::try_from(certificate) else { return false };
    matches!(check_kind(&parsed, ends), Ok(()) | Err(RefusedByClients::Purpose))
}

/// Whether rustls accepts a certificate as that of a server, if the same certificate is the
/// authority. rustls does so with a leaf that signed itself. `ends` is as in [`is_leaf`].
pub(super) fn is_own_authority(certificate: &CertificateDer<'_>, ends: u64) -> bool {
    let Ok(parsed) = ParsedCertificate::try_from(certificate) else { return false };
    let mut roots = RootCertStore::empty();
    roots.add(certificate.clone().into_owned()).is_ok() && judge(&parsed, &roots, ends).is_ok()
}
