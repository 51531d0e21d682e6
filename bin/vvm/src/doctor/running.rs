//! The processes of the machine, as `/proc` shows them.

use std::{
    fs,
    os::unix::fs::MetadataExt,
    path::{Path, PathBuf},
};

/// A process.
pub(super) struct RunningProcess {
    pub(super) id: u32,
    pub(super) name: String,
    folder: PathBuf,
}

/// Returns the processes that this one may see.
pub(super) fn processes() -> impl Iterator<Item = RunningProcess> {
    let folders = fs::read_dir("/proc").into_iter().flatten().flatten();
    folders.filter_map(|folder| {
        let id = folder.file_name().to_str()?.parse().ok()?;
        let name = fs::read_to_string(folder.path().join("comm")).ok()?.trim_end().to_owned();
        Some(RunningProcess { id, name, folder: folder.path() })
    })
}

impl RunningProcess {
    /// Whether the process has a socket open. Without the right to look, the answer is `false`.
    fn has_socket(&self, inode: &str) -> bool {
        let socket = PathBuf::from(format!("socket:[{inode}]"));
        self.files().any(|file| fs::read_link(file).is_ok_and(|to| to == socket))
    }

    /// The links to the files that the process has open.
    fn files(&self) -> impl Iterator<Item = PathBuf> {
        let files = fs::read_dir(self.folder.join("fd")).into_iter().flatten().flatten();
        files.map(|file| file.path())
    }
}

/// Returns the process that has a file open, and does not open the file. Also `None` if this
/// process has no right to look.
pub(super) fn user_of(file: &Path) -> Option<RunningProcess> {
    let identity = |file: &Path| fs::metadata(file).map(|found| (found.dev(), found.ino())).ok();
    let wanted = identity(file)?;
    // A look at a file on a network may hang, so only files of this name are looked at.
    let is_named =
        |open: &PathBuf| fs::read_link(open).is_ok_and(|to| to.file_name() == file.file_name());
    processes().find(|process| {
        process.files().filter(is_named).any(|open| identity(&open) == Some(wanted))
    })
}

/// Returns the process that listens on a TCP port.
pub(super) fn listener(port: u16) -> Option<RunningProcess> {
    let tables = ["/proc/net/tcp", "/proc/net/tcp6"];
    let tables = tables.iter().filter_map(|table| fs::read_to_string(table).ok());
    let inodes: Vec<String> = tables.flat_map(|table| listening(&table, port)).collect();
    processes().find(|process| inodes.iter().any(|inode| process.has_socket(inode)))
}

/// Returns the sockets in a table of the kernel that listen on a port.
fn listening(table: &str, port: u16) -> Vec<String> {
    const LISTENS: &str = "0A";
    let port = format!(":{port:04X}");
    let inode = |line: &str| {
        let cells: Vec<&str> = line.split_whitespace().collect();
        let listens = cells.get(1)?.ends_with(&port) && *cells.get(3)? == LISTENS;
        listens.then(|| cells.get(9).map(|inode| (*inode).to_owned())).flatten()
    };
    table.lines().skip(1).filter_map(inode).collect()
}

#[cfg(test)]
mod tests {
    use std::net::TcpListener;

    use super::*;

    #[test]
    fn the_process_that_listens_on_a_port_is_found() {
        let socket = TcpListener::bind("127.0.0.1:0").unwrap();
        let port = socket.local_addr().unwrap().port();
        let found = listener(port).unwrap();
        assert_eq!(found.id, std::process::id());
        assert!(processes().any(|process| process.id == found.id && process.name == found.name));
        drop(socket);
        assert!(listener(port).is_none());
    }

    #[test]
    fn the_process_that_has_a_file_open_is_found() {
        let file = tempfile::NamedTempFile::new().unwrap();
        assert_eq!(user_of(file.path()).unwrap().id, std::process::id());
        let path = file.into_temp_path();
        assert!(user_of(&path).is_none());
        assert!(user_of(Path::new("/none")).is_none());
    }
}
