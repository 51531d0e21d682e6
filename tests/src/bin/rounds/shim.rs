//! The library that is preloaded into nodes, and the file that tells it what is wrong.

use std::{
    fs::File,
    io,
    os::unix::fs::FileExt,
    path::{Path, PathBuf},
    process::Command,
    time::Duration,
};

/// Compiles the library. `None` if this machine has no C compiler.
pub(crate) fn compile(folder: &Path) -> io::Result<Option<PathBuf>> {
    let (source, library) = (folder.join("shim.c"), folder.join("shim.so"));
    std::fs::write(&source, include_str!("shim.c"))?;
    let mut compiler = Command::new("cc");
    compiler.args(["-shared", "-fPIC", "-O2", "-o"]).arg(&library).arg(&source);
    match compiler.status() {
        Ok(status) if status.success() => Ok(Some(library)),
        Ok(status) => Err(io::Error::other(format!("cc: {status}"))),
        Err(error) if error.kind() == io::ErrorKind::NotFound => Ok(None),
        Err(error) => Err(error),
    }
}

/// The file that a node maps.
pub(crate) struct ShimFile {
    path: PathBuf,
    file: File,
}

impl ShimFile {
    pub(crate) fn create(path: &Path) -> io::Result<ShimFile> {
        let file = File::create(path)?;
        file.set_len(16)?;
        Ok(ShimFile { path: path.to_owned(), file })
    }

    pub(crate) fn path(&self) -> &Path {
        &self.path
    }

    /// Sets how far the wall clock is ahead, or behind.
    pub(crate) fn set_clock(&self, off: Duration, is_ahead: bool) -> io::Result<()> {
        let nanos = i64::try_from(off.as_nanos()).map_err(io::Error::other)?;
        self.file.write_all_at(&(if is_ahead { nanos } else { -nanos }).to_ne_bytes(), 0)
    }

    pub(crate) fn set_full(&self, is_full: bool) -> io::Result<()> {
        self.file.write_all_at(&i64::from(is_full).to_ne_bytes(), 8)
    }
}
