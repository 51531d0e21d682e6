//! TLS of the API and of the admin endpoint.

use std::{path::PathBuf, sync::Arc};

use tokio_rustls::rustls::{
    ServerConfig,
    crypto::aws_lc_rs,
    server::WebPkiClientVerifier,
    version::{TLS12, TLS13},
};

use super::{
    clients::{CheckedClients, check_operator},
    files::{Credentials, PortFiles, TlsFile, TlsFileError, TlsFiles},
    port::PortTls,
};

/// TLS of the API or of the admin endpoint: version 1.2 or 1.3, with HTTP/1.1 inside.
#[derive(Clone, Debug)]
pub struct ServerTls(Arc<PortTls>);

impl ServerTls {
    /// Reads the files of a port that serves every client.
    ///
    /// # Errors
    /// If a file cannot be used, if the key is not that of the certificate, or if every client with
    /// rustls would refuse the certificate: it is that of an authority, is not for servers, or has
    /// no name. A certificate that has expired is not an error.
    pub fn read(files: TlsFiles) -> Result<ServerTls, TlsFileError> {
        ServerTls::read_port(PortFiles { own: files, authority: None })
    }

    /// Reads the files of a port that serves only clients with a certificate. An authority in the
    /// PEM file `authority` must have signed the certificate, for clients.
    ///
    /// # Errors
    /// As [`ServerTls::read`], and if a certificate in the file `authority` is not an authority.
    pub fn read_with_clients(
        files: TlsFiles,
        authority: impl Into<PathBuf>,
    ) -> Result<ServerTls, TlsFileError> {
        ServerTls::read_port(PortFiles { own: files, authority: Some(authority.into()) })
    }

    fn read_port(files: PortFiles) -> Result<ServerTls, TlsFileError> {
        let configure = |credentials: &Credentials| Ok((server_config(credentials)?, None));
        // The settings are made only of a certificate that clients accept.
        Ok(ServerTls(Arc::new(PortTls::read(files, configure, |_| Ok(()))?)))
    }

    /// The TLS of the port.
    pub fn port(&self) -> &PortTls {
        &self.0
    }
}

fn server_config(credentials: &Credentials) -> Result<ServerConfig, TlsFileError> {
    credentials.check_server()?;
    credentials.check_authorities()?;
    let provider = Arc::new(aws_lc_rs::default_provider());
    let unusable = |file| move |error| credentials.refused(file, error);
    let config = ServerConfig::builder_with_provider(Arc::clone(&provider))
        .with_protocol_versions(&[&TLS13, &TLS12])
        .map_err(unusable(TlsFile::Certificate))?;
    let config = match &credentials.authority {
        None => config.with_no_client_auth(),
        Some(authority) => {
            let verifier =
                WebPkiClientVerifier::builder_with_provider(Arc::clone(authority), provider)
                    .build()
                    .map_err(|error| credentials.refused(TlsFile::Authority, error))?;
            let check = check_operator;
            config
                .with_client_cert_verifier(Arc::new(CheckedClients { authority: verifier, check }))
        }
    };
    let mut config = config
        .with_single_cert(credentials.chain.clone(), credentials.key.clone_key())
        .map_err(|error| credentials.refused_pair(error))?;
    config.alpn_protocols = vec![b"http/1.1".to_vec()];
    Ok(config)
}
