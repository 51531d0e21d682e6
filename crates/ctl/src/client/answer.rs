//! The answer of a node.

use base::with_causes;
use bytes::Bytes;
use http_body_util::BodyExt;
use hyper::{HeaderMap, Response, StatusCode, body::Incoming, header::WWW_AUTHENTICATE};
use serde_json::Value;

use super::{
    no_answer::NoAnswer,
    target::{NodePort, NodeTarget},
};
use crate::{CommandError, command_error::CHOOSE_APP};

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
#[derive(Debug)]
pub struct NodeAnswer {
    /// The status.
    pub status: StatusCode,
    /// The headers.
    pub headers: HeaderMap,
    /// The whole body.
    pub body: Bytes,
}

impl NodeAnswer {
    /// Reads the whole answer.
    pub(super) async fn read(answer: Response<Incoming>) -> Result<NodeAnswer, NoAnswer> {
        let (parts, body) = answer.into_parts();
        let body = body.collect().await.map_err(|error| NoAnswer::Broken(with_causes(&error)))?;
        Ok(NodeAnswer { status: parts.status, headers: parts.headers, body: body.to_bytes() })
    }

    /// Returns the body as JSON; null if it is not JSON.
    pub(crate) fn json(&self) -> Value {
        serde_json::from_slice(&self.body).unwrap_or_default()
    }

    /// Returns the JSON object of an answer to a request that was done.
    ///
    /// # Errors
    /// Fails with the reason of the node if the node refused the request.
    pub(crate) fn object(&self, node: &NodeTarget) -> Result<Value, CommandError> {
        let json = self.json();
        if self.status.is_success() && json.is_object() {
            return Ok(json);
        }
        let mut why = format!("{node} refused the request: {}", self.reason(node));
        // Only the API names the owner.
        if let Some(owner) = json["owner"].as_str() {
            why += &format!(": ask the owner with --node {owner}");
        }
        Err(self.refused(node, why))
    }

    /// Returns the JSON object of an admin endpoint, if it is the one that the command wants.
    ///
    /// # Errors
    /// Fails with the reason of the node, or if something else has answered. An admin endpoint also
    /// answers 404 if it does not know what a request names.
    pub(crate) fn object_of_admin(
        &self,
        admin: &NodeTarget,
        is_wanted: impl Fn(&Value) -> bool,
    ) -> Result<Value, CommandError> {
        let is_of_admin = self.json()["code"].is_string() && self.other_port(admin).is_none();
        if self.status != StatusCode::NOT_FOUND || is_of_admin {
            let object = self.object(admin)?;
            if is_wanted(&object) {
                return Ok(object);
            }
        }
        let why = self.other_port(admin).unwrap_or(SERVER_ANSWERS);
        Err(CommandError::unreachable(format!("{admin}: {why}")))
    }

    /// The error of a command that the node refused, or that the other port of the node refused.
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
