//! The end of a certificate.

use std::time::Duration;

use tokio_rustls::rustls::{
    CertificateError, Error, RootCertStore,
    client::verify_server_cert_signed_by_trust_anchor,
    crypto::aws_lc_rs,
    pki_types::{CertificateDer, UnixTime},
    server::ParsedCertificate,
};

/// Returns when a certificate expires, in seconds since 1970.
///
/// rustls does not show this moment. But it names the moment when it refuses a certificate that has
/// expired, and it judges the time before anything else. So the certificate is judged as of a
/// moment after every possible end.
pub(super) fn ends(certificate: &CertificateDer<'_>) -> Result<u64, Error> {
    let after_all = UnixTime::since_unix_epoch(Duration::from_secs(u64::MAX));
    let judged = verify_server_cert_signed_by_trust_anchor(
        &ParsedCertificate::try_from(certificate)?,
        &RootCertStore::empty(),
        &[],
        after_all,
        aws_lc_rs::default_provider().signature_verification_algorithms.all,
    );
    match judged {
        Err(Error::InvalidCertificate(CertificateError::ExpiredContext { not_after, .. })) => {
            Ok(not_after.as_secs())
        }
        Err(error) => Err(error),
        Ok(()) => Err(CertificateError::BadEncoding.into()),
    }
}

#[cfg(test)]
mod tests {
    use rcgen::{BasicConstraints, CertificateParams, IsCa, KeyPair, date_time_ymd};

    use super::*;

    #[test]
    fn the_end_of_each_kind_of_certificate_is_found() {
        for is_ca in [IsCa::NoCa, IsCa::Ca(BasicConstraints::Unconstrained)] {
            for (end, seconds) in [
                (date_time_ymd(1975, 1, 1), 157_766_400),
                (date_time_ymd(2026, 11, 23), 1_795_392_000),
                // From 2050 on the time has another format.
                (date_time_ymd(2525, 1, 1), 17_514_144_000),
            ] {
                let mut params = CertificateParams::new(vec!["node".to_owned()]).unwrap();
                (params.is_ca, params.not_after) = (is_ca, end);
                params.not_before = date_time_ymd(1974, 1, 1);
                let own = params.self_signed(&KeyPair::generate().unwrap()).unwrap();
                assert_eq!(ends(own.der()), Ok(seconds));
            }
        }
        assert!(ends(&CertificateDer::from(vec![1, 2, 3])).is_err());
    }
}
