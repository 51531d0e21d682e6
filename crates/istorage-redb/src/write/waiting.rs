//! The jobs that the writer took from its queue, and the choice of those that it writes together.

use std::collections::VecDeque;

use crate::{
    queue::{LARGE, bytes_of},
    request::{WriteJob, WriteRequest},
};

/// Limits of a group: a frame that reached one of them takes no further request.
const GROUP_REQUESTS: usize = 1_024;
const GROUP_BYTES: usize = 1 << 20;

/// The jobs in the order of their work: first the urgent ones, each kind in order of arrival.
#[derive(Default)]
pub(super) struct WaitingJobs(VecDeque<WriteJob>);

impl WaitingJobs {
    pub(super) fn add(&mut self, job: WriteJob) {
        let at = if is_urgent(&job) { self.urgent() } else { self.0.len() };
        self.0.insert(at, job);
    }

    /// The number of urgent jobs, which come before the others.
    fn urgent(&self) -> usize {
        self.0.iter().position(|job| !is_urgent(job)).unwrap_or(self.0.len())
    }

    pub(super) fn next(&mut self) -> Option<WriteJob> {
        self.0.pop_front()
    }

    pub(super) fn len(&self) -> usize {
        self.0.len()
    }

    /// Takes the requests to write together with `first`: those that wait, up to the first job of
    /// another kind. Urgent requests that came after `first` are written before it. An urgent
    /// request waits for no large group: its group goes into a small frame of the log.
    pub(super) fn take_group(&mut self, first: WriteRequest) -> Vec<WriteRequest> {
        let urgent = self.urgent();
        let at = if first.place.is_urgent { 0 } else { urgent };
        let has_urgent = first.place.is_urgent || urgent > 0;
        self.0.insert(at, WriteJob::Write(first));
        let (mut group, mut bytes) = (Vec::new(), 0);
        while group.len() < GROUP_REQUESTS && bytes < GROUP_BYTES {
            let is_of_group = |job: &mut WriteJob| match job {
                WriteJob::Write(request) => {
                    !has_urgent || bytes + bytes_of(&request.batch) <= LARGE
                }
                _ => false,
            };
            let Some(WriteJob::Write(request)) = self.0.pop_front_if(is_of_group) else { break };
            bytes += bytes_of(&request.batch);
            group.push(request);
        }
        group
    }
}

fn is_urgent(job: &WriteJob) -> bool {
    matches!(job, WriteJob::Write(request) if request.place.is_urgent)
}

#[cfg(test)]
mod tests {
    use std::sync::Arc;

    use bytes::Bytes;
    use clock::Instant;
    use futures::FutureExt;
    use istorage::{AtomicBatch, Conditional, Key, KeyspaceName, Put};
    use tokio::sync::oneshot;

    use super::*;
    use crate::{layout::Keyspace, queue::QueuePlaces};

    /// The name of a request, and its bytes. A request without bytes is a lease.
    type NamedWrite = (&'static str, usize);

    const LEASE: NamedWrite = ("lease", 0);
    const SMALL: NamedWrite = ("small", 100);
    const USUAL: NamedWrite = ("usual", 600 << 10);
    const LARGER: NamedWrite = ("larger", 2 << 20);

    fn request((name, bytes): NamedWrite, places: &QueuePlaces) -> WriteRequest {
        let (pkey, ccols) = (Bytes::from(name), Bytes::new());
        let mut batch = AtomicBatch::default();
        match bytes {
            0 => {
                let row = Conditional::Insert { ccols, value: Bytes::from("node"), ttl: None };
                batch.conditionals.push((pkey, row));
            }
            bytes => {
                let key = Key { pkey, ccols };
                batch.puts.push(Put { key, value: vec![0; bytes].into() });
            }
        }
        WriteRequest {
            keyspace: Arc::new(Keyspace::new(KeyspaceName::new("tests").unwrap())),
            deadline: Instant::FAR_FUTURE,
            place: places.of_write(&batch).now_or_never().flatten().unwrap(),
            batch,
            reply: oneshot::channel().0,
        }
    }

    /// The groups that some requests are written in, if all of them wait.
    fn groups(requests: &[NamedWrite]) -> Vec<Vec<&'static str>> {
        let (places, mut waiting) = (QueuePlaces::new(), WaitingJobs::default());
        for each in requests {
            waiting.add(WriteJob::Write(request(*each, &places)));
        }
        let mut groups = Vec::new();
        while let Some(WriteJob::Write(first)) = waiting.next() {
            groups.push(names(&waiting.take_group(first)));
        }
        assert_eq!(waiting.len(), 0);
        groups
    }

    fn names(group: &[WriteRequest]) -> Vec<&'static str> {
        let name = |request: &WriteRequest| match request.batch.puts.first() {
            Some(put) => [SMALL, USUAL, LARGER].into_iter().find(|(name, _)| put.key.pkey == name),
            None => Some(LEASE),
        };
        group.iter().map(|request| name(request).unwrap().0).collect()
    }

    /// A renewed lease was answered only when the large write after it was on the disk, too: a
    /// group of this size is committed durably, which takes the disk long.
    #[test]
    fn a_lease_is_written_with_small_requests_only() {
        assert_eq!(
            groups(&[LARGER, SMALL, LEASE, USUAL]),
            [vec!["lease"], vec!["larger"], vec!["small", "usual"]]
        );
        assert_eq!(
            groups(&[SMALL, USUAL, USUAL, LEASE, LEASE]),
            [vec!["lease", "lease", "small", "usual"], vec!["usual"]]
        );
    }

    /// The lease came while its group was gathered, when the first request was taken already.
    #[test]
    fn a_lease_that_comes_late_keeps_its_group_small() {
        let (places, mut waiting) = (QueuePlaces::new(), WaitingJobs::default());
        for each in [LARGER, LEASE] {
            waiting.add(WriteJob::Write(request(each, &places)));
        }
        let group = waiting.take_group(request(SMALL, &places));
        assert_eq!(names(&group), ["lease", "small"]);
        assert_eq!(waiting.len(), 1, "the large request is for the next group");
        waiting.add(WriteJob::Write(request(LEASE, &places)));
        let group = waiting.take_group(request(LARGER, &places));
        assert_eq!(names(&group), ["lease"]);
        assert_eq!(waiting.len(), 2, "so is the large request that was taken first");
    }

    #[test]
    fn a_group_has_a_limit_in_bytes_and_ends_before_another_job() {
        assert_eq!(groups(&[USUAL; 3]), [vec!["usual"; 2], vec!["usual"; 1]]);
        let (places, mut waiting) = (QueuePlaces::new(), WaitingJobs::default());
        waiting.add(WriteJob::Write(request(SMALL, &places)));
        waiting.add(WriteJob::Check);
        waiting.add(WriteJob::Write(request(SMALL, &places)));
        let group = waiting.take_group(request(SMALL, &places));
        assert_eq!(names(&group), ["small", "small"]);
        assert!(matches!(waiting.next(), Some(WriteJob::Check)));
    }
}
