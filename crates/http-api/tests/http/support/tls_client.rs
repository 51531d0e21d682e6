//! A client with TLS.

use std::{
    io::{self, Write},
    net::{SocketAddr, TcpStream},
    sync::Arc,
};

use tokio_rustls::rustls::{
    ClientConfig, ClientConnection, RootCertStore, StreamOwned, SupportedProtocolVersion,
    crypto::aws_lc_rs,
    pki_types::{CertificateDer, PrivateKeyDer, pem::PemObject},
    version::{TLS12, TLS13},
};

use super::{Answer, connect};

/// A client that trusts one authority. Its read ends without an error only if the node says that
/// the connection ends (close_notify).
#[derive(Clone)]
pub(crate) struct TlsClient(Arc<ClientConfig>);

pub(crate) type TlsConnection = StreamOwned<ClientConnection, TcpStream>;

impl TlsClient {
    pub(crate) fn new(authority: &str) -> TlsClient {
        TlsClient::with(authority, None, &[&TLS12, &TLS13])
    }

    /// Makes a client with a certificate, or with only some versions of TLS.
    pub(crate) fn with(
        authority: &str,
        own: Option<&[String; 2]>,
        versions: &[&'static SupportedProtocolVersion],
    ) -> TlsClient {
        let mut roots = RootCertStore::empty();
        roots.add(CertificateDer::from_pem_slice(authority.as_bytes()).unwrap()).unwrap();
        let config = ClientConfig::builder_with_provider(Arc::new(aws_lc_rs::default_provider()))
            .with_protocol_versions(versions)
            .unwrap()
            .with_root_certificates(roots);
        let mut config = match own {
            None => config.with_no_client_auth(),
            Some([certificate, key]) => {
                let certificate = CertificateDer::from_pem_slice(certificate.as_bytes()).unwrap();
                let key = PrivateKeyDer::from_pem_slice(key.as_bytes()).unwrap();
                config.with_client_auth_cert(vec![certificate], key).unwrap()
            }
        };
        config.alpn_protocols = vec![b"h2".to_vec(), b"http/1.1".to_vec()];
        TlsClient(Arc::new(config))
    }

    /// Connects, and sends the first message of the handshake.
    pub(crate) fn begin(&self, address: SocketAddr) -> io::Result<TlsConnection> {
        let name = "localhost".try_into().unwrap();
        let tls = ClientConnection::new(Arc::clone(&self.0), name).map_err(io::Error::other)?;
        let mut connection = StreamOwned::new(tls, connect(address));
        connection.conn.write_tls(&mut connection.sock)?;
        Ok(connection)
    }

    /// Connects, and finishes the handshake.
    pub(crate) fn connect(&self, address: SocketAddr) -> io::Result<TlsConnection> {
        let mut connection = self.begin(address)?;
        while connection.conn.is_handshaking() {
            connection.conn.complete_io(&mut connection.sock)?;
        }
        Ok(connection)
    }

    /// Sends bytes on a new connection, and returns the answer.
    pub(crate) fn ask(&self, address: SocketAddr, request: &str) -> io::Result<Answer> {
        let mut connection = self.connect(address)?;
        connection.write_all(request.as_bytes())?;
        Answer::read(&mut connection)
    }
}
