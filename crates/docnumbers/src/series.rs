//! A checked definition, which makes numbers.

use clock::WallTime;

use crate::{
    Calendar, CounterKey, DayText, Definition, DefinitionError, Overflow, Period, RenderError,
    ReplaceError, Scope, SeriesId, WsId, replace, template::Template, unique,
};

/// A checked definition, which makes the numbers of its documents.
///
/// Two numbers with different periods or different counters have different texts. If the template
/// has `{ws}`, two numbers of different workspaces have different texts, too.
#[derive(Clone, Debug)]
pub struct Series {
    definition: Definition,
    id: SeriesId,
    template: Template,
    calendar: Calendar,
    nearly_full_from: u64,
}

impl Series {
    /// Checks a definition.
    ///
    /// # Errors
    /// The first rule that the definition breaks.
    pub fn new(definition: Definition) -> Result<Series, DefinitionError> {
        let id = definition.id.parse()?;
        let template: Template = definition.template.parse()?;
        let zone = || DefinitionError::Zone(definition.zone.clone());
        let calendar = Calendar::named(&definition.zone).ok_or_else(zone)?;
        if definition.step == 0 {
            return Err(DefinitionError::Step);
        }
        let percent = definition.warn_at_percent;
        if !(1..=100).contains(&percent) {
            return Err(DefinitionError::WarnAtPercent(percent));
        }
        unique::check(&template, definition.reset, definition.overflow)?;
        let (start, width) = (definition.start, template.counter_width());
        let values = 10_u64.saturating_pow(width.into());
        if definition.overflow == Overflow::Error && start >= values {
            return Err(DefinitionError::Start { start, width });
        }
        // At most the 10^19 values of a counter, so the share fits.
        let nearly_full_from = (u128::from(values) * u128::from(percent) / 100) as u64;
        Ok(Series { definition, id, template, calendar, nearly_full_from })
    }

    /// The id.
    #[must_use]
    pub fn id(&self) -> &SeriesId {
        &self.id
    }

    /// The definition.
    #[must_use]
    pub fn definition(&self) -> &Definition {
        &self.definition
    }

    /// The calendar of the definition's time zone.
    #[must_use]
    pub fn calendar(&self) -> &Calendar {
        &self.calendar
    }

    /// The text of all numbers of the day of `at`, without workspace and counter.
    ///
    /// # Errors
    /// [`RenderError::TwoDigitYear`] if the template has `yy` and the year is not 2000 to 2099.
    pub fn day(&self, at: WallTime) -> Result<DayText, RenderError> {
        DayText::new(self, self.calendar.day(at))
    }

    /// Whether a counter has reached `warn_at_percent` of the values of its digits. Give the
    /// counter more digits soon.
    #[must_use]
    pub fn is_nearly_full(&self, counter: u64) -> bool {
        counter >= self.nearly_full_from
    }

    /// Whether this series may go on with the counters of `earlier` series: none of its numbers is
    /// equal to one of theirs.
    ///
    /// Pass **every** definition that gave numbers, not only the last one. The templates
    /// `A{counter:2}7`, then `B{counter:2}`, then `A{counter:3}` may follow each other in pairs.
    /// But the first gives A017 for counter 1, and the third gives A017 for counter 17.
    ///
    /// # Errors
    /// The first difference that could make two numbers equal.
    pub fn may_replace<'a>(
        &self,
        earlier: impl IntoIterator<Item = &'a Series>,
    ) -> Result<(), ReplaceError> {
        earlier.into_iter().try_for_each(|earlier| replace::check(self, earlier))
    }

    /// The name of the counter of a workspace in a period.
    #[must_use]
    pub fn counter_key(&self, period: Period, ws: WsId) -> CounterKey {
        CounterKey { series: self.id.clone(), period, ws: self.counter_of(ws) }
    }

    /// The name of the counter of a workspace in the period of `at`.
    #[must_use]
    pub fn counter_key_at(&self, at: WallTime, ws: WsId) -> CounterKey {
        let date = self.calendar.day(at).date;
        self.counter_key(Period::of(self.definition.reset, date), ws)
    }

    /// The workspace of the counter that gives the numbers of `ws`; `None` if the application has
    /// one counter.
    pub(crate) fn counter_of(&self, ws: WsId) -> Option<WsId> {
        (self.definition.scope == Scope::Workspace).then_some(ws)
    }

    /// The digits of the counter in the template.
    pub(crate) fn counter_width(&self) -> u8 {
        self.template.counter_width()
    }

    pub(crate) fn template(&self) -> &Template {
        &self.template
    }

    /// The name of the zone as the database writes it.
    pub(crate) fn zone_name(&self) -> Option<&str> {
        self.calendar.zone().iana_name()
    }

    pub(crate) fn nearly_full_from(&self) -> u64 {
        self.nearly_full_from
    }
}
