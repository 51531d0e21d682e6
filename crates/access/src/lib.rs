//! Decides whether a request comes from the sender that it names, and what the sender may do.
//!
//! A request has a *token*: a JWT that an issuer has signed. The token names its *principal*, and
//! has *grants*: which applications and workspaces the principal may read, change or administer. A
//! [`TokenVerifier`] checks tokens by its [`TokenRules`] and a [`KeySet`], and returns the
//! [`Caller`]: the [`Principal`] and its [`Grants`]. A [`SigningKey`] makes tokens. The crate does
//! no I/O, and has no clock: its user reads the files and passes the time, in seconds since 1970.
//!
//! ```
//! use access::{KeySet, NewToken, Right, SigningKey, TokenRules, TokenVerifier};
//!
//! let now = 1_800_000_000;
//! let key = SigningKey::generate()?;
//! let token = key.sign(&NewToken {
//!     issuer: "https://issuer.example".to_owned(),
//!     audience: "vvm".to_owned(),
//!     subject: "billing".to_owned(),
//!     issued: now,
//!     expires: now + 3_600,
//!     grants: r#"[{"app": "acme/shop", "workspaces": [7], "rights": ["read", "write"]}]"#.parse()?,
//! })?;
//!
//! let keys = KeySet::parse(key.public_keys().as_bytes())?;
//! let rules = TokenRules::new("https://issuer.example", "vvm");
//! let verifier = TokenVerifier::new(rules, keys);
//! let caller = verifier.verify(&token, now)?;
//! assert_eq!(caller.principal.to_string(), "https://issuer.example|billing");
//! assert!(caller.grants.may("acme/shop", Some(7), Right::Write));
//! assert!(!caller.grants.may("acme/shop", Some(8), Right::Read));
//! # Ok::<(), Box<dyn std::error::Error>>(())
//! ```

mod caller;
mod claims;
mod grants;
mod keys;
mod signing;
mod strict_json;
mod verifier;

pub use self::{
    caller::{Caller, InvalidPrincipal, Principal},
    claims::{TokenContent, UnreadableToken},
    grants::{Grant, Grants, InvalidGrants, Right, Workspaces},
    keys::{KeySet, KeySetError},
    signing::{NewToken, SigningError, SigningKey},
    verifier::{TokenRefusal, TokenRules, TokenVerifier},
};
