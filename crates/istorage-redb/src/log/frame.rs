//! The frames of the log: the bytes of one group of writes, as they are in a segment.
//!
//! A frame is `[magic][u32 length of the payload][u64 log][u64 segment][u64 number][u32 checksum of
//! the frame before][payload][u32 checksum]`, filled up with zeros to whole sectors. Numbers are
//! big endian. The checksum is the CRC-32 of all bytes before it.
//!
//! Frames begin at bounds of sectors. So a reader finds a frame after damaged bytes, even if the
//! length of the damaged frame is lost, and writing a frame never rewrites a sector of an earlier
//! frame.

use std::ops::Range;

use super::LogPosition;

/// The alignment of frames: the unit that a disk writes whole or not at all.
pub(super) const SECTOR: usize = 512;
const MAGIC: [u8; 4] = *b"VVML";
/// The number of bytes before the payload.
const HEAD: usize = 36;
const CHECKSUM: usize = 4;

/// A frame that was read and is intact.
pub(super) struct Frame {
    /// The place after the frame.
    pub(super) position: LogPosition,
    /// The checksum of the frame before.
    pub(super) before: u32,
    /// The place of the payload in the segment.
    pub(super) payload: Range<usize>,
}

/// The number of bytes of a frame with a payload of this length.
pub(super) fn frame_len(payload: usize) -> usize {
    (HEAD + payload + CHECKSUM).next_multiple_of(SECTOR)
}

/// The bytes of a frame that is being made: its payload, behind room for its head.
pub(crate) struct FrameBytes(Vec<u8>);

impl FrameBytes {
    /// A frame with an empty payload, and room for one of this length.
    pub(super) fn with_capacity(payload: usize) -> FrameBytes {
        let mut bytes = Vec::with_capacity(frame_len(payload));
        bytes.resize(HEAD, 0);
        FrameBytes(bytes)
    }

    /// Adds to the payload.
    pub(super) fn extend(&mut self, bytes: &[u8]) {
        self.0.extend_from_slice(bytes);
    }

    /// Makes it the frame that follows `last`. Returns the place after the frame, and its bytes.
    pub(super) fn finish(self, last: &LogPosition) -> (LogPosition, Vec<u8>) {
        let FrameBytes(mut bytes) = self;
        let (payload, number) = (bytes.len() - HEAD, last.number + 1);
        bytes[..4].copy_from_slice(&MAGIC);
        // A payload is at most a little longer than the largest batch.
        let len = u32::try_from(payload).unwrap_or(u32::MAX);
        bytes[4..8].copy_from_slice(&len.to_be_bytes());
        for (at, part) in [(8, last.log), (16, last.segment), (24, number)] {
            bytes[at..at + 8].copy_from_slice(&part.to_be_bytes());
        }
        bytes[32..HEAD].copy_from_slice(&last.checksum.to_be_bytes());
        let checksum = crc32fast::hash(&bytes);
        bytes.extend_from_slice(&checksum.to_be_bytes());
        let len = frame_len(payload);
        bytes.resize(len, 0);
        (LogPosition { number, checksum, end: last.end + len as u64, ..*last }, bytes)
    }
}

/// Makes an empty frame that follows `last`, such as the header of a segment.
pub(super) fn empty(last: &LogPosition) -> (LogPosition, Vec<u8>) {
    FrameBytes::with_capacity(0).finish(last)
}

/// Reads the frame of a log that begins at `at` of a segment. `None` if there is no intact frame of
/// this log.
///
/// The checksum is computed only for a head with the number of the log, which the writers of rows
/// do not know. So a value in old frames that looks like a frame costs no more than a comparison.
pub(super) fn parse(segment: &[u8], at: usize, log: u64) -> Option<Frame> {
    let bytes = segment.get(at..)?;
    let (head, rest) = bytes.split_at_checked(HEAD)?;
    if head[..4] != MAGIC || u64_at(head, 8)? != log {
        return None;
    }
    let payload = u32_at(head, 4)? as usize;
    let checksum = u32_at(rest, payload)?;
    if crc32fast::hash(&bytes[..HEAD + payload]) != checksum {
        return None;
    }
    let position = LogPosition {
        log,
        segment: u64_at(head, 16)?,
        number: u64_at(head, 24)?,
        checksum,
        end: (at + frame_len(payload)) as u64,
    };
    let start = at + HEAD;
    Some(Frame { position, before: u32_at(head, 32)?, payload: start..start + payload })
}

/// Whether a file of any log has a frame after its header. Such a frame is written only when the
/// storage file names a segment of the log.
pub(super) fn has_two_frames(file: &[u8]) -> bool {
    let header = u64_at(file, 8).and_then(|log| parse(file, 0, log));
    header.is_some_and(|Frame { position, .. }| {
        parse(file, position.end as usize, position.log).is_some()
    })
}

fn u32_at(bytes: &[u8], at: usize) -> Option<u32> {
    bytes.get(at..)?.first_chunk().map(|number| u32::from_be_bytes(*number))
}

fn u64_at(bytes: &[u8], at: usize) -> Option<u64> {
    bytes.get(at..)?.first_chunk().map(|number| u64::from_be_bytes(*number))
}

#[cfg(test)]
mod tests {
    use super::*;

    const LAST: LogPosition = LogPosition { log: 7, segment: 3, number: 41, checksum: 9, end: 512 };

    fn encode(last: &LogPosition, payload: &[u8]) -> (LogPosition, Vec<u8>) {
        let mut frame = FrameBytes::with_capacity(payload.len());
        frame.extend(payload);
        frame.finish(last)
    }

    #[test]
    fn a_frame_is_read_back_and_fills_whole_sectors() {
        for len in [0, 1, 471, 472, 473, 5_000] {
            let payload = vec![len as u8; len];
            let (position, bytes) = encode(&LAST, &payload);
            assert!(bytes.len() % SECTOR == 0 && bytes.len() - len < SECTOR + HEAD + CHECKSUM);
            let segment = [&[1; SECTOR][..], &bytes].concat();
            let frame = parse(&segment, SECTOR, 7).unwrap();
            assert!(parse(&segment, SECTOR, 8).is_none(), "of another log");
            assert_eq!((frame.position, frame.before), (position, 9));
            assert_eq!(segment[frame.payload], payload);
        }
    }

    #[test]
    fn a_log_is_in_use_if_it_has_a_second_frame() {
        let (header, mut file) = encode(&LogPosition { end: 0, ..LAST }, &[]);
        assert!(!has_two_frames(&file));
        file.extend(encode(&LogPosition { log: 8, ..header }, &[]).1);
        assert!(!has_two_frames(&file), "of another log");
        file.truncate(SECTOR);
        file.extend(encode(&header, &[]).1);
        assert!(has_two_frames(&file));
    }

    #[test]
    fn a_frame_with_a_flipped_bit_or_a_missing_end_is_not_intact() {
        let (_, bytes) = encode(&LAST, b"payload");
        for bit in 0..(HEAD + 7 + CHECKSUM) * 8 {
            let mut flipped = bytes.clone();
            flipped[bit / 8] ^= 1 << (bit % 8);
            assert!(parse(&flipped, 0, 7).is_none(), "bit {bit}");
        }
        for len in 0..HEAD + 7 + CHECKSUM {
            assert!(parse(&bytes[..len], 0, 7).is_none(), "{len} bytes");
        }
    }
}
