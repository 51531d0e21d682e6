//! Making tokens, without an issuer.

use std::fmt;

use aws_lc_rs::{
    encoding::AsBigEndian as _,
    error::Unspecified,
    signature::{Ed25519KeyPair, KeyPair},
};
use base64::{Engine as _, engine::general_purpose::URL_SAFE_NO_PAD};
use serde::{Deserialize, Serialize};
use serde_json::json;
use sha2::{Digest, Sha256};

use crate::{Grants, Principal, claims::MAX_BYTES};

/// A key that signs tokens.
pub struct SigningKey {
    id: String,
    pair: Ed25519KeyPair,
}

/// The content of a token.
#[derive(Clone, Debug)]
pub struct NewToken {
    /// The issuer, as the configuration of the nodes names it.
    pub issuer: String,
    /// The audience, as the configuration of the nodes names it.
    pub audience: String,
    /// The name of the principal.
    pub subject: String,
    /// The time of the token, in seconds since 1970. The token is not valid before.
    pub issued: u64,
    /// The end of the token, in seconds since 1970.
    pub expires: u64,
    /// What the principal may do.
    pub grants: Grants,
}

/// A key that cannot be used, or a token that cannot be made.
#[derive(Debug, thiserror::Error)]
pub enum SigningError {
    /// The file is not a key that this program has made.
    #[error("the file is not a private key that `vvm token keygen` has made: {0}")]
    NotAKey(&'static str),
    /// The name of the principal cannot be used.
    #[error("the principal cannot be used: {0}")]
    Principal(#[from] crate::InvalidPrincipal),
    /// The token is too long.
    #[error("the token has more than 8 KiB: name fewer workspaces, or all of them")]
    TooLong,
    /// The system has no random numbers.
    #[error("no key can be made: the system has no random numbers")]
    NoRandomNumbers,
}

/// A private key as it is stored: a JWK.
#[derive(Serialize, Deserialize)]
struct PrivateJwk {
    kty: String,
    crv: String,
    alg: String,
    kid: String,
    x: String,
    d: String,
}

impl SigningKey {
    /// Makes a new key, for EdDSA with Ed25519.
    ///
    /// # Errors
    /// If the system has no random numbers.
    pub fn generate() -> Result<SigningKey, SigningError> {
        let pair = Ed25519KeyPair::generate();
        let pair = pair.map_err(|Unspecified| SigningError::NoRandomNumbers)?;
        let id = id_of(pair.public_key().as_ref());
        Ok(SigningKey { id, pair })
    }

    /// Reads what [`SigningKey::to_private`] has written.
    ///
    /// # Errors
    /// If the text is not such a key.
    pub fn from_private(jwk: &str) -> Result<SigningKey, SigningError> {
        let jwk: PrivateJwk = serde_json::from_str(jwk)
            .map_err(|_| SigningError::NotAKey("it is not a JWK with a private part"))?;
        if (&*jwk.kty, &*jwk.crv) != ("OKP", "Ed25519") {
            return Err(SigningError::NotAKey("it is not a key for Ed25519"));
        }
        let bytes = |text: &str| {
            URL_SAFE_NO_PAD.decode(text).map_err(|_| SigningError::NotAKey("it is damaged"))
        };
        let pair = Ed25519KeyPair::from_seed_and_public_key(&bytes(&jwk.d)?, &bytes(&jwk.x)?);
        let pair =
            pair.map_err(|_| SigningError::NotAKey("its two parts do not belong together"))?;
        Ok(SigningKey { id: jwk.kid, pair })
    }

    /// The private key as a JWK. Everybody with the key can make tokens.
    ///
    /// # Errors
    /// If the key does not show its private part.
    pub fn to_private(&self) -> Result<String, SigningError> {
        let seed = self.pair.seed().and_then(|seed| seed.as_be_bytes());
        let seed =
            seed.map_err(|Unspecified| SigningError::NotAKey("it hides its private part"))?;
        let jwk = PrivateJwk {
            kty: "OKP".to_owned(),
            crv: "Ed25519".to_owned(),
            alg: "EdDSA".to_owned(),
            kid: self.id.clone(),
            x: URL_SAFE_NO_PAD.encode(self.pair.public_key()),
            d: URL_SAFE_NO_PAD.encode(seed.as_ref()),
        };
        Ok(serde_json::to_string_pretty(&jwk).unwrap_or_default())
    }

    /// The set of public keys with this one, for the nodes.
    pub fn public_keys(&self) -> String {
        let x = URL_SAFE_NO_PAD.encode(self.pair.public_key());
        let key = json!({
            "kty": "OKP", "crv": "Ed25519", "alg": "EdDSA", "use": "sig", "kid": self.id, "x": x,
        });
        format!("{:#}", json!({ "keys": [key] }))
    }

    /// The id of the key, which its tokens name.
    pub fn id(&self) -> &str {
        &self.id
    }

    /// Makes a token.
    ///
    /// # Errors
    /// If no node would take the token.
    pub fn sign(&self, token: &NewToken) -> Result<String, SigningError> {
        let NewToken { issuer, audience, subject, issued, expires, grants } = token;
        Principal::new(issuer, subject)?;
        let header = json!({"alg": "EdDSA", "kid": self.id, "typ": "JWT"});
        let claims = json!({
            "iss": issuer, "aud": audience, "sub": subject, "iat": issued, "nbf": issued,
            "exp": expires, "vvm": grants.to_claim(),
        });
        let encoded = |part: serde_json::Value| URL_SAFE_NO_PAD.encode(part.to_string());
        let message = format!("{}.{}", encoded(header), encoded(claims));
        let signature = self.pair.sign(message.as_bytes());
        let token = format!("{message}.{}", URL_SAFE_NO_PAD.encode(signature));
        if token.len() > MAX_BYTES { Err(SigningError::TooLong) } else { Ok(token) }
    }
}

impl fmt::Debug for SigningKey {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("SigningKey").field("id", &self.id).finish_non_exhaustive()
    }
}

/// An id that follows from the key, so that two keys do not have the same id.
fn id_of(public: &[u8]) -> String {
    URL_SAFE_NO_PAD.encode(&Sha256::digest(public)[..12])
}
