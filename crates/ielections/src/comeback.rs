//! The proof that the former process of a node is gone, so that its lease can be taken over before it expires.
//!
//! A leader holds an exclusive lock of a file until its process exits, and writes its lease into it. Whoever gets the lock
//! later, and finds that the lease was written into this very file of this very machine since it was booted, knows that the process
//! that held the lease has exited: the kernel keeps the lock for as long as it lives, also while it stands still.

use std::{
    fs::{File, OpenOptions, TryLockError},
    io::{self, Read, Seek, SeekFrom, Write},
    path::{Path, PathBuf},
    sync::{Mutex, PoisonError},
};

use tracing::{debug, info};

use crate::{Lease, place::Place};

/// The name of the file in a node's data folder.
const FILE: &str = "lease.lock";

/// The first line: whatever else the file holds, it is as this program writes it.
const HEADER: &str = "vvm lease 1";

/// No file has more in it; of what has more, the rest is not read.
const BYTES_MAX: u64 = 4096;

/// The locked file of a node. The lock is held until the process exits, or this is dropped.
#[derive(Debug)]
pub struct LockFile {
    path: PathBuf,
    file: Mutex<File>,
    place: Option<Place>,
    former: Option<Lease>,
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
        (&file).take(BYTES_MAX).read_to_end(&mut text).map_err(failed)?;
        let former = place.as_ref().and_then(|place| parse(&text, place));
        debug!(path = %path.display(), ?place, ?former, "locked");
        Ok(LockFile { path, file: Mutex::new(file), place, former })
    }

    /// The lease of a former process of this node that is surely gone.
    pub fn former(&self) -> Option<Lease> {
        self.former
    }

    /// Remembers a lease for the time after this process. Where nothing could be proved by it, nothing is written.
    pub(crate) fn record(&self, lease: &Lease) -> io::Result<()> {
        let Some(place) = &self.place else { return Ok(()) };
        let text = format!("{HEADER}\n{place}\n{}\n", String::from_utf8_lossy(&lease.to_bytes()));
        let mut file = self.file.lock().unwrap_or_else(PoisonError::into_inner);
        // What is half written proves nothing: it does not end with the line.
        file.set_len(0)?;
        file.seek(SeekFrom::Start(0))?;
        file.write_all(text.as_bytes())?;
        file.sync_data()
    }

    /// Where it is.
    pub fn path(&self) -> &Path {
        &self.path
    }
}

/// The lease in a file, if it was written in this place.
fn parse(text: &[u8], place: &Place) -> Option<Lease> {
    let text = std::str::from_utf8(text).ok()?;
    let rest = text.strip_prefix(&format!("{HEADER}\n{place}\n"))?;
    Lease::from_bytes(rest.strip_suffix('\n')?.as_bytes())
}
