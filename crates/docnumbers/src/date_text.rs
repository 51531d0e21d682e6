//! The text of a date.

use clock::WallTime;

use crate::{
    Calendar, DefinitionError, RenderError,
    template::{Part, Template},
};

/// How a date becomes a text: a pattern with the letters of the `{date:…}` of a template, and a
/// time zone.
///
/// ```
/// use docnumbers::{DateText, clock::WallTime};
///
/// let month = DateText::new("yyyy-MM", "Europe/Berlin")?;
/// // The last hour of April in London is in May in Berlin.
/// assert_eq!(month.of(WallTime::from_millis(1_367_362_800_000))?, "2013-05");
/// # Ok::<(), Box<dyn std::error::Error>>(())
/// ```
#[derive(Clone, Debug)]
pub struct DateText {
    template: Template,
    calendar: Calendar,
}

impl DateText {
    /// Checks a pattern and the IANA name of a zone.
    ///
    /// # Errors
    /// If the pattern is no date pattern, or if the zone is unknown.
    pub fn new(pattern: &str, zone: &str) -> Result<DateText, DefinitionError> {
        let template = Template::of_date(pattern)?;
        let calendar =
            Calendar::named(zone).ok_or_else(|| DefinitionError::Zone(zone.to_owned()))?;
        Ok(DateText { template, calendar })
    }

    /// The text of the date at a moment.
    ///
    /// # Errors
    /// [`RenderError::TwoDigitYear`] if the pattern has `yy` and the year is not 2000 to 2099.
    pub fn of(&self, at: WallTime) -> Result<String, RenderError> {
        let date = self.calendar.day(at).date;
        let mut text = String::new();
        for part in self.template.parts() {
            match part {
                Part::Literal(literal) => text.push_str(literal),
                Part::Date(field) => field.push(&mut text, date)?,
                // A date pattern has no other parts.
                Part::Counter(_) | Part::Ws(_) | Part::Check(_) => {}
            }
        }
        Ok(text)
    }
}
