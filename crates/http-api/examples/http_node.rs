//! A node in memory that serves a handler of its own over HTTP, and two requests to the node.
//!
//! Run it with `cargo run -p http-api --example http_node`.

use std::{error::Error, net::SocketAddr, sync::Arc, time::Duration};

use http_api::{
    HttpApi, HttpApiSettings,
    vvm::{
        AppSettings, NodeSettings, Vvm, async_trait,
        bytes::Bytes,
        clock::Clock,
        isequencer::WsKind,
        istorage::mem::MemDriver,
        processor::{
            Application, CommandContext, Declarations, Handler, HandlerError, Rejection, RowChange,
        },
        sysvvm::AppName,
    },
};
use tokio::{
    io::{AsyncReadExt, AsyncWriteExt},
    net::{TcpListener, TcpStream},
};

#[derive(Debug)]
struct Greet;

#[async_trait]
impl Handler for Greet {
    async fn run(
        &self,
        params: &Bytes,
        _: Vec<RowChange>,
        _: &mut CommandContext<'_>,
    ) -> Result<Bytes, HandlerError> {
        // Over HTTP the params are the JSON text of `args`, and the result is JSON, too.
        let name: String = serde_json::from_slice(params)
            .map_err(|why| Rejection::invalid(format!("`args` must be a name: {why}")))?;
        Ok(serde_json::json!(format!("Hello, {name}")).to_string().into())
    }
}

/// Sends a command to workspace 7 and returns the whole answer.
async fn send(api: SocketAddr, command: &str, body: &str) -> Result<String, Box<dyn Error>> {
    let mut connection = TcpStream::connect(api).await?;
    let (path, length) = ("/api/v2/apps/acme/shop/workspaces/7/commands", body.len());
    let request = format!(
        "POST {path}/{command} HTTP/1.1\r\nHost: {api}\r\nConnection: close\r\n\
         Content-Length: {length}\r\n\r\n{body}"
    );
    connection.write_all(request.as_bytes()).await?;
    let mut answer = String::new();
    connection.read_to_string(&mut answer).await?;
    if answer.starts_with("HTTP/1.1 200 ") { Ok(answer) } else { Err(answer.into()) }
}

#[tokio::main]
async fn main() -> Result<(), Box<dyn Error>> {
    let shop = Declarations::new("[tables]".parse()?)?.with_workspaces("Shop", WsKind(1), [])?;
    let shop = Application::new(shop).with_command("shop.Greet".parse()?, Greet)?;
    // A free port of this machine. Another process may take the port before the node binds it. A
    // real node has a fixed port.
    let api = TcpListener::bind("127.0.0.1:0").await?.local_addr()?;
    let clock = Clock::system();
    let driver = Arc::new(MemDriver::new(clock.clone()));
    let node = Vvm::builder(driver, clock.clone(), NodeSettings::new(api))
        .with_app(AppSettings::new(AppName::new("acme", "shop")?, Arc::new(shop)))
        .with_service(HttpApi::new(HttpApiSettings::new(api)))
        .build()?
        .launch();
    node.ready(clock.now() + Duration::from_secs(10)).await?;
    println!("the API listens on {api}");

    send(api, "sys.CreateWorkspace", r#"{"args": {"kind": "Shop"}}"#).await?;
    let answer = send(api, "shop.Greet", r#"{"args": "world"}"#).await?;
    println!("{answer}");
    if !answer.contains(r#""result":"Hello, world""#) {
        return Err("the answer is not the one of the handler".into());
    }
    Ok(node.shutdown().await?)
}
