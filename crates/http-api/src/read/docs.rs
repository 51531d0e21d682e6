//! Reading documents by their ids.

use std::collections::HashSet;

use http_server::{problem::ProblemDetails, query::parameter};
use serde_json::json;
use vvm::eventlog::{RecordId, Schema, StoredRecord};

use super::{list::PAGE_BYTES, steps::ReadSteps};
use crate::rows::{ShownFields, json_of_record};

/// The largest number of ids in a request.
pub(crate) const MOST_IDS: usize = 100;

/// The number of records that the first call to the storage reads, and the largest number of a
/// call. The records of a call are all in memory at the same time, and may be large.
const FIRST_RECORDS: usize = 4;
const MOST_RECORDS: usize = 32;

/// The records that a client asks for.
#[derive(Debug)]
pub(crate) struct DocsQuery<'s> {
    schema: &'s Schema,
    ids: Vec<RecordId>,
    shown: ShownFields,
}

impl<'s> DocsQuery<'s> {
    /// Reads the query of a request for records of any table.
    ///
    /// # Errors
    /// If there are no ids, too many, or a duplicate; or if no table has a chosen field.
    pub(crate) fn of(
        schema: &'s Schema,
        query: Option<&str>,
    ) -> Result<DocsQuery<'s>, ProblemDetails> {
        let ids: Option<String> = parameter(query, "ids")?;
        let Some(ids) = ids else {
            let reason = "the parameter `ids` is missing: send ids with commas between them";
            return Err(ProblemDetails::bad_request(reason));
        };
        let keys: Option<String> = parameter(query, "keys")?;
        let why_unknown = |field: &str| {
            let is_known = schema.tables().any(|table| table.field_type(field).is_some());
            (!is_known).then(|| format!("no table has a field `{field}`"))
        };
        let shown = ShownFields::of(keys.as_deref(), why_unknown)?;
        Ok(DocsQuery { schema, ids: ids_of(&ids)?, shown })
    }
}

fn ids_of(text: &str) -> Result<Vec<RecordId>, ProblemDetails> {
    let (mut ids, mut seen) = (Vec::new(), HashSet::new());
    for id in text.split(',') {
        let id: u64 = id.parse().map_err(|_| {
            let reason = format!("`ids` has `{id}`, which is not the id of a record: a number");
            ProblemDetails::bad_request(reason)
        })?;
        if !seen.insert(id) {
            return Err(ProblemDetails::bad_request(format!("`ids` has the id {id} twice")));
        }
        if ids.len() == MOST_IDS {
            let reason = format!("`ids` has more than {MOST_IDS} ids");
            return Err(ProblemDetails::bad_request(reason));
        }
        ids.push(RecordId(id));
    }
    Ok(ids)
}

/// The answer to a request for records.
#[derive(Debug)]
pub(crate) struct FoundDocs {
    pub(crate) json: Vec<u8>,
    /// Whether no record was found, and all ids were looked up.
    pub(crate) is_nothing: bool,
}

/// Reads records in the order of their ids. `read` reads some of them in one call.
pub(crate) async fn read_docs<
    R: Future<Output = Result<Vec<Option<StoredRecord>>, ProblemDetails>>,
>(
    query: &DocsQuery<'_>,
    read: impl Fn(Vec<RecordId>) -> R,
) -> Result<FoundDocs, ProblemDetails> {
    let mut page = br#"{"docs":["#.to_vec();
    let (mut missing, mut answered, mut steps) = (Vec::new(), 0, ReadSteps::default());
    let (mut largest, mut records) = (1, FIRST_RECORDS);
    while answered < query.ids.len() && page.len() < PAGE_BYTES {
        let left = &query.ids[answered..];
        let ids = &left[..left.len().min(records)];
        for (id, stored) in ids.iter().zip(read(ids.to_vec()).await?) {
            if page.len() >= PAGE_BYTES {
                break;
            }
            match stored {
                Some(stored) => {
                    let table = query.schema.table(&stored.record.table);
                    let json = json_of_record(&stored, &query.shown, table).to_string();
                    if answered > missing.len() {
                        page.push(b',');
                    }
                    page.extend_from_slice(json.as_bytes());
                    largest = largest.max(size_of(&stored, &query.shown, json.len()));
                    steps.examined(json.len()).await;
                }
                None => missing.push(id.0),
            }
            answered += 1;
        }
        // If the next records are like those before, together they are about as large as a page.
        records = (PAGE_BYTES / largest).clamp(1, MOST_RECORDS);
    }
    let rest: Vec<u64> = query.ids[answered..].iter().map(|id| id.0).collect();
    let is_nothing = missing.len() == query.ids.len();
    let end = format!(r#"],"missing":{},"rest":{}}}"#, json!(missing), json!(rest));
    page.extend_from_slice(end.as_bytes());
    Ok(FoundDocs { json: page, is_nothing })
}

/// The size of a record with all its fields. `shown_len` is the length of what the answer shows.
fn size_of(stored: &StoredRecord, shown: &ShownFields, shown_len: usize) -> usize {
    match shown {
        ShownFields::All => shown_len,
        ShownFields::Only(_) => json_of_record(stored, &ShownFields::All, None).to_string().len(),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn wrong_ids_and_fields_are_refused() {
        let schema: Schema =
            "[tables.\"shop.Bill\"]\nkind = \"WDoc\"\nfields = { customer = \"string\" }"
                .parse()
                .unwrap();
        let of = |query: &str| DocsQuery::of(&schema, Some(query));
        let many = |count: usize| {
            let ids: Vec<_> = (1..=count).map(|id| id.to_string()).collect();
            format!("ids={}", ids.join(","))
        };
        let ids: Vec<_> = of("ids=7%2C3,5").unwrap().ids.iter().map(|id| id.0).collect();
        assert_eq!(ids, [7, 3, 5]);
        assert_eq!(of(&many(MOST_IDS)).unwrap().ids.len(), MOST_IDS);
        for (query, part) in [
            ("", "the parameter `ids` is missing"),
            ("ids=", "`ids` has ``"),
            ("ids=1,,2", "`ids` has ``"),
            ("ids=1,x", "`ids` has `x`"),
            ("ids=-1", "`ids` has `-1`"),
            ("ids=1,2,1", "`ids` has the id 1 twice"),
            (&many(MOST_IDS + 1), "more than 100 ids"),
            ("ids=1&keys=customer,customer", "`customer` twice"),
            ("ids=1&keys=costumer", "no table has a field `costumer`"),
            ("ids=1&keys=", "`` is not the name of a field"),
        ] {
            let refused = of(query).unwrap_err();
            assert!(refused.reason().contains(part), "{query}: {}", refused.reason());
        }
    }
}
