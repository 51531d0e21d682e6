//! Mutual TLS between the nodes of a cluster.
//!
//! All nodes share one authority and one name, [`NODE_NAME`]. A node trusts a peer if the authority
//! signed the certificate of the peer, and the certificate is for that name. The server checks the
//! name, too: an authority may also sign certificates that are not for nodes.

use std::{io, path::PathBuf, sync::Arc};

use tokio::net::TcpStream;
use tokio_rustls::rustls::{
    self, CertificateError, ClientConfig, RootCertStore, ServerConfig,
    client::{WebPkiServerVerifier, danger::ServerCertVerifier, verify_server_name},
    crypto::aws_lc_rs,
    pki_types::{CertificateDer, ServerName, UnixTime},
    server::{ParsedCertificate, WebPkiClientVerifier},
    version::TLS13,
};

use super::{CheckedClients, Credentials, PortFiles, PortTls, TlsFile, TlsFileError, TlsFiles};
use crate::stream::NodeStream;

/// The name in the certificates of all nodes.
pub(super) const NODE_NAME: &str = "vvm-cluster";

/// Mutual TLS of a node with its peers.
#[derive(Clone, Debug)]
pub struct ClusterTls(Arc<PortTls>);

impl ClusterTls {
    /// Reads the files. The certificate of the node has the DNS name `vvm-cluster`, and is for
    /// servers and for clients. The authorities in the PEM file `authority` sign the certificates
    /// of all nodes.
    ///
    /// # Errors
    /// If a file cannot be used, if the key is not that of the certificate, or if a certificate in
    /// the file `authority` is not an authority. The nodes may share a certificate that signed
    /// itself, as certificate and as authority.
    pub fn read(
        files: TlsFiles,
        authority: impl Into<PathBuf>,
    ) -> Result<ClusterTls, TlsFileError> {
        let files = PortFiles { own: files, authority: Some(authority.into()) };
        Ok(ClusterTls(Arc::new(PortTls::read(files, configs, check_own)?)))
    }

    /// Checks the certificate of this node as the other nodes do: a connection in either direction
    /// needs it. A certificate that has expired or is not valid yet passes, because the node warns
    /// of its end, and takes a new one while it works. A node that works checks new files in this
    /// way.
    ///
    /// # Errors
    /// If a file cannot be used, or if the other nodes would refuse the certificate.
    pub fn check_own(&self) -> Result<(), TlsFileError> {
        self.0.check_files()
    }

    /// The TLS of the port.
    pub fn port(&self) -> &PortTls {
        &self.0
    }

    /// Begins TLS with a peer.
    pub async fn connect(&self, stream: TcpStream) -> io::Result<NodeStream> {
        let name = ServerName::try_from(NODE_NAME).map_err(io::Error::other)?;
        self.0.connect(stream, name).await
    }
}

/// The settings of rustls for both ends of a connection between nodes.
fn configs(
    credentials: &Credentials,
) -> Result<(ServerConfig, Option<ClientConfig>), TlsFileError> {
    credentials.check_authorities_of_nodes()?;
    let provider = Arc::new(aws_lc_rs::default_provider());
    let unusable = |error: rustls::Error| credentials.refused(TlsFile::Certificate, error);
    let refused_pair = |error| credentials.refused_pair(error);
    let roots = credentials.authority.clone().unwrap_or_else(|| Arc::new(RootCertStore::empty()));
    let verifier =
        WebPkiClientVerifier::builder_with_provider(Arc::clone(&roots), Arc::clone(&provider))
            .build()
            .map_err(|error| credentials.refused(TlsFile::Authority, error))?;
    let verifier = Arc::new(CheckedClients { authority: verifier, check: check_node });
    let (chain, key) = (&credentials.chain, &credentials.key);
    let server = ServerConfig::builder_with_provider(Arc::clone(&provider))
        .with_protocol_versions(&[&TLS13])
        .map_err(unusable)?
        .with_client_cert_verifier(verifier)
        .with_single_cert(chain.clone(), key.clone_key())
        .map_err(refused_pair)?;
    let client = ClientConfig::builder_with_provider(provider)
        .with_protocol_versions(&[&TLS13])
        .map_err(unusable)?
        .with_root_certificates(roots)
        .with_client_auth_cert(chain.clone(), key.clone_key())
        .map_err(refused_pair)?;
    Ok((server, Some(client)))
}

#[derive(Debug, thiserror::Error)]
#[error(
    "the other nodes refuse the certificate ({0}): it needs the DNS name `{NODE_NAME}`, an authority \
     in the file of authorities, and the purposes of servers and of clients"
)]
struct RefusedByPeers(rustls::Error);

/// Checks the certificate of this node, unless its time is the only problem.
fn check_own(credentials: &Credentials) -> Result<(), TlsFileError> {
    judged_by_peers(credentials).or_else(|error| match error {
        rustls::Error::InvalidCertificate(
            CertificateError::Expired
            | CertificateError::ExpiredContext { .. }
            | CertificateError::NotValidYet
            | CertificateError::NotValidYetContext { .. },
        ) => Ok(()),
        error => Err(credentials.refused(TlsFile::Certificate, RefusedByPeers(error))),
    })
}

fn judged_by_peers(credentials: &Credentials) -> Result<(), rustls::Error> {
    let provider = Arc::new(aws_lc_rs::default_provider());
    let roots = credentials.authority.clone().unwrap_or_else(|| Arc::new(RootCertStore::empty()));
    let general = |error: &dyn std::fmt::Display| rustls::Error::General(error.to_string());
    let name = ServerName::try_from(NODE_NAME).map_err(|error| general(&error))?;
    let Some((own, intermediates)) = credentials.chain.split_first() else { return Ok(()) };
    let now = UnixTime::now();
    WebPkiServerVerifier::builder_with_provider(Arc::clone(&roots), Arc::clone(&provider))
        .build()
        .map_err(|error| general(&error))?
        .verify_server_cert(own, intermediates, &name, &[], now)?;
    WebPkiClientVerifier::builder_with_provider(roots, provider)
        .build()
        .map_err(|error| general(&error))?
        .verify_client_cert(own, intermediates, now)?;
    Ok(())
}

/// Checks that the certificate of a client is that of a node.
fn check_node(own: &CertificateDer<'_>) -> Result<(), rustls::Error> {
    let name = ServerName::try_from(NODE_NAME);
    let name = name.map_err(|error| rustls::Error::General(error.to_string()))?;
    verify_server_name(&ParsedCertificate::try_from(own)?, &name)
}

/// Whether the peer refused the certificate of this node, or this node the certificate of the peer.
/// Such a peer has handled no request of the connection.
pub fn is_refused_certificate(error: &(dyn std::error::Error + 'static)) -> bool {
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
