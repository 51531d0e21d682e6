//! The id of a request, which is in its answer and in its event.

use clock::Clock;
use hyper::header::HeaderMap;

use crate::response::REQUEST_ID;

/// The largest length of an id.
const LONGEST: usize = 256;

/// The id of a request: the id that the client sent, if it is valid, else a new one.
pub(crate) fn request_id(headers: &HeaderMap, clock: &Clock) -> String {
    let is_fit = |id: &&str| {
        (1..=LONGEST).contains(&id.len()) && id.bytes().all(|byte| byte.is_ascii_graphic())
    };
    let given = headers.get(REQUEST_ID).and_then(|id| id.to_str().ok()).filter(is_fit);
    let new = || format!("{:016x}{:016x}", clock.random_for_name(), clock.random_for_name());
    given.map_or_else(new, str::to_owned)
}

#[cfg(test)]
mod tests {
    use hyper::header::HeaderValue;

    use super::*;

    #[test]
    fn a_request_keeps_its_id_if_the_id_is_valid() {
        let clock = Clock::system();
        let named = |name: &[u8]| {
            let value = HeaderValue::from_bytes(name).unwrap();
            request_id(&HeaderMap::from_iter([(REQUEST_ID, value)]), &clock)
        };
        for kept in ["x", "my-request/7", &"x".repeat(LONGEST)] {
            assert_eq!(named(kept.as_bytes()), kept);
        }
        for other in [&b""[..], b"my request", b"\xff\xfe", &[b'x'; LONGEST + 1]] {
            let new = named(other);
            assert!(new.len() == 32 && new.bytes().all(|byte| byte.is_ascii_hexdigit()), "{new}");
        }
    }
}
