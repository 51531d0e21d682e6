//! What can go wrong with the system keyspace, by what the caller must do.

use crate::AppName;

/// The result of a call of this crate.
pub type Result<T> = std::result::Result<T, Error>;

/// What went wrong with the system keyspace.
#[derive(Debug, thiserror::Error)]
pub enum Error {
    /// Open the application instead.
    #[error("the application `{app}` exists already")]
    AlreadyExists {
        /// Which.
        app: AppName,
    },
    /// Initialize the application first.
    #[error("the application `{app}` does not exist in this storage")]
    DoesNotExist {
        /// Which.
        app: AppName,
    },
    /// The initialization was begun with another number of partitions and did not finish: repeat it with that number.
    #[error("the application `{app}` is half initialized with {there} partitions, not {wanted}")]
    OtherPartitions {
        /// Which.
        app: AppName,
        /// The number that is registered.
        there: u16,
        /// The number that was asked for.
        wanted: u16,
    },
    /// Configure the number of slots that the storage was deployed with.
    #[error(
        "the storage was deployed with {there} slots, and cannot be used with {wanted}: the number is fixed"
    )]
    OtherSlots {
        /// The number that is stored.
        there: u32,
        /// The number that was asked for.
        wanted: u32,
    },
    /// Use a newer program: the storage was written in a format that this one does not know.
    #[error(
        "the storage has format {found}, and this program knows formats up to {known}: use a newer program"
    )]
    NewerFormat {
        /// The storage's format.
        found: u32,
        /// The newest format that this program knows.
        known: u32,
    },
    /// Use another keyspace: this one belongs to another program, or is damaged.
    #[error("the system keyspace was not written by this program, or is damaged: {what}")]
    Foreign {
        /// What was found.
        what: String,
    },
    /// The storage failed; see its kind.
    #[error(transparent)]
    Storage(#[from] istorage::Error),
}
