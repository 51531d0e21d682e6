//! Stored numbers: offsets of partitions, sequences of a workspace, and series of document numbers.

use std::sync::Arc;

use serde_json::{Value, json};
use vvm::{
    docnumbers::{DocNumberRows, Policy, Scope, Series},
    eventlog::WsId,
    isequencer::SeqId,
    seqstorage::{numbers_in_view, sequence_name},
    sysvvm::{AppName, NumberRows, OpenedApp},
};

use super::source::{CALL_TIME, InspectError, Source};

/// The offsets of an application and its series with a counter of the application, or the
/// sequences of a workspace and the series with a counter of each workspace. A number may be in
/// the system keyspace or in the view, as the nodes are configured.
pub(super) async fn numbers(
    source: &Source,
    app: &AppName,
    ws: Option<WsId>,
) -> Result<Vec<Value>, InspectError> {
    let app = source.app(app).await?;
    let mut lines = match ws {
        Some(ws) => sequences(source, &app, ws).await?,
        None => offsets(source, &app).await?,
    };
    lines.extend(series(source, &app, ws).await?);
    Ok(lines)
}

/// The stored last number of each sequence of a workspace; the higher one of both places.
pub(super) async fn stored_numbers(
    source: &Source,
    app: &OpenedApp,
    ws: WsId,
) -> Result<Vec<(u16, u64)>, InspectError> {
    let mut all = Vec::new();
    for rows in places(source, app, ws.partition(app.entry.partitions)) {
        all.extend(rows.all(ws.0, source.deadline()).await?);
    }
    all.sort_by_key(|it| (it.seq, std::cmp::Reverse(it.number)));
    all.dedup_by_key(|it| it.seq);
    Ok(all.iter().map(|it| (it.seq, it.number)).collect())
}

async fn sequences(source: &Source, app: &OpenedApp, ws: WsId) -> Result<Vec<Value>, InspectError> {
    let mut lines = Vec::new();
    for rows in places(source, app, ws.partition(app.entry.partitions)) {
        for stored in rows.all(ws.0, source.deadline()).await? {
            lines.push(json!({
                "workspace": ws.0,
                "name": sequence_name(SeqId(stored.seq)),
                "last": stored.number,
                "storedIn": rows.place(),
            }));
        }
    }
    Ok(lines)
}

async fn offsets(source: &Source, app: &OpenedApp) -> Result<Vec<Value>, InspectError> {
    let mut lines = Vec::new();
    for partition in 0..app.entry.partitions.get() {
        for rows in places(source, app, partition) {
            if let Some(next) = rows.next_offset(partition, source.deadline()).await? {
                let place = rows.place();
                lines
                    .push(json!({ "partition": partition, "nextOffset": next, "storedIn": place }));
            }
        }
    }
    Ok(lines)
}

fn places(source: &Source, app: &OpenedApp, partition: u16) -> [NumberRows; 2] {
    let view = numbers_in_view(Arc::clone(&app.storage), source.clock.clone(), partition);
    [source.system.numbers(&app.entry), view]
}

/// The newest definition of each series, with the counter of the present period. The counter of
/// a gapless series is a record.
async fn series(
    source: &Source,
    app: &OpenedApp,
    ws: Option<WsId>,
) -> Result<Vec<Value>, InspectError> {
    let prefix = source.system.document_numbers(&app.entry);
    let (storage, clock) = (Arc::clone(source.system.storage()), source.clock.clone());
    let rows = DocNumberRows::new(storage, clock, prefix, CALL_TIME);
    let mut lines = Vec::new();
    for (definition, policy) in rows.definitions(source.deadline()).await? {
        if (definition.scope == Scope::Workspace) != ws.is_some() {
            continue;
        }
        let mut line = json!({ "series": definition.id, "policy": policy });
        match Series::new(definition.clone()) {
            Ok(series) => {
                let ws = WsId(ws.map_or(0, |ws| ws.0));
                let counter = series.counter_key_at(source.clock.wall(), ws);
                line["period"] = json!(counter.period.to_string());
                if policy == Policy::Fast {
                    let next = rows.counter(&counter, source.deadline()).await?;
                    line["nextReserved"] = json!(next);
                }
            }
            Err(error) => line["damaged"] = json!(base::with_causes(&error)),
        }
        line["definition"] = json!(definition);
        lines.push(line);
    }
    Ok(lines)
}
