//! A simulated disk: files with names in one folder. Everything done to the disk is recorded, so
//! that the power can be lost at each moment afterwards.
//!
//! At a power failure a part of the data that is not synced is lost. Each sector of 512 bytes is as
//! one of the writes since the last sync left it, or as it was synced. The length of a file is any
//! length that it had since then. Each change of a name that is not synced may be lost. The others
//! are done in their order.
//!
//! As on Linux, a failed sync was the last attempt to write the data that was not synced. The
//! sectors that did not reach the disk count as written: no later sync writes them. Reads show all
//! of them, from the cache of the system, until the cache is forgotten or the power is lost.

mod file;
mod gate;
mod tests;

use std::{
    collections::BTreeMap,
    ffi::OsString,
    io,
    ops::{Bound, RangeBounds},
    path::{Path, PathBuf},
    sync::{Arc, Mutex, MutexGuard, PoisonError},
};

use redb::{BackendError, StorageBackend};

use self::file::PlatterFile;
pub(super) use self::gate::Gate;
use super::rng::Rng;
use crate::disk::{Disk, FolderSync, OpenFile, OpenMode, PageCache, PathKind};

/// The number of a file.
type Id = usize;

/// A change of the disk.
#[derive(Clone, Debug)]
enum Done {
    Made,
    Written {
        file: Id,
        offset: usize,
        data: Vec<u8>,
    },
    Cut {
        file: Id,
        len: usize,
    },
    Synced(Id),
    /// The seed decides which sectors reached the disk.
    SyncFailed {
        file: Id,
        seed: u64,
    },
    CacheForgotten(Id),
    Named {
        name: PathBuf,
        file: Id,
    },
    Removed(PathBuf),
    Renamed {
        from: PathBuf,
        to: PathBuf,
    },
    FolderSynced,
}

/// The behaviour of a sync.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(super) enum Sync {
    #[default]
    Works,
    /// One sync in this many fails.
    FailsOneIn(u64),
    /// The sync of such a thing reports success, and nothing is on the disk.
    LiesAbout(Synced),
}

/// A thing that is synced.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Synced {
    StorageFile,
    Log,
    Folder,
}

#[derive(Debug, Default)]
struct State {
    now: Platter,
    /// The names as calls see them, with all changes that are not synced.
    names: BTreeMap<PathBuf, Id>,
    locks: Vec<Lock>,
    /// How often a file was opened.
    opened: usize,
    sync: Sync,
    /// One write in this many fails because the disk is full, and so does one growth of a file in
    /// this many. `None` if none fails.
    writes_fail_one_in: Option<u64>,
    /// Whether the cache of a file is kept when a driver wants it forgotten.
    keeps_cache: bool,
    /// The number of syncs and writes that failed.
    failures: usize,
    rng: Rng,
    before: Platter,
    done: Vec<Done>,
}

type Bytes = (Bound<u64>, Bound<u64>);

/// A range of a file that an open file has locked.
#[derive(Debug)]
struct Lock {
    file: Id,
    owner: usize,
    bytes: Bytes,
    is_shared: bool,
}

impl Lock {
    /// Whether only one of the two locks can be held.
    fn excludes(&self, other: &Lock) -> bool {
        let first = |bytes: &Bytes| match bytes.0 {
            Bound::Included(at) => at,
            Bound::Excluded(at) => at.saturating_add(1),
            Bound::Unbounded => 0,
        };
        let is_within = |at: u64, bytes: &Bytes| RangeBounds::<u64>::contains(bytes, &at);
        let overlap = is_within(first(&self.bytes), &other.bytes)
            || is_within(first(&other.bytes), &self.bytes);
        let is_others = self.file == other.file && self.owner != other.owner;
        is_others && overlap && !(self.is_shared && other.is_shared)
    }
}

/// A disk. Clones share one state.
#[derive(Clone, Debug)]
pub(super) struct SimDisk {
    state: Arc<Mutex<State>>,
    gate: Arc<Gate>,
}

impl SimDisk {
    pub(super) fn new(seed: u64) -> SimDisk {
        SimDisk::with(State { rng: Rng(seed), ..State::default() })
    }

    fn with(mut state: State) -> SimDisk {
        let gate = Arc::new(Gate::new(Rng(state.rng.next())));
        SimDisk { state: Arc::new(Mutex::new(state)), gate }
    }

    fn state(&self) -> MutexGuard<'_, State> {
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// The state, for a change of the disk by this thread.
    fn to_change(&self) -> MutexGuard<'_, State> {
        self.gate.pass();
        self.state()
    }

    /// Who changes the disk, and when.
    pub(super) fn gate(&self) -> &Gate {
        &self.gate
    }

    /// All that was done to the disk so far.
    pub(super) fn done(&self) -> String {
        format!("{:?}", self.state().done)
    }

    pub(super) fn set_sync(&self, sync: Sync) {
        self.state().sync = sync;
    }

    /// Makes one write in this many fail from now on, and one growth of a file. A part of such a
    /// write is done.
    pub(super) fn fail_writes(&self, one_in: Option<u64>) {
        self.state().writes_fail_one_in = one_in;
    }

    /// Keeps the cache of a file from now on, even if a driver wants it forgotten.
    pub(super) fn keep_cache(&self) {
        self.state().keeps_cache = true;
    }

    /// The number of changes of the disk so far.
    pub(super) fn moment(&self) -> usize {
        self.state().done.len()
    }

    /// The number of syncs and writes that failed so far.
    pub(super) fn failures(&self) -> usize {
        self.state().failures
    }

    /// Gives a file another name. A file that had that name loses it.
    pub(super) fn rename(&self, from: &Path, to: &Path) {
        let mut state = self.state();
        let file = state.names.remove(from).unwrap();
        state.names.insert(to.to_owned(), file);
        state.does(Done::Renamed { from: from.to_owned(), to: to.to_owned() });
    }

    /// The disks that are left if the power is lost at these moments, which ascend.
    pub(super) fn power_lost_at(&self, moments: &[usize], rng: &mut Rng) -> Vec<SimDisk> {
        let state = self.state();
        let (mut platter, mut done) = (state.before.clone(), 0);
        let lost_at = |moment: &usize| {
            state.done[done..*moment].iter().for_each(|done| platter.apply(done));
            done = *moment;
            platter.lose_power(rng)
        };
        moments.iter().map(lost_at).collect()
    }

    fn sync(&self, kind: Synced, done: Done) -> io::Result<()> {
        let synced = self.to_change().sync(kind, done);
        synced.inspect_err(|_| self.gate.opens())
    }

    fn make(&self, name: &Path) -> Id {
        let mut state = self.to_change();
        state.does(Done::Made);
        let file = state.now.files.len() - 1;
        state.name(name, file);
        file
    }

    pub(super) fn file(&self, path: &Path, mode: OpenMode) -> io::Result<SimFile> {
        let found = self.state().names.get(path).copied();
        let id = match (found, mode) {
            (Some(_), OpenMode::New) => return Err(io::ErrorKind::AlreadyExists.into()),
            (Some(id), _) => id,
            (None, OpenMode::New) => self.make(path),
            (None, _) => return Err(io::ErrorKind::NotFound.into()),
        };
        let mut state = self.state();
        state.opened += 1;
        let kind = if is_log(path) { Synced::Log } else { Synced::StorageFile };
        Ok(SimFile { disk: self.clone(), id, kind, owner: state.opened })
    }
}

fn is_log(path: &Path) -> bool {
    path.to_string_lossy().contains(".log-")
}

impl State {
    fn does(&mut self, done: Done) {
        self.now.apply(&done);
        self.done.push(done);
    }

    /// Does what a sync of such a thing does to the disk, unless the sync lies or fails.
    fn sync(&mut self, kind: Synced, done: Done) -> io::Result<()> {
        match self.sync {
            Sync::FailsOneIn(n) if self.rng.below(n) == 0 => {
                self.failures += 1;
                // The names in a folder stay unsynced.
                if let Done::Synced(file) = done {
                    let seed = self.rng.next();
                    self.does(Done::SyncFailed { file, seed });
                }
                return Err(io::Error::other("the sync failed, as the test wants it"));
            }
            Sync::LiesAbout(lie) if lie == kind => {}
            _ => self.does(done),
        }
        Ok(())
    }

    /// Whether the next write or growth fails, because the disk is full.
    fn is_full(&mut self) -> bool {
        let is_full = self.writes_fail_one_in.is_some_and(|n| self.rng.below(n) == 0);
        self.failures += usize::from(is_full);
        is_full
    }

    fn seen(&self, file: Id) -> &[u8] {
        self.now.files[file].seen()
    }

    fn name(&mut self, name: &Path, file: Id) {
        self.names.insert(name.to_owned(), file);
        self.does(Done::Named { name: name.to_owned(), file });
    }
}

/// The data that is surely on the disk, and the data that may be.
#[derive(Clone, Debug, Default)]
struct Platter {
    files: Vec<PlatterFile>,
    names: BTreeMap<PathBuf, Id>,
    /// The changes of names since the folder was synced.
    unsynced_names: Vec<Done>,
}

impl Platter {
    fn apply(&mut self, done: &Done) {
        match done {
            Done::Made => self.files.push(PlatterFile::default()),
            Done::Written { file, offset, data } => self.files[*file].write(*offset, data),
            Done::Cut { file, len } => self.files[*file].cut(*len),
            Done::Synced(file) => self.files[*file].sync(),
            Done::SyncFailed { file, seed } => self.files[*file].fail_to_sync(&mut Rng(*seed)),
            Done::CacheForgotten(file) => self.files[*file].forget_cache(),
            Done::FolderSynced => {
                for done in std::mem::take(&mut self.unsynced_names) {
                    change_names(&mut self.names, &done);
                }
            }
            done => self.unsynced_names.push(done.clone()),
        }
    }

    /// The disk that is left after a power failure.
    fn lose_power(&self, rng: &mut Rng) -> SimDisk {
        let files: Vec<_> = self.files.iter().map(|file| file.lose_power(rng)).collect();
        let mut names = self.names.clone();
        for done in &self.unsynced_names {
            if rng.below(2) == 0 {
                change_names(&mut names, done);
            }
        }
        let before = Platter {
            files: files.into_iter().map(PlatterFile::new).collect(),
            names: names.clone(),
            unsynced_names: Vec::new(),
        };
        let (rng, now) = (Rng(rng.next()), before.clone());
        let state = State { now, names, rng, before, ..State::default() };
        SimDisk::with(state)
    }
}

fn change_names(names: &mut BTreeMap<PathBuf, Id>, done: &Done) {
    match done {
        Done::Named { name, file } => drop(names.insert(name.clone(), *file)),
        Done::Removed(name) => drop(names.remove(name)),
        Done::Renamed { from, to } => {
            if let Some(file) = names.remove(from) {
                names.insert(to.clone(), file);
            }
        }
        _ => unreachable!("{done:?} is not done to names"),
    }
}

impl Disk for SimDisk {
    fn path_kind(&self, path: &Path) -> io::Result<PathKind> {
        // The writer looks at its log before each group. It meets the filer at rest then.
        let state = if is_log(path) { self.to_change() } else { self.state() };
        Ok(match state.names.get(path) {
            Some(id) => {
                let (identity, len) = (Some((0, *id as u64)), state.seen(*id).len() as u64);
                PathKind::File { identity, len }
            }
            None => PathKind::Absent,
        })
    }

    fn file(&self, path: &Path, mode: OpenMode) -> io::Result<OpenFile> {
        if !is_log(path) {
            // Reads wait until the filer has opened the file again.
            self.gate.opens();
        }
        let file = SimDisk::file(self, path, mode)?;
        let (cache, identity) = (SimCache(self.clone(), file.id), Some((0, file.id as u64)));
        Ok(OpenFile { file: Box::new(file), cache: Box::new(cache), identity })
    }

    fn link(&self, file: &Path, name: &Path) -> io::Result<()> {
        let mut state = self.to_change();
        let Some(id) = state.names.get(file).copied() else {
            return Err(io::ErrorKind::NotFound.into());
        };
        if state.names.contains_key(name) {
            return Err(io::ErrorKind::AlreadyExists.into());
        }
        state.name(name, id);
        Ok(())
    }

    fn remove(&self, name: &Path) -> io::Result<()> {
        let mut state = self.to_change();
        state.names.remove(name).ok_or(io::ErrorKind::NotFound)?;
        state.does(Done::Removed(name.to_owned()));
        Ok(())
    }

    fn names(&self, folder: &Path) -> io::Result<Vec<OsString>> {
        let state = self.state();
        let names = state.names.keys().filter(|name| name.parent() == Some(folder));
        Ok(names.filter_map(|name| name.file_name()).map(|name| name.to_owned()).collect())
    }

    fn make_folder(&self, _: &Path) -> io::Result<()> {
        Ok(())
    }

    fn open_folder(&self, folder: &Path) -> io::Result<FolderSync> {
        // As on Linux, an empty name is no folder.
        if folder.as_os_str().is_empty() {
            return Err(io::ErrorKind::NotFound.into());
        }
        let disk = self.clone();
        Ok(Box::new(move || disk.sync(Synced::Folder, Done::FolderSynced)))
    }
}

/// The pages of a file that the system has in memory.
#[derive(Debug)]
pub(super) struct SimCache(SimDisk, Id);

impl PageCache for SimCache {
    fn forget(&self, len: Option<u64>) -> io::Result<()> {
        let mut state = self.0.to_change();
        // The driver forgets only the beginning of a file to find out whether the disk is there.
        // This disk is always there.
        if len.is_none() && !state.keeps_cache {
            state.does(Done::CacheForgotten(self.1));
        }
        Ok(())
    }
}

/// A file of the disk.
#[derive(Debug)]
pub(super) struct SimFile {
    disk: SimDisk,
    id: Id,
    kind: Synced,
    owner: usize,
}

impl SimFile {
    fn lock(&self, bytes: Bytes, is_shared: bool) -> bool {
        let mut state = self.disk.state();
        let lock = Lock { file: self.id, owner: self.owner, bytes, is_shared };
        let is_free = !state.locks.iter().any(|held| held.excludes(&lock));
        if is_free {
            state.locks.push(lock);
        }
        is_free
    }

    fn unlock(&self, is_meant: impl Fn(&Bytes) -> bool) {
        let mut state = self.disk.state();
        state.locks.retain(|lock| {
            !(lock.file == self.id && lock.owner == self.owner && is_meant(&lock.bytes))
        });
    }
}

/// Releases the locks of a file when it is closed, even by the end of its process.
impl Drop for SimFile {
    fn drop(&mut self) {
        self.unlock(|_| true);
    }
}

impl StorageBackend for SimFile {
    fn len(&self) -> io::Result<u64> {
        Ok(self.disk.state().seen(self.id).len() as u64)
    }

    fn read(&self, offset: u64, out: &mut [u8]) -> io::Result<()> {
        let state = self.disk.state();
        let end = offset as usize + out.len();
        let there = state.seen(self.id).get(offset as usize..end);
        out.copy_from_slice(there.ok_or(io::ErrorKind::UnexpectedEof)?);
        Ok(())
    }

    fn set_len(&self, len: u64) -> io::Result<()> {
        let (file, len) = (self.id, len as usize);
        // Readers of redb wait while it makes a file longer, and syncs it.
        self.disk.gate.pass_with_next();
        let mut state = self.disk.state();
        let grows = len > state.seen(file).len();
        if grows && state.is_full() {
            self.disk.gate.opens();
            return Err(io::ErrorKind::StorageFull.into());
        }
        state.does(Done::Cut { file, len });
        Ok(())
    }

    fn sync_data(&self) -> io::Result<()> {
        self.disk.sync(self.kind, Done::Synced(self.id))
    }

    fn write(&self, offset: u64, data: &[u8]) -> io::Result<()> {
        let (file, offset) = (self.id, offset as usize);
        let mut state = self.disk.to_change();
        let fails = state.is_full();
        if fails {
            self.disk.gate.opens();
        }
        let done = if fails { state.rng.below(data.len() as u64 + 1) as usize } else { data.len() };
        state.does(Done::Written { file, offset, data: data[..done].to_vec() });
        if fails { Err(io::ErrorKind::StorageFull.into()) } else { Ok(()) }
    }

    fn try_lock_range(&self, start: Bound<u64>, end: Bound<u64>) -> Result<bool, BackendError> {
        Ok(self.lock((start, end), false))
    }

    fn try_lock_shared_range(
        &self,
        start: Bound<u64>,
        end: Bound<u64>,
    ) -> Result<bool, BackendError> {
        Ok(self.lock((start, end), true))
    }

    fn unlock_range(&self, start: Bound<u64>, end: Bound<u64>) -> Result<(), BackendError> {
        self.unlock(|bytes| *bytes == (start, end));
        Ok(())
    }
}
