//! The values of a record's fields.

use std::{fmt, ops::Index};

use crate::{Name, Value};

/// The values of a record's fields, ascending by name. Fields without a value are absent.
///
/// Records have few fields, so this is a list: it takes little memory, and a field is found fast.
#[derive(Clone, Default, PartialEq)]
pub struct Fields(Vec<(Name, Value)>);

impl Fields {
    /// Makes an empty list of fields.
    pub fn new() -> Fields {
        Fields::default()
    }

    fn place(&self, name: &str) -> Result<usize, usize> {
        // Names usually come in ascending order.
        match self.0.last() {
            Some((last, _)) if last.as_str() < name => Err(self.0.len()),
            None => Err(0),
            Some(_) => self.0.binary_search_by(|(known, _)| known.as_str().cmp(name)),
        }
    }

    /// Returns the value of a field.
    pub fn get(&self, name: &str) -> Option<&Value> {
        self.place(name).ok().map(|place| &self.0[place].1)
    }

    /// Returns the value of a field, to change it.
    pub fn get_mut(&mut self, name: &str) -> Option<&mut Value> {
        self.place(name).ok().map(|place| &mut self.0[place].1)
    }

    /// Sets the value of a field, and returns the former value.
    pub fn insert(&mut self, name: Name, value: Value) -> Option<Value> {
        match self.place(name.as_str()) {
            Ok(place) => Some(std::mem::replace(&mut self.0[place].1, value)),
            Err(place) => {
                self.0.insert(place, (name, value));
                None
            }
        }
    }

    /// Removes the value of a field, and returns the former value.
    pub fn remove(&mut self, name: &str) -> Option<Value> {
        self.place(name).ok().map(|place| self.0.remove(place).1)
    }

    /// Returns the number of fields with a value.
    pub fn len(&self) -> usize {
        self.0.len()
    }

    /// Returns whether no field has a value.
    pub fn is_empty(&self) -> bool {
        self.0.is_empty()
    }

    /// Returns all fields, by name.
    pub fn iter(&self) -> impl ExactSizeIterator<Item = (&Name, &Value)> {
        self.0.iter().map(|(name, value)| (name, value))
    }

    /// Returns all fields, by name, to change their values.
    pub(crate) fn iter_mut(&mut self) -> impl Iterator<Item = (&Name, &mut Value)> {
        self.0.iter_mut().map(|(name, value)| (&*name, value))
    }

    /// Returns the values, to change them.
    pub fn values_mut(&mut self) -> impl Iterator<Item = &mut Value> {
        self.0.iter_mut().map(|(_, value)| value)
    }
}

impl fmt::Debug for Fields {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_map().entries(self.iter()).finish()
    }
}

/// If a name occurs several times, its last value counts.
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
    /// Panics if the field has no value.
    fn index(&self, name: &str) -> &Value {
        self.get(name).unwrap_or_else(|| panic!("the field `{name}` has no value"))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn name(name: &str) -> Name {
        name.parse().unwrap()
    }

    #[test]
    fn fields_are_found_and_listed_by_name() {
        let mut fields: Fields = [("b", 1), ("a", 2), ("c", 3), ("b", 4)]
            .map(|(field, value)| (name(field), Value::Int32(value)))
            .into();
        let all = fields.iter().map(|(name, value)| (name.as_str(), value.clone()));
        let expected = [("a", 2), ("b", 4), ("c", 3)];
        assert!(all.eq(expected.map(|(name, value)| (name, Value::Int32(value)))), "{fields:?}");
        assert_eq!((fields.get("b"), fields.get("bb")), (Some(&Value::Int32(4)), None));
        *fields.get_mut("b").unwrap() = Value::Int32(5);
        assert!(fields.get_mut("bb").is_none());
        assert_eq!(fields["b"], Value::Int32(5));
        assert_eq!(fields.insert(name("bb"), Value::Bool(true)), None);
        assert_eq!(fields.remove("b"), Some(Value::Int32(5)));
        assert_eq!(fields.remove("b"), None);
        assert_eq!((fields.len(), &fields["bb"]), (3, &Value::Bool(true)));
        for field in ["a", "bb", "c"] {
            assert!(fields.remove(field).is_some());
        }
        assert!(fields.is_empty() && fields == Fields::new());
    }
}
