//! A cache of recently used entries in bounded memory.

use std::{hash::Hash, mem};

use hashbrown::HashMap;

/// Keeps at least the `capacity` entries that were used last, and at most twice as many.
#[derive(Debug)]
pub(crate) struct Recent<K, V> {
    capacity: usize,
    young: HashMap<K, V>,
    old: HashMap<K, V>,
}

impl<K: Eq + Hash + Copy, V> Recent<K, V> {
    pub(crate) fn new(capacity: usize) -> Recent<K, V> {
        Recent { capacity, young: HashMap::new(), old: HashMap::new() }
    }

    pub(crate) fn get(&mut self, key: &K) -> Option<&V> {
        if !self.young.contains_key(key) {
            let value = self.old.remove(key)?;
            self.insert(*key, value);
        }
        self.young.get(key)
    }

    pub(crate) fn insert(&mut self, key: K, value: V) {
        if self.young.len() >= self.capacity && !self.young.contains_key(&key) {
            self.old = mem::take(&mut self.young);
        }
        self.young.insert(key, value);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn entries_in_use_stay_and_others_are_dropped() {
        let mut recent = Recent::new(10);
        for key in 0..1_000 {
            recent.insert(key, key);
            assert_eq!(recent.get(&0), Some(&0), "it is always used");
            assert!(recent.young.len() + recent.old.len() <= 20);
        }
        assert_eq!(recent.get(&999), Some(&999));
        assert_eq!(recent.get(&500), None);
    }
}
