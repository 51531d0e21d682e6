//! The JSON of a body.

use bytes::Bytes;
use http_server::problem::ProblemDetails;
use serde::Deserialize;

use crate::rows::JsonObject;

/// Parses the JSON of a body. An empty body counts as an empty object.
pub(crate) fn parse<'b, T: Deserialize<'b>>(body: &'b Bytes) -> Result<T, ProblemDetails> {
    let text = if body.is_empty() { b"{}" } else { &body[..] };
    match serde_json::from_slice(text) {
        Ok(JsonObject(body)) => Ok(body),
        Err(error) => Err(ProblemDetails::bad_request(format!("the body is invalid: {error}"))),
    }
}
