//! The arguments that say how a command connects to a node.

use std::{
    fmt::Display,
    fs, io,
    path::{Path, PathBuf},
    sync::{Arc, Once},
};

use clap::Args;
use hyper::header::HeaderValue;
use tokio_rustls::{
    TlsConnector,
    rustls::{
        self, ClientConfig, RootCertStore,
        crypto::aws_lc_rs,
        pki_types::{
            CertificateDer, PrivateKeyDer,
            pem::{self, PemObject},
        },
        version::{TLS12, TLS13},
    },
};

use super::{address::NodeAddress, target::NodeTarget};
use crate::{CommandError, private_file::needless_readers, terminal::say};

/// The files for TLS with a node, and the token that the command sends.
#[derive(Clone, Debug, Default, Args)]
pub struct ConnectionArgs {
    /// The certificates of the authorities that sign the certificates of nodes, in PEM. With this
    /// file, an address without `http://` means `https://`.
    #[arg(long, value_name = "FILE", env = "VVM_CA_FILE", help_heading = "TLS")]
    pub ca_file: Option<PathBuf>,

    /// The client certificate, in PEM, for an admin endpoint that asks for certificates.
    #[arg(
        long,
        value_name = "FILE",
        env = "VVM_CERT_FILE",
        help_heading = "TLS",
        requires = "key_file",
        requires = "ca_file"
    )]
    pub cert_file: Option<PathBuf>,

    /// The private key of the client certificate, in PEM.
    #[arg(
        long,
        value_name = "FILE",
        env = "VVM_KEY_FILE",
        help_heading = "TLS",
        requires = "cert_file"
    )]
    pub key_file: Option<PathBuf>,

    /// The file with the token that the node wants.
    #[arg(long, value_name = "FILE", env = "VVM_TOKEN_FILE", help_heading = "Access")]
    pub token_file: Option<PathBuf>,
}

/// A file that an option of [`ConnectionArgs`] names.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum ConnectionFile {
    /// The certificates of the authorities.
    Authority,
    /// The client certificate.
    Certificate,
    /// The key of the client certificate.
    Key,
    /// The token.
    Token,
}

impl ConnectionFile {
    fn flag(self) -> &'static str {
        match self {
            ConnectionFile::Authority => "--ca-file",
            ConnectionFile::Certificate => "--cert-file",
            ConnectionFile::Key => "--key-file",
            ConnectionFile::Token => "--token-file",
        }
    }
}

/// The reason why a command cannot talk to a node.
#[derive(Debug)]
pub struct TargetError {
    /// The file that cannot be used; `None` if the address cannot be used.
    pub file: Option<ConnectionFile>,
    /// The reason, for people.
    pub why: String,
}

impl TargetError {
    fn of_address(address: &NodeAddress, why: &str) -> TargetError {
        TargetError { file: None, why: format!("{address}: {why}") }
    }

    /// The error of a command line. A configuration has other names for the files.
    fn of_command_line(self) -> CommandError {
        let flag = self.file.map(|file| format!("{}: ", file.flag())).unwrap_or_default();
        CommandError::usage(flag + &self.why)
    }
}

impl ConnectionArgs {
    /// Makes the targets of the addresses.
    pub(crate) fn targets(
        &self,
        addresses: &[NodeAddress],
    ) -> Result<Vec<NodeTarget>, CommandError> {
        let connector = self.ca_file.as_deref().map(|ca_file| self.connector(ca_file));
        let connector = connector.transpose().map_err(TargetError::of_command_line)?;
        self.warn_of_readers();
        let target = |address| self.with_token(address, connector.as_ref());
        let targets: Result<_, TargetError> = addresses.iter().map(target).collect();
        targets.map_err(TargetError::of_command_line)
    }

    /// Makes the target of an address, for a command.
    ///
    /// # Errors
    /// A file of these arguments, or the address, cannot be used.
    pub fn target(&self, address: NodeAddress) -> Result<NodeTarget, CommandError> {
        self.warn_of_readers();
        self.target_of_config(address).map_err(TargetError::of_command_line)
    }

    /// The target of a node whose own configuration names the files. A node looks at its private
    /// files itself.
    ///
    /// # Errors
    /// A file of these arguments, or the address, cannot be used.
    pub fn target_of_config(&self, address: NodeAddress) -> Result<NodeTarget, TargetError> {
        let connector = self.ca_file.as_deref().map(|ca_file| self.connector(ca_file));
        self.with_token(&address, connector.transpose()?.as_ref())
    }

    /// Warns once if other users of the machine can read the token.
    fn warn_of_readers(&self) {
        static WARNED: Once = Once::new();
        let Some(path) = &self.token_file else { return };
        if let Some(readers) = needless_readers(path) {
            let file = path.display();
            let warning =
                format!("warning: {readers} can read the token in {file}: run `chmod 600 {file}`");
            WARNED.call_once(|| say(warning));
        }
    }

    /// Makes a target with the token. A token that other machines can read on its way is no longer
    /// a secret.
    fn with_token(
        &self,
        address: &NodeAddress,
        connector: Option<&TlsConnector>,
    ) -> Result<NodeTarget, TargetError> {
        let target = NodeTarget::new(address, connector);
        let target = target.map_err(|why| TargetError::of_address(address, &why))?;
        let Some(path) = &self.token_file else { return Ok(target) };
        if target.tls.is_none() && !address.is_loopback() {
            return Err(TargetError::of_address(
                address,
                "the token would be sent without TLS: give the certificate of the authority of the \
                 node with --ca-file FILE",
            ));
        }
        let wrong = |why: &dyn Display| wrong(ConnectionFile::Token, path, why);
        let text = fs::read_to_string(path);
        let text =
            text.map_err(|error| unread(ConnectionFile::Token, "token file", path, &error))?;
        let token = text.trim();
        if token.is_empty() {
            return Err(wrong(&"the file is empty: it must hold a token"));
        }
        if token.contains(char::is_whitespace) {
            return Err(wrong(&"the file must hold the token alone, without `Bearer`"));
        }
        let header = HeaderValue::from_str(&format!("Bearer {token}"));
        let mut header = header.map_err(|_| wrong(&"it is not a token"))?;
        header.set_sensitive(true);
        Ok(NodeTarget { token: Some(header), ..target })
    }

    fn connector(&self, ca_file: &Path) -> Result<TlsConnector, TargetError> {
        let mut roots = RootCertStore::empty();
        for root in certificates(ConnectionFile::Authority, ca_file)? {
            roots.add(root).map_err(|error| wrong(ConnectionFile::Authority, ca_file, error))?;
        }
        let config = ClientConfig::builder_with_provider(Arc::new(aws_lc_rs::default_provider()))
            .with_protocol_versions(&[&TLS13, &TLS12])
            .map_err(|error| wrong(ConnectionFile::Authority, ca_file, error))?
            .with_root_certificates(roots);
        let mut config = match (&self.cert_file, &self.key_file) {
            (Some(certificate), Some(key)) => {
                let chain = certificates(ConnectionFile::Certificate, certificate)?;
                let own = PrivateKeyDer::from_pem_file(key).map_err(|error| match error {
                    pem::Error::NoItemsFound => wrong(
                        ConnectionFile::Key,
                        key,
                        "the file has no private key in PEM format (BEGIN PRIVATE KEY)",
                    ),
                    pem::Error::Io(error) => unread(ConnectionFile::Key, "key file", key, &error),
                    error => wrong(ConnectionFile::Key, key, error),
                })?;
                config.with_client_auth_cert(chain, own).map_err(|error| match error {
                    rustls::Error::InconsistentKeys(_) => {
                        let certificate = certificate.display();
                        let why = format!(
                            "the key does not belong to the first certificate in {certificate}: \
                                 use the key of that certificate"
                        );
                        wrong(ConnectionFile::Key, key, why)
                    }
                    error => wrong(ConnectionFile::Key, key, error),
                })?
            }
            _ => config.with_no_client_auth(),
        };
        config.alpn_protocols = vec![b"http/1.1".to_vec()];
        Ok(Arc::new(config).into())
    }
}

fn certificates(
    file: ConnectionFile,
    path: &Path,
) -> Result<Vec<CertificateDer<'static>>, TargetError> {
    let all = CertificateDer::pem_file_iter(path).and_then(Iterator::collect::<Result<Vec<_>, _>>);
    match all {
        Ok(none) if none.is_empty() => {
            let why = "the file has no certificate in PEM format (BEGIN CERTIFICATE)";
            Err(wrong(file, path, why))
        }
        Err(pem::Error::Io(error)) => Err(unread(file, "file of certificates", path, &error)),
        all => all.map_err(|error| wrong(file, path, error)),
    }
}

/// The error of a file that cannot be read. `what` names the file for people.
fn unread(file: ConnectionFile, what: &str, path: &Path, error: &io::Error) -> TargetError {
    let why = format!("cannot read the {what} {}: {error}", path.display());
    TargetError { file: Some(file), why }
}

fn wrong(file: ConnectionFile, path: &Path, error: impl Display) -> TargetError {
    TargetError { file: Some(file), why: format!("{}: {error}", path.display()) }
}
