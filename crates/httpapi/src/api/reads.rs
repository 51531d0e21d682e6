//! Requests that read: a document, a list, a log.
//!
//! Each request takes its share of the memory for answers before it reads. Its computations run on
//! [turns](crate::turns).

use std::sync::Arc;

use bytes::Bytes;
use clock::Instant;
use hyper::{
    Response, StatusCode,
    header::{ETAG, HeaderValue},
};
use vvm::{
    App,
    eventlog::{RecordId, Table, Version, WsId},
};

use super::{Asked, JSON, Requests};
use crate::{
    read::{self, Held, READ_BYTES},
    reply::{Body, Trouble, of_bytes},
    rows::json_of_record,
};

impl Requests {
    pub(super) async fn read_doc(
        &self,
        app: &App,
        ws: WsId,
        table: &Table,
        id: RecordId,
    ) -> Result<Response<Body>, Trouble> {
        let partition = self.at(app, ws).await?;
        let deadline = self.deadline();
        let read = || async {
            let stored = self.turns.work(read::record(&partition, ws, table, id)).await;
            // The leadership is checked even if the record was not found, because the present
            // leader may have the record.
            self.still(app, ws, &partition).await?;
            let stored = stored?;
            let json = self.turns.work(async { json_of_record(&stored).to_string() }).await;
            Ok((json.into_bytes(), stored.version))
        };
        let (json, version) = self.in_room(deadline, read).await?;
        Ok(with_version(of_bytes(StatusCode::OK, JSON, json), version))
    }

    pub(super) async fn list_docs(
        &self,
        asked: &Asked,
        app: &App,
        ws: WsId,
        table: &Table,
    ) -> Result<Response<Body>, Trouble> {
        let partition = self.at(app, ws).await?;
        let deadline = self.deadline();
        let read = || async {
            let docs = read::docs(&partition, ws, table, asked.query.as_deref());
            let docs = self.turns.work(docs).await;
            self.still(app, ws, &partition).await?;
            Ok((docs?, ()))
        };
        let (docs, ()) = self.in_room(deadline, read).await?;
        Ok(of_bytes(StatusCode::OK, JSON, docs))
    }

    /// Returns the bytes of an answer, with a share of the memory that is large enough for them,
    /// and the other values that were read.
    ///
    /// The size of an answer is known only after the read. If an answer needs more than its share,
    /// and there is no room at once, the answer is dropped together with its share. Then the
    /// request waits for a share of the right size among the large answers, and reads again.
    async fn in_room<T, R: Future<Output = Result<(Vec<u8>, T), Trouble>> + Send>(
        &self,
        deadline: Instant,
        read: impl Fn() -> R,
    ) -> Result<(Bytes, T), Trouble> {
        let mut share = self.answers.share(READ_BYTES, deadline).await?;
        loop {
            let Ok(read) = self.node.clock().timeout_at(deadline, read()).await else {
                return Err(Trouble::unavailable("timed_out", "it was not read in time"));
            };
            let (answer, more) = read?;
            if share.fit(answer.len()) {
                return Ok((share.hold(answer), more));
            }
            let needs = answer.len();
            drop((answer, share));
            share = self.large_answers.share(needs, deadline).await?;
        }
    }

    pub(super) async fn log(
        &self,
        asked: &Asked,
        app: &App,
        ws: WsId,
    ) -> Result<Response<Body>, Trouble> {
        let partition = self.at(app, ws).await?;
        if asked.version < hyper::Version::HTTP_11 {
            let reason = "a log has no end that such a client could see: ask by HTTP/1.1 (in nginx: proxy_http_version 1.1)";
            let status = StatusCode::HTTP_VERSION_NOT_SUPPORTED;
            return Err(Trouble::new(status, "http_version", reason));
        }
        let held = self.room_for_a_log().await?;
        let log = read::log(&partition, ws, asked.query.as_deref(), held).await;
        self.still(app, ws, &partition).await?;
        log
    }

    /// The deadline of a request that arrives now, for waiting and for its answer.
    pub(super) fn deadline(&self) -> Instant {
        self.node.clock().now() + self.settings.command_time
    }

    async fn room_for_a_log(&self) -> Result<Held, Trouble> {
        let deadline = self.deadline();
        let log = Arc::clone(&self.logs).acquire_owned();
        let Ok(Ok(log)) = self.node.clock().timeout_at(deadline, log).await else {
            let reason = format!("{} logs are being told, and no more at once", self.settings.logs);
            return Err(Trouble::unavailable("queue_full", reason));
        };
        let share = self.answers.share(READ_BYTES, deadline).await?;
        Ok(Held { _log: log, _share: share, turns: self.turns.clone() })
    }
}

fn with_version(mut response: Response<Body>, version: Version) -> Response<Body> {
    let tag = format!("\"{}.{}\"", version.epoch.0, version.plog.0);
    if let Ok(tag) = HeaderValue::from_str(&tag) {
        response.headers_mut().insert(ETAG, tag);
    }
    response
}
