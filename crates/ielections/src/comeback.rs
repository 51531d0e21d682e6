//! The proof that a former process of a node is gone, so that its lease can be replaced before it
//! expires.
//!
//! A node holds an exclusive lock of a file until its process exits. It writes each lease into the
//! file *before* it sends the lease to the store. The next process gets the lock only when the
//! former one has exited: the kernel keeps the lock while a process lives, also while it is
//! stopped. So each lease in the file belongs to a process that is gone, if the file was written
//! on this machine, since its last boot, at this inode.
//!
//! A start can be killed at any moment, so the file holds several leases: the lease that an attempt
//! replaces, and the lease of the attempt. At most one of them is in the store. A lease that was
//! recorded and never stored is harmless: nothing in the store is equal to it. A lease that is
//! stored late, after its process was killed, leads to nothing: only its process could have raised
//! the epoch. Such a lease can be replaced as any other lease of a former process.

use std::{
    collections::VecDeque,
    fmt::Write,
    fs::{File, OpenOptions, TryLockError},
    io::{self, Read},
    os::unix::fs::FileExt,
    path::{Path, PathBuf},
    sync::{Mutex, PoisonError},
};

use tracing::{debug, info};

use crate::{Lease, place::Place};

/// The name of the file in a node's data folder.
const FILE: &str = "lease.lock";

/// The first line. It names the format.
const HEADER: &str = "vvm lease 2";

/// The size of the file. The rest behind the leases is filled with line ends.
const BYTES: usize = 4096;

/// How many leases the file holds. Two are enough if each write is stored at once or never. The
/// others are for writes that a store delays.
const LEASES: usize = 16;

/// The locked file of a node. The lock is held until the process exits, or this is dropped.
#[derive(Debug)]
pub struct LockFile {
    path: PathBuf,
    file: File,
    place: Option<Place>,
    former: Vec<Lease>,
    /// What the file holds.
    recorded: Mutex<VecDeque<Lease>>,
}

/// Why there is no lock.
#[derive(Debug, thiserror::Error)]
pub enum LockError {
    /// Another process has it.
    #[error("another process holds {}: two nodes cannot share a data folder", .0.display())]
    Held(PathBuf),
    /// The file cannot be made or locked.
    #[error("cannot lock {}", .path.display())]
    Io {
        /// The file.
        path: PathBuf,
        /// What the system said.
        #[source]
        source: io::Error,
    },
}

impl LockFile {
    /// Locks the file in a folder, which must be there.
    ///
    /// # Errors
    /// If another process holds it, or it cannot be written.
    pub fn lock(folder: &Path) -> Result<LockFile, LockError> {
        let path = folder.join(FILE);
        let failed = |source| LockError::Io { path: path.clone(), source };
        let file = OpenOptions::new()
            .read(true)
            .write(true)
            .create(true)
            .truncate(false)
            .open(&path)
            .map_err(failed)?;
        file.try_lock().map_err(|error| match error {
            TryLockError::WouldBlock => LockError::Held(path.clone()),
            TryLockError::Error(error) => failed(error),
        })?;
        let place = match Place::of(&file).map_err(failed)? {
            Ok(place) => Some(place),
            Err(why) => {
                info!(path = %path.display(), why, "no quick comeback after a crash: the lease will have to expire");
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

    /// The leases of former processes of this node, which are surely gone.
    pub fn former(&self) -> &[Lease] {
        &self.former
    }

    /// Remembers a lease, and the lease that it replaces, for the process after this one. Call this
    /// before the lease is sent. Nothing is written where the file proves nothing.
    ///
    /// The file is one page that one call overwrites, so a kill leaves the old text or the new one.
    /// It is not synced: after a loss of power the boot is another one, and the file proves nothing.
    pub(crate) fn record(&self, lease: &Lease, over: Option<&Lease>) -> io::Result<()> {
        let Some(place) = &self.place else { return Ok(()) };
        let mut recorded = self.recorded.lock().unwrap_or_else(PoisonError::into_inner);
        // The newest are at the end, and the oldest are forgotten.
        for newest in over.into_iter().chain([lease]) {
            recorded.retain(|lease| lease != newest);
            recorded.push_back(*newest);
        }
        let forgotten = recorded.len().saturating_sub(LEASES);
        recorded.drain(..forgotten);
        self.file.write_all_at(&page(place, &*recorded), 0)
    }

    /// Where it is.
    pub fn path(&self) -> &Path {
        &self.path
    }
}

/// The text of the file.
fn page<'a>(place: &Place, leases: impl IntoIterator<Item = &'a Lease>) -> Vec<u8> {
    let mut text = format!("{HEADER}\n{place}\n");
    for lease in leases {
        // Writing to a string cannot fail.
        let _ = writeln!(text, "{lease}");
    }
    let mut page = text.into_bytes();
    page.resize(BYTES, b'\n');
    page
}

/// The leases in a file that was written in this place. A line without an end is no lease.
fn parse(text: &[u8], place: &Place) -> Vec<Lease> {
    let header = format!("{HEADER}\n{place}\n");
    let Some(rest) = text.strip_prefix(header.as_bytes()) else { return Vec::new() };
    let lines = rest.split_inclusive(|byte| *byte == b'\n');
    lines.filter_map(|line| Lease::from_bytes(line.strip_suffix(b"\n")?)).collect()
}
