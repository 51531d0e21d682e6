//! Certificates of nodes and clients.

use std::{
    fs,
    path::{Path, PathBuf},
    sync::atomic::{AtomicU32, Ordering},
    time::Duration,
};

use http_server::{ClusterTls, ServerTls, TlsFileError, TlsFiles};
use rcgen::{
    BasicConstraints, CertificateParams, CertifiedIssuer, DnType, ExtendedKeyUsagePurpose, IsCa,
    KeyPair,
};

/// How often nodes of tests look at their files.
const LOOK_EVERY: Duration = Duration::from_millis(50);

/// An authority that signs certificates of nodes and clients.
pub(crate) struct TestAuthority(CertifiedIssuer<'static, KeyPair>);

/// The PEM files of a node, and the certificate of its authority.
#[derive(Clone)]
pub(crate) struct TestFiles {
    pub(crate) certificate: PathBuf,
    pub(crate) key: PathBuf,
    pub(crate) authority: PathBuf,
}

impl TestAuthority {
    pub(crate) fn new() -> TestAuthority {
        let mut params = CertificateParams::new(Vec::new()).unwrap();
        params.is_ca = IsCa::Ca(BasicConstraints::Unconstrained);
        // Two authorities of one name would be told apart only by their keys.
        static NUMBER: AtomicU32 = AtomicU32::new(1);
        let name = format!("authority {}", NUMBER.fetch_add(1, Ordering::Relaxed));
        params.distinguished_name.push(DnType::CommonName, name);
        let key = KeyPair::generate().unwrap();
        TestAuthority(CertifiedIssuer::self_signed(params, key).unwrap())
    }

    /// The certificate of the authority.
    pub(crate) fn pem(&self) -> String {
        self.0.as_ref().pem()
    }

    /// Makes a certificate for a name, and its key.
    pub(crate) fn sign(
        &self,
        name: &str,
        change: impl FnOnce(&mut CertificateParams),
    ) -> [String; 2] {
        let mut params = CertificateParams::new(vec![name.to_owned()]).unwrap();
        params.extended_key_usages =
            vec![ExtendedKeyUsagePurpose::ServerAuth, ExtendedKeyUsagePurpose::ClientAuth];
        change(&mut params);
        let key = KeyPair::generate().unwrap();
        [params.signed_by(&key, &self.0).unwrap().pem(), key.serialize_pem()]
    }

    /// Writes the files of a node, with a certificate for a name.
    pub(crate) fn files(&self, folder: &Path, node: &str, name: &str) -> TestFiles {
        let path = |part: &str| folder.join(format!("{node}-{part}.pem"));
        let files = TestFiles {
            certificate: path("certificate"),
            key: path("key"),
            authority: path("authority"),
        };
        files.write(self.sign(name, |_| {}));
        fs::write(&files.authority, self.pem()).unwrap();
        files
    }
}

impl TestFiles {
    /// Replaces the certificate and then the key.
    pub(crate) fn write(&self, [certificate, key]: [String; 2]) {
        fs::write(&self.certificate, certificate).unwrap();
        fs::write(&self.key, key).unwrap();
    }

    fn own(&self) -> TlsFiles {
        TlsFiles { look_every: LOOK_EVERY, ..TlsFiles::new(&self.certificate, &self.key) }
    }

    #[allow(dead_code, reason = "only the suite of clusters needs it")]
    pub(crate) fn cluster(&self) -> Result<ClusterTls, TlsFileError> {
        ClusterTls::read(self.own(), &self.authority)
    }

    pub(crate) fn server(&self) -> Result<ServerTls, TlsFileError> {
        ServerTls::read(self.own())
    }

    pub(crate) fn server_with_clients(&self) -> Result<ServerTls, TlsFileError> {
        ServerTls::read_with_clients(self.own(), &self.authority)
    }
}
