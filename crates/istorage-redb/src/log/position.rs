//! A place in the log, and its bytes in the file.

use crate::layout::checksum;

/// A place after a frame of the log. The file holds the effects of all frames before the place that
/// it names.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct LogPosition {
    /// The number of the log. Each file has a log of its own.
    pub(crate) log: u64,
    /// The segment of the frame.
    pub(crate) segment: u64,
    /// The number of the frame in the whole log.
    pub(crate) number: u64,
    /// The checksum of the frame.
    pub(crate) checksum: u32,
    /// The first byte after the frame in its segment.
    pub(crate) end: u64,
}

impl LogPosition {
    /// The beginning of a new log. `log` is its number.
    pub(crate) fn new(log: u64) -> LogPosition {
        LogPosition { log, segment: 0, number: 0, checksum: 0, end: 0 }
    }
}

/// The state of the log of a file.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct LogState {
    pub(crate) position: LogPosition,
    pub(crate) need: LogNeed,
}

/// Whether a file needs the frames of its log.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum LogNeed {
    /// It may lack the frames after its place.
    Needed,
    /// It was closed in order.
    Closed,
    /// It lacks no frame, but it was not closed in order.
    Repeated,
}

impl LogNeed {
    const ALL: [LogNeed; 3] = [LogNeed::Needed, LogNeed::Closed, LogNeed::Repeated];
}

const NAME: &[u8] = b"log";

impl LogState {
    pub(crate) fn encode(&self) -> Vec<u8> {
        let LogPosition { log, segment, number, checksum: frame, end } = self.position;
        let mut bytes = Vec::with_capacity(41);
        for part in [log, segment, number, end] {
            bytes.extend_from_slice(&part.to_be_bytes());
        }
        bytes.extend_from_slice(&frame.to_be_bytes());
        bytes.push(LogNeed::ALL.iter().position(|need| *need == self.need).unwrap_or(0) as u8);
        let sum = checksum(NAME, &bytes);
        bytes.extend_from_slice(&sum.to_be_bytes());
        bytes
    }

    /// Parses a state. `None` if the bytes are not those that were written.
    pub(crate) fn parse(bytes: &[u8]) -> Option<LogState> {
        let (numbers, rest) = bytes.split_first_chunk::<32>()?;
        let number = |at: usize| {
            let number = numbers[8 * at..].first_chunk().copied();
            number.map(u64::from_be_bytes)
        };
        let (frame, rest) = rest.split_first_chunk()?;
        let position = LogPosition {
            log: number(0)?,
            segment: number(1)?,
            number: number(2)?,
            end: number(3)?,
            checksum: u32::from_be_bytes(*frame),
        };
        let need = *LogNeed::ALL.get(usize::from(*rest.first()?))?;
        let state = LogState { position, need };
        (state.encode() == bytes).then_some(state)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_state_is_read_back_and_damage_is_noticed() {
        for need in LogNeed::ALL {
            let position =
                LogPosition { log: 1, segment: 2, number: 3, checksum: 4, end: u64::MAX };
            let bytes = LogState { position, need }.encode();
            assert_eq!(LogState::parse(&bytes), Some(LogState { position, need }));
            for bit in 0..bytes.len() * 8 {
                let mut flipped = bytes.clone();
                flipped[bit / 8] ^= 1 << (bit % 8);
                assert_eq!(LogState::parse(&flipped), None, "bit {bit}");
            }
            assert_eq!(LogState::parse(&bytes[1..]), None);
        }
    }
}
