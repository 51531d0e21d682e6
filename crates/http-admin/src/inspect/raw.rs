//! The rows of storage partitions, as they are stored, with the meaning of those that are known.

use futures::{StreamExt, TryStreamExt, future::ready, stream};
use serde_json::{Value, json};
use vvm::{
    eventlog::{AppRow, Deployment},
    istorage::{ErrorKind, ExpiringRow, Key, KeyspaceName, Range, SharedStorage, bytes::Bytes},
    sysvvm::system_row_kind,
};

use super::{
    source::{CALL_TIME, InspectError, Lines, Source, hex, limited},
    view::RawPartitions,
};

pub(super) async fn rows(
    source: &Source,
    keyspace: KeyspaceName,
    partitions: RawPartitions,
    limit: usize,
) -> Result<Lines, InspectError> {
    let opened = source.system.driver().open(&keyspace, source.deadline()).await?;
    let storage = opened.ok_or_else(|| InspectError::NoKeyspace(keyspace.clone()))?;
    let is_system = keyspace == *source.system.keyspace();
    let (pkeys, from) = match partitions {
        RawPartitions::One { pkey, from } => (stream::once(ready(Ok(pkey))).boxed(), from),
        RawPartitions::WithPrefix(prefix) => (storage.partitions(prefix, CALL_TIME), Bytes::new()),
    };
    let lines = pkeys
        .map_ok(move |pkey| partition(&storage, pkey, from.clone(), is_system))
        .map_err(InspectError::from)
        .try_flatten();
    Ok(limited(lines.boxed(), limit))
}

/// The rows of a partition. A damaged row ends them with a line that says why.
fn partition(storage: &SharedStorage, pkey: Bytes, from: Bytes, is_system: bool) -> Lines {
    let rows = storage.ttl_read(pkey.clone(), Range::from(from), CALL_TIME);
    let lines = rows.map(move |row| match row {
        Ok(row) => Ok(line(&pkey, &row, is_system)),
        Err(error) if error.kind() == ErrorKind::Corrupt => {
            Ok(json!({ "key": hex(&pkey), "damaged": base::with_causes(&error) }))
        }
        Err(error) => Err(error.into()),
    });
    lines.boxed()
}

fn line(pkey: &Bytes, row: &ExpiringRow, is_system: bool) -> Value {
    let key = Key { pkey: pkey.clone(), ccols: row.ccols.clone() };
    let kind = match is_system {
        true => system_row_kind(pkey).map(str::to_owned),
        false if Deployment::is_at(&key) => Some("the deployment".to_owned()),
        false => AppRow::of_key(&key).map(|row| row.to_string()),
    };
    json!({
        "key": hex(pkey),
        "ccols": hex(&row.ccols),
        "kind": kind,
        "ttlMs": row.ttl.map(|ttl| ttl.as_millis() as u64),
        "value": hex(&row.value),
    })
}
