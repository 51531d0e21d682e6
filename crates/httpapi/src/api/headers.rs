//! The headers of a request to the API.

use bytes::Bytes;
use clock::Clock;
use hyper::header::{HeaderMap, HeaderName, HeaderValue, IF_MATCH};
use processor::IdempotencyKey;
use vvm::eventlog::{Epoch, Offset, Version};

use super::handler::RequestHead;
use crate::{problem::ProblemDetails, response::REQUEST_ID};

pub(super) const IDEMPOTENCY_KEY: HeaderName = HeaderName::from_static("idempotency-key");

/// The largest length of a name in a header.
const LONGEST_NAME: usize = 256;

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
    head: &RequestHead,
    body: &Bytes,
) -> Result<Option<IdempotencyKey>, ProblemDetails> {
    let mut keys = head.headers.get_all(IDEMPOTENCY_KEY).iter();
    let Some(key) = keys.next() else { return Ok(None) };
    if keys.next().is_some() {
        return Err(ProblemDetails::bad_request("the request has more than one Idempotency-Key"));
    }
    if !(1..=LONGEST_NAME).contains(&key.len()) {
        let reason = format!("the Idempotency-Key must have 1 to {LONGEST_NAME} bytes");
        return Err(ProblemDetails::bad_request(reason));
    }
    let method = head.method.as_str().as_bytes();
    let if_match = head.headers.get(IF_MATCH).map_or(&b""[..], HeaderValue::as_bytes);
    let all = [method, b"\0", head.path().as_bytes(), b"\0", if_match, b"\0", body].concat();
    Ok(Some(IdempotencyKey::new(head.caller.principal.as_str(), key.as_bytes(), &all)))
}

/// Refuses an idempotency key on a request whose answer is not kept. Otherwise the client would
/// believe that it can send the request again.
pub(super) fn refuse_idempotency_key(headers: &HeaderMap) -> Result<(), ProblemDetails> {
    match headers.contains_key(IDEMPOTENCY_KEY) {
        true => Err(ProblemDetails::bad_request(
            "the answer is not kept, so Idempotency-Key has no meaning here: a request that is \
             sent again draws other numbers",
        )),
        false => Ok(()),
    }
}

/// The version that a change expects, from a header with the `ETag` of the document.
pub(super) fn if_match(headers: &HeaderMap) -> Result<Option<Version>, ProblemDetails> {
    let Some(tag) = headers.get(IF_MATCH) else { return Ok(None) };
    let version = || {
        let (epoch, plog) =
            tag.to_str().ok()?.strip_prefix('"')?.strip_suffix('"')?.split_once('.')?;
        Some(Version { epoch: Epoch(epoch.parse().ok()?), plog: Offset(plog.parse().ok()?) })
    };
    let wrong = || ProblemDetails::bad_request("If-Match must be the ETag of the document");
    version().map(Some).ok_or_else(wrong)
}

/// Refuses an expected version on a request that does not check versions. Otherwise the client
/// would believe that the version was checked.
pub(super) fn refuse_if_match(headers: &HeaderMap) -> Result<(), ProblemDetails> {
    match headers.contains_key(IF_MATCH) {
        true => Err(ProblemDetails::bad_request(
            "If-Match is only for PATCH and DELETE: give a row of a command a `version`",
        )),
        false => Ok(()),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_request_keeps_its_id_if_the_id_is_valid() {
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
