//! Tokens: valid ones for each kind of sender, and wrong ones of each kind.

use std::{path::Path, time::SystemTime};

use base64::{Engine as _, engine::general_purpose::URL_SAFE_NO_PAD};
use fastrand::Rng;
use rcgen::{KeyPair, SigningKey as _};
use serde_json::{Value, json};

use crate::routes::Sender;

/// The issuer of all valid tokens.
pub(crate) const ISSUER: &str = "https://issuer.example";

/// The number of principals that may write.
const WRITERS: usize = 64;

const KEY_ID: &str = "k1";

/// The values of `Authorization` that the generator sends.
pub(crate) struct Tokens {
    readers: Vec<String>,
    writers: Vec<String>,
    operators: Vec<String>,
    /// Tokens with a right signature that are refused, or that grant nothing.
    wrong: Vec<String>,
}

/// A key that signs any claims, also senseless ones.
struct Issuer(KeyPair);

impl Issuer {
    fn new() -> Issuer {
        Issuer(KeyPair::generate_for(&rcgen::PKCS_ED25519).unwrap())
    }

    fn jwk(&self) -> Value {
        let x = URL_SAFE_NO_PAD.encode(self.0.public_key_raw());
        json!({ "kty": "OKP", "crv": "Ed25519", "alg": "EdDSA", "kid": KEY_ID, "x": x })
    }

    fn sign(&self, header: &Value, claims: &str) -> String {
        let encoded = |part: &str| URL_SAFE_NO_PAD.encode(part);
        let message = format!("{}.{}", encoded(&header.to_string()), encoded(claims));
        let signature = self.0.sign(message.as_bytes()).unwrap();
        format!("Bearer {message}.{}", URL_SAFE_NO_PAD.encode(signature))
    }
}

fn header() -> Value {
    json!({ "alg": "EdDSA", "kid": KEY_ID, "typ": "JWT" })
}

fn now() -> u64 {
    SystemTime::UNIX_EPOCH.elapsed().unwrap().as_secs()
}

/// The claims of a valid token.
fn claims(subject: &str, grants: &Value) -> Value {
    let now = now();
    json!({
        "iss": ISSUER, "aud": "vvm", "sub": subject, "iat": now, "nbf": now,
        "exp": now + 86_400, "vvm": grants,
    })
}

fn everywhere(rights: &[&str]) -> Value {
    json!([{ "app": "*", "workspaces": "*", "rights": rights }])
}

impl Tokens {
    /// Makes all tokens, and writes the public keys into a folder.
    pub(crate) fn new(folder: &Path) -> Tokens {
        let (issuer, other) = (Issuer::new(), Issuer::new());
        let keys = json!({ "keys": [issuer.jwk()] });
        std::fs::write(folder.join("keys.json"), keys.to_string()).unwrap();
        let sign = |claims: Value| issuer.sign(&header(), &claims.to_string());
        let valid = |name: &str, rights: &[&str]| sign(claims(name, &everywhere(rights)));
        let some = json!([{ "app": "demo/shop", "workspaces": [7, 8, 9, 65_536],
            "rights": ["read", "write"] }]);
        let all = ["read", "write", "admin"];
        let writers = (0..WRITERS).map(|at| valid(&format!("writer {at}"), &["read", "write"]));
        Tokens {
            readers: vec![valid("reader", &["read"]), sign(claims("some", &some))],
            writers: writers.collect(),
            operators: vec![valid("operator", &all), valid("\u{e9}\u{1f600}", &all)],
            wrong: wrong(&issuer, &other),
        }
    }

    /// A valid token for a sender; `None` if it needs none.
    pub(crate) fn valid(&self, sender: Sender, rng: &mut Rng) -> Option<&str> {
        let all = match sender {
            Sender::Reader => &self.readers,
            Sender::Writer => &self.writers,
            Sender::Operator => &self.operators,
            Sender::Anybody => return None,
        };
        rng.choice(all).map(String::as_str)
    }

    /// Whether a head has a valid token anywhere. Changes may have left it valid.
    pub(crate) fn has_valid(&self, head: &[u8]) -> bool {
        let all = self.readers.iter().chain(&self.writers).chain(&self.operators);
        let head = String::from_utf8_lossy(head);
        all.filter_map(|token| token.strip_prefix("Bearer ")).any(|token| head.contains(token))
    }

    /// A token of another sender, a wrong one, a damaged one, or none.
    pub(crate) fn other(&self, rng: &mut Rng) -> Option<Vec<u8>> {
        let any = |all: &[String], rng: &mut Rng| Some(rng.choice(all).unwrap().clone().into());
        match rng.u8(..12) {
            0 => None,
            1 => any(&self.readers, rng),
            2 => any(&self.writers, rng),
            3..8 => any(&self.wrong, rng),
            _ => {
                let mut token = rng.choice(&self.writers).unwrap().clone().into_bytes();
                for _ in 0..=rng.u8(..3) {
                    damage(&mut token, rng);
                }
                Some(token)
            }
        }
    }
}

/// Changes, removes or adds a byte. A line cannot end here: that is another change.
fn damage(token: &mut Vec<u8>, rng: &mut Rng) {
    let at = rng.usize(..=token.len());
    let byte = rng.u8(..);
    let byte = if matches!(byte, b'\r' | b'\n' | 0) { b'.' } else { byte };
    match rng.u8(..3) {
        0 => token.insert(at, byte),
        1 if at < token.len() => token[at] = byte,
        _ => token.truncate(at),
    }
}

fn wrong(issuer: &Issuer, other: &Issuer) -> Vec<String> {
    let all = everywhere(&["read", "write", "admin"]);
    let good = claims("writer 1", &all);
    let with = |key: &str, value: Value| {
        let mut claims = good.clone();
        claims[key] = value;
        issuer.sign(&header(), &claims.to_string())
    };
    let without = |key: &str| {
        let mut claims = good.clone();
        claims.as_object_mut().unwrap().remove(key);
        issuer.sign(&header(), &claims.to_string())
    };
    let with_header = |header: &Value| issuer.sign(header, &good.to_string());
    let deep = "[".repeat(5_000);
    let grant = |grant: Value| with("vvm", json!([grant]));
    let mut tokens = vec![
        with("exp", json!(now() - 3_600)),
        with("exp", json!(-1)),
        with("exp", json!(1e300)),
        with("exp", json!("tomorrow")),
        with("exp", json!(u64::MAX)),
        with("nbf", json!(now() + 3_600)),
        with("nbf", json!(u64::MAX)),
        with("iss", json!("https://other.example")),
        with("iss", json!(["a"])),
        with("aud", json!("other")),
        with("aud", json!([])),
        with("aud", json!([1, 2])),
        with("sub", json!("")),
        with("sub", json!("a\u{0}b|c\r\n")),
        with("sub", json!("x".repeat(4_000))),
        with("vvm", json!([])),
        with("vvm", json!({ "app": "*" })),
        with("vvm", json!("*")),
        with("vvm", Value::Null),
        grant(json!({ "app": "*", "workspaces": [-1, 1e20], "rights": ["read"] })),
        grant(json!({ "app": "*", "workspaces": "*", "rights": ["read", "fly"] })),
        grant(json!({ "app": "*", "workspaces": "*", "rights": ["read"], "until": 1 })),
        grant(json!({ "app": "other/app", "workspaces": "*", "rights": ["read", "write"] })),
        grant(json!({ "app": "demo/shop", "workspaces": [1], "rights": ["admin"] })),
        with_header(&json!({ "alg": "none", "kid": KEY_ID })),
        with_header(&json!({ "alg": "HS256", "kid": KEY_ID })),
        with_header(&json!({ "alg": "EdDSA", "kid": "other" })),
        with_header(&json!({ "alg": "EdDSA" })),
        with_header(&json!({ "alg": "EdDSA", "kid": KEY_ID, "crit": ["exp"] })),
        with_header(&json!([1, 2, 3])),
        issuer.sign(&header(), &deep),
        issuer.sign(&header(), "{\"exp\":1,\"exp\":2}"),
        issuer.sign(&header(), ""),
        other.sign(&header(), &good.to_string()),
        format!("Bearer {}", "A".repeat(9_000)),
    ];
    tokens.extend(["exp", "iss", "aud", "sub", "vvm"].map(without));
    let literal =
        ["", "Bearer", "Bearer ", "Bearer a.b", "Bearer ...", "Bearer a.b.c.d", "Basic YTpi", "\t"];
    tokens.extend(literal.map(str::to_owned));
    tokens
}
