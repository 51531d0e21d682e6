//! The rules of a field, and whether they fit each other.

use std::fmt;

use crate::{FieldType, QName, Value};

/// The rules of a field. Without rules, a field takes any value of its type, and may be empty.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct FieldRules {
    /// Whether the field must have a value.
    pub required: bool,
    /// Whether the value stays as it is once the field has one.
    pub immutable: bool,
    /// The least value of a number.
    pub min: Option<Value>,
    /// The greatest value of a number.
    pub max: Option<Value>,
    /// The largest number of characters of a text, or of bytes.
    pub max_length: Option<u32>,
    /// The values that the field takes. If the list is empty, it takes all others, too.
    pub one_of: Vec<Value>,
    /// The value that a new record gets if its command gives none.
    pub default: Option<Value>,
    /// The tables that a reference may point to. If the list is empty, it may point to all.
    pub to: Vec<QName>,
}

impl FieldRules {
    /// The rule that a change of the field would break, in words that go on after its name.
    pub(super) fn broken(&self, was: Option<&Value>, is: Option<&Value>) -> Option<String> {
        if self.immutable && was.is_some() {
            return Some("has a value already, and is immutable".to_owned());
        }
        match is {
            Some(is) => self.broken_by(is),
            None => self.required.then(|| "must have a value".to_owned()),
        }
    }

    /// The rule that a value breaks.
    fn broken_by(&self, value: &Value) -> Option<String> {
        if let Some(min) = self.min.as_ref().filter(|min| !is_at_most(min, value)) {
            return Some(format!("must be at least {}", Shown(min)));
        }
        if let Some(max) = self.max.as_ref().filter(|max| !is_at_most(value, max)) {
            return Some(format!("must be at most {}", Shown(max)));
        }
        let (length, of) = length(value).unwrap_or_default();
        if let Some(most) = self.max_length.filter(|most| length > *most as usize) {
            return Some(format!("must have at most {most} {of}, and has {length}"));
        }
        if self.one_of.is_empty() || self.one_of.contains(value) {
            return None;
        }
        let known: Vec<String> = self.one_of.iter().map(|one| Shown(one).to_string()).collect();
        Some(format!("must be one of {}", known.join(", ")))
    }

    /// The rules that do not fit the type of the field, or each other.
    pub(super) fn mistakes(&self, holds: FieldType) -> Vec<String> {
        use FieldType::{Bytes, Ref, String};
        let mut mistakes = Vec::new();
        let mut refuse = |is_wrong: bool, why: &str| {
            if is_wrong {
                mistakes.push(why.to_owned());
            }
        };
        let has_range = self.min.is_some() || self.max.is_some();
        refuse(has_range && !holds.is_number(), "only a number can have `min` and `max`");
        let has_length = matches!(holds, String | Bytes);
        refuse(
            self.max_length.is_some() && !has_length,
            "only a text or bytes can have `max_length`",
        );
        let values = self.min.iter().chain(&self.max).chain(&self.one_of).chain(&self.default);
        let is_foreign = values.clone().any(|value| value.field_type() != holds);
        refuse(is_foreign, "a value of its rules has another type than the field");
        let is_given = self.default.is_some() || !self.one_of.is_empty();
        refuse(
            is_given && matches!(holds, Ref | Bytes),
            "a reference and bytes have neither `default` nor `one_of`",
        );
        refuse(!self.to.is_empty() && holds != Ref, "only a reference can have `to`");
        let is_finite = |value: &Value| match value {
            Value::Float32(number) => number.is_finite(),
            Value::Float64(number) => number.is_finite(),
            _ => true,
        };
        refuse(!values.clone().all(is_finite), "a value of its rules is not a finite number");
        if let (Some(min), Some(max)) = (&self.min, &self.max) {
            refuse(!is_at_most(min, max), "`min` is above `max`");
        }
        let one_of = self.one_of.iter().map(|value| ("one_of", value));
        for (rule, value) in one_of.chain(self.default.iter().map(|value| ("default", value))) {
            if let Some(why) = self.broken_by(value) {
                mistakes.push(format!("the value {} of `{rule}` {why}", Shown(value)));
            }
        }
        mistakes
    }
}

/// Whether a number is at most another one of the same type. NaN never is.
fn is_at_most(one: &Value, other: &Value) -> bool {
    match (one, other) {
        (Value::Int32(one), Value::Int32(other)) => one <= other,
        (Value::Int64(one), Value::Int64(other)) => one <= other,
        (Value::Float32(one), Value::Float32(other)) => one <= other,
        (Value::Float64(one), Value::Float64(other)) => one <= other,
        // Another message says that the types differ.
        _ => true,
    }
}

/// The length of a value, and of what.
fn length(value: &Value) -> Option<(usize, &'static str)> {
    match value {
        Value::String(text) => Some((text.chars().count(), "characters")),
        Value::Bytes(bytes) => Some((bytes.len(), "bytes")),
        _ => None,
    }
}

/// A value of a rule, as a message shows it.
struct Shown<'v>(&'v Value);

impl fmt::Display for Shown<'_> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self.0 {
            Value::Bool(value) => value.fmt(f),
            Value::Int32(value) => value.fmt(f),
            Value::Int64(value) => value.fmt(f),
            Value::Float32(value) => value.fmt(f),
            Value::Float64(value) => value.fmt(f),
            Value::String(value) => write!(f, "`{value}`"),
            Value::Bytes(value) => write!(f, "{} bytes", value.len()),
            Value::QName(value) => write!(f, "`{value}`"),
            Value::Ref(value) => value.0.fmt(f),
        }
    }
}
