//! A simulated disk: files with names in one folder. All that is done to it is recorded, so that the power can be lost at
//! each moment afterwards.
//!
//! What is not synced when the power is lost is lost in part: each sector of 512 bytes is as one of the writes left it, or
//! as it was synced; the length of a file is any that it had since; of what was done to names a part from the beginning is
//! done.
//!
//! A sync that fails is the last attempt to write what was not synced, as on Linux. The sectors that did not reach the disk
//! count as written: no later sync writes them. Reads show some of them, from the cache of the system, until the power is
//! lost.

mod tests;

use std::{
    collections::BTreeMap,
    ffi::OsString,
    io,
    ops::{Bound, RangeBounds},
    path::{Path, PathBuf},
    sync::{Arc, Mutex, MutexGuard, PoisonError, atomic::AtomicBool},
};

use redb::{BackendError, Builder, DatabaseError, StorageBackend};

use super::Rng;
use crate::disk::{self, Disk, Found, How, OpenDatabase};

const SECTOR: usize = 512;

/// The number of a file.
type Id = usize;

/// Something that was done to the disk.
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
    /// The seed says which sectors reached the disk, and which of the others are still in the cache.
    SyncFailed {
        file: Id,
        seed: u64,
    },
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

/// What a sync does.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(super) enum Sync {
    #[default]
    Works,
    /// One in so many fails.
    FailsOneIn(u64),
    /// It says that all is on the disk, and nothing is.
    Lies,
}

#[derive(Debug, Default)]
struct State {
    now: Platter,
    /// As they are seen: with all that is not synced.
    names: BTreeMap<PathBuf, Id>,
    locks: Vec<Lock>,
    /// How many times a file was opened.
    opened: usize,
    sync: Sync,
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
    /// Whether only one of the two can be held.
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

/// A disk. Clones are the same one.
#[derive(Clone, Debug, Default)]
pub(super) struct SimDisk(Arc<Mutex<State>>);

impl SimDisk {
    pub(super) fn new(seed: u64) -> SimDisk {
        let disk = SimDisk::default();
        disk.state().rng = Rng(seed);
        disk
    }

    fn state(&self) -> MutexGuard<'_, State> {
        self.0.lock().unwrap_or_else(PoisonError::into_inner)
    }

    pub(super) fn set_sync(&self, sync: Sync) {
        self.state().sync = sync;
    }

    /// How much was done to the disk so far.
    pub(super) fn moment(&self) -> usize {
        self.state().done.len()
    }

    /// Gives a file another name; what had that name before is gone.
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

    fn make(&self, name: &Path) -> Id {
        let mut state = self.state();
        state.does(Done::Made);
        let file = state.now.files.len() - 1;
        state.name(name, file);
        file
    }

    pub(super) fn file(&self, path: &Path, how: How) -> io::Result<SimFile> {
        let found = self.state().names.get(path).copied();
        let id = match (found, how) {
            (Some(_), How::New) => return Err(io::ErrorKind::AlreadyExists.into()),
            (Some(id), _) => id,
            (None, How::New) => self.make(path),
            (None, _) => return Err(io::ErrorKind::NotFound.into()),
        };
        let mut state = self.state();
        state.opened += 1;
        Ok(SimFile { disk: self.clone(), id, owner: state.opened })
    }
}

impl State {
    fn does(&mut self, done: Done) {
        self.now.apply(&done);
        self.done.push(done);
    }

    fn sync(&mut self, file: Id) -> io::Result<()> {
        if matches!(self.sync, Sync::FailsOneIn(n) if self.rng.below(n) == 0) {
            let seed = self.rng.next();
            self.does(Done::SyncFailed { file, seed });
            return Err(io::Error::other("the sync failed, as the test wants it"));
        }
        if self.sync != Sync::Lies {
            self.does(Done::Synced(file));
        }
        Ok(())
    }

    fn seen(&self, file: Id) -> &[u8] {
        &self.now.files[file].seen
    }

    fn name(&mut self, name: &Path, file: Id) {
        self.names.insert(name.to_owned(), file);
        self.does(Done::Named { name: name.to_owned(), file });
    }
}

/// What is surely on the disk, and what may be.
#[derive(Clone, Debug, Default)]
struct Platter {
    files: Vec<PlatterFile>,
    names: BTreeMap<PathBuf, Id>,
    /// What was done to names since the folder was synced.
    unsynced_names: Vec<Done>,
}

#[derive(Clone, Debug, Default)]
struct PlatterFile {
    synced: Vec<u8>,
    /// As it is read: with all that is not synced.
    seen: Vec<u8>,
    /// Each sector that was written since the last sync, as each of the writes left it.
    sectors: BTreeMap<usize, Vec<Vec<u8>>>,
    /// Each length since the last sync.
    lengths: Vec<usize>,
}

impl Platter {
    fn apply(&mut self, done: &Done) {
        match done {
            Done::Made => self.files.push(PlatterFile::default()),
            Done::Written { file, offset, data } => self.files[*file].write(*offset, data),
            Done::Cut { file, len } => self.files[*file].cut(*len),
            Done::Synced(file) => self.files[*file].sync(),
            Done::SyncFailed { file, seed } => self.files[*file].fail_to_sync(&mut Rng(*seed)),
            Done::FolderSynced => {
                for done in std::mem::take(&mut self.unsynced_names) {
                    change_names(&mut self.names, &done);
                }
            }
            done => self.unsynced_names.push(done.clone()),
        }
    }

    /// What is left of it.
    fn lose_power(&self, rng: &mut Rng) -> SimDisk {
        let files: Vec<_> = self.files.iter().map(|file| file.lose_power(rng)).collect();
        let mut names = self.names.clone();
        let kept = rng.below(self.unsynced_names.len() as u64 + 1) as usize;
        self.unsynced_names[..kept].iter().for_each(|done| change_names(&mut names, done));
        let synced = |file: &Vec<u8>| PlatterFile {
            synced: file.clone(),
            seen: file.clone(),
            ..PlatterFile::default()
        };
        let before = Platter {
            files: files.iter().map(synced).collect(),
            names: names.clone(),
            unsynced_names: Vec::new(),
        };
        let (rng, now) = (Rng(rng.next()), before.clone());
        let state = State { now, names, rng, before, ..State::default() };
        SimDisk(Arc::new(Mutex::new(state)))
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

fn sector(file: &[u8], number: usize) -> Vec<u8> {
    let mut sector = vec![0; SECTOR];
    let start = (number * SECTOR).min(file.len());
    let there = &file[start..(start + SECTOR).min(file.len())];
    sector[..there.len()].copy_from_slice(there);
    sector
}

fn put_sector(file: &mut [u8], number: usize, sector: &[u8]) {
    let start = (number * SECTOR).min(file.len());
    let end = (start + SECTOR).min(file.len());
    file[start..end].copy_from_slice(&sector[..end - start]);
}

impl PlatterFile {
    fn write(&mut self, offset: usize, data: &[u8]) {
        let end = offset + data.len();
        if end > self.seen.len() {
            self.cut(end);
        }
        self.seen[offset..end].copy_from_slice(data);
        for number in offset / SECTOR..end.div_ceil(SECTOR) {
            self.sectors.entry(number).or_default().push(sector(&self.seen, number));
        }
    }

    fn cut(&mut self, len: usize) {
        // What is behind the end reads as zeros if the file grows again.
        for number in len / SECTOR..self.seen.len().div_ceil(SECTOR) {
            let mut zeroed = sector(&self.seen, number);
            let kept = len.saturating_sub(number * SECTOR).min(SECTOR);
            zeroed[kept..].fill(0);
            self.sectors.entry(number).or_default().push(zeroed);
        }
        self.seen.resize(len, 0);
        self.lengths.push(len);
    }

    fn sync(&mut self) {
        self.synced.resize(self.seen.len(), 0);
        for number in std::mem::take(&mut self.sectors).into_keys() {
            put_sector(&mut self.synced, number, &sector(&self.seen, number));
        }
        self.lengths.clear();
    }

    fn fail_to_sync(&mut self, rng: &mut Rng) {
        for number in std::mem::take(&mut self.sectors).into_keys() {
            let can_reach_disk = (number + 1) * SECTOR <= self.synced.len();
            if can_reach_disk && rng.below(2) == 0 {
                put_sector(&mut self.synced, number, &sector(&self.seen, number));
            } else if rng.below(2) == 0 {
                put_sector(&mut self.seen, number, &sector(&self.synced, number));
            }
        }
    }

    fn lose_power(&self, rng: &mut Rng) -> Vec<u8> {
        let mut left = self.synced.clone();
        let length = rng.below(self.lengths.len() as u64 + 1) as usize;
        let len = if length == 0 { self.synced.len() } else { self.lengths[length - 1] };
        left.resize(len, 0);
        // Often all or nothing of what is not synced is there.
        let bias = rng.below(4);
        for (number, versions) in &self.sectors {
            let version = match bias {
                0 => 0,
                1 => versions.len(),
                _ => rng.below(versions.len() as u64 + 1) as usize,
            };
            if version > 0 {
                put_sector(&mut left, *number, &versions[version - 1]);
            }
        }
        left
    }
}

impl Disk for SimDisk {
    fn look(&self, path: &Path) -> io::Result<Found> {
        let state = self.state();
        Ok(match state.names.get(path) {
            Some(id) => {
                let (identity, len) = (Some((0, *id as u64)), state.seen(*id).len() as u64);
                Found::File { identity, len }
            }
            None => Found::Nothing,
        })
    }

    fn database(
        &self,
        path: &Path,
        how: How,
        builder: &Builder,
        has_lost: &Arc<AtomicBool>,
    ) -> Result<OpenDatabase, DatabaseError> {
        let file = self.file(path, how)?;
        let identity = Some((0, file.id as u64));
        disk::open(file, identity, how, builder, has_lost)
    }

    fn link(&self, file: &Path, name: &Path) -> io::Result<()> {
        let mut state = self.state();
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
        let mut state = self.state();
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

    fn sync_folder(&self, _: &Path) -> io::Result<()> {
        let mut state = self.state();
        if state.sync != Sync::Lies {
            state.does(Done::FolderSynced);
        }
        Ok(())
    }
}

/// A file of the disk.
#[derive(Debug)]
pub(super) struct SimFile {
    disk: SimDisk,
    id: Id,
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

/// A file that is closed has no locks, also if it is closed by the end of its process.
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
        self.disk.state().does(Done::Cut { file: self.id, len: len as usize });
        Ok(())
    }

    fn sync_data(&self) -> io::Result<()> {
        self.disk.state().sync(self.id)
    }

    fn write(&self, offset: u64, data: &[u8]) -> io::Result<()> {
        let (file, offset) = (self.id, offset as usize);
        self.disk.state().does(Done::Written { file, offset, data: data.to_vec() });
        Ok(())
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
