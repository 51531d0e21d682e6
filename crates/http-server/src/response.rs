//! Answers: JSON, bytes and streams.

use std::io;

use bytes::Bytes;
use futures::stream::BoxStream;
use http_body_util::{Either, Full, StreamBody};
use hyper::{
    HeaderMap, Response, StatusCode,
    body::Frame,
    header::{CACHE_CONTROL, CONTENT_TYPE, HeaderName, HeaderValue},
};
use serde::Serialize;

/// The body of an answer: complete, or a stream of pieces.
pub type Body = Either<Full<Bytes>, StreamBody<BoxStream<'static, io::Result<Frame<Bytes>>>>>;

/// Marks an answer that goes on until its client leaves. Its pieces are timed one by one.
#[derive(Clone, Copy, Debug)]
pub struct Endless;

/// The type of an answer in JSON.
pub const JSON: &str = "application/json";

/// The header with the idempotency key of a request.
pub const IDEMPOTENCY_KEY: HeaderName = HeaderName::from_static("idempotency-key");

/// The header with the id of a request.
pub const REQUEST_ID: HeaderName = HeaderName::from_static("x-request-id");

/// An answer as JSON.
pub fn json_response(status: StatusCode, value: &impl Serialize) -> Response<Body> {
    match serde_json::to_vec(value) {
        Ok(bytes) => bytes_response(status, JSON, bytes),
        Err(error) => {
            let status = StatusCode::INTERNAL_SERVER_ERROR;
            bytes_response(
                status,
                "text/plain",
                format!("the answer cannot be converted to JSON: {error}"),
            )
        }
    }
}

/// A body of these bytes.
pub fn full_body(bytes: Bytes) -> Body {
    Either::Left(Full::new(bytes))
}

/// A body of pieces that come one after the other.
pub fn stream_body(pieces: BoxStream<'static, io::Result<Frame<Bytes>>>) -> Body {
    Either::Right(StreamBody::new(pieces))
}

/// An answer of bytes of a type.
pub fn bytes_response(
    status: StatusCode,
    content_type: &'static str,
    bytes: impl Into<Bytes>,
) -> Response<Body> {
    let mut response = Response::new(full_body(bytes.into()));
    *response.status_mut() = status;
    response.headers_mut().insert(CONTENT_TYPE, HeaderValue::from_static(content_type));
    response
}

/// Tells caches to store nothing of an answer, unless the answer says how to store it. Caches may
/// otherwise store data for as long as they like, and show it to the next user of a machine.
pub fn keep_out_of_caches(headers: &mut HeaderMap) {
    headers.entry(CACHE_CONTROL).or_insert(HeaderValue::from_static("no-store"));
}

/// An answer that is sent in pieces. If a piece fails, the answer is cut, so that no client takes
/// the answer for complete.
pub fn stream_response(
    content_type: &'static str,
    pieces: BoxStream<'static, io::Result<Frame<Bytes>>>,
) -> Response<Body> {
    let mut response = Response::new(stream_body(pieces));
    response.headers_mut().insert(CONTENT_TYPE, HeaderValue::from_static(content_type));
    response
}
