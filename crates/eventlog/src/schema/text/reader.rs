//! Reading the text of a schema.
//!
//! All mistakes are found at once. serde ends at the first mistake, so each value is read by
//! itself.

use std::{
    collections::{BTreeMap, BTreeSet},
    fmt::Display,
    ops::Range,
    str::FromStr,
};

use serde::de::DeserializeOwned;
use toml::{
    Spanned,
    de::{DeString, DeTable, DeValue, ValueDeserializer},
};

use crate::{
    FieldType, Name, QName, RecordId, Value,
    schema::{FieldRules, InvalidSchema, Schema, Stamp, Table},
};

/// A key and its value.
type Entry<'t> = (Spanned<DeString<'t>>, Spanned<DeValue<'t>>);

/// Does what [`Schema::read`] promises.
pub(super) fn read(text: &str) -> (Schema, Vec<InvalidSchema>) {
    let root = match DeTable::parse(text) {
        Ok(root) => root,
        Err(error) => {
            let at = error.span().unwrap_or_default();
            return (Schema::default(), vec![mistake(text, at, error.message())]);
        }
    };
    let mut reader = TablesReader { text, mistakes: Vec::new(), unread: BTreeSet::new() };
    let (mut schema, span) = (Schema::default(), root.span());
    let mut has_tables = false;
    for (key, value) in by_place(root.into_inner()) {
        match &**key.get_ref() {
            "tables" => {
                has_tables = true;
                let tables = reader.tables(value);
                schema.tables =
                    tables.into_iter().map(|table| (table.name.clone(), table)).collect();
            }
            "sequences" => schema.sequences = reader.sequences(value),
            _ => reader.unknown(&key, &["tables", "sequences"]),
        }
    }
    if !has_tables {
        reader.note(span, "missing key `tables`");
    }
    let TablesReader { mut mistakes, unread, .. } = reader;
    mistakes.extend(schema.mistakes().into_iter().filter(|mistake| match mistake {
        InvalidSchema::UnknownTable(_, _, records) => !unread.contains(records),
        _ => true,
    }));
    (schema, mistakes)
}

fn mistake(text: &str, at: Range<usize>, why: impl Display) -> InvalidSchema {
    let before = text.get(..at.start).unwrap_or(text);
    let line = 1 + before.matches('\n').count();
    let column = 1 + before.chars().rev().take_while(|&char| char != '\n').count();
    InvalidSchema::Text(format!("line {line}, column {column}: {why}"))
}

/// A field as the text has it.
struct FieldText {
    holds: FieldType,
    rules: FieldRules,
    stamp: Option<Stamp>,
}

#[derive(serde::Deserialize)]
#[serde(rename_all = "lowercase")]
enum StampText {
    Created,
    Changed,
}

struct TablesReader<'t> {
    text: &'t str,
    mistakes: Vec<InvalidSchema>,
    /// The tables whose kind or id cannot be read. Containers may name them.
    unread: BTreeSet<QName>,
}

impl<'t> TablesReader<'t> {
    fn note(&mut self, at: Range<usize>, why: impl Display) {
        self.mistakes.push(mistake(self.text, at, why));
    }

    fn unknown(&mut self, key: &Spanned<DeString<'t>>, known: &[&str]) {
        let known = known.join("`, `");
        let why = format!("unknown key `{}`, expected one of `{known}`", key.get_ref());
        self.note(key.span(), why);
    }

    /// The entries of a value that must be a table, in the order of the text.
    fn entries(&mut self, value: Spanned<DeValue<'t>>) -> Vec<Entry<'t>> {
        let span = value.span();
        match value.into_inner() {
            DeValue::Table(table) => by_place(table),
            other => {
                let found = other.type_str();
                self.note(span, format!("a table is expected here, and this is of type {found}"));
                Vec::new()
            }
        }
    }

    fn name<N: FromStr<Err: Display>>(&mut self, key: &Spanned<DeString<'t>>) -> Option<N> {
        key.get_ref().parse().map_err(|error| self.note(key.span(), error)).ok()
    }

    fn value<T: DeserializeOwned>(&mut self, value: Spanned<DeValue<'t>>) -> Option<T> {
        let span = value.span();
        let read = T::deserialize(ValueDeserializer::from(value));
        read.map_err(|error| self.note(error.span().unwrap_or(span), error.message())).ok()
    }

    /// Names with values.
    fn values<T: DeserializeOwned>(&mut self, value: Spanned<DeValue<'t>>) -> BTreeMap<Name, T> {
        let entries = self.entries(value).into_iter();
        entries.filter_map(|(key, value)| self.name(&key).zip(self.value(value))).collect()
    }

    fn sequences(&mut self, value: Spanned<DeValue<'t>>) -> BTreeMap<String, BTreeMap<Name, u16>> {
        let kinds = self.entries(value).into_iter();
        kinds.map(|(kind, value)| (kind.get_ref().to_string(), self.values(value))).collect()
    }

    fn tables(&mut self, value: Spanned<DeValue<'t>>) -> Vec<Table> {
        let tables = self.entries(value).into_iter();
        tables.filter_map(|(key, value)| self.table(&key, value)).collect()
    }

    /// A table; `None` if its name, its kind or its id cannot be read.
    fn table(&mut self, key: &Spanned<DeString<'t>>, value: Spanned<DeValue<'t>>) -> Option<Table> {
        const KEYS: [&str; 7] =
            ["kind", "id", "append_only", "fields", "numbers", "sequences", "containers"];
        let name = self.name::<QName>(key);
        let (mut kind, mut id) = (None, None);
        let (mut fields, mut containers) = (Vec::new(), BTreeMap::new());
        let mut is_append_only = false;
        let (mut numbers, mut sequences) = (BTreeMap::<_, String>::new(), BTreeMap::new());
        for (key, value) in self.entries(value) {
            match &**key.get_ref() {
                "kind" => kind = Some(self.value(value)),
                "id" => id = Some(self.value(value)),
                "append_only" => is_append_only = self.value(value).unwrap_or_default(),
                "fields" => fields = self.fields(value),
                "numbers" => numbers = self.values(value),
                "sequences" => sequences = self.values(value),
                "containers" => containers = self.values(value),
                _ => self.unknown(&key, &KEYS),
            }
        }
        if kind.is_none() {
            self.note(key.span(), "missing key `kind`");
        }
        let name = name?;
        let (Some(Some(kind)), None | Some(Some(_))) = (kind, id) else {
            self.unread.insert(name);
            return None;
        };
        let id = id.flatten().map(RecordId);
        numbers.values_mut().for_each(|series| series.make_ascii_lowercase());
        let mut table = Table { numbers, sequences, containers, ..Table::new(name, kind) };
        (table.id, table.is_append_only) = (id, is_append_only);
        for (name, FieldText { holds, rules, stamp }) in fields {
            if rules != FieldRules::default() {
                table.rules.insert(name.clone(), rules);
            }
            table.stamps.extend(stamp.map(|stamp| (name.clone(), stamp)));
            table.fields.insert(name, holds);
        }
        Some(table)
    }

    /// Fields, each as its type alone, or as a table with its type and its rules.
    fn fields(&mut self, value: Spanned<DeValue<'t>>) -> Vec<(Name, FieldText)> {
        let mut fields = Vec::new();
        for (key, value) in self.entries(value) {
            let name = self.name(&key);
            let field = match value.get_ref() {
                DeValue::Table(_) => self.field(&key, value),
                _ => self.value(value).map(|holds| FieldText {
                    holds,
                    rules: FieldRules::default(),
                    stamp: None,
                }),
            };
            fields.extend(name.zip(field));
        }
        fields
    }

    fn field(
        &mut self,
        key: &Spanned<DeString<'t>>,
        value: Spanned<DeValue<'t>>,
    ) -> Option<FieldText> {
        const KEYS: [&str; 13] = [
            "type",
            "required",
            "immutable",
            "min",
            "max",
            "max_length",
            "one_of",
            "default",
            "to",
            "stamp",
            "from",
            "format",
            "zone",
        ];
        // The values of the rules have the type of the field.
        let (mut of_type, rest): (Vec<_>, Vec<_>) =
            self.entries(value).into_iter().partition(|(key, _)| &**key.get_ref() == "type");
        let Some((_, holds)) = of_type.pop() else {
            self.note(key.span(), "missing key `type`");
            return None;
        };
        let holds: FieldType = self.value(holds)?;
        let mut rules = FieldRules::default();
        let (mut stamp, mut of, mut format, mut zone) = (None, None, None, None);
        for (key, value) in rest {
            match &**key.get_ref() {
                "required" => rules.required = self.value(value).unwrap_or_default(),
                "immutable" => rules.immutable = self.value(value).unwrap_or_default(),
                "min" | "max" if !holds.is_number() => {
                    let span = value.span();
                    self.note(span, "only a number can have `min` and `max`");
                }
                "min" => rules.min = self.rule_value(holds, value),
                "max" => rules.max = self.rule_value(holds, value),
                "max_length" => rules.max_length = self.value(value),
                "one_of" => rules.one_of = self.rule_values(holds, value),
                "default" => rules.default = self.rule_value(holds, value),
                "to" => rules.to = self.tables_of_reference(value),
                "stamp" => stamp = self.value::<StampText>(value),
                "from" => of = self.value::<Name>(value),
                "format" => format = self.value::<String>(value),
                "zone" => zone = self.value::<String>(value),
                _ => self.unknown(&key, &KEYS),
            }
        }
        let is_bare = of.is_none() && format.is_none() && zone.is_none();
        let stamp = match (stamp, of, format) {
            (Some(StampText::Created), ..) if is_bare => Some(Stamp::Created),
            (Some(StampText::Changed), ..) if is_bare => Some(Stamp::Changed),
            (None, Some(of), Some(format)) => {
                Some(Stamp::Date { of, format, zone: zone.unwrap_or_else(|| "UTC".to_owned()) })
            }
            (None, ..) if is_bare => None,
            _ => {
                let why = "a field has either `stamp`, or `from` with `format`, and `zone` if the \
                           zone is not UTC";
                self.note(key.span(), why);
                None
            }
        };
        Some(FieldText { holds, rules, stamp })
    }

    fn tables_of_reference(&mut self, value: Spanned<DeValue<'t>>) -> Vec<QName> {
        let span = value.span();
        match value.get_ref() {
            DeValue::Array(tables) if !tables.is_empty() => self.value(value).unwrap_or_default(),
            _ => {
                self.note(span, "a list of one or more tables is expected here");
                Vec::new()
            }
        }
    }

    fn rule_values(&mut self, holds: FieldType, value: Spanned<DeValue<'t>>) -> Vec<Value> {
        let span = value.span();
        match value.into_inner() {
            DeValue::Array(values) if !values.is_empty() => {
                values.into_iter().filter_map(|value| self.rule_value(holds, value)).collect()
            }
            _ => {
                self.note(span, "a list of one or more values is expected here");
                Vec::new()
            }
        }
    }

    /// A value of the type of a field.
    fn rule_value(&mut self, holds: FieldType, value: Spanned<DeValue<'t>>) -> Option<Value> {
        match holds {
            FieldType::Bool => self.value(value).map(Value::Bool),
            FieldType::Int32 => self.value(value).map(Value::Int32),
            FieldType::Int64 => self.value(value).map(Value::Int64),
            FieldType::Float32 => self.value(value).map(Value::Float32),
            FieldType::Float64 => self.value(value).map(Value::Float64),
            FieldType::String => self.value(value).map(Value::String),
            FieldType::QName => self.value(value).map(Value::QName),
            FieldType::Bytes | FieldType::Ref => {
                self.note(value.span(), "a reference and bytes cannot have this rule");
                None
            }
        }
    }
}

/// The entries of a table, in the order of the text.
fn by_place(table: DeTable<'_>) -> Vec<Entry<'_>> {
    let mut entries: Vec<_> = table.into_iter().collect();
    entries.sort_by_key(|(key, _)| key.span().start);
    entries
}
