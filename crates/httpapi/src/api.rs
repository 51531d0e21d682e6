//! The HTTP API: commands, documents and logs.

mod body;
mod headers;
mod reads;

use std::{net::SocketAddr, sync::Arc, time::Duration};

use async_trait::async_trait;
use bytes::Bytes;
use hyper::{
    Request, Response, StatusCode,
    header::{HeaderMap, HeaderValue},
};
use processor::{Command, Done, RowChange};
use serde::Deserialize;
use serde_json::{Value as Json, json, value::RawValue};
use tokio::sync::Semaphore;
use tokio_util::sync::CancellationToken;
use vvm::{
    App, Failure, Here, Node, NotLeader, Service,
    eventlog::{QName, WsId},
};

use self::{
    body::{Received, parsed},
    headers::{if_match, no_version, repeat, request_id},
};
use crate::{
    HttpLimits,
    check::check,
    incoming::RequestBody,
    reply::{Body, NOT_LEADER, REQUEST_ID, Trouble, of_bytes},
    room::{Room, Share},
    route::{Route, What, route},
    rows::{self, FieldsBody, Object, RowBody, json_of_bytes},
    server::{self, Answers},
    turns::Turns,
};

const JSON: &str = "application/json";

/// The settings of the API.
#[derive(Clone, Copy, Debug)]
pub struct HttpApiSettings {
    /// The address on which the API listens.
    pub listen: SocketAddr,
    /// The limits of connections.
    pub limits: HttpLimits,
    /// The time that a command may take, or the reading of a document or a list. Waiting counts,
    /// too.
    pub command_time: Duration,
    /// The number of bytes of all bodies together that are being received, or that belong to
    /// running commands. No single body may have more.
    pub bodies_bytes: usize,
    /// The number of bytes of all answers together that are being read, or that their clients have
    /// not received. Each answer takes [`READ_BYTES`](crate::READ_BYTES) while it is read. A
    /// quarter is reserved for answers that need more.
    pub answers_bytes: usize,
    /// The number of logs that may be sent at the same time. Each log takes
    /// [`READ_BYTES`](crate::READ_BYTES) of `answers_bytes` until its end. At least half of
    /// `answers_bytes` should be left for documents and lists.
    pub logs: usize,
    /// Whether the API serves only this machine. The API has no authentication, so it then refuses
    /// requests that a page of another site made, and requests to another host name.
    pub only_local: bool,
}

impl HttpApiSettings {
    /// The default settings: 10 s for a command, 256 MiB for bodies, 128 MiB for answers, and 32
    /// logs.
    pub fn new(listen: SocketAddr) -> HttpApiSettings {
        HttpApiSettings {
            listen,
            limits: HttpLimits::default(),
            command_time: Duration::from_secs(10),
            bodies_bytes: 256 << 20,
            answers_bytes: 128 << 20,
            logs: 32,
            only_local: true,
        }
    }
}

/// The HTTP API of a node.
#[derive(Debug)]
pub struct HttpApi {
    settings: HttpApiSettings,
    listener: Option<std::net::TcpListener>,
}

impl HttpApi {
    /// Creates the API. It listens when the node is launched.
    pub fn new(settings: HttpApiSettings) -> HttpApi {
        HttpApi { settings, listener: None }
    }
}

#[async_trait]
impl Service for HttpApi {
    fn name(&self) -> &'static str {
        "the HTTP API"
    }

    async fn bind(&mut self) -> Result<(), Failure> {
        self.listener = Some(server::bind(self.settings.listen)?);
        Ok(())
    }

    async fn run(self: Box<Self>, node: Node, stop: CancellationToken) -> Result<(), Failure> {
        let HttpApi { settings, listener } = *self;
        let listener = listener.ok_or("it has no port")?;
        let clock = node.clock().clone();
        let requests = Requests::new(node, settings);
        server::serve("api", listener, requests, settings.limits, &clock, &stop).await
    }
}

struct Requests {
    node: Node,
    settings: HttpApiSettings,
    bodies: Room,
    answers: Room,
    /// The memory for answers that are too large for their share of `answers`. Small answers do not
    /// wait behind them here.
    large_answers: Room,
    logs: Arc<Semaphore>,
    turns: Turns,
}

/// The body of a command.
#[derive(Deserialize)]
#[serde(deny_unknown_fields)]
struct CommandBody<'b> {
    #[serde(borrow)]
    args: Option<&'b RawValue>,
    #[serde(default)]
    rows: Vec<Object<RowBody>>,
}

/// The body of a request that creates a document.
#[derive(Deserialize)]
#[serde(deny_unknown_fields)]
struct NewDocBody {
    #[serde(default)]
    fields: FieldsBody,
}

/// The body of a request that changes a document.
#[derive(Deserialize)]
#[serde(deny_unknown_fields, rename_all = "camelCase")]
struct ChangeBody {
    #[serde(default)]
    fields: FieldsBody,
    is_active: Option<bool>,
}

/// The properties of a request besides its body.
struct Asked {
    request: String,
    headers: HeaderMap,
    path: String,
    query: Option<String>,
    method: hyper::Method,
    version: hyper::Version,
}

impl Answers for Requests {
    async fn answer(&self, request: Request<&mut RequestBody>) -> Response<Body> {
        let (head, body) = request.into_parts();
        let checked = check(&head, self.settings.only_local);
        let request = request_id(&head.headers, self.node.clock());
        let asked = Asked {
            request,
            headers: head.headers,
            path: head.uri.path().to_owned(),
            query: head.uri.query().map(str::to_owned),
            method: head.method,
            version: head.version,
        };
        let clock = self.node.clock();
        let start = clock.now();
        let (kind, answered) = match checked.and_then(|()| route(&asked.method, &asked.path)) {
            Ok(route) => (route.what.kind(), self.try_answer(&asked, route, body).await),
            Err(trouble) => ("none", Err(trouble)),
        };
        let mut response = answered.unwrap_or_else(|trouble| trouble.into_response(&asked.request));
        if let Ok(id) = HeaderValue::from_str(&asked.request) {
            response.headers_mut().insert(REQUEST_ID, id);
        }
        let status = response.status().as_u16().to_string();
        metrics::histogram!("httpapi_request_seconds", "kind" => kind, "status" => status)
            .record(clock.now() - start);
        response
    }
}

impl Requests {
    fn new(node: Node, settings: HttpApiSettings) -> Requests {
        let room = |of, bytes| Room::new(of, bytes, node.clock().clone());
        let large = settings.answers_bytes / 4;
        let bodies = room("bodies", settings.bodies_bytes);
        let answers = room("answers", settings.answers_bytes - large);
        let large_answers = room("large answers", large);
        let logs = Arc::new(Semaphore::new(settings.logs.min(Semaphore::MAX_PERMITS)));
        Requests { node, settings, bodies, answers, large_answers, logs, turns: Turns::new() }
    }

    async fn try_answer(
        &self,
        asked: &Asked,
        Route { owner, app, ws, what }: Route<'_>,
        body: &mut RequestBody,
    ) -> Result<Response<Body>, Trouble> {
        let app = self
            .node
            .app(owner, app)
            .ok_or_else(|| Trouble::not_found(format!("there is no application {owner}/{app}")))?;
        what.check_query(asked.query.as_deref())?;
        let schema = app.application().schema();
        let table = |name: &QName| rows::table_of(schema, name.as_str());
        match what {
            What::Command(name) => {
                no_version(&asked.headers)?;
                let body = self.body(asked, body).await?;
                let CommandBody { args, rows } = parsed(&body.bytes)?;
                let params = args.map(|args| Bytes::copy_from_slice(args.get().as_bytes()));
                let rows = rows.into_iter().map(|Object(row)| row.into_change(schema));
                let rows = rows.collect::<Result<_, _>>()?;
                let params = params.unwrap_or_default();
                let done = self.run(asked, app, ws, (name, params, rows), &body).await?;
                Ok(done_with(StatusCode::OK, &done, body.share))
            }
            What::CreateDoc(name) => {
                no_version(&asked.headers)?;
                let body = self.body(asked, body).await?;
                // A document that was created by mistake could never be removed.
                if body.bytes.is_empty() {
                    let reason = "a new document is sent as `{\"fields\": {…}}`, and one without fields as `{}`";
                    return Err(Trouble::bad_request(reason));
                }
                let NewDocBody { fields } = parsed(&body.bytes)?;
                let row = rows::new_doc(table(&name)?, fields)?;
                self.cud(asked, app, ws, row, body, StatusCode::CREATED).await
            }
            What::ReadDoc(name, id) => self.read_doc(app, ws, table(&name)?, id).await,
            What::ChangeDoc(name, id) => {
                let body = self.body(asked, body).await?;
                let ChangeBody { fields, is_active } = parsed(&body.bytes)?;
                if fields.is_empty() && is_active.is_none() {
                    return Err(Trouble::bad_request(
                        "nothing changes: send `fields` or `isActive`",
                    ));
                }
                let expected = if_match(&asked.headers)?;
                let row = rows::update(table(&name)?, id, expected, is_active, fields)?;
                self.cud(asked, app, ws, row, body, StatusCode::OK).await
            }
            What::DeactivateDoc(name, id) => {
                let expected = if_match(&asked.headers)?;
                let row =
                    rows::update(table(&name)?, id, expected, Some(false), FieldsBody::default())?;
                let body = self.no_body().await?;
                self.cud(asked, app, ws, row, body, StatusCode::OK).await
            }
            What::ListDocs(name) => self.list_docs(asked, app, ws, table(&name)?).await,
            What::Log => self.log(asked, app, ws).await,
        }
    }

    /// The partition of a workspace, if it is at work here; else a problem that names the leader.
    async fn at<'a>(&self, app: &'a App, ws: WsId) -> Result<Here<'a>, Trouble> {
        match app.at(ws) {
            Ok(here) => Ok(here),
            Err(why) => Err(self.not_leader(app, ws, why).await),
        }
    }

    /// Checks that a client may be given the rows that were read.
    async fn still(&self, app: &App, ws: WsId, here: &Here<'_>) -> Result<(), Trouble> {
        match here.may_answer() {
            Ok(()) => Ok(()),
            Err(why) => Err(self.not_leader(app, ws, why).await),
        }
    }

    async fn not_leader(&self, app: &App, ws: WsId, why: NotLeader) -> Trouble {
        self.elsewhere(app, ws, Trouble::unavailable(NOT_LEADER, why.to_string())).await
    }

    /// Adds the address of the leader to a problem, if the leader is known.
    async fn elsewhere(&self, app: &App, ws: WsId, trouble: Trouble) -> Trouble {
        match self.node.leader_of(app.partition_of(ws)).await {
            Some(leader) => trouble.with("leader", leader.to_string()),
            None => trouble,
        }
    }

    async fn run(
        &self,
        asked: &Asked,
        app: &App,
        ws: WsId,
        (name, params, rows): (QName, Bytes, Vec<RowChange>),
        body: &Received,
    ) -> Result<Done, Trouble> {
        let here = self.at(app, ws).await?;
        let command = Command {
            ws,
            name,
            params,
            rows,
            request: asked.request.clone(),
            repeat: repeat(asked, &body.bytes)?,
            deadline: body.deadline,
        };
        match here.run(command).await.map_err(Trouble::refused) {
            Err(trouble) if trouble.code() == NOT_LEADER => {
                Err(self.elsewhere(app, ws, trouble).await)
            }
            answered => answered,
        }
    }

    async fn cud(
        &self,
        asked: &Asked,
        app: &App,
        ws: WsId,
        row: RowChange,
        body: Received,
        status: StatusCode,
    ) -> Result<Response<Body>, Trouble> {
        let name = "sys.CUD".parse().map_err(|bad| Trouble::bad_request(format!("{bad}")))?;
        let done = self.run(asked, app, ws, (name, Bytes::new(), vec![row]), &body).await?;
        Ok(done_with(status, &done, body.share))
    }
}

/// The answer of a command. It takes over the share of the body, and makes the share as large as
/// the answer. If there is no room, the answer is sent all the same, because the command is done.
fn done_with(status: StatusCode, done: &Done, mut share: Share) -> Response<Body> {
    let json = json_of_done(done).to_string();
    // The share stays as it is if there is no room.
    let _ = share.fit(json.len());
    of_bytes(status, JSON, share.hold(json.into_bytes()))
}

fn json_of_done(done: &Done) -> Json {
    let Done { epoch, plog, wlog, answer, is_repeated } = done;
    let ids = answer.ids.iter().map(|(raw, id)| (raw.0.to_string(), json!(id.0)));
    let mut json = json!({
        "epoch": epoch.0,
        "plogOffset": plog.0,
        "wlogOffset": wlog.0,
        "newIds": Json::Object(ids.collect()),
    });
    if let Some(object) = json.as_object_mut() {
        if !answer.result.is_empty() {
            object.insert("result".to_owned(), json_of_bytes(&answer.result));
        }
        if *is_repeated {
            object.insert("repeated".to_owned(), json!(true));
        }
    }
    json
}
