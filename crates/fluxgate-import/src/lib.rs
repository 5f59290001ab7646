//! Converts the configuration of another rate limiter into a rule file.
//!
//! An importer reads text and builds a [`Draft`]: rules, and remarks on everything that the
//! rules do not express. Where two readings are possible it takes the stricter one, and a
//! remark says so.

#![deny(missing_docs)]

mod bucket4j;
mod config_draft;
mod draft;
mod envoy_ratelimit;
mod fields;
mod kong;
mod names;
mod nginx;
mod openfluxgate;
mod path_patterns;
mod remark;
mod rule_file;
mod spring;
mod spring_cloud_gateway;

use fluxgate_core::RulesError;
use fluxgate_core::yaml::Faults;

use config_draft::ConfigDraft;
use draft::Draft;
pub use draft::InvalidDraft;
pub use names::rule_id;
pub use openfluxgate::{LiveDocuments, openfluxgate_documents};
pub use remark::Remark;
use remark::RemarkKind;

/// A format that can be imported.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Format {
    /// The YAML of envoyproxy/ratelimit.
    EnvoyRatelimit,
    /// An nginx configuration with `limit_req` and `limit_conn`.
    Nginx,
    /// The declarative YAML of Kong.
    Kong,
    /// The `application.yml` of the Spring Boot starter for Bucket4j.
    Bucket4j,
    /// The rule documents of OpenFluxGate, or its `application.yml`.
    OpenFluxgate,
    /// The `application.yml` of Spring Cloud Gateway.
    SpringCloudGateway,
}

/// What a text becomes.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Output {
    /// A rule file.
    Rules,
    /// A configuration, with the routes, filters, stores and rule sources of the source.
    Config,
}

/// A rule file or a configuration, and what it leaves out.
#[derive(Debug)]
pub struct Imported {
    /// The file, with a comment for each remark.
    pub text: String,
    /// The number of rules.
    pub rules: usize,
    /// The number of routes.
    pub routes: usize,
    /// The number of things that were not carried over.
    pub lost: usize,
}

/// Why a text cannot be imported.
#[derive(Debug, thiserror::Error)]
pub enum ImportError {
    /// The text is not valid in its format.
    #[error("{0}")]
    Invalid(RulesError),
    /// The text is valid, but no rule could be made from it.
    #[error("no rule could be carried over")]
    Nothing(Vec<Remark>),
    /// The text has settings but no rules.
    #[error("there are settings but no rules in it; `--config` writes a configuration")]
    OnlyConfig(Vec<Remark>),
    /// Only the rules of the format can be carried over.
    #[error("only the rules of this format are carried over; leave out `--config`")]
    OnlyRules,
    /// The rules are outside the domain of FluxGate, which the importer should have noticed.
    #[error("the imported rules are not valid: {0}")]
    Unusable(#[from] InvalidDraft),
}

/// Converts a text. `origin` names it in the first comment of the result.
pub fn import(
    format: Format,
    origin: &str,
    text: &str,
    output: Output,
) -> Result<Imported, ImportError> {
    let mut faults = Faults::default();
    let read = match format {
        Format::EnvoyRatelimit => envoy_ratelimit::read,
        Format::Nginx => nginx::read,
        Format::Kong => kong::read,
        Format::Bucket4j => bucket4j::read,
        Format::OpenFluxgate => openfluxgate::read,
        Format::SpringCloudGateway => spring_cloud_gateway::read,
    };
    // A byte order mark is not part of the text.
    let text = text.strip_prefix('\u{feff}').unwrap_or(text);
    let mut draft = read(text, &mut faults).unwrap_or_else(|fault| {
        faults.add(fault.position, fault.message);
        Draft::default()
    });
    if faults.count() > 0 {
        return Err(ImportError::Invalid(RulesError(faults.into_sorted())));
    }
    draft.drop_empty_sets();
    draft.drop_repeated_band_ids();
    let config = draft.config.take();
    match (output, &config) {
        (Output::Config, Some(config)) => imported_config(&draft, config, origin),
        (Output::Config, None) => Err(ImportError::OnlyRules),
        (Output::Rules, Some(_)) if draft.sets.is_empty() => {
            Err(ImportError::OnlyConfig(draft.remarks))
        }
        (Output::Rules, _) if draft.sets.is_empty() => Err(ImportError::Nothing(draft.remarks)),
        (Output::Rules, config) => {
            if config.is_some() {
                let text = "routes, filters and the store: `--config` writes them, too";
                draft.remarks.insert(0, Remark::lost(1, text));
            }
            let text = rule_file::to_yaml(&draft, origin)?;
            let selections = draft.sets.iter().filter_map(|set| set.selection.as_ref());
            let lost = count_lost(draft.all_remarks().chain(selections));
            Ok(imported(&draft, text, 0, lost))
        }
    }
}

fn imported_config(
    draft: &Draft,
    config: &ConfigDraft,
    origin: &str,
) -> Result<Imported, ImportError> {
    let text = rule_file::to_config(draft, config, origin)?;
    let lost = count_lost(draft.all_remarks().chain(config.all_remarks()));
    Ok(imported(draft, text, config.routes.len(), lost))
}

fn imported(draft: &Draft, text: String, routes: usize, lost: usize) -> Imported {
    Imported {
        text,
        rules: draft.sets.iter().map(|set| set.rules.len()).sum(),
        routes,
        lost,
    }
}

fn count_lost<'r>(remarks: impl Iterator<Item = &'r Remark>) -> usize {
    remarks.filter(|it| it.kind == RemarkKind::Lost).count()
}

#[cfg(test)]
mod tests {
    use fluxgate_core::RuleSets;
    use fluxgate_core::yaml::Node;

    use super::*;

    const SAMPLES: [(Format, &str); 7] = [
        (
            Format::EnvoyRatelimit,
            "domain: d\ndescriptors:\n- key: a\n  value: b\n  shadow_mode: true\n  rate_limit: {unit: day, \
             requests_per_unit: 5}\n- key: a\n  rate_limit: {unit: hour, requests_per_unit: 50}\n  \
             descriptors: [{key: c, rate_limit: {unit: year, requests_per_unit: 0}}]\n",
        ),
        (
            Format::Nginx,
            "limit_req_zone $http_a$uri zone=z:1m rate=10r/s; server { server_name \"a b\"; limit_req \
             zone=z burst=20 delay=7; location ~ ^/(a|b).*c$ { limit_req zone=z; } location = /x { } }",
        ),
        (
            Format::Kong,
            "_format_version: '3.0'\nservices:\n- {name: s, routes: [{name: r, paths: [/a, '~/b[^/]+$'], \
             plugins: [{name: rate-limiting, config: {second: 5, year: 9}}]}]}\nplugins:\n- {name: \
             rate-limiting-advanced, config: {limit: [5], window_size: [30], identifier: ip}}\n",
        ),
        (
            Format::Bucket4j,
            "bucket4j:\n  filters:\n  - url: /a(/.*)?\n    rate-limits:\n    - cache-key: \
             getHeader('A') + getRemoteAddr()\n      execute-condition: getHeader('B') != 'c'\n      \
             bandwidths: [{capacity: 10, time: 1, unit: days, refill-capacity: 3, id: x}]\n",
        ),
        (
            Format::OpenFluxgate,
            "[{\"id\":\"A b\",\"scope\":\"CUSTOM\",\"keyStrategyId\":\"k\",\"bands\":[{\"windowSeconds\":60,\
             \"capacity\":9,\"label\":\"x y\",\"algorithm\":\"FIXED_WINDOW\",\"quotaPeriod\":\"DAILY\"}],\
             \"pathPatterns\":[\"/a/**\"],\"deniedIps\":[\"10.0.0.0/8\"],\"headerEquals\":{\"H\":\"v\"}}]",
        ),
        (
            Format::Nginx,
            "map $http_a $k { default $http_a; '' $remote_addr; } limit_conn_zone $k zone=z:1m; server { \
             limit_conn z 5; location /x { limit_conn z 7; limit_conn_dry_run on; } }",
        ),
        (
            Format::SpringCloudGateway,
            "spring.cloud.gateway:\n  routes:\n  - id: 주문\n    uri: http://a:1\n    predicates: \
             ['Path=/a/{b},/c/**', 'Host=**.d.e', Header=F, 'Method=GET']\n    filters:\n    - name: \
             RequestRateLimiter\n      args: {redis-rate-limiter: {replenishRate: 2, burstCapacity: 9}, \
             key-resolver: '#{@gResolver}'}\n    - StripPrefix=1\n",
        ),
    ];

    /// Whatever the text is, the result is a valid rule file or an error about the text.
    #[test]
    fn damaged_texts_never_give_unusable_rules() {
        for (format, text) in SAMPLES {
            assert!(
                import(format, "sample", text, Output::Rules).is_ok(),
                "{format:?}"
            );
            let mut imported = 0;
            for (index, char) in text.char_indices() {
                let (begin, end) = (&text[..index], &text[index + char.len_utf8()..]);
                let other = "{}[]:;\"'#*\n$0/~- ".chars().nth(index % 17).unwrap();
                let variants = [
                    begin.to_owned(),
                    format!("{begin}{end}"),
                    format!("{begin}{other}{end}"),
                    format!("{begin}{char}{char}{end}"),
                ];
                for variant in variants {
                    match import(format, "sample", &variant, Output::Rules) {
                        Err(ImportError::Unusable(error)) => panic!("{variant}\n{error}"),
                        Err(_) => {}
                        Ok(found) => {
                            let config = import(format, "sample", &variant, Output::Config);
                            let config = config.map(|it| it.text).unwrap_or_default();
                            assert!(Node::parse(&config).is_ok(), "{variant}\n{config}");
                            let read = RuleSets::from_yaml(&found.text);
                            assert!(read.is_ok(), "{variant}\n{}\n{read:?}", found.text);
                            imported += 1;
                        }
                    }
                }
            }
            assert!(imported > 50, "{format:?}: {imported}");
        }
    }
}
