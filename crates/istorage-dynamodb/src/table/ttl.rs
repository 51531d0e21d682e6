//! Lets DynamoDB remove the items of rows that have expired.

use aws_sdk_dynamodb::types::{TimeToLiveSpecification, TimeToLiveStatus};
use clock::Instant;

use super::{KeyspaceTable, Result, steps::retryable_failure};
use crate::{errors::RequestFailure, layout};

impl KeyspaceTable {
    /// Turns on the removal of items by [`layout::PURGED`], if it is not on.
    pub(super) async fn enable_ttl(&self, deadline: Instant) -> Result<()> {
        let mut backoff = self.connection.backoff(deadline);
        loop {
            let answer = self.connection.ask(deadline, |client| {
                client.describe_time_to_live().table_name(&*self.name).send()
            });
            let answer = match answer.await {
                Ok(answer) => answer,
                Err(failure) if failure.is_no_table() => {
                    self.wait(&mut backoff, Some(failure)).await?;
                    continue;
                }
                Err(failure) => return Err(failure.into_read_error()),
            };
            let there = answer.time_to_live_description;
            let attribute = there.as_ref().and_then(|there| there.attribute_name());
            let failure = match there.as_ref().and_then(|there| there.time_to_live_status()) {
                Some(TimeToLiveStatus::Enabled | TimeToLiveStatus::Enabling) => {
                    let is_ours = attribute == Some(layout::PURGED);
                    return if is_ours { Ok(()) } else { Err(self.foreign()) };
                }
                Some(TimeToLiveStatus::Disabling) => None,
                _ => match self.send_enable_ttl().await {
                    Ok(()) => return Ok(()),
                    // The service also gives this answer if another node has sent the same request
                    // in the meantime.
                    Err(failure) if failure.is_invalid() || failure.is_no_table() => Some(failure),
                    Err(failure) => retryable_failure(Err(failure))?,
                },
            };
            self.wait(&mut backoff, failure).await?;
        }
    }

    async fn send_enable_ttl(&self) -> Result<(), RequestFailure> {
        let request = self.connection.send(|client| {
            let request = client.update_time_to_live().table_name(&*self.name);
            async {
                let setting = TimeToLiveSpecification::builder()
                    .enabled(true)
                    .attribute_name(layout::PURGED)
                    .build()?;
                request.time_to_live_specification(setting).send().await
            }
        });
        request.await.map(drop).map_err(RequestFailure::new)
    }
}
