//! The applications of a node, in the configuration.

use std::{
    collections::BTreeMap,
    fmt::Display,
    num::NonZeroU16,
    path::{Path, PathBuf},
};

use eventlog::Schema;
use isequencer::WsKind;
use processor::{Application, Declarations, InvalidApplication};
use serde::{Deserialize, Deserializer, Serialize, Serializer, de::Error};
use sysvvm::AppName;
use vvm::AppSettings;

use super::{
    app_sequences::{self, KindSequences},
    sequences::LevelNumber,
    series::SeriesConfig,
};

/// One application.
#[derive(Clone, Debug, Deserialize, PartialEq, Serialize)]
#[serde(deny_unknown_fields)]
pub(crate) struct AppConfig {
    /// The owner and the name of the application: `owner/name`.
    #[serde(deserialize_with = "name", serialize_with = "name_as_text")]
    pub(crate) name: AppName,
    /// The number of partitions. It is fixed when the application is deployed for the first time.
    #[serde(default = "partitions")]
    pub(crate) partitions: NonZeroU16,
    /// The trust level, if it is not that of the section `sequences`.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub(crate) trust_level: Option<LevelNumber>,
    /// The file with the tables, in the folder of the configuration.
    pub(crate) tables: PathBuf,
    /// The kinds of workspaces, each with a number that no other kind may ever have.
    pub(crate) workspaces: BTreeMap<String, u16>,
    /// The sequences, by kind of workspaces.
    #[serde(default, skip_serializing_if = "BTreeMap::is_empty")]
    pub(crate) sequences: BTreeMap<String, KindSequences>,
    /// The series of document numbers, by id.
    #[serde(default, skip_serializing_if = "BTreeMap::is_empty")]
    pub(crate) series: BTreeMap<String, SeriesConfig>,
}

fn partitions() -> NonZeroU16 {
    AppSettings::DEFAULT_PARTITIONS
}

impl AppConfig {
    /// Makes the application from its file of tables in `folder`. The error is the wrong key and
    /// the reason; all mistakes in the tables are one reason.
    pub(crate) fn application(&self, folder: &Path) -> Result<Application, (String, String)> {
        let path = folder.join(&self.tables);
        let wrong = |why: &dyn Display| ("tables".to_owned(), format!("{}: {why}", path.display()));
        let text = std::fs::read_to_string(&path).map_err(|error| {
            let why = format!("cannot read the file of tables {}: {error}", path.display());
            ("tables".to_owned(), why)
        })?;
        let (tables, mistakes) = Schema::read(&text);
        let mut mistakes: Vec<_> = mistakes.into_iter().map(InvalidApplication::from).collect();
        // Wrong tables make no application. The rest of the configuration is still declared, and
        // the rest of the tables is checked against it.
        let none = || Declarations::new(Schema::default()).map_err(|error| wrong(&error));
        let (mut declared, refused) = match mistakes.is_empty().then(|| tables.clone()) {
            None => (none()?, Ok(())),
            Some(whole) => match Declarations::new(whole) {
                Ok(declared) => (declared, Ok(())),
                Err(refused) => (none()?, Err(refused)),
            },
        };
        app_sequences::check_kinds(&self.sequences, &self.workspaces)?;
        let none = KindSequences::new();
        for (kind, number) in &self.workspaces {
            let named = self.sequences.get(kind).unwrap_or(&none);
            let sequences = app_sequences::sequences(kind, named)?;
            let with_kind = declared.with_workspaces(kind, WsKind(*number), sequences);
            declared = with_kind.map_err(|error| app_sequences::refused(kind, named, &error))?;
        }
        for (id, config) in &self.series {
            let wrong =
                |(key, why)| (format!("series.{id}.{key}").trim_end_matches('.').into(), why);
            let series = config.series(id).map_err(wrong)?;
            let policy = config.policy().map_err(wrong)?;
            let with_series = declared.with_series(series, policy);
            declared = with_series.map_err(|error| wrong(("", error.to_string())))?;
        }
        mistakes.extend(declared.mistakes_of(&tables));
        let mistakes = base::none_of(mistakes, InvalidApplication::Several);
        mistakes.and(refused).map_err(|error| wrong(&error))?;
        Ok(Application::new(declared))
    }
}

fn name<'de, D: Deserializer<'de>>(from: D) -> Result<AppName, D::Error> {
    let name = String::deserialize(from)?;
    let wrong = |error| D::Error::custom(format!("`{name}` is not `owner/name`: {error}"));
    name.parse().map_err(wrong)
}

fn name_as_text<S: Serializer>(name: &AppName, to: S) -> Result<S::Ok, S::Error> {
    to.collect_str(name)
}
