//! Filters: how a request is identified, limited and answered. Routes refer to them by
//! name.

use std::net::IpAddr;

use fluxgate_core::yaml::{Faults, Node};
use fluxgate_http::{
    ClientIpSource, ClientIpSources, FailedClosedStatus, HeaderFamilies, ResetFormat,
};
use ipnet::IpNet;

use super::jwt::Jwt;
use super::paths::PathPatterns;
use super::read::{self, Section};
use super::rules::Rules;
use super::sources::Sources;
use super::tree;

const DEFAULT_MAX_WAITS: u64 = 100;
const MAX_WAITS: u64 = 1_000_000;

/// How a request is identified, limited and answered.
#[derive(Clone, Debug)]
pub struct Filter {
    /// Its name.
    pub name: String,
    /// The rule set that limits requests. Without one, every request passes.
    pub rule_set: Option<String>,
    /// The paths that the filter applies to.
    pub include: PathPatterns,
    /// The exceptions from `include`.
    pub exclude: PathPatterns,
    /// Whether its patterns, and those of its rule set, are compared without ASCII case.
    pub ignore_case: bool,
    /// The sources of the user, the API key and the attributes.
    pub sources: Sources,
    /// How tokens are verified, if they are.
    pub jwt: Option<Jwt>,
    /// The proxies that are trusted to report the client's address.
    pub trusted_proxies: Vec<IpNet>,
    /// The headers in which they report it, in order of precedence.
    pub client_ip: ClientIpSources,
    /// The rate limit headers of responses.
    pub headers: HeaderFamilies,
    /// The status of denials because of a store failure.
    pub failed_closed_status: FailedClosedStatus,
    /// How many requests may wait at a time in this process.
    pub max_concurrent_waits: usize,
}

const RESET_NAMES: [(&str, ResetFormat); 2] =
    [("epoch", ResetFormat::Epoch), ("delta", ResetFormat::Delta)];
const STATUS_NAMES: [(&str, FailedClosedStatus); 2] = [
    ("503", FailedClosedStatus::ServiceUnavailable),
    ("429", FailedClosedStatus::TooManyRequests),
];

impl Filter {
    /// Returns whether the filter applies to a path.
    pub fn applies_to(&self, path: &str) -> bool {
        !self.exclude.contains(path) && self.include.contains(path)
    }

    fn read(name: &str, node: &Node, rules: &Rules, faults: &mut Faults) -> Self {
        const FIELDS: &[&str] = &[
            "rule_set",
            "include",
            "exclude",
            "ignore_case",
            "identity",
            "attributes",
            "jwt",
            "trusted_proxies",
            "client_ip",
            "headers",
            "failed_closed_status",
            "max_concurrent_waits",
        ];
        let section = Section::read(node, "a filter", FIELDS, faults);
        let rule_set = section
            .get("rule_set")
            .and_then(|node| read_rule_set(node, rules, faults));
        let include = section
            .get("include")
            .map(|node| PathPatterns::read(node, "`include`", faults));
        let failed_closed = section.one_of("failed_closed_status", &STATUS_NAMES, faults);
        let (identity, attributes) = (section.get("identity"), section.get("attributes"));
        let sources = Sources::read(identity, attributes, faults);
        let jwt = section.get("jwt");
        if jwt.is_none() {
            refuse_claims(&sources, faults);
        }
        let max_waits = section
            .whole("max_concurrent_waits", 0..=MAX_WAITS, faults)
            .unwrap_or(DEFAULT_MAX_WAITS);
        Self {
            name: name.into(),
            rule_set: rule_set.map(Into::into),
            include: include.unwrap_or_else(PathPatterns::all),
            exclude: PathPatterns::compile(section.list_or_empty("exclude", faults), faults),
            ignore_case: section.boolean("ignore_case", false, faults),
            sources,
            jwt: jwt.and_then(|node| Jwt::read(node, faults)),
            trusted_proxies: read_networks(
                section.list_or_empty("trusted_proxies", faults),
                faults,
            ),
            client_ip: read_client_ip(section.get("client_ip"), faults),
            headers: read_headers(section.get("headers"), faults),
            failed_closed_status: failed_closed.unwrap_or_default(),
            max_concurrent_waits: usize::try_from(max_waits).unwrap_or(usize::MAX),
        }
    }

    pub(super) fn node(&self) -> Node {
        let header =
            |source: &ClientIpSource| tree::text(format!("header:{}", source.header_name()));
        let proxies = self.trusted_proxies.iter();
        let proxies = tree::list(proxies.map(|network| tree::text(network.to_string())));
        let client_ip = tree::one_or_list(self.client_ip.iter().map(header));
        let headers = tree::map([
            ("legacy", Some(tree::plain(self.headers.legacy))),
            ("ietf", Some(tree::plain(self.headers.ietf))),
            ("retry_after", Some(tree::plain(self.headers.retry_after))),
            (
                "reset",
                Some(tree::name_of(&RESET_NAMES, self.headers.reset)),
            ),
        ]);
        let failed_closed = tree::name_of(&STATUS_NAMES, self.failed_closed_status);
        let max_waits = tree::plain(self.max_concurrent_waits);
        tree::map([
            ("rule_set", self.rule_set.as_ref().map(tree::text)),
            ("include", self.include.node()),
            ("exclude", self.exclude.node()),
            ("ignore_case", Some(tree::plain(self.ignore_case))),
            ("identity", Some(self.sources.identity_node())),
            ("attributes", Some(self.sources.attributes_node())),
            ("jwt", self.jwt.as_ref().map(Jwt::node)),
            ("trusted_proxies", Some(proxies)),
            ("client_ip", Some(client_ip)),
            ("headers", Some(headers)),
            ("failed_closed_status", Some(failed_closed)),
            ("max_concurrent_waits", Some(max_waits)),
        ])
    }
}

/// Reads the mapping under `filters`.
pub(super) fn read(node: Option<&Node>, rules: &Rules, faults: &mut Faults) -> Vec<Filter> {
    let pairs = node.map(|node| node.map("`filters`", faults));
    let mut filters = Vec::new();
    for (_, key, value) in pairs.unwrap_or_default() {
        if let Some(name) = read::name(key, "a filter's name", faults) {
            filters.push(Filter::read(name, value, rules, faults));
        }
    }
    filters
}

fn read_rule_set<'n>(node: &'n Node, rules: &Rules, faults: &mut Faults) -> Option<&'n str> {
    let name = read::name(node, "`rule_set`", faults)?;
    // If no rules exist yet, that is only a warning.
    if let Rules::Inline(sets) = rules
        && sets.iter().next().is_some()
        && sets.get(name).is_none()
    {
        let mut known: Vec<_> = sets.iter().map(|set| set.name()).collect();
        known.sort_unstable();
        let known = known.join(", ");
        let nearest = sets.nearest_name(name);
        let meant = nearest
            .map(|nearest| format!("; did you mean `{nearest}`?"))
            .unwrap_or_default();
        faults.add(
            node.position,
            format!("there is no rule set `{name}`; the rule sets are {known}{meant}"),
        );
    }
    Some(name)
}

fn read_networks(nodes: &[Node], faults: &mut Faults) -> Vec<IpNet> {
    let mut networks = Vec::new();
    for node in nodes {
        let Some(text) = node.text("a network", faults) else {
            continue;
        };
        let address = || text.parse::<IpAddr>().map(IpNet::from).ok();
        match text.parse::<IpNet>().ok().or_else(address) {
            Some(network) if network.trunc() == network => networks.push(network),
            // The prefix may be too short, and would trust too many addresses.
            Some(network) => faults.add(
                node.position,
                format!(
                    "`{text}` has bits set beyond its prefix; did you mean {}?",
                    network.trunc()
                ),
            ),
            None => faults.add(
                node.position,
                format!("`{text}` is not a network, such as 10.0.0.0/8 or fd00::/8"),
            ),
        }
    }
    networks
}

/// Rejects claims in a filter that does not verify tokens.
fn refuse_claims(sources: &Sources, faults: &mut Faults) {
    for field in sources.fields() {
        let mut claims = { &field.sources }
            .iter()
            .filter(|source| source.claim_name().is_some());
        if let (Some(source), Some(position)) = (claims.next(), field.position) {
            faults.add(
                position,
                format!("`{source}` needs a `jwt` section in the filter, which verifies tokens"),
            );
        }
    }
}

fn read_client_ip(node: Option<&Node>, faults: &mut Faults) -> ClientIpSources {
    let nodes = node.map(|node| read::one_or_list(node, "`client_ip`", faults));
    let names = nodes
        .unwrap_or_default()
        .iter()
        .filter_map(|node| read::header(node, "`client_ip`", faults));
    names.map(|name| ClientIpSource::header(&name)).collect()
}

fn read_headers(node: Option<&Node>, faults: &mut Faults) -> HeaderFamilies {
    const FIELDS: &[&str] = &["legacy", "ietf", "retry_after", "reset"];
    let section = Section::read(node, "`headers`", FIELDS, faults);
    HeaderFamilies {
        legacy: section.boolean("legacy", true, faults),
        ietf: section.boolean("ietf", true, faults),
        retry_after: section.boolean("retry_after", true, faults),
        reset: section
            .one_of("reset", &RESET_NAMES, faults)
            .unwrap_or_default(),
    }
}
