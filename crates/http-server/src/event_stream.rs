//! Answers that arrive while events are read: their form, their ends, and their signs of life.

mod cut;
mod ends;
mod format;

pub use self::{
    cut::{cut_at, cut_at_stop},
    ends::{FollowEnds, Waited},
    format::{COPIED_BYTES, EventFormat, EventPiece},
};
