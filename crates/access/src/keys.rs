//! The public keys of issuers, as a JWKS file has them.

use std::{collections::BTreeMap, ops::RangeInclusive};

use aws_lc_rs::signature::{
    ECDSA_P256_SHA256_FIXED, ECDSA_P384_SHA384_FIXED, ED25519, ParsedPublicKey,
    VerificationAlgorithm,
};
use base64::{Engine as _, engine::general_purpose::URL_SAFE_NO_PAD};
use jsonwebtoken::{Algorithm, AlgorithmFamily, DecodingKey};
use serde::Deserialize;

/// The bits of the modulus of an RSA key.
const MODULUS_BITS: RangeInclusive<usize> = 2_048..=8_192;

/// The y of all points of Ed25519 with the order 1, 2, 4 or 8, little endian: all eight points, and
/// the encodings of 0 and 1 that are too large by the prime, 2^255 - 19.
const SMALL_ORDER: [[u8; 32]; 7] = [
    number(0, 0x00, 0x00),
    number(1, 0x00, 0x00),
    number(0xec, 0xff, 0x7f),
    number(0xed, 0xff, 0x7f),
    number(0xee, 0xff, 0x7f),
    [
        0x26, 0xe8, 0x95, 0x8f, 0xc2, 0xb2, 0x27, 0xb0, 0x45, 0xc3, 0xf4, 0x89, 0xf2, 0xef, 0x98,
        0xf0, 0xd5, 0xdf, 0xac, 0x05, 0xd3, 0xc6, 0x33, 0x39, 0xb1, 0x38, 0x02, 0x88, 0x6d, 0x53,
        0xfc, 0x05,
    ],
    [
        0xc7, 0x17, 0x6a, 0x70, 0x3d, 0x4d, 0xd8, 0x4f, 0xba, 0x3c, 0x0b, 0x76, 0x0d, 0x10, 0x67,
        0x0f, 0x2a, 0x20, 0x53, 0xfa, 0x2c, 0x39, 0xcc, 0xc6, 0x4e, 0xc7, 0xfd, 0x77, 0x92, 0xac,
        0x03, 0x7a,
    ],
];

/// 32 bytes: `first`, 30 times `between`, and `last`.
const fn number(first: u8, between: u8, last: u8) -> [u8; 32] {
    let mut bytes = [between; 32];
    bytes[0] = first;
    bytes[31] = last;
    bytes
}

/// The public keys that check tokens.
///
/// Each key has an id and one algorithm. The header of a token names the key, and never chooses the
/// algorithm.
#[derive(Clone, Debug)]
pub struct KeySet {
    keys: BTreeMap<String, PublicKey>,
    skipped: Vec<String>,
}

/// A file of keys that cannot be used.
#[derive(Debug, thiserror::Error)]
pub enum KeySetError {
    /// The file is not a JWKS.
    #[error("the file is not a set of keys in JSON (JWKS, `{{\"keys\": [...]}}`): {0}")]
    NotJwks(serde_json::Error),
    /// The file is a key that signs tokens.
    #[error(
        "the file is one private key, which signs tokens: give the file with the public keys, which \
         `vvm token keygen` writes as --public"
    )]
    PrivateKey,
    /// A key cannot be used.
    #[error("key {number} ({id}): {why}", id = id.as_deref().unwrap_or("without an id"))]
    Key {
        /// The place of the key in the file, from 1 on.
        number: usize,
        /// The id of the key.
        id: Option<String>,
        /// The reason.
        why: &'static str,
    },
    /// The file has keys, and none of them can be used.
    #[error("the file has no key for signatures that this program can check")]
    Empty,
}

/// A public key, with its algorithm.
#[derive(Clone, Debug)]
pub(crate) struct PublicKey {
    pub(crate) algorithm: Algorithm,
    pub(crate) key: DecodingKey,
}

#[derive(Deserialize)]
struct Jwks {
    keys: Vec<Jwk>,
}

/// A key of a JWKS. Members that do not matter are ignored.
#[derive(Deserialize)]
struct Jwk {
    kty: String,
    kid: Option<String>,
    alg: Option<String>,
    #[serde(rename = "use")]
    purpose: Option<String>,
    crv: Option<String>,
    x: Option<String>,
    y: Option<String>,
    n: Option<String>,
    e: Option<String>,
    d: Option<serde::de::IgnoredAny>,
}

/// The reason why a key is not used.
enum Unused {
    /// The file is wrong and must not be used.
    Wrong(&'static str),
    /// The key is for something else, or newer than this program.
    Skipped(&'static str),
}

/// A private key that is not in a set of keys.
#[derive(Deserialize)]
struct PrivateJwk {
    #[serde(rename = "kty")]
    _kind: String,
    #[serde(rename = "d")]
    _secret: String,
}

impl KeySet {
    /// Reads a JWKS file (RFC 7517). Keys for encryption, and those of unknown algorithms, are
    /// skipped. The set may be empty (`{"keys": []}`): then every token is refused.
    ///
    /// # Errors
    /// If the file is not a JWKS, or if all its keys are skipped. A file with a private or a shared
    /// key is refused, and so is one with a key without an id, with one id twice, or with a damaged
    /// key.
    pub fn parse(jwks: &[u8]) -> Result<KeySet, KeySetError> {
        let all: Jwks =
            serde_json::from_slice(jwks).map_err(|error| match serde_json::from_slice(jwks) {
                Ok(PrivateJwk { .. }) => KeySetError::PrivateKey,
                Err(_) => KeySetError::NotJwks(error),
            })?;
        let mut set = KeySet { keys: BTreeMap::new(), skipped: Vec::new() };
        for (number, jwk) in (1..).zip(all.keys) {
            let id = jwk.kid.clone();
            let wrong = |why| KeySetError::Key { number, id: id.clone(), why };
            match PublicKey::from_jwk(jwk) {
                Ok((id, _)) if set.keys.contains_key(&id) => {
                    return Err(wrong("another key has the same `kid`"));
                }
                Ok((id, key)) => drop(set.keys.insert(id, key)),
                Err(Unused::Wrong(why)) => return Err(wrong(why)),
                Err(Unused::Skipped(why)) => set.skipped.push(wrong(why).to_string()),
            }
        }
        // An empty set shuts everybody out. Keys of another kind are a mistake of the operator.
        if set.keys.is_empty() && !set.skipped.is_empty() {
            return Err(KeySetError::Empty);
        }
        Ok(set)
    }

    /// The keys of the file that are not used, each with the reason.
    pub fn skipped(&self) -> &[String] {
        &self.skipped
    }

    /// The ids of the keys.
    pub fn ids(&self) -> impl Iterator<Item = &str> {
        self.keys.keys().map(String::as_str)
    }

    pub(crate) fn get(&self, id: &str) -> Option<&PublicKey> {
        self.keys.get(id)
    }
}

impl PublicKey {
    fn from_jwk(jwk: Jwk) -> Result<(String, PublicKey), Unused> {
        if jwk.kty == "oct" {
            return Err(Unused::Wrong(
                "a shared key: each node that checks tokens could also make them. Use a pair of keys",
            ));
        }
        if jwk.d.is_some() {
            return Err(Unused::Wrong(
                "a private key: nodes need only public keys. Keep this file secret, and give the node the file with the public keys",
            ));
        }
        if jwk.purpose.as_deref().is_some_and(|purpose| purpose != "sig") {
            return Err(Unused::Skipped("the key is not for signatures"));
        }
        let algorithm = algorithm_of(&jwk)?;
        let bytes = |text: &Option<String>| {
            let bytes = text.as_ref().and_then(|text| URL_SAFE_NO_PAD.decode(text).ok());
            bytes.ok_or(Unused::Wrong("a part of the key is missing, or not in base64url"))
        };
        let key = match algorithm.family() {
            AlgorithmFamily::Ed => ed25519_key(&bytes(&jwk.x)?)?,
            AlgorithmFamily::Ec => ecdsa_key(algorithm, &bytes(&jwk.x)?, &bytes(&jwk.y)?)?,
            _ => rsa_key(&bytes(&jwk.n)?, &bytes(&jwk.e)?)?,
        };
        let id = jwk.kid.filter(|id| !id.is_empty());
        let id = id.ok_or(Unused::Wrong("the key needs an id (`kid`)"))?;
        Ok((id, PublicKey { algorithm, key }))
    }
}

/// Returns the algorithm of a key. An RSA key without `alg` is for RS256, as issuers use it.
fn algorithm_of(jwk: &Jwk) -> Result<Algorithm, Unused> {
    let usual = match (jwk.kty.as_str(), jwk.crv.as_deref()) {
        ("OKP", Some("Ed25519")) => Algorithm::EdDSA,
        ("EC", Some("P-256")) => Algorithm::ES256,
        ("EC", Some("P-384")) => Algorithm::ES384,
        ("RSA", _) => Algorithm::RS256,
        _ => return Err(Unused::Skipped("this program has no algorithm for keys of this kind")),
    };
    let Some(name) = &jwk.alg else { return Ok(usual) };
    match name.parse::<Algorithm>() {
        Ok(named) if named == usual => Ok(named),
        Ok(named) if [named, usual].iter().all(|one| one.family() == AlgorithmFamily::Rsa) => {
            Ok(named)
        }
        Ok(named) if named.family() != AlgorithmFamily::Hmac => {
            Err(Unused::Wrong("`alg` is not an algorithm for keys of this kind"))
        }
        _ => Err(Unused::Skipped("this program does not have the algorithm of the key")),
    }
}

/// A key of Ed25519. For a point of small order, such as the zeros of a key that was never filled
/// in, signatures can be made without a private key.
fn ed25519_key(point: &[u8]) -> Result<DecodingKey, Unused> {
    // aws-lc reads other lengths as a public key in X.509, which may have such a point.
    let Ok(mut y) = <[u8; 32]>::try_from(point) else {
        return Err(Unused::Wrong("the key does not have the length of its curve"));
    };
    // The highest bit is the sign of x.
    y[31] &= 0x7f;
    if SMALL_ORDER.contains(&y) {
        return Err(Unused::Wrong(
            "the point has a small order, and anybody can sign for it: make another pair of keys",
        ));
    }
    check_point(&ED25519, point)?;
    Ok(DecodingKey::from_ed_der(point))
}

fn ecdsa_key(algorithm: Algorithm, x: &[u8], y: &[u8]) -> Result<DecodingKey, Unused> {
    let (curve, length) = match algorithm {
        Algorithm::ES256 => (&ECDSA_P256_SHA256_FIXED, 32),
        _ => (&ECDSA_P384_SHA384_FIXED, 48),
    };
    if x.len() != length || y.len() != length {
        return Err(Unused::Wrong("the key does not have the length of its curve"));
    }
    let point = [&[4], x, y].concat();
    check_point(curve, &point)?;
    Ok(DecodingKey::from_ec_der(&point))
}

fn check_point(curve: &'static dyn VerificationAlgorithm, point: &[u8]) -> Result<(), Unused> {
    let parsed = ParsedPublicKey::new(curve, point);
    parsed.map(drop).map_err(|_| Unused::Wrong("the bytes are not a key of this kind"))
}

/// An RSA key. Some programs write a zero before the modulus, to show that it is positive.
fn rsa_key(modulus: &[u8], exponent: &[u8]) -> Result<DecodingKey, Unused> {
    let number =
        |bytes: &[u8]| -> Vec<u8> { bytes.iter().copied().skip_while(|byte| *byte == 0).collect() };
    let (modulus, exponent) = (number(modulus), number(exponent));
    let unused_bits = modulus.first().map_or(0, |first| first.leading_zeros() as usize);
    if !MODULUS_BITS.contains(&(8 * modulus.len() - unused_bits)) {
        return Err(Unused::Wrong("the RSA key does not have 2048 to 8192 bits"));
    }
    let is_odd = |bytes: &[u8]| bytes.last().is_some_and(|last| last % 2 == 1);
    if !is_odd(&modulus) || !is_odd(&exponent) || exponent == [1] || exponent.len() > 4 {
        return Err(Unused::Wrong("the numbers are not those of an RSA key"));
    }
    Ok(DecodingKey::from_rsa_raw_components(&modulus, &exponent))
}
