//! Tests of the data that the simulated disk keeps and loses.

use std::collections::BTreeSet;

use super::{file::SECTOR, *};

fn content(disk: &SimDisk, name: &str) -> Option<Vec<u8>> {
    let file = disk.file(Path::new(name), OpenMode::Existing).ok()?;
    let mut bytes = vec![0; file.len().unwrap() as usize];
    file.read(0, &mut bytes).unwrap();
    Some(bytes)
}

/// Everything that can be left if the power is lost now.
fn left<T: Ord>(disk: &SimDisk, look: impl Fn(&SimDisk) -> T) -> BTreeSet<T> {
    let mut rng = Rng(1);
    let now = [disk.moment()];
    (0..1_000).map(|_| look(&disk.power_lost_at(&now, &mut rng)[0])).collect()
}

fn make(disk: &SimDisk, name: &str, bytes: &[u8]) -> SimFile {
    let file = disk.file(Path::new(name), OpenMode::New).unwrap();
    file.write(0, bytes).unwrap();
    file.sync_data().unwrap();
    file
}

#[test]
fn synced_sectors_are_kept_and_each_other_sector_may_be_lost() {
    let disk = SimDisk::new(1);
    let file = make(&disk, "a", &[1; 3 * SECTOR]);
    disk.sync_folder(Path::new(".")).unwrap();
    file.write(SECTOR as u64 - 1, &[2; SECTOR + 1]).unwrap();
    let halves = left(&disk, |disk| {
        let bytes = content(disk, "a").unwrap();
        (bytes[SECTOR - 1], bytes[SECTOR])
    });
    assert_eq!(halves, [(1, 1), (1, 2), (2, 1), (2, 2)].into());
    file.sync_data().unwrap();
    assert_eq!(left(&disk, |disk| content(disk, "a").unwrap()[SECTOR]), [2].into());
}

#[test]
fn a_length_that_is_not_synced_may_be_lost() {
    let disk = SimDisk::new(1);
    let file = make(&disk, "a", &[1; 1_000]);
    disk.sync_folder(Path::new(".")).unwrap();
    file.set_len(2_000).unwrap();
    file.set_len(10).unwrap();
    let lengths = left(&disk, |disk| content(disk, "a").unwrap().len());
    assert_eq!(lengths, [10, 1_000, 2_000].into());
    file.set_len(1_000).unwrap();
    file.sync_data().unwrap();
    let ends = left(&disk, |disk| content(disk, "a").unwrap()[10..].to_vec());
    assert_eq!(ends, [vec![0; 990]].into());
}

#[test]
fn a_name_may_be_lost_until_the_folder_is_synced_and_a_rename_is_whole() {
    let disk = SimDisk::new(1);
    make(&disk, "old", b"old");
    disk.sync_folder(Path::new(".")).unwrap();
    make(&disk, "new", b"new");
    disk.rename(Path::new("new"), Path::new("old"));
    let names = |disk: &SimDisk| {
        let name = |name: &str| content(disk, name).map(|bytes| String::from_utf8(bytes).unwrap());
        (name("old").unwrap(), name("new").is_some())
    };
    let (old, new) = ("old".to_owned(), "new".to_owned());
    let all = [(old.clone(), false), (old, true), (new.clone(), false)];
    assert_eq!(left(&disk, names), all.into());
    disk.sync_folder(Path::new(".")).unwrap();
    assert_eq!(left(&disk, names), [(new, false)].into());
    disk.remove(Path::new("old")).unwrap();
    assert_eq!(left(&disk, |disk| content(disk, "old").is_some()), [false, true].into());
}

/// The simulated disk lost only the last changes of names, and never failed to sync a folder.
#[test]
fn each_name_may_be_lost_until_a_sync_of_the_folder_succeeds() {
    let disk = SimDisk::new(1);
    make(&disk, "a", b"");
    make(&disk, "b", b"");
    let names = |disk: &SimDisk| ["a", "b"].map(|name| content(disk, name).is_some());
    let any = BTreeSet::from([[false, false], [false, true], [true, false], [true, true]]);
    assert_eq!(left(&disk, names), any);
    disk.set_sync(Sync::FailsOneIn(1));
    assert!(disk.sync_folder(Path::new(".")).is_err());
    assert_eq!(left(&disk, names), any);
    assert_eq!(disk.failures(), 1);
    disk.set_sync(Sync::LiesAbout(Synced::Folder));
    disk.sync_folder(Path::new(".")).unwrap();
    assert_eq!(left(&disk, names), any);
    disk.set_sync(Sync::LiesAbout(Synced::Log));
    disk.sync_folder(Path::new(".")).unwrap();
    assert_eq!(left(&disk, names), [[true, true]].into());
}

/// Only writes failed on the full disk, so a storage file always grew.
#[test]
fn a_full_disk_makes_no_file_longer() {
    let disk = SimDisk::new(1);
    let file = make(&disk, "a", &[1; 1_000]);
    disk.fail_writes(Some(1));
    assert_eq!(file.set_len(2_000).unwrap_err().kind(), io::ErrorKind::StorageFull);
    assert_eq!((file.len().unwrap(), disk.failures()), (1_000, 1));
    file.set_len(500).unwrap();
    assert_eq!(file.len().unwrap(), 500);
}

/// The simulated disk kept the data that a failed sync had not written, and the next sync wrote it.
/// Linux never writes that data again, and shows it in reads. A driver that syncs once more and
/// believes the second sync loses data, and the suite did not see the loss.
///
/// Later the simulated disk showed only a part of the lost data in reads. So a driver was not
/// likely to take the lost data for written data.
#[test]
fn a_failed_sync_writes_a_part_and_reads_show_the_rest_until_the_cache_is_forgotten() {
    let disk = SimDisk::new(1);
    let file = make(&disk, "a", &[1; 20 * SECTOR]);
    disk.sync_folder(Path::new(".")).unwrap();
    file.write(0, &[2; 20 * SECTOR]).unwrap();
    disk.set_sync(Sync::FailsOneIn(1));
    assert!(file.sync_data().is_err());
    let written = |disk: &SimDisk| {
        let bytes = content(disk, "a").unwrap();
        bytes.iter().filter(|byte| **byte == 2).count() / SECTOR
    };
    disk.set_sync(Sync::Works);
    file.sync_data().unwrap();
    assert_eq!(written(&disk), 20, "all are seen");
    let kept = left(&disk, written);
    let [kept] = kept.into_iter().collect::<Vec<_>>()[..] else { panic!("not the same always") };
    assert!(0 < kept && kept < 20, "{kept} are on the disk");
    let cache = SimCache(disk.clone(), file.id);
    cache.forget(None).unwrap();
    assert_eq!(written(&disk), kept);
    // Data that is written once more is synced. Until then the data is not forgotten.
    file.write(0, &[2; 20 * SECTOR]).unwrap();
    cache.forget(None).unwrap();
    assert_eq!(written(&disk), 20);
    file.sync_data().unwrap();
    assert_eq!(left(&disk, written), [20].into());
}

/// Locks on the simulated disk always succeeded, so the suite could not see a file that is open
/// twice.
#[test]
fn a_lock_of_one_open_file_is_refused_to_another_until_the_first_is_closed() {
    let disk = SimDisk::new(1);
    let one = make(&disk, "a", b"");
    let other = disk.file(Path::new("a"), OpenMode::Existing).unwrap();
    let (all, tail) = (Bound::Unbounded, Bound::Included(10));
    assert!(one.try_lock_range(tail, all).unwrap());
    assert!(!other.try_lock_range(all, all).unwrap());
    assert!(!other.try_lock_shared_range(all, tail).unwrap());
    assert!(other.try_lock_range(all, Bound::Excluded(10)).unwrap(), "the bytes before it");
    one.unlock_range(tail, all).unwrap();
    assert!(one.try_lock_shared_range(tail, all).unwrap());
    assert!(other.try_lock_shared_range(tail, all).unwrap());
    assert!(make(&disk, "b", b"").try_lock_range(all, all).unwrap(), "another file");
    drop(other);
    assert!(one.try_lock_range(all, all).unwrap());
}
