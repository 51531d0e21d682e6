//! A bound on the requests that wait for one partition, or that one peer answers.

use std::sync::{Arc, Mutex, PoisonError};

/// The most that one partition or one peer may hold.
#[derive(Clone, Copy, Debug)]
pub struct QuotaLimits {
    /// The number of requests.
    pub requests: usize,
    /// The number of bytes of the bodies of these requests.
    pub bytes: usize,
}

/// The requests that wait for one partition, or that one peer answers.
#[derive(Debug)]
pub(crate) struct Quota {
    limits: QuotaLimits,
    used: Mutex<QuotaLimits>,
}

impl Quota {
    /// A quota of which nothing is taken.
    pub(crate) fn new(limits: QuotaLimits) -> Arc<Quota> {
        Arc::new(Quota { limits, used: Mutex::new(QuotaLimits { requests: 0, bytes: 0 }) })
    }

    /// Counts a request with a body of this size. `None` if the request does not fit any more. A
    /// single request always fits, however large its body is.
    pub(crate) fn take(self: &Arc<Quota>, bytes: usize) -> Option<QuotaShare> {
        self.change(|used| {
            let QuotaLimits { requests, bytes: most } = self.limits;
            let fits = used.requests < requests && used.bytes.saturating_add(bytes) <= most;
            if used.requests > 0 && !fits {
                return None;
            }
            used.requests += 1;
            used.bytes += bytes;
            Some(QuotaShare { of: Arc::clone(self), bytes })
        })
    }

    fn change<T>(&self, change: impl FnOnce(&mut QuotaLimits) -> T) -> T {
        change(&mut self.used.lock().unwrap_or_else(PoisonError::into_inner))
    }
}

/// The place of one request. Dropping it gives the place back.
#[derive(Debug)]
pub(crate) struct QuotaShare {
    of: Arc<Quota>,
    bytes: usize,
}

impl Drop for QuotaShare {
    fn drop(&mut self) {
        self.of.change(|used| {
            used.requests -= 1;
            used.bytes -= self.bytes;
        });
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn requests_and_bytes_are_bounded_and_given_back() {
        let quota = Quota::new(QuotaLimits { requests: 2, bytes: 10 });
        let large = quota.take(100).unwrap();
        assert!(quota.take(1).is_none(), "the bytes are used up");
        drop(large);
        let first = quota.take(9).unwrap();
        assert!(quota.take(2).is_none(), "the bytes are used up");
        let second = quota.take(1).unwrap();
        assert!(quota.take(0).is_none(), "the requests are used up");
        drop((first, second));
        assert!(quota.take(10).is_some());
    }
}
