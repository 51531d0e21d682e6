//! Values in readable length.

use std::fmt::{self, Debug, Display, Write};

/// The longest text of a value, in bytes.
const SHOWN_MAX: usize = 400;

/// Shows a value as its `Debug` text, cut to readable length. Rows may have megabytes.
#[derive(Clone, Copy, Debug)]
pub struct Shortened<'a, T: ?Sized>(pub &'a T);

impl<T: Debug + ?Sized> Display for Shortened<'_, T> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let mut text = LimitedText(String::new());
        let whole = write!(text, "{:?}", self.0).is_ok();
        f.write_str(&text.0)?;
        if whole { Ok(()) } else { f.write_str("…") }
    }
}

/// Takes text up to the limit.
struct LimitedText(String);

impl Write for LimitedText {
    fn write_str(&mut self, text: &str) -> fmt::Result {
        let fits = text.floor_char_boundary(SHOWN_MAX.saturating_sub(self.0.len()));
        self.0.push_str(&text[..fits]);
        if fits == text.len() { Ok(()) } else { Err(fmt::Error) }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn only_large_values_are_cut_off() {
        assert_eq!(Shortened(&[1, 2]).to_string(), "[1, 2]");
        let large = Shortened(&vec![7_u8; 1 << 20]).to_string();
        assert!(large.len() < SHOWN_MAX + 10 && large.ends_with('…'), "{large}");
        let text = Shortened(&"ä".repeat(SHOWN_MAX)).to_string();
        assert!(text.starts_with("\"ää") && text.len() > SHOWN_MAX - 2, "{text}");
    }
}
