//! Converts the configuration of another rate limiter into a rule file.
//!
//! An importer reads text and builds a [`Draft`]: rules, and remarks on everything that the
//! rules do not express. Where two readings are possible it takes the stricter one, and a
//! remark says so.

#![deny(missing_docs)]

mod bucket4j;
mod draft;
mod envoy_ratelimit;
mod fields;
mod kong;
mod names;
mod nginx;
mod openfluxgate;
mod path_patterns;

use fluxgate_core::RulesError;
use fluxgate_core::yaml::Faults;

use draft::{Draft, RemarkKind};
pub use draft::{InvalidDraft, Remark};

/// A format that can be imported.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Format {
    /// The YAML of envoyproxy/ratelimit.
    EnvoyRatelimit,
    /// An nginx configuration with `limit_req`.
    Nginx,
    /// The declarative YAML of Kong.
    Kong,
    /// The `application.yml` of the Spring Boot starter for Bucket4j.
    Bucket4j,
    /// The rule documents of OpenFluxGate.
    OpenFluxgate,
}

/// A rule file and what it leaves out.
#[derive(Debug)]
pub struct Imported {
    /// The rule file, with a comment for each remark.
    pub text: String,
    /// The number of rules.
    pub rules: usize,
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
    /// The rules are outside the domain of FluxGate, which the importer should have noticed.
    #[error("the imported rules are not valid: {0}")]
    Unusable(#[from] InvalidDraft),
}

/// Converts a text. `origin` names it in the first comment of the result.
pub fn import(format: Format, origin: &str, text: &str) -> Result<Imported, ImportError> {
    let mut faults = Faults::default();
    let read = match format {
        Format::EnvoyRatelimit => envoy_ratelimit::read,
        Format::Nginx => nginx::read,
        Format::Kong => kong::read,
        Format::Bucket4j => bucket4j::read,
        Format::OpenFluxgate => openfluxgate::read,
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
    if draft.sets.is_empty() {
        return Err(ImportError::Nothing(draft.remarks));
    }
    let is_lost = |remark: &&Remark| remark.kind == RemarkKind::Lost;
    Ok(Imported {
        text: draft.to_yaml(origin)?,
        rules: draft.sets.iter().map(|set| set.rules.len()).sum(),
        lost: draft.all_remarks().filter(is_lost).count(),
    })
}

#[cfg(test)]
mod tests {
    use fluxgate_core::RuleSets;

    use super::*;

    const SAMPLES: [(Format, &str); 5] = [
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
    ];

    /// Whatever the text is, the result is a valid rule file or an error about the text.
    #[test]
    fn damaged_texts_never_give_unusable_rules() {
        for (format, text) in SAMPLES {
            assert!(import(format, "sample", text).is_ok(), "{format:?}");
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
                    match import(format, "sample", &variant) {
                        Err(ImportError::Unusable(error)) => panic!("{variant}\n{error}"),
                        Err(_) => {}
                        Ok(found) => {
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
