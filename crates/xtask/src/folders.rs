//! The places of files: the checkout, and the cache outside of it; and the locks of folders.

use std::{
    env,
    fs::{File, TryLockError},
    path::{Path, PathBuf},
};

use crate::error::{Error, ErrorContext, Result, failed};

/// Returns the root of the checkout that `cargo xtask` was called in.
pub(crate) fn root() -> Result<PathBuf> {
    let manifest = env::var_os("CARGO_MANIFEST_DIR").ok_or_else(|| {
        Error::Failed("xtask must be run by cargo: call `cargo xtask`".to_owned())
    })?;
    let root = PathBuf::from(manifest).join("../..");
    root.canonicalize().map_err(|error| Error::Failed(format!("{}: {error}", root.display())))
}

/// Takes a lock until the file is dropped. The end of the process drops the file, too.
///
/// # Errors
/// `taken`, if another process has the lock.
pub(crate) fn lock(path: &Path, taken: &str) -> Result<File> {
    let file = File::create(path).context(path.display())?;
    match file.try_lock() {
        Ok(()) => Ok(file),
        Err(TryLockError::WouldBlock) => failed(taken),
        Err(TryLockError::Error(error)) => Err(error).context(path.display()),
    }
}

/// Returns the folder of files that are kept between runs and checkouts: the jars of the servers,
/// and the data of running servers.
pub(crate) fn cache() -> Result<PathBuf> {
    cache_in(|name| env::var_os(name).filter(|value| !value.is_empty()).map(PathBuf::from))
        .ok_or_else(|| {
            Error::Failed(
                "the folder for the cache is unknown: set VVM_CACHE_DIR to an absolute path, or set HOME"
                    .to_owned(),
            )
        })
}

fn cache_in(variable: impl Fn(&str) -> Option<PathBuf>) -> Option<PathBuf> {
    variable("VVM_CACHE_DIR")
        .or_else(|| Some(variable("XDG_CACHE_HOME")?.join("vvm")))
        .or_else(|| Some(variable("HOME")?.join(".cache/vvm")))
        .filter(|path| path.is_absolute())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_most_specific_variable_names_the_cache() {
        let set = |names: &'static [(&str, &str)]| {
            cache_in(|name| {
                names.iter().find(|(n, _)| *n == name).map(|(_, value)| PathBuf::from(value))
            })
        };
        assert_eq!(set(&[("HOME", "/h")]), Some(PathBuf::from("/h/.cache/vvm")));
        assert_eq!(set(&[("HOME", "/h"), ("XDG_CACHE_HOME", "/x")]), Some(PathBuf::from("/x/vvm")));
        assert_eq!(
            set(&[("XDG_CACHE_HOME", "/x"), ("VVM_CACHE_DIR", "/v")]),
            Some(PathBuf::from("/v"))
        );
        assert_eq!(set(&[("VVM_CACHE_DIR", "relative")]), None);
        assert_eq!(set(&[]), None);
    }
}
