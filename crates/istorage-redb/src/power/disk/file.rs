//! A file on a simulated disk: what is surely there, what may be, and what reads show.

use std::collections::BTreeMap;

use crate::power::Rng;

pub(super) const SECTOR: usize = 512;

#[derive(Clone, Debug, Default)]
pub(super) struct PlatterFile {
    synced: Vec<u8>,
    /// As it is read: with all that is not synced.
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
    /// A file that is on the disk as it is.
    pub(super) fn new(bytes: Vec<u8>) -> PlatterFile {
        PlatterFile { synced: bytes.clone(), seen: bytes, ..PlatterFile::default() }
    }

    /// What reads show.
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

    /// Sectors that are still to be written stay in the cache.
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
