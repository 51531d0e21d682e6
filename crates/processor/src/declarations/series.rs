//! The series of document numbers of an application.

use docnumbers::{Scope, Series, SeriesId};
use eventlog::{AppRow, RecordId, SINGLETON_IDS, Schema, Table};

use super::{Declarations, DeclaredSeries, InvalidApplication, SeriesPolicy, mistakes_in};
use crate::system_tables::{DESCRIPTOR_ID, counter_table};

impl Declarations {
    /// Adds a series of document numbers. A gapless series adds a singleton of the system, its
    /// counter record, to the tables.
    ///
    /// # Errors
    /// If the application has a series of that id, if a gapless series has the scope of the
    /// application, or if its counter record has the id of another singleton.
    pub fn with_series(
        mut self,
        series: Series,
        policy: SeriesPolicy,
    ) -> Result<Declarations, InvalidApplication> {
        let id = series.id().clone();
        if self.series.contains_key(id.as_str()) {
            return Err(InvalidApplication::SeriesTwice(id));
        }
        if let SeriesPolicy::Gapless { counter } = policy {
            if series.definition().scope == Scope::Application {
                return Err(InvalidApplication::GaplessScope(id));
            }
            let (start, step) = (series.definition().start, series.definition().step);
            if start.checked_add(step).is_none_or(|second| i64::try_from(second).is_err()) {
                return Err(InvalidApplication::GaplessStart(id));
            }
            if let Some(other) = self.series().find(|other| other.policy == policy) {
                let other = other.series.id().clone();
                return Err(InvalidApplication::CounterTwice(other, id, counter));
            }
            self.schema = self.schema.with_table(counter_table(counter, &id))?;
        }
        self.series.insert(id.to_string(), DeclaredSeries { series, policy });
        Ok(self)
    }

    /// The series of the application, by id.
    pub fn series(&self) -> impl Iterator<Item = &DeclaredSeries> {
        self.series.values()
    }

    /// The series of an id.
    pub fn find_series(&self, id: &SeriesId) -> Option<&DeclaredSeries> {
        self.series.get(id.as_str())
    }

    /// Checks that each number field of a table is of a gapless series, and that a kind of
    /// workspaces has the sequence of each sequence field. Series and sequences are declared after
    /// the tables, so call this before the application is deployed. A command that creates a row of
    /// a table with a wrong field is rejected.
    ///
    /// # Errors
    /// All wrong fields.
    pub fn check_number_fields(&self) -> Result<(), InvalidApplication> {
        base::none_of(self.wrong_fields(&self.schema), InvalidApplication::Several)
    }

    /// All mistakes of tables that an application with these series and sequences would have,
    /// besides those of the tables themselves.
    pub fn mistakes_of(&self, tables: &Schema) -> Vec<InvalidApplication> {
        let mut mistakes = mistakes_in(tables);
        mistakes.extend(self.wrong_fields(tables));
        mistakes
    }

    fn wrong_fields(&self, tables: &Schema) -> Vec<InvalidApplication> {
        let mut wrong = Vec::new();
        for table in tables.tables() {
            wrong.extend(self.wrong_sequence_fields(table));
            for (field, series) in table.numbers() {
                let why = match self.series.get(series).map(|declared| &declared.policy) {
                    Some(SeriesPolicy::Gapless { .. }) => continue,
                    Some(SeriesPolicy::Fast(_)) => InvalidApplication::FastSeries,
                    None => InvalidApplication::UnknownSeries,
                };
                wrong.push(why(table.name().clone(), field.clone(), series.clone()));
            }
        }
        wrong
    }

    /// The series of a number field.
    pub(crate) fn series_of_field(&self, series: &str) -> Option<&DeclaredSeries> {
        self.series.get(series)
    }

    /// The counter records that a new row of a table needs.
    pub(crate) fn counters_of<'a>(
        &'a self,
        table: &'a Table,
    ) -> impl Iterator<Item = RecordId> + 'a {
        table.numbers().values().filter_map(|series| match self.series.get(series)?.policy {
            SeriesPolicy::Gapless { counter } => Some(counter),
            SeriesPolicy::Fast(_) => None,
        })
    }

    /// Whether only commands of the system write this record.
    pub(crate) fn is_record_of_system(&self, id: RecordId) -> bool {
        id == DESCRIPTOR_ID || self.is_counter_id(id)
    }

    /// Whether a row is the counter record of a gapless series.
    pub(crate) fn is_counter(&self, row: AppRow) -> bool {
        matches!(row, AppRow::Record(_, id) if self.is_counter_id(id))
    }

    fn is_counter_id(&self, id: RecordId) -> bool {
        let is_counter = |declared: &DeclaredSeries| matches!(declared.policy, SeriesPolicy::Gapless { counter } if counter == id);
        SINGLETON_IDS.contains(&id.0) && self.series().any(is_counter)
    }
}

#[cfg(test)]
mod tests {
    use docnumbers::{Definition, FastSettings};
    use eventlog::{InvalidSchema, Name, QName, Schema};

    use super::*;
    use crate::system_tables::known;

    const GAPLESS: SeriesPolicy = SeriesPolicy::Gapless { counter: RecordId(65_601) };

    fn series(id: &str, scope: Scope) -> Series {
        Series::new(Definition { scope, ..Definition::new(id, "A{counter:4}") }).unwrap()
    }

    fn with(policies: &[(&str, SeriesPolicy)]) -> Result<Declarations, InvalidApplication> {
        let shop = Declarations::new(Schema::default()).unwrap();
        policies.iter().try_fold(shop, |shop, (id, policy)| {
            shop.with_series(series(id, Scope::Workspace), policy.clone())
        })
    }

    #[test]
    fn a_gapless_series_has_a_counter_record_and_a_fast_one_has_none() {
        let fast = SeriesPolicy::Fast(FastSettings::default());
        let shop = with(&[("order", fast.clone()), ("bill", GAPLESS)]).unwrap();
        let ids: Vec<_> = shop.series().map(|declared| declared.series.id().as_str()).collect();
        assert_eq!(ids, ["bill", "order"]);
        let order = "ORDER".parse().unwrap();
        assert_eq!(shop.find_series(&order).unwrap().policy, fast);
        assert!(shop.find_series(&"offer".parse().unwrap()).is_none());
        let name: QName = "sys.NumberCounter65601".parse().unwrap();
        let counter = shop.schema().table(&name).unwrap();
        assert_eq!(counter.singleton_id(), Some(RecordId(65_601)));
        let fields: Vec<_> = counter.fields().keys().map(Name::as_str).collect();
        assert_eq!(fields, ["next", "period"]);
        assert_eq!(counter.numbers()["series"], "bill");
        assert_eq!(shop.schema().tables().count(), 2, "the descriptor, and one counter record");
    }

    /// Two series swapped their records, or a new series took the record of another one. The first
    /// series started again in each workspace that had no record of the other one.
    #[test]
    fn a_counter_record_stays_with_its_series() {
        let gapless = |counter| SeriesPolicy::Gapless { counter: RecordId(counter) };
        let with = |series: &[(&str, u64)]| {
            let series: Vec<_> = series.iter().map(|(id, at)| (*id, gapless(*at))).collect();
            with(&series).unwrap()
        };
        let deployed = with(&[("bill", 65_601), ("cash", 65_602)]);
        for (next, is_right) in [
            (vec![("bill", 65_601), ("cash", 65_602)], true),
            (vec![("bill", 65_601), ("cash", 65_602), ("fee", 65_603)], true),
            (vec![("bill", 65_602), ("cash", 65_601)], false),
            (vec![("bill", 65_603), ("cash", 65_602), ("fee", 65_601)], false),
            (vec![("bill", 65_603), ("cash", 65_602)], false),
            (vec![("cash", 65_602), ("fee", 65_601)], false),
            (vec![("cash", 65_602)], false),
        ] {
            let follows = with(&next).schema().can_follow(deployed.schema());
            assert_eq!(follows.is_ok(), is_right, "{next:?}: {follows:?}");
        }
    }

    #[test]
    fn two_series_do_not_share_an_id_or_a_counter() {
        let fast = SeriesPolicy::Fast(FastSettings::default());
        let [a, b] = ["a", "b"].map(|id| id.parse::<SeriesId>().unwrap());
        let twice = with(&[("a", fast.clone()), ("A", GAPLESS)]).unwrap_err();
        assert_eq!(twice, InvalidApplication::SeriesTwice(a.clone()));
        let shared = with(&[("a", GAPLESS), ("b", GAPLESS)]).unwrap_err();
        assert_eq!(shared, InvalidApplication::CounterTwice(a, b, RecordId(65_601)));
        assert!(with(&[("a", fast.clone()), ("b", fast)]).is_ok());
        let descriptor = SeriesPolicy::Gapless { counter: DESCRIPTOR_ID };
        let refused = with(&[("a", descriptor)]).unwrap_err();
        let InvalidApplication::Schema(InvalidSchema::SameId(_, _, 65_536)) = refused else {
            panic!("{refused}");
        };
    }

    #[test]
    fn a_number_field_is_of_a_gapless_series() {
        let tables = |series: &str| -> Schema {
            let bill = "[tables.\"shop.Bill\"]\nkind = \"WDoc\"\nnumbers = { number = ";
            format!("{bill}\"{series}\" }}").parse().unwrap()
        };
        let checked = |series: &str| {
            let shop = Declarations::new(tables(series)).unwrap();
            let shop = shop.with_series(self::series("bill", Scope::Workspace), GAPLESS).unwrap();
            let fast = SeriesPolicy::Fast(FastSettings::default());
            let shop = shop.with_series(self::series("order", Scope::Workspace), fast).unwrap();
            shop.check_number_fields()
        };
        let (table, field) = (known::<QName>("shop.Bill"), known::<Name>("number"));
        assert_eq!([checked("bill"), checked("BILL")], [Ok(()), Ok(())]);
        let fast = InvalidApplication::FastSeries(table.clone(), field.clone(), "order".to_owned());
        assert_eq!(checked("order"), Err(fast));
        let unknown = InvalidApplication::UnknownSeries(table, field, "offer".to_owned());
        assert_eq!(checked("offer"), Err(unknown));
    }

    #[test]
    fn a_gapless_series_counts_in_each_workspace() {
        let shop = Declarations::new(Schema::default()).unwrap();
        let refused = shop.with_series(series("a", Scope::Application), GAPLESS).unwrap_err();
        assert_eq!(refused, InvalidApplication::GaplessScope("a".parse().unwrap()));
    }
}
