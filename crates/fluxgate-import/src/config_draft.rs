//! The configuration around imported rules: its store, its filters and its routes.

use std::time::Duration;

use crate::remark::Remark;

/// What a source says beyond its rules. What it leaves out has the default of FluxGate.
#[derive(Debug, Default)]
pub(crate) struct ConfigDraft {
    /// Remarks that belong to none of its parts.
    pub(crate) remarks: Vec<Remark>,
    pub(crate) redis: Option<RedisDraft>,
    /// Where the gateway listens.
    pub(crate) gateway: Option<String>,
    /// The files of the gateway's certificate and its key.
    pub(crate) tls: Option<(String, String)>,
    pub(crate) filters: Vec<FilterDraft>,
    pub(crate) routes: Vec<RouteDraft>,
    /// The fields of `gateway.timeouts`.
    pub(crate) timeouts: Vec<(&'static str, Duration)>,
    /// The bytes of the longest body, if it has a bound.
    pub(crate) max_body: Option<u64>,
    /// The rules, if they are in MongoDB.
    pub(crate) mongodb: Option<MongoDraft>,
    /// Whether requests are denied if the rule set of their filter does not exist.
    pub(crate) denies_without_rules: bool,
}

impl ConfigDraft {
    /// Returns the remarks on all its parts.
    pub(crate) fn all_remarks(&self) -> impl Iterator<Item = &Remark> {
        let own = self.remarks.iter();
        let redis = self.redis.iter().flat_map(|it| &it.remarks);
        let filters = self.filters.iter().flat_map(|it| &it.remarks);
        let routes = self.routes.iter().flat_map(|it| &it.remarks);
        let mongodb = self.mongodb.iter().flat_map(|it| &it.remarks);
        own.chain(redis).chain(filters).chain(routes).chain(mongodb)
    }
}

/// A Redis deployment.
#[derive(Debug, Default)]
pub(crate) struct RedisDraft {
    pub(crate) remarks: Vec<Remark>,
    /// At least one.
    pub(crate) urls: Vec<String>,
    /// The mode, if it is not to be detected.
    pub(crate) mode: Option<&'static str>,
    /// The name of the primary, if the URLs are sentinels.
    pub(crate) sentinel_master: Option<String>,
    pub(crate) username: Option<String>,
    /// How the names of keys begin, if not as usual.
    pub(crate) key_prefix: Option<&'static str>,
}

/// A filter.
#[derive(Debug, Default)]
pub(crate) struct FilterDraft {
    pub(crate) remarks: Vec<Remark>,
    pub(crate) name: String,
    pub(crate) rule_set: Option<String>,
    pub(crate) include: Vec<String>,
    pub(crate) exclude: Vec<String>,
    /// The header that names the client's address.
    pub(crate) client_ip: Option<String>,
    /// Names and sources of attributes.
    pub(crate) attributes: Vec<(String, String)>,
    /// Whether responses have no limit headers.
    pub(crate) hides_headers: bool,
    pub(crate) max_concurrent_waits: Option<u64>,
}

/// A route of the gateway.
#[derive(Debug, Default)]
pub(crate) struct RouteDraft {
    pub(crate) remarks: Vec<Remark>,
    pub(crate) id: String,
    pub(crate) path: Vec<String>,
    pub(crate) host: Vec<String>,
    pub(crate) methods: Vec<String>,
    pub(crate) headers: Vec<(String, String)>,
    pub(crate) upstreams: Vec<UpstreamDraft>,
    /// What is removed from the start of paths, and what is added to it.
    pub(crate) strip_prefix: Option<String>,
    pub(crate) add_prefix: Option<String>,
    pub(crate) forwarding: ForwardingDraft,
    pub(crate) filters: Vec<String>,
}

/// An upstream of a route.
#[derive(Debug)]
pub(crate) struct UpstreamDraft {
    pub(crate) url: String,
    pub(crate) weight: Option<u64>,
}

/// How a route forwards requests.
#[derive(Debug, Default)]
pub(crate) struct ForwardingDraft {
    /// The `Host` that upstreams get, if not that of the client.
    pub(crate) host: Option<String>,
    /// Headers of requests that are set, and those that are removed.
    pub(crate) set_headers: Vec<(String, String)>,
    pub(crate) removed_headers: Vec<String>,
    /// Headers of responses that are removed.
    pub(crate) hidden_headers: Vec<String>,
    /// The fields of `timeouts`.
    pub(crate) timeouts: Vec<(&'static str, Duration)>,
    /// The bytes of the longest body, if not as for other routes; 0 for no bound.
    pub(crate) max_body: Option<u64>,
}

/// Rules in MongoDB.
#[derive(Debug, Default)]
pub(crate) struct MongoDraft {
    pub(crate) remarks: Vec<Remark>,
    pub(crate) url: String,
    pub(crate) database: String,
    pub(crate) collection: String,
    pub(crate) poll: Option<Duration>,
}
