//! The logs and records at the end of a run.

use std::{net::SocketAddr, time::Duration};

use clock::Clock;
use serde_json::Value;
use shop::http_client::workspace_path;
use vvm_tests::bench::BenchError;

use crate::{
    api::{self, ANSWER_TIMEOUT, HttpAnswer, HttpRequest},
    history::{Line, PartitionEvent, Version},
    recorder::Recorder,
};

/// The events of one request for a log, and the ids of one request for records.
const PAGE: u64 = 5_000;
const IDS: usize = 100;

/// The partitions of the demo application.
const PARTITIONS: u16 = 10;

/// The time for one page.
const PAGE_TIMEOUT: Duration = Duration::from_secs(60);

const RETRY_DELAY: Duration = Duration::from_millis(200);

/// Reads the final state from the nodes, and adds it to the history.
pub(crate) async fn read(
    recorder: &Recorder,
    clock: &Clock,
    nodes: &[SocketAddr],
    workspaces: &[u64],
) -> Result<(), BenchError> {
    let reader = Reader { clock, nodes };
    for ws in workspaces {
        let log = format!("{}/wlog", workspace_path(*ws));
        let events = reader.events(&log, api::event).await?;
        let mut ids: Vec<u64> =
            events.iter().flat_map(|event| &event.rows).map(|row| row.id).collect();
        ids.sort_unstable();
        ids.dedup();
        reader.records(recorder, *ws, ids).await?;
        for event in events {
            recorder.add(Line::LogEvent { ws: *ws, event });
        }
    }
    for partition in 0..PARTITIONS {
        let log = format!("/api/v2/apps/demo/shop/partitions/{partition}/plog");
        for event in reader.events(&log, partition_event).await? {
            recorder.add(Line::PartitionEvent { partition, event });
        }
    }
    Ok(())
}

struct Reader<'a> {
    clock: &'a Clock,
    nodes: &'a [SocketAddr],
}

impl Reader<'_> {
    /// Reads a log from its beginning to its end. `event` reads a line.
    async fn events<T>(
        &self,
        log: &str,
        event: fn(&str) -> Option<T>,
    ) -> Result<Vec<T>, BenchError> {
        let mut events = Vec::new();
        loop {
            let path = format!("{log}?from={}&limit={PAGE}", events.len() + 1);
            let answer = self.get(&path).await?;
            let lines = answer.body.lines().filter(|line| !line.is_empty());
            let page: Option<Vec<T>> = lines.map(event).collect();
            let page = page.ok_or_else(|| format!("{path} makes no sense"))?;
            if page.is_empty() {
                return Ok(events);
            }
            events.extend(page);
        }
    }

    async fn records(
        &self,
        recorder: &Recorder,
        ws: u64,
        mut ids: Vec<u64>,
    ) -> Result<(), BenchError> {
        while !ids.is_empty() {
            let later = ids.split_off(ids.len().min(IDS));
            let asked = ids.iter().map(u64::to_string).collect::<Vec<_>>().join(",");
            let path = format!("{}/docs?ids={asked}", workspace_path(ws));
            let answer = self.get(&path).await?;
            let body: Value = serde_json::from_str(&answer.body)?;
            let (docs, rest) = (body["docs"].as_array(), body["rest"].as_array());
            let (Some(docs), Some(rest)) = (docs, rest) else {
                return Err(format!("{path} makes no sense").into());
            };
            for document in docs {
                let record = api::record(document).ok_or("a record makes no sense")?;
                recorder.add(Line::FinalRecord { ws, record });
            }
            ids = rest.iter().filter_map(Value::as_u64).chain(later).collect();
        }
        Ok(())
    }

    /// Reads from any node, and tries again until the time is over.
    async fn get(&self, path: &str) -> Result<HttpAnswer, BenchError> {
        let (deadline, request) =
            (self.clock.now() + PAGE_TIMEOUT, HttpRequest::get(path.to_owned()));
        for try_number in 0.. {
            let node = self.nodes[try_number % self.nodes.len()];
            let why = match api::send(self.clock, node, &request, ANSWER_TIMEOUT).await {
                Ok(answer) if answer.status == 200 => return Ok(answer),
                Ok(answer) => answer.body,
                Err(why) => why,
            };
            if self.clock.now() >= deadline {
                return Err(format!("{path} is not answered: {why}").into());
            }
            self.clock.sleep(RETRY_DELAY).await;
        }
        Err("no node".into())
    }
}

fn partition_event(line: &str) -> Option<PartitionEvent> {
    let value: Value = serde_json::from_str(line).ok()?;
    Some(PartitionEvent {
        version: Version { epoch: value["epoch"].as_u64()?, offset: value["plogOffset"].as_u64()? },
        ws: value["workspace"].as_u64()?,
        wlog: value["wlogOffset"].as_u64()?,
        request: value["requestId"].as_str()?.to_owned(),
    })
}
