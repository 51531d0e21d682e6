//! A file that is read and never written: writes stay in memory.
//!
//! redb can repair such a file after a crash and can check it, and the file on the disk does not
//! change.

use std::{collections::BTreeMap, io, ops::Bound, sync::Mutex};

use base::locks::lock;
use redb::{BackendError, StorageBackend};

/// The size of the blocks of kept writes.
const BLOCK: u64 = 4_096;

/// A file, and the writes to it.
#[derive(Debug)]
pub(super) struct ReadOnlyFile {
    file: Box<dyn StorageBackend>,
    /// `None` before the first use of the file. redb locks a file before it uses the file, and
    /// until then another process may change the length.
    overlay: Mutex<Option<Overlay>>,
}

#[derive(Debug)]
struct Overlay {
    len: u64,
    /// How many bytes of the file are still visible. The number shrinks when the file is cut.
    of_file: u64,
    blocks: BTreeMap<u64, Vec<u8>>,
}

impl ReadOnlyFile {
    pub(super) fn new(file: Box<dyn StorageBackend>) -> ReadOnlyFile {
        ReadOnlyFile { file, overlay: Mutex::new(None) }
    }

    /// Calls `use_overlay` with the overlay, which is made at the first call.
    fn with_overlay<T>(
        &self,
        use_overlay: impl FnOnce(&mut Overlay) -> io::Result<T>,
    ) -> io::Result<T> {
        let mut overlay = lock(&self.overlay);
        let overlay = match &mut *overlay {
            Some(overlay) => overlay,
            None => {
                let len = self.file.len()?;
                overlay.insert(Overlay { len, of_file: len, blocks: BTreeMap::new() })
            }
        };
        use_overlay(overlay)
    }

    /// Reads bytes of the file as it is now, with zeros beyond its end.
    fn read_now(&self, overlay: &Overlay, offset: u64, out: &mut [u8]) -> io::Result<()> {
        let of_file = overlay.of_file.saturating_sub(offset).min(out.len() as u64) as usize;
        if of_file > 0 {
            self.file.read(offset, &mut out[..of_file])?;
        }
        out[of_file..].fill(0);
        for (number, within, piece) in pieces(offset, out.len()) {
            if let Some(block) = overlay.blocks.get(&number) {
                out[piece.clone()].copy_from_slice(&block[within..within + piece.len()]);
            }
        }
        Ok(())
    }
}

/// Splits `len` bytes from `offset` on at the bounds of blocks. Each piece has the number of its
/// block, its beginning in the block, and its range in the `len` bytes.
fn pieces(offset: u64, len: usize) -> impl Iterator<Item = (u64, usize, std::ops::Range<usize>)> {
    let mut done = 0;
    std::iter::from_fn(move || {
        let at = offset + done as u64;
        let within = (at % BLOCK) as usize;
        let piece = done..len.min(done + BLOCK as usize - within);
        done = piece.end;
        (!piece.is_empty()).then_some((at / BLOCK, within, piece))
    })
}

impl StorageBackend for ReadOnlyFile {
    fn len(&self) -> io::Result<u64> {
        self.with_overlay(|overlay| Ok(overlay.len))
    }

    fn read(&self, offset: u64, out: &mut [u8]) -> io::Result<()> {
        self.with_overlay(|overlay| {
            if offset + out.len() as u64 > overlay.len {
                return Err(io::ErrorKind::UnexpectedEof.into());
            }
            self.read_now(overlay, offset, out)
        })
    }

    fn set_len(&self, len: u64) -> io::Result<()> {
        self.with_overlay(|overlay| {
            if len < overlay.len {
                overlay.blocks.split_off(&len.div_ceil(BLOCK));
                if let Some(last) = overlay.blocks.get_mut(&(len / BLOCK)) {
                    last[(len % BLOCK) as usize..].fill(0);
                }
            }
            (overlay.of_file, overlay.len) = (overlay.of_file.min(len), len);
            Ok(())
        })
    }

    fn sync_data(&self) -> io::Result<()> {
        Ok(())
    }

    fn write(&self, offset: u64, data: &[u8]) -> io::Result<()> {
        self.with_overlay(|overlay| {
            for (number, within, piece) in pieces(offset, data.len()) {
                let mut block = vec![0; BLOCK as usize];
                self.read_now(overlay, number * BLOCK, &mut block)?;
                block[within..within + piece.len()].copy_from_slice(&data[piece]);
                overlay.blocks.insert(number, block);
            }
            overlay.len = overlay.len.max(offset + data.len() as u64);
            Ok(())
        })
    }

    fn close(&self) -> io::Result<()> {
        self.file.close()
    }

    // The file is only read, so every lock is a shared lock: other processes may read the file
    // meanwhile, and no process may write it.

    fn try_lock_range(&self, start: Bound<u64>, end: Bound<u64>) -> Result<bool, BackendError> {
        self.file.try_lock_shared_range(start, end)
    }

    fn unlock_range(&self, start: Bound<u64>, end: Bound<u64>) -> Result<(), BackendError> {
        self.file.unlock_range(start, end)
    }
}

#[cfg(test)]
mod tests {
    use redb::backends::InMemoryBackend;

    use super::*;

    fn all(file: &dyn StorageBackend) -> Vec<u8> {
        let mut bytes = vec![0; file.len().unwrap() as usize];
        file.read(0, &mut bytes).unwrap();
        bytes
    }

    /// Makes the same calls to the file and to a plain vector.
    #[test]
    fn writes_are_read_back_and_the_file_does_not_change() {
        let file = InMemoryBackend::new();
        file.set_len(10_000).unwrap();
        file.write(0, &[1; 10_000]).unwrap();
        let before = all(&file);
        let overlay = ReadOnlyFile::new(Box::new(file));
        let mut expected = before.clone();
        for (offset, len) in [(0, 1), (4_095, 2), (100, 9_000), (9_999, 1), (12_000, 100)] {
            let data = vec![(offset % 251) as u8 + 2; len];
            if expected.len() < offset + len {
                expected.resize(offset + len, 0);
                overlay.set_len((offset + len) as u64).unwrap();
            }
            expected[offset..offset + len].copy_from_slice(&data);
            overlay.write(offset as u64, &data).unwrap();
            assert!(all(&overlay) == expected, "after {len} bytes at {offset}");
        }
        for len in [11_000, 4_096, 3_000, 9_000] {
            overlay.set_len(len as u64).unwrap();
            expected.resize(len, 0);
            assert!(all(&overlay) == expected, "after it was made {len} bytes long");
        }
        assert!(overlay.read(8_999, &mut [0; 2]).is_err(), "beyond the end");
        assert!(all(&*overlay.file) == before);
    }

    /// A file that another process closes at the moment when this process locks it.
    #[derive(Debug)]
    struct FileInUse {
        file: InMemoryBackend,
        /// The bytes that the other process leaves.
        closed: Vec<u8>,
    }

    impl FileInUse {
        /// The other process has written the first `len` of the bytes.
        fn new(closed: Vec<u8>, len: usize) -> FileInUse {
            let file = InMemoryBackend::new();
            file.set_len(len as u64).unwrap();
            file.write(0, &closed[..len]).unwrap();
            FileInUse { file, closed }
        }
    }

    impl StorageBackend for FileInUse {
        fn len(&self) -> io::Result<u64> {
            self.file.len()
        }

        fn read(&self, offset: u64, out: &mut [u8]) -> io::Result<()> {
            self.file.read(offset, out)
        }

        fn set_len(&self, len: u64) -> io::Result<()> {
            self.file.set_len(len)
        }

        fn sync_data(&self) -> io::Result<()> {
            self.file.sync_data()
        }

        fn write(&self, offset: u64, data: &[u8]) -> io::Result<()> {
            self.file.write(offset, data)
        }

        fn try_lock_shared_range(
            &self,
            _: Bound<u64>,
            _: Bound<u64>,
        ) -> Result<bool, BackendError> {
            self.file.set_len(self.closed.len() as u64)?;
            self.file.write(0, &self.closed)?;
            Ok(true)
        }
    }

    /// The length was read before the file was locked. Meanwhile the last commit of another process
    /// had made the file longer. So the file was reported as damaged, with the advice to restore it
    /// from a backup.
    #[test]
    fn a_file_that_grows_until_it_is_locked_is_read_to_its_end() {
        let closed = [[0; 10_000], [2; 10_000]].concat();
        let file = ReadOnlyFile::new(Box::new(FileInUse::new(closed, 10_000)));
        assert!(file.try_lock_range(Bound::Unbounded, Bound::Unbounded).unwrap());
        assert_eq!(file.len().unwrap(), 20_000);
        let bytes = all(&file);
        assert!(bytes[..10_000] == [0; 10_000] && bytes[10_000..] == [2; 10_000]);
    }

    /// redb itself must lock the file before it asks for the length.
    #[test]
    fn redb_opens_a_file_that_grows_until_it_is_locked() {
        let folder = tempfile::tempdir().unwrap();
        let path = folder.path().join("a.redb");
        drop(redb::Database::create(&path).unwrap());
        let closed = std::fs::read(&path).unwrap();
        let len = closed.len() - 4_096;
        let file = ReadOnlyFile::new(Box::new(FileInUse::new(closed, len)));
        redb::Builder::new().create_with_backend(file).unwrap();
    }
}
