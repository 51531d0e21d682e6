//! A bounded cache of the last numbers of recently used workspaces.
//!
//! The cache evicts by the clock algorithm. A hand goes round over all workspaces, and evicts a
//! workspace that was not used since the hand passed it last.
//!
//! A list in the order of use, as in the crate `lru`, would know the oldest workspace more exactly.
//! But each use of such a list writes to four places in memory, and a use of this cache writes to
//! one. If a workspace has three sequences, a number takes 36.2 bytes in `lru`, and 21.7 bytes
//! here: the bench `sequencer` measures both. The capacity of `lru` counts entries. The capacity of
//! this cache counts numbers, because kinds of workspaces differ in their sequences.

use std::hash::BuildHasher;

use hashbrown::{DefaultHashBuilder, HashTable};
use smallvec::SmallVec;

use crate::{
    WsId,
    defect::{self, SequencerDefect},
};

/// The last number given of each sequence of a workspace, in the order of declaration.
pub(crate) type WorkspaceNumbers = SmallVec<[u64; 3]>;

#[derive(Debug)]
pub(crate) struct NumberCache {
    /// The limit of the numbers in the cache.
    capacity: usize,
    /// The count of the numbers in the cache.
    numbers: usize,
    hasher: DefaultHashBuilder,
    index: HashTable<u32>,
    entries: Vec<CacheEntry>,
    vacant: Vec<u32>,
    hand: usize,
}

#[derive(Debug)]
struct CacheEntry {
    ws: WsId,
    /// The index of the kind of the workspace. The kind tells the sequence of each number.
    kind: u16,
    is_used: bool,
    /// The numbers; empty if the entry is vacant.
    numbers: WorkspaceNumbers,
}

/// The index of a workspace in the cache, valid until a workspace is inserted or removed.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct CacheIndex(u32);

impl NumberCache {
    pub(crate) fn new(capacity: usize) -> NumberCache {
        NumberCache {
            capacity,
            numbers: 0,
            hasher: DefaultHashBuilder::default(),
            index: HashTable::new(),
            entries: Vec::new(),
            vacant: Vec::new(),
            hand: 0,
        }
    }

    /// Returns the index of a workspace if the cache holds the workspace with this kind. Marks the
    /// workspace as used.
    pub(crate) fn find(&mut self, ws: WsId, kind: usize) -> Option<CacheIndex> {
        let at = self.at(ws)?;
        let entry = &mut self.entries[at.0 as usize];
        entry.is_used = true;
        (usize::from(entry.kind) == kind || defect::is_put_back(SequencerDefect::KindNotChecked))
            .then_some(at)
    }

    /// Returns whether the cache holds a workspace with this kind.
    pub(crate) fn has(&self, ws: WsId, kind: usize) -> bool {
        self.at(ws)
            .is_some_and(|CacheIndex(at)| usize::from(self.entries[at as usize].kind) == kind)
    }

    /// Returns one number of a workspace.
    pub(crate) fn number(&mut self, at: CacheIndex, seq: usize) -> &mut u64 {
        &mut self.entries[at.0 as usize].numbers[seq]
    }

    /// Inserts the numbers of a workspace, and evicts others until the numbers fit.
    ///
    /// The inserted workspace stays at least until the next one is inserted, even if it is larger
    /// than the capacity.
    pub(crate) fn insert(
        &mut self,
        ws: WsId,
        kind: usize,
        numbers: WorkspaceNumbers,
    ) -> CacheIndex {
        if let Some(at) = self.at(ws) {
            self.remove(at);
        }
        while self.numbers + numbers.len() > self.capacity && self.numbers > 0 {
            self.evict();
        }
        self.numbers += numbers.len();
        // The cast loses nothing: `WsKind` has 16 bits, so there are at most 2^16 kinds.
        let entry = CacheEntry { ws, kind: kind as u16, is_used: false, numbers };
        let at = match self.vacant.pop() {
            Some(at) => {
                self.entries[at as usize] = entry;
                at
            }
            None => {
                // The default growth doubles the capacity. Unused room counts as memory too.
                if self.entries.len() == self.entries.capacity() {
                    self.entries.reserve_exact(self.entries.len() / 8 + 16);
                }
                self.entries.push(entry);
                (self.entries.len() - 1) as u32
            }
        };
        let (hasher, entries) = (&self.hasher, &self.entries);
        let hash = |at: &u32| hasher.hash_one(entries[*at as usize].ws);
        self.index.insert_unique(hash(&at), at, hash);
        CacheIndex(at)
    }

    pub(crate) fn clear(&mut self) {
        *self = NumberCache::new(self.capacity);
    }

    fn at(&self, ws: WsId) -> Option<CacheIndex> {
        let is_of_ws = |at: &u32| self.entries[*at as usize].ws == ws;
        self.index.find(self.hasher.hash_one(ws), is_of_ws).copied().map(CacheIndex)
    }

    fn remove(&mut self, CacheIndex(at): CacheIndex) {
        let entry = &mut self.entries[at as usize];
        self.numbers -= entry.numbers.len();
        entry.numbers = WorkspaceNumbers::new();
        let hash = self.hasher.hash_one(entry.ws);
        if let Ok(found) = self.index.find_entry(hash, |other| *other == at) {
            found.remove();
        }
        self.vacant.push(at);
    }

    /// Moves the hand to a workspace that was not used since the hand passed it last, and removes
    /// the workspace.
    fn evict(&mut self) {
        loop {
            let at = self.hand % self.entries.len();
            self.hand = at + 1;
            let entry = &mut self.entries[at];
            if entry.is_used {
                entry.is_used = false;
            } else if !entry.numbers.is_empty() {
                return self.remove(CacheIndex(at as u32));
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use smallvec::smallvec;

    use super::*;

    fn cached(cache: &mut NumberCache) -> Vec<u64> {
        (0..100).filter(|ws| cache.at(WsId(*ws)).is_some()).collect()
    }

    #[test]
    fn the_cache_holds_at_most_its_capacity() {
        let mut cache = NumberCache::new(10);
        for ws in 0..5 {
            cache.insert(WsId(ws), 0, smallvec![ws; 3]);
            assert!(cache.numbers <= 10);
        }
        assert_eq!(cached(&mut cache), [2, 3, 4]);
        cache.insert(WsId(5), 0, smallvec![0; 7]);
        assert_eq!(cached(&mut cache), [4, 5]);
    }

    #[test]
    fn a_workspace_larger_than_the_capacity_is_cached_alone() {
        let mut cache = NumberCache::new(2);
        cache.insert(WsId(1), 0, smallvec![1]);
        let at = cache.insert(WsId(2), 0, smallvec![1, 2, 3]);
        assert_eq!(cache.entries[at.0 as usize].numbers[..], [1, 2, 3]);
        assert_eq!(cached(&mut cache), [2]);
    }

    #[test]
    fn a_used_workspace_stays() {
        let mut cache = NumberCache::new(4);
        for ws in 0..4 {
            cache.insert(WsId(ws), 0, smallvec![ws]);
        }
        for ws in 4..50 {
            assert!(cache.find(WsId(1), 0).is_some(), "before {ws}");
            cache.insert(WsId(ws), 0, smallvec![ws]);
        }
        assert_eq!(cached(&mut cache).len(), 4);
    }

    #[test]
    fn a_workspace_of_another_kind_is_not_found() {
        let mut cache = NumberCache::new(10);
        cache.insert(WsId(1), 0, smallvec![1]);
        assert_eq!(cache.find(WsId(1), 1), None);
        let at = cache.insert(WsId(1), 1, smallvec![2, 3]);
        assert_eq!((cache.find(WsId(1), 1), cache.numbers), (Some(at), 2));
    }

    #[test]
    fn the_cache_returns_the_same_numbers_as_a_map() {
        let mut random = fastrand::Rng::with_seed(1);
        let mut cache = NumberCache::new(60);
        let mut last = std::collections::HashMap::new();
        for round in 0..20_000 {
            let ws = WsId(random.u64(0..40));
            match cache.find(ws, 0) {
                Some(at) => {
                    assert_eq!(Some(&*cache.number(at, 0)), last.get(&ws), "round {round}");
                    *cache.number(at, 0) = round;
                }
                None => {
                    cache.insert(ws, 0, smallvec![round; random.usize(1..4)]);
                }
            }
            last.insert(ws, round);
            let held: usize = cache.entries.iter().map(|entry| entry.numbers.len()).sum();
            assert_eq!(held, cache.numbers);
            assert_eq!(cache.index.len() + cache.vacant.len(), cache.entries.len());
            assert!(cache.entries.capacity() <= cache.entries.len() * 9 / 8 + 16, "unused room");
        }
    }
}
