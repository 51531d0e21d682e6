//! A node that a command talks to, with TLS or without.

use std::{
    fmt::{self, Display},
    fs, io,
    path::Path,
    sync::{Arc, Once},
};

use hyper::header::HeaderValue;
use tokio::{
    io::{AsyncRead, AsyncWrite},
    net::TcpStream,
};
use tokio_rustls::{
    TlsConnector,
    rustls::{
        self, CertificateError, ClientConfig, RootCertStore,
        crypto::aws_lc_rs,
        pki_types::{
            CertificateDer, PrivateKeyDer, ServerName,
            pem::{self, PemObject},
        },
        version::{TLS12, TLS13},
    },
};

use super::NoAnswer;
use crate::{
    cli::{ConnectionArgs, NodeAddress},
    command_error::CommandError,
    logs::say,
    private_file::needless_readers,
};

/// A port of a node for clients.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum NodePort {
    Api,
    Admin,
}

/// A node that a command talks to.
#[derive(Clone)]
pub(crate) struct NodeTarget {
    pub(crate) address: NodeAddress,
    /// The port that the command wants. Another port may answer at the address.
    pub(super) port: NodePort,
    pub(super) host: HeaderValue,
    tls: Option<(TlsConnector, ServerName<'static>)>,
    /// The header `Authorization`.
    pub(super) token: Option<HeaderValue>,
}

/// A file that an option of [`ConnectionArgs`] names.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum ConnectionFile {
    Authority,
    Certificate,
    Key,
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

/// The reason why a node cannot be talked to.
#[derive(Debug)]
pub(crate) struct TargetError {
    /// The file that cannot be used; `None` if the address cannot be used.
    pub(crate) file: Option<ConnectionFile>,
    pub(crate) why: String,
}

impl TargetError {
    fn of_address(address: &NodeAddress, why: impl Display) -> TargetError {
        TargetError { file: None, why: format!("{address}: {why}") }
    }

    /// The error of a command line. A configuration has other names for the files.
    fn of_command_line(self) -> CommandError {
        let flag = self.file.map(|file| format!("{}: ", file.flag())).unwrap_or_default();
        CommandError::usage(flag + &self.why)
    }
}

/// A stream of bytes to a node and back.
pub(super) trait ByteStream: AsyncRead + AsyncWrite + Send + Unpin {}

impl<S: AsyncRead + AsyncWrite + Send + Unpin> ByteStream for S {}

impl ConnectionArgs {
    /// Makes the targets of the addresses.
    pub(crate) fn targets(
        &self,
        addresses: &[NodeAddress],
    ) -> Result<Vec<NodeTarget>, CommandError> {
        let connector = self.ca_file.as_deref().map(|ca_file| self.connector(ca_file));
        let connector = connector.transpose().map_err(TargetError::of_command_line)?;
        self.warn_of_readers();
        let target = |address| self.with_token(NodeTarget::new(address, connector.as_ref())?);
        let targets: Result<_, TargetError> = addresses.iter().map(target).collect();
        targets.map_err(TargetError::of_command_line)
    }

    pub(crate) fn target(&self, address: NodeAddress) -> Result<NodeTarget, CommandError> {
        self.warn_of_readers();
        self.target_of_config(address).map_err(TargetError::of_command_line)
    }

    /// The target of a node whose own configuration names the files. A node looks at its private
    /// files itself.
    pub(crate) fn target_of_config(&self, address: NodeAddress) -> Result<NodeTarget, TargetError> {
        let connector = self.ca_file.as_deref().map(|ca_file| self.connector(ca_file));
        self.with_token(NodeTarget::new(&address, connector.transpose()?.as_ref())?)
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

    /// Adds the token. A token that other machines can read on its way is no secret any more.
    fn with_token(&self, target: NodeTarget) -> Result<NodeTarget, TargetError> {
        let Some(path) = &self.token_file else { return Ok(target) };
        if target.tls.is_none() && !target.address.is_loopback() {
            return Err(TargetError::of_address(
                &target.address,
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

impl NodeTarget {
    fn new(
        address: &NodeAddress,
        connector: Option<&TlsConnector>,
    ) -> Result<NodeTarget, TargetError> {
        let unusable = |error: &dyn Display| TargetError::of_address(address, error);
        let connector = match (address.is_secured, connector) {
            (Some(false), _) | (None, None) => None,
            (Some(true), None) => {
                let missing = "give the certificate of the authority of the node: --ca-file FILE, \
                               or VVM_CA_FILE";
                return Err(unusable(&missing));
            }
            (_, Some(connector)) => Some(connector.clone()),
        };
        let tls = connector.map(|connector| {
            let name = ServerName::try_from(address.host.clone());
            Ok((connector, name.map_err(|error| unusable(&error))?))
        });
        let host = HeaderValue::from_str(&address.authority()).map_err(|error| unusable(&error))?;
        let (address, port) = (address.clone(), NodePort::Api);
        Ok(NodeTarget { address, port, host, tls: tls.transpose()?, token: None })
    }

    /// Wants the admin endpoint at the address, in place of the API.
    pub(crate) fn of_admin_port(self) -> NodeTarget {
        NodeTarget { port: NodePort::Admin, ..self }
    }

    /// Connects to the node, with TLS if the node has it.
    pub(super) async fn connect(&self) -> Result<(Box<dyn ByteStream>, TcpPeer), NoAnswer> {
        let address = (&*self.address.host, self.address.port);
        let stream = TcpStream::connect(address).await.map_err(NoAnswer::not_sent)?;
        stream.set_nodelay(true).map_err(NoAnswer::not_sent)?;
        let peer = TcpPeer(stream.peer_addr().map_err(NoAnswer::not_sent)?.to_string());
        let Some((connector, name)) = &self.tls else { return Ok((Box::new(stream), peer)) };
        let secured = connector.connect(name.clone(), stream).await;
        let stream = secured.map_err(|error| NoAnswer::NotSent(without_tls(&error)))?;
        Ok((Box::new(stream), peer))
    }
}

/// The beginning of the reason if the certificate of a node is for other names.
pub(super) const OTHER_NAME: &str = "TLS: the certificate of the node is not for the name ";

/// The beginning of the reason if a port does not answer in TLS.
pub(super) const PLAIN_PORT: &str = "the port may speak plain HTTP";

/// The reason why TLS failed.
fn without_tls(error: &io::Error) -> String {
    let inner = error.get_ref().and_then(|inner| inner.downcast_ref());
    match inner {
        Some(rustls::Error::InvalidMessage(_)) => {
            format!("{PLAIN_PORT} ({error}): try http://")
        }
        Some(rustls::Error::InvalidCertificate(CertificateError::NotValidForNameContext {
            expected,
            presented,
        })) => {
            let names: Vec<_> = presented.iter().map(|name| name_in(name)).collect();
            let advice = match &names[..] {
                [] => "the certificate has no name (`subjectAltName`): replace it".to_owned(),
                names => format!("use one of these names in the address: {}", names.join(", ")),
            };
            format!("{OTHER_NAME}{}: {advice}", expected.to_str())
        }
        _ => format!("TLS: {error}"),
    }
}

/// Returns the name in a text of rustls, such as `DnsName("node")` or `IpAddress(10.0.0.1)`.
fn name_in(text: &str) -> &str {
    let inner = text.split_once('(').and_then(|(_, rest)| rest.strip_suffix(')'));
    inner.unwrap_or(text).trim_matches('"')
}

/// The address that a connection reached, after the name of its node was looked up.
pub(super) struct TcpPeer(pub(super) String);

impl Display for NodeTarget {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        self.address.fmt(f)
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
