//! What an application declares: its tables, its kinds of workspaces with their sequences, and its
//! series of document numbers.

mod sequences;
mod series;
mod stamps;

use std::collections::BTreeMap;

use docnumbers::{DefinitionError, FastSettings, Series, SeriesId};
use eventlog::{InvalidSchema, Name, QName, RecordId, Schema, Table};
use isequencer::{BadSequences, SeqId, Sequence, Sequences, WsKind, standard};

use self::stamps::StampDates;
use crate::system_tables::descriptor_table;

/// What an application declares: its tables, its kinds of workspaces with their sequences, and its
/// series of document numbers.
///
/// ```
/// use eventlog::Schema;
/// use isequencer::WsKind;
/// use processor::Declarations;
///
/// let schema: Schema = r#"
/// [tables."shop.Article"]
/// kind = "CDoc"
/// fields = { name = "string" }
/// "#
/// .parse()?;
/// let shop = Declarations::new(schema)?.with_workspaces("Shop", WsKind(1), [])?;
/// # Ok::<(), Box<dyn std::error::Error>>(())
/// ```
#[derive(Debug)]
pub struct Declarations {
    schema: Schema,
    kinds: BTreeMap<String, WsKind>,
    /// The sequences that the application declares.
    declared: Vec<DeclaredSequence>,
    /// All sequences, including the standard ones.
    sequences: Sequences,
    /// The series, by id.
    series: BTreeMap<String, DeclaredSeries>,
    stamp_dates: StampDates,
}

/// A sequence of the workspaces of a kind.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct DeclaredSequence {
    /// The name of the kind.
    pub kind: String,
    /// The name of the sequence. Other kinds may have a sequence of the same name.
    pub name: Name,
    /// The id that the last numbers are stored under, and the ranges.
    pub sequence: Sequence,
}

/// How a series draws its counters.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum SeriesPolicy {
    /// The node reserves ranges of counters, and draws from memory. A crash may leave gaps.
    Fast(FastSettings),
    /// Commands draw the counters. A number exists exactly if the event of its command does, so the
    /// numbers of a workspace and a period have no gaps.
    Gapless {
        /// The id of the counter record: the singleton of each workspace that holds the counter.
        counter: RecordId,
    },
}

/// A series, and how it draws its counters.
#[derive(Clone, Debug)]
pub struct DeclaredSeries {
    /// The series.
    pub series: Series,
    /// How the series draws its counters.
    pub policy: SeriesPolicy,
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
    /// The pattern or the zone of a date is wrong.
    #[error("the field `{1}` of {0}: {2}")]
    Date(QName, Name, DefinitionError),
}

/// The mistakes of tables that have wrong dates, or that claim names or sequences of the system.
fn mistakes_in(tables: &Schema) -> Vec<InvalidApplication> {
    let (_, dates) = StampDates::of(tables);
    let dates = dates
        .into_iter()
        .map(|(table, field, error)| InvalidApplication::Date(table, field, error));
    let names = tables.tables().map(Table::name).filter(|name| name.package() == "sys");
    let names = names.map(|name| InvalidApplication::System(name.clone()));
    let sequences = !tables.sequences().is_empty();
    let sequences = sequences.then_some(InvalidApplication::SequencesInTables);
    dates.chain(names).chain(sequences).collect()
}

impl Declarations {
    /// Declares these tables.
    ///
    /// # Errors
    /// If tables are in the package `sys`, or if the pattern or the zone of a date is wrong.
    pub fn new(schema: Schema) -> Result<Declarations, InvalidApplication> {
        base::none_of(mistakes_in(&schema), InvalidApplication::Several)?;
        let (stamp_dates, _) = StampDates::of(&schema);
        Ok(Declarations {
            stamp_dates,
            schema: schema.with_table(descriptor_table())?,
            kinds: BTreeMap::new(),
            declared: Vec::new(),
            sequences: Sequences::new(),
            series: BTreeMap::new(),
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
    ) -> Result<Declarations, InvalidApplication> {
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

    /// The tables of the application, including those of the system.
    pub fn schema(&self) -> &Schema {
        &self.schema
    }

    /// The kinds of workspaces, by name.
    pub fn kinds(&self) -> &BTreeMap<String, WsKind> {
        &self.kinds
    }

    pub(crate) fn stamp_dates(&self) -> &StampDates {
        &self.stamp_dates
    }

    pub(crate) fn sequences(&self) -> &Sequences {
        &self.sequences
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::system_tables::known;

    #[test]
    fn an_application_cannot_declare_names_of_the_system() {
        let shop = || Declarations::new(Schema::default()).unwrap();
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
        let refused = Declarations::new(Schema::new([table]).unwrap()).unwrap_err();
        assert_eq!(refused, InvalidApplication::System(known("sys.Mine")));
    }
}
