//! The metric of the times of requests.

use std::{collections::HashMap, sync::RwLock, time::Duration};

use base::locks::{read, write};
use hyper::StatusCode;
use metrics::Histogram;

/// The histograms `httpapi_request_seconds{kind, status}`, each made on first use. There are few
/// pairs of labels, and a search of the recorder for each request costs more than one of this map.
#[derive(Debug, Default)]
pub(crate) struct RequestTimes(RwLock<HashMap<(&'static str, StatusCode), Histogram>>);

impl RequestTimes {
    pub(crate) fn record(&self, kind: &'static str, status: StatusCode, took: Duration) {
        let key = (kind, status);
        if let Some(histogram) = read(&self.0).get(&key) {
            return histogram.record(took);
        }
        let label = status.as_str().to_owned();
        let histogram =
            metrics::histogram!("httpapi_request_seconds", "kind" => kind, "status" => label);
        write(&self.0).entry(key).or_insert(histogram).record(took);
    }
}
