//! The headers of a request to the API.

use bytes::Bytes;
use http_server::{problem::ProblemDetails, request_head::RequestHead, response::IDEMPOTENCY_KEY};
use hyper::header::{HeaderMap, HeaderValue, IF_MATCH};
use processor::IdempotencyKey;
use vvm::eventlog::{Epoch, Offset, Version};

/// The largest length of an idempotency key.
const LONGEST_KEY: usize = 256;

/// The idempotency key of a command, if the client sent one. Such a command may be sent again.
pub(crate) fn idempotency_key(
    head: &RequestHead,
    body: &Bytes,
) -> Result<Option<IdempotencyKey>, ProblemDetails> {
    let mut keys = head.headers.get_all(IDEMPOTENCY_KEY).iter();
    let Some(key) = keys.next() else { return Ok(None) };
    if keys.next().is_some() {
        return Err(ProblemDetails::bad_request("the request has more than one Idempotency-Key"));
    }
    if !(1..=LONGEST_KEY).contains(&key.len()) {
        let reason = format!("the Idempotency-Key must have 1 to {LONGEST_KEY} bytes");
        return Err(ProblemDetails::bad_request(reason));
    }
    let method = head.method.as_str().as_bytes();
    let if_match = head.headers.get(IF_MATCH).map_or(&b""[..], HeaderValue::as_bytes);
    let all = [method, b"\0", head.path().as_bytes(), b"\0", if_match, b"\0", body].concat();
    Ok(Some(IdempotencyKey::new(head.caller.principal.as_str(), key.as_bytes(), &all)))
}

/// Refuses an idempotency key on a request whose answer is not kept. Otherwise the client would
/// believe that it can send the request again.
pub(crate) fn refuse_idempotency_key(headers: &HeaderMap) -> Result<(), ProblemDetails> {
    match headers.contains_key(IDEMPOTENCY_KEY) {
        true => Err(ProblemDetails::bad_request(
            "the answer is not kept, so Idempotency-Key has no meaning here: a request that is \
             sent again draws other numbers",
        )),
        false => Ok(()),
    }
}

/// The version that a change expects, from a header with the `ETag` of the document.
pub(crate) fn if_match(headers: &HeaderMap) -> Result<Option<Version>, ProblemDetails> {
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
pub(crate) fn refuse_if_match(headers: &HeaderMap) -> Result<(), ProblemDetails> {
    match headers.contains_key(IF_MATCH) {
        true => Err(ProblemDetails::bad_request(
            "If-Match is only for PATCH and DELETE: give a row of a command a `version`",
        )),
        false => Ok(()),
    }
}
