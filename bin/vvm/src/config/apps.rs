//! Which applications a node works for.

use std::{
    collections::BTreeMap,
    num::NonZeroU16,
    path::{Path, PathBuf},
};

use eventlog::Schema;
use isequencer::WsKind;
use processor::Application;
use serde::{Deserialize, Serialize};
use sysvvm::AppName;

use crate::failure::Failure;

/// An application.
#[derive(Clone, Debug, Deserialize, PartialEq, Serialize)]
#[serde(deny_unknown_fields)]
pub(crate) struct AppConfig {
    /// Whose it is, and what it is called: `owner/name`.
    pub(crate) name: String,
    /// Over how many partitions its workspaces are spread. Fixed when it is deployed for the first time.
    #[serde(default = "ten")]
    pub(crate) partitions: NonZeroU16,
    /// The file with its tables, beside the configuration.
    pub(crate) tables: PathBuf,
    /// The kinds of its workspaces, each with a number that is never used for another.
    pub(crate) workspaces: BTreeMap<String, u16>,
}

fn ten() -> NonZeroU16 {
    NonZeroU16::new(10).unwrap_or(NonZeroU16::MIN)
}

/// The tables of the demo.
const DEMO: &str = include_str!("../../../../config/demo.toml");

impl AppConfig {
    /// Its name.
    pub(crate) fn name(&self) -> Result<AppName, Failure> {
        self.name.parse().map_err(|error| {
            Failure::config(format!("apps: `{}` is not `owner/name`: {error}", self.name))
        })
    }

    /// What it is, from the file with its tables.
    pub(crate) fn application(&self, folder: &Path) -> Result<Application, Failure> {
        let path = folder.join(&self.tables);
        let text = std::fs::read_to_string(&path).map_err(|error| {
            let what =
                format!("the tables of {}: cannot read {}: {error}", self.name, path.display());
            Failure::config(what)
        })?;
        let schema: Schema = text
            .parse()
            .map_err(|error| Failure::config(format!("{}: {error}", path.display())))?;
        of_schema(schema, &self.name, &self.workspaces)
    }
}

fn of_schema(
    schema: Schema,
    name: &str,
    workspaces: &BTreeMap<String, u16>,
) -> Result<Application, Failure> {
    let wrong = |error: processor::BadApplication| Failure::config(format!("{name}: {error}"));
    let mut application = Application::new(schema).map_err(wrong)?;
    for (kind, number) in workspaces {
        application = application.with_workspaces(kind, WsKind(*number), []).map_err(wrong)?;
    }
    Ok(application)
}

/// An application to try a node with.
pub(crate) fn demo() -> Result<(AppName, Application), Failure> {
    let schema = DEMO.parse().map_err(|error| Failure::config(format!("the demo: {error}")))?;
    let name = AppName::new("demo", "shop")
        .map_err(|error| Failure::config(format!("the demo: {error}")))?;
    let kinds = BTreeMap::from([("Shop".to_owned(), 1)]);
    Ok((name, of_schema(schema, "demo/shop", &kinds)?))
}
