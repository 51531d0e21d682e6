//! Numbers of orders, over a storage in memory. Put any storage driver in its place.
//!
//! Run it with `cargo run -p docnumbers --example orders`.

use std::{error::Error, time::Duration};

use docnumbers::{
    Definition, DocNumberRows, FastSeries, FastSettings, Series, WsId,
    clock::Clock,
    istorage::{KeyspaceName, StorageDriver, mem::MemDriver},
};

#[tokio::main]
async fn main() -> Result<(), Box<dyn Error>> {
    let (clock, name) = (Clock::system(), KeyspaceName::new("shop")?);
    let soon = || clock.now() + Duration::from_secs(5);
    let driver = MemDriver::new(clock.clone());
    driver.create(&name, soon()).await?;
    let storage = driver.open(&name, soon()).await?.ok_or("the keyspace does not exist")?;

    let rows = DocNumberRows::new(storage, clock.clone(), "numbers", Duration::from_secs(1));
    let orders = Series::new(Definition::daily("order", "ORDER"))?;
    let orders = FastSeries::open(orders, rows, "node 1", FastSettings::default(), soon()).await?;
    for _ in 0..3 {
        println!("{}", orders.next(WsId(1), soon()).await?); // ORDER2026-1123-00000, …
    }
    let end = orders.close(soon()).await;
    println!("{} counters given back", end.given_back);
    Ok(())
}
