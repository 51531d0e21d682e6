//! A sequencer alone, over a log in memory: events get their offset and the numbers of their
//! records, and a restart goes on after the last number of the log.
//!
//! Run it with `cargo run -p isequencer --example numbers`.

use std::{collections::HashSet, error::Error, sync::Arc, time::Duration};

use isequencer::{
    MemSeqStorage, Params, Sequencer, Sequences, WsId, WsKind, clock::Clock, standard,
};

const KIND: WsKind = WsKind(1);

fn sequencer(storage: &MemSeqStorage) -> Result<Sequencer, Box<dyn Error>> {
    let sequences = Sequences::new().with(KIND, standard::sequences())?;
    let params = Params::new("partition 1", sequences);
    Ok(Sequencer::new(params, Arc::new(storage.clone()), Clock::system()))
}

/// Writes one event with two records for each of the workspaces, in one transaction.
async fn write(
    sequencer: &mut Sequencer,
    storage: &MemSeqStorage,
    workspaces: &[WsId],
) -> Result<(), Box<dyn Error>> {
    let mut transaction = sequencer.start()?;
    for &ws in workspaces {
        let mut command = transaction.join(KIND, ws).await?;
        let wlog = command.next(standard::WLOG_OFFSET)?;
        let records = [command.next(standard::RECORD_ID)?, command.next(standard::RECORD_ID)?];
        let drawn = command.drawn().collect();
        let plog = command.keep().0; // a command that is dropped instead gives its numbers back
        println!("event {plog}: workspace {}, event {wlog} there, records {records:?}", ws.0);
        storage.append(drawn); // a real log writes the event here, with these numbers
    }
    transaction.flush(); // all events are written and applied
    Ok(())
}

#[tokio::main(flavor = "current_thread")]
async fn main() -> Result<(), Box<dyn Error>> {
    let storage = MemSeqStorage::new();
    let mut first = sequencer(&storage)?;
    first.ready().await?;
    write(&mut first, &storage, &[WsId(7), WsId(8), WsId(7)]).await?;

    // A crash: some numbers may not be stored yet. The next sequencer reads the end of the log, so
    // it gives no number twice.
    drop(first);
    println!("restart");
    let mut second = sequencer(&storage)?;
    second.ready().await?;
    write(&mut second, &storage, &[WsId(8), WsId(7)]).await?;
    second.close(Clock::system().now() + Duration::from_secs(5)).await?;

    let drawn = storage.log().concat();
    if drawn.iter().collect::<HashSet<_>>().len() < drawn.len() {
        return Err("a number was given twice".into());
    }
    println!("no number was given twice");
    Ok(())
}
