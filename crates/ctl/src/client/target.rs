//! A node that a command talks to, with TLS or without.

use std::{
    fmt::{self, Display},
    io,
};

use hyper::header::HeaderValue;
use tokio::{
    io::{AsyncRead, AsyncWrite},
    net::TcpStream,
};
use tokio_rustls::{
    TlsConnector,
    rustls::{self, CertificateError, pki_types::ServerName},
};

use super::{address::NodeAddress, no_answer::NoAnswer};
use crate::CommandError;

/// A port of a node for clients.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum NodePort {
    Api,
    Admin,
}

/// A node that a command talks to.
#[derive(Clone)]
pub struct NodeTarget {
    pub(crate) address: NodeAddress,
    /// The port that the command wants. Another port may answer at the address.
    pub(super) port: NodePort,
    pub(super) host: HeaderValue,
    pub(super) tls: Option<(TlsConnector, ServerName<'static>)>,
    /// The header `Authorization`.
    pub(super) token: Option<HeaderValue>,
}

/// A stream of bytes to a node and back.
pub(super) trait ByteStream: AsyncRead + AsyncWrite + Send + Unpin {}

impl<S: AsyncRead + AsyncWrite + Send + Unpin> ByteStream for S {}

impl NodeTarget {
    /// Makes a target without a token. The error says why the address cannot be used.
    pub(super) fn new(
        address: &NodeAddress,
        connector: Option<&TlsConnector>,
    ) -> Result<NodeTarget, String> {
        let unusable = |error: &dyn Display| error.to_string();
        let connector = match (address.is_secured, connector) {
            (Some(false), _) | (None, None) => None,
            (Some(true), None) => {
                let missing = "give the certificate of the authority of the node: --ca-file FILE, \
                               or VVM_CA_FILE";
                return Err(missing.to_owned());
            }
            (_, Some(connector)) => Some(connector.clone()),
        };
        let tls = connector.map(|connector| {
            let name = ServerName::try_from(address.host.clone());
            Ok::<_, String>((connector, name.map_err(|error| unusable(&error))?))
        });
        let host = HeaderValue::from_str(&address.authority()).map_err(|error| unusable(&error))?;
        let (address, port) = (address.clone(), NodePort::Api);
        Ok(NodeTarget { address, port, host, tls: tls.transpose()?, token: None })
    }

    /// Wants the admin endpoint at the address, in place of the API.
    pub fn of_admin_port(self) -> NodeTarget {
        NodeTarget { port: NodePort::Admin, ..self }
    }

    /// The error of a command to which the node gave no answer.
    pub(crate) fn unreachable(&self, why: impl Display) -> CommandError {
        CommandError::unreachable(unreachable(self, &why.to_string()))
    }

    /// Connects to the node, with TLS if the node has it. Also returns the IP and the port that the
    /// connection reached.
    pub(super) async fn connect(&self) -> Result<(Box<dyn ByteStream>, String), NoAnswer> {
        let address = (&*self.address.host, self.address.port);
        let stream = TcpStream::connect(address).await.map_err(NoAnswer::not_sent)?;
        stream.set_nodelay(true).map_err(NoAnswer::not_sent)?;
        let peer = stream.peer_addr().map_err(NoAnswer::not_sent)?.to_string();
        let Some((connector, name)) = &self.tls else { return Ok((Box::new(stream), peer)) };
        let secured = connector.connect(name.clone(), stream).await;
        let stream = secured.map_err(|error| NoAnswer::NotSent(without_tls(&error)))?;
        Ok((Box::new(stream), peer))
    }
}

/// The beginning of the reason if the certificate of a node is for other names.
const OTHER_NAME: &str = "TLS: the certificate of the node is not for the name ";

/// The beginning of the reason if a port does not answer in TLS.
const PLAIN_PORT: &str = "the port may speak plain HTTP";

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

/// The reason why a node gives no answer, and what to do.
fn unreachable(node: &NodeTarget, why: &str) -> String {
    // A node that refuses a certificate does run. The names are those of rustls.
    let refused = format!("no connection to {node}: {why}");
    let advice = match why {
        why if why.contains("CertificateRequired") => {
            "give the certificate of the operator with --cert-file FILE and --key-file FILE, or \
             VVM_CERT_FILE and VVM_KEY_FILE"
        }
        why if why.contains("alert: UnknownCA") => {
            "--cert-file needs a certificate of an authority in `admin.tls.client_ca_file`"
        }
        why if why.contains("alert: CertificateExpired") => {
            "the certificate in --cert-file has expired: make a new one"
        }
        why if why.contains("alert: UnsupportedCertificate") => {
            "the certificate in --cert-file is not made for clients (extended key usage \
             `clientAuth`): make a new one"
        }
        why if why.contains("fatal alert") => "the port answers, and refused the connection by TLS",
        why if why.contains("certificate: UnknownIssuer") => {
            "--ca-file (or VVM_CA_FILE) needs the certificate of the authority of this node"
        }
        // The reason says what to do.
        why if why.contains(OTHER_NAME) || why.contains(PLAIN_PORT) => return refused,
        why if why.contains("invalid peer certificate") => "`vvm doctor` checks the certificate",
        _ => {
            let key = match node.port {
                NodePort::Api => "http.listen",
                NodePort::Admin => "admin.listen",
            };
            return format!(
                "no node answers at {node}: {why}: check that the node runs, and that its `{key}` is \
                 this address"
            );
        }
    };
    format!("{refused}: {advice}")
}

impl Display for NodeTarget {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        self.address.fmt(f)
    }
}

impl fmt::Debug for NodeTarget {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "NodeTarget({self})")
    }
}
