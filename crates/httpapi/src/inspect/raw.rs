//! The rows of a storage partition, as they are stored, with the meaning of those that are known.

use futures::{StreamExt, TryStreamExt};
use serde_json::{Value, json};
use vvm::{
    eventlog::AppRow,
    istorage::{ExpiringRow, Key, KeyspaceName, Range, bytes::Bytes},
    sysvvm::system_row_kind,
};

use super::{CALL_TIME, InspectError, Inspector, Lines, hex, limited};

impl Inspector {
    pub(super) async fn rows(
        &self,
        keyspace: KeyspaceName,
        pkey: Bytes,
        from: Bytes,
        limit: usize,
    ) -> Result<Lines, InspectError> {
        let opened = self.system.driver().open(&keyspace, self.deadline()).await?;
        let storage = opened.ok_or_else(|| InspectError::NoKeyspace(keyspace.clone()))?;
        let is_system = keyspace == *self.system.keyspace();
        let rows = storage.ttl_read(pkey.clone(), Range::from(from), CALL_TIME);
        let lines = rows.map_ok(move |row| line(&pkey, &row, is_system)).map_err(Into::into);
        Ok(limited(lines.boxed(), limit))
    }
}

fn line(pkey: &Bytes, row: &ExpiringRow, is_system: bool) -> Value {
    let key = Key { pkey: pkey.clone(), ccols: row.ccols.clone() };
    let kind = match is_system {
        true => system_row_kind(pkey).map(str::to_owned),
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
