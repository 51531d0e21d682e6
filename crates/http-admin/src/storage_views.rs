//! The rows of the storage, for operators: `GET /inspect/…`.

use std::{io, sync::Arc, time::Duration};

use access::Principal;
use bytes::Bytes;
use clock::Clock;
use futures::{StreamExt, TryStreamExt, stream};
use http_server::{
    authentication::TokenEnd,
    event_stream::{cut_at, cut_at_stop},
    limits::{Limit, LimitRules},
    problem::{Answer, KNOWN_APPS, ProblemDetails},
    response::{Endless, stream_response},
};
use hyper::body::Frame;
use tokio::task::yield_now;
use tokio_util::sync::CancellationToken;
use tracing::info;
use vvm::{
    Node, Stage,
    istorage::StorageDriver,
    sysvvm::{self, AppName},
};

use crate::{
    audit::OPERATOR_LINES,
    inspect::{InspectError, Inspector, View, texts},
};

/// The number of views that are sent at the same time.
const VIEWS_AT_ONCE: usize = 2;

/// The time that a view may take to begin.
const BEGIN_TIME: Duration = Duration::from_secs(20);

/// A piece of an answer ends once it has this many bytes.
const PIECE_BYTES: usize = 8 << 10;

/// The views of the storage of a node.
pub(crate) struct StorageViews {
    storage: Option<Arc<dyn StorageDriver>>,
    /// Bounds the views that are sent at the same time.
    views: Arc<Limit>,
    clock: Clock,
    stop: CancellationToken,
}

impl StorageViews {
    /// Views of a storage. They end when `stop` is cancelled.
    pub(crate) fn new(
        storage: Option<Arc<dyn StorageDriver>>,
        clock: Clock,
        stop: CancellationToken,
    ) -> StorageViews {
        let views = LimitRules::at_once(VIEWS_AT_ONCE, "too_many_views", |_, most, _| {
            format!("this node sends at most {most} views: wait for their end")
        });
        StorageViews { storage, views: Limit::new(views, &clock), clock, stop }
    }

    /// Begins to send a view. It ends with the client's token at the latest.
    pub(crate) async fn begin(
        &self,
        node: &Node,
        principal: &Principal,
        name: &str,
        query: Option<&str>,
        token_end: TokenEnd,
    ) -> Answer {
        let view = View::of(name, query)?;
        if node.stage() == Stage::Opening {
            let reason = "the node has not opened its storage yet";
            return Err(ProblemDetails::unavailable("storage", reason));
        }
        let permit = self.views.try_take(None, 1)?;
        let Some(storage) = self.storage.clone() else {
            return Err(ProblemDetails::not_found("this endpoint shows no storage"));
        };
        let principal = principal.as_str();
        info!(target: OPERATOR_LINES, principal, view = name, query, "storage inspected");
        let deadline = token_end.at().min(self.clock.now() + BEGIN_TIME);
        let (keyspace, clock) = (node.system_keyspace().clone(), self.clock.clone());
        let begin = async {
            let inspector = Inspector::open(storage, keyspace, clock, deadline).await?;
            inspector.lines(view).await
        };
        let lines = self.clock.timeout_at(deadline, begin).await.map_err(|_| {
            ProblemDetails::unavailable("storage", "the storage did not answer in time")
        })?;
        let lines = texts(lines.map_err(problem)?);
        let pieces = stream::try_unfold((lines, permit), |(mut lines, permit)| async move {
            let mut piece = String::new();
            while piece.len() < PIECE_BYTES
                && let Some(line) = lines.try_next().await.map_err(io::Error::other)?
            {
                piece += &line;
            }
            // Other answers of the endpoint get their turn.
            yield_now().await;
            let piece = (!piece.is_empty()).then(|| Frame::data(Bytes::from(piece)));
            Ok(piece.map(|piece| (piece, (lines, permit))))
        });
        let pieces = cut_at(token_end, self.clock.clone(), pieces.boxed());
        let pieces = cut_at_stop(self.stop.clone(), pieces);
        let mut response = stream_response("application/x-ndjson", pieces);
        response.extensions_mut().insert(Endless);
        Ok(response)
    }
}

fn problem(error: InspectError) -> ProblemDetails {
    let reason = base::with_causes(&error);
    match error {
        InspectError::NoKeyspace(_) | InspectError::NoPartition { .. } => {
            ProblemDetails::not_found(reason)
        }
        InspectError::System(sysvvm::Error::DoesNotExist { known, .. }) => {
            let known: Vec<_> = known.iter().map(AppName::to_string).collect();
            ProblemDetails::not_found(reason).with(KNOWN_APPS, known)
        }
        _ => ProblemDetails::unavailable("storage", reason),
    }
}
