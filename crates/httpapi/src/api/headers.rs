//! The headers of a request to the API.

use bytes::Bytes;
use clock::Clock;
use hyper::header::{HeaderMap, HeaderName, HeaderValue, IF_MATCH};
use processor::IdempotencyKey;
use vvm::eventlog::{Epoch, Offset, Version};

use super::Asked;
use crate::reply::{REQUEST_ID, Trouble};

const IDEMPOTENCY_KEY: HeaderName = HeaderName::from_static("idempotency-key");

/// The largest length of a name in a header.
const LONGEST_NAME: usize = 256;

/// The principal of each command, because the API has no authentication yet.
const ANYBODY: &str = "anybody";

/// The id of a request: the id that the client sent, if it is valid, else a new one.
pub(super) fn request_id(headers: &HeaderMap, clock: &Clock) -> String {
    let is_fit = |id: &&str| {
        (1..=LONGEST_NAME).contains(&id.len()) && id.bytes().all(|byte| byte.is_ascii_graphic())
    };
    let given = headers.get(REQUEST_ID).and_then(|id| id.to_str().ok()).filter(is_fit);
    given.map_or_else(|| format!("{:016x}{:016x}", clock.random(), clock.random()), str::to_owned)
}

/// The idempotency key of a command, if the client sent one. Such a command may be sent again.
pub(super) fn idempotency_key(
    asked: &Asked,
    body: &Bytes,
) -> Result<Option<IdempotencyKey>, Trouble> {
    let mut keys = asked.headers.get_all(IDEMPOTENCY_KEY).iter();
    let Some(key) = keys.next() else { return Ok(None) };
    if keys.next().is_some() {
        return Err(Trouble::bad_request("there is more than one Idempotency-Key"));
    }
    if !(1..=LONGEST_NAME).contains(&key.len()) {
        let reason = format!("an Idempotency-Key has 1 to {LONGEST_NAME} bytes");
        return Err(Trouble::bad_request(reason));
    }
    let method = asked.method.as_str().as_bytes();
    let if_match = asked.headers.get(IF_MATCH).map_or(&b""[..], HeaderValue::as_bytes);
    let all = [method, b"\0", asked.path.as_bytes(), b"\0", if_match, b"\0", body].concat();
    Ok(Some(IdempotencyKey::new(ANYBODY, key.as_bytes(), &all)))
}

/// The version that a change expects, from a header with the `ETag` of the document.
pub(super) fn if_match(headers: &HeaderMap) -> Result<Option<Version>, Trouble> {
    let Some(tag) = headers.get(IF_MATCH) else { return Ok(None) };
    let version = || {
        let (epoch, plog) =
            tag.to_str().ok()?.strip_prefix('"')?.strip_suffix('"')?.split_once('.')?;
        Some(Version { epoch: Epoch(epoch.parse().ok()?), plog: Offset(plog.parse().ok()?) })
    };
    let wrong = || Trouble::bad_request("If-Match is to be the ETag of the document");
    version().map(Some).ok_or_else(wrong)
}

/// Refuses an expected version on a request that does not check versions. Otherwise the client
/// would believe that the version was checked.
pub(super) fn no_version(headers: &HeaderMap) -> Result<(), Trouble> {
    match headers.contains_key(IF_MATCH) {
        true => Err(Trouble::bad_request(
            "If-Match is for PATCH and DELETE; a row of a command may have a `version`",
        )),
        false => Ok(()),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_request_keeps_its_name_if_that_is_one() {
        let clock = Clock::system();
        let named = |name: &[u8]| {
            let value = HeaderValue::from_bytes(name).unwrap();
            request_id(&HeaderMap::from_iter([(REQUEST_ID, value)]), &clock)
        };
        for kept in ["x", "my-request/7", &"x".repeat(LONGEST_NAME)] {
            assert_eq!(named(kept.as_bytes()), kept);
        }
        for other in [&b""[..], b"my request", b"\xff\xfe", &[b'x'; LONGEST_NAME + 1]] {
            let new = named(other);
            assert!(new.len() == 32 && new.bytes().all(|byte| byte.is_ascii_hexdigit()), "{new}");
        }
    }
}
