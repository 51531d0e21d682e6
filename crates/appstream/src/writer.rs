//! The writing of a stream.

use std::io::{self, Write};

use sha2::{Digest, Sha256};

use crate::line::{EndLine, Line};

/// Writes the lines of a stream, and counts them.
pub(crate) struct StreamWriter<'w, W> {
    out: &'w mut W,
    line: Vec<u8>,
    digest: Sha256,
    lines: u64,
    events: u64,
    bytes: u64,
}

/// The numbers of a stream that was written.
pub(crate) struct Written {
    pub(crate) events: u64,
    pub(crate) bytes: u64,
}

impl<'w, W: Write> StreamWriter<'w, W> {
    pub(crate) fn new(out: &'w mut W) -> StreamWriter<'w, W> {
        let (line, digest) = (Vec::new(), Sha256::new());
        StreamWriter { out, line, digest, lines: 0, events: 0, bytes: 0 }
    }

    pub(crate) fn write(&mut self, line: &Line) -> io::Result<()> {
        self.line.clear();
        serde_json::to_writer(&mut self.line, line)?;
        self.line.push(b'\n');
        self.out.write_all(&self.line)?;
        self.digest.update(&self.line);
        self.lines += 1;
        self.bytes += self.line.len() as u64;
        self.events += u64::from(matches!(line, Line::Event(_)));
        Ok(())
    }

    /// Writes the last line.
    pub(crate) fn end(mut self) -> io::Result<Written> {
        let sha256 = hex(&self.digest.clone().finalize());
        let end = EndLine { lines: self.lines, events: self.events, sha256 };
        self.write(&Line::End(end))?;
        self.out.flush()?;
        Ok(Written { events: self.events, bytes: self.bytes })
    }
}

/// Bytes in hexadecimal.
pub(crate) fn hex(bytes: &[u8]) -> String {
    bytes.iter().map(|byte| format!("{byte:02x}")).collect()
}
