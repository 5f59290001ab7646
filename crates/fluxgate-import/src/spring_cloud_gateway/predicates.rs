//! Predicates of a route, as conditions of a rule and of a route.

use fluxgate_core::ValueMatch;
use fluxgate_core::path::Pattern;
use fluxgate_core::rules::values;
use fluxgate_core::yaml::{Faults, Position};

use super::definitions::{Arguments, Definition};
use crate::draft::{Conditions, Remark};
use crate::names::{network, network_text};
use crate::path_patterns;

/// The requests of a route.
#[derive(Debug, Default)]
pub(super) struct Matched {
    /// The conditions of its rules.
    pub(super) conditions: Conditions,
    /// The paths of the route. Unlike those of a rule, they tell a slash at the end.
    pub(super) path: Vec<String>,
    pub(super) host: Vec<String>,
    /// Headers with one value.
    pub(super) headers: Vec<(String, String)>,
    /// The predicates that rules do not express.
    pub(super) beyond_rules: Vec<String>,
    /// The predicates that routes do not express.
    pub(super) beyond_routes: Vec<String>,
    pub(super) rule_remarks: Vec<Remark>,
    pub(super) route_remarks: Vec<Remark>,
}

/// Reads the predicates of a route.
pub(super) fn read(predicates: &[Definition], faults: &mut Faults) -> Matched {
    let mut matched = Matched::default();
    for predicate in predicates {
        let is_first = |seen: &[String]| seen.is_empty();
        match predicate.name.as_str() {
            "Path" if is_first(&matched.path) => matched.paths(predicate, faults),
            "Method" if is_first(&matched.conditions.methods) => {
                let methods = predicate.values(&["methods", "method"], faults);
                let methods = methods.iter().map(|it| it.to_ascii_uppercase());
                matched.conditions.methods = methods.collect();
            }
            "Host" if is_first(&matched.host) => matched.hosts(predicate, faults),
            "Header" => matched.header(predicate, faults),
            "RemoteAddr" if is_first(&matched.conditions.ip) => {
                matched.addresses(predicate, faults);
            }
            _ => matched.beyond(predicate),
        }
    }
    matched
}

impl Matched {
    /// Adds a predicate that neither rules nor routes express.
    fn beyond(&mut self, predicate: &Definition) {
        self.beyond_rules.push(predicate.text.clone());
        self.beyond_routes.push(predicate.text.clone());
    }

    fn paths(&mut self, predicate: &Definition, faults: &mut Faults) {
        let mut patterns = predicate.values(&["patterns", "pattern"], faults);
        let mut ends_with_slash_too = true;
        // In the short form, the last value may say so.
        match &predicate.arguments {
            Arguments::Short(_) => {
                let flag = patterns.last().map(|it| it.to_ascii_lowercase());
                if let Some(flag @ ("true" | "false")) = flag.as_deref() {
                    ends_with_slash_too = flag == "true";
                    patterns.pop();
                }
            }
            Arguments::Named(fields) => {
                let flag = fields.boolean("args.match-trailing-slash", faults);
                ends_with_slash_too = flag.unwrap_or(true);
            }
        }
        let converted: Option<Vec<_>> = patterns.iter().map(|it| path(it)).collect();
        let Some(converted) = converted.filter(|it| !it.is_empty()) else {
            self.beyond(predicate);
            return;
        };
        for pattern in &converted {
            self.path.push(pattern.clone());
            let is_open = pattern.ends_with("/**") || pattern.ends_with('/');
            if ends_with_slash_too && !is_open {
                self.path.push(format!("{pattern}/"));
            }
        }
        self.conditions.path = converted;
    }

    fn hosts(&mut self, predicate: &Definition, faults: &mut Faults) {
        // Rules do not match hosts.
        self.beyond_rules.push(predicate.text.clone());
        for pattern in predicate.values(&["patterns", "pattern"], faults) {
            let Some((hosts, is_wider)) = host(&pattern) else {
                self.beyond_routes.push(predicate.text.clone());
                return;
            };
            self.host.extend(hosts);
            if is_wider {
                let text = format!("the host `{pattern}` matches subdomains of any depth");
                let remark = Remark::changed(predicate.line, text);
                self.route_remarks.push(remark);
            }
        }
        if self.host.is_empty() {
            self.beyond_routes.push(predicate.text.clone());
        }
    }

    fn header(&mut self, predicate: &Definition, faults: &mut Faults) {
        let name = predicate.value("header", 0, faults).unwrap_or_default();
        let position = Position {
            line: predicate.line,
            column: 1,
        };
        if values::header_name(&name, position, faults).is_none() {
            return;
        }
        let is_known = |(known, _): &(String, ValueMatch)| known.eq_ignore_ascii_case(&name);
        if self.conditions.headers.iter().any(is_known) {
            self.beyond(predicate);
            return;
        }
        match predicate.value("regexp", 1, faults) {
            Some(value) if is_literal(&value) => {
                self.headers.push((name.clone(), value.clone()));
                self.conditions.headers.push((name, value.as_str().into()));
            }
            expression => {
                if expression.is_some() {
                    let text = format!("any value of the header in `{}` counts", predicate.text);
                    self.rule_remarks
                        .push(Remark::changed(predicate.line, text));
                }
                self.beyond_routes.push(predicate.text.clone());
                self.conditions.headers.push((name, ValueMatch::present()));
            }
        }
    }

    fn addresses(&mut self, predicate: &Definition, faults: &mut Faults) {
        self.beyond_routes.push(predicate.text.clone());
        let given = predicate.values(&["sources", "source"], faults);
        let networks: Option<Vec<_>> = given.iter().map(|it| network(it)).collect();
        match networks.filter(|it| !it.is_empty()) {
            Some(networks) => {
                self.conditions.ip = networks.iter().map(network_text).collect();
            }
            None => self.beyond_rules.push(predicate.text.clone()),
        }
    }
}

/// Returns the pattern of paths. `{*rest}` and `**` at the end are the same.
fn path(pattern: &str) -> Option<String> {
    let pattern = match pattern
        .strip_suffix('}')
        .and_then(|it| it.rsplit_once("/{*"))
    {
        Some((before, name)) if !name.contains(['{', '/']) => format!("{before}/**"),
        _ => pattern.to_owned(),
    };
    let pattern = if pattern.starts_with('/') {
        pattern
    } else {
        format!("/{pattern}")
    };
    match path_patterns::ant(&pattern) {
        Some(pattern) => Some(pattern),
        None => Pattern::parse(&pattern).is_ok().then_some(pattern),
    }
}

/// Returns the hosts of a pattern, and whether they match more than it does.
fn host(pattern: &str) -> Option<(Vec<String>, bool)> {
    let pattern = pattern.to_ascii_lowercase();
    let is_name = |host: &str| {
        let is_label = |label: &str| {
            let is_letter = |byte: u8| byte.is_ascii_alphanumeric() || b"-_".contains(&byte);
            !label.is_empty() && label.bytes().all(is_letter)
        };
        host.split('.').all(is_label)
    };
    // `**` matches any number of labels, none included.
    if let Some(rest) = pattern.strip_prefix("**.") {
        return is_name(rest).then(|| (vec![rest.to_owned(), format!("*.{rest}")], false));
    }
    let (first, rest) = pattern.split_once('.').unwrap_or((pattern.as_str(), ""));
    let is_variable = first.starts_with('{') && first.ends_with('}') && !first.contains(':');
    if first == "*" || is_variable {
        return is_name(rest).then(|| (vec![format!("*.{rest}")], true));
    }
    is_name(&pattern).then(|| (vec![pattern.clone()], false))
}

fn is_literal(expression: &str) -> bool {
    !expression.is_empty() && !expression.contains(|char| r".^$*+?()[]{}|\".contains(char))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn host_patterns_become_hosts() {
        for (pattern, expected) in [
            ("api.example.com", Some(("api.example.com", false))),
            ("**.Example.com", Some(("example.com *.example.com", false))),
            ("*.example.com", Some(("*.example.com", true))),
            ("{sub}.example.com", Some(("*.example.com", true))),
            ("*", None),
            ("**", None),
            ("a.*.com", None),
            ("example.com:8080", None),
            ("{sub:[a-z]+}.example.com", None),
        ] {
            let found = host(pattern).map(|(hosts, is_wider)| (hosts.join(" "), is_wider));
            let expected = expected.map(|(hosts, is_wider)| (hosts.to_owned(), is_wider));
            assert_eq!(found, expected, "{pattern}");
        }
    }

    #[test]
    fn path_patterns_have_variables() {
        for (pattern, expected) in [
            ("/api/**", Some("/api/**")),
            ("/orders/{id}", Some("/orders/{id}")),
            ("/files/{*rest}", Some("/files/**")),
            ("/{*rest}", Some("/**")),
            ("/a/{id:[0-9]+}", None),
            ("api/**", Some("/api/**")),
            ("/**", Some("/**")),
        ] {
            assert_eq!(path(pattern).as_deref(), expected, "{pattern}");
        }
    }
}
