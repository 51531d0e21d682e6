//! Server-sent events as a node sends them: `id` is the offset of an event, and `data` is its JSON.

/// Reads events from pieces that end anywhere.
#[derive(Debug, Default)]
pub(super) struct EventReader {
    /// The beginning of a line.
    rest: Vec<u8>,
    id: Option<u64>,
    data: Option<Vec<u8>>,
}

/// The whole events of a piece.
#[derive(Debug, Default, PartialEq, Eq)]
pub(super) struct ReceivedEvents {
    /// The events, one in each line.
    pub(super) lines: Vec<u8>,
    pub(super) count: u64,
    /// The last id. It counts only after its whole event.
    pub(super) last: Option<u64>,
}

impl EventReader {
    pub(super) fn read(&mut self, piece: &[u8]) -> ReceivedEvents {
        let mut received = ReceivedEvents::default();
        for part in piece.split_inclusive(|byte| *byte == b'\n') {
            self.rest.extend_from_slice(part);
            if let Some(line) = self.rest.strip_suffix(b"\n") {
                match line {
                    b"" => {
                        if let Some(data) = self.data.take() {
                            received.lines.extend(data);
                            received.lines.push(b'\n');
                            received.count += 1;
                        }
                        received.last = self.id.or(received.last);
                    }
                    line => {
                        if let Some(id) = line.strip_prefix(b"id: ") {
                            self.id = str::from_utf8(id).ok().and_then(|id| id.parse().ok());
                        } else if let Some(data) = line.strip_prefix(b"data: ") {
                            self.data = Some(data.to_vec());
                        }
                    }
                }
                self.rest.clear();
            }
        }
        received
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const TEXT: &str =
        "retry: 1000\nid: 6\n\n:\n\nid: 7\ndata: {\"a\":1}\n\nid: 8\ndata: {\"b\":2}\n\n";

    #[test]
    fn events_may_be_cut_into_pieces_anywhere() {
        for size in 1..=TEXT.len() {
            let (mut reader, mut all) = (EventReader::default(), ReceivedEvents::default());
            for piece in TEXT.as_bytes().chunks(size) {
                let ReceivedEvents { lines, count, last } = reader.read(piece);
                all.lines.extend(lines);
                all.count += count;
                all.last = last.or(all.last);
            }
            let lines = b"{\"a\":1}\n{\"b\":2}\n".to_vec();
            assert_eq!(all, ReceivedEvents { lines, count: 2, last: Some(8) }, "{size}");
        }
    }

    /// A connection may end at any byte. The command then goes on after the last id.
    #[test]
    fn an_event_counts_when_it_is_whole() {
        let (first, begin) = (TEXT.find("id: 7").unwrap(), TEXT.find("id: 8").unwrap());
        for cut in first..begin {
            let received = EventReader::default().read(&TEXT.as_bytes()[..cut]);
            assert_eq!((received.count, received.last), (0, Some(6)), "{cut}");
        }
        assert_eq!(EventReader::default().read(&TEXT.as_bytes()[..begin]).last, Some(7));
    }
}
