//! The conditions of writes and of reads, as expressions over the attributes.

use aws_sdk_dynamodb::types::AttributeValue;
use bytes::Bytes;
use istorage::{Conditional, OrderedPut, Range};

use super::{EXPIRES, Item, binary, columns, number, rank};
use crate::lease::AttemptTerms;

/// An expression with the values for its placeholders.
#[derive(Debug)]
pub(crate) struct Expression {
    pub(crate) text: &'static str,
    pub(crate) values: Item,
}

impl Expression {
    fn new<const N: usize>(text: &'static str, values: [(&str, AttributeValue); N]) -> Expression {
        let values = values.map(|(name, value)| (name.to_owned(), value));
        Expression { text, values: Item::from(values) }
    }
}

/// The condition of a conditional write. A row with the version of an expired lease counts as
/// absent.
pub(crate) fn condition(op: &Conditional, terms: AttemptTerms) -> Expression {
    let expired = number(terms.expired);
    match op.expected() {
        None => Expression::new("attribute_not_exists(p) OR n = :expired", [(":expired", expired)]),
        Some(old) => Expression::new(
            "v = :old AND (attribute_not_exists(n) OR n <> :expired)",
            [(":old", binary(old.clone())), (":expired", expired)],
        ),
    }
}

/// The condition of an ordered write. A row without an order hides the write. If a write is sent
/// several times, the row lives until the latest expiry that these writes ask for.
pub(crate) fn order_condition(put: &OrderedPut, item: &Item) -> Expression {
    let order = (":order", rank(put.order));
    match item.get(EXPIRES) {
        None => Expression::new("attribute_not_exists(p) OR o < :order", [order]),
        Some(expires) => Expression::new(
            "attribute_not_exists(p) OR o < :order OR (o = :order AND x < :x)",
            [order, (":x", expires.clone())],
        ),
    }
}

/// The rows of a range, and the row at its end: DynamoDB has no range that excludes its end.
pub(crate) fn range(pkey: &Bytes, range: &Range) -> Expression {
    let (partition, start) = (binary(pkey.clone()), columns(&range.start));
    match &range.end {
        None => Expression::new("p = :p AND c >= :start", [(":p", partition), (":start", start)]),
        Some(end) => Expression::new(
            "p = :p AND c BETWEEN :start AND :end",
            [(":p", partition), (":start", start), (":end", columns(end))],
        ),
    }
}
