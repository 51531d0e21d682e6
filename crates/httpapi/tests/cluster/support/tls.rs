//! Certificates of nodes.

use std::{fs, path::Path};

use httpapi::ClusterTlsFiles;
use rcgen::{
    BasicConstraints, CertificateParams, CertifiedIssuer, ExtendedKeyUsagePurpose, IsCa, KeyPair,
};

/// An authority that signs certificates of nodes.
pub(crate) struct TestAuthority(CertifiedIssuer<'static, KeyPair>);

impl TestAuthority {
    pub(crate) fn new() -> TestAuthority {
        let mut params = CertificateParams::new(Vec::new()).unwrap();
        params.is_ca = IsCa::Ca(BasicConstraints::Unconstrained);
        let key = KeyPair::generate().unwrap();
        TestAuthority(CertifiedIssuer::self_signed(params, key).unwrap())
    }

    /// Writes the files of a node, whose certificate is for a name.
    pub(crate) fn files(&self, folder: &Path, node: &str, name: &str) -> ClusterTlsFiles {
        let mut params = CertificateParams::new(vec![name.to_owned()]).unwrap();
        params.extended_key_usages =
            vec![ExtendedKeyUsagePurpose::ServerAuth, ExtendedKeyUsagePurpose::ClientAuth];
        let key = KeyPair::generate().unwrap();
        let own = params.signed_by(&key, &self.0).unwrap();
        let write = |part: &str, text: String| {
            let path = folder.join(format!("{node}-{part}.pem"));
            fs::write(&path, text).unwrap();
            path
        };
        ClusterTlsFiles {
            certificate: write("certificate", own.pem()),
            key: write("key", key.serialize_pem()),
            authority: write("authority", self.0.as_ref().pem()),
        }
    }
}
