//! What the fields of a record hold.

use std::{fmt, ops::Index};

use crate::{Name, Value};

/// What the fields of a record hold, by name, ascending; a field that holds nothing is not there. Records have few fields, so this is a list: it takes little
/// memory, and what is sought is found at once.
#[derive(Clone, Default, PartialEq)]
pub struct Fields(Vec<(Name, Value)>);

impl Fields {
    /// None.
    pub fn new() -> Fields {
        Fields::default()
    }

    fn place(&self, name: &str) -> Result<usize, usize> {
        // Those that come in order are the rule.
        match self.0.last() {
            Some((last, _)) if last.as_str() < name => Err(self.0.len()),
            None => Err(0),
            Some(_) => self.0.binary_search_by(|(known, _)| known.as_str().cmp(name)),
        }
    }

    /// What a field holds.
    pub fn get(&self, name: &str) -> Option<&Value> {
        self.place(name).ok().map(|place| &self.0[place].1)
    }

    /// Lets a field hold something; what it held before comes back.
    pub fn insert(&mut self, name: Name, value: Value) -> Option<Value> {
        match self.place(name.as_str()) {
            Ok(place) => Some(std::mem::replace(&mut self.0[place].1, value)),
            Err(place) => {
                self.0.insert(place, (name, value));
                None
            }
        }
    }

    /// Lets a field hold nothing; what it held before comes back.
    pub fn remove(&mut self, name: &str) -> Option<Value> {
        self.place(name).ok().map(|place| self.0.remove(place).1)
    }

    /// How many hold something.
    pub fn len(&self) -> usize {
        self.0.len()
    }

    /// Whether none does.
    pub fn is_empty(&self) -> bool {
        self.0.is_empty()
    }

    /// All, by name.
    pub fn iter(&self) -> impl ExactSizeIterator<Item = (&Name, &Value)> {
        self.0.iter().map(|(name, value)| (name, value))
    }

    /// What they hold, to change it.
    pub fn values_mut(&mut self) -> impl Iterator<Item = &mut Value> {
        self.0.iter_mut().map(|(_, value)| value)
    }
}

impl fmt::Debug for Fields {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_map().entries(self.iter()).finish()
    }
}

/// Of several with one name the last counts.
impl FromIterator<(Name, Value)> for Fields {
    fn from_iter<I: IntoIterator<Item = (Name, Value)>>(fields: I) -> Fields {
        let fields = fields.into_iter();
        let mut all = Fields(Vec::with_capacity(fields.size_hint().0));
        for (name, value) in fields {
            all.insert(name, value);
        }
        all
    }
}

impl<const N: usize> From<[(Name, Value); N]> for Fields {
    fn from(fields: [(Name, Value); N]) -> Fields {
        fields.into_iter().collect()
    }
}

impl Index<&str> for Fields {
    type Output = Value;

    /// # Panics
    /// If the field holds nothing.
    fn index(&self, name: &str) -> &Value {
        self.get(name).unwrap_or_else(|| panic!("the field `{name}` holds nothing"))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn name(name: &str) -> Name {
        name.parse().unwrap()
    }

    #[test]
    fn fields_are_found_by_name_and_come_by_name() {
        let mut fields: Fields = [("b", 1), ("a", 2), ("c", 3), ("b", 4)]
            .map(|(field, value)| (name(field), Value::Int32(value)))
            .into();
        let all = fields.iter().map(|(name, value)| (name.as_str(), value.clone()));
        let expected = [("a", 2), ("b", 4), ("c", 3)];
        assert!(all.eq(expected.map(|(name, value)| (name, Value::Int32(value)))), "{fields:?}");
        assert_eq!((fields.get("b"), fields.get("bb")), (Some(&Value::Int32(4)), None));
        assert_eq!(fields.insert(name("bb"), Value::Bool(true)), None);
        assert_eq!(fields.remove("b"), Some(Value::Int32(4)));
        assert_eq!(fields.remove("b"), None);
        assert_eq!((fields.len(), &fields["bb"]), (3, &Value::Bool(true)));
        for field in ["a", "bb", "c"] {
            assert!(fields.remove(field).is_some());
        }
        assert!(fields.is_empty() && fields == Fields::new());
    }
}
