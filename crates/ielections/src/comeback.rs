//! The proof that a former process of a node is gone, so that the node can replace the lease of
//! that process before it expires.
//!
//! A node holds an exclusive lock of a file until its process exits. The node writes each lease
//! into the file *before* it sends the lease to the store. The kernel keeps the lock while a
//! process lives, even while the process is stopped. So the next process gets the lock only when
//! the former process has exited.
//!
//! Invariant: each lease that is in the file when the lock is taken belongs to a process that is
//! gone. Such a lease counts only if the file was written on this machine, since its last boot, at
//! this inode. Later the process adds its own leases.
//!
//! A start can be killed at any moment, so the file holds several leases: the lease that an attempt
//! replaces, and the lease of the attempt. At most one of them is in the store. A lease that was
//! recorded and never stored is harmless: no row in the store is equal to it.
//!
//! A lease that is stored late, after its process was killed, does not lead to a leadership: only
//! its process could have raised the epoch. Such a lease can be replaced like any other lease of a
//! former process.

use std::{
    collections::VecDeque,
    fmt::Write,
    fs::{File, OpenOptions, TryLockError},
    io::{self, Read},
    os::unix::fs::{FileExt, OpenOptionsExt},
    path::{Path, PathBuf},
    sync::Mutex,
};

use base::locks::lock;
use tracing::{debug, info};

use crate::{Lease, file_identity::FileIdentity};

/// The first line of the file. It names the format.
const HEADER: &str = "vvm lease 2";

/// The size of the file. The rest after the leases is filled with line ends.
const BYTES: usize = 4096;

/// The number of leases in the file. Two are enough if the store does each write at once or never.
/// The others are leases that the store may still write late.
const LEASES: usize = 16;

/// The locked file of a node. The lock is held until the process exits, or until this value is
/// dropped.
#[derive(Debug)]
pub struct LockFile {
    path: PathBuf,
    file: File,
    place: Option<FileIdentity>,
    former: Vec<Lease>,
    /// The leases in the file.
    recorded: Mutex<VecDeque<Lease>>,
}

/// Why the lock was not taken.
#[derive(Debug, thiserror::Error)]
pub enum LockError {
    /// Another process holds the lock.
    #[error("another process holds {}: two nodes cannot share a data folder", .0.display())]
    Held(PathBuf),
    /// The file cannot be made or locked.
    #[error("cannot lock {}", .path.display())]
    Io {
        /// The file.
        path: PathBuf,
        /// The error of the operating system.
        #[source]
        source: io::Error,
    },
}

impl LockFile {
    /// The name of the file in a node's data folder.
    pub const NAME: &str = "lease.lock";

    /// Locks the file in a folder that exists. Only the owner of a new file may open it, because
    /// any process that opens the file can lock it.
    ///
    /// # Errors
    /// Fails if another process holds the lock, if the file cannot be written, or if it is no
    /// regular file.
    pub fn lock(folder: &Path) -> Result<LockFile, LockError> {
        let path = folder.join(LockFile::NAME);
        let failed = |source| LockError::Io { path: path.clone(), source };
        let file = OpenOptions::new()
            .read(true)
            .write(true)
            .create(true)
            .truncate(false)
            .mode(0o600)
            .open(&path)
            .map_err(failed)?;
        // A read of a pipe would wait for its writer.
        if !file.metadata().map_err(failed)?.is_file() {
            return Err(failed(io::Error::other("it is no regular file")));
        }
        file.try_lock().map_err(|error| match error {
            TryLockError::WouldBlock => LockError::Held(path.clone()),
            TryLockError::Error(error) => failed(error),
        })?;
        let place = match FileIdentity::of(&file).map_err(failed)? {
            Ok(place) => Some(place),
            Err(reason) => {
                info!(
                    path = %path.display(),
                    reason,
                    "comeback not possible: after a crash the node waits for its lease"
                );
                None
            }
        };
        let mut text = Vec::new();
        (&file).take(BYTES as u64).read_to_end(&mut text).map_err(failed)?;
        let former = place.as_ref().map_or_else(Vec::new, |place| parse(&text, place));
        debug!(path = %path.display(), ?place, ?former, "locked");
        let recorded = Mutex::new(former.iter().copied().collect());
        Ok(LockFile { path, file, place, former, recorded })
    }

    /// Returns the leases of former processes of this node. These processes are known to be gone.
    pub fn former(&self) -> &[Lease] {
        &self.former
    }

    /// Records a lease, and the lease that it replaces, for the next process. Call this before the
    /// lease is sent. If the file proves nothing, nothing is written.
    ///
    /// The file is one page that one call overwrites, so a kill leaves the old text or the new one.
    /// The page is not synced: a loss of power leads to another boot, after which the file proves
    /// nothing.
    pub(crate) fn record(&self, lease: &Lease, over: Option<&Lease>) -> io::Result<()> {
        let Some(place) = &self.place else { return Ok(()) };
        let mut recorded = lock(&self.recorded);
        // The newest leases are at the end, and the oldest are forgotten.
        for newest in over.into_iter().chain([lease]) {
            recorded.retain(|lease| lease != newest);
            recorded.push_back(*newest);
        }
        let forgotten = recorded.len().saturating_sub(LEASES);
        recorded.drain(..forgotten);
        self.file.write_all_at(&page(place, &*recorded), 0)
    }

    /// Returns the path of the file.
    pub fn path(&self) -> &Path {
        &self.path
    }
}

/// Returns the text of the file.
fn page<'a>(place: &FileIdentity, leases: impl IntoIterator<Item = &'a Lease>) -> Vec<u8> {
    let mut text = format!("{HEADER}\n{place}\n");
    for lease in leases {
        // Writing to a string cannot fail.
        let _ = writeln!(text, "{lease}");
    }
    let mut page = text.into_bytes();
    page.resize(BYTES, b'\n');
    page
}

/// Returns the leases in a file that was written in this place. A line without an end is ignored.
fn parse(text: &[u8], place: &FileIdentity) -> Vec<Lease> {
    let header = format!("{HEADER}\n{place}\n");
    let Some(rest) = text.strip_prefix(header.as_bytes()) else { return Vec::new() };
    let lines = rest.split_inclusive(|byte| *byte == b'\n');
    lines.filter_map(|line| Lease::from_bytes(line.strip_suffix(b"\n")?)).collect()
}
