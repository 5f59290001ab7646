//! The `application.yml` of the Spring Boot starter for Bucket4j.
//!
//! A filter has a URL pattern and rate limits; with the strategy `first`, only the first of
//! them whose condition holds applies, which is what a group does. A rate limit has a key and
//! bandwidths.

mod bandwidths;
mod expressions;

use fluxgate_core::internals::yaml::{Faults, Node};

use super::draft::{Algorithm, Draft, Match, Remark, Rule, Set, Test};
use super::fields::Fields;
use super::names::Ids;
use super::path_patterns;
use bandwidths::{Bandwidth, placeholder};
use expressions::{Condition, Key};

/// Reads a configuration.
pub(super) fn read(text: &str, faults: &mut Faults) -> Draft {
    let node = match Node::parse(text) {
        Ok(node) => node,
        Err(fault) => return super::unreadable(fault, faults),
    };
    if node
        .as_text()
        .is_some_and(|text| text.contains("bucket4j."))
    {
        let text = "this is not YAML but a .properties file; convert it to application.yml";
        faults.add(node.position, text);
        return Draft::default();
    }
    let root = fields(&node, "a configuration", faults);
    let Some(settings) = root.get("bucket4j") else {
        if faults.count() == 0 {
            faults.add(node.position, "a configuration needs `bucket4j`");
        }
        return Draft::default();
    };
    let settings = fields(settings, "`bucket4j`", faults);
    let mut reader = Reader {
        faults,
        remarks: Vec::new(),
        ids: Ids::default(),
        rules: Vec::new(),
    };
    let is_enabled = settings.boolean("enabled", true, reader.faults);
    if !is_enabled {
        let text = "`enabled: false`, so the rules are disabled";
        let line = settings.line("enabled");
        reader.remarks.push(Remark::changed(line, text));
    }
    if settings.get("methods").is_some() {
        let text = "`methods`: rules apply to requests, not to methods";
        let line = settings.line("methods");
        reader.remarks.push(Remark::lost(line, text));
    }
    let filters = settings.list("filters", reader.faults);
    for (index, filter) in filters.iter().enumerate() {
        reader.filter(filter, index);
    }
    for rule in &mut reader.rules {
        rule.enabled = is_enabled;
    }
    let set = Set {
        name: "bucket4j".into(),
        rules: reader.rules,
        ..Set::default()
    };
    Draft {
        remarks: reader.remarks,
        sets: vec![set],
    }
}

/// Reads a mapping whose names may be written in any of the styles that Spring accepts.
fn fields<'n>(node: &'n Node, what: &str, faults: &mut Faults) -> Fields<'n> {
    let spelling = |name: &str| {
        let letters = name.chars().filter(|char| !matches!(char, '-' | '_'));
        letters.collect::<String>().to_ascii_lowercase()
    };
    Fields::with_names(node, what, spelling, faults)
}

struct Reader<'r> {
    faults: &'r mut Faults,
    remarks: Vec<Remark>,
    ids: Ids,
    rules: Vec<Rule>,
}

impl Reader<'_> {
    fn filter(&mut self, node: &Node, index: usize) {
        let fields = fields(node, "a filter", self.faults);
        let mut matches = Match::default();
        let mut remarks = Vec::new();
        let url = fields.text("url", self.faults).unwrap_or(".*");
        let line = fields.line("url");
        match path_patterns::regex(url, (true, true)) {
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
                    matches.path = found.patterns;
                }
            }
        }
        for (name, text) in [
            (
                "httpresponsebody",
                "`http-response-body`: a denial is problem+json",
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
        let strategy = fields.get("strategy");
        let strategy = strategy.and_then(|it| it.one_of("`strategy`", &strategies, self.faults));
        let limits = fields.list("ratelimits", self.faults);
        let id = fields.text("id", self.faults);
        let name = id.map_or_else(|| format!("filter-{}", index + 1), str::to_owned);
        let is_group = strategy.unwrap_or(true) && limits.len() > 1;
        let filter = Filter {
            group: is_group.then(|| super::names::slug(&name)),
            name,
            matches,
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
        let mut rule = Rule::new(String::new(), Algorithm::TokenBucket);
        rule.matches = filter.matches.clone();
        rule.remarks.clone_from(&filter.remarks);
        rule.group.clone_from(&filter.group);
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
            let (tokens, remark) = placeholder(tokens);
            rule.remarks.extend(remark);
            let most = (1, super::draft::MAX_UNITS);
            let tokens = super::fields::whole(&tokens, "`num-tokens`", most, self.faults);
            rule.cost = tokens.unwrap_or(1);
        }
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
    fn finish(&mut self, rule: Rule, bandwidths: Vec<Bandwidth>, name: &str) {
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
            // A group applies one rule only, so all bands have one algorithm.
            let all = buckets.into_iter().chain(windows).collect();
            parts.push((Algorithm::TokenBucket, all, ""));
        }
        for (index, (algorithm, bandwidths, more)) in parts.into_iter().enumerate() {
            if bandwidths.is_empty() {
                continue;
            }
            let mut part = rule.clone();
            if index > 0 {
                part.remarks.clear();
            }
            part.id = self.ids.unique(&format!("{name}{more}"));
            part.algorithm = algorithm;
            for bandwidth in bandwidths {
                part.remarks.extend(bandwidth.remark(algorithm));
                part.bands.push(bandwidth.band);
            }
            self.rules.push(part);
        }
    }

    /// Reads the key. Returns whether a rule can count by it.
    fn key(&mut self, fields: &Fields<'_>, rule: &mut Rule, line: usize) -> bool {
        let name = if fields.get("cachekey").is_some() {
            "cachekey"
        } else {
            "expression"
        };
        let Some(text) = fields.text(name, self.faults) else {
            return true;
        };
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

    /// Reads a condition. Returns whether a rule can have it.
    fn condition(
        &mut self,
        fields: &Fields<'_>,
        name: &str,
        negate: bool,
        rule: &mut Rule,
    ) -> bool {
        let Some(text) = fields
            .text(name, self.faults)
            .filter(|text| !text.is_empty())
        else {
            return true;
        };
        let shown = if negate {
            "skip-condition"
        } else {
            "execute-condition"
        };
        let condition = expressions::condition(text, negate);
        match condition.is_some_and(|it| it.add_to(&mut rule.matches)) {
            true => true,
            // Without the condition, the limit applies to more requests.
            _ if negate => {
                let text = format!("`{shown}: {text}`: the limit applies to all requests");
                rule.remarks.push(Remark::lost(fields.line(name), text));
                true
            }
            _ => {
                let text = format!("the rate limit with `{shown}: {text}`");
                self.remarks.push(Remark::lost(fields.line(name), text));
                false
            }
        }
    }

    /// Reads the predicates, each a mapping from a name to its argument.
    fn predicates(&mut self, fields: &Fields<'_>, rule: &mut Rule) -> bool {
        for item in fields.list("executepredicates", self.faults) {
            // `PATH=/api/**` is short for a mapping.
            let pairs = match item.as_text().and_then(|text| text.split_once('=')) {
                Some((name, argument)) => vec![(name.to_owned(), argument.to_owned())],
                None => {
                    let pairs = item.map("a predicate", self.faults).into_iter();
                    let pairs = pairs.map(|(name, _, value)| {
                        (
                            name.to_owned(),
                            value.as_text().unwrap_or_default().to_owned(),
                        )
                    });
                    pairs.collect()
                }
            };
            for (name, argument) in pairs {
                let condition = expressions::predicate(&name, &argument);
                if !condition.is_some_and(|it| it.add_to(&mut rule.matches)) {
                    let text = format!("the rate limit with the predicate `{name}: {argument}`");
                    self.remarks.push(Remark::lost(item.position.line, text));
                    return false;
                }
            }
        }
        true
    }
}

/// What all rate limits of a filter have in common.
struct Filter {
    name: String,
    group: Option<String>,
    matches: Match,
    remarks: Vec<Remark>,
}

impl Condition {
    /// Adds the condition to those of a rule, unless it has one of that kind.
    fn add_to(self, matches: &mut Match) -> bool {
        match self {
            Self::Methods(methods) if matches.methods.is_empty() => matches.methods = methods,
            Self::Path(pattern) if matches.path.is_empty() => matches.path = vec![pattern],
            Self::NotPath(pattern) => matches.not_path.push(pattern),
            Self::Header(name, test) if !has(&matches.headers, &name) => {
                matches.headers.push((name, test));
            }
            _ => return false,
        }
        true
    }
}

fn has(headers: &[(String, Test)], name: &str) -> bool {
    headers
        .iter()
        .any(|(known, _)| known.eq_ignore_ascii_case(name))
}
