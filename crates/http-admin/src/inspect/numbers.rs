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

use super::{CALL_TIME, InspectError, Inspector};

impl Inspector {
    /// The offsets of an application and its series with a counter of the application, or the
    /// sequences of a workspace and the series with a counter of each workspace. A number may be in
    /// the system keyspace or in the view, as the nodes are configured.
    pub(super) async fn numbers(
        &self,
        app: &AppName,
        ws: Option<WsId>,
    ) -> Result<Vec<Value>, InspectError> {
        let app = self.app(app).await?;
        let mut lines = match ws {
            Some(ws) => self.sequences(&app, ws).await?,
            None => self.offsets(&app).await?,
        };
        lines.extend(self.series(&app, ws).await?);
        Ok(lines)
    }

    /// The stored last number of each sequence of a workspace; the higher one of both places.
    pub(super) async fn stored_numbers(
        &self,
        app: &OpenedApp,
        ws: WsId,
    ) -> Result<Vec<(u16, u64)>, InspectError> {
        let mut all = Vec::new();
        for rows in self.places(app, ws.partition(app.entry.partitions)) {
            all.extend(rows.all(ws.0, self.deadline()).await?);
        }
        all.sort_by_key(|it| (it.seq, std::cmp::Reverse(it.number)));
        all.dedup_by_key(|it| it.seq);
        Ok(all.iter().map(|it| (it.seq, it.number)).collect())
    }

    async fn sequences(&self, app: &OpenedApp, ws: WsId) -> Result<Vec<Value>, InspectError> {
        let mut lines = Vec::new();
        for rows in self.places(app, ws.partition(app.entry.partitions)) {
            for stored in rows.all(ws.0, self.deadline()).await? {
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

    async fn offsets(&self, app: &OpenedApp) -> Result<Vec<Value>, InspectError> {
        let mut lines = Vec::new();
        for partition in 0..app.entry.partitions.get() {
            for rows in self.places(app, partition) {
                if let Some(next) = rows.next_offset(partition, self.deadline()).await? {
                    let place = rows.place();
                    lines.push(
                        json!({ "partition": partition, "nextOffset": next, "storedIn": place }),
                    );
                }
            }
        }
        Ok(lines)
    }

    fn places(&self, app: &OpenedApp, partition: u16) -> [NumberRows; 2] {
        let view = numbers_in_view(Arc::clone(&app.storage), self.clock.clone(), partition);
        [self.system.numbers(&app.entry), view]
    }

    /// The newest definition of each series, with the counter of the present period. The counter of
    /// a gapless series is a record.
    async fn series(&self, app: &OpenedApp, ws: Option<WsId>) -> Result<Vec<Value>, InspectError> {
        let prefix = self.system.document_numbers(&app.entry);
        let (storage, clock) = (Arc::clone(self.system.storage()), self.clock.clone());
        let rows = DocNumberRows::new(storage, clock, prefix, CALL_TIME);
        let mut lines = Vec::new();
        for (definition, policy) in rows.definitions(self.deadline()).await? {
            if (definition.scope == Scope::Workspace) != ws.is_some() {
                continue;
            }
            let mut line = json!({ "series": definition.id, "policy": policy });
            match Series::new(definition.clone()) {
                Ok(series) => {
                    let ws = WsId(ws.map_or(0, |ws| ws.0));
                    let counter = series.counter_key_at(self.clock.wall(), ws);
                    line["period"] = json!(counter.period.to_string());
                    if policy == Policy::Fast {
                        let next = rows.counter(&counter, self.deadline()).await?;
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
}
