//! Check digits, which show a mistake in a number.
//!
//! | part | standard | digits | covered characters |
//! |---|---|---|---|
//! | `{check:luhn}` | ISO/IEC 7812-1, annex B | 1 | digits |
//! | `{check:mod97}` | ISO/IEC 7064, MOD 97-10 | 2 | digits; letters as in IBAN and LEI |
//!
//! Both cover the text before the check part and skip all other characters. Both detect every wrong
//! digit. `luhn` detects two exchanged neighbours except 0 and 9, and `mod97` all of them.

/// The kinds of check digits.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum CheckKind {
    Luhn,
    Mod97,
}

impl CheckKind {
    /// The number of check digits.
    pub(crate) fn width(self) -> u8 {
        match self {
            CheckKind::Luhn => 1,
            CheckKind::Mod97 => 2,
        }
    }

    /// The check digits of `text`.
    pub(crate) fn of(self, text: &str) -> u8 {
        match self {
            CheckKind::Luhn => luhn(text),
            CheckKind::Mod97 => mod97(text),
        }
    }
}

/// The Luhn digit of the digits of `text`. All other characters are skipped, even letters: the
/// standard has no rule for them.
///
/// ```
/// assert_eq!(docnumbers::check_digit::luhn("7992739871"), 3);
/// assert_eq!(docnumbers::check_digit::luhn("ORDER 7992-7398-71"), 3);
/// ```
#[must_use]
pub fn luhn(text: &str) -> u8 {
    let digits = text.bytes().rev().filter(u8::is_ascii_digit).map(|byte| u32::from(byte - b'0'));
    let add = |(sum, factor): (u32, u32), digit: u32| {
        let product = digit * factor;
        (sum + product / 10 + product % 10, 3 - factor)
    };
    let (sum, _) = digits.fold((0, 2), add);
    ((10 - sum % 10) % 10) as u8
}

/// The two check digits of `text`, 2 to 98. A letter counts as two digits: A is 10, Z is 35, and
/// the case does not matter. All other characters are skipped.
///
/// ```
/// // The LEI 5493001KJTIIGC8Y1R12 ends with its check digits.
/// assert_eq!(docnumbers::check_digit::mod97("5493001KJTIIGC8Y1R"), 12);
/// ```
#[must_use]
pub fn mod97(text: &str) -> u8 {
    let mut rest = 0_u64;
    for byte in text.bytes() {
        rest = match byte {
            b'0'..=b'9' => rest * 10 + u64::from(byte - b'0'),
            b'A'..=b'Z' => rest * 100 + u64::from(byte - b'A' + 10),
            b'a'..=b'z' => rest * 100 + u64::from(byte - b'a' + 10),
            _ => continue,
        };
        // One division for many digits. The next step multiplies by at most 100.
        if rest >= 1_000_000_000_000_000 {
            rest %= 97;
        }
    }
    98 - (rest * 100 % 97) as u8
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_digits_are_those_of_the_standards() {
        for (text, digit) in [("7992739871", 3), ("453914880343646", 7), ("37828224631000", 5)] {
            assert_eq!(luhn(text), digit, "{text}");
        }
        assert_eq!((luhn(""), luhn("0")), (0, 0));
        // The IBAN GB82 WEST 1234 5698 7654 32, the reference RF18 5390 0754 7034, and the example
        // of MOD 97-10 in ISO/IEC 7064.
        let examples = [("west12345698765432gb", 82), ("539007547034RF", 18), ("794", 44)];
        for (text, digits) in examples {
            assert_eq!(mod97(text), digits, "{text}");
        }
        assert_eq!(mod97(&"9".repeat(200)), mod97(&"9".repeat(200 % 96)), "10^96 mod 97 is 1");
    }

    /// Calls `f` with each text of four digits and their check digits.
    fn all(check: fn(&str) -> String, mut f: impl FnMut(String)) {
        (0..10_000).for_each(|n| f(check(&format!("{n:04}"))));
    }

    fn with_luhn(text: &str) -> String {
        format!("{text}{}", luhn(text))
    }

    fn with_mod97(text: &str) -> String {
        format!("{text}{:02}", mod97(text))
    }

    /// Counts the texts that become another correct text by one wrong digit, and by two exchanged
    /// neighbours.
    fn undetected(check: fn(&str) -> String, check_width: usize) -> (usize, usize) {
        let (mut wrong, mut exchanged) = (0, 0);
        let is_right = |text: &str| check(&text[..text.len() - check_width]) == text;
        all(check, |text| {
            for at in 0..text.len() {
                for digit in '0'..='9' {
                    let mut other = text.clone();
                    other.replace_range(at..=at, &digit.to_string());
                    wrong += usize::from(other != text && is_right(&other));
                }
                if at + 1 < text.len() {
                    let mut other: Vec<char> = text.chars().collect();
                    other.swap(at, at + 1);
                    let other = String::from_iter(other);
                    exchanged += usize::from(other != text && is_right(&other));
                }
            }
        });
        (wrong, exchanged)
    }

    #[test]
    fn mistakes_are_detected() {
        assert_eq!(undetected(with_mod97, 2), (0, 0));
        let (wrong, exchanged) = undetected(with_luhn, 1);
        assert_eq!(wrong, 0);
        // 09 and 90, in three places inside of the text, and at its end with the check digit.
        assert_eq!(exchanged, 2 * 3 * 100 + 2 * 100);
    }
}
