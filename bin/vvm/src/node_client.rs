//! A connection to a running node.

mod target;

use std::{fmt::Display, time::Duration};

use base::with_causes;
use bytes::Bytes;
use clock::Clock;
use http_body_util::{BodyExt, Full};
use hyper::{
    HeaderMap, Method, Request, Response, StatusCode,
    body::Incoming,
    client::conn::http1::{self, SendRequest},
    header::{AUTHORIZATION, CONTENT_TYPE, HOST, HeaderName, HeaderValue, WWW_AUTHENTICATE},
};
use hyper_util::rt::TokioIo;
use serde_json::Value;
use tokio::task::JoinHandle;

pub(crate) use self::target::{ConnectionFile, NodeTarget};
use self::target::{NodePort, OTHER_NAME, PLAIN_PORT, TcpPeer};
use crate::command_error::{CHOOSE_APP, CommandError};

/// The reason why a request has no answer.
#[derive(Debug, thiserror::Error)]
pub(crate) enum NoAnswer {
    /// The node got no part of the request.
    #[error("{0}")]
    NotSent(String),
    /// The node may have done the request.
    #[error("{0}")]
    Broken(String),
}

impl NoAnswer {
    fn not_sent(why: impl Display) -> NoAnswer {
        NoAnswer::NotSent(why.to_string())
    }
}

/// A request to a node.
pub(crate) struct NodeRequest<'r> {
    pub(crate) method: Method,
    pub(crate) path: &'r str,
    /// The headers besides those that every request has. They replace those of the same name.
    pub(crate) headers: &'r [(HeaderName, HeaderValue)],
    pub(crate) body: Bytes,
}

/// A connection to a node. One request follows another.
pub(crate) struct NodeClient {
    sender: SendRequest<Full<Bytes>>,
    host: HeaderValue,
    token: Option<HeaderValue>,
    peer: TcpPeer,
    /// The task of the connection, until its end is known.
    connection: Option<JoinHandle<hyper::Result<()>>>,
}

impl NodeClient {
    pub(crate) async fn connect(node: &NodeTarget) -> Result<NodeClient, NoAnswer> {
        let (stream, peer) = node.connect().await?;
        let (sender, connection) =
            http1::handshake(TokioIo::new(stream)).await.map_err(NoAnswer::not_sent)?;
        #[expect(clippy::disallowed_methods, reason = "the client owns the task and ends it")]
        let connection = tokio::spawn(connection);
        let (host, token) = (node.host.clone(), node.token.clone());
        Ok(NodeClient { sender, host, token, peer, connection: Some(connection) })
    }

    /// The IP and the port that the connection reached.
    pub(crate) fn peer(&self) -> &str {
        &self.peer.0
    }

    /// Sends one request on a connection of its own. The error says why no answer came in time.
    pub(crate) async fn ask(
        node: &NodeTarget,
        (method, path, body): (Method, &str, Bytes),
        timeout: Duration,
    ) -> Result<NodeAnswer, String> {
        let clock = Clock::system();
        let asked = async {
            let mut client = NodeClient::connect(node).await?;
            client.send(NodeRequest { method, path, headers: &[], body }).await
        };
        let answer = clock.timeout_at(clock.now() + timeout, asked).await;
        let answer = answer.map_err(|_| format!("no answer within {timeout:?}"))?;
        answer.map_err(|error| error.to_string())
    }

    /// The reason why a request failed. If the connection ended before, only its task knows why:
    /// with TLS 1.3, a node refuses a client that already believes to be connected.
    async fn end_of_connection(&mut self, error: hyper::Error) -> String {
        let is_over = error.is_closed() || error.is_canceled();
        let Some(task) = self.connection.take_if(|_| is_over) else { return with_causes(&error) };
        match task.await {
            Ok(Err(why)) => with_causes(&why),
            _ => with_causes(&error),
        }
    }

    /// Posts JSON, and reads the whole answer.
    pub(crate) async fn post(&mut self, path: &str, body: Bytes) -> Result<NodeAnswer, NoAnswer> {
        self.send(NodeRequest { method: Method::POST, path, headers: &[], body }).await
    }

    /// Sends a request, and reads the whole answer.
    pub(crate) async fn send(&mut self, request: NodeRequest<'_>) -> Result<NodeAnswer, NoAnswer> {
        NodeAnswer::read(self.begin(request).await?).await
    }

    /// Sends a request, and reads the head of the answer. The body comes while this client lives.
    pub(crate) async fn begin(
        &mut self,
        NodeRequest { method, path, headers, body }: NodeRequest<'_>,
    ) -> Result<Response<Incoming>, NoAnswer> {
        if let Err(error) = self.sender.ready().await {
            return Err(NoAnswer::NotSent(self.end_of_connection(error).await));
        }
        let mut request = Request::new(Full::new(body));
        *request.method_mut() = method;
        *request.uri_mut() = path.parse().map_err(NoAnswer::not_sent)?;
        request.headers_mut().insert(HOST, self.host.clone());
        request.headers_mut().insert(CONTENT_TYPE, HeaderValue::from_static("application/json"));
        if let Some(token) = &self.token {
            request.headers_mut().insert(AUTHORIZATION, token.clone());
        }
        // `extend` would keep the headers from above beside those of the request.
        for (name, value) in headers {
            request.headers_mut().insert(name, value.clone());
        }
        match self.sender.try_send_request(request).await {
            Ok(answer) => Ok(answer),
            Err(mut failed) => {
                let is_sent = failed.take_message().is_none();
                let why = self.end_of_connection(failed.into_error()).await;
                Err(if is_sent { NoAnswer::Broken(why) } else { NoAnswer::NotSent(why) })
            }
        }
    }
}

/// The error if no node answers. `key` sets the address of the node in its configuration.
pub(crate) fn no_answer(node: &NodeTarget, key: &str, why: impl Display) -> String {
    let why = why.to_string();
    // A node that refuses a certificate does run. The names are those of rustls.
    let refused = format!("no connection to {node}: {why}");
    let advice = match &*why {
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
            return format!(
                "no node answers at {node}: {why}: check that the node runs, and that its `{key}` is \
                 this address"
            );
        }
    };
    format!("{refused}: {advice}")
}

/// The error if the API answers a command that wants the admin endpoint.
const API_ANSWERS: &str = "this port is the API of a node, and is not an admin endpoint: give the \
                           address in `admin.listen` with --admin ADDRESS or VVM__ADMIN__LISTEN";

/// The error if the admin endpoint answers a command that wants the API.
const ADMIN_ANSWERS: &str = "this port is the admin endpoint of a node, and is not its API: give \
                             the address in `http.listen` with --node ADDRESS";

/// The error if another server answers a command that wants the admin endpoint.
const SERVER_ANSWERS: &str = "a server answers, and is not an admin endpoint: give the address in \
                              `admin.listen` of the node with --admin ADDRESS or \
                              VVM__ADMIN__LISTEN";

/// The answer of a node.
pub(crate) struct NodeAnswer {
    pub(crate) status: StatusCode,
    pub(crate) headers: HeaderMap,
    pub(crate) body: Bytes,
}

impl NodeAnswer {
    /// Reads the whole answer.
    pub(crate) async fn read(answer: Response<Incoming>) -> Result<NodeAnswer, NoAnswer> {
        let (parts, body) = answer.into_parts();
        let body = body.collect().await.map_err(|error| NoAnswer::Broken(with_causes(&error)))?;
        Ok(NodeAnswer { status: parts.status, headers: parts.headers, body: body.to_bytes() })
    }

    /// Returns the body as JSON; null if it is no JSON.
    pub(crate) fn json(&self) -> Value {
        serde_json::from_slice(&self.body).unwrap_or_default()
    }

    /// Returns the JSON object with which the node did the request.
    ///
    /// # Errors
    /// Fails with the reason of the node if the node refused the request.
    pub(crate) fn object(&self, node: &NodeTarget) -> Result<Value, CommandError> {
        let json = self.json();
        if self.status.is_success() && json.is_object() {
            return Ok(json);
        }
        let mut why = format!("{node} refused the request: {}", self.reason(node));
        // Only the API names the leader.
        if let Some(leader) = json["leader"].as_str() {
            why += &format!(": ask the leader with --node {leader}");
        }
        Err(self.refused(node, why))
    }

    /// The error of a command that the node refused, also if the other port of the node did.
    pub(crate) fn refused(&self, node: &NodeTarget, why: String) -> CommandError {
        match (self.status, self.other_port(node)) {
            (StatusCode::SERVICE_UNAVAILABLE, _) | (_, Some(_)) => CommandError::unreachable(why),
            _ => CommandError::unfinished(why),
        }
    }

    /// What to do, if the other port of the node answers and does not have the path. The port that
    /// the command wants may lack a path, too: the node may have another version.
    fn other_port(&self, node: &NodeTarget) -> Option<&'static str> {
        if self.status != StatusCode::NOT_FOUND {
            return None;
        }
        match (node.port, self.json()["port"].as_str()?) {
            (NodePort::Admin, "api") => Some(API_ANSWERS),
            (NodePort::Api, "admin") => Some(ADMIN_ANSWERS),
            _ => None,
        }
    }

    /// Whether an admin endpoint gave this problem: each problem of a node has a code.
    pub(crate) fn is_of_admin(&self, node: &NodeTarget) -> bool {
        self.json()["code"].is_string() && self.other_port(node).is_none()
    }

    /// The error of a command that wants the admin endpoint and reached something else.
    pub(crate) fn not_admin(&self, node: &NodeTarget) -> CommandError {
        let why = self.other_port(node).unwrap_or(SERVER_ANSWERS);
        CommandError::unreachable(format!("{node}: {why}"))
    }

    /// Returns the status, with the code of the problem if the answer has one.
    pub(crate) fn code(&self) -> String {
        self.status_with(self.json()["code"].as_str())
    }

    /// Returns the status, with the reason of the node if the answer has one, and what to do.
    pub(crate) fn reason(&self, node: &NodeTarget) -> String {
        let json = self.json();
        let mut text = self.status_with(self.other_port(node).or(json["reason"].as_str()));
        // The node has no application of the name, and names those that it has.
        if json["apps"].as_array().is_some_and(|apps| !apps.is_empty()) {
            text += CHOOSE_APP;
        }
        let challenge = self.headers.get(WWW_AUTHENTICATE).and_then(|value| value.to_str().ok());
        // A token that the node refused is an error.
        let lacks_token = challenge.is_some_and(|challenge| !challenge.contains("error="));
        match self.status == StatusCode::UNAUTHORIZED && lacks_token {
            true => text + ": give a token with --token-file FILE, or VVM_TOKEN_FILE",
            false => text,
        }
    }

    fn status_with(&self, what: Option<&str>) -> String {
        match what {
            Some(what) => format!("{}: {what}", self.status),
            None => self.status.to_string(),
        }
    }
}

impl Drop for NodeClient {
    fn drop(&mut self) {
        if let Some(connection) = &self.connection {
            connection.abort();
        }
    }
}
