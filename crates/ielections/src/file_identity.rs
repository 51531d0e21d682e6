//! The identity of a file: machine, boot, device and inode.
//!
//! No two files have the same identity, on any machine at any time.

use std::{fmt, fs::File, io};

/// The identity of a file on a disk of this machine since its last boot.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct FileIdentity {
    machine: String,
    boot: String,
    device: u64,
    inode: u64,
}

impl fmt::Display for FileIdentity {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let FileIdentity { machine, boot, device, inode } = self;
        write!(f, "machine {machine} boot {boot} device {device} inode {inode}")
    }
}

#[cfg(target_os = "linux")]
impl FileIdentity {
    /// Returns the identity of a file, or why the file proves nothing.
    pub(crate) fn of(file: &File) -> io::Result<Result<FileIdentity, &'static str>> {
        use std::os::unix::fs::MetadataExt;

        if !is_local(file)? {
            return Ok(Err("other machines may lock files of this file system too"));
        }
        let id = |path| std::fs::read_to_string(path).ok().map(|id| id.trim().to_owned());
        let machine = id("/etc/machine-id").filter(|id| !id.is_empty());
        let boot = id("/proc/sys/kernel/random/boot_id").filter(|id| !id.is_empty());
        let Some(machine) = machine else { return Ok(Err("/etc/machine-id cannot be read")) };
        let Some(boot) = boot else { return Ok(Err("the boot of this machine has no name")) };
        let metadata = file.metadata()?;
        Ok(Ok(FileIdentity { machine, boot, device: metadata.dev(), inode: metadata.ino() }))
    }
}

#[cfg(not(target_os = "linux"))]
impl FileIdentity {
    pub(crate) fn of(_: &File) -> io::Result<Result<FileIdentity, &'static str>> {
        Ok(Err("it is known of Linux only that a lock is held until its process has exited"))
    }
}

/// The file systems that belong to one machine, by the magic numbers of the kernel: ext2 to ext4,
/// XFS, Btrfs, F2FS, ZFS, the layers of a container, and memory. In any other file system a lock
/// may be shared with other machines, or may have no effect.
#[cfg(target_os = "linux")]
const LOCAL: [i128; 7] =
    [0xef53, 0x5846_5342, 0x9123_683e, 0xf2f5_2010, 0x2fc1_2fc1, 0x794c_7630, 0x0102_1994];

#[cfg(target_os = "linux")]
fn is_local(file: &File) -> io::Result<bool> {
    let magic = rustix::fs::fstatfs(file)?.f_type;
    Ok(LOCAL.contains(&i128::from(magic)))
}
