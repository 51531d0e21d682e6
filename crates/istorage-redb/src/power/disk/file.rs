//! A file on a simulated disk: the bytes that are surely there, the bytes that may be, and the
//! bytes that reads show.

use std::collections::BTreeMap;

use crate::power::rng::Rng;

pub(super) const SECTOR: usize = 512;

#[derive(Clone, Debug, Default)]
pub(super) struct PlatterFile {
    synced: Vec<u8>,
    /// The bytes that reads show, with all changes that are not synced.
    seen: Vec<u8>,
    /// Each sector that was written since the last sync, as each of the writes left it.
    sectors: BTreeMap<usize, Vec<Vec<u8>>>,
    /// Each length since the last sync.
    lengths: Vec<usize>,
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
    /// Makes a file that is on the disk with exactly these bytes.
    pub(super) fn new(bytes: Vec<u8>) -> PlatterFile {
        PlatterFile { synced: bytes.clone(), seen: bytes, ..PlatterFile::default() }
    }

    /// The bytes that reads show.
    pub(super) fn seen(&self) -> &[u8] {
        &self.seen
    }

    pub(super) fn write(&mut self, offset: usize, data: &[u8]) {
        let end = offset + data.len();
        if end > self.seen.len() {
            self.cut(end);
        }
        self.seen[offset..end].copy_from_slice(data);
        for number in offset / SECTOR..end.div_ceil(SECTOR) {
            self.sectors.entry(number).or_default().push(sector(&self.seen, number));
        }
    }

    pub(super) fn cut(&mut self, len: usize) {
        // If the file grows again, the bytes after its old end read as zeros.
        for number in len / SECTOR..self.seen.len().div_ceil(SECTOR) {
            let mut zeroed = sector(&self.seen, number);
            let kept = len.saturating_sub(number * SECTOR).min(SECTOR);
            zeroed[kept..].fill(0);
            self.sectors.entry(number).or_default().push(zeroed);
        }
        self.seen.resize(len, 0);
        self.lengths.push(len);
    }

    pub(super) fn sync(&mut self) {
        self.synced.resize(self.seen.len(), 0);
        for number in std::mem::take(&mut self.sectors).into_keys() {
            put_sector(&mut self.synced, number, &sector(&self.seen, number));
        }
        self.lengths.clear();
    }

    pub(super) fn fail_to_sync(&mut self, rng: &mut Rng) {
        for number in std::mem::take(&mut self.sectors).into_keys() {
            let can_reach_disk = (number + 1) * SECTOR <= self.synced.len();
            if can_reach_disk && rng.below(2) == 0 {
                put_sector(&mut self.synced, number, &sector(&self.seen, number));
            }
        }
    }

    /// Forgets the cache. Sectors that are still to be written stay in it.
    pub(super) fn forget_cache(&mut self) {
        for number in 0..self.seen.len().div_ceil(SECTOR) {
            if !self.sectors.contains_key(&number) {
                put_sector(&mut self.seen, number, &sector(&self.synced, number));
            }
        }
    }

    pub(super) fn lose_power(&self, rng: &mut Rng) -> Vec<u8> {
        let mut left = self.synced.clone();
        let length = rng.below(self.lengths.len() as u64 + 1) as usize;
        let len = if length == 0 { self.synced.len() } else { self.lengths[length - 1] };
        left.resize(len, 0);
        // In many cases all or none of the sectors that are not synced are kept.
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
