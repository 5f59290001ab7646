//! Filters: how a request is identified, limited and answered. Routes refer to them by
//! name.

use std::net::IpAddr;

use fluxgate_core::rules::values;
use fluxgate_core::yaml::{Faults, Node};
use fluxgate_http::{
    ClientIpSource, ClientIpSources, FailedClosedStatus, HeaderFamilies, ResetFormat,
};
use ipnet::IpNet;

use super::jwt::Jwt;
use super::paths::PathPatterns;
use super::rules::Rules;
use super::section::{self, Section};
use super::sources::Sources;
use super::tree;

const DEFAULT_MAX_WAITS: usize = 100;
const MAX_WAITS: usize = 1_000_000;

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
    fn read(name: &str, node: &Node, rules: &Rules, faults: &mut Faults) -> (Self, Node) {
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
        let mut section = Section::read(node, "a filter", FIELDS, faults);
        let sources = Sources::read(&mut section);
        if section.get("jwt").is_none() {
            refuse_claims(&sources, section.faults);
        }
        let failed_closed = FailedClosedStatus::default();
        let filter = Self {
            name: name.into(),
            rule_set: read_rule_set(&mut section, rules).map(Into::into),
            include: PathPatterns::read(&mut section, "include").unwrap_or_else(PathPatterns::all),
            exclude: PathPatterns::compile(section.list_or_empty("exclude"), section.faults),
            ignore_case: section.boolean("ignore_case", false),
            sources,
            jwt: Jwt::read(&mut section),
            trusted_proxies: read_networks(&mut section),
            client_ip: read_client_ip(&mut section),
            headers: read_headers(&mut section),
            failed_closed_status: section.one_of(
                "failed_closed_status",
                &STATUS_NAMES,
                failed_closed,
            ),
            max_concurrent_waits: section.whole(
                "max_concurrent_waits",
                0..=MAX_WAITS,
                DEFAULT_MAX_WAITS,
            ),
        };
        section.show("include", filter.include.node());
        section.show("exclude", filter.exclude.node());
        (filter, section.into_node())
    }
}

/// Reads the mapping under `filters`.
pub(super) fn read(root: &mut Section<'_, '_>, rules: &Rules) -> Vec<Filter> {
    let node = root.get("filters");
    let pairs = node.map(|node| node.map("`filters`", root.faults));
    let (mut filters, mut shown) = (Vec::new(), Vec::new());
    for (_, key, value) in pairs.unwrap_or_default() {
        if let Some(name) = section::name(key, "a filter's name", root.faults) {
            let (filter, node) = Filter::read(name, value, rules, root.faults);
            filters.push(filter);
            shown.push((name, node));
        }
    }
    root.show("filters", tree::map(shown));
    filters
}

fn read_rule_set<'n>(section: &mut Section<'n, '_>, rules: &Rules) -> Option<&'n str> {
    let name = section.name("rule_set")?;
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
        let message = format!("there is no rule set `{name}`; the rule sets are {known}{meant}");
        section.fault(section.get("rule_set")?, message);
    }
    Some(name)
}

/// Reads the list under `trusted_proxies`.
pub(super) fn read_networks(section: &mut Section<'_, '_>) -> Vec<IpNet> {
    let mut networks = Vec::new();
    for node in section.list_or_empty("trusted_proxies") {
        let Some(text) = node.text("a network", section.faults) else {
            continue;
        };
        let address = || text.parse::<IpAddr>().map(IpNet::from).ok();
        match text.parse::<IpNet>().ok().or_else(address) {
            Some(network) if network.trunc() == network => networks.push(network),
            // The prefix may be too short, and would trust too many addresses.
            Some(network) => {
                let meant = network.trunc();
                let message =
                    format!("`{text}` has bits set beyond its prefix; did you mean {meant}?");
                section.fault(node, message);
            }
            None => {
                let message = format!("`{text}` is not a network, such as 10.0.0.0/8 or fd00::/8");
                section.fault(node, message);
            }
        }
    }
    section.show("trusted_proxies", tree::texts(&networks));
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

fn read_client_ip(section: &mut Section<'_, '_>) -> ClientIpSources {
    let mut names = Vec::new();
    if let Some(node) = section.get("client_ip") {
        for node in section::one_or_list(node, "`client_ip`", section.faults) {
            names.extend(read_header(node, section.faults));
        }
    }
    let sources: ClientIpSources = names
        .iter()
        .map(|name| ClientIpSource::header(name))
        .collect();
    let shown = sources
        .iter()
        .map(|source| format!("header:{}", source.header_name()));
    section.show("client_ip", tree::one_or_list(shown));
    sources
}

/// Returns the name of the header, in lower case, from a text such as `header:X-Real-IP`.
fn read_header(node: &Node, faults: &mut Faults) -> Option<Box<str>> {
    let text = node.text("`client_ip`", faults)?;
    let Some(name) = text.strip_prefix("header:") else {
        let message = "`client_ip` must be header:NAME, such as header:X-User-Id";
        faults.add(node.position, message);
        return None;
    };
    values::header_name(name, node.position, faults)
}

fn read_headers(section: &mut Section<'_, '_>) -> HeaderFamilies {
    const FIELDS: &[&str] = &["legacy", "ietf", "retry_after", "reset"];
    section.section("headers", FIELDS, |section| HeaderFamilies {
        legacy: section.boolean("legacy", true),
        ietf: section.boolean("ietf", true),
        retry_after: section.boolean("retry_after", true),
        reset: section.one_of("reset", &RESET_NAMES, ResetFormat::default()),
    })
}
