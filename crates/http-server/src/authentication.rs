//! The sender of a request, and whether the sender may do it.

mod token_end;
mod tokens;

use std::{
    fmt,
    sync::{Arc, LazyLock},
};

use access::{Caller, Grants, Principal};
use async_trait::async_trait;
use clock::Instant;
use hyper::{HeaderMap, StatusCode, header::WWW_AUTHENTICATE};

pub use self::token_end::TokenEnd;
pub use self::tokens::{AccessFileError, TokenAuthenticator};
use crate::{limits::PrincipalRate, problem::ProblemDetails, server::RequestClient};

/// The principal of each request to a port without tokens.
static ANYBODY: LazyLock<Arc<Caller>> = LazyLock::new(|| {
    let principal = Principal::anybody();
    Arc::new(Caller { principal, grants: Grants::everything(), expires: u64::MAX })
});

/// Finds the sender of a request.
#[async_trait]
pub trait Authenticator: fmt::Debug + Send + Sync {
    /// Returns the sender of a request with these headers.
    ///
    /// # Errors
    /// If the sender is not known.
    async fn authenticate(&self, headers: &HeaderMap) -> Result<Arc<Caller>, NotAuthenticated>;

    /// Keeps what the authenticator knows up to date, until the future is dropped. Several ports
    /// may call it at the same time.
    async fn follow(&self) {
        std::future::pending().await
    }
}

/// The reason why the sender of a request is not known. The client gets the text.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum NotAuthenticated {
    /// The request has no token.
    #[error("the request needs a token: `Authorization: Bearer TOKEN`")]
    NoToken,
    /// The token is refused.
    #[error("the token is refused: {0}")]
    Refused(String),
    /// The node must read its keys again to know, and has not done so yet.
    #[error(
        "the node does not have the key of the token, and has not read the file of keys again yet: \
         send the request again"
    )]
    KeysUnread,
}

/// The caller of a request that no port has checked yet, which may do nothing.
static UNCHECKED: LazyLock<Arc<Caller>> = LazyLock::new(|| {
    let principal = Principal::anybody();
    Arc::new(Caller { principal, grants: Grants::default(), expires: 0 })
});

pub(crate) fn unchecked() -> Arc<Caller> {
    Arc::clone(&UNCHECKED)
}

/// How a port checks its clients. Without an authenticator it checks nobody.
#[derive(Clone, Debug)]
pub struct PortAccess {
    authenticator: Option<Arc<dyn Authenticator>>,
    rate: Option<Arc<PrincipalRate>>,
}

impl PortAccess {
    /// If `commands_per_second` is 0, there is no limit.
    pub fn new(
        authenticator: Option<Arc<dyn Authenticator>>,
        commands_per_second: u32,
    ) -> PortAccess {
        PortAccess { authenticator, rate: PrincipalRate::new(commands_per_second).map(Arc::new) }
    }

    /// Whether clients need a token.
    pub fn needs_token(&self) -> bool {
        self.authenticator.is_some()
    }

    /// Returns the sender of a request, and lets its client in.
    pub async fn caller(
        &self,
        headers: &HeaderMap,
        client: Option<&RequestClient>,
    ) -> Result<Arc<Caller>, ProblemDetails> {
        let caller = match &self.authenticator {
            Some(authenticator) => PortAccess::authenticated(&**authenticator, headers).await?,
            None => Arc::clone(&ANYBODY),
        };
        if let Some(client) = client {
            client.let_in();
        }
        Ok(caller)
    }

    async fn authenticated(
        authenticator: &dyn Authenticator,
        headers: &HeaderMap,
    ) -> Result<Arc<Caller>, ProblemDetails> {
        authenticator.authenticate(headers).await.map_err(|why| {
            let (of, challenge) = match why {
                NotAuthenticated::NoToken => ("none", r#"Bearer realm="vvm""#),
                NotAuthenticated::Refused(_) => {
                    ("refused", r#"Bearer realm="vvm", error="invalid_token""#)
                }
                NotAuthenticated::KeysUnread => {
                    return ProblemDetails::unavailable("keys_unread", why.to_string());
                }
            };
            metrics::counter!("httpapi_unauthenticated_total", "token" => of).increment(1);
            let problem =
                ProblemDetails::new(StatusCode::UNAUTHORIZED, "unauthenticated", why.to_string());
            problem.with_header(WWW_AUTHENTICATE, challenge)
        })
    }

    /// Whether the commands of a principal are limited.
    pub fn limits_commands(&self) -> bool {
        self.rate.is_some()
    }

    /// Counts commands that a client sends together.
    ///
    /// # Errors
    /// If the principal sends too many. Then none of them is counted.
    pub fn count_commands(
        &self,
        caller: &Caller,
        commands: u32,
        now: Instant,
    ) -> Result<(), ProblemDetails> {
        let Some(rate) = &self.rate else { return Ok(()) };
        rate.take(caller.principal.as_str(), commands, now).map_err(|pause| {
            let reason = "the principal sends more in a second than `commands_per_second` allows: a \
                          command counts as one for each 10 rows, and a draw as its numbers";
            ProblemDetails::rate_limited(reason).retry_after(pause)
        })
    }

    /// Follows the authenticator, as [`Authenticator::follow`].
    pub async fn follow(&self) {
        if let Some(authenticator) = &self.authenticator {
            authenticator.follow().await;
        }
        // An authenticator with nothing to follow must not end its port.
        std::future::pending().await
    }
}

/// Checks that a caller may act as an operator of the node.
pub fn check_operator(caller: &Caller) -> Result<(), ProblemDetails> {
    match caller.grants.may_administer() {
        true => Ok(()),
        false => Err(forbidden(
            "the token does not grant `admin` in all workspaces of all applications".to_owned(),
        )),
    }
}

/// The problem of a request whose token does not grant it.
pub fn forbidden(reason: String) -> ProblemDetails {
    metrics::counter!("httpapi_forbidden_total").increment(1);
    ProblemDetails::new(StatusCode::FORBIDDEN, "forbidden", reason)
        .with_header(WWW_AUTHENTICATE, r#"Bearer realm="vvm", error="insufficient_scope""#)
}

#[cfg(test)]
mod tests {
    use std::time::Duration;

    use clock::ManualClock;
    use hyper::header::RETRY_AFTER;

    use super::*;

    /// The header said 60 s, and the client was refused again after this time.
    #[test]
    fn a_limited_client_learns_when_its_next_command_is_accepted() {
        let access = PortAccess::new(None, 1);
        let now = ManualClock::new(1).clock().now();
        let count = |commands, after| access.count_commands(&ANYBODY, commands, now + after);
        count(100, Duration::ZERO).unwrap();
        let refused = count(1, Duration::from_millis(700)).unwrap_err().into_response();
        assert_eq!(refused.headers()[RETRY_AFTER], "100", "99.3 s, rounded up");
        assert!(count(1, Duration::from_secs(99)).is_err());
        assert!(count(1, Duration::from_millis(100_700)).is_ok());
    }
}
