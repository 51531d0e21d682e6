//! The series of document numbers of an application, in the configuration.

use std::num::NonZeroU64;

use docnumbers::{
    Definition, DefinitionError, FastSettings, Overflow, Policy, Reset, Scope, Series,
};
use eventlog::RecordId;
use processor::SeriesPolicy;
use serde::{Deserialize, Serialize};

/// One series. Keys without a value have the defaults of [`Definition::new`] and of
/// [`FastSettings`].
#[derive(Clone, Debug, Deserialize, PartialEq, Serialize)]
#[serde(deny_unknown_fields)]
pub(crate) struct SeriesConfig {
    /// The text of a number, such as `ORDER{date:yyyy-MMdd}-{counter:5}`.
    template: String,
    policy: Policy,
    /// The id of the counter record of a gapless series.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    record: Option<u64>,
    #[serde(default = "never")]
    reset: Reset,
    #[serde(default = "utc")]
    zone: String,
    #[serde(default)]
    start: u64,
    #[serde(default = "one")]
    step: u64,
    #[serde(default = "widen")]
    overflow: Overflow,
    #[serde(default = "workspace")]
    scope: Scope,
    #[serde(default = "ninety")]
    warn_at_percent: u8,
    /// The counters that one write reserves for a fast series.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    range: Option<NonZeroU64>,
    /// The next range of a fast series is reserved when fewer counters are left.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    refill_below: Option<u64>,
}

fn never() -> Reset {
    Reset::Never
}

fn utc() -> String {
    "UTC".to_owned()
}

fn one() -> u64 {
    1
}

fn widen() -> Overflow {
    Overflow::Widen
}

fn workspace() -> Scope {
    Scope::Workspace
}

fn ninety() -> u8 {
    90
}

/// The wrong key of a series, empty for the series itself, and the reason.
type WrongKey = (&'static str, String);

impl SeriesConfig {
    /// Checks the definition of the series with this id.
    pub(super) fn series(&self, id: &str) -> Result<Series, WrongKey> {
        let definition = Definition {
            id: id.to_owned(),
            template: self.template.clone(),
            reset: self.reset,
            zone: self.zone.clone(),
            start: self.start,
            step: self.step,
            overflow: self.overflow,
            scope: self.scope,
            warn_at_percent: self.warn_at_percent,
        };
        Series::new(definition).map_err(|error| (wrong_key(&error), error.to_string()))
    }

    /// Returns how the series draws its counters.
    pub(super) fn policy(&self) -> Result<SeriesPolicy, WrongKey> {
        match self.policy {
            Policy::Fast => self.fast().map(SeriesPolicy::Fast),
            Policy::Gapless => self.gapless(),
        }
    }

    fn fast(&self) -> Result<FastSettings, WrongKey> {
        if self.record.is_some() {
            return Err(("record", useless("record", "gapless")));
        }
        let range = self.range.map_or(FastSettings::default().range, NonZeroU64::get);
        let usual = FastSettings::with_range(range);
        let refill_below = self.refill_below.unwrap_or(usual.refill_below);
        if refill_below > range {
            let why = format!("a range has {range} counters: set this number or less");
            return Err(("refill_below", why));
        }
        let settings = FastSettings { refill_below, ..usual };
        settings.check().map_err(|error| ("range", error.to_string()))?;
        Ok(settings)
    }

    fn gapless(&self) -> Result<SeriesPolicy, WrongKey> {
        let of_fast =
            [("range", self.range.is_some()), ("refill_below", self.refill_below.is_some())];
        if let Some((key, _)) = of_fast.into_iter().find(|(_, is_set)| *is_set) {
            return Err((key, useless(key, "fast")));
        }
        let Some(record) = self.record else {
            let why = "a gapless series counts in a record of each workspace: set `record` to the id \
                       of a singleton that nothing else uses, such as 65601";
            return Err(("policy", why.to_owned()));
        };
        Ok(SeriesPolicy::Gapless { counter: RecordId(record) })
    }
}

fn useless(key: &str, policy: &str) -> String {
    format!("only a {policy} series has `{key}`: remove it, or set `policy = \"{policy}\"`")
}

/// The key of a definition that is wrong.
fn wrong_key(error: &DefinitionError) -> &'static str {
    match error {
        DefinitionError::Id(_) => "",
        DefinitionError::Template(_)
        | DefinitionError::PeriodNotInText { .. }
        | DefinitionError::NoSeparator => "template",
        DefinitionError::Zone(_) => "zone",
        DefinitionError::Step => "step",
        DefinitionError::WarnAtPercent(_) => "warn_at_percent",
        DefinitionError::Start { .. } => "start",
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_series_with_its_needed_keys_has_the_defaults_of_the_library() {
        let text = "template = \"A{counter:4}\"\npolicy = \"fast\"";
        let config: SeriesConfig = toml::from_str(text).unwrap();
        let expected = Definition::new("order", "A{counter:4}");
        assert_eq!(config.series("order").unwrap().definition(), &expected);
        assert_eq!(config.policy().unwrap(), SeriesPolicy::Fast(FastSettings::default()));
    }

    #[test]
    fn a_range_is_reserved_ahead_unless_the_configuration_says_otherwise() {
        let config = |more| {
            let text = format!("template = \"A{{counter:4}}\"\npolicy = \"fast\"\n{more}");
            toml::from_str::<SeriesConfig>(&text).unwrap()
        };
        for (more, expected) in [
            ("range = 1", (1, 1)),
            ("range = 1000", (1_000, 1_000)),
            ("range = 10\nrefill_below = 0", (10, 0)),
            ("refill_below = 50", (100, 50)),
        ] {
            let Ok(SeriesPolicy::Fast(settings)) = config(more).policy() else { panic!("{more}") };
            assert_eq!((settings.range, settings.refill_below), expected, "{more}");
        }
    }
}
