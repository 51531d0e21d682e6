//! Mutual TLS between the nodes of a cluster.
//!
//! All nodes share one authority and one name, [`NODE_NAME`]. A node trusts a peer if the authority
//! signed the certificate of the peer, and the certificate is for that name. The server checks the
//! name, too: an authority may also sign certificates that are not for nodes.

use std::{
    fmt, io,
    path::{Path, PathBuf},
    sync::Arc,
};

use tokio::net::TcpStream;
use tokio_rustls::{
    TlsAcceptor, TlsConnector,
    rustls::{
        self, ClientConfig, DigitallySignedStruct, DistinguishedName, RootCertStore, ServerConfig,
        SignatureScheme,
        client::{danger::HandshakeSignatureValid, verify_server_name},
        crypto::aws_lc_rs,
        pki_types::{
            CertificateDer, PrivateKeyDer, ServerName, UnixTime,
            pem::{self, PemObject},
        },
        server::{
            ParsedCertificate, WebPkiClientVerifier,
            danger::{ClientCertVerified, ClientCertVerifier},
        },
        version::TLS13,
    },
};

use crate::stream::NodeStream;

/// The name in the certificates of all nodes.
pub(super) const NODE_NAME: &str = "vvm-cluster";

/// The PEM files of a node for TLS between nodes. They are read once, at the start.
#[derive(Clone, Debug)]
pub struct ClusterTlsFiles {
    /// The certificate of the node, followed by intermediate certificates. The certificate has the
    /// DNS name `vvm-cluster`, and is for servers and for clients.
    pub certificate: PathBuf,
    /// The private key of the certificate.
    pub key: PathBuf,
    /// The certificates of the authorities that sign certificates of nodes.
    pub authority: PathBuf,
}

/// The problem of a file for TLS between nodes.
#[derive(Debug, thiserror::Error)]
#[error("TLS between nodes: {}: {why}", path.display())]
pub struct ClusterTlsError {
    /// The file.
    pub path: PathBuf,
    why: TlsFileProblem,
}

#[derive(Debug, thiserror::Error)]
enum TlsFileProblem {
    #[error("{0}")]
    Pem(pem::Error),
    #[error("the file has no certificate in PEM format")]
    Empty,
    #[error("{0}")]
    Unusable(Box<dyn std::error::Error + Send + Sync>),
}

/// The keys of a node for TLS with its peers.
#[derive(Clone)]
pub(crate) struct ClusterTls {
    acceptor: TlsAcceptor,
    connector: TlsConnector,
    name: ServerName<'static>,
}

impl ClusterTls {
    /// Reads the files.
    pub(super) fn read(files: &ClusterTlsFiles) -> Result<ClusterTls, ClusterTlsError> {
        let ClusterTlsFiles { certificate, key, authority } = files;
        let provider = Arc::new(aws_lc_rs::default_provider());
        let chain = certificates(certificate)?;
        let own_key = PrivateKeyDer::from_pem_file(key)
            .map_err(|error| problem(key, TlsFileProblem::Pem(error)))?;
        let mut roots = RootCertStore::empty();
        for root in certificates(authority)? {
            roots.add(root).map_err(|error| unusable(authority, error))?;
        }
        let roots = Arc::new(roots);
        let verifier =
            WebPkiClientVerifier::builder_with_provider(Arc::clone(&roots), Arc::clone(&provider))
                .build()
                .map_err(|error| unusable(authority, error))?;
        let name = ServerName::try_from(NODE_NAME).map_err(|error| unusable(certificate, error))?;
        let verifier = Arc::new(NodeVerifier { authority: verifier, name: name.clone() });
        let server = ServerConfig::builder_with_provider(Arc::clone(&provider))
            .with_protocol_versions(&[&TLS13])
            .map_err(|error| unusable(certificate, error))?
            .with_client_cert_verifier(verifier)
            .with_single_cert(chain.clone(), own_key.clone_key())
            .map_err(|error| unusable(key, error))?;
        let client = ClientConfig::builder_with_provider(provider)
            .with_protocol_versions(&[&TLS13])
            .map_err(|error| unusable(certificate, error))?
            .with_root_certificates(roots)
            .with_client_auth_cert(chain, own_key)
            .map_err(|error| unusable(key, error))?;
        Ok(ClusterTls {
            acceptor: Arc::new(server).into(),
            connector: Arc::new(client).into(),
            name,
        })
    }

    /// Accepts the connection of a peer.
    pub(crate) async fn accept(&self, stream: TcpStream) -> io::Result<NodeStream> {
        let stream = self.acceptor.accept(stream).await?;
        Ok(NodeStream::Tls(Box::new(stream.into())))
    }

    /// Begins TLS with a peer.
    pub(super) async fn connect(&self, stream: TcpStream) -> io::Result<NodeStream> {
        let stream = self.connector.connect(self.name.clone(), stream).await?;
        Ok(NodeStream::Tls(Box::new(stream.into())))
    }
}

impl fmt::Debug for ClusterTls {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("ClusterTls").finish_non_exhaustive()
    }
}

/// Checks that the certificate of a client is that of a node.
#[derive(Debug)]
struct NodeVerifier {
    authority: Arc<dyn ClientCertVerifier>,
    name: ServerName<'static>,
}

impl ClientCertVerifier for NodeVerifier {
    fn root_hint_subjects(&self) -> &[DistinguishedName] {
        self.authority.root_hint_subjects()
    }

    fn verify_client_cert(
        &self,
        own: &CertificateDer<'_>,
        intermediates: &[CertificateDer<'_>],
        now: UnixTime,
    ) -> Result<ClientCertVerified, rustls::Error> {
        verify_server_name(&ParsedCertificate::try_from(own)?, &self.name)?;
        self.authority.verify_client_cert(own, intermediates, now)
    }

    fn verify_tls12_signature(
        &self,
        message: &[u8],
        own: &CertificateDer<'_>,
        signed: &DigitallySignedStruct,
    ) -> Result<HandshakeSignatureValid, rustls::Error> {
        self.authority.verify_tls12_signature(message, own, signed)
    }

    fn verify_tls13_signature(
        &self,
        message: &[u8],
        own: &CertificateDer<'_>,
        signed: &DigitallySignedStruct,
    ) -> Result<HandshakeSignatureValid, rustls::Error> {
        self.authority.verify_tls13_signature(message, own, signed)
    }

    fn supported_verify_schemes(&self) -> Vec<SignatureScheme> {
        self.authority.supported_verify_schemes()
    }
}

fn certificates(path: &Path) -> Result<Vec<CertificateDer<'static>>, ClusterTlsError> {
    let all = CertificateDer::pem_file_iter(path).and_then(Iterator::collect::<Result<Vec<_>, _>>);
    match all.map_err(|error| problem(path, TlsFileProblem::Pem(error)))? {
        none if none.is_empty() => Err(problem(path, TlsFileProblem::Empty)),
        some => Ok(some),
    }
}

fn problem(path: &Path, why: TlsFileProblem) -> ClusterTlsError {
    ClusterTlsError { path: path.to_owned(), why }
}

fn unusable(
    path: &Path,
    error: impl Into<Box<dyn std::error::Error + Send + Sync>>,
) -> ClusterTlsError {
    problem(path, TlsFileProblem::Unusable(error.into()))
}

/// Whether the peer refused the certificate of this node, or this node the certificate of the peer.
/// Such a peer has handled no request of the connection.
pub(super) fn is_refused_certificate(error: &(dyn std::error::Error + 'static)) -> bool {
    use rustls::{AlertDescription as Alert, Error};
    let mut next = Some(error);
    while let Some(error) = next {
        let inner = error.downcast_ref::<io::Error>().and_then(io::Error::get_ref);
        if let Some(Error::AlertReceived(alert)) = inner.and_then(|error| error.downcast_ref()) {
            return matches!(
                alert,
                Alert::BadCertificate
                    | Alert::UnknownCA
                    | Alert::CertificateExpired
                    | Alert::CertificateRequired
                    | Alert::CertificateUnknown
                    | Alert::UnsupportedCertificate
                    | Alert::DecryptError
                    | Alert::AccessDenied
            );
        }
        next = error.source();
    }
    false
}
