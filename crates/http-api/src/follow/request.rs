//! The request of a client that follows a log.

use http_server::{
    event_stream::EventFormat,
    problem::ProblemDetails,
    query::{END, LIMIT_OF_NONE, parameter},
};
use hyper::{HeaderMap, header::HeaderName};

/// The header with the id of the last event that a client of server-sent events received.
const LAST_EVENT_ID: HeaderName = HeaderName::from_static("last-event-id");

/// The request to follow a log.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct FollowRequest {
    pub(crate) start: FollowStart,
    /// The number of events after which the answer ends.
    pub(crate) limit: Option<u64>,
    pub(crate) format: EventFormat,
}

/// The first event that a client wants.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum FollowStart {
    At(u64),
    /// The first event after the request.
    End,
}

/// Whether a request follows a log.
pub(crate) fn is_followed(query: Option<&str>) -> Result<bool, ProblemDetails> {
    Ok(parameter(query, "follow")?.unwrap_or(false))
}

impl FollowRequest {
    pub(crate) fn new(
        query: Option<&str>,
        headers: &HeaderMap,
    ) -> Result<FollowRequest, ProblemDetails> {
        let limit = parameter(query, "limit")?;
        if limit == Some(0) {
            return Err(ProblemDetails::bad_request(LIMIT_OF_NONE));
        }
        let format = EventFormat::of(headers);
        let last = match format {
            EventFormat::Lines => None,
            EventFormat::ServerSentEvents => last_event(headers)?,
        };
        let start = match (last, parameter::<String>(query, "from")?.as_deref()) {
            // A client that connects again sends the parameters of its first request.
            (Some(last), _) => FollowStart::At(last.saturating_add(1)),
            (None, None) => FollowStart::At(1),
            (None, Some(END)) => FollowStart::End,
            (None, Some(from)) => {
                let from = from.parse().ok().filter(|from| *from > 0);
                FollowStart::At(from.ok_or_else(|| {
                    ProblemDetails::bad_request(
                        "`from` must be `end` or the offset of an event, which is 1 or more",
                    )
                })?)
            }
        };
        Ok(FollowRequest { start, limit, format })
    }
}

/// The offset of the last event that the client received.
fn last_event(headers: &HeaderMap) -> Result<Option<u64>, ProblemDetails> {
    let Some(last) = headers.get(LAST_EVENT_ID).filter(|id| !id.is_empty()) else {
        return Ok(None);
    };
    let offset = last.to_str().ok().and_then(|text| text.parse().ok());
    let wrong = || ProblemDetails::bad_request("Last-Event-ID is not the offset of an event");
    offset.map(Some).ok_or_else(wrong)
}

#[cfg(test)]
mod tests {
    use hyper::header::{ACCEPT, HeaderValue};

    use super::*;

    fn request(query: &str, headers: &[(HeaderName, &str)]) -> Result<FollowRequest, String> {
        let headers = headers
            .iter()
            .map(|(name, value)| (name.clone(), HeaderValue::from_str(value).unwrap()));
        FollowRequest::new(Some(query), &headers.collect())
            .map_err(|problem| problem.reason().to_owned())
    }

    #[test]
    fn a_client_names_the_first_event_or_the_last_one_that_it_has() {
        let start = |query: &str, headers: &[_]| request(query, headers).map(|it| it.start);
        let events = (ACCEPT, "text/html, text/event-stream;q=0.9");
        assert_eq!(start("follow=true", &[]), Ok(FollowStart::At(1)));
        assert_eq!(start("from=7", &[]), Ok(FollowStart::At(7)));
        assert_eq!(start("from=end", &[]), Ok(FollowStart::End));
        let last = |id| [events.clone(), (LAST_EVENT_ID, id)];
        assert_eq!(start("from=7", &last("41")), Ok(FollowStart::At(42)));
        assert_eq!(start("from=end", &last("41")), Ok(FollowStart::At(42)));
        assert_eq!(start("from=7", &last("")), Ok(FollowStart::At(7)));
        // For clients of lines the header has no meaning.
        assert_eq!(start("from=7", &[(LAST_EVENT_ID, "41")]), Ok(FollowStart::At(7)));
        for (query, headers) in [
            ("from=0", vec![]),
            ("from=-1", vec![]),
            ("from=last", vec![]),
            ("limit=0", vec![]),
            ("limit=x", vec![]),
            ("", last("x").to_vec()),
        ] {
            assert!(request(query, &headers).is_err(), "{query}");
        }
    }
}
