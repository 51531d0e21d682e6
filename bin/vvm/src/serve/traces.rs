//! The export of traces, from the configuration.

mod export;
mod queue;

use ctl::{
    CommandError,
    client::{ConnectionArgs, ConnectionFile, NodeAddress, NodeTarget},
};
use opentelemetry::{KeyValue, global};
use opentelemetry_proto::transform::common::tonic::ResourceAttributesWithSchema;
use opentelemetry_sdk::{
    Resource,
    trace::{Sampler, SdkTracerProvider},
};
use vvm::{NodeSettings, StopShare};

use self::export::SpanExport;
use crate::config::{TracesConfig, VvmConfig};

/// Where a node exports its spans, and the part of the requests that has spans.
pub(crate) struct NodeTraces {
    collector: NodeTarget,
    ratio: f64,
}

impl NodeTraces {
    /// Reads the section `traces` and its files; `None` if there is no section.
    pub(crate) fn read(config: &VvmConfig) -> Result<Option<NodeTraces>, CommandError> {
        let Some(traces) = &config.traces else { return Ok(None) };
        let wrong = |key: &str, why: &str| config.source.wrong(&["traces", key], why);
        let ratio = traces.sample_ratio;
        if !(0.0..=1.0).contains(&ratio) {
            return Err(wrong("sample_ratio", "a number from 0 to 1 is expected"));
        }
        let address = address(traces).map_err(|why| wrong("endpoint", &why))?;
        if traces.token_file.is_some() && address.is_secured != Some(true) && !address.is_loopback()
        {
            let why = "the token of `traces.token_file` would be sent without TLS: give an \
                       `https` endpoint, and the authorities of its certificate in `traces.ca_file`";
            return Err(wrong("endpoint", why));
        }
        let connection = ConnectionArgs {
            ca_file: traces.ca_file.clone(),
            cert_file: None,
            key_file: None,
            token_file: traces.token_file.clone(),
        };
        let collector = connection.target_of_config(address).map_err(|error| {
            let key = match error.file {
                Some(ConnectionFile::Authority) => "ca_file",
                Some(ConnectionFile::Token) => "token_file",
                // The section names no other files.
                Some(ConnectionFile::Certificate | ConnectionFile::Key) | None => "endpoint",
            };
            wrong(key, &error.why)
        })?;
        Ok(Some(NodeTraces { collector, ratio }))
    }

    /// Installs the provider of spans for the whole process. Returns the service that exports them.
    pub(super) fn install(self, node: &NodeSettings) -> SpanExport {
        let resource = Resource::builder_empty().with_attributes([
            KeyValue::new("service.name", "vvm"),
            KeyValue::new("service.version", env!("CARGO_PKG_VERSION")),
            KeyValue::new("service.instance.id", node.advertised.to_string()),
        ]);
        let resource = resource.build();
        let (queue, spans) = queue::span_queue();
        let attributes = ResourceAttributesWithSchema::from(&resource);
        let sampler = Sampler::TraceIdRatioBased(self.ratio);
        let provider = SdkTracerProvider::builder()
            .with_span_processor(queue)
            .with_sampler(Sampler::ParentBased(Box::new(sampler)))
            .with_resource(resource)
            .build();
        global::set_tracer_provider(provider);
        let flush_within = StopShare::AdminRequests.of(node.stop_within);
        SpanExport::new(self.collector, spans, attributes, flush_within)
    }
}

/// The address of the collector. An error does not show the address, which may have a password. Its
/// scheme must be named, because it decides who can read the spans on their way.
fn address(traces: &TracesConfig) -> Result<NodeAddress, String> {
    let TracesConfig { endpoint, ca_file, .. } = traces;
    let expected = "the address of a collector without a path is expected, such as \
                    \"http://127.0.0.1:4318\"";
    let (scheme, rest) = endpoint.split_once("://").unwrap_or(("", endpoint));
    let rest = rest.strip_suffix('/').unwrap_or(rest);
    if rest.contains(['/', '?', '#']) {
        return Err(format!("the address has a path, and the node adds `/v1/traces`: {expected}"));
    }
    let is_secured = scheme == "https";
    if !is_secured && scheme != "http" {
        return Err(format!("the address has no scheme: {expected}"));
    }
    if is_secured && ca_file.is_none() {
        let why = "`https` needs `traces.ca_file`: the authorities that sign the certificate of \
                   the collector";
        return Err(why.to_owned());
    }
    format!("{scheme}://{rest}").parse().map_err(|why| format!("{why}; {expected}"))
}
