//! The backup of an embedded storage, as a stream of bytes.
//!
//! While a backup runs, the storage keeps the rows of its snapshot, and its file grows. So a node
//! makes one backup at a time, a backup has a time limit, and a client that does not receive is cut
//! like any other client.

use std::{io, sync::Arc, time::Duration};

use clock::{Clock, Instant};
use futures::{StreamExt, TryStreamExt, stream};
use http_server::{
    authentication::TokenEnd,
    event_stream::cut_at_stop,
    limits::{Limit, LimitRules, Permit},
    problem::{Answer, ProblemDetails},
    response::{Endless, stream_response},
};
use hyper::{StatusCode, body::Frame};
use tokio_util::sync::CancellationToken;
use tracing::{info, warn};
use vvm::istorage::{self, BackupStream, StorageDriver};

/// The time limit of a backup.
const BACKUP_TIME: Duration = Duration::from_secs(2 * 3_600);

/// The backups of a node.
pub(crate) struct Backups {
    storage: Option<Arc<dyn StorageDriver>>,
    one: Arc<Limit>,
    clock: Clock,
    stop: CancellationToken,
}

impl Backups {
    /// Backups of a storage. They end when `stop` is cancelled.
    pub(crate) fn new(
        storage: Option<Arc<dyn StorageDriver>>,
        clock: Clock,
        stop: CancellationToken,
    ) -> Backups {
        let one = LimitRules {
            shown: Some(metrics::gauge!("httpapi_backups")),
            ..LimitRules::at_once(1, "too_many_backups", |_, _, _| {
                "this node sends another backup: wait for its end".to_owned()
            })
        };
        Backups { storage, one: Limit::new(one, &clock), clock, stop }
    }

    /// Begins a backup. It ends with the client's token at the latest.
    pub(crate) async fn begin(&self, token_end: TokenEnd) -> Answer {
        let permit = self.one.try_take(None, 1)?;
        let begun = self.clock.now();
        let until = token_end.at().min(begun + BACKUP_TIME);
        let pieces = match &self.storage {
            Some(storage) => storage.backup(until).await.map_err(storage_problem)?,
            None => None,
        };
        let Some(pieces) = pieces else {
            let reason = match self.storage.as_ref().map(|storage| storage.name()) {
                Some("mem") => "a storage in memory has no file, and ends with its node".to_owned(),
                Some(other) => format!("{other} is not redb: use the tools of that database"),
                None => "the admin endpoint of this node has no storage".to_owned(),
            };
            return Err(ProblemDetails::new(StatusCode::CONFLICT, "no_backups", reason));
        };
        let backup = Backup::new(self, pieces, begun, token_end, permit);
        let frames = stream::try_unfold(backup, |mut backup| async move {
            Ok(backup.next().await?.map(|piece| (Frame::data(piece), backup)))
        });
        let frames = cut_at_stop(self.stop.clone(), frames.boxed());
        let mut response = stream_response("application/octet-stream", frames);
        response.extensions_mut().insert(Endless);
        Ok(response)
    }
}

/// A backup that is being sent. Its end is logged when the value is dropped: the client may leave
/// at any time.
struct Backup {
    pieces: BackupStream,
    bytes: u64,
    begun: Instant,
    token_end: TokenEnd,
    clock: Clock,
    is_whole: bool,
    error: Option<String>,
    _permit: Permit,
}

impl Backup {
    fn new(
        backups: &Backups,
        pieces: BackupStream,
        begun: Instant,
        token_end: TokenEnd,
        permit: Permit,
    ) -> Backup {
        Backup {
            pieces,
            bytes: 0,
            begun,
            token_end,
            clock: backups.clock.clone(),
            is_whole: false,
            error: None,
            _permit: permit,
        }
    }

    async fn next(&mut self) -> io::Result<Option<bytes::Bytes>> {
        match self.pieces.try_next().await {
            Ok(Some(_)) if self.token_end.has_come(&self.clock) => {
                let why = "the token of the client has ended";
                self.error = Some(why.to_owned());
                Err(io::Error::other(why))
            }
            Ok(Some(piece)) => {
                self.bytes += piece.len() as u64;
                Ok(Some(piece))
            }
            Ok(None) => {
                self.is_whole = true;
                Ok(None)
            }
            Err(error) => {
                self.error = Some(base::with_causes(&error));
                Err(io::Error::other(error))
            }
        }
    }
}

impl Drop for Backup {
    fn drop(&mut self) {
        let (bytes, took) = (self.bytes, self.clock.now() - self.begun);
        match (self.is_whole, &self.error) {
            (true, _) => info!(bytes, ?took, "backup sent"),
            (false, Some(error)) => warn!(bytes, ?took, error, "backup failed"),
            (false, None) => {
                warn!(bytes, ?took, "backup ended early: its connection ended, or the node stops")
            }
        }
    }
}

fn storage_problem(error: istorage::Error) -> ProblemDetails {
    ProblemDetails::unavailable("storage", base::with_causes(&error))
}
