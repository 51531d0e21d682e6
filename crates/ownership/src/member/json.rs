//! The spelling of ids in the JSON of a member row.

use serde::{Deserialize, Deserializer, Serialize, Serializer, de};

use super::Member;
use crate::PartitionId;

pub(super) fn bytes_of(member: &Member) -> Vec<u8> {
    // All keys are texts, so JSON can spell each member.
    serde_json::to_vec(member).unwrap_or_default()
}

/// Reads a number of 32 hexadecimal digits.
pub(super) fn hex_digits(text: &str) -> Option<u128> {
    let is_hex = text.len() == 32 && text.bytes().all(|byte| byte.is_ascii_hexdigit());
    is_hex.then(|| u128::from_str_radix(text, 16).ok())?
}

impl Serialize for PartitionId {
    fn serialize<S: Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
        serializer.collect_str(self)
    }
}

impl<'de> Deserialize<'de> for PartitionId {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<PartitionId, D::Error> {
        String::deserialize(deserializer)?.parse().map_err(de::Error::custom)
    }
}

pub(super) mod member_id {
    use serde::{Deserialize, Deserializer, Serializer, de};

    use crate::MemberId;

    pub(in crate::member) fn serialize<S: Serializer>(
        id: &MemberId,
        serializer: S,
    ) -> Result<S::Ok, S::Error> {
        serializer.collect_str(id)
    }

    pub(in crate::member) fn deserialize<'de, D: Deserializer<'de>>(
        deserializer: D,
    ) -> Result<MemberId, D::Error> {
        String::deserialize(deserializer)?.parse().map_err(de::Error::custom)
    }
}

pub(super) mod incarnation {
    use ielections::Incarnation;
    use serde::{Deserialize, Deserializer, Serialize, Serializer, de};

    pub(in crate::member) fn serialize<S: Serializer>(
        incarnation: &Option<Incarnation>,
        serializer: S,
    ) -> Result<S::Ok, S::Error> {
        incarnation.map(|incarnation| incarnation.to_string()).serialize(serializer)
    }

    pub(in crate::member) fn deserialize<'de, D: Deserializer<'de>>(
        deserializer: D,
    ) -> Result<Option<Incarnation>, D::Error> {
        let Some(text) = Option::<String>::deserialize(deserializer)? else { return Ok(None) };
        let number = super::hex_digits(&text);
        let number = number.ok_or_else(|| de::Error::custom("expected 32 hexadecimal digits"))?;
        Ok(Some(Incarnation(number)))
    }
}
