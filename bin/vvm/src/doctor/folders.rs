//! The folders that a node writes to: rights, space, and the file system.

use std::{
    fs,
    os::unix::fs::MetadataExt,
    path::{Path, PathBuf},
};

use rustix::{
    fs::{StatVfs, statvfs},
    process::geteuid,
};

use super::finding::Finding;

/// With less space a node soon cannot write.
const LEAST_SPACE: u64 = 64 << 20;

/// With less space an operator should act.
const SMALL_SPACE: u64 = 1 << 30;

/// File systems that lose the data at a restart of the machine: tmpfs and ramfs.
#[cfg(target_os = "linux")]
const VOLATILE: [i64; 2] = [0x0102_1994, 0x8584_58f6];

/// File systems over the network: NFS, CIFS, SMB2.
#[cfg(target_os = "linux")]
const NETWORK: [i64; 3] = [0x6969, 0xff53_4d42, 0xfe53_4d42];

pub(super) fn check(folder: &Path) -> Vec<Finding> {
    let shown = folder.display();
    let Some(existing) = existing(folder) else {
        let what = format!("{shown}: no folder above it exists");
        return vec![Finding::fail("folder", what, "correct the path")];
    };
    if !existing.is_dir() {
        let what = format!("{shown}: {} is not a folder", existing.display());
        return vec![Finding::fail("folder", what, "move that file, or correct the path")];
    }
    let mut findings = vec![rights(folder, &existing)];
    // A file system of the kernel, such as /proc, has no size.
    if let Ok(space) = statvfs(&existing)
        && space.f_blocks > 0
    {
        findings.push(of_space(folder, &space));
    }
    #[cfg(target_os = "linux")]
    if let Ok(system) = rustix::fs::statfs(&existing) {
        findings.extend(of_file_system(folder, system.f_type));
    }
    findings
}

/// Returns the folder, or the nearest one above it that exists.
fn existing(folder: &Path) -> Option<PathBuf> {
    let whole = std::path::absolute(folder).ok()?;
    whole.ancestors().find(|path| path.exists()).map(Path::to_owned)
}

fn rights(folder: &Path, existing: &Path) -> Finding {
    let shown = folder.display();
    if let Err(error) = tempfile::NamedTempFile::new_in(existing) {
        // The error itself names a file that was only tried.
        let what = format!("{shown}: cannot write to {}: {}", existing.display(), error.kind());
        // A folder above, such as /etc, must not be given to the user of the node.
        let advice = match folder.exists() {
            true => format!("let the user of the node own it: chown vvm: {shown}"),
            false => format!("make it for the user of the node: install -d -o vvm -m 750 {shown}"),
        };
        return Finding::fail("folder", what, advice);
    }
    if !folder.exists() {
        return Finding::ok("folder", format!("{shown} does not exist, and can be made"));
    }
    let Ok(there) = fs::metadata(folder) else {
        return Finding::ok("folder", format!("{shown} can be written to"));
    };
    if there.mode() & 0o002 != 0 {
        let what = format!("{shown}: every user may write to it");
        return Finding::warn("folder", what, format!("take the right away: chmod o-w {shown}"));
    }
    if there.uid() != geteuid().as_raw() {
        let what = format!("{shown} belongs to the user {}, and not to this one", there.uid());
        return Finding::warn("folder", what, "run the check as the user of the node");
    }
    Finding::ok("folder", format!("{shown} can be written to"))
}

fn of_space(folder: &Path, space: &StatVfs) -> Finding {
    let free = space.f_bavail.saturating_mul(space.f_frsize);
    let size = space.f_blocks.saturating_mul(space.f_frsize);
    let what = format!("{}: {} MiB of {} MiB are free", folder.display(), free >> 20, size >> 20);
    let advice = "make room: a node whose disk is full does no commands";
    if space.f_files > 0 && space.f_favail == 0 {
        let what = format!("{}: no file can be made: no inode is free", folder.display());
        return Finding::fail("disk space", what, advice);
    }
    if free < LEAST_SPACE {
        return Finding::fail("disk space", what, advice);
    }
    if free < SMALL_SPACE {
        return Finding::warn("disk space", what, advice);
    }
    Finding::ok("disk space", what)
}

#[cfg(target_os = "linux")]
fn of_file_system(folder: &Path, kind: i64) -> Option<Finding> {
    let shown = folder.display();
    if VOLATILE.contains(&kind) {
        let what = format!("{shown} is in memory: its data are lost when the machine restarts");
        return Some(Finding::warn("file system", what, "choose a folder on a disk"));
    }
    if NETWORK.contains(&kind) {
        let what = format!("{shown} is on a network: its locks and syncs may not be what they say");
        return Some(Finding::warn("file system", what, "choose a folder on a local disk"));
    }
    None
}

#[cfg(test)]
mod tests {
    use super::{super::finding::Verdict, *};

    #[test]
    fn space_is_judged_by_what_is_free() {
        let there = statvfs("/").unwrap();
        let verdict = |free, files| {
            let space =
                StatVfs { f_bavail: free, f_frsize: 1, f_files: 9, f_favail: files, ..there };
            of_space(Path::new("data"), &space).verdict
        };
        assert_eq!(verdict(SMALL_SPACE, 1), Verdict::Ok);
        assert_eq!(verdict(SMALL_SPACE - 1, 1), Verdict::Warn);
        assert_eq!(verdict(LEAST_SPACE, 1), Verdict::Warn);
        assert_eq!(verdict(LEAST_SPACE - 1, 1), Verdict::Fail);
        assert_eq!(verdict(SMALL_SPACE, 0), Verdict::Fail, "no file can be made");
    }

    #[cfg(target_os = "linux")]
    #[test]
    fn file_systems_in_memory_and_on_a_network_are_found() {
        let found = |kind| of_file_system(Path::new("data"), kind);
        for (kinds, part) in [(&VOLATILE[..], "is in memory"), (&NETWORK, "is on a network")] {
            for kind in kinds {
                let found = found(*kind).unwrap();
                assert!(found.verdict == Verdict::Warn && found.what.contains(part), "{found}");
            }
        }
        const EXT4: i64 = 0xef53;
        assert!(found(EXT4).is_none());
    }
}
