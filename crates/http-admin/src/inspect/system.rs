//! Applications, owners of partitions, leases and members.

use serde_json::{Value, json};
use vvm::{
    eventlog::Deployment,
    ielections::{Lease, TtlStore},
    istorage::{Consistency, CorruptRow},
    sysvvm::{
        InitState,
        ownership::{Member, PartitionId},
    },
};

use super::source::{CALL_TIME, InspectError, Source, hex};

/// A line for each application. `state` shows one that no node can open.
pub(super) async fn apps(source: &Source) -> Result<Vec<Value>, InspectError> {
    let mut lines = Vec::new();
    for (name, entry, state) in source.system.registered_apps(CALL_TIME).await? {
        let mut line = json!({
            "app": name.to_string(),
            "number": entry.number.get(),
            "partitions": entry.partitions,
            "format": entry.format,
            "keyspace": entry.keyspace.as_str(),
        });
        let unfinished = match state {
            InitState::Ready => None,
            InitState::Creating => Some("creating"),
            InitState::Importing => Some("importing"),
        };
        if let Some(state) = unfinished {
            line["state"] = json!(state);
            lines.push(line);
            continue;
        }
        match deployment(source, &name).await {
            Ok(Some(deployment)) => {
                line["trustLevel"] = json!(deployment.level as u8);
                if let Some(to) = deployment.changing_to() {
                    line["changingTo"] = json!(to as u8);
                }
                let tables = deployment.schema.tables().map(|table| table.name().as_str());
                line["tables"] = json!(tables.collect::<Vec<_>>());
            }
            Ok(None) => line["trustLevel"] = Value::Null,
            Err(error) => line["damaged"] = json!(base::with_causes(&error)),
        }
        lines.push(line);
    }
    Ok(lines)
}

async fn deployment(
    source: &Source,
    name: &vvm::sysvvm::AppName,
) -> Result<Option<Deployment>, InspectError> {
    let app = source.app(name).await?;
    Ok(Deployment::stored(&app.storage, source.deadline()).await?)
}

/// A line for each partition of each application. A partition without a row had no owner yet.
pub(super) async fn partitions(source: &Source) -> Result<Vec<Value>, InspectError> {
    let apps = source.system.apps(CALL_TIME).await?;
    let owners = source.system.owners().read(Consistency::Plain, source.deadline()).await?;
    let mut lines = Vec::new();
    for (name, entry) in apps {
        for partition in 0..entry.partitions.get() {
            let id = PartitionId { app: entry.number.get(), partition };
            let row = owners.rows.get(&id).copied().unwrap_or_default();
            let owner = row.owner.map(|owner| {
                json!({
                    "advertised": owner.advertised,
                    "cluster": owner.cluster,
                    "incarnation": owner.incarnation.to_string(),
                })
            });
            lines.push(json!({
                "app": name.to_string(),
                "partition": partition,
                "epoch": row.epoch.0,
                "owner": owner,
            }));
        }
    }
    lines.extend(owners.corrupt.iter().map(damaged));
    Ok(lines)
}

/// A line for each lease, for each member, and for the pause of balancing.
pub(super) async fn leases(source: &Source) -> Result<Vec<Value>, InspectError> {
    let leases = source.system.elections().leases(source.deadline()).await;
    let leases = leases.map_err(|error| {
        vvm::istorage::Error::unavailable("the leases cannot be read").with_source(error)
    })?;
    let mut lines = Vec::new();
    for seen in leases {
        let left_ms = u64::try_from(seen.left.as_millis()).ok();
        lines.push(match Lease::from_bytes(&seen.value) {
            Some(lease) => json!({
                "seat": seen.seat.get(),
                "owner": lease.owner,
                "epoch": lease.epoch.0,
                "incarnation": lease.incarnation.to_string(),
                "leftMs": left_ms,
            }),
            None => json!({
                "seat": seen.seat.get(),
                "damaged": "this program did not write the lease",
                "value": hex(&seen.value),
            }),
        });
    }
    let rows = source.system.members().read(source.deadline()).await?;
    for seen in &rows.members {
        let id = format!("{:032x}", seen.id);
        lines.push(match Member::from_bytes(&seen.bytes) {
            Some(_) => json!({
                "member": id,
                "heartbeat": seen.heartbeat,
                "row": serde_json::from_slice::<Value>(&seen.bytes).unwrap_or_default(),
            }),
            None => json!({
                "member": id,
                "damaged": "the row of the member cannot be read",
                "value": hex(&seen.bytes),
            }),
        });
    }
    if let Some(pause) = &rows.pause {
        let at = pause.at.as_micros();
        lines.push(json!({ "paused": pause.paused, "atMicros": at, "by": pause.by }));
    }
    lines.extend(rows.corrupt.iter().map(damaged));
    Ok(lines)
}

/// The line of a row that cannot be read.
fn damaged(row: &CorruptRow) -> Value {
    let key = format!("{}/{}", hex(&row.key.pkey), hex(&row.key.ccols));
    json!({ "key": key, "damaged": row.to_string() })
}
