//! The rules by which a schema may change: the records of the earlier schema stay readable.

use super::{IncompatibleSchema, Schema};

impl Schema {
    /// Checks that records of an earlier schema can be read with this one.
    ///
    /// # Errors
    /// Fails with the first difference that stored records do not allow.
    pub fn can_follow(&self, earlier: &Schema) -> Result<(), IncompatibleSchema> {
        for was in earlier.tables() {
            let name = || was.name.clone();
            let is = self.table(&was.name).ok_or_else(|| IncompatibleSchema::TableGone(name()))?;
            if is.kind != was.kind {
                return Err(IncompatibleSchema::Kind(name(), was.kind, is.kind));
            }
            if is.id != was.id {
                return Err(IncompatibleSchema::Id(name(), was.id.map_or(0, |id| id.0)));
            }
            for (field, held) in &was.fields {
                match is.fields.get(field) {
                    None => return Err(IncompatibleSchema::FieldGone(name(), field.clone())),
                    Some(holds) if holds != held => {
                        let field = field.clone();
                        return Err(IncompatibleSchema::Retyped(name(), field, *held, *holds));
                    }
                    Some(_) => {}
                }
            }
            for (field, series) in &was.numbers {
                if is.numbers.get(field) != Some(series) {
                    let (field, series) = (field.clone(), series.clone());
                    return Err(IncompatibleSchema::Number(name(), field, series));
                }
            }
            for (field, sequence) in &was.sequences {
                if is.sequences.get(field) != Some(sequence) {
                    let (field, sequence) = (field.clone(), sequence.clone());
                    return Err(IncompatibleSchema::SequenceField(name(), field, sequence));
                }
            }
            for (container, records) in &was.containers {
                if is.containers.get(container) != Some(records) {
                    return Err(IncompatibleSchema::Container(
                        name(),
                        container.clone(),
                        records.clone(),
                    ));
                }
            }
        }
        self.keeps_sequences_of(earlier)
    }

    /// Checks that each sequence keeps its id. As no sequence is lost, no id is used for another
    /// sequence.
    fn keeps_sequences_of(&self, earlier: &Schema) -> Result<(), IncompatibleSchema> {
        for (kind, sequences) in &earlier.sequences {
            for (name, id) in sequences {
                if self.sequences.get(kind).and_then(|now| now.get(name)) != Some(id) {
                    return Err(IncompatibleSchema::Sequence(kind.clone(), name.clone(), *id));
                }
            }
        }
        Ok(())
    }
}
