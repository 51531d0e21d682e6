//! The errors of the system keyspace, sorted by the action that the caller must take.

use std::net::SocketAddr;

use crate::AppName;

/// The result of a call of this crate.
pub type Result<T> = std::result::Result<T, Error>;

/// Names the applications that exist.
fn and_known(known: &[AppName]) -> String {
    let names: Vec<_> = known.iter().map(AppName::to_string).collect();
    if names.is_empty() { String::new() } else { format!("; it has {}", names.join(", ")) }
}

/// An error of the system keyspace.
#[derive(Debug, thiserror::Error)]
pub enum Error {
    /// The application exists already: open it instead.
    #[error("the application `{app}` exists already")]
    AlreadyExists {
        /// The application.
        app: AppName,
    },
    /// The application does not exist: initialize it first.
    #[error("the application `{app}` does not exist in this storage{}", and_known(.known))]
    DoesNotExist {
        /// The application.
        app: AppName,
        /// The applications that exist, as far as they could be read.
        known: Vec<AppName>,
    },
    /// The initialization began with another number of partitions, and did not finish. Repeat it
    /// with that number.
    #[error(
        "the initialization of the application `{app}` was begun with {registered} partitions, and cannot be finished with {wanted}"
    )]
    OtherPartitions {
        /// The application.
        app: AppName,
        /// The number of partitions that is registered.
        registered: u16,
        /// The number of partitions that the caller asked for.
        wanted: u16,
    },
    /// An import writes the application, or ended before it was finished. Wait for it, or discard
    /// it with [`System::discard_import`](crate::System::discard_import).
    #[error("an import of the application `{app}` is under way, or has not finished")]
    Importing {
        /// The application.
        app: AppName,
    },
    /// The import was discarded while it was under way. No node will see it.
    #[error("another command has discarded this import of the application `{app}`")]
    ImportDiscarded {
        /// The application.
        app: AppName,
    },
    /// The storage was deployed with another number of seats: configure that number.
    #[error(
        "the storage was deployed with {stored} seats, and cannot be used with {wanted}: the number is fixed"
    )]
    OtherSeats {
        /// The number of seats that is stored.
        stored: u32,
        /// The number of seats that the caller asked for.
        wanted: u32,
    },
    /// A node owns a partition, and its lease has not expired: stop the node.
    #[error("the node at {owner} owns partition {partition} of the application: stop all nodes")]
    Owned {
        /// The partition.
        partition: u16,
        /// The address of the node.
        owner: SocketAddr,
    },
    /// A partition has the highest epoch, so its owner can no longer change.
    #[error(
        "partition {partition} of the application has no epoch left, so its owner cannot change"
    )]
    NoEpochLeft {
        /// The partition.
        partition: u16,
    },
    /// The storage was written in a format that this program does not know: use a newer program.
    #[error(
        "the storage has format {found}, and this program knows formats up to {known}: use a newer program"
    )]
    NewerFormat {
        /// The format of the storage.
        found: u32,
        /// The newest format that this program knows.
        known: u32,
    },
    /// The storage was written in a format that this program no longer reads: use the older
    /// program, or begin with an empty storage.
    #[error(
        "the storage has format {found}, and this program needs format {needed}: use the program that wrote the storage, or an empty storage"
    )]
    OlderFormat {
        /// The format of the storage.
        found: u32,
        /// The format that this program writes and reads.
        needed: u32,
    },
    /// The keyspace belongs to another program, or is damaged: use another keyspace.
    #[error("the system keyspace was not written by this program, or is damaged: {what}")]
    Foreign {
        /// A description of the row that was found.
        what: String,
    },
    /// The storage failed. The kind of the error tells the action.
    #[error(transparent)]
    Storage(#[from] istorage::Error),
}
