//! The backup of a file that no node uses.

use std::{fmt, io::Write, sync::Arc};

use istorage::{Error, Result};

use super::BackupRun;
use crate::{
    RedbConfig,
    disk::{Disk, real::RealDisk},
    file::StorageFile,
    time::Moment,
};

/// The backup of a file that no node uses, before its first row. The file is not changed.
pub struct OfflineBackup {
    file: StorageFile,
    run: BackupRun,
}

impl fmt::Debug for OfflineBackup {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("OfflineBackup").finish_non_exhaustive()
    }
}

impl OfflineBackup {
    /// Opens the file for reading, and begins its backup. Until the backup is dropped, no other
    /// process can change the file. The call blocks its thread.
    ///
    /// # Errors
    /// Those of [`RedbDriver::open`](crate::RedbDriver::open), and `Invalid` if there is no file.
    pub fn open(config: &RedbConfig) -> Result<OfflineBackup> {
        let disk: Arc<dyn Disk> = Arc::new(RealDisk);
        let file = StorageFile::for_reading(config.clone(), disk);
        let contents = file.open(0)?.contents;
        let run = BackupRun::begin(&file, contents.time.unwrap_or(Moment(0)))?;
        Ok(OfflineBackup { file, run })
    }

    /// Writes the backup to `to`. The call blocks its thread.
    ///
    /// # Errors
    /// `Corrupt` if a row is damaged, and `Unavailable` if the file cannot be read, or `to` cannot
    /// be written.
    pub fn write(self, to: &mut dyn Write) -> Result<()> {
        let OfflineBackup { file, mut run } = self;
        let unwritten =
            |error| Error::unavailable("the backup cannot be written").with_source(error);
        while let Some(piece) = run.piece()? {
            to.write_all(&piece).map_err(unwritten)?;
        }
        drop(run);
        file.close();
        Ok(())
    }
}
