//! The body of the answer of a peer. It owns the connection, and gives the connection back at its
//! end.

use std::{future::poll_fn, io, sync::Arc, time::Duration};

use base::with_causes;
use bytes::Bytes;
use futures::{StreamExt, stream, stream::BoxStream};
use http_server::limits::Permit;
use hyper::body::{Body as _, Frame, Incoming};

use crate::{
    connection::PeerFailure,
    connections::{Connections, OpenConnection},
};

/// How long a peer may pause while it sends a log. After that the answer is cut.
const QUIET: Duration = Duration::from_secs(30);

/// The body of the answer of a peer.
#[derive(Debug)]
pub(crate) struct PeerBody {
    body: Incoming,
    open: OpenConnection,
    /// The right to the connection.
    _permit: Option<Permit>,
    connections: Arc<Connections>,
}

impl PeerBody {
    pub(crate) fn new(
        body: Incoming,
        open: OpenConnection,
        permit: Option<Permit>,
        connections: Arc<Connections>,
    ) -> PeerBody {
        PeerBody { body, open, _permit: permit, connections }
    }

    /// The number of bytes, if the head of the answer names it.
    pub(crate) fn len(&self) -> Option<usize> {
        self.body.size_hint().exact().and_then(|len| usize::try_from(len).ok())
    }

    /// Receives the whole body.
    pub(crate) async fn collect(mut self) -> Result<Bytes, PeerFailure> {
        let bytes = self.open.connection.collect(&mut self.body).await?;
        self.give_back();
        Ok(bytes)
    }

    /// The pieces of a log, as fast as the client takes them. A body that breaks ends with an
    /// error. `held` is kept until the end.
    pub(crate) fn into_pieces(
        self,
        held: impl Send + 'static,
    ) -> BoxStream<'static, io::Result<Frame<Bytes>>> {
        let pieces = stream::try_unfold((self, held), |(mut this, held)| async move {
            let until = this.connections.clock.now() + QUIET;
            let (connection, body) = (&mut this.open.connection, &mut this.body);
            let next = poll_fn(|context| connection.poll_frame(body, context));
            match this.connections.clock.timeout_at(until, next).await {
                Ok(Some(Ok(frame))) => Ok(Some((frame, (this, held)))),
                Ok(Some(Err(error))) => Err(io::Error::other(with_causes(&error))),
                Ok(None) => {
                    this.give_back();
                    Ok(None)
                }
                Err(_) => Err(io::ErrorKind::TimedOut.into()),
            }
        });
        pieces.boxed()
    }

    fn give_back(mut self) {
        if self.open.connection.is_reusable() {
            self.connections.give_back(self.open);
        }
    }
}
