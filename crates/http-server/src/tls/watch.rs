//! The decision when changed files are used.

use super::files::FilesDigest;

/// Decides when changed files are used.
///
/// A certificate and its key are two files, and a look may come while somebody writes them. A
/// half-written chain of certificates may look whole. So files count only when two looks in a row
/// find the same. Files that were judged are not judged again, so that a problem is reported once.
#[derive(Debug)]
pub(super) struct FileWatch {
    judged: FilesDigest,
    seen: FilesDigest,
}

impl FileWatch {
    /// `judged` are the files in use.
    pub(super) fn new(judged: FilesDigest) -> FileWatch {
        FileWatch { judged, seen: judged }
    }

    /// Notes a look at the files. Returns whether the files are to be judged now.
    pub(super) fn observe(&mut self, now: FilesDigest) -> bool {
        let is_settled = self.seen == now;
        self.seen = now;
        let is_due = is_settled && self.judged != now;
        if is_due {
            self.judged = now;
        }
        is_due
    }

    /// Whether the files were judged last. They were refused then, unless they are in use.
    pub(super) fn is_judged(&self, now: FilesDigest) -> bool {
        self.judged == now
    }

    /// Notes that the files are judged at once, because an operator says that they are whole.
    pub(super) fn note_judged(&mut self, now: FilesDigest) {
        *self = FileWatch::new(now);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn files_are_judged_once_and_when_nobody_writes_them() {
        let mut watch = FileWatch::new(FilesDigest::of_text("a"));
        for (look, (files, is_due)) in [
            ("a", false),
            ("a", false),
            // A writer replaces the files one after the other.
            ("ab", false),
            ("abc", false),
            ("abc", true),
            ("abc", false),
            // The files are gone for a moment.
            ("", false),
            ("abc", false),
            ("abc", false),
            // The former files come back.
            ("a", false),
            ("a", true),
            ("a", false),
        ]
        .into_iter()
        .enumerate()
        {
            assert_eq!(watch.observe(FilesDigest::of_text(files)), is_due, "look {look}: {files}");
        }
    }

    #[test]
    fn files_that_a_reload_judged_are_not_judged_again() {
        let mut watch = FileWatch::new(FilesDigest::of_text("a"));
        assert!(!watch.observe(FilesDigest::of_text("b")));
        watch.note_judged(FilesDigest::of_text("c"));
        for (files, is_due) in [("c", false), ("c", false), ("b", false), ("b", true)] {
            assert_eq!(watch.observe(FilesDigest::of_text(files)), is_due, "{files}");
        }
    }
}
