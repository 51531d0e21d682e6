//! The sender of a request.

use std::fmt;

use crate::Grants;

/// The most bytes of the text of a principal.
const MAX_BYTES: usize = 512;

/// The sender of a request, and what the sender may do.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Caller {
    /// The sender of the request.
    pub principal: Principal,
    /// What the principal may do.
    pub grants: Grants,
    /// When the token expires, in seconds since 1970. From then on the token is refused, and a
    /// stream to the caller ends.
    pub expires: u64,
}

/// The unique name of a sender: the issuer of the token, and the subject that the issuer names.
///
/// The text of a principal is the issuer and the subject with `|` between them. In both parts `%`
/// stands as `%25` and `|` as `%7C`. So two principals never have the same text.
#[derive(Clone, PartialEq, Eq, Hash)]
pub struct Principal(String);

/// A principal that is empty or too long.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum InvalidPrincipal {
    /// The issuer or the subject is empty.
    #[error("the issuer or the subject is empty")]
    Empty,
    /// The text has too many bytes.
    #[error("the issuer and the subject have more than {MAX_BYTES} bytes")]
    TooLong,
    /// A part has a control character, which would break the lines of a log.
    #[error("the issuer or the subject has a control character")]
    ControlCharacter,
}

impl Principal {
    /// Makes the principal of a subject that an issuer names.
    ///
    /// # Errors
    /// If a part is empty or has a control character, or if the text is longer than 512 bytes.
    pub fn new(issuer: &str, subject: &str) -> Result<Principal, InvalidPrincipal> {
        if issuer.is_empty() || subject.is_empty() {
            return Err(InvalidPrincipal::Empty);
        }
        if [issuer, subject].iter().any(|part| part.chars().any(char::is_control)) {
            return Err(InvalidPrincipal::ControlCharacter);
        }
        let escaped = |part: &str| part.replace('%', "%25").replace('|', "%7C");
        let text = format!("{}|{}", escaped(issuer), escaped(subject));
        if text.len() > MAX_BYTES {
            return Err(InvalidPrincipal::TooLong);
        }
        Ok(Principal(text))
    }

    /// The principal of all senders when requests are not authenticated. No token has this
    /// principal.
    pub fn anybody() -> Principal {
        Principal("anybody".to_owned())
    }

    /// The text of the principal.
    pub fn as_str(&self) -> &str {
        &self.0
    }
}

impl fmt::Display for Principal {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&self.0)
    }
}

impl fmt::Debug for Principal {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&self.0)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn two_principals_never_have_the_same_text() {
        let text = |issuer, subject| Principal::new(issuer, subject).unwrap().to_string();
        assert_eq!(text("https://a", "b"), "https://a|b");
        assert_eq!(text("a|b", "c"), "a%7Cb|c");
        assert_eq!(text("a", "b|c"), "a|b%7Cc");
        assert_eq!(text("a%7Cb", "c"), "a%257Cb|c");
        assert!(!Principal::anybody().as_str().contains('|'), "a token could have this principal");
    }

    #[test]
    fn a_principal_has_a_limit_and_no_control_character() {
        let long = "x".repeat(MAX_BYTES - 2);
        assert!(Principal::new("a", &long).is_ok());
        let of = |issuer: &str, subject: &str| Principal::new(issuer, subject).unwrap_err();
        assert_eq!(of("ab", &long), InvalidPrincipal::TooLong);
        assert_eq!(of("a", &"|".repeat(171)), InvalidPrincipal::TooLong);
        assert_eq!(of("", "b"), InvalidPrincipal::Empty);
        assert_eq!(of("a", ""), InvalidPrincipal::Empty);
        assert_eq!(of("a", "b\nlevel=error"), InvalidPrincipal::ControlCharacter);
    }
}
