//! A node in memory that runs commands with a handler of its own.
//!
//! Run it with `cargo run -p vvm --example node`.

use std::{error::Error, sync::Arc, time::Duration};

use vvm::processor::{
    Application, Command, CommandContext, Declarations, Handler, HandlerError, RowChange,
};
use vvm::{
    AppSettings, NodeSettings, Vvm, async_trait, bytes::Bytes, clock::Clock, eventlog::WsId,
    isequencer::WsKind, istorage::mem::MemDriver, sysvvm::AppName,
};

// The params and the result are any bytes here. Over HTTP both are JSON.
#[derive(Debug)]
struct Greet;

#[async_trait]
impl Handler for Greet {
    async fn run(
        &self,
        name: &Bytes,
        _: Vec<RowChange>,
        _: &mut CommandContext<'_>,
    ) -> Result<Bytes, HandlerError> {
        Ok([b"Hello, ", &name[..]].concat().into())
    }
}

#[tokio::main]
async fn main() -> Result<(), Box<dyn Error>> {
    let shop = Declarations::new("[tables]".parse()?)?.with_workspaces("Shop", WsKind(1), [])?;
    let shop = Application::new(shop).with_command("shop.Greet".parse()?, Greet)?;
    let clock = Clock::system();
    let deadline = clock.now() + Duration::from_secs(10);
    let driver = Arc::new(MemDriver::new(clock.clone()));
    let node = Vvm::builder(driver, clock, NodeSettings::new(([127, 0, 0, 1], 8822).into()))
        .with_app(AppSettings::new(AppName::new("acme", "shop")?, Arc::new(shop)))
        .build()?
        .launch();
    node.ready(deadline).await?;
    let app = node.node().app("acme", "shop").ok_or("the application is missing")?;
    let commands = app.at(WsId(7))?.commands().clone();
    for (name, params) in [("sys.CreateWorkspace", r#"{"kind": "Shop"}"#), ("shop.Greet", "you")] {
        let command = Command::new(WsId(7), name.parse()?, deadline).with_params(params);
        println!("{name}: {:?}", commands.run(command).await?.answer.result);
    }
    // This program ends here. A host that goes on waits for the end of its own work and for
    // `node.problem()` with `tokio::select!`, and shuts the node down after either of them.
    Ok(node.shutdown().await?)
}
