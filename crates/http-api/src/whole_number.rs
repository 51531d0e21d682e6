//! Whole numbers in bodies. JSON and JSON Schema do not distinguish `213` from `213.0`, so a client
//! may send either.

use std::{fmt, marker::PhantomData};

use serde::{
    Deserializer,
    de::{Error, Unexpected, Visitor},
};
use serde_json::Value as Json;

/// From here on a float of 64 bits cannot hold every whole number.
const EXACT: f64 = (1_u64 << 53) as f64;

/// The whole number that a float stands for; `None` if it is not whole, or may have been rounded.
fn exact(number: f64) -> Option<i64> {
    (number.fract() == 0.0 && number.abs() < EXACT).then_some(number as i64)
}

/// The whole number in a field.
pub(crate) fn whole_in(json: &Json) -> Option<i64> {
    json.as_i64().or_else(|| json.as_f64().and_then(exact))
}

/// Reads a whole number that is not negative.
pub(crate) fn whole<'de, T: TryFrom<u64>, D: Deserializer<'de>>(from: D) -> Result<T, D::Error> {
    struct WholeVisitor<T>(PhantomData<T>);

    impl<T: TryFrom<u64>> WholeVisitor<T> {
        fn made<E: Error>(self, number: u64) -> Result<T, E> {
            let refused = |_| E::invalid_value(Unexpected::Unsigned(number), &self);
            T::try_from(number).map_err(refused)
        }
    }

    impl<T: TryFrom<u64>> Visitor<'_> for WholeVisitor<T> {
        type Value = T;

        fn expecting(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
            write!(f, "a whole number of {} bits that is not negative", size_of::<T>() * 8)
        }

        fn visit_u64<E: Error>(self, number: u64) -> Result<T, E> {
            self.made(number)
        }

        fn visit_i64<E: Error>(self, number: i64) -> Result<T, E> {
            Err(E::invalid_value(Unexpected::Signed(number), &self))
        }

        fn visit_f64<E: Error>(self, number: f64) -> Result<T, E> {
            match exact(number).and_then(|number| u64::try_from(number).ok()) {
                Some(number) => self.made(number),
                None => Err(E::invalid_value(Unexpected::Float(number), &self)),
            }
        }
    }

    from.deserialize_u64(WholeVisitor(PhantomData))
}

#[cfg(test)]
mod tests {
    use super::*;

    /// A generated client sent `213.0`, and was refused.
    #[test]
    fn a_whole_number_may_have_a_point() {
        let read = |text: &str| {
            let mut from = serde_json::Deserializer::from_str(text);
            whole::<u32, _>(&mut from).map_err(|error| error.to_string())
        };
        for (text, expected) in [("0", 0), ("213", 213), ("213.0", 213), ("2.13e2", 213)] {
            assert_eq!(read(text), Ok(expected), "{text}");
        }
        for text in ["1.5", "-1", "-1.0", "4294967296", "4294967296.0", "1e300", "\"1\"", "null"] {
            let refused = read(text).unwrap_err();
            assert!(
                refused.contains("a whole number of 32 bits that is not negative"),
                "{refused}"
            );
        }
        let of = |text: &str| whole_in(&serde_json::from_str(text).unwrap());
        assert_eq!((of("-7.0"), of("7"), of("7.5")), (Some(-7), Some(7), None));
        assert_eq!(of("9223372036854775807"), Some(i64::MAX));
        assert_eq!(of("9007199254740993.0"), None, "it would be rounded");
    }
}
