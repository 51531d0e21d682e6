//! Pages that redb cannot read or understand: such a page ends the call of redb by unwinding.

use std::{
    fmt, io,
    panic::{self, AssertUnwindSafe},
};

/// The reason why a call of redb unwound.
#[derive(Debug)]
pub(crate) enum PageError {
    /// The disk could not read a page.
    Unreadable(String),
    /// A page does not hold the bytes that were written.
    Damaged(String),
}

impl fmt::Display for PageError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let (PageError::Unreadable(why) | PageError::Damaged(why)) = self;
        f.write_str(why)
    }
}

impl PageError {
    /// The error for a page that cannot be read. If the page would be beyond the end of the file,
    /// some other page must be damaged, because it points there.
    pub(crate) fn unreadable(offset: u64, len: usize, error: &io::Error) -> PageError {
        let why = format!("{len} bytes at {offset} of the storage file cannot be read: {error}");
        match error.kind() {
            io::ErrorKind::UnexpectedEof => PageError::Damaged(why),
            _ => PageError::Unreadable(why),
        }
    }

    /// Ends the call of redb, up to [`catch_page_error`]. The panic hook is not called, because the
    /// caller gets the error.
    pub(crate) fn unwind(self) -> ! {
        panic::resume_unwind(Box::new(self))
    }
}

/// Runs a closure that calls redb. redb panics when it meets a page that it cannot understand.
///
/// A panic gives up the closure's work: a read changes nothing, and after a write the file is
/// opened again.
pub(crate) fn catch_page_error<T>(run: impl FnOnce() -> T) -> Result<T, PageError> {
    panic::catch_unwind(AssertUnwindSafe(run)).map_err(|payload| {
        let text = match payload.downcast::<PageError>() {
            Ok(page_error) => return *page_error,
            Err(payload) => payload.downcast::<String>().map(|text| *text),
        };
        let text =
            text.or_else(|payload| payload.downcast::<&str>().map(|text| (*text).to_owned()));
        let text = text.unwrap_or_else(|_| "without a message".to_owned());
        PageError::Damaged(format!("redb panicked: {text}"))
    })
}
