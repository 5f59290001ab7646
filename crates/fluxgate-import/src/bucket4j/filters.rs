//! The filters of a configuration and their rate limits.

use fluxgate_core::Algorithm;
use fluxgate_core::yaml::{Faults, Node};

use super::bandwidths::Bandwidth;
use super::expressions::{self, AddOutcome, Key};
use crate::draft::{Conditions, MAX_UNITS, Remark, RuleDraft};
use crate::fields::{Fields, whole_number};
use crate::names::{UniqueNames, slug};
use crate::path_patterns::{self, Anchors};
use crate::spring::{canonical, fields};

/// What is read of a filter.
const FILTER: &str = "id url strategy ratelimits httpresponsebody httpcontenttype \
    httpresponseheaders hidehttpresponseheaders httpstatuscode";

/// The fields of a rate limit.
const LIMIT: &str = "cachekey expression executecondition postexecutecondition skipcondition \
    executepredicates skippredicates numtokens bandwidths tokensinheritancestrategy";

/// The fields of a filter that FluxGate has in another place.
const REPLACED: [(&str, &str); 4] = [
    ("cachename", STORE),
    ("filtermethod filterorder", ORDER),
    ("metrics", METRICS),
    ("majorversion minorversion", RELOAD),
];

/// What FluxGate has in the place of some settings.
pub(super) const STORE: &str = "the `store` of the config says where counters are";
pub(super) const METRICS: &str = "metrics are always on, with tags of their own";
pub(super) const RELOAD: &str = "rules change while FluxGate runs";
const ORDER: &str = "a route names its filters in their order";

/// Returns remarks on those of the named fields that are given.
pub(super) fn replaced(fields: &Fields<'_>, names: &str, instead: &str) -> Vec<Remark> {
    let is_named = |name: &str| names.split(' ').any(|it| it == name);
    let given = fields.unread_names(&[]);
    let given = given.filter(|(written, _)| is_named(&canonical(written)));
    given
        .map(|(written, line)| Remark::lost(line, format!("`{written}`: {instead}")))
        .collect()
}

/// Reads filters.
pub(super) struct FilterReader<'r> {
    pub(super) faults: &'r mut Faults,
    /// Remarks that belong to no rule.
    pub(super) remarks: &'r mut Vec<Remark>,
    pub(super) ids: UniqueNames,
    pub(super) rules: Vec<RuleDraft>,
}

impl FilterReader<'_> {
    /// Adds the rules of a filter.
    pub(super) fn filter(&mut self, node: &Node, index: usize) {
        let fields = fields(node, "a filter", self.faults);
        let mut conditions = Conditions::default();
        let known = [&[FILTER][..], &REPLACED.map(|(names, _)| names)].concat();
        let mut remarks = fields.unread("a filter", &known);
        for (names, instead) in REPLACED {
            remarks.extend(replaced(&fields, names, instead));
        }
        let url = fields.text("url", self.faults).unwrap_or(".*");
        let line = fields.line("url");
        match path_patterns::regex(url, Anchors::Both) {
            None => {
                let text =
                    format!("the filter for `{url}`: no path pattern matches the same paths");
                self.remarks.push(Remark::lost(line, text));
                return;
            }
            Some(found) => {
                if !found.is_exact {
                    let text = format!("the path patterns only resemble `{url}`");
                    remarks.push(Remark::changed(line, text));
                }
                if found.patterns != ["/**"] {
                    conditions.path = found.patterns;
                }
            }
        }
        for (name, text) in [
            (
                "httpresponsebody",
                "`http-response-body`: a denial is problem+json",
            ),
            (
                "httpcontenttype",
                "`http-content-type`: a denial is problem+json",
            ),
            ("httpresponseheaders", "`http-response-headers`"),
            (
                "hidehttpresponseheaders",
                "`hide-http-response-headers`: see `headers` of the filter",
            ),
        ] {
            if fields
                .get(name)
                .is_some_and(|it| it.as_text() != Some("false"))
            {
                remarks.push(Remark::lost(fields.line(name), text));
            }
        }
        if let Some(code) = fields.text("httpstatuscode", self.faults)
            && !matches!(code, "429" | "TOO_MANY_REQUESTS" | "too_many_requests")
        {
            let text = format!("`http-status-code: {code}`: a denied request is answered with 429");
            remarks.push(Remark::lost(fields.line("httpstatuscode"), text));
        }
        let strategies = [
            ("first", true),
            ("all", false),
            ("FIRST", true),
            ("ALL", false),
        ];
        let is_first_only = fields.one_of("strategy", &strategies, self.faults);
        let limits = fields.list("ratelimits", self.faults);
        let id = fields.text("id", self.faults);
        let name = id.map_or_else(|| format!("filter-{}", index + 1), str::to_owned);
        let is_group = is_first_only.unwrap_or(true) && limits.len() > 1;
        let filter = Filter {
            group: is_group.then(|| slug(&name)),
            name,
            conditions,
            remarks,
        };
        for (number, limit) in limits.iter().enumerate() {
            let name = match limits.len() {
                1 => filter.name.clone(),
                _ => format!("{}-{}", filter.name, number + 1),
            };
            self.limit(limit, &filter, &name);
        }
    }

    fn limit(&mut self, node: &Node, filter: &Filter, name: &str) {
        let fields = fields(node, "a rate limit", self.faults);
        let line = node.position.line;
        let mut rule = RuleDraft::new(String::new(), Algorithm::TokenBucket);
        rule.conditions = filter.conditions.clone();
        rule.remarks.clone_from(&filter.remarks);
        rule.group.clone_from(&filter.group);
        rule.remarks.extend(fields.unread("a rate limit", &[LIMIT]));
        if !self.key(&fields, &mut rule, line)
            || !self.condition(&fields, "executecondition", false, &mut rule)
            || !self.condition(&fields, "skipcondition", true, &mut rule)
            || !self.predicates(&fields, &mut rule)
        {
            return;
        }
        for (name, text) in [
            (
                "postexecutecondition",
                "`post-execute-condition`: every request counts",
            ),
            (
                "skippredicates",
                "`skip-predicates`: the limit applies to what they skip",
            ),
        ] {
            if fields.get(name).is_some_and(|it| it.as_text() != Some("")) {
                rule.remarks.push(Remark::lost(fields.line(name), text));
            }
        }
        if let Some(tokens) = fields.get("numtokens") {
            let tokens = whole_number(tokens, "`num-tokens`", 1..=MAX_UNITS, self.faults);
            rule.cost = tokens.unwrap_or(1);
        }
        self.inheritance(&fields, &mut rule);
        let bandwidths = fields.list("bandwidths", self.faults);
        if bandwidths.is_empty() {
            self.faults
                .add(node.position, "a rate limit needs `bandwidths`");
        }
        let mut read = Vec::new();
        for bandwidth in bandwidths {
            let bandwidth = self::fields(bandwidth, "a bandwidth", self.faults);
            read.extend(Bandwidth::read(&bandwidth, &mut rule.remarks, self.faults));
        }
        self.finish(rule, read, name);
    }

    /// Adds the rule of a rate limit. Bandwidths of two kinds need two rules.
    fn finish(&mut self, rule: RuleDraft, bandwidths: Vec<Bandwidth>, name: &str) {
        let (windows, buckets): (Vec<_>, Vec<_>) = bandwidths
            .into_iter()
            .partition(|bandwidth| bandwidth.is_window);
        let is_split = !windows.is_empty() && !buckets.is_empty() && rule.group.is_none();
        let mut parts = Vec::new();
        if is_split {
            parts.push((Algorithm::TokenBucket, buckets, ""));
            parts.push((Algorithm::FixedWindow, windows, "-interval"));
        } else if buckets.is_empty() {
            parts.push((Algorithm::FixedWindow, windows, ""));
        } else {
            // Only one rule of a group applies, so the rule cannot be split: all bands get one
            // algorithm.
            let all = buckets.into_iter().chain(windows).collect();
            parts.push((Algorithm::TokenBucket, all, ""));
        }
        for (index, (algorithm, bandwidths, suffix)) in parts.into_iter().enumerate() {
            if bandwidths.is_empty() {
                continue;
            }
            let mut part = rule.clone();
            if index > 0 {
                part.remarks.clear();
            }
            part.id = self.ids.unique_id(&format!("{name}{suffix}"));
            part.algorithm = algorithm;
            for mut bandwidth in bandwidths {
                part.remarks.extend(bandwidth.remark(algorithm));
                let band = &mut bandwidth.band;
                let repeated = band.drop_repeated_id(&part.bands, bandwidth.line);
                part.remarks.extend(repeated);
                part.bands.push(bandwidth.band);
            }
            self.rules.push(part);
        }
    }

    /// Reads the key. Returns whether a rule can count by it.
    fn key(&mut self, fields: &Fields<'_>, rule: &mut RuleDraft, line: usize) -> bool {
        let name = if fields.get("cachekey").is_some() {
            "cachekey"
        } else {
            "expression"
        };
        let Some(text) = fields.text(name, self.faults) else {
            return true;
        };
        if name == "cachekey" && fields.get("expression").is_some() {
            let text = "`expression`: `cache-key` takes its place";
            let line = fields.line("expression");
            rule.remarks.push(Remark::lost(line, text));
        }
        match expressions::key(text) {
            Some(Key {
                parts,
                on_missing_key,
                user,
            }) => {
                rule.key = parts;
                rule.on_missing_key = on_missing_key;
                if let Some(user) = user {
                    let text = format!(
                        "`{user}` is the user of the request, see `identity` of the filter"
                    );
                    rule.remarks.push(Remark::changed(fields.line(name), text));
                }
                true
            }
            None => {
                let text = format!("a rate limit by `{text}`: a rule cannot count by it");
                self.remarks.push(Remark::lost(line, text));
                false
            }
        }
    }

    /// Reads what happens to the used tokens when the limit changes.
    fn inheritance(&mut self, fields: &Fields<'_>, rule: &mut RuleDraft) {
        let name = "tokensinheritancestrategy";
        let strategies = [
            ("RESET", true),
            ("AS_IS", false),
            ("ADDITIVE", false),
            ("PROPORTIONALLY", false),
        ];
        let Some(node) = fields.get(name) else {
            return;
        };
        let given = node.as_text().unwrap_or_default();
        let written = given.to_ascii_uppercase().replace('-', "_");
        let found = strategies.iter().find(|(name, _)| *name == written);
        match found {
            Some((_, true)) => rule.resets_on_change = true,
            Some(_) => {
                let text = format!(
                    "`tokens-inheritance-strategy: {given}`: used units stay if the limit changes"
                );
                rule.remarks.push(Remark::changed(fields.line(name), text));
            }
            None => {
                node.one_of("`tokens-inheritance-strategy`", &strategies, self.faults);
            }
        }
    }

    /// Reads a condition. Returns whether a rule can have it.
    fn condition(
        &mut self,
        fields: &Fields<'_>,
        name: &str,
        negate: bool,
        rule: &mut RuleDraft,
    ) -> bool {
        let text = fields.text(name, self.faults).unwrap_or_default();
        if text.is_empty() {
            return true;
        }
        let shown = if negate {
            "skip-condition"
        } else {
            "execute-condition"
        };
        let condition = expressions::condition(text, negate);
        let added = condition.map(|it| it.add_to(&mut rule.conditions));
        if added == Some(AddOutcome::Both) {
            return true;
        }
        if negate {
            // Without the condition, the limit applies to more requests.
            let text = format!("`{shown}: {text}`: the limit applies to all requests");
            rule.remarks.push(Remark::lost(fields.line(name), text));
        } else {
            let text = format!("the rate limit with `{shown}: {text}`");
            self.remarks.push(Remark::lost(fields.line(name), text));
        }
        negate
    }

    /// Reads the predicates, each a mapping from a name to its argument.
    fn predicates(&mut self, fields: &Fields<'_>, rule: &mut RuleDraft) -> bool {
        for item in fields.list("executepredicates", self.faults) {
            // `PATH=/api/**` is short for a mapping.
            let pairs = match item.as_text().and_then(|text| text.split_once('=')) {
                Some(pair) => vec![pair],
                None => {
                    let pairs = item.map("a predicate", self.faults).into_iter();
                    let pairs =
                        pairs.map(|(name, _, value)| (name, value.as_text().unwrap_or_default()));
                    pairs.collect()
                }
            };
            let line = item.position.line;
            for (name, argument) in pairs {
                let condition = expressions::predicate(name, argument);
                let added = condition.map(|it| it.add_to(&mut rule.conditions));
                let together = match added {
                    Some(AddOutcome::Both) => continue,
                    // In a group, a rule that matches more requests would hide the rules after it.
                    Some(AddOutcome::OtherPath) if rule.group.is_none() => {
                        let text = format!(
                            "`{name}: {argument}` is left out: the limit applies to all paths of `url`"
                        );
                        rule.remarks.push(Remark::changed(line, text));
                        continue;
                    }
                    Some(AddOutcome::OtherPath) => " together with `url`",
                    Some(AddOutcome::Conflict) => " together with another condition of its kind",
                    None => "",
                };
                let text =
                    format!("the rate limit with the predicate `{name}: {argument}`{together}");
                self.remarks.push(Remark::lost(line, text));
                return false;
            }
        }
        true
    }
}

/// The settings that all rate limits of a filter share.
struct Filter {
    name: String,
    group: Option<String>,
    conditions: Conditions,
    remarks: Vec<Remark>,
}
