//! The form of the events for a follower: lines, or server-sent events.

use bytes::Bytes;
use hyper::{
    HeaderMap,
    header::{ACCEPT, CONTENT_TYPE},
};

const SERVER_SENT_EVENTS: &str = "text/event-stream";

/// The largest event that is copied, in bytes. The followers of a log share the bytes of a larger
/// event.
pub const COPIED_BYTES: usize = 8 << 10;

/// The form of the events in an answer.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum EventFormat {
    /// One event a line.
    Lines,
    /// Server-sent events, for browsers.
    ServerSentEvents,
}

impl EventFormat {
    /// The form that a client asks for.
    pub fn of(headers: &HeaderMap) -> EventFormat {
        let accepts = headers.get_all(ACCEPT).iter().filter_map(|value| value.to_str().ok());
        let mut types = accepts.flat_map(|value| value.split(','));
        let is_events = |accepted: &str| {
            let accepted = accepted.split(';').next().unwrap_or_default().trim();
            accepted.eq_ignore_ascii_case(SERVER_SENT_EVENTS)
        };
        if types.any(is_events) { EventFormat::ServerSentEvents } else { EventFormat::Lines }
    }

    /// The type of an answer in this form.
    pub fn content_type(self) -> &'static str {
        match self {
            EventFormat::Lines => "application/x-ndjson",
            EventFormat::ServerSentEvents => SERVER_SENT_EVENTS,
        }
    }

    /// The form of the events in an answer.
    pub fn of_answer(headers: &HeaderMap) -> EventFormat {
        match headers.get(CONTENT_TYPE).is_some_and(|value| value == SERVER_SENT_EVENTS) {
            true => EventFormat::ServerSentEvents,
            false => EventFormat::Lines,
        }
    }

    /// The newlines at the end of each event and of each sign of life.
    pub fn event_end(self) -> &'static [u8] {
        match self {
            EventFormat::Lines => b"\n",
            EventFormat::ServerSentEvents => b"\n\n",
        }
    }

    /// The text before the event `from`: the milliseconds after which a client connects again, and
    /// the id before the first event. So a client that waits for new events, and connects again
    /// before there is one, misses none.
    pub fn opening(self, from: u64) -> Option<String> {
        match self {
            EventFormat::Lines => None,
            EventFormat::ServerSentEvents => {
                Some(format!("retry: 1000\nid: {}\n\n", from.saturating_sub(1)))
            }
        }
    }

    /// The text that a client ignores.
    pub(super) fn sign_of_life(self) -> Bytes {
        Bytes::from_static(match self {
            EventFormat::Lines => b"\n",
            EventFormat::ServerSentEvents => b":\n\n",
        })
    }
}

/// The events of one piece of an answer, as parts that are sent one after the other.
#[derive(Debug)]
pub struct EventPiece {
    format: EventFormat,
    parts: Vec<Bytes>,
    /// The end of the piece, which is not a part yet.
    copied: Vec<u8>,
}

impl EventPiece {
    /// A piece without an event.
    pub fn new(format: EventFormat) -> EventPiece {
        EventPiece { format, parts: Vec::new(), copied: Vec::new() }
    }

    /// Adds an event.
    pub fn add(&mut self, offset: u64, json: &Bytes) {
        if self.format == EventFormat::ServerSentEvents {
            self.copied.extend_from_slice(format!("id: {offset}\ndata: ").as_bytes());
        }
        if json.len() <= COPIED_BYTES {
            self.copied.extend_from_slice(json);
        } else {
            self.end_copied();
            self.parts.push(json.clone());
        }
        self.copied.extend_from_slice(self.format.event_end());
    }

    /// The parts, to be sent in this order.
    pub fn into_parts(mut self) -> Vec<Bytes> {
        self.end_copied();
        self.parts
    }

    fn end_copied(&mut self) {
        if !self.copied.is_empty() {
            self.parts.push(std::mem::take(&mut self.copied).into());
        }
    }
}

#[cfg(test)]
mod tests {
    use hyper::header::HeaderValue;

    use super::*;

    #[test]
    fn events_have_the_form_that_the_client_accepts() {
        let format = |accept: &str| {
            let header = (ACCEPT, HeaderValue::from_str(accept).unwrap());
            EventFormat::of(&std::iter::once(header).collect())
        };
        assert_eq!(format("*/*"), EventFormat::Lines);
        assert_eq!(format("application/x-ndjson"), EventFormat::Lines);
        assert_eq!(format("Text/Event-Stream"), EventFormat::ServerSentEvents);
        for (format, expected) in [
            (EventFormat::ServerSentEvents, "id: 7\ndata: {}\n\nid: 8\ndata: {}\n\n"),
            (EventFormat::Lines, "{}\n{}\n"),
        ] {
            let mut piece = EventPiece::new(format);
            [7, 8].iter().for_each(|offset| piece.add(*offset, &"{}".into()));
            assert_eq!(piece.into_parts(), [expected]);
        }
    }

    /// A thousand followers of a log with large events must not each have a copy.
    #[test]
    fn a_large_event_is_not_copied() {
        let large = Bytes::from(vec![b'x'; COPIED_BYTES + 1]);
        for (format, begin, end) in [
            (EventFormat::Lines, None, "\n"),
            (EventFormat::ServerSentEvents, Some("id: 7\ndata: "), "\n\n"),
        ] {
            let mut piece = EventPiece::new(format);
            piece.add(7, &large);
            let parts = piece.into_parts();
            let shared = parts.iter().position(|part| part.as_ptr() == large.as_ptr()).unwrap();
            assert_eq!(parts[..shared], Vec::from_iter(begin.map(Bytes::from)));
            assert_eq!(parts[shared + 1..], [end]);
        }
    }
}
