//! The time that the disk needs to make a write durable.

use std::{
    io::{self, Write},
    path::Path,
    time::Duration,
};

use clock::Clock;

use super::finding::Finding;

/// The number of writes.
const WRITES: usize = 32;

/// The size of a write: a page of redb.
const BYTES: usize = 4096;

/// If a sync takes this long or longer, commands are slow.
const SLOW: Duration = Duration::from_millis(50);

/// Measures syncs of a file in a folder. `limit` is the time of a try to renew the lease.
pub(super) fn sync(clock: &Clock, folder: Option<&Path>, limit: Duration) -> Finding {
    let folder = folder.filter(|folder| folder.is_dir()).unwrap_or(Path::new("."));
    match measured(clock, folder) {
        Ok(mut times) => {
            times.sort_unstable();
            judge(times[times.len() / 2], times[times.len() - 1], limit)
        }
        Err(error) => {
            let what = format!("{}: a file cannot be synced: {error}", folder.display());
            Finding::fail("sync", what, "check the disk and the rights of the folder")
        }
    }
}

fn measured(clock: &Clock, folder: &Path) -> io::Result<Vec<Duration>> {
    let mut file = tempfile::tempfile_in(folder)?;
    let mut times = Vec::with_capacity(WRITES);
    for _ in 0..WRITES {
        let start = clock.now();
        file.write_all(&[0x5a; BYTES])?;
        file.sync_data()?;
        times.push(clock.now().saturating_since(start));
    }
    Ok(times)
}

fn judge(median: Duration, longest: Duration, limit: Duration) -> Finding {
    let what = format!("a write is durable after {median:.1?} (median), at most {longest:.1?}");
    if longest >= limit {
        let advice =
            format!("the lease needs less than {limit:?}: take a faster disk, or a longer lease");
        return Finding::fail("sync", what, advice);
    }
    if median >= SLOW {
        return Finding::warn("sync", what, "each command waits for a sync: take a faster disk");
    }
    Finding::ok("sync", what)
}

#[cfg(test)]
mod tests {
    use super::{super::finding::Verdict, *};

    #[test]
    fn syncs_are_judged_by_the_lease() {
        let millis = Duration::from_millis;
        let verdict =
            |median, longest| judge(millis(median), millis(longest), millis(1_000)).verdict;
        assert_eq!(verdict(1, 900), Verdict::Ok);
        assert_eq!(verdict(60, 90), Verdict::Warn);
        assert_eq!(verdict(1, 1_000), Verdict::Fail);
        let times = measured(&Clock::system(), &std::env::temp_dir()).unwrap();
        assert_eq!(times.len(), WRITES);
        assert!(times.iter().all(|time| !time.is_zero()), "{times:?}");
    }
}
