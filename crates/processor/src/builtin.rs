//! The commands that every application has.

use std::{fmt::Display, sync::Arc};

use async_trait::async_trait;
use bytes::Bytes;
use eventlog::{QName, RecordId, Value};
use serde::Deserialize;

use crate::{
    CommandContext, Handler, HandlerError, Rejection, RejectionKind, RowChange,
    system_tables::{DESCRIPTOR, KIND, NAME, known},
};

/// The name of the command that creates and updates rows.
pub(crate) const CUD: &str = "sys.CUD";

/// The name of the command that creates a workspace. The params are JSON: `{"kind": "Shop", "name":
/// "Corner shop"}`.
pub(crate) const CREATE_WORKSPACE: &str = "sys.CreateWorkspace";

pub(crate) fn handlers() -> Vec<(QName, Arc<dyn Handler>)> {
    vec![(known(CUD), Arc::new(Cud)), (known(CREATE_WORKSPACE), Arc::new(CreateWorkspace))]
}

#[derive(Debug)]
struct Cud;

#[async_trait]
impl Handler for Cud {
    async fn run(
        &self,
        params: &Bytes,
        rows: Vec<RowChange>,
        context: &mut CommandContext<'_>,
    ) -> Result<Bytes, HandlerError> {
        if rows.is_empty() {
            return Err(Rejection::invalid("sys.CUD has no rows to write").into());
        }
        if !params.is_empty() {
            return Err(Rejection::invalid("sys.CUD takes rows, and no params").into());
        }
        context.write(rows).await?;
        Ok(Bytes::new())
    }
}

/// The params of `sys.CreateWorkspace`.
#[derive(Debug, Deserialize)]
#[serde(deny_unknown_fields)]
pub(crate) struct NewWorkspace {
    pub(crate) kind: String,
    #[serde(default)]
    name: String,
}

impl NewWorkspace {
    pub(crate) fn read(params: &Bytes) -> Result<NewWorkspace, Rejection> {
        let wrong = |why: &dyn Display| {
            let such = r#"{"kind": "Shop", "name": "Corner shop"}"#;
            Rejection::invalid(format!("{CREATE_WORKSPACE} takes params such as {such}: {why}"))
        };
        // The derived `Deserialize` accepts an array, too.
        if params.trim_ascii_start().starts_with(b"[") {
            return Err(wrong(&"the params must be an object"));
        }
        serde_json::from_slice(params).map_err(|error| wrong(&error))
    }
}

#[derive(Debug)]
struct CreateWorkspace;

#[async_trait]
impl Handler for CreateWorkspace {
    async fn run(
        &self,
        params: &Bytes,
        rows: Vec<RowChange>,
        context: &mut CommandContext<'_>,
    ) -> Result<Bytes, HandlerError> {
        if !rows.is_empty() {
            let what = "sys.CreateWorkspace takes no rows";
            return Err(Rejection::invalid(what).into());
        }
        let NewWorkspace { kind, name } = NewWorkspace::read(params)?;
        let fields = [(known(KIND), Value::String(kind)), (known(NAME), Value::String(name))];
        let descriptor = RowChange::Create {
            raw: RecordId(1),
            table: known(DESCRIPTOR),
            parent: None,
            fields: fields.into(),
        };
        let ws = context.ws();
        match context.write_any(vec![descriptor]).await {
            // Only the descriptor of an existing workspace can cause this conflict.
            Err(HandlerError::Rejected(Rejection { kind: RejectionKind::Conflict, .. })) => {
                Err(Rejection::conflict(format!("workspace {} exists already", ws.0)).into())
            }
            Err(failure) => Err(failure),
            Ok(_) => Ok(Bytes::new()),
        }
    }
}
