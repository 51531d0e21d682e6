//! The parameters of the query of a request.

use std::{borrow::Cow, fmt::Display, str::FromStr};

use crate::problem::ProblemDetails;

/// The default limit of a list.
pub const DEFAULT_LIMIT: usize = 100;

/// The reason why a limit of 0 is refused.
pub const LIMIT_OF_NONE: &str = "`limit` must be 1 or more";

/// The reason why an offset of 0 is refused.
pub const NO_OFFSET: &str = "`from` must be 1 or more: the first event of a log has offset 1";

/// The value of `from` of a log that begins after all events.
pub const END: &str = "end";

/// The reason why a log that is read once cannot begin after all events.
pub const END_WITHOUT_FOLLOW: &str = "`from=end` needs `follow=true`, because no event \
    follows the end of the log yet: add `follow=true`, or send the offset of an event";

/// As [`check_names`].
pub fn check_query(known: &[&str], query: Option<&str>) -> Result<(), ProblemDetails> {
    check_names(known.iter().copied(), query)
}

/// Refuses parameters that have no meaning for a resource, or that are there twice. Otherwise
/// the client would believe that such a parameter has an effect.
pub fn check_names<'n>(
    known: impl Iterator<Item = &'n str> + Clone,
    query: Option<&str>,
) -> Result<(), ProblemDetails> {
    let mut seen = Vec::new();
    for (name, _) in parameters(query) {
        if !known.clone().any(|known| known == name) {
            let known: Vec<&str> = known.collect();
            let known =
                if known.is_empty() { "no parameters".to_owned() } else { known.join(", ") };
            let reason = format!("the parameter `{name}` is unknown: this resource has {known}");
            return Err(ProblemDetails::bad_request(reason));
        }
        if seen.contains(&name) {
            return Err(ProblemDetails::bad_request(format!(
                "the query has the parameter `{name}` twice"
            )));
        }
        seen.push(name);
    }
    Ok(())
}

/// The limit of a list, as the query gives it.
pub fn limit(query: Option<&str>, most: usize) -> Result<usize, ProblemDetails> {
    let limit = parameter(query, "limit")?.unwrap_or(DEFAULT_LIMIT);
    match (1..=most).contains(&limit) {
        true => Ok(limit),
        false => {
            Err(ProblemDetails::bad_request(format!("`limit` must be a number from 1 to {most}")))
        }
    }
}

/// The parameters of a query: names and values.
pub fn parameters(query: Option<&str>) -> impl Iterator<Item = (&str, &str)> {
    let pairs = query.unwrap_or_default().split('&').filter(|pair| !pair.is_empty());
    pairs.map(|pair| pair.split_once('=').unwrap_or((pair, "")))
}

/// The value of a parameter that a request must have.
pub fn required<T: FromStr<Err: Display>>(
    query: Option<&str>,
    name: &str,
) -> Result<T, ProblemDetails> {
    let missing = || ProblemDetails::bad_request(format!("the parameter `{name}` is missing"));
    parameter(query, name)?.ok_or_else(missing)
}

/// The value of a parameter of a query.
pub fn parameter<T: FromStr<Err: Display>>(
    query: Option<&str>,
    name: &str,
) -> Result<Option<T>, ProblemDetails> {
    let Some((_, value)) = parameters(query).find(|(key, _)| *key == name) else { return Ok(None) };
    let value = decoded(value).ok_or_else(|| {
        let reason = format!(
            "the parameter `{name}` is not encoded as a query must be: `%` is followed by two \
             hexadecimal digits, and the bytes are UTF-8"
        );
        ProblemDetails::bad_request(reason)
    })?;
    let bad = |error| {
        ProblemDetails::bad_request(format!(
            "the value `{value}` of the parameter `{name}` is invalid: {error}"
        ))
    };
    value.parse().map(Some).map_err(bad)
}

/// The value that a client encoded for a query; `None` if the encoding is wrong. Browsers and
/// libraries write a space as `+`.
fn decoded(value: &str) -> Option<Cow<'_, str>> {
    if !value.contains(['%', '+']) {
        return Some(Cow::Borrowed(value));
    }
    let mut bytes = Vec::with_capacity(value.len());
    let mut rest = value.bytes();
    while let Some(byte) = rest.next() {
        bytes.push(match byte {
            b'%' => {
                let mut digit = || char::from(rest.next()?).to_digit(16);
                u8::try_from(digit()? << 4 | digit()?).ok()?
            }
            b'+' => b' ',
            byte => byte,
        });
    }
    String::from_utf8(bytes).ok().map(Cow::Owned)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_parameter_of_a_query_is_read_by_its_name() {
        assert_eq!(parameter(Some("from=7&limit=9"), "limit").unwrap(), Some(9));
        assert_eq!(parameter::<u64>(Some("from=7"), "limit").unwrap(), None);
        assert!(parameter::<u64>(Some("from=x"), "from").is_err());
        assert!(parameter::<u64>(Some("from"), "from").is_err());
    }

    #[test]
    fn a_value_is_decoded() {
        let text = |query| parameter::<String>(Some(query), "where");
        for (query, value) in [
            ("where=%7B%22a%22%3A%22b%2Bc+d%22%7D", r#"{"a":"b+c d"}"#),
            ("where=gr%C3%BCn%2c", "grün,"),
            ("where=a=b", "a=b"),
            ("where", ""),
        ] {
            assert_eq!(text(query).unwrap().as_deref(), Some(value));
        }
        for query in ["where=%", "where=%4", "where=%4g", "where=%+1", "where=%ff"] {
            assert!(text(query).is_err(), "{query}");
        }
    }

    #[test]
    fn unknown_and_repeated_parameters_are_refused() {
        let list = &["after", "limit"][..];
        for query in [None, Some(""), Some("limit=1"), Some("after=1&limit=1"), Some("limit=1&")] {
            assert!(check_query(list, query).is_ok(), "{query:?}");
        }
        for (known, query) in [
            (list, "limt=1"),
            (list, "limit=1&limit=2"),
            (list, "from=1"),
            (list, "follow"),
            (&[], "limit=1"),
        ] {
            assert!(check_query(known, Some(query)).is_err(), "{query}");
        }
    }
}
