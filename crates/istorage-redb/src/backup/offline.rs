//! The backup of a file that no node uses.

use std::{io::Write, sync::Arc};

use istorage::{Error, Result};

use super::BackupRun;
use crate::{
    RedbConfig,
    disk::{Disk, real::RealDisk},
    file::StorageFile,
    time::Moment,
};

/// Writes a backup of the file to `to`. The file is not changed. The call blocks its thread until
/// the backup is done.
///
/// # Errors
/// Those of [`RedbDriver::open`](crate::RedbDriver::open), `Invalid` if there is no file, and
/// `Unavailable` if `to` cannot be written.
pub fn back_up(config: &RedbConfig, to: &mut dyn Write) -> Result<()> {
    let disk: Arc<dyn Disk> = Arc::new(RealDisk);
    let file = StorageFile::for_reading(config.clone(), disk);
    let (contents, _) = file.open(0)?;
    let mut run = BackupRun::begin(&file, contents.time.unwrap_or(Moment(0)))?;
    let unwritten = |error| Error::unavailable("the backup cannot be written").with_source(error);
    while let Some(piece) = run.piece()? {
        to.write_all(&piece).map_err(unwritten)?;
    }
    drop(run);
    file.close();
    Ok(())
}
