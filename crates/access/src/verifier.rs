//! The check of tokens.

use std::{
    fmt,
    num::NonZeroUsize,
    sync::{Arc, Mutex, MutexGuard, PoisonError},
    time::Duration,
};

use jsonwebtoken::{Validation, errors::ErrorKind};
use lru::LruCache;
use sha2::{Digest, Sha256};

use crate::{
    Caller, Grants, InvalidGrants, InvalidPrincipal, KeySet, Principal, UnreadableToken,
    claims::{Claims, Header},
    strict_json::Strict,
};

/// The most tokens that a verifier remembers, and the most bytes of one. The grants of a token may
/// take ten times its bytes, so the memory is at most about 40 MB, and usually a twentieth of it.
const REMEMBERED: NonZeroUsize = NonZeroUsize::new(4_000).expect("4,000 is not zero");
const REMEMBERED_BYTES: usize = 1 << 10;

/// The demands on tokens.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct TokenRules {
    /// The issuer that each token must name.
    pub issuer: String,
    /// The audience that each token must name.
    pub audience: String,
    /// How far the clocks of the issuer and of this machine may differ.
    pub leeway: Duration,
}

impl TokenRules {
    /// Rules with a leeway of 30 s.
    pub fn new(issuer: impl Into<String>, audience: impl Into<String>) -> TokenRules {
        let leeway = Duration::from_secs(30);
        TokenRules { issuer: issuer.into(), audience: audience.into(), leeway }
    }
}

/// The reason why a token is refused. The text has no part of the token that could be a secret.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum TokenRefusal {
    /// The text is not a signed token.
    #[error(transparent)]
    Unreadable(#[from] UnreadableToken),
    /// The token names no key, or one that the file of keys does not have. The file may be older
    /// than the key.
    #[error("no key has the id that the token names")]
    UnknownKey,
    /// The token names another algorithm than that of its key.
    #[error("the token names another algorithm than {0}, which is that of its key")]
    OtherAlgorithm(String),
    /// The signature is not that of the key.
    #[error("the signature is not that of the key")]
    BadSignature,
    /// The header demands something that this program does not know.
    #[error("the header demands something that this program does not know (`crit`)")]
    Critical,
    /// A claim is missing, or has another form.
    #[error("the claim `{0}` is missing, or has another form")]
    BadClaim(&'static str),
    /// The claims are not an object, or a claim or a member of the header is of another type.
    #[error("the header or the claims do not have the form of a token")]
    BadClaims,
    /// The issuer is another one.
    #[error("the token is not of the issuer `{expected}`")]
    OtherIssuer {
        /// The issuer of the rules.
        expected: String,
    },
    /// The token is for another audience.
    #[error("the token is not for the audience `{expected}`")]
    OtherAudience {
        /// The audience of the rules.
        expected: String,
    },
    /// The token has expired.
    #[error("the token has expired: get a new one")]
    Expired,
    /// The token is not valid yet.
    #[error("the token is not valid yet")]
    NotYetValid,
    /// The name of the principal cannot be used.
    #[error("the principal cannot be used: {0}")]
    BadPrincipal(#[from] InvalidPrincipal),
    /// The grants cannot be used.
    #[error("the claim `vvm` cannot be used: {0}")]
    BadGrants(#[from] InvalidGrants),
}

/// Checks tokens, and remembers those that it has checked.
///
/// New keys need a new verifier, so no token of a former key is remembered.
pub struct TokenVerifier {
    rules: TokenRules,
    keys: KeySet,
    /// The callers of checked tokens, by the digests of the tokens.
    remembered: Mutex<LruCache<[u8; 32], Remembered>>,
}

#[derive(Clone)]
struct Remembered {
    caller: Arc<Caller>,
    from: u64,
}

impl TokenVerifier {
    /// A verifier for tokens that these keys have signed.
    ///
    /// The provider of `jsonwebtoken` that the process has installed checks the signatures. If
    /// there is none, this installs the one of aws-lc.
    pub fn new(rules: TokenRules, keys: KeySet) -> TokenVerifier {
        // Without one, a process that also has the other provider would panic at its first token.
        let _ = jsonwebtoken::crypto::aws_lc::DEFAULT_PROVIDER.install_default();
        TokenVerifier { rules, keys, remembered: Mutex::new(LruCache::new(REMEMBERED)) }
    }

    /// The keys.
    pub fn keys(&self) -> &KeySet {
        &self.keys
    }

    /// Checks a token. `now` is in seconds since 1970. Returns the sender.
    ///
    /// # Errors
    /// The reason why the token is refused.
    pub fn verify(&self, token: &str, now: u64) -> Result<Arc<Caller>, TokenRefusal> {
        let digest: [u8; 32] = Sha256::digest(token).into();
        let remembered = self.remembered().get(&digest).cloned();
        if let Some(Remembered { caller, from }) = remembered {
            self.check_time(now, from, caller.expires)?;
            return Ok(caller);
        }
        let checked = self.check(token, now)?;
        if token.len() <= REMEMBERED_BYTES {
            self.remembered().put(digest, checked.clone());
        }
        Ok(checked.caller)
    }

    fn check(&self, token: &str, now: u64) -> Result<Remembered, TokenRefusal> {
        // 1. What `jsonwebtoken` leaves to its caller, or lets through.
        let header = Header::read(token)?;
        let key = header.kid.as_deref().and_then(|id| self.keys.get(id));
        let key = key.ok_or(TokenRefusal::UnknownKey)?;
        if header.alg.parse().ok() != Some(key.algorithm) {
            return Err(TokenRefusal::OtherAlgorithm(format!("{:?}", key.algorithm)));
        }
        if header.is_critical {
            return Err(TokenRefusal::Critical);
        }
        // 2. The signature, the issuer and the audience. The times are checked below, because
        //    `jsonwebtoken` reads the clock of the system.
        let mut rules = Validation::new(key.algorithm);
        rules.validate_exp = false;
        rules.set_required_spec_claims(&["aud"]);
        rules.set_issuer(&[&self.rules.issuer]);
        rules.set_audience(&[&self.rules.audience]);
        let decoded = jsonwebtoken::decode(token, &key.key, &rules);
        let Strict::<Claims>(claims) = decoded.map_err(|why| self.refusal(why.kind()))?.claims;
        // 3. The times, the principal and the grants.
        let issuer = claims.iss.ok_or(TokenRefusal::BadClaim("iss"))?;
        let expires = seconds(claims.exp.ok_or(TokenRefusal::BadClaim("exp"))?, "exp")?;
        let expires = expires.saturating_add(self.leeway());
        let from = claims.nbf.map_or(Ok(0), |from| seconds(from, "nbf"))?;
        self.check_time(now, from, expires)?;
        let subject = claims.sub.ok_or(TokenRefusal::BadClaim("sub"))?;
        let principal = Principal::new(&issuer, &subject)?;
        let grants = Grants::from_claim(claims.vvm)?;
        Ok(Remembered { caller: Arc::new(Caller { principal, grants, expires }), from })
    }

    /// The reason why `jsonwebtoken` refused a token.
    fn refusal(&self, why: &ErrorKind) -> TokenRefusal {
        match why {
            ErrorKind::InvalidSignature => TokenRefusal::BadSignature,
            ErrorKind::Json(_) => TokenRefusal::BadClaims,
            ErrorKind::MissingRequiredClaim(_) => TokenRefusal::BadClaim("aud"),
            ErrorKind::InvalidIssuer => {
                TokenRefusal::OtherIssuer { expected: self.rules.issuer.clone() }
            }
            ErrorKind::InvalidAudience => {
                TokenRefusal::OtherAudience { expected: self.rules.audience.clone() }
            }
            _ => UnreadableToken("it is not a JWT that this program understands").into(),
        }
    }

    /// The leeway in whole seconds, rounded up.
    fn leeway(&self) -> u64 {
        let leeway = self.rules.leeway;
        leeway.as_secs() + u64::from(leeway.subsec_nanos() > 0)
    }

    fn check_time(&self, now: u64, from: u64, expires: u64) -> Result<(), TokenRefusal> {
        if now >= expires {
            return Err(TokenRefusal::Expired);
        }
        if now.saturating_add(self.leeway()) < from {
            return Err(TokenRefusal::NotYetValid);
        }
        Ok(())
    }

    fn remembered(&self) -> MutexGuard<'_, LruCache<[u8; 32], Remembered>> {
        self.remembered.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

impl fmt::Debug for TokenVerifier {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let TokenVerifier { rules, keys, .. } = self;
        f.debug_struct("TokenVerifier").field("rules", rules).field("keys", keys).finish()
    }
}

/// A time of a claim in whole seconds. A claim may have a fraction.
fn seconds(time: f64, claim: &'static str) -> Result<u64, TokenRefusal> {
    // Larger numbers of seconds are not exact.
    const MOST: f64 = (1_u64 << 53) as f64;
    if (0.0..MOST).contains(&time) { Ok(time as u64) } else { Err(TokenRefusal::BadClaim(claim)) }
}
