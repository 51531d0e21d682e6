//! The reason why a request has no answer.

use std::fmt::Display;

/// The reason why a request has no answer.
#[derive(Debug, thiserror::Error)]
pub(crate) enum NoAnswer {
    /// The node got no part of the request.
    #[error("{0}")]
    NotSent(String),
    /// The node may have done the request.
    #[error("{0}")]
    Broken(String),
}

impl NoAnswer {
    pub(super) fn not_sent(why: impl Display) -> NoAnswer {
        NoAnswer::NotSent(why.to_string())
    }
}
