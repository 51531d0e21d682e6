//! Tokens of several issuers, and tokens that must be refused.

#![allow(clippy::unwrap_used)]

use access::{
    Caller, Grants, InvalidPrincipal, KeySet, KeySetError, NewToken, Right, SigningKey,
    TokenContent, TokenRefusal, TokenRules, TokenVerifier,
};
use aws_lc_rs::{
    encoding::{AsBigEndian as _, Curve25519SeedBin},
    rand::SystemRandom,
    rsa::{KeyPair as RsaKeyPair, KeySize},
    signature::{
        self, ECDSA_P256_SHA256_FIXED_SIGNING, ECDSA_P384_SHA384_FIXED_SIGNING, EcdsaKeyPair,
        EcdsaSigningAlgorithm, Ed25519KeyPair, KeyPair as _, RsaEncoding,
    },
};
use base64::{Engine as _, engine::general_purpose::URL_SAFE_NO_PAD};
use jsonwebtoken::{
    Algorithm, DecodingKey, Validation,
    jwk::{Jwk, JwkSet},
};
use serde_json::{Value, json};

const ISSUER: &str = "https://issuer.example";
const NOW: u64 = 1_800_000_000;

fn other_issuer() -> TokenRefusal {
    TokenRefusal::OtherIssuer { expected: ISSUER.to_owned() }
}

fn other_audience() -> TokenRefusal {
    TokenRefusal::OtherAudience { expected: "vvm".to_owned() }
}

fn base64(bytes: impl AsRef<[u8]>) -> String {
    URL_SAFE_NO_PAD.encode(bytes)
}

/// Signs a message.
type Sign = Box<dyn Fn(&[u8]) -> Vec<u8>>;

/// A key of an issuer.
struct IssuerKey {
    jwk: Value,
    algorithm: &'static str,
    sign: Sign,
}

impl IssuerKey {
    fn ed25519(id: &str) -> IssuerKey {
        let pair = Ed25519KeyPair::generate().unwrap();
        let x = base64(pair.public_key());
        let jwk = json!({"kty": "OKP", "crv": "Ed25519", "kid": id, "x": x});
        let sign: Sign = Box::new(move |message| pair.sign(message).as_ref().to_vec());
        IssuerKey { jwk, algorithm: "EdDSA", sign }
    }

    fn ecdsa(id: &str, crv: &str, with: &'static EcdsaSigningAlgorithm) -> IssuerKey {
        let pair = EcdsaKeyPair::generate(with).unwrap();
        let point = pair.public_key().as_ref()[1..].to_vec();
        let (x, y) = point.split_at(point.len() / 2);
        let jwk = json!({"kty": "EC", "crv": crv, "kid": id, "x": base64(x), "y": base64(y)});
        let sign: Sign = Box::new(move |message| {
            pair.sign(&SystemRandom::new(), message).unwrap().as_ref().to_vec()
        });
        let algorithm = if crv == "P-256" { "ES256" } else { "ES384" };
        IssuerKey { jwk, algorithm, sign }
    }

    fn rsa(id: &str, algorithm: &'static str, with: &'static dyn RsaEncoding) -> IssuerKey {
        let pair = RsaKeyPair::generate(KeySize::Rsa2048).unwrap();
        // The heads of the sequence and of the modulus, the modulus, and the exponent in DER.
        let der = pair.public_key().as_ref().to_vec();
        let (n, e) = (&der[9..265], &der[267..]);
        let jwk = json!({
            "kty": "RSA", "kid": id, "alg": algorithm, "n": base64(n), "e": base64(e),
        });
        let sign: Sign = Box::new(move |message| {
            let mut signature = vec![0; pair.public_modulus_len()];
            pair.sign(with, &SystemRandom::new(), message, &mut signature).unwrap();
            signature
        });
        IssuerKey { jwk, algorithm, sign }
    }

    /// Signs a token with this header and these claims. A `null` in the header removes a member.
    fn token_with(&self, header: Value, claims: &Value) -> String {
        let mut all = json!({"alg": self.algorithm, "kid": self.jwk["kid"]});
        for (name, value) in header.as_object().unwrap() {
            all[name] = value.clone();
        }
        let all: Value = all
            .as_object()
            .unwrap()
            .clone()
            .into_iter()
            .filter(|(_, value)| !value.is_null())
            .collect();
        self.signed(&all.to_string(), &claims.to_string())
    }

    /// Signs any texts as a header and claims.
    fn signed(&self, header: &str, claims: &str) -> String {
        let message = format!("{}.{}", base64(header), base64(claims));
        let signature = (self.sign)(message.as_bytes());
        format!("{message}.{}", base64(signature))
    }

    fn token(&self, claims: &Value) -> String {
        self.token_with(json!({}), claims)
    }
}

fn key_set(keys: &[&IssuerKey]) -> String {
    json!({"keys": keys.iter().map(|key| key.jwk.clone()).collect::<Vec<_>>()}).to_string()
}

fn verifier(keys: &[&IssuerKey]) -> TokenVerifier {
    let keys = KeySet::parse(key_set(keys).as_bytes()).unwrap();
    TokenVerifier::new(TokenRules::new(ISSUER, "vvm"), keys)
}

/// Valid claims with this change. `null` removes a claim.
fn claims(change: Value) -> Value {
    let grants = json!([{"app": "acme/shop", "workspaces": [7], "rights": ["read"]}]);
    let mut claims = json!({
        "iss": ISSUER, "aud": "vvm", "sub": "billing", "exp": NOW + 60, "vvm": grants,
    });
    for (name, value) in change.as_object().unwrap() {
        claims[name] = value.clone();
    }
    claims.as_object_mut().unwrap().retain(|_, value| !value.is_null());
    claims
}

#[test]
fn each_kind_of_key_verifies_its_tokens_and_no_others() {
    let keys = [
        IssuerKey::ed25519("ed"),
        IssuerKey::ecdsa("p256", "P-256", &ECDSA_P256_SHA256_FIXED_SIGNING),
        IssuerKey::ecdsa("p384", "P-384", &ECDSA_P384_SHA384_FIXED_SIGNING),
        IssuerKey::rsa("rs256", "RS256", &signature::RSA_PKCS1_SHA256),
        IssuerKey::rsa("rs512", "RS512", &signature::RSA_PKCS1_SHA512),
        IssuerKey::rsa("ps384", "PS384", &signature::RSA_PSS_SHA384),
    ];
    let verifier = verifier(&keys.iter().collect::<Vec<_>>());
    for key in &keys {
        let caller = verifier.verify(&key.token(&claims(json!({}))), NOW).unwrap();
        assert_eq!(caller.principal.to_string(), format!("{ISSUER}|billing"));
        assert_eq!(caller.expires, NOW + 90, "the leeway counts");
        assert!(caller.grants.may("acme/shop", Some(7), Right::Read));
        for other in keys.iter().filter(|other| other.jwk["kid"] != key.jwk["kid"]) {
            let header = json!({"kid": key.jwk["kid"], "alg": key.algorithm});
            let forged = other.token_with(header, &claims(json!({})));
            assert_eq!(verifier.verify(&forged, NOW), Err(TokenRefusal::BadSignature));
        }
    }
}

/// The table of wrong tokens. Each differs from a right one in one thing.
#[test]
fn wrong_tokens_are_refused_for_their_reasons() {
    let key = IssuerKey::ed25519("ed");
    let rsa = IssuerKey::rsa("rsa", "RS256", &signature::RSA_PKCS1_SHA256);
    let verifier = verifier(&[&key, &rsa]);
    let good = claims(json!({}));
    let none = |header: Value| key.token_with(header, &good);
    let unsigned = none(json!({"alg": "none"}));
    let unsigned = format!("{}.", unsigned.rsplit_once('.').unwrap().0);
    // The attacker signs with the public key as if it were a shared secret.
    let confused = rsa.token_with(json!({"alg": "HS256"}), &good);
    let refused = |token: &str| verifier.verify(token, NOW).unwrap_err();
    for (token, why) in [
        (unsigned, TokenRefusal::OtherAlgorithm("EdDSA".to_owned())),
        (confused, TokenRefusal::OtherAlgorithm("RS256".to_owned())),
        (
            rsa.token_with(json!({"alg": "RS384"}), &good),
            TokenRefusal::OtherAlgorithm("RS256".to_owned()),
        ),
        (none(json!({"alg": "none", "kid": null})), TokenRefusal::UnknownKey),
        (none(json!({"kid": "other"})), TokenRefusal::UnknownKey),
        (none(json!({"crit": ["b64"], "b64": false})), TokenRefusal::Critical),
        (none(json!({"typ": 7})), TokenRefusal::BadClaims),
        (IssuerKey::ed25519("ed").token(&good), TokenRefusal::BadSignature),
    ] {
        assert_eq!(refused(&token), why, "{token}");
    }
    for (change, why) in [
        (json!({"iss": null}), TokenRefusal::BadClaim("iss")),
        (json!({"iss": "https://other.example"}), other_issuer()),
        (json!({"iss": "https://issuer.example/"}), other_issuer()),
        (json!({"aud": null}), TokenRefusal::BadClaim("aud")),
        (json!({"aud": "web"}), other_audience()),
        (json!({"aud": ["web", "VVM"]}), other_audience()),
        (json!({"aud": []}), other_audience()),
        (json!({"aud": {}}), TokenRefusal::BadClaim("aud")),
        (json!({"aud": ["vvm", 1]}), TokenRefusal::BadClaim("aud")),
        (json!({"exp": null}), TokenRefusal::BadClaim("exp")),
        (json!({"exp": -1}), TokenRefusal::BadClaim("exp")),
        (json!({"exp": 1e300}), TokenRefusal::BadClaim("exp")),
        (json!({"exp": NOW - 30}), TokenRefusal::Expired),
        (json!({"nbf": NOW + 31}), TokenRefusal::NotYetValid),
        (json!({"nbf": -1}), TokenRefusal::BadClaim("nbf")),
        (json!({"sub": null}), TokenRefusal::BadClaim("sub")),
        (json!({"sub": ""}), TokenRefusal::BadPrincipal(InvalidPrincipal::Empty)),
    ] {
        assert_eq!(refused(&key.token(&claims(change.clone()))), why, "{change}");
    }
    for change in [json!({"exp": "soon"}), json!({"sub": 7})] {
        assert_eq!(
            refused(&key.token(&claims(change.clone()))),
            TokenRefusal::BadClaims,
            "{change}"
        );
    }
    let all = key.token(&claims(json!({"vvm": "all"})));
    assert!(matches!(refused(&all), TokenRefusal::BadGrants(_)));
    let typo = json!({"vvm": [{"app": "*", "workspaces": "*", "right": ["read"]}]});
    assert!(matches!(refused(&key.token(&claims(typo))), TokenRefusal::BadGrants(_)));
    let long = key.token(&claims(json!({"sub": "x".repeat(9_000)})));
    let detached = none(json!({"b64": false}));
    for token in ["", ".", "..", "a.b", "a.b.c", "a.b.c.d", "e30.e30.", &long, &detached] {
        assert!(matches!(refused(token), TokenRefusal::Unreadable(_)), "{token:.20}");
    }
}

#[test]
fn tokens_at_the_edges_of_their_time_are_taken() {
    let key = IssuerKey::ed25519("ed");
    let verifier = verifier(&[&key]);
    for change in [
        json!({"exp": NOW - 29}),
        json!({"nbf": NOW + 30}),
        json!({"exp": NOW as f64 + 0.5}),
        json!({"aud": ["web", "vvm"]}),
        json!({"vvm": null}),
    ] {
        let caller = verifier.verify(&key.token(&claims(change.clone())), NOW);
        let caller: Caller = (*caller.unwrap_or_else(|why| panic!("{change}: {why}"))).clone();
        let has_claim = change.get("vvm").is_none();
        assert_eq!(caller.grants != Grants::default(), has_claim);
    }
}

/// A remembered token was good forever.
#[test]
fn a_remembered_token_ends_like_any_other() {
    let key = IssuerKey::ed25519("ed");
    let verifier = verifier(&[&key]);
    let token = key.token(&claims(json!({"nbf": NOW - 5})));
    for _ in 0..2 {
        assert!(verifier.verify(&token, NOW).is_ok());
    }
    assert!(verifier.verify(&token, NOW + 89).is_ok());
    assert_eq!(verifier.verify(&token, NOW + 90), Err(TokenRefusal::Expired));
    assert_eq!(verifier.verify(&token, NOW - 36), Err(TokenRefusal::NotYetValid));
    // A token with another signature is another token.
    let (parts, signature) = token.rsplit_once('.').unwrap();
    let flipped = if signature.starts_with('A') { "B" } else { "A" };
    let forged = format!("{parts}.{flipped}{}", &signature[1..]);
    assert_eq!(verifier.verify(&forged, NOW), Err(TokenRefusal::BadSignature));
}

/// Bytes of a token are changed one after another, and none of the results is taken.
#[test]
fn no_changed_token_is_taken() {
    let key = IssuerKey::ecdsa("p256", "P-256", &ECDSA_P256_SHA256_FIXED_SIGNING);
    let verifier = verifier(&[&key]);
    let token = key.token(&claims(json!({})));
    let mut random = fastrand::Rng::with_seed(7);
    for at in 0..token.len() {
        for _ in 0..3 {
            let mut changed = token.clone().into_bytes();
            let to = random.alphanumeric() as u8;
            if changed[at] == to {
                continue;
            }
            changed[at] = to;
            let changed = String::from_utf8(changed).unwrap();
            assert!(verifier.verify(&changed, NOW).is_err(), "{at}: {changed}");
        }
    }
}

#[test]
fn files_of_keys_that_a_node_must_not_have_are_refused() {
    let good = IssuerKey::ed25519("ed").jwk;
    let with = |change: Value| {
        let mut jwk = good.clone();
        for (name, value) in change.as_object().unwrap() {
            jwk[name] = value.clone();
        }
        jwk.as_object_mut().unwrap().retain(|_, value| !value.is_null());
        jwk
    };
    let private: Value =
        serde_json::from_str(&SigningKey::generate().unwrap().to_private().unwrap()).unwrap();
    let small = base64([0xff; 255]);
    for (jwk, expected) in [
        (json!({"kty": "oct", "k": "c2VjcmV0", "kid": "a"}), "shared key"),
        (private, "private key"),
        (with(json!({"kid": null})), "needs an id"),
        (with(json!({"kid": ""})), "needs an id"),
        (with(json!({"x": null})), "missing"),
        (with(json!({"x": "a+b"})), "missing"),
        (with(json!({"x": base64([1; 31])})), "length"),
        (with(json!({"alg": "ES256"})), "`alg`"),
        (
            json!({"kty": "EC", "crv": "P-256", "kid": "a", "x": base64([1; 32]), "y": base64([1; 32])}),
            "not a key",
        ),
        (
            json!({"kty": "EC", "crv": "P-256", "kid": "a", "x": base64([1; 31]), "y": base64([1; 33])}),
            "length",
        ),
        (json!({"kty": "RSA", "kid": "a", "n": small, "e": "AQAB"}), "2048 to 8192 bits"),
        (
            json!({"kty": "RSA", "kid": "a", "n": base64([0xff; 1_025]), "e": "AQAB"}),
            "2048 to 8192 bits",
        ),
        (
            json!({"kty": "RSA", "kid": "a", "n": base64([0xff; 256]), "e": ""}),
            "not those of an RSA key",
        ),
        (
            json!({"kty": "RSA", "kid": "a", "n": base64([0xff; 256]), "e": "Ag"}),
            "not those of an RSA key",
        ),
        (
            json!({"kty": "RSA", "kid": "a", "n": base64([0xfe; 256]), "e": "AQAB"}),
            "not those of an RSA key",
        ),
    ] {
        let file = json!({"keys": [good, jwk]}).to_string();
        let error = KeySet::parse(file.as_bytes()).unwrap_err().to_string();
        assert!(error.starts_with("key 2 (") && error.contains(expected), "{error}");
        // `jsonwebtoken` reads each of these files.
        assert!(serde_json::from_str::<JwkSet>(&file).is_ok(), "{file}");
    }
    let twice = json!({"keys": [good, good]}).to_string();
    let error = KeySet::parse(twice.as_bytes()).unwrap_err().to_string();
    assert!(error.contains("same `kid`"), "{error}");
    for file in ["", "[]", "{}", r#"{"keys": {}}"#, r#"{"keys": [{}]}"#] {
        let error = KeySet::parse(file.as_bytes()).unwrap_err();
        assert!(matches!(error, KeySetError::NotJwks(_)), "{error}");
    }
    let unusable = json!({"keys": [with(json!({"use": "enc"}))]}).to_string();
    let error = KeySet::parse(unusable.as_bytes()).unwrap_err();
    assert!(matches!(error, KeySetError::Empty), "{error}");
}

/// The points of Ed25519 with a small order, as hexadecimal numbers, with the higher sign bit.
const SMALL_ORDER: [&str; 7] = [
    "0100000000000000000000000000000000000000000000000000000000000080",
    "0000000000000000000000000000000000000000000000000000000000000080",
    "ecffffffffffffffffffffffffffffffffffffffffffffffffffffffffffffff",
    "26e8958fc2b227b045c3f489f2ef98f0d5dfac05d3c63339b13802886d53fc85",
    "c7176a703d4dd84fba3c0b760d10670f2a2053fa2c39ccc64ec7fd7792ac03fa",
    // Other bytes of 0 and of 1.
    "edffffffffffffffffffffffffffffffffffffffffffffffffffffffffffffff",
    "eeffffffffffffffffffffffffffffffffffffffffffffffffffffffffffffff",
];

/// Anybody can sign for such a key: the signature of each eighth message is 1 and zeros, without a
/// private key. The identity, which is 1 and zeros, was taken as a key, and everybody was let in.
#[test]
fn a_key_for_which_everybody_can_sign_is_refused() {
    let mut signature = [0; 64];
    signature[0] = 1;
    for hex in SMALL_ORDER {
        let byte = |at| u8::from_str_radix(&hex[2 * at..][..2], 16).unwrap();
        let high: [u8; 32] = std::array::from_fn(byte);
        let mut low = high;
        low[31] &= 0x7f;
        let is_forged = |point: &[u8; 32]| {
            let key = signature::UnparsedPublicKey::new(&signature::ED25519, point);
            (0_u8..=255).any(|message| key.verify(&[message], &signature).is_ok())
        };
        let is_other_form = ["ed", "ee"].contains(&&hex[..2]);
        assert!(is_other_form || is_forged(&high) || is_forged(&low), "{hex} is a good point");
        for point in [high, low] {
            let jwk = json!({"kty": "OKP", "crv": "Ed25519", "kid": "a", "x": base64(point)});
            let error = KeySet::parse(json!({"keys": [&jwk]}).to_string().as_bytes()).unwrap_err();
            assert!(error.to_string().contains("small order"), "{error}");
            // `jsonwebtoken` would check signatures with it.
            let taken: Jwk = serde_json::from_value(jwk).unwrap();
            assert!(DecodingKey::from_jwk(&taken).is_ok());
            // The same point in X.509, which aws-lc takes, too, was taken.
            let der = [b"\x30\x2a\x30\x05\x06\x03\x2b\x65\x70\x03\x21\x00", &point[..]].concat();
            let jwk = json!({"kty": "OKP", "crv": "Ed25519", "kid": "a", "x": base64(der)});
            let error = KeySet::parse(json!({"keys": [&jwk]}).to_string().as_bytes()).unwrap_err();
            assert!(error.to_string().contains("length"), "{error}");
        }
    }
}

/// A grant with `workspaces` twice counted for all workspaces, although its first limit named one.
#[test]
fn tokens_that_could_be_read_in_two_ways_are_refused() {
    let key = IssuerKey::ed25519("ed");
    let verifier = verifier(&[&key]);
    let header = r#"{"alg":"EdDSA","kid":"ed"}"#;
    let with = |grants: &str| {
        format!(r#"{{"iss":"{ISSUER}","aud":"vvm","sub":"a","exp":{},"vvm":{grants}}}"#, NOW + 60)
    };
    let grant = r#"{"app":"*","workspaces":[1],"rights":["read"]}"#;
    let verify = |header: &str, claims: &str| verifier.verify(&key.signed(header, claims), NOW);
    assert!(verify(header, &with(&format!("[{grant}]"))).is_ok());
    for grants in [
        r#"[{"app":"*","workspaces":[1],"workspaces":"*","rights":["read"]}]"#,
        r#"[{"app":"x/y","app":"*","workspaces":[1],"rights":["read"]}]"#,
    ] {
        assert_eq!(verify(header, &with(grants)), Err(TokenRefusal::BadClaims), "{grants}");
        assert!(grants.parse::<Grants>().is_err(), "{grants}");
    }
    let list = r#"[["*","*",["read"]]]"#;
    assert!(matches!(verify(header, &with(list)), Err(TokenRefusal::BadGrants(_))));
    let claims = format!(r#"["{ISSUER}","a","vvm",{},null,[{grant}]]"#, NOW + 60);
    assert_eq!(verify(header, &claims), Err(TokenRefusal::BadClaims));
    let good = with("[]");
    for header in [r#"["EdDSA","ed",null]"#, r#"{"alg":"none","alg":"EdDSA","kid":"ed"}"#] {
        assert!(matches!(verify(header, &good), Err(TokenRefusal::Unreadable(_))), "{header}");
    }
    let critical = r#"{"alg":"EdDSA","kid":"ed","crit":null}"#;
    assert_eq!(verify(critical, &good), Err(TokenRefusal::Critical));
}

/// `jsonwebtoken` takes each of these tokens with the same rules.
#[test]
fn tokens_that_the_library_takes_against_the_rules_are_refused() {
    let key = IssuerKey::ed25519("ed");
    let verifier = verifier(&[&key]);
    let point = URL_SAFE_NO_PAD.decode(key.jwk["x"].as_str().unwrap()).unwrap();
    let mut rules = Validation::new(Algorithm::EdDSA);
    rules.validate_exp = false;
    rules.set_required_spec_claims(&["aud"]);
    rules.set_issuer(&[ISSUER]);
    rules.set_audience(&["vvm"]);
    let unreadable = |why: &TokenRefusal| matches!(why, TokenRefusal::Unreadable(_));
    let critical = |why: &TokenRefusal| *why == TokenRefusal::Critical;
    let bad_claims = |why: &TokenRefusal| *why == TokenRefusal::BadClaims;
    let header = r#"{"alg":"EdDSA","kid":"ed"}"#;
    let good = claims(json!({})).to_string();
    let lists = claims(json!({"iss": ["https://other.example", ISSUER]})).to_string();
    let twice = good.replacen('{', r#"{"vvm":[],"#, 1);
    let list = format!(r#"[{},0,"billing","{ISSUER}","vvm"]"#, NOW + 60);
    let long = header.replacen('{', &format!(r#"{{"x":"{}","#, "x".repeat(9_000)), 1);
    for (header, claims, is_reason) in [
        (
            r#"{"alg":"EdDSA","kid":"ed","crit":["b64"],"b64":true}"#,
            &good,
            &critical as &dyn Fn(&TokenRefusal) -> bool,
        ),
        (r#"{"alg":"EdDSA","kid":"ed","crit":null}"#, &good, &critical),
        (r#"{"alg":"EdDSA","kid":"ed","x":1,"x":2}"#, &good, &unreadable),
        (&long, &good, &unreadable),
        (header, &lists, &bad_claims),
        (header, &twice, &bad_claims),
        (header, &list, &bad_claims),
    ] {
        let token = key.signed(header, claims);
        let taken =
            jsonwebtoken::decode::<Value>(&token, &DecodingKey::from_ed_der(&point), &rules);
        assert!(taken.is_ok(), "{header:.80} {claims}: {taken:?}");
        let why = verifier.verify(&token, NOW).unwrap_err();
        assert!(is_reason(&why), "{header:.80} {claims}: {why}");
    }
}

/// A leeway of half a second was none.
#[test]
fn a_leeway_with_a_fraction_is_at_least_as_long() {
    let key = IssuerKey::ed25519("ed");
    let keys = KeySet::parse(key_set(&[&key]).as_bytes()).unwrap();
    let leeway = std::time::Duration::from_millis(500);
    let verifier =
        TokenVerifier::new(TokenRules { leeway, ..TokenRules::new(ISSUER, "vvm") }, keys);
    let token = key.token(&claims(json!({})));
    assert!(verifier.verify(&token, NOW + 60).is_ok());
    assert_eq!(verifier.verify(&token, NOW + 61), Err(TokenRefusal::Expired));
}

/// An operator could shut nobody out: a set without keys was refused, and the former keys stayed.
#[test]
fn an_empty_set_refuses_every_token() {
    let none = KeySet::parse(br#"{"keys": []}"#).unwrap();
    assert_eq!((none.ids().count(), none.skipped().len()), (0, 0));
    let key = IssuerKey::ed25519("ed");
    let refused = verifier(&[]).verify(&key.token(&claims(json!({}))), NOW);
    assert_eq!(refused, Err(TokenRefusal::UnknownKey));
}

/// An issuer added a key of a kind that the node did not know, and the node refused the whole file.
#[test]
fn keys_of_unknown_kinds_are_skipped() {
    let good = IssuerKey::ed25519("ed");
    let others = [
        json!({"kty": "EC", "crv": "P-521", "kid": "a", "x": "AA", "y": "AA"}),
        json!({"kty": "RSA", "kid": "b", "alg": "RSA-OAEP", "n": "AA", "e": "AQAB"}),
        json!({"kty": "AKP", "kid": "c", "alg": "ML-DSA-44", "pub": "AA"}),
    ];
    let file = json!({"keys": [good.jwk, others[0], others[1], others[2]]}).to_string();
    let keys = KeySet::parse(file.as_bytes()).unwrap();
    assert_eq!(keys.ids().collect::<Vec<_>>(), ["ed"]);
    assert_eq!(keys.skipped().len(), 3, "{:?}", keys.skipped());
    assert!(keys.skipped()[0].starts_with("key 2 (a): "), "{:?}", keys.skipped());
    // RSA keys of some issuers have no `alg`.
    let mut rsa = IssuerKey::rsa("rsa", "RS256", &signature::RSA_PKCS1_SHA256);
    rsa.jwk.as_object_mut().unwrap().remove("alg");
    // Some have a zero before the modulus.
    let modulus = URL_SAFE_NO_PAD.decode(rsa.jwk["n"].as_str().unwrap()).unwrap();
    rsa.jwk["n"] = base64([&[0], &*modulus].concat()).into();
    assert!(verifier(&[&rsa]).verify(&rsa.token(&claims(json!({}))), NOW).is_ok());
}

#[test]
fn a_key_is_read_as_it_was_written_and_its_tokens_are_taken() {
    let key = SigningKey::generate().unwrap();
    let again = SigningKey::from_private(&key.to_private().unwrap()).unwrap();
    assert_eq!((key.id(), key.public_keys()), (again.id(), again.public_keys()));
    let debug = format!("{key:?}");
    let private: Value = serde_json::from_str(&key.to_private().unwrap()).unwrap();
    assert!(!debug.contains(private["d"].as_str().unwrap()), "{debug}");
    let new = NewToken {
        issuer: ISSUER.to_owned(),
        audience: "vvm".to_owned(),
        subject: "operator".to_owned(),
        issued: NOW,
        expires: NOW + 60,
        grants: Grants::everything(),
    };
    let token = again.sign(&new).unwrap();
    let keys = KeySet::parse(key.public_keys().as_bytes()).unwrap();
    let verifier = TokenVerifier::new(TokenRules::new(ISSUER, "vvm"), keys);
    assert_eq!(verifier.verify(&token, NOW).unwrap().grants, Grants::everything());
    let content = TokenContent::read(&token).unwrap();
    assert_eq!(content.claims["sub"], "operator");
    assert_eq!(content.header["kid"], key.id());
    let long = NewToken { subject: "x".repeat(600), ..new.clone() };
    assert!(key.sign(&long).is_err());
    let workspaces = (0..10_000).collect();
    let workspaces = access::Workspaces::These(workspaces);
    let large = access::Grant::new(None, workspaces, [Right::Read]);
    let error = key.sign(&NewToken { grants: Grants::new([large]), ..new }).unwrap_err();
    assert!(error.to_string().contains("8 KiB"), "{error}");

    // Two parts that do not belong together.
    let mut mixed = private;
    let other = Ed25519KeyPair::generate().unwrap();
    let seed: Curve25519SeedBin<'_> = other.seed().unwrap().as_be_bytes().unwrap();
    mixed["d"] = base64(seed.as_ref()).into();
    assert!(SigningKey::from_private(&mixed.to_string()).is_err());
}
