//! The output of a command on stdout.
//!
//! Invariant: a reader of stdout that is gone (`| head`) is not an error. The exit code is that of
//! the work.

use std::{
    io::{self, Write},
    ops::ControlFlow,
};

use tokio::io::{AsyncWriteExt, Stdout, stdout};

use crate::CommandError;

/// Prints the result of a command.
///
/// # Errors
/// The text cannot be written.
pub fn print(text: &str) -> Result<(), CommandError> {
    print_piece(text).map(|_| ())
}

/// Prints a piece of a long result. `Break` means that nobody reads the pieces that follow.
pub(crate) fn print_piece(text: &str) -> Result<ControlFlow<()>, CommandError> {
    write_piece(&mut io::stdout().lock(), text).map_err(not_printed)
}

/// Prints pieces while other work of the same task goes on.
pub(crate) struct StdoutPrinter(Stdout);

impl Default for StdoutPrinter {
    fn default() -> StdoutPrinter {
        StdoutPrinter(stdout())
    }
}

impl StdoutPrinter {
    /// Prints a piece, like [`print_piece`].
    pub(crate) async fn print(&mut self, text: &str) -> Result<ControlFlow<()>, CommandError> {
        let written = async {
            self.0.write_all(text.as_bytes()).await?;
            self.0.flush().await
        };
        outcome(written.await).map_err(not_printed)
    }
}

fn not_printed(error: io::Error) -> CommandError {
    CommandError::unfinished(format!("cannot print the result: {error}"))
}

fn write_piece(out: &mut impl Write, text: &str) -> io::Result<ControlFlow<()>> {
    outcome(out.write_all(text.as_bytes()).and_then(|()| out.flush()))
}

fn outcome(written: io::Result<()>) -> io::Result<ControlFlow<()>> {
    match written {
        Err(error) if error.kind() == io::ErrorKind::BrokenPipe => Ok(ControlFlow::Break(())),
        written => written.map(ControlFlow::Continue),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Fails each write with an error.
    struct Failing(io::ErrorKind);

    impl Write for Failing {
        fn write(&mut self, _: &[u8]) -> io::Result<usize> {
            Err(self.0.into())
        }

        fn flush(&mut self) -> io::Result<()> {
            Ok(())
        }
    }

    #[test]
    fn only_a_reader_that_is_gone_is_no_error() {
        let gone = write_piece(&mut Failing(io::ErrorKind::BrokenPipe), "text");
        assert!(gone.unwrap().is_break());
        assert!(write_piece(&mut Failing(io::ErrorKind::StorageFull), "text").is_err());
        let mut written = Vec::new();
        assert!(write_piece(&mut written, "text").unwrap().is_continue());
        assert_eq!(written, b"text");
    }
}
