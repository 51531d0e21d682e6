//! Caches of the entries that were used last.

use std::{hash::Hash, num::NonZeroUsize};

use lru::LruCache;

/// A cache of at most `entries` entries. It uses memory only for the entries it has. A cache with a
/// capacity would allocate all its entries at once.
pub(crate) fn at_most<K: Hash + Eq, V>(entries: NonZeroUsize) -> LruCache<K, V> {
    let mut cache = LruCache::unbounded();
    cache.resize(entries);
    cache
}
