//! A node in this process, with its rows in memory and an admin endpoint. Some also have the API.

use std::{net::SocketAddr, num::NonZeroU32, sync::Arc, time::Duration};

use async_trait::async_trait;
use clock::Clock;
use http_admin::{AdminEndpoint, AdminSettings};
use http_api::{HttpApi, HttpApiSettings};
use http_server::{
    Authenticator, NotAuthenticated,
    access::{Caller, Grants, Principal},
};
use hyper::HeaderMap;
use istorage::mem::MemDriver;
use shop::shop;
use sysvvm::AppName;
use tck::trial::free_address;
use tokio::{
    io::{AsyncReadExt, AsyncWriteExt},
    net::TcpStream,
};
use vvm::{AppSettings, Launched, NodeSettings, Problem, Vvm};

/// The longest time for the start.
const PATIENCE: Duration = Duration::from_secs(30);

/// Takes one token only.
#[derive(Debug)]
struct OneToken;

#[async_trait]
impl Authenticator for OneToken {
    async fn authenticate(&self, headers: &HeaderMap) -> Result<Arc<Caller>, NotAuthenticated> {
        let token = headers.get("authorization").ok_or(NotAuthenticated::NoToken)?;
        if token != "Bearer secret" {
            return Err(NotAuthenticated::Refused("it is another one".to_owned()));
        }
        let principal = Principal::new("test", "operator").unwrap();
        let grants = Grants::everything();
        Ok(Arc::new(Caller { principal, grants, expires: u64::MAX }))
    }
}

pub(crate) struct RealNode {
    pub(crate) admin: SocketAddr,
    /// The address of the API, which the node advertises.
    pub(crate) api: SocketAddr,
    launched: Launched,
}

impl RealNode {
    pub(crate) async fn start() -> RealNode {
        RealNode::start_with(Arc::new(MemDriver::new(Clock::system()))).await
    }

    /// Starts a node of a cluster with two seats. The nodes of a cluster have the same driver.
    pub(crate) async fn start_with(driver: Arc<MemDriver>) -> RealNode {
        RealNode::launch(driver, None, None).await
    }

    /// Starts a node whose API wants the token `secret`, and serves the pages of an origin.
    pub(crate) async fn start_for_pages(origin: String) -> RealNode {
        let driver = Arc::new(MemDriver::new(Clock::system()));
        RealNode::launch(driver, None, Some(origin)).await
    }

    /// Starts a node whose ports both want the token `secret`.
    pub(crate) async fn start_with_token() -> RealNode {
        let driver = Arc::new(MemDriver::new(Clock::system()));
        RealNode::launch(driver, Some(Arc::new(OneToken)), None).await
    }

    async fn launch(
        driver: Arc<MemDriver>,
        authenticator: Option<Arc<dyn Authenticator>>,
        page_origin: Option<String>,
    ) -> RealNode {
        let (api, admin) = (free_address(), free_address());
        let clock = Clock::system();
        let usual = AdminSettings::new(admin, Arc::new(String::new), "0");
        let mut api_settings = HttpApiSettings::new(api);
        api_settings.authenticator = authenticator.clone();
        if let Some(origin) = page_origin {
            api_settings.authenticator = Some(Arc::new(OneToken));
            api_settings.only_local = false;
            api_settings.page_origins = vec![origin];
        }
        let endpoint = AdminEndpoint::new(AdminSettings { authenticator, ..usual });
        let two = NonZeroU32::new(2).unwrap();
        let settings = NodeSettings { seats: two, ..NodeSettings::new(api) };
        let launched = Vvm::builder(driver, clock.clone(), settings)
            .with_app(AppSettings::new(AppName::new("acme", "shop").unwrap(), shop()))
            .with_service(HttpApi::new(api_settings))
            .with_admin(endpoint)
            .build()
            .unwrap()
            .launch();
        launched.ready(clock.now() + PATIENCE).await.unwrap();
        RealNode { admin, api, launched }
    }

    /// The whole answer to a request for the page.
    pub(crate) async fn page(&self) -> Vec<u8> {
        let mut stream = TcpStream::connect(self.admin).await.unwrap();
        let request = "GET / HTTP/1.1\r\nHost: localhost\r\nConnection: close\r\n\r\n";
        stream.write_all(request.as_bytes()).await.unwrap();
        let mut answer = Vec::new();
        stream.read_to_end(&mut answer).await.unwrap();
        answer
    }

    pub(crate) async fn stop(self) {
        self.launched.shutdown().await.unwrap();
    }

    /// Waits until the node cannot go on, and stops it. Returns the problem of the node.
    pub(crate) async fn problem(self) -> Arc<Problem> {
        let problem = self.launched.problem().await;
        let _ = self.launched.shutdown().await;
        problem
    }
}
