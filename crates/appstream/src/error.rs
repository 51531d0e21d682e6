//! The errors of exports and imports.

use std::io;

use eventlog::DeploymentError;
use sysvvm::AppName;

/// The reason why an export fails. The storage is unchanged.
#[derive(Debug, thiserror::Error)]
pub enum ExportError {
    /// The system keyspace or the application cannot be opened.
    #[error(transparent)]
    System(#[from] sysvvm::Error),
    /// No node has ever deployed the application, so it has no events.
    #[error("the application `{0}` was never deployed: start a node with it first")]
    NotDeployed(AppName),
    /// The deployment cannot be read.
    #[error(transparent)]
    Deployment(#[from] DeploymentError),
    /// A log cannot be read.
    #[error(transparent)]
    Log(#[from] eventlog::Error),
    /// The storage failed, or a row is damaged.
    #[error(transparent)]
    Storage(#[from] istorage::Error),
    /// The stream cannot be written.
    #[error("cannot write the export: {0}")]
    Write(#[from] io::Error),
}

/// The reason why a stream cannot be read.
#[derive(Debug, thiserror::Error)]
pub enum StreamError {
    /// The source failed.
    #[error("the export cannot be read: {0}")]
    Read(#[from] io::Error),
    /// The first line is not that of an export.
    #[error("this is not an export of an application")]
    Foreign,
    /// Another version of the program wrote the stream.
    #[error("the export has format {found}, and this program reads format {known}")]
    OtherFormat {
        /// The format of the stream.
        found: u64,
        /// The format that this program reads.
        known: u64,
    },
    /// Another version of the program wrote the rows.
    #[error(
        "the export has rows of other formats than this program reads: import it with the version that wrote it"
    )]
    OtherRows,
    /// The stream ends before its last line.
    #[error("the export is cut: it ends after line {0}, without the line of its end")]
    Cut(u64),
    /// A line is damaged, or is not where it must be.
    #[error("line {line} of the export is damaged: {why}")]
    Damaged {
        /// The number of the line, from 1.
        line: u64,
        /// The reason.
        why: String,
    },
}

/// The reason why an import fails.
#[derive(Debug, thiserror::Error)]
pub enum ImportError {
    /// The stream cannot be read, or is damaged. Nothing was written.
    #[error(transparent)]
    Stream(#[from] StreamError),
    /// A row of the application is larger than the storage can store. Nothing was written.
    #[error("a row of the export has {row} bytes, and this storage takes at most {limit}")]
    RowTooLarge {
        /// The size of the largest row.
        row: usize,
        /// The limit of the storage.
        limit: usize,
    },
    /// The system keyspace cannot be opened, the application exists, or another command has
    /// discarded the import.
    #[error(transparent)]
    System(#[from] sysvvm::Error),
    /// The import began and failed. The application stays in the registry, and no node opens it.
    #[error(transparent)]
    Unfinished(UnfinishedImport),
}

/// The reason why an import that has begun fails.
#[derive(Debug, thiserror::Error)]
pub enum UnfinishedImport {
    /// The stream cannot be read, or is damaged.
    #[error(transparent)]
    Stream(#[from] StreamError),
    /// The stream is not the one that was checked.
    #[error("the export was changed while it was imported")]
    Changed,
    /// The system keyspace cannot be written.
    #[error(transparent)]
    System(#[from] sysvvm::Error),
    /// The deployment cannot be stored.
    #[error(transparent)]
    Deployment(#[from] DeploymentError),
    /// A log cannot be written.
    #[error(transparent)]
    Log(#[from] eventlog::Error),
    /// The storage failed.
    #[error(transparent)]
    Storage(#[from] istorage::Error),
}

impl ExportError {
    /// Returns the error of the storage, if the storage failed.
    pub fn storage(&self) -> Option<&istorage::Error> {
        match self {
            ExportError::Storage(error)
            | ExportError::System(sysvvm::Error::Storage(error))
            | ExportError::Deployment(DeploymentError::Storage(error))
            | ExportError::Log(eventlog::Error::Storage(error)) => Some(error),
            _ => None,
        }
    }
}

impl ImportError {
    /// Returns the error of the storage, if the storage failed.
    pub fn storage(&self) -> Option<&istorage::Error> {
        match self {
            ImportError::System(sysvvm::Error::Storage(error)) => Some(error),
            ImportError::Unfinished(error) => error.storage(),
            _ => None,
        }
    }
}

impl UnfinishedImport {
    /// Returns the error of the storage, if the storage failed.
    pub fn storage(&self) -> Option<&istorage::Error> {
        match self {
            UnfinishedImport::Storage(error)
            | UnfinishedImport::System(sysvvm::Error::Storage(error))
            | UnfinishedImport::Deployment(DeploymentError::Storage(error))
            | UnfinishedImport::Log(eventlog::Error::Storage(error)) => Some(error),
            _ => None,
        }
    }
}
