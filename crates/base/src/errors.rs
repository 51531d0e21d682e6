//! The text of an error with all its causes, and of several errors together.
//!
//! The `Display` of an error shows only the error itself, and a log in JSON shows nothing more. So
//! log lines, statuses and messages to operators use [`with_causes`] or
//! [`with_causes_separated_by`].

use std::{
    error::Error,
    fmt::{Display, Write as _},
};

/// Returns the text of an error and of its causes, with `: ` between them.
///
/// A cause that the text before already contains is left out: some errors show their causes
/// themselves.
///
/// ```
/// let disk = std::io::Error::other("the disk is full");
/// let error = std::io::Error::other(disk);
/// assert_eq!(base::with_causes(&error), "the disk is full");
/// ```
#[must_use]
pub fn with_causes(error: &dyn Error) -> String {
    with_causes_separated_by(error, ": ")
}

/// Returns the same text as [`with_causes`], with another separator.
#[must_use]
pub fn with_causes_separated_by(error: &dyn Error, separator: &str) -> String {
    let mut text = error.to_string();
    let mut cause = error.source();
    while let Some(error) = cause {
        let more = error.to_string();
        if !text.contains(&more) {
            text.push_str(separator);
            text.push_str(&more);
        }
        cause = error.source();
    }
    text
}

/// Returns the text of several mistakes: how many there are, then one in each line.
///
/// ```
/// assert_eq!(base::listed(&["no kind", "no id"]), "2 mistakes:\n- no kind\n- no id");
/// ```
#[must_use]
pub fn listed(mistakes: &[impl Display]) -> String {
    mistakes.iter().fold(format!("{} mistakes:", mistakes.len()), |mut text, mistake| {
        // Writing to a text does not fail.
        let _ = write!(text, "\n- {mistake}");
        text
    })
}

/// Returns `Ok` if there are no mistakes. A single mistake is the error itself, and `several` makes
/// the error of more mistakes.
///
/// # Errors
/// If there are mistakes.
pub fn none_of<E>(mut mistakes: Vec<E>, several: fn(Vec<E>) -> E) -> Result<(), E> {
    if mistakes.len() > 1 {
        return Err(several(mistakes));
    }
    mistakes.pop().map_or(Ok(()), Err)
}

#[cfg(test)]
mod tests {
    use std::fmt;

    use super::*;

    #[derive(Debug)]
    struct Link(&'static str, Option<Box<Link>>);

    impl Display for Link {
        fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
            f.write_str(self.0)
        }
    }

    impl Error for Link {
        fn source(&self) -> Option<&(dyn Error + 'static)> {
            self.1.as_deref().map(|cause| cause as _)
        }
    }

    fn chain(texts: &[&'static str]) -> Link {
        let (first, rest) = texts.split_first().expect("an error has a text");
        Link(first, (!rest.is_empty()).then(|| Box::new(chain(rest))))
    }

    #[test]
    fn the_text_has_every_cause_in_order() {
        let error = chain(&["cannot write", "no answer", "connection reset"]);
        assert_eq!(with_causes(&error), "cannot write: no answer: connection reset");
        let lines = with_causes_separated_by(&error, "\n  because: ");
        assert_eq!(lines, "cannot write\n  because: no answer\n  because: connection reset");
    }

    #[test]
    fn a_cause_that_is_already_in_the_text_is_left_out() {
        let error = chain(&["no answer: reset (sent twice)", "reset", "no route"]);
        assert_eq!(with_causes(&error), "no answer: reset (sent twice): no route");
    }
}
