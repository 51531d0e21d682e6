//! A disk that fails, fills up or stands still on command.

use std::{
    cell::Cell,
    ffi::OsString,
    io,
    ops::Bound,
    path::Path,
    sync::{Arc, Condvar, Mutex},
};

use redb::{BackendError, StorageBackend};

use crate::disk::{
    Disk as FileSystem, FolderSync, OpenFile, OpenMode, PageCache, PathKind, real::RealDisk,
};

/// The behaviour of the disk.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(super) enum Disk {
    #[default]
    Works,
    /// Writes succeed, and syncs fail.
    FailsToSync,
    /// This many syncs succeed, and then the disk fails to sync.
    FailsToSyncAfter(usize),
    Full,
    /// The disk is full, and reports no error: data that finds no space is lost.
    HidesThatItIsFull,
    /// Nothing works, not even opening a file.
    Gone,
    /// The storage file does not work, and its log does.
    FileIsGone,
    /// The disk has space for the log, and none for the storage file.
    FileIsFull,
    /// Writes to the log fail after a part of them is done.
    LogWritesFail,
    /// A sync waits until the disk does something else.
    StandsStill,
    /// A sync of the storage file waits until the disk does something else.
    FileStandsStill,
    /// A file cannot get another name.
    HasNoLinks,
    /// The user may not make a folder.
    MakesNoFolder,
    /// The user may not open a folder.
    OpensNoFolder,
    /// The sync of a folder fails.
    SyncsNoFolder,
    /// The next sync of the storage file panics, as redb does when it meets a damaged page. Then
    /// the disk works.
    PanicsOnce,
}

#[derive(Debug, Default)]
struct State {
    disk: Disk,
    syncs: usize,
    waiting: usize,
    opened: usize,
    /// Whether the system has the first page of the file in memory.
    is_cached: bool,
    /// The byte that cannot be read.
    bad: Option<u64>,
}

thread_local! {
    /// Whether the disks of this thread's test hide that they are full.
    pub(super) static HIDES_FULL: Cell<bool> = const { Cell::new(false) };
}

/// A switch that changes the behaviour of the disk.
#[derive(Clone, Debug, Default)]
pub(super) struct Switch(Arc<(Mutex<State>, Condvar)>);

impl Switch {
    pub(super) fn set(&self, disk: Disk) {
        let hides = disk == Disk::Full && HIDES_FULL.get();
        let disk = if hides { Disk::HidesThatItIsFull } else { disk };
        let mut state = self.0.0.lock().unwrap();
        (state.disk, state.is_cached) = (disk, true);
        self.0.1.notify_all();
    }

    /// Makes reads of this byte fail from now on, and no other reads.
    pub(super) fn fail_reads_of(&self, byte: u64) {
        self.0.0.lock().unwrap().bad = Some(byte);
    }

    /// How often a file was opened.
    pub(super) fn opened(&self) -> usize {
        self.0.0.lock().unwrap().opened
    }

    fn hides_full(&self) -> bool {
        self.0.0.lock().unwrap().disk == Disk::HidesThatItIsFull
    }

    fn fail_if(&self, bad: &[(Disk, io::ErrorKind)]) -> io::Result<()> {
        let disk = self.0.0.lock().unwrap().disk;
        match bad.iter().find(|(when, _)| *when == disk) {
            Some((_, kind)) => Err((*kind).into()),
            None => Ok(()),
        }
    }

    fn before_sync(&self, is_log: bool) {
        let mut state = self.0.0.lock().unwrap();
        state.syncs += 1;
        state.waiting += 1;
        self.0.1.notify_all();
        let stands_still = |state: &mut State| match state.disk {
            Disk::StandsStill => true,
            Disk::FileStandsStill => !is_log,
            _ => false,
        };
        let mut state = self.0.1.wait_while(state, stands_still).unwrap();
        state.waiting -= 1;
        match &mut state.disk {
            Disk::FailsToSyncAfter(0) => state.disk = Disk::FailsToSync,
            Disk::FailsToSyncAfter(left) => *left -= 1,
            _ => {}
        }
        if state.disk == Disk::PanicsOnce && !is_log {
            state.disk = Disk::Works;
            drop(state);
            panic!("the disk panics");
        }
    }

    /// Waits until a commit stands still.
    pub(super) fn wait_for_sync(&self) {
        let state = self.0.0.lock().unwrap();
        drop(self.0.1.wait_while(state, |state| state.waiting == 0).unwrap());
    }

    pub(super) fn syncs(&self) -> usize {
        self.0.0.lock().unwrap().syncs
    }
}

/// The disk of this machine behind the switch.
#[derive(Debug)]
pub(super) struct FailingDisk(pub(super) Switch);

impl FileSystem for FailingDisk {
    fn path_kind(&self, path: &Path) -> io::Result<PathKind> {
        RealDisk.path_kind(path)
    }

    fn file(&self, path: &Path, mode: OpenMode) -> io::Result<OpenFile> {
        let OpenFile { file, cache, identity } = RealDisk.file(path, mode)?;
        let is_log = path.to_string_lossy().contains(".log-");
        self.0.0.0.lock().unwrap().opened += usize::from(!is_log);
        let file = Box::new(FailingFile { file, switch: self.0.clone(), is_log });
        let cache = Box::new(FailingCache { cache, switch: self.0.clone() });
        Ok(OpenFile { file, cache, identity })
    }

    fn link(&self, file: &Path, name: &Path) -> io::Result<()> {
        self.0.fail_if(&[(Disk::HasNoLinks, io::ErrorKind::PermissionDenied)])?;
        RealDisk.link(file, name)
    }

    fn remove(&self, name: &Path) -> io::Result<()> {
        RealDisk.remove(name)
    }

    fn names(&self, folder: &Path) -> io::Result<Vec<OsString>> {
        RealDisk.names(folder)
    }

    fn make_folder(&self, folder: &Path) -> io::Result<()> {
        self.0.fail_if(&[(Disk::MakesNoFolder, io::ErrorKind::PermissionDenied)])?;
        RealDisk.make_folder(folder)
    }

    fn open_folder(&self, folder: &Path) -> io::Result<FolderSync> {
        self.0.fail_if(&[(Disk::OpensNoFolder, io::ErrorKind::PermissionDenied)])?;
        let (switch, sync) = (self.0.clone(), RealDisk.open_folder(folder)?);
        Ok(Box::new(move || {
            switch.fail_if(&[(Disk::SyncsNoFolder, io::ErrorKind::Other)])?;
            sync()
        }))
    }
}

/// The pages of a file that the system has in memory, behind the switch.
#[derive(Debug)]
struct FailingCache {
    cache: Box<dyn PageCache>,
    switch: Switch,
}

impl PageCache for FailingCache {
    fn forget(&self, len: Option<u64>) -> io::Result<()> {
        self.switch.0.0.lock().unwrap().is_cached = false;
        self.cache.forget(len)
    }
}

/// A file behind the switch.
#[derive(Debug)]
struct FailingFile {
    file: Box<dyn StorageBackend>,
    switch: Switch,
    /// A file of the log has all its space, and no bad sector.
    is_log: bool,
}

const GONE: (Disk, io::ErrorKind) = (Disk::Gone, io::ErrorKind::NotConnected);

impl FailingFile {
    fn fail_if_gone(&self) -> io::Result<()> {
        self.switch.fail_if(&[GONE])?;
        match self.is_log {
            true => Ok(()),
            false => self.switch.fail_if(&[(Disk::FileIsGone, io::ErrorKind::NotConnected)]),
        }
    }

    fn fail_if_full(&self) -> io::Result<()> {
        self.switch.fail_if(&[(Disk::Full, io::ErrorKind::StorageFull)])?;
        match self.is_log {
            true => Ok(()),
            false => self.switch.fail_if(&[(Disk::FileIsFull, io::ErrorKind::StorageFull)]),
        }
    }
}

impl StorageBackend for FailingFile {
    fn len(&self) -> io::Result<u64> {
        self.fail_if_gone()?;
        self.file.len()
    }

    fn read(&self, offset: u64, out: &mut [u8]) -> io::Result<()> {
        let is_cached = offset == 0 && self.switch.0.0.lock().unwrap().is_cached;
        if !is_cached {
            self.fail_if_gone()?;
        }
        let bad = self.switch.0.0.lock().unwrap().bad;
        if !self.is_log && bad.is_some_and(|bad| (offset..offset + out.len() as u64).contains(&bad))
        {
            return Err(io::Error::other("the sector is bad"));
        }
        self.file.read(offset, out)
    }

    fn set_len(&self, len: u64) -> io::Result<()> {
        self.fail_if_gone()?;
        self.fail_if_full()?;
        if self.switch.hides_full() {
            return Ok(());
        }
        self.file.set_len(len)
    }

    fn sync_data(&self) -> io::Result<()> {
        self.switch.before_sync(self.is_log);
        self.fail_if_gone()?;
        self.switch.fail_if(&[(Disk::FailsToSync, io::ErrorKind::Other)])?;
        self.file.sync_data()
    }

    fn write(&self, offset: u64, data: &[u8]) -> io::Result<()> {
        // A full disk still takes writes over the first page, and over the space of the log.
        let has_space = match self.is_log {
            true => offset + data.len() as u64 <= self.file.len()?,
            false => offset == 0,
        };
        if !has_space {
            self.fail_if_full()?;
            if self.switch.hides_full() {
                return Ok(());
            }
        }
        self.fail_if_gone()?;
        let fails = self.switch.fail_if(&[(Disk::LogWritesFail, io::ErrorKind::Other)]);
        if self.is_log
            && let Err(error) = fails
        {
            // All but the zeros behind a frame: the frame is intact.
            self.file.write(offset, &data[..data.len().saturating_sub(1)])?;
            return Err(error);
        }
        self.file.write(offset, data)
    }

    fn close(&self) -> io::Result<()> {
        self.file.close()
    }

    fn try_lock_range(&self, start: Bound<u64>, end: Bound<u64>) -> Result<bool, BackendError> {
        self.file.try_lock_range(start, end)
    }

    fn try_lock_shared_range(
        &self,
        start: Bound<u64>,
        end: Bound<u64>,
    ) -> Result<bool, BackendError> {
        self.file.try_lock_shared_range(start, end)
    }

    fn unlock_range(&self, start: Bound<u64>, end: Bound<u64>) -> Result<(), BackendError> {
        self.file.unlock_range(start, end)
    }
}
