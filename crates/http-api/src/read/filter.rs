//! The filter of a list of documents: the parameter `where`. Nothing is read here.

use std::borrow::Cow;

use http_server::problem::ProblemDetails;
use serde::Deserialize;
use serde_json::{Value as Json, value::RawValue};
use vvm::eventlog::{Record, Table, Value};

use crate::rows::{UniqueNames, comparable_value};

/// The name of the state of a record in a filter. The dot keeps it apart from the fields.
const IS_ACTIVE: &str = "sys.IsActive";

/// The operator that accepts several values.
const IN: &str = "$in";

/// The largest number of values of a filter. Each record is compared with all of them.
const MOST_VALUES: usize = 100;

/// The filter of a list of documents. A document is listed if each of the named fields has one of
/// its values.
#[derive(Debug, PartialEq)]
pub(crate) struct DocFilter {
    /// The accepted values of each field. `None` accepts a document where the field has no value.
    fields: Vec<(String, Vec<Option<Value>>)>,
    /// The accepted states.
    is_active: Vec<bool>,
}

impl DocFilter {
    /// Reads a filter for the documents of a table. Without a filter, and if the filter does not
    /// name the state, the active documents are listed.
    ///
    /// # Errors
    /// If the filter has another form, names an unknown field or operator, has a value of another
    /// type than its field, or has too many values.
    pub(crate) fn of(table: &Table, filter: Option<&str>) -> Result<DocFilter, ProblemDetails> {
        let mut all = DocFilter { fields: Vec::new(), is_active: vec![true] };
        let Some(filter) = filter else { return Ok(all) };
        let UniqueNames(conditions) = parsed::<UniqueNames<&RawValue>>(filter)?;
        let mut count = 0;
        for (name, condition) in conditions {
            let values = values_of(&name, condition)?;
            count += values.len();
            if count > MOST_VALUES {
                let reason = format!("`where` has more than {MOST_VALUES} values");
                return Err(ProblemDetails::bad_request(reason));
            }
            if name == IS_ACTIVE {
                all.is_active = values.into_iter().map(state_of).collect::<Result<_, _>>()?;
                continue;
            }
            let values = values.into_iter().map(|json| match json {
                Json::Null => known(table, &name).map(|()| None),
                json => comparable_value(table, &name, json).map(Some),
            });
            let values = values.collect::<Result<_, _>>()?;
            all.fields.push((name, values));
        }
        Ok(all)
    }

    /// Whether a record of the table is listed.
    pub(crate) fn accepts(&self, record: &Record) -> bool {
        self.is_active.contains(&record.is_active)
            && self.fields.iter().all(|(name, accepted)| {
                let value = record.fields.get(name);
                accepted.iter().any(|accepted| match (accepted, value) {
                    // The field was an int32 when the record was written.
                    (Some(Value::Int64(accepted)), Some(Value::Int32(value))) => {
                        *accepted == i64::from(*value)
                    }
                    (accepted, value) => accepted.as_ref() == value,
                })
            })
    }
}

/// The accepted values of a field: one value, or `{"$in": [values]}`.
fn values_of(name: &str, condition: &RawValue) -> Result<Vec<Json>, ProblemDetails> {
    let text = condition.get();
    if !text.starts_with('{') {
        let value: Json = parsed(text)?;
        if value.is_array() {
            let reason = format!("`where` has a list for `{name}`: send `{{\"{IN}\":[…]}}`");
            return Err(ProblemDetails::bad_request(reason));
        }
        return Ok(vec![value]);
    }
    let UniqueNames(operators) = parsed::<UniqueNames<Json>>(text)?;
    let wrong = |why: Cow<'_, str>| {
        let form = format!("send a value, or `{{\"{IN}\":[values]}}`");
        ProblemDetails::bad_request(format!("`where` has {why} for `{name}`: {form}"))
    };
    let mut accepted = None;
    for (operator, values) in operators {
        match (operator.as_str(), values) {
            (IN, Json::Array(values)) if !values.is_empty() => accepted = Some(values),
            (IN, _) => return Err(wrong("no values in `$in`".into())),
            _ => return Err(wrong(format!("the unknown operator `{operator}`").into())),
        }
    }
    accepted.ok_or_else(|| wrong("no operator".into()))
}

fn state_of(value: Json) -> Result<bool, ProblemDetails> {
    let wrong = || ProblemDetails::bad_request(format!("`{IS_ACTIVE}` must be true or false"));
    value.as_bool().ok_or_else(wrong)
}

fn known(table: &Table, name: &str) -> Result<(), ProblemDetails> {
    match table.field_type(name) {
        Some(_) => Ok(()),
        None => Err(unknown_field(table, name)),
    }
}

fn unknown_field(table: &Table, name: &str) -> ProblemDetails {
    ProblemDetails::bad_request(format!("{} has no field `{name}`", table.name()))
}

fn parsed<'t, T: Deserialize<'t>>(text: &'t str) -> Result<T, ProblemDetails> {
    serde_json::from_str(text).map_err(|error| {
        let form = "an object with fields and their values, as JSON";
        ProblemDetails::bad_request(format!("`where` is not {form}: {error}"))
    })
}

#[cfg(test)]
mod tests {
    use vvm::eventlog::{Fields, RecordId, Schema, TableKind};

    use super::*;

    fn table() -> Table {
        let schema: Schema = r#"
            [tables."shop.Article"]
            kind = "CDoc"
            fields = { name = "string", cents = "int64", weight = "float32", twin = "ref" }
            numbers = { number = "order" }
            "#
        .parse()
        .unwrap();
        schema.tables().next().unwrap().clone()
    }

    fn record(fields: &[(&str, Value)], is_active: bool) -> Record {
        let fields = fields.iter().map(|(name, value)| (name.parse().unwrap(), value.clone()));
        Record {
            table: "shop.Article".parse().unwrap(),
            kind: TableKind::CDoc,
            id: RecordId(322_685_000_131_072),
            parent: None,
            is_active,
            fields: fields.collect::<Fields>(),
        }
    }

    #[test]
    fn a_filter_accepts_the_documents_with_its_values() {
        let text = |text: &str| Value::String(text.to_owned());
        let tea = record(&[("name", text("Tea")), ("cents", Value::Int64(5))], true);
        let milk = record(&[("name", text("Milk")), ("weight", Value::Float32(0.1))], true);
        let old = record(&[("number", text("O-1")), ("twin", Value::Ref(RecordId(7)))], false);
        for (filter, expected) in [
            (None, [true, true, false]),
            (Some("{}"), [true, true, false]),
            (Some(r#"{"name":"Tea"}"#), [true, false, false]),
            (Some(r#"{"name":{"$in":["Tea","Milk"]}}"#), [true, true, false]),
            (Some(r#"{"name":{"$in":["Tea","Milk"]},"cents":5}"#), [true, false, false]),
            (Some(r#"{"name":"Milk","cents":5}"#), [false, false, false]),
            (Some(r#"{"cents":null}"#), [false, true, false]),
            (Some(r#"{"cents":{"$in":[null,5]}}"#), [true, true, false]),
            (Some(r#"{"weight":0.1}"#), [false, true, false]),
            (Some(r#"{"sys.IsActive":false}"#), [false, false, true]),
            (Some(r#"{"sys.IsActive":{"$in":[true,false]}}"#), [true, true, true]),
            (Some(r#"{"sys.IsActive":false,"number":"O-1","twin":7}"#), [false, false, true]),
            (Some(r#"{"number":"O-1"}"#), [false, false, false]),
        ] {
            let found = DocFilter::of(&table(), filter).unwrap();
            let accepted = [&tea, &milk, &old].map(|record| found.accepts(record));
            assert_eq!(accepted, expected, "{filter:?}");
        }
    }

    #[test]
    fn a_wrong_filter_is_refused_by_the_name_of_its_mistake() {
        let many = |count| {
            let values: Vec<_> = (0..count).map(|value| value.to_string()).collect();
            format!(r#"{{"cents":{{"$in":[{}]}}}}"#, values.join(","))
        };
        assert!(DocFilter::of(&table(), Some(&many(MOST_VALUES))).is_ok());
        for (filter, part) in [
            ("", "`where` is not an object"),
            ("[]", "`where` is not an object"),
            (r#"{"name":"Tea""#, "`where` is not an object"),
            (r#"{"name":"Tea","name":"Milk"}"#, "`name` is there twice"),
            (r#"{"cents":{"$in":[1],"$in":[2]}}"#, "`$in` is there twice"),
            (r#"{"nane":"Tea"}"#, "shop.Article has no field `nane`"),
            (r#"{"nane":null}"#, "shop.Article has no field `nane`"),
            (r#"{"sys.ID":1}"#, "shop.Article has no field `sys.ID`"),
            (r#"{"name":1}"#, "the field `name` of shop.Article must be a text"),
            (r#"{"cents":{"$in":[1,"2"]}}"#, "the field `cents` of shop.Article must be"),
            (r#"{"cents":{"$gt":1}}"#, "the unknown operator `$gt` for `cents`"),
            (r#"{"cents":{"$in":[1],"$gt":1}}"#, "the unknown operator `$gt` for `cents`"),
            (r#"{"cents":{"$in":1}}"#, "no values in `$in` for `cents`"),
            (r#"{"cents":{"$in":[]}}"#, "no values in `$in` for `cents`"),
            (r#"{"cents":{}}"#, "no operator for `cents`"),
            (r#"{"cents":[1,2]}"#, "a list for `cents`"),
            (r#"{"sys.IsActive":1}"#, "`sys.IsActive` must be true or false"),
            (r#"{"sys.IsActive":null}"#, "`sys.IsActive` must be true or false"),
            (&many(MOST_VALUES + 1), "more than 100 values"),
        ] {
            let refused = DocFilter::of(&table(), Some(filter)).unwrap_err();
            assert!(refused.reason().contains(part), "{filter}: {}", refused.reason());
        }
    }
}
