//! The keys of a table.

use aws_sdk_dynamodb::{
    error::BuildError,
    types::{
        AttributeDefinition, KeySchemaElement, KeyType, ScalarAttributeType, TableDescription,
    },
};

use crate::layout::{COLUMNS, PARTITION};

const KEYS: [(&str, KeyType); 2] = [(PARTITION, KeyType::Hash), (COLUMNS, KeyType::Range)];

/// The key of a table and the types of its attributes.
pub(super) fn table_keys() -> Result<(Vec<KeySchemaElement>, Vec<AttributeDefinition>), BuildError>
{
    let element =
        |(name, kind)| KeySchemaElement::builder().attribute_name(name).key_type(kind).build();
    let definition = |(name, _)| {
        AttributeDefinition::builder()
            .attribute_name(name)
            .attribute_type(ScalarAttributeType::B)
            .build()
    };
    let elements = KEYS.into_iter().map(element).collect::<Result<_, _>>()?;
    let definitions = KEYS.into_iter().map(definition).collect::<Result<_, _>>()?;
    Ok((elements, definitions))
}

/// Whether a table has the keys of this driver.
pub(super) fn is_ours(table: &TableDescription) -> bool {
    let schema = table.key_schema();
    let has_key = |(name, kind): &(&str, KeyType)| {
        let is_key = schema
            .iter()
            .any(|element| element.attribute_name() == *name && element.key_type() == kind);
        let is_binary = table.attribute_definitions().iter().any(|definition| {
            definition.attribute_name() == *name
                && definition.attribute_type() == &ScalarAttributeType::B
        });
        is_key && is_binary
    };
    schema.len() == KEYS.len() && KEYS.iter().all(has_key)
}
