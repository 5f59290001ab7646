//! The conditions of routes.

use fluxgate_core::ValueMatch;
use fluxgate_core::yaml::Faults;

use crate::draft::{Conditions, Remark};
use crate::fields::Fields;
use crate::path_patterns::{self, Anchors};

#[derive(Debug)]
pub(super) struct Route {
    pub(super) name: String,
    pub(super) service: Option<usize>,
    /// Plain prefixes. A route without any path has `/`.
    prefixes: Vec<String>,
    /// The patterns of prefixes and regular expressions.
    patterns: Vec<String>,
    methods: Vec<String>,
    headers: Vec<(String, ValueMatch)>,
    /// Whether patterns and methods are all its conditions.
    is_simple: bool,
    remarks: Vec<Remark>,
}

impl Route {
    /// The fields that are read.
    pub(super) const FIELDS: &str =
        "paths methods headers hosts snis sources destinations expression";

    pub(super) fn read(
        fields: &Fields<'_>,
        name: &str,
        service: Option<usize>,
        has_old_paths: bool,
        faults: &mut Faults,
    ) -> Self {
        let mut route = Self {
            name: name.to_owned(),
            service,
            prefixes: Vec::new(),
            patterns: Vec::new(),
            methods: Vec::new(),
            headers: Vec::new(),
            is_simple: true,
            remarks: Vec::new(),
        };
        if fields.get("expression").is_some() {
            let text = format!("the `expression` of route `{name}`");
            let remark = Remark::lost(fields.line("expression"), text);
            route.remarks.push(remark);
            route.is_simple = false;
            return route;
        }
        let paths = fields.texts("paths", faults);
        if paths.is_empty() {
            route.prefixes.push("/".into());
            route.patterns.push("/**".into());
        }
        for (path, line) in paths {
            route.path(path, line, has_old_paths);
        }
        let methods = fields.texts("methods", faults).into_iter();
        route.methods = methods.map(|(method, _)| method.to_owned()).collect();
        if let Some(headers) = fields.get("headers") {
            let headers = Fields::read(headers, "`headers`", faults);
            for (header, line) in headers.names() {
                let texts = headers.texts(header, faults).into_iter();
                let values: Vec<_> = texts.map(|(value, _)| value).collect();
                let is_regex = values.iter().any(|value| value.starts_with("~*"));
                if is_regex || values.is_empty() || header.eq_ignore_ascii_case("host") {
                    route.ignore(&format!("the header `{header}`"), line);
                } else {
                    if values.iter().any(|it| it.contains(char::is_alphabetic)) {
                        let text = format!("the value of the header `{header}` is case-sensitive");
                        route.remarks.push(Remark::changed(line, text));
                    }
                    route
                        .headers
                        .push((header.to_owned(), ValueMatch::any_of(values)));
                    route.is_simple = false;
                }
            }
        }
        for field in ["hosts", "snis", "sources", "destinations"] {
            if !fields.list(field, faults).is_empty() {
                route.ignore(&format!("`{field}`"), fields.line(field));
            }
        }
        route
    }

    fn path(&mut self, path: &str, line: usize, has_old_paths: bool) {
        let is_plain = |char: char| char.is_ascii_alphanumeric() || "-._~/%".contains(char);
        let is_old_regex = has_old_paths && !path.chars().all(is_plain);
        let expression = path.strip_prefix('~').or(is_old_regex.then_some(path));
        let found = match expression {
            None => {
                self.prefixes.push(path.to_owned());
                path_patterns::prefix(path).map(|pattern| vec![pattern])
            }
            Some(expression) => {
                self.is_simple = false;
                path_patterns::regex(expression, Anchors::Start).map(|found| {
                    if !found.is_exact {
                        let text = format!("the path patterns only resemble `{path}`");
                        self.remarks.push(Remark::changed(line, text));
                    }
                    found.patterns
                })
            }
        };
        match found {
            Some(patterns) => self.patterns.extend(patterns),
            None => {
                self.is_simple = false;
                let text = format!("the path `{path}` of route `{}`", self.name);
                self.remarks.push(Remark::lost(line, text));
            }
        }
    }

    /// Adds a remark on a condition that a rule cannot have.
    fn ignore(&mut self, what: &str, line: usize) {
        self.is_simple = false;
        let text = format!(
            "{what} of route `{}`: the rule applies regardless of it",
            self.name
        );
        self.remarks.push(Remark::lost(line, text));
    }

    /// Returns whether prefixes are its only conditions. Kong prefers routes with more.
    pub(super) fn is_plain(&self) -> bool {
        self.is_simple && self.methods.is_empty()
    }

    /// Returns whether it may handle paths with this prefix.
    fn overlaps(&self, prefix: &str) -> bool {
        let has_regex = self.prefixes.len() < self.patterns.len();
        has_regex || self.prefixes.iter().any(|it| prefix.starts_with(it))
    }

    /// Returns the length of its longest prefix.
    pub(super) fn longest(&self) -> Option<usize> {
        self.prefixes.iter().map(String::len).max()
    }
}

/// The conditions of the routes that a plugin belongs to.
#[derive(Debug, Default)]
pub(super) struct RouteScope {
    conditions: Conditions,
    remarks: Vec<Remark>,
    /// Whether some of the routes have methods or headers that are left out.
    drops_conditions: bool,
}

impl RouteScope {
    /// Combines the conditions of the routes that a plugin belongs to. Excludes more specific
    /// routes that it does not belong to.
    pub(super) fn new(routes: &[Route], belongs: impl Fn(usize, &Route) -> bool) -> Self {
        let (bound, others): (Vec<_>, Vec<_>) = routes
            .iter()
            .enumerate()
            .partition(|(index, route)| belongs(*index, route));
        let mut scope = Self::default();
        for (_, route) in &bound {
            scope.conditions.path.extend(route.patterns.iter().cloned());
            scope.remarks.extend(route.remarks.iter().cloned());
        }
        // The routes may have different methods and headers; a rule combines only their paths.
        if let [(_, route)] = bound.as_slice() {
            scope.conditions.methods.clone_from(&route.methods);
            scope.conditions.headers.clone_from(&route.headers);
        } else {
            let has_more = |route: &Route| !route.methods.is_empty() || !route.headers.is_empty();
            scope.drops_conditions = bound.iter().any(|(_, route)| has_more(route));
        }
        let (plain, special): (Vec<_>, Vec<_>) =
            bound.iter().partition(|(_, route)| route.is_plain());
        for (_, other) in others.iter().filter(|(_, it)| it.is_plain()) {
            for prefix in &other.prefixes {
                let is_inside = plain.iter().any(|(_, route)| route.overlaps(prefix));
                let is_special = special.iter().any(|(_, route)| route.overlaps(prefix));
                let mut prefixes = bound.iter().flat_map(|(_, route)| &route.prefixes);
                let has_bound = prefixes.any(|it| it.starts_with(prefix));
                if is_inside && !is_special && !has_bound {
                    scope
                        .conditions
                        .not_path
                        .extend(path_patterns::prefix(prefix));
                }
            }
        }
        scope
    }

    /// Returns the conditions and remarks on them, or only remarks if no path is left.
    pub(super) fn into_conditions(
        self,
        line: usize,
    ) -> Result<(Conditions, Vec<Remark>), Vec<Remark>> {
        let Self {
            mut conditions,
            mut remarks,
            drops_conditions,
        } = self;
        if conditions.path.is_empty() {
            let text = "the limits of a plugin whose routes have no path that a rule can match";
            remarks.push(Remark::lost(line, text));
            return Err(remarks);
        }
        if conditions.path.iter().any(|pattern| pattern == "/**") {
            conditions.path.clear();
        }
        if drops_conditions {
            let text =
                "the rule applies to all methods and headers: its routes have different ones";
            remarks.push(Remark::changed(line, text));
        }
        Ok((conditions, remarks))
    }
}
