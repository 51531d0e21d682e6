//! The check of tokens, from the configuration.

use std::{sync::Arc, time::Duration};

use clock::Clock;
use ctl::CommandError;
use http_server::{
    Authenticator, TokenAuthenticator,
    access::{KeySet, TokenRules},
};

use crate::config::VvmConfig;

/// The most leeway: clocks that are set by a time service differ by much less.
const MOST_LEEWAY: Duration = Duration::from_secs(300);

/// What the ports ask for tokens; `None` if they ask for none.
#[derive(Debug)]
pub(crate) struct NodeAccess(Option<TokenCheck>);

/// The check of the API, and perhaps of the admin endpoint.
#[derive(Debug)]
struct TokenCheck {
    authenticator: Arc<dyn Authenticator>,
    is_for_admin: bool,
    /// The keys of the file.
    keys: KeySet,
}

impl NodeAccess {
    /// Reads the file of keys. The admin endpoint asks for no token if its clients need
    /// certificates, or if it may be reached without authentication.
    pub(crate) fn read(config: &VvmConfig, clock: &Clock) -> Result<NodeAccess, CommandError> {
        let Some(access) = &config.access else { return Ok(NodeAccess(None)) };
        for (key, text) in [("issuer", &access.issuer), ("audience", &access.audience)] {
            if text.is_empty() {
                let why = "the text is empty, and no token can name it";
                return Err(config.source.wrong(&["access", key], why));
            }
        }
        let leeway = access.leeway_seconds.get();
        if leeway > MOST_LEEWAY {
            let why = format!(
                "at most {} s are expected: a token counts for this long after its end; set the clocks instead",
                MOST_LEEWAY.as_secs()
            );
            return Err(config.source.wrong(&["access", "leeway_seconds"], why));
        }
        let rules = TokenRules { leeway, ..TokenRules::new(&access.issuer, &access.audience) };
        let tokens = TokenAuthenticator::read(rules, &access.keys_file, clock.clone());
        let wrong = |error| config.source.wrong(&["access", "keys_file"], error);
        let tokens = tokens.map_err(wrong)?;
        let keys = tokens.key_set();
        let admin = &config.admin;
        let is_for_admin = !admin.asks_for_certificates() && !admin.allow_unauthenticated;
        Ok(NodeAccess(Some(TokenCheck { authenticator: Arc::new(tokens), is_for_admin, keys })))
    }

    pub(super) fn http(&self) -> Option<Arc<dyn Authenticator>> {
        self.0.as_ref().map(|check| Arc::clone(&check.authenticator))
    }

    pub(super) fn admin(&self) -> Option<Arc<dyn Authenticator>> {
        let check = self.0.as_ref().filter(|check| check.is_for_admin);
        check.map(|check| Arc::clone(&check.authenticator))
    }

    /// The keys of the file, if the ports ask for tokens.
    pub(crate) fn keys(&self) -> Option<&KeySet> {
        self.0.as_ref().map(|check| &check.keys)
    }
}
