//! The request of a client that follows a log.

use hyper::{
    HeaderMap,
    header::{ACCEPT, HeaderName},
};

use crate::{problem::ProblemDetails, query::parameter};

/// The header with the id of the last event that a client of server-sent events received.
const LAST_EVENT_ID: HeaderName = HeaderName::from_static("last-event-id");

const SERVER_SENT_EVENTS: &str = "text/event-stream";

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

/// The form in which events are sent.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum EventFormat {
    /// One event a line.
    Lines,
    ServerSentEvents,
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
            return Err(ProblemDetails::bad_request("`limit` must be 1 or more"));
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
            (None, Some("end")) => FollowStart::End,
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

impl EventFormat {
    fn of(headers: &HeaderMap) -> EventFormat {
        let accepts = headers.get_all(ACCEPT).iter().filter_map(|value| value.to_str().ok());
        let mut types = accepts.flat_map(|value| value.split(','));
        let is_events = |accepted: &str| {
            let accepted = accepted.split(';').next().unwrap_or_default().trim();
            accepted.eq_ignore_ascii_case(SERVER_SENT_EVENTS)
        };
        if types.any(is_events) { EventFormat::ServerSentEvents } else { EventFormat::Lines }
    }

    pub(super) fn content_type(self) -> &'static str {
        match self {
            EventFormat::Lines => "application/x-ndjson",
            EventFormat::ServerSentEvents => SERVER_SENT_EVENTS,
        }
    }

    /// The text before the first event: the milliseconds after which a client connects again.
    pub(super) fn opening(self) -> Option<&'static str> {
        match self {
            EventFormat::Lines => None,
            EventFormat::ServerSentEvents => Some("retry: 1000\n\n"),
        }
    }

    /// The text that a client ignores.
    pub(super) fn sign_of_life(self) -> &'static [u8] {
        match self {
            EventFormat::Lines => b"\n",
            EventFormat::ServerSentEvents => b":\n\n",
        }
    }

    /// Adds an event.
    pub(super) fn write(self, offset: u64, json: &[u8], to: &mut Vec<u8>) {
        match self {
            EventFormat::Lines => {
                to.extend_from_slice(json);
                to.push(b'\n');
            }
            EventFormat::ServerSentEvents => {
                to.extend_from_slice(format!("id: {offset}\ndata: ").as_bytes());
                to.extend_from_slice(json);
                to.extend_from_slice(b"\n\n");
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use hyper::header::HeaderValue;

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
        // Other clients of lines may send the header without a meaning.
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

    #[test]
    fn events_have_the_form_that_the_client_accepts() {
        let format = |accept: &str| request("", &[(ACCEPT, accept)]).unwrap().format;
        assert_eq!(format("*/*"), EventFormat::Lines);
        assert_eq!(format("application/x-ndjson"), EventFormat::Lines);
        assert_eq!(format("Text/Event-Stream"), EventFormat::ServerSentEvents);
        let mut text = Vec::new();
        EventFormat::ServerSentEvents.write(7, b"{}", &mut text);
        EventFormat::Lines.write(7, b"{}", &mut text);
        assert_eq!(text, b"id: 7\ndata: {}\n\n{}\n");
    }
}
