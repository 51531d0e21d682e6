//! What commands and the program say at the terminal, and the signals that they get from there.

mod progress;
mod signals;
mod stderr;
mod stdout;

pub(crate) use self::{
    progress::{byte_bar, progress_bar, step},
    stdout::{StdoutPrinter, print_piece},
};
pub use self::{
    signals::Signals,
    stderr::{finish, say, send},
    stdout::print,
};
