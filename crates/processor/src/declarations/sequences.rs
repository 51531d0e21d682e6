//! The sequences that an application declares for its kinds of workspaces.

use eventlog::{Name, Table};
use isequencer::{Sequence, WsKind, standard};

use super::{Declarations, DeclaredSequence, InvalidApplication};

impl Declarations {
    /// The sequences that the application declares, by kind of workspaces.
    pub fn declared_sequences(&self) -> &[DeclaredSequence] {
        &self.declared
    }

    /// Declares a sequence of the workspaces of a kind. The schema gets the sequence, too: so the
    /// deployment fixes its id.
    ///
    /// A simpler version does not store the id. The sequence `Receipt` has the id 256 and has given
    /// 1 to 500; the next configuration gives it the id 257; no number is stored under this id, so
    /// the sequence gives 1 to 500 again. Another range is no such danger: the number after the
    /// last number given is never below it.
    pub(super) fn with_sequence(
        mut self,
        kind: &str,
        name: Name,
        sequence: Sequence,
    ) -> Result<Declarations, InvalidApplication> {
        let id = sequence.id();
        if id < standard::FIRST_OF_APPLICATIONS {
            return Err(InvalidApplication::SystemSequence(id));
        }
        let kind = kind.to_owned();
        for other in self.declared.iter().filter(|other| other.kind == kind) {
            if other.name == name {
                return Err(InvalidApplication::SequenceTwice(kind, name));
            }
            if other.sequence.id() == id {
                let other = other.name.clone();
                return Err(InvalidApplication::SequenceIdTwice(kind, other, name, id));
            }
        }
        self.schema = self.schema.with_sequence(&kind, name.clone(), id.0);
        self.declared.push(DeclaredSequence { kind, name, sequence });
        Ok(self)
    }

    /// The sequence of this name that workspaces of a kind have.
    pub(crate) fn find_sequence(&self, kind: WsKind, name: &Name) -> Option<&DeclaredSequence> {
        self.declared.iter().find(|declared| {
            declared.name == *name && self.kinds.get(&declared.kind) == Some(&kind)
        })
    }

    /// The name of a kind of workspaces.
    pub(crate) fn kind_name(&self, kind: WsKind) -> Option<&str> {
        let mut kinds = self.kinds.iter();
        kinds.find_map(|(name, number)| (*number == kind).then_some(name.as_str()))
    }

    /// In a table, the sequence fields whose sequence no kind of workspaces has.
    pub(super) fn wrong_sequence_fields(
        &self,
        table: &Table,
    ) -> impl Iterator<Item = InvalidApplication> {
        let is_declared = |name: &Name| self.declared.iter().any(|one| one.name == *name);
        let fields = table.sequences().iter().filter(move |(_, sequence)| !is_declared(sequence));
        let name = table.name();
        fields.map(move |(field, sequence)| {
            InvalidApplication::UnknownSequence(name.clone(), field.clone(), sequence.clone())
        })
    }
}

#[cfg(test)]
mod tests {
    use eventlog::{QName, Schema};
    use isequencer::SeqId;

    use super::*;
    use crate::system_tables::known;

    fn sequence(name: &str, id: u16) -> (Name, Sequence) {
        (known(name), Sequence::counting_from(SeqId(id), 1).unwrap())
    }

    fn shop(tables: &str, sequences: &[(&str, u16)]) -> Result<Declarations, InvalidApplication> {
        let sequences = sequences.iter().map(|(name, id)| sequence(name, *id));
        let shop = Declarations::new(tables.parse().unwrap())?;
        shop.with_workspaces("Shop", WsKind(1), sequences)
    }

    #[test]
    fn two_sequences_of_a_kind_do_not_share_a_name_or_an_id() {
        let shop = |sequences: &[(&str, u16)]| shop("[tables]", sequences);
        let (kind, receipt, visit) = ("Shop".to_owned(), known("Receipt"), known("Visit"));
        let twice = shop(&[("Receipt", 256), ("Receipt", 257)]).unwrap_err();
        let expected = InvalidApplication::SequenceTwice(kind.clone(), known("Receipt"));
        assert_eq!(twice, expected);
        let shared = shop(&[("Receipt", 256), ("Visit", 256)]).unwrap_err();
        let expected = InvalidApplication::SequenceIdTwice(kind, receipt, visit, SeqId(256));
        assert_eq!(shared, expected);
        let both = shop(&[("Receipt", 256), ("Visit", 257)]).unwrap();
        let store = [sequence("Receipt", 300), sequence("Rent", 256)];
        let both = both.with_workspaces("Store", WsKind(2), store).unwrap();
        let found = |kind, name: &str| {
            both.find_sequence(WsKind(kind), &known(name)).map(|found| found.sequence.id().0)
        };
        assert_eq!([found(1, "Receipt"), found(2, "Receipt")], [Some(256), Some(300)]);
        assert_eq!([found(1, "Rent"), found(2, "Rent"), found(3, "Rent")], [None, Some(256), None]);
    }

    /// A sequence with another id would begin again. A sequence with the id of another one would go
    /// on after the numbers of the other one.
    #[test]
    fn a_deployed_sequence_keeps_its_id() {
        let with = |sequences: &[(&str, u16)]| shop("[tables]", sequences).unwrap();
        let deployed = with(&[("Receipt", 256), ("Visit", 257)]);
        for (next, is_right) in [
            (vec![("Visit", 257), ("Receipt", 256)], true),
            (vec![("Receipt", 256), ("Visit", 257), ("Rent", 258)], true),
            (vec![("Receipt", 257), ("Visit", 256)], false),
            (vec![("Receipt", 258), ("Visit", 257)], false),
            (vec![("Receipt", 256)], false),
            (vec![("Receipt", 256), ("Rent", 257)], false),
        ] {
            let follows = with(&next).schema().can_follow(deployed.schema());
            assert_eq!(follows.is_ok(), is_right, "{next:?}: {follows:?}");
        }
        let range = Sequence::within(SeqId(256), 500..600).unwrap();
        let (visit, shop) = (sequence("Visit", 257), Declarations::new(Schema::default()).unwrap());
        let ranges = [(known("Receipt"), range), visit];
        let other = shop.with_workspaces("Shop", WsKind(7), ranges).unwrap();
        other.schema().can_follow(deployed.schema()).unwrap();
    }

    #[test]
    fn a_sequence_field_is_of_a_declared_sequence() {
        let tables = "[tables.\"shop.Bill\"]\nkind = \"WDoc\"\nsequences = { no = \"Receipt\" }";
        assert_eq!(shop(tables, &[("Receipt", 256)]).unwrap().check_number_fields(), Ok(()));
        let (table, field) = (known::<QName>("shop.Bill"), known::<Name>("no"));
        let unknown = InvalidApplication::UnknownSequence(table, field, known("Receipt"));
        let checked = shop(tables, &[("receipt", 256)]).unwrap().check_number_fields();
        assert_eq!(checked, Err(unknown), "the case matters, as in all names");
        let stored = "[tables]\n[sequences.Shop]\nReceipt = 256";
        let refused = shop(stored, &[]).unwrap_err();
        assert_eq!(refused, InvalidApplication::SequencesInTables);
    }
}
