//! Caches of the entries that were used last.

use std::{hash::Hash, num::NonZeroUsize};

use lru::LruCache;

/// A cache of at most so many entries. A cache that is made with a size takes the memory of all its
/// entries at once, and this one only of those that it has.
pub(crate) fn at_most<K: Hash + Eq, V>(entries: NonZeroUsize) -> LruCache<K, V> {
    let mut cache = LruCache::unbounded();
    cache.resize(entries);
    cache
}
