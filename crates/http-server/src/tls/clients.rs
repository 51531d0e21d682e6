//! The checks of client certificates that rustls does not make.

use std::sync::Arc;

use tokio_rustls::rustls::{
    CertificateError, DigitallySignedStruct, DistinguishedName, Error, SignatureScheme,
    client::danger::HandshakeSignatureValid,
    pki_types::{CertificateDer, UnixTime},
    server::danger::{ClientCertVerified, ClientCertVerifier},
};

/// Refuses the certificate of a client for a reason that rustls does not know.
pub(crate) type ClientCheck = fn(&CertificateDer<'_>) -> Result<(), Error>;

/// Accepts the certificates that rustls accepts and that pass a check.
#[derive(Debug)]
pub(crate) struct CheckedClients {
    pub(crate) authority: Arc<dyn ClientCertVerifier>,
    pub(crate) check: ClientCheck,
}

impl ClientCertVerifier for CheckedClients {
    fn root_hint_subjects(&self) -> &[DistinguishedName] {
        self.authority.root_hint_subjects()
    }

    fn verify_client_cert(
        &self,
        own: &CertificateDer<'_>,
        intermediates: &[CertificateDer<'_>],
        now: UnixTime,
    ) -> Result<ClientCertVerified, Error> {
        let verified = self.authority.verify_client_cert(own, intermediates, now)?;
        (self.check)(own)?;
        Ok(verified)
    }

    fn verify_tls12_signature(
        &self,
        message: &[u8],
        own: &CertificateDer<'_>,
        signed: &DigitallySignedStruct,
    ) -> Result<HandshakeSignatureValid, Error> {
        self.authority.verify_tls12_signature(message, own, signed)
    }

    fn verify_tls13_signature(
        &self,
        message: &[u8],
        own: &CertificateDer<'_>,
        signed: &DigitallySignedStruct,
    ) -> Result<HandshakeSignatureValid, Error> {
        self.authority.verify_tls13_signature(message, own, signed)
    }

    fn supported_verify_schemes(&self) -> Vec<SignatureScheme> {
        self.authority.supported_verify_schemes()
    }
}

/// Refuses the certificate of an operator without an `extendedKeyUsage`. rustls accepts such a
/// certificate for every purpose, and refuses one whose purposes lack `clientAuth`.
pub(super) fn check_operator(own: &CertificateDer<'_>) -> Result<(), Error> {
    match has_purposes(own) {
        true => Ok(()),
        false => Err(CertificateError::InvalidPurpose.into()),
    }
}

/// Whether a certificate has an `extendedKeyUsage` (RFC 5280). rustls does not show it, but has
/// read the certificate before, so its bytes have the right form.
fn has_purposes(certificate: &[u8]) -> bool {
    /// The tag of the part with the extensions.
    const EXTENSIONS: u8 = 0xa3;
    const EXTENDED_KEY_USAGE: &[u8] = &[0x55, 0x1d, 0x25];
    let first = |der| values(der).next().map_or(&[][..], |(_, content)| content);
    let signed = first(first(certificate));
    let extensions = values(signed).find(|(tag, _)| *tag == EXTENSIONS);
    let extensions = extensions.map_or(&[][..], |(_, content)| first(content));
    values(extensions).any(|(_, extension)| first(extension) == EXTENDED_KEY_USAGE)
}

/// The values that follow each other in DER, each with its tag.
fn values(mut der: &[u8]) -> impl Iterator<Item = (u8, &[u8])> {
    std::iter::from_fn(move || {
        let ([tag, short], mut rest) = der.split_first_chunk().map(|(head, rest)| (*head, rest))?;
        let mut length = usize::from(short);
        if short >= 0x80 {
            let (long, behind) = rest.split_at_checked(usize::from(short & 0x7f))?;
            length = long.iter().try_fold(0_usize, |length, byte| {
                length.checked_mul(256)?.checked_add(usize::from(*byte))
            })?;
            rest = behind;
        }
        let content;
        (content, der) = rest.split_at_checked(length)?;
        Some((tag, content))
    })
}

#[cfg(test)]
mod tests {
    use rcgen::{CertificateParams, ExtendedKeyUsagePurpose::ClientAuth, KeyPair};

    use super::*;

    #[test]
    fn the_purposes_of_a_certificate_are_found() {
        for count in [0, 1, 40] {
            // The length of the extensions has one, two or three bytes.
            let names: Vec<String> = (0..count).map(|n| format!("node{n}.example")).collect();
            let mut params = CertificateParams::new(names).unwrap();
            let der = |params: &CertificateParams| {
                params.clone().self_signed(&KeyPair::generate().unwrap()).unwrap().der().to_vec()
            };
            assert!(!has_purposes(&der(&params)), "{count} names");
            params.extended_key_usages = vec![ClientAuth];
            let with = der(&params);
            assert!(has_purposes(&with), "{count} names");
            // Bytes that are not a certificate end the search.
            (0..with.len()).for_each(|end| _ = has_purposes(&with[..end]));
        }
    }
}
