//! A node in this process whose applications have everything that a description can have.

use std::{net::SocketAddr, sync::Arc, time::Duration};

use async_trait::async_trait;
use clock::Clock;
use http_api::{HttpApi, HttpApiSettings};
use http_server::{
    Authenticator, NotAuthenticated,
    access::{Caller, Grants, Principal},
};
use hyper::HeaderMap;
use istorage::mem::MemDriver;
use processor::{
    Application, CommandContext, Declarations, Handler, HandlerError, RowChange, SeriesPolicy,
    bytes::Bytes,
};
use shop::http_client::try_request;
use tck::trial::free_address;
use vvm::{
    AppSettings, Launched, NodeSettings, Vvm,
    docnumbers::{Definition, FastSettings, Series},
    eventlog::{RecordId, Schema},
    isequencer::{Sequence, WsKind, standard},
};

/// The only token that the node takes.
pub(crate) const TOKEN: &str = "secret";

/// The longest time for the start.
const PATIENCE: Duration = Duration::from_secs(30);

/// Tables of each kind, with fields of each type.
const TABLES: &str = r#"
[tables."shop.Article"]
kind = "CDoc"
fields = { name = "string", cents = "int64", count = "int32", light = "float32", heavy = "float64",
    sold = "bool", picture = "bytes", kind = "qname", like = "ref" }
containers = { prices = "shop.Price" }

[tables."shop.Price"]
kind = "CRecord"
fields = { cents = "int64" }

[tables."shop.Bill"]
kind = "WDoc"
fields = { customer = "string" }
numbers = { number = "bill" }
containers = { lines = "shop.Line" }

[tables."shop.Line"]
kind = "WRecord"
fields = { article = "ref" }

[tables."shop.Delivery"]
kind = "WDoc"
sequences = { number = "Delivery" }

[tables."shop.Order"]
kind = "ODoc"
fields = { customer = "string" }
containers = { items = "shop.Item" }

[tables."shop.Item"]
kind = "ORecord"
fields = { name = "string" }

[tables."shop.Settings"]
kind = "Singleton"
id = 65600
fields = { from = "string" }
"#;

/// Writes the rows, and answers with its arguments.
#[derive(Debug)]
struct EchoHandler;

#[async_trait]
impl Handler for EchoHandler {
    async fn run(
        &self,
        params: &Bytes,
        rows: Vec<RowChange>,
        context: &mut CommandContext<'_>,
    ) -> Result<Bytes, HandlerError> {
        if !rows.is_empty() {
            context.write(rows).await?;
        }
        Ok(params.clone())
    }
}

/// Takes one token, which may do everything.
#[derive(Debug)]
struct OneToken;

#[async_trait]
impl Authenticator for OneToken {
    async fn authenticate(&self, headers: &HeaderMap) -> Result<Arc<Caller>, NotAuthenticated> {
        let token = headers.get("authorization").ok_or(NotAuthenticated::NoToken)?;
        if token != &*format!("Bearer {TOKEN}") {
            return Err(NotAuthenticated::Refused("it is another one".to_owned()));
        }
        let principal = Principal::new("test", "client").unwrap();
        Ok(Arc::new(Caller { principal, grants: Grants::everything(), expires: u64::MAX }))
    }
}

fn shop() -> Application {
    let sequence = Sequence::counting_from(standard::FIRST_OF_APPLICATIONS, 1).unwrap();
    let sequences = [("Delivery".parse().unwrap(), sequence)];
    let series = |id, template| Series::new(Definition::new(id, template)).unwrap();
    let gapless = SeriesPolicy::Gapless { counter: RecordId(65_601) };
    let shop = Declarations::new(TABLES.parse().unwrap()).unwrap();
    let shop = shop.with_workspaces("Shop", WsKind(1), sequences).unwrap();
    let fast = SeriesPolicy::Fast(FastSettings::default());
    let shop = shop.with_series(series("order", "O-{counter:5}"), fast).unwrap();
    let shop = shop.with_series(series("bill", "B-{counter:5}"), gapless).unwrap();
    Application::new(shop).with_command("shop.Echo".parse().unwrap(), EchoHandler).unwrap()
}

/// An application without tables and series.
fn empty() -> Application {
    let empty = Declarations::new(Schema::default()).unwrap();
    Application::new(empty.with_workspaces("Empty", WsKind(1), []).unwrap())
}

pub(crate) struct DescribedNode {
    pub(crate) api: SocketAddr,
    launched: Launched,
}

impl DescribedNode {
    pub(crate) async fn start() -> DescribedNode {
        let api = free_address();
        let clock = Clock::system();
        let mut settings = HttpApiSettings::new(api);
        settings.authenticator = Some(Arc::new(OneToken));
        let app = |name: &str, application| {
            AppSettings::new(name.parse().unwrap(), Arc::new(application))
        };
        let driver = Arc::new(MemDriver::new(clock.clone()));
        let launched = Vvm::builder(driver, clock.clone(), NodeSettings::new(api))
            .with_app(app("acme/shop", shop()))
            .with_app(app("acme/empty", empty()))
            .with_service(HttpApi::new(settings))
            .build()
            .unwrap()
            .launch();
        launched.ready(clock.now() + PATIENCE).await.unwrap();
        DescribedNode { api, launched }
    }

    /// The description as the node sends it.
    pub(crate) async fn description(&self) -> String {
        let api = self.api;
        let asked = tokio::task::spawn_blocking(move || {
            let bearer = format!("Bearer {TOKEN}");
            let headers = [("authorization", bearer.as_str())];
            try_request(api, "GET", "/api/v2/openapi.json", &headers, "")
        });
        let (status, text) = asked.await.unwrap().unwrap();
        assert_eq!(status, 200, "{text}");
        text
    }

    pub(crate) async fn stop(self) {
        self.launched.shutdown().await.unwrap();
    }
}
