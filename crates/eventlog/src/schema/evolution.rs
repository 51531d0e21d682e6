//! The rules for changing a schema: the records of the earlier schema stay readable.

use super::{IncompatibleSchema, Schema, Table};

impl Schema {
    /// Checks that records of an earlier schema can be read with this one.
    ///
    /// # Errors
    /// Fails with all differences that stored records do not allow.
    pub fn can_follow(&self, earlier: &Schema) -> Result<(), IncompatibleSchema> {
        let differences = earlier.tables().flat_map(|was| match self.table(&was.name) {
            Some(is) => is.differences(was),
            None => vec![IncompatibleSchema::TableGone(was.name.clone())],
        });
        let all = differences.chain(self.lost_sequences(earlier)).collect();
        base::none_of(all, IncompatibleSchema::Several)
    }

    /// The sequences that have not kept their ids. As no sequence is lost, no id is used for
    /// another sequence.
    fn lost_sequences(&self, earlier: &Schema) -> Vec<IncompatibleSchema> {
        let mut lost = Vec::new();
        for (kind, sequences) in &earlier.sequences {
            for (name, id) in sequences {
                if self.sequences.get(kind).and_then(|now| now.get(name)) != Some(id) {
                    lost.push(IncompatibleSchema::Sequence(kind.clone(), name.clone(), *id));
                }
            }
        }
        lost
    }
}

impl Table {
    /// The differences from the earlier table that stored records do not allow.
    fn differences(&self, was: &Table) -> Vec<IncompatibleSchema> {
        let name = || was.name.clone();
        let mut all = Vec::new();
        if self.kind != was.kind {
            all.push(IncompatibleSchema::Kind(name(), was.kind, self.kind));
        } else if self.id != was.id {
            all.push(IncompatibleSchema::Id(name(), was.id.map_or(0, |id| id.0)));
        }
        for (field, held) in &was.fields {
            let field = || field.clone();
            match self.fields.get(&field()) {
                None => all.push(IncompatibleSchema::FieldGone(name(), field())),
                Some(holds) if holds != held => {
                    all.push(IncompatibleSchema::Retyped(name(), field(), *held, *holds));
                }
                Some(_) => {}
            }
        }
        for (field, series) in &was.numbers {
            if self.numbers.get(field) != Some(series) {
                all.push(IncompatibleSchema::Number(name(), field.clone(), series.clone()));
            }
        }
        for (field, sequence) in &was.sequences {
            if self.sequences.get(field) != Some(sequence) {
                let (field, sequence) = (field.clone(), sequence.clone());
                all.push(IncompatibleSchema::SequenceField(name(), field, sequence));
            }
        }
        for (container, records) in &was.containers {
            if self.containers.get(container) != Some(records) {
                let (container, records) = (container.clone(), records.clone());
                all.push(IncompatibleSchema::Container(name(), container, records));
            }
        }
        all
    }
}
