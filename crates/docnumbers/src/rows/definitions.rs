//! The stored definitions of series, so that no definition gives a number of an earlier one.

use std::time::Duration;

use bytes::Bytes;
use clock::Instant;
use futures::TryStreamExt;
use istorage::{AppStorageExt, Conditional, ErrorKind, Key, Outcome, Range};
use serde::{Deserialize, Serialize};

use super::{DocNumberRows, keys};
use crate::{Definition, DefinitionError, ReplaceError, Series, SeriesId};

/// The largest number of definitions that a series can have one after another. All of them are in
/// one row.
const MOST_DEFINITIONS: usize = 100;

/// The time between two attempts to store a definition.
const PAUSE: Duration = Duration::from_millis(5);

/// How the counters of a series are drawn.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "lowercase")]
pub enum Policy {
    /// Nodes reserve ranges, and draw from them in memory. Some numbers may never be issued.
    Fast,
    /// The counter is a record of the workspace, which the event of a command writes. So a number
    /// exists exactly if its event does.
    Gapless,
}

/// The reason why a definition cannot be fixed.
#[derive(Debug, thiserror::Error)]
pub enum FixError {
    /// A number of the definition could be equal to an earlier number. Declare a new series.
    #[error("the series `{series}` was declared differently: {source}")]
    Replace {
        /// The id of the series.
        series: String,
        /// The difference.
        source: ReplaceError,
    },
    /// The series has numbers of the other policy. Declare a new series.
    #[error("the series `{0}` was declared with the other policy: declare a new series")]
    Policy(String),
    /// The series was changed too often. Declare a new series.
    #[error("the series `{0}` had {MOST_DEFINITIONS} definitions already: declare a new series")]
    TooMany(String),
    /// A stored definition cannot be read. An earlier version of this program accepted it.
    #[error(
        "a stored definition of the series `{series}` cannot be read: run the version that stored it, \
         or declare a new series"
    )]
    Stored {
        /// The id of the series.
        series: String,
        /// The reason.
        source: DefinitionError,
    },
    /// The settings of the series cannot be used. Correct the setting.
    #[error("{0}")]
    Settings(&'static str),
    /// The storage failed. Try again.
    #[error(transparent)]
    Storage(#[from] istorage::Error),
}

/// All definitions of a series, in the order of their declaration.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct StoredDefinitions {
    /// How the counters are drawn.
    pub policy: Policy,
    /// The definitions. The last one is in use.
    pub definitions: Vec<Definition>,
}

impl StoredDefinitions {
    /// Returns the size of the row of these definitions.
    pub fn row_size(&self) -> usize {
        // A row without a text is written nowhere.
        text_of(self).map_or(usize::MAX, |row| row.len())
    }
}

impl DocNumberRows {
    /// Checks whether [`DocNumberRows::fix`] would accept a definition now. Nothing is stored.
    /// Check all series before the first one is fixed: the stored definition of a series binds,
    /// even if another series is refused afterwards.
    ///
    /// # Errors
    /// Those of [`DocNumberRows::fix`].
    pub async fn check(
        &self,
        series: &Series,
        policy: Policy,
        deadline: Instant,
    ) -> Result<(), FixError> {
        let call = deadline.min(self.clock.now() + self.call_timeout);
        let stored = self.storage.get_linearizable(&self.definition_key(series), call).await?;
        following(stored.as_ref(), series, policy).map(drop)
    }

    /// Fixes a definition: checks that it gives no number of an earlier definition of the series,
    /// and stores it for later definitions. Call this before the series gives its first number.
    ///
    /// # Errors
    /// The reason why the definition must not be used, or the error of the storage.
    pub async fn fix(
        &self,
        series: &Series,
        policy: Policy,
        deadline: Instant,
    ) -> Result<(), FixError> {
        let key = self.definition_key(series);
        loop {
            let call = deadline.min(self.clock.now() + self.call_timeout);
            let old = self.storage.get_linearizable(&key, call).await?;
            let Some(new) = following(old.as_ref(), series, policy)? else { return Ok(()) };
            let Key { pkey, ccols } = key.clone();
            let ttl = None;
            let op = match old {
                None => Conditional::Insert { ccols, value: new, ttl },
                Some(old) => Conditional::Swap { ccols, old, new, ttl },
            };
            // The row shows whether the definition is stored. It does not matter which attempt of
            // which node stored it.
            match self.storage.write_if(pkey, vec![op], call).await {
                Ok(Outcome::Applied) => return Ok(()),
                Ok(Outcome::NotApplied(_)) => {}
                Err(error) if error.kind() == ErrorKind::OutcomeUnknown => {}
                Err(error) => return Err(error.into()),
            }
            self.clock.sleep(PAUSE).await;
        }
    }

    fn definition_key(&self, series: &Series) -> Key {
        let ccols = Bytes::copy_from_slice(series.id().as_str().as_bytes());
        Key { pkey: keys::definitions(&self.prefix), ccols }
    }

    /// The newest definition of each series, with its policy, ascending by id.
    ///
    /// # Errors
    /// Those of the storage.
    pub async fn definitions(
        &self,
        deadline: Instant,
    ) -> istorage::Result<Vec<(Definition, Policy)>> {
        let mut newest = Vec::new();
        for (_, mut stored) in self.all_definitions(deadline).await? {
            newest.extend(stored.definitions.pop().map(|definition| (definition, stored.policy)));
        }
        Ok(newest)
    }

    /// All definitions of each series, ascending by id.
    ///
    /// # Errors
    /// Those of the storage.
    pub async fn all_definitions(
        &self,
        deadline: Instant,
    ) -> istorage::Result<Vec<(SeriesId, StoredDefinitions)>> {
        let page_timeout = deadline.saturating_since(self.clock.now());
        let pkey = keys::definitions(&self.prefix);
        let rows = self.storage.read_linearizable(pkey, Range::all(), page_timeout);
        let all = rows.and_then(|row| async move {
            let id = str::from_utf8(&row.ccols).ok().and_then(|id| id.parse().ok());
            let id = id.ok_or_else(|| {
                istorage::Error::corrupt("the key of a definition is not the id of a series")
            })?;
            Ok((id, read(&row.value)?))
        });
        let timed_out = |_| istorage::Error::unavailable("the definitions were not read in time");
        self.clock.timeout_at(deadline, all.try_collect()).await.map_err(timed_out)?
    }

    /// Stores all definitions of a series that were stored elsewhere. The series must have none
    /// here.
    ///
    /// # Errors
    /// Those of the storage, and `Corrupt` if the series has definitions.
    pub async fn insert_definitions(
        &self,
        series: &SeriesId,
        stored: &StoredDefinitions,
        deadline: Instant,
    ) -> istorage::Result<()> {
        let ccols = Bytes::copy_from_slice(series.as_str().as_bytes());
        let key = Key { pkey: keys::definitions(&self.prefix), ccols };
        self.insert(key, text_of(stored)?, deadline).await
    }
}

fn text_of(stored: &StoredDefinitions) -> istorage::Result<Bytes> {
    let text = serde_json::to_vec(stored);
    let text = text
        .map_err(|error| istorage::Error::corrupt("a definition has no text").with_source(error))?;
    Ok(text.into())
}

fn read(bytes: &Bytes) -> istorage::Result<StoredDefinitions> {
    serde_json::from_slice(bytes).map_err(|error| {
        istorage::Error::corrupt("the row of a definition is damaged").with_source(error)
    })
}

/// The row after `series` is declared; `None` if the row has the definition already.
fn following(
    old: Option<&Bytes>,
    series: &Series,
    policy: Policy,
) -> Result<Option<Bytes>, FixError> {
    let id = || series.id().to_string();
    let mut stored = match old {
        None => StoredDefinitions { policy, definitions: Vec::new() },
        Some(old) => read(old)?,
    };
    if stored.policy != policy {
        return Err(FixError::Policy(id()));
    }
    if stored.definitions.contains(series.definition()) {
        return Ok(None);
    }
    if stored.definitions.len() == MOST_DEFINITIONS {
        return Err(FixError::TooMany(id()));
    }
    let earlier = stored.definitions.iter().cloned().map(Series::new);
    let earlier: Vec<Series> = earlier
        .collect::<Result<_, _>>()
        .map_err(|source| FixError::Stored { series: id(), source })?;
    series.may_replace(&earlier).map_err(|source| FixError::Replace { series: id(), source })?;
    stored.definitions.push(series.definition().clone());
    Ok(Some(text_of(&stored)?))
}

#[cfg(test)]
mod tests {
    use super::*;

    fn series(template: &str) -> Series {
        Series::new(Definition::new("bill", template)).unwrap()
    }

    #[test]
    fn the_row_of_a_definition_is_pinned() {
        let row = following(None, &series("B{counter:4}"), Policy::Gapless).unwrap().unwrap();
        let expected = r#"{"policy":"gapless","definitions":[{"id":"bill","template":"B{counter:4}","reset":"never","zone":"UTC","start":0,"step":1,"overflow":"widen","scope":"workspace","warn_at_percent":90}]}"#;
        assert_eq!(str::from_utf8(&row).unwrap(), expected);
    }

    #[test]
    fn a_definition_is_checked_against_all_earlier_ones() {
        let add = |row: Option<&Bytes>, template| following(row, &series(template), Policy::Fast);
        let first = add(None, "A{counter:2}7").unwrap().unwrap();
        assert!(add(Some(&first), "A{counter:2}7").unwrap().is_none(), "it is stored already");
        let second = add(Some(&first), "B{counter:2}").unwrap().unwrap();
        // The third one differs from the second one in its first letter, but not from the first.
        let third = add(Some(&second), "A{counter:3}");
        assert!(matches!(third, Err(FixError::Replace { .. })), "{third:?}");
        assert!(add(Some(&second), "A{counter:2}7").unwrap().is_none(), "back to the first one");
        let other = following(Some(&second), &series("B{counter:2}"), Policy::Gapless);
        assert!(matches!(other, Err(FixError::Policy(_))), "{other:?}");
        let damaged = following(Some(&Bytes::from("{}")), &series("B{counter:2}"), Policy::Fast);
        assert!(matches!(damaged, Err(FixError::Storage(_))), "{damaged:?}");
    }

    #[test]
    fn a_series_has_a_limited_number_of_definitions() {
        let mut row = None;
        for at in 0..MOST_DEFINITIONS {
            row = following(row.as_ref(), &series(&format!("{at:03}-{{counter:1}}")), Policy::Fast)
                .unwrap();
        }
        let more = following(row.as_ref(), &series("more-{counter:1}"), Policy::Fast);
        assert!(matches!(more, Err(FixError::TooMany(_))), "{more:?}");
    }
}
