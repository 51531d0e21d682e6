//! The definition of an application: its tables, its kinds of workspaces with their sequences, its
//! commands, and its series of document numbers.

mod sequences;
mod series;

use std::{
    collections::{BTreeMap, BTreeSet},
    sync::Arc,
};

use docnumbers::SeriesId;
use eventlog::{FieldType, InvalidSchema, Name, QName, RecordId, SINGLETON_IDS, Schema, Table};
use hashbrown::HashMap;
use isequencer::{BadSequences, SeqId, Sequence, Sequences, WsKind, standard};

pub(crate) use self::series::{NEXT, PERIOD, SERIES, counter_name};
pub use self::{
    sequences::DeclaredSequence,
    series::{DeclaredSeries, SeriesPolicy},
};
use crate::{Handler, builtin};

/// An application: its tables, its kinds of workspaces with their sequences, its commands, and its
/// series of document numbers.
///
/// ```
/// use eventlog::Schema;
/// use isequencer::WsKind;
/// use processor::Application;
///
/// let schema: Schema = r#"
/// [tables."shop.Article"]
/// kind = "CDoc"
/// fields = { name = "string" }
/// "#
/// .parse()?;
/// let shop = Application::new(schema)?.with_workspaces("Shop", WsKind(1), [])?;
/// # Ok::<(), Box<dyn std::error::Error>>(())
/// ```
#[derive(Debug)]
pub struct Application {
    schema: Schema,
    kinds: BTreeMap<String, WsKind>,
    /// The sequences that the application declares.
    declared: Vec<DeclaredSequence>,
    /// All sequences, including the standard ones.
    sequences: Sequences,
    /// The series, by id.
    series: BTreeMap<String, DeclaredSeries>,
    handlers: HashMap<QName, Arc<dyn Handler>>,
}

/// The reason why an application cannot be built.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum InvalidApplication {
    /// The tables do not fit together.
    #[error(transparent)]
    Schema(#[from] InvalidSchema),
    /// Several mistakes in the tables.
    #[error("{}", base::listed(.0))]
    Several(Vec<InvalidApplication>),
    /// The sequences of a kind of workspaces cannot be declared.
    #[error(transparent)]
    Sequences(#[from] BadSequences),
    /// A table or a command of the application is in the package `sys`, which belongs to the
    /// system.
    #[error("{0} is in the package `sys`, which belongs to the system: use another package")]
    System(QName),
    /// The application declares a sequence below 256. The system may need such a sequence.
    #[error("sequence {0} belongs to the system: use 256 or more")]
    SystemSequence(SeqId),
    /// The tables declare sequences. Only a stored deployment has them among its tables.
    #[error(
        "the tables have sequences: declare each sequence with its kind of workspaces, and not with the tables"
    )]
    SequencesInTables,
    /// Two sequences of a kind of workspaces have the same name.
    #[error("the sequence `{1}` of workspaces of the kind `{0}` is declared twice")]
    SequenceTwice(String, Name),
    /// Two sequences of a kind of workspaces have the same id, so they would share their numbers.
    #[error(
        "the sequences `{1}` and `{2}` of workspaces of the kind `{0}` have the same id {3}: give one another id"
    )]
    SequenceIdTwice(String, Name, Name, SeqId),
    /// A sequence field names a sequence that no kind of workspaces has.
    #[error(
        "the sequence field `{1}` of {0} is of the sequence `{2}`, which is not declared: declare it for a kind of workspaces"
    )]
    UnknownSequence(QName, Name, Name),
    /// Two kinds of workspaces have the same name.
    #[error("the kind of workspaces `{0}` is declared twice")]
    KindTwice(String),
    /// A command has two handlers.
    #[error("the command {0} has two handlers")]
    HandlerTwice(QName),
    /// Two series have the same id.
    #[error("the series {0} is declared twice")]
    SeriesTwice(SeriesId),
    /// Two gapless series count in the same record, so each would go on with the counter of the
    /// other.
    #[error("the series {0} and {1} count in the same record {id}: give one another id", id = .2.0)]
    CounterTwice(SeriesId, SeriesId, RecordId),
    /// A gapless series has one counter for the application. Its counter is a record of a
    /// workspace.
    #[error(
        "the series {0} is gapless and has the scope of the application: a gapless series counts \
         in each workspace; change the scope, or make the series fast"
    )]
    GaplessScope(SeriesId),
    /// The counter record of a gapless series cannot hold the second counter.
    #[error("the series {0} has too large a `start` or `step`: their sum must be below 2^63")]
    GaplessStart(SeriesId),
    /// A number field names a series that the application does not have.
    #[error(
        "the number field `{1}` of {0} is of the series `{2}`, which is not declared: declare it"
    )]
    UnknownSeries(QName, Name, String),
    /// A number field names a fast series. A command cannot draw from a fast series.
    #[error(
        "the number field `{1}` of {0} is of the series `{2}`, which is fast: make the series \
         gapless, or use a field of type string and let the client draw the number"
    )]
    FastSeries(QName, Name, String),
}

/// The table of the descriptors of workspaces.
pub(crate) const DESCRIPTOR: &str = "sys.WorkspaceDescriptor";

/// The id of the descriptor of each workspace.
pub(crate) const DESCRIPTOR_ID: RecordId = RecordId(*SINGLETON_IDS.start());

/// The fields of a descriptor.
pub(crate) const KIND: &str = "kind";
pub(crate) const NAME: &str = "name";

/// Parses a name that is written in this program.
pub(crate) fn known<N: std::str::FromStr>(name: &str) -> N
where
    N::Err: std::fmt::Debug,
{
    name.parse().expect("a name that is written in this program is one")
}

/// The mistakes of tables that claim names or sequences of the system.
fn tables_of_system(tables: &Schema) -> Vec<InvalidApplication> {
    let names = tables.tables().map(Table::name).filter(|name| name.package() == "sys");
    let names = names.map(|name| InvalidApplication::System(name.clone()));
    let sequences = !tables.sequences().is_empty();
    names.chain(sequences.then_some(InvalidApplication::SequencesInTables)).collect()
}

impl Application {
    /// The id of a descriptor: the record that names the kind of a workspace. A workspace without a
    /// descriptor does not exist.
    pub const DESCRIPTOR: RecordId = DESCRIPTOR_ID;

    /// Creates an application with these tables and with the commands `sys.CUD` and
    /// `sys.CreateWorkspace`.
    ///
    /// # Errors
    /// If tables are in the package `sys`.
    pub fn new(schema: Schema) -> Result<Application, InvalidApplication> {
        base::none_of(tables_of_system(&schema), InvalidApplication::Several)?;
        let descriptor = Table::singleton(known(DESCRIPTOR), DESCRIPTOR_ID)
            .with_field(known::<Name>(KIND), FieldType::String)
            .with_field(known::<Name>(NAME), FieldType::String);
        let schema = schema.with_table(descriptor)?;
        let handlers = builtin::handlers().into_iter().collect();
        Ok(Application {
            schema,
            kinds: BTreeMap::new(),
            declared: Vec::new(),
            sequences: Sequences::new(),
            series: BTreeMap::new(),
            handlers,
        })
    }

    /// Adds a kind of workspaces: its name, its number, and the sequences that it has besides the
    /// [standard](isequencer::standard) ones, each with its name. A number of a kind must never be
    /// used for another kind.
    ///
    /// # Errors
    /// If the application has a kind of that name or number, or if the sequences cannot be
    /// declared.
    pub fn with_workspaces(
        mut self,
        name: impl Into<String>,
        kind: WsKind,
        sequences: impl IntoIterator<Item = (Name, Sequence)>,
    ) -> Result<Application, InvalidApplication> {
        let name = name.into();
        if self.kinds.insert(name.clone(), kind).is_some() {
            return Err(InvalidApplication::KindTwice(name));
        }
        let mut all = standard::sequences();
        for (sequence_name, sequence) in sequences {
            self = self.with_sequence(&name, sequence_name, sequence.clone())?;
            all.push(sequence);
        }
        self.sequences = self.sequences.with(kind, all)?;
        Ok(self)
    }

    /// Adds a command of the application.
    ///
    /// # Errors
    /// If the command is in the package `sys`, or if the application has that command already.
    pub fn with_command(
        mut self,
        name: QName,
        handler: impl Handler,
    ) -> Result<Application, InvalidApplication> {
        if name.package() == "sys" {
            return Err(InvalidApplication::System(name));
        }
        if self.handlers.insert(name.clone(), Arc::new(handler)).is_some() {
            return Err(InvalidApplication::HandlerTwice(name));
        }
        Ok(self)
    }

    /// The tables of the application, including those of the system.
    pub fn schema(&self) -> &Schema {
        &self.schema
    }

    /// The kinds of workspaces, by name.
    pub fn kinds(&self) -> &BTreeMap<String, WsKind> {
        &self.kinds
    }

    /// The commands, by name.
    pub fn commands(&self) -> impl Iterator<Item = &QName> {
        let names: BTreeSet<&QName> = self.handlers.keys().collect();
        names.into_iter()
    }

    pub(crate) fn sequences(&self) -> &Sequences {
        &self.sequences
    }

    /// Whether a command is in the package `sys`.
    pub(crate) fn is_of_system(&self, command: &QName) -> bool {
        command.package() == "sys"
    }

    pub(crate) fn handler(&self, command: &QName) -> Option<&Arc<dyn Handler>> {
        self.handlers.get(command)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn an_application_cannot_declare_names_of_the_system() {
        let shop = || Application::new(Schema::default()).unwrap();
        let with = |seq| {
            let sequence = Sequence::counting_from(SeqId(seq), 1).unwrap();
            shop().with_workspaces("Shop", WsKind(1), [(known("Receipt"), sequence)])
        };
        for seq in [1, 4, 255] {
            let refused = with(seq).unwrap_err();
            assert_eq!(refused, InvalidApplication::SystemSequence(SeqId(seq)));
        }
        let (same, again) = (with(256).unwrap(), with(256).unwrap());
        let refused = same.with_workspaces("Shop", WsKind(2), []).unwrap_err();
        assert_eq!(refused, InvalidApplication::KindTwice("Shop".to_owned()));
        let refused = again.with_workspaces("Other", WsKind(1), []).unwrap_err();
        assert!(matches!(refused, InvalidApplication::Sequences(_)), "{refused:?}");
        let table = Table::new(known("sys.Mine"), eventlog::TableKind::CDoc);
        let refused = Application::new(Schema::new([table]).unwrap()).unwrap_err();
        assert_eq!(refused, InvalidApplication::System(known("sys.Mine")));
    }
}
