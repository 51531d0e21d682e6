//! The table of a keyspace, and requests for its rows.

use std::{error::Error as StdError, sync::Arc, time::Duration};

use aws_sdk_dynamodb::{
    Client,
    error::{ProvideErrorMetadata, SdkError},
};
use clock::Instant;

use crate::{connection::Connection, errors::RequestFailure};

/// How long after one server shows a table as active every server shows it. The manual of DynamoDB
/// says "a few seconds".
pub(crate) const SHOWN_WITHIN: Duration = Duration::from_secs(10);

/// The table of a keyspace.
#[derive(Clone, Debug)]
pub(crate) struct KeyspaceTable {
    pub(crate) connection: Arc<Connection>,
    pub(crate) name: Arc<str>,
    /// From this time on, the answer "no such table" to a request for rows means that the table is
    /// lost.
    known_from: Instant,
}

impl KeyspaceTable {
    pub(crate) fn new(connection: Arc<Connection>, name: String) -> KeyspaceTable {
        let known_from = connection.clock().now();
        KeyspaceTable { connection, name: name.into(), known_from }
    }

    /// The table after one server of rows has answered. Another server may not know the table for
    /// [`SHOWN_WITHIN`]. Until then its answer "no such table" means only that the call did
    /// nothing.
    pub(crate) fn opened(self) -> KeyspaceTable {
        KeyspaceTable { known_from: self.connection.clock().now() + SHOWN_WITHIN, ..self }
    }

    /// The failure of a request for rows.
    pub(crate) fn failure_of<E>(&self, error: SdkError<E>) -> RequestFailure
    where
        E: StdError + ProvideErrorMetadata + Send + Sync + 'static,
    {
        let failure = RequestFailure::new(error);
        let is_known = self.connection.clock().now() >= self.known_from;
        if failure.is_no_table() && !is_known { failure.into_temporary() } else { failure }
    }

    /// Like [`Connection::ask`], for a request for rows.
    pub(crate) async fn ask<T, E, F>(
        &self,
        deadline: Instant,
        request: impl Fn(&Client) -> F,
    ) -> Result<T, RequestFailure>
    where
        F: Future<Output = Result<T, SdkError<E>>>,
        E: StdError + ProvideErrorMetadata + Send + Sync + 'static,
    {
        self.connection.ask_with(deadline, request, |error| self.failure_of(error)).await
    }
}
