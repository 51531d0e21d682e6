//! The parts of a token.

use base64::{Engine as _, engine::general_purpose::URL_SAFE_NO_PAD};
use serde::{Deserialize, Deserializer, de::IgnoredAny};
use serde_json::Value;

use crate::strict_json::Strict;

/// The most bytes of a token.
pub(crate) const MAX_BYTES: usize = 8 << 10;

/// A token that is not a JWT.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[error("not a token: {0}")]
pub struct UnreadableToken(pub(crate) &'static str);

/// The parts of a token as they are written. Nothing about them is checked.
#[derive(Debug)]
pub struct TokenContent {
    /// The header.
    pub header: Value,
    /// The claims.
    pub claims: Value,
}

/// The header of a token, as far as it matters.
#[derive(Deserialize)]
pub(crate) struct Header {
    pub(crate) alg: String,
    pub(crate) kid: Option<String>,
    /// Whether the header has members that a reader must understand. This program knows none.
    #[serde(default, rename = "crit", deserialize_with = "is_there")]
    pub(crate) is_critical: bool,
}

/// Returns `true`: the member is there, whatever it holds, even `null`.
fn is_there<'de, D: Deserializer<'de>>(from: D) -> Result<bool, D::Error> {
    IgnoredAny::deserialize(from).map(|_| true)
}

/// The claims that `jsonwebtoken` does not check, and the issuer, which must not be a list.
#[derive(Deserialize)]
pub(crate) struct Claims {
    pub(crate) iss: Option<String>,
    pub(crate) sub: Option<String>,
    pub(crate) exp: Option<f64>,
    pub(crate) nbf: Option<f64>,
    pub(crate) vvm: Option<Value>,
}

impl TokenContent {
    /// Reads a token and checks nothing.
    ///
    /// # Errors
    /// If the text is not a token.
    pub fn read(token: &str) -> Result<TokenContent, UnreadableToken> {
        let (header, claims, _) = split(token)?;
        let json =
            |part, why| serde_json::from_slice(&decoded(part)?).map_err(|_| UnreadableToken(why));
        Ok(TokenContent {
            header: json(header, "the header is not JSON")?,
            claims: json(claims, "the claims are not JSON")?,
        })
    }
}

impl Header {
    /// Reads the header of a token. A name that occurs twice is refused.
    pub(crate) fn read(token: &str) -> Result<Header, UnreadableToken> {
        let (header, _, _) = split(token)?;
        let header = serde_json::from_slice(&decoded(header)?).map(|Strict(header)| header);
        header.map_err(|_| UnreadableToken("the header is not that of a signed token"))
    }
}

fn split(token: &str) -> Result<(&str, &str, &str), UnreadableToken> {
    if token.len() > MAX_BYTES {
        return Err(UnreadableToken("the token has more than 8 KiB"));
    }
    let mut parts = token.split('.');
    match (parts.next(), parts.next(), parts.next(), parts.next()) {
        (Some(header), Some(claims), Some(signature), None) => Ok((header, claims, signature)),
        _ => Err(UnreadableToken("a token has three parts with dots between them")),
    }
}

fn decoded(part: &str) -> Result<Vec<u8>, UnreadableToken> {
    URL_SAFE_NO_PAD.decode(part).map_err(|_| UnreadableToken("a part is not in base64url"))
}
