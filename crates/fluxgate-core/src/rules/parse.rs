//! From a YAML tree to rules, with every fault noted at its place.

use std::collections::HashSet;
use std::ops::Range;
use std::sync::Arc;
use std::time::Duration;

use hashbrown::HashMap;

use super::rule::{Band, CostSource, OnError, OnMissingRuleSet, Rule, RuleMode};
use super::{RuleNumber, RuleOptions, RuleSet, RuleSets, duration};
use crate::key::{self, KeyPart, OnMissingKey, SubjectBytes};
use crate::limit::{Algorithm, Field, Limit, LimitBuilder, LimitError, MAX_UNITS};
use crate::matcher::{Conditions, Matcher, PathSet, Pattern};
use crate::sip::Sip13;
use crate::yaml::{Faults, Node, Position, Value};

const DEFAULT_PRIORITY: i64 = 100;
const DEFAULT_MAX_WAIT: Duration = Duration::from_secs(5);
const MAX_NAME: usize = 200;

/// A whole rule file.
pub(super) fn rule_file(root: &Node, faults: &mut Faults) -> RuleSets {
    let [rule_sets, on_missing, keys] = faults.fields(
        root,
        "a rule file",
        ["rule_sets", "on_missing_rule_set", "keys"],
    );
    let mut options = RuleOptions::default();
    if let Some(node) = on_missing {
        let names = [
            ("allow", OnMissingRuleSet::Allow),
            ("deny", OnMissingRuleSet::Deny),
        ];
        options.on_missing_rule_set = faults
            .one_of(node, "`on_missing_rule_set`", &names)
            .unwrap_or_default();
    }
    if let Some(node) = keys {
        let [prefix] = faults.fields(node, "`keys`", ["ipv6_prefix"]);
        if let Some(prefix) = prefix.and_then(|node| faults.whole(node, "`ipv6_prefix`", 1, 128)) {
            options.ipv6_prefix = prefix as u8;
        }
    }
    match rule_sets {
        Some(node) => sets(node, options, faults),
        None => {
            // What is no mapping at all has been told.
            if faults.count() == 0 {
                faults.add(root.position, "`rule_sets` is missing");
            }
            RuleSets::default()
        }
    }
}

/// The mapping under `rule_sets`.
fn sets(node: &Node, options: RuleOptions, faults: &mut Faults) -> RuleSets {
    let mut sets = HashMap::new();
    for (name, key, value) in faults.map(node, "`rule_sets`") {
        if name.is_empty() || name.len() > MAX_NAME || name.chars().any(char::is_control) {
            faults.add(
                key.position,
                format!(
                    "a rule set's name must have 1 to {MAX_NAME} bytes and no control character"
                ),
            );
        }
        let set = rule_set(name, value, options, faults);
        sets.insert(name.into(), Arc::new(set));
    }
    RuleSets {
        sets,
        on_missing: options.on_missing_rule_set,
    }
}

fn rule_set(name: &str, node: &Node, options: RuleOptions, faults: &mut Faults) -> RuleSet {
    let [on_error, rules] = faults.fields(node, "a rule set", ["on_error", "rules"]);
    let on_error = on_error.and_then(|node| {
        let names = [
            ("allow", OnError::Allow),
            ("deny", OnError::Deny),
            ("local", OnError::Local),
        ];
        faults.one_of(node, "`on_error`", &names)
    });
    if rules.is_none() {
        faults.add(node.position, format!("rule set `{name}` has no `rules`"));
    }
    let nodes = rules.map_or(&[][..], |node| faults.list(node, "`rules`"));
    let mut ids = HashSet::new();
    let mut enabled = Vec::new();
    for node in nodes {
        let Some(parsed) = RuleReader {
            set: name,
            options,
            faults,
        }
        .rule(node, &mut ids) else {
            continue;
        };
        if parsed.enabled {
            enabled.push((parsed.rule, parsed.conditions));
        }
    }
    // Stable: rules of one priority stay in the order of the file.
    enabled.sort_by_key(|(rule, _)| rule.priority);
    let (rules, conditions): (Vec<_>, Vec<_>) = enabled.into_iter().unzip();
    RuleSet {
        name: name.into(),
        on_error: on_error.unwrap_or_default(),
        rules,
        matcher: Matcher::new(conditions),
        ipv6_prefix: options.ipv6_prefix,
    }
}

struct ParsedRule {
    rule: Rule,
    conditions: Conditions,
    enabled: bool,
}

struct RuleReader<'a> {
    set: &'a str,
    options: RuleOptions,
    faults: &'a mut Faults,
}

impl RuleReader<'_> {
    /// A rule, or `None` if it is so wrong that nothing can be made of it; what
    /// is wrong is noted in either case.
    fn rule<'n>(&mut self, node: &'n Node, ids: &mut HashSet<&'n str>) -> Option<ParsedRule> {
        let faults_before = self.faults.count();
        let [
            id,
            name,
            enabled,
            mode,
            priority,
            matches,
            scope,
            key,
            on_missing_key,
            algorithm,
            shape,
            bands,
            cost,
            on_exceed,
            max_wait,
            overrides,
            reset_on_change,
            attributes,
        ] = self.faults.fields(
            node,
            "a rule",
            [
                "id",
                "name",
                "enabled",
                "mode",
                "priority",
                "match",
                "scope",
                "key",
                "on_missing_key",
                "algorithm",
                "shape",
                "bands",
                "cost",
                "on_exceed",
                "max_wait",
                "overrides",
                "reset_on_change",
                "attributes",
            ],
        );
        let id = self.rule_id(node, id, ids);
        let name = name.and_then(|node| self.faults.text(node, "`name`"));
        let enabled = self.boolean(enabled, "`enabled`", true);
        let modes = [("enforce", RuleMode::Enforce), ("shadow", RuleMode::Shadow)];
        let mode = mode.and_then(|node| self.faults.one_of(node, "`mode`", &modes));
        let priority = priority.and_then(|node| {
            let (least, most) = (i64::from(i32::MIN), i64::from(i32::MAX));
            self.faults.whole(node, "`priority`", least, most)
        });
        let (conditions, not_path) = self.conditions(matches);
        let key = self.key(node, scope, key);
        let on_missing_key = on_missing_key.and_then(|node| {
            let names = [
                ("ip", OnMissingKey::Ip),
                ("anonymous", OnMissingKey::Anonymous),
                ("skip", OnMissingKey::Skip),
                ("deny", OnMissingKey::Deny),
            ];
            self.faults.one_of(node, "`on_missing_key`", &names)
        });
        let algorithm = match algorithm {
            Some(node) => self.faults.one_of(node, "`algorithm`", &Algorithm::NAMES),
            None => Some(Algorithm::TokenBucket),
        };
        let waits = on_exceed
            .and_then(|node| {
                let names = [("reject", false), ("wait", true)];
                self.faults.one_of(node, "`on_exceed`", &names)
            })
            .unwrap_or(false);
        let max_wait = max_wait.and_then(|node| self.duration(node, "`max_wait`"));
        let style = BandStyle {
            algorithm,
            shape: self.boolean(shape, "`shape`", false),
            shape_at: shape.map_or(node.position, |node| node.position),
            max_wait: waits.then(|| max_wait.unwrap_or(DEFAULT_MAX_WAIT)),
        };
        let mut bands = match bands {
            Some(list) => self.bands(list, &style),
            None => {
                self.faults.add(node.position, "a rule needs `bands`");
                Vec::new()
            }
        };
        let cost = cost.map_or(Some(CostSource::Fixed(1)), |node| self.cost(node));
        let own = bands.len() as u32;
        let overrides =
            overrides.map(|node| self.overrides(node, key.as_deref(), &style, &mut bands));
        let reset_on_change = self.boolean(reset_on_change, "`reset_on_change`", false);
        let attributes = attributes.map(|node| self.texts(node, "`attributes`"));

        let subject = subject_of_rule(self.set, id?, reset_on_change.then_some(node));
        let Some(number) = RuleNumber::of(&subject) else {
            self.faults.add(
                node.position,
                "this process has seen a million different rules; restart it to load more",
            );
            return None;
        };
        if self.faults.count() > faults_before {
            return None;
        }
        Some(ParsedRule {
            rule: Rule {
                id: id?.into(),
                name: name.map(Into::into),
                mode: mode.unwrap_or_default(),
                priority: priority.unwrap_or(DEFAULT_PRIORITY),
                not_path,
                key: key?,
                on_missing_key: on_missing_key.unwrap_or_default(),
                cost: cost?,
                waits,
                bands,
                own,
                overrides: overrides.unwrap_or_default(),
                attributes: attributes.unwrap_or_default(),
                subject: subject.to_vec().into(),
                number,
                reset_on_change,
            },
            conditions,
            enabled,
        })
    }

    fn rule_id<'n>(
        &mut self,
        rule: &Node,
        node: Option<&'n Node>,
        ids: &mut HashSet<&'n str>,
    ) -> Option<&'n str> {
        let Some(node) = node else {
            self.faults.add(rule.position, "a rule needs an `id`");
            return None;
        };
        let id = self.faults.text(node, "`id`")?;
        let mut bytes = id.bytes();
        let starts_well = bytes
            .next()
            .is_some_and(|byte| byte.is_ascii_lowercase() || byte.is_ascii_digit());
        let goes_on_well = bytes.all(|byte| {
            byte.is_ascii_lowercase() || byte.is_ascii_digit() || byte == b'_' || byte == b'-'
        });
        if !starts_well || !goes_on_well || id.len() > MAX_NAME {
            self.faults.add(
                node.position,
                format!("`{id}` is no rule id; allowed is [a-z0-9][a-z0-9_-]* up to {MAX_NAME} characters"),
            );
        }
        if !ids.insert(id) {
            let set = self.set;
            self.faults.add(
                node.position,
                format!("a rule `{id}` stands in rule set `{set}` already"),
            );
        }
        Some(id)
    }

    fn boolean(&mut self, node: Option<&Node>, what: &str, default: bool) -> bool {
        node.and_then(|node| self.faults.boolean(node, what))
            .unwrap_or(default)
    }

    fn duration(&mut self, node: &Node, what: &str) -> Option<Duration> {
        let parsed = node.as_text().and_then(duration::parse);
        if parsed.is_none() {
            let allowed = duration::ALLOWED;
            self.faults
                .add(node.position, format!("{what} must be {allowed}"));
        }
        parsed
    }

    fn conditions(&mut self, node: Option<&Node>) -> (Conditions, PathSet) {
        let mut conditions = Conditions::default();
        let Some(node) = node else {
            return (conditions, PathSet::default());
        };
        let [path, not_path, methods, headers, attributes] = self.faults.fields(
            node,
            "`match`",
            ["path", "not_path", "methods", "headers", "attributes"],
        );
        conditions.paths = path.map(|node| self.patterns(node, "`path`"));
        let not_path = not_path.map(|node| self.patterns(node, "`not_path`"));
        conditions.methods = methods.map(|node| {
            let methods = self.faults.list(node, "`methods`").iter();
            methods
                .filter_map(|node| self.faults.text(node, "a method"))
                .map(Into::into)
                .collect()
        });
        if let Some(node) = headers {
            for (name, key, value) in self.faults.map(node, "`headers`") {
                let Some(name) = self.header_name(name, key.position) else {
                    continue;
                };
                if conditions.headers.iter().any(|(known, _)| *known == name) {
                    self.faults.add(
                        key.position,
                        format!("header `{name}` stands twice (their case does not matter)"),
                    );
                }
                if let Some(value) = self.faults.text(value, "a header's value") {
                    conditions.headers.push((name, value.into()));
                }
            }
        }
        conditions.attributes = attributes
            .map(|node| self.texts(node, "`attributes`"))
            .unwrap_or_default();
        (conditions, PathSet::new(not_path.unwrap_or_default()))
    }

    fn patterns(&mut self, node: &Node, what: &str) -> Vec<Pattern> {
        let mut patterns = Vec::new();
        for node in self.faults.list(node, what) {
            let Some(text) = self.faults.text(node, "a path pattern") else {
                continue;
            };
            match Pattern::parse(text) {
                Ok(pattern) => patterns.push(pattern),
                Err(error) => self.faults.add(node.position, error.to_string()),
            }
        }
        patterns
    }

    fn texts(&mut self, node: &Node, what: &str) -> Vec<(Box<str>, Box<str>)> {
        let mut texts = Vec::new();
        for (name, _, value) in self.faults.map(node, what) {
            if let Some(value) = self.faults.text(value, &format!("`{name}`")) {
                texts.push((name.into(), value.into()));
            }
        }
        texts
    }

    /// Lower case, for names compare without it.
    fn header_name(&mut self, name: &str, at: Position) -> Option<Box<str>> {
        let is_token =
            |byte: u8| byte.is_ascii_alphanumeric() || b"!#$%&'*+-.^_`|~".contains(&byte);
        if name.is_empty() || !name.bytes().all(is_token) {
            self.faults
                .add(at, format!("`{name}` cannot be the name of a header"));
            return None;
        }
        Some(name.to_ascii_lowercase().into())
    }

    fn key(
        &mut self,
        rule: &Node,
        scope: Option<&Node>,
        key: Option<&Node>,
    ) -> Option<Vec<KeyPart>> {
        match (scope, key) {
            (Some(_), Some(key)) => {
                self.faults.add(
                    key.position,
                    "a rule has either a `scope` or a `key`, not both",
                );
                None
            }
            (None, None) => {
                self.faults
                    .add(rule.position, "a rule needs a `scope` or a `key`");
                None
            }
            (Some(scope), None) => {
                let names = [
                    ("global", None),
                    ("per_ip", Some(0)),
                    ("per_user", Some(1)),
                    ("per_api_key", Some(2)),
                ];
                let parts = [KeyPart::Ip, KeyPart::User, KeyPart::ApiKey];
                let part = self.faults.one_of(scope, "`scope`", &names)?;
                Some(
                    part.map(|part: usize| parts[part].clone())
                        .into_iter()
                        .collect(),
                )
            }
            (None, Some(key)) => {
                let nodes = self.faults.list(key, "`key`");
                let parts: Option<Vec<_>> = nodes.iter().map(|node| self.key_part(node)).collect();
                parts.filter(|parts| !parts.is_empty())
            }
        }
    }

    fn key_part(&mut self, node: &Node) -> Option<KeyPart> {
        let text = self.faults.text(node, "a part of a key")?;
        match text {
            "ip" => return Some(KeyPart::Ip),
            "user" => return Some(KeyPart::User),
            "api_key" => return Some(KeyPart::ApiKey),
            "method" => return Some(KeyPart::Method),
            "path" => return Some(KeyPart::Path),
            _ => {}
        }
        if let Some(name) = text.strip_prefix("header:") {
            return self.header_name(name, node.position).map(KeyPart::Header);
        }
        match text.strip_prefix("attr:") {
            Some(name) if !name.is_empty() => Some(KeyPart::Attribute(name.into())),
            _ => {
                self.faults.add(
                    node.position,
                    format!(
                        "`{text}` is no part of a key; allowed are \
                         ip, user, api_key, method, path, header:NAME, attr:NAME"
                    ),
                );
                None
            }
        }
    }

    fn cost(&mut self, node: &Node) -> Option<CostSource> {
        if let Some(text) = node.as_text() {
            if let Some(name) = text.strip_prefix("header:") {
                return self
                    .header_name(name, node.position)
                    .map(CostSource::Header);
            }
            if let Some(name) = text.strip_prefix("attr:").filter(|name| !name.is_empty()) {
                return Some(CostSource::Attribute(name.into()));
            }
        }
        if let Value::Plain(text) = &node.value
            && let Ok(cost) = text.parse::<u64>()
            && (1..=MAX_UNITS).contains(&cost)
            && !text.starts_with('+')
        {
            return Some(CostSource::Fixed(cost));
        }
        self.faults.add(
            node.position,
            format!(
                "`cost` must be a whole number from 1 to {MAX_UNITS}, header:NAME or attr:NAME"
            ),
        );
        None
    }

    fn bands(&mut self, node: &Node, style: &BandStyle) -> Vec<Band> {
        let mut bands: Vec<Band> = Vec::new();
        let mut ids = HashSet::new();
        for (index, node) in self.faults.list(node, "`bands`").iter().enumerate() {
            let Some((id, id_at, limit)) = self.band(index, node, style) else {
                continue;
            };
            if !ids.insert(id.clone()) {
                self.faults.add(
                    id_at,
                    format!("a band `{id}` stands in this rule already (without an `id`, a band is b0, b1, … by its position)"),
                );
            }
            bands.extend(limit.map(|limit| Band::new(&id, limit)));
        }
        bands
    }

    fn band(
        &mut self,
        index: usize,
        node: &Node,
        style: &BandStyle,
    ) -> Option<(String, Position, Option<Limit>)> {
        let [id, capacity, window, refill, period] = self.faults.fields(
            node,
            "a band",
            ["id", "capacity", "window", "refill", "period"],
        );
        let id_at = id.map_or(node.position, |node| node.position);
        let id = match id {
            Some(node) => self.band_id(node)?,
            None => format!("b{index}"),
        };
        for (field, given) in [("capacity", capacity), ("window", window)] {
            if given.is_none() {
                self.faults
                    .add(node.position, format!("a band needs a `{field}`"));
            }
        }
        let before = self.faults.count();
        let units_of = |faults: &mut Faults, node: Option<&Node>, what: &str| {
            node.and_then(|node| faults.whole(node, what, 1, MAX_UNITS as i64))
        };
        let capacity_units = units_of(self.faults, capacity, "`capacity`");
        let refill_units = units_of(self.faults, refill, "`refill`");
        let window_span = window.and_then(|node| self.duration(node, "`window`"));
        let period_span = period.and_then(|node| self.duration(node, "`period`"));
        let (Some(algorithm), Some(capacity_units), Some(window_span)) =
            (style.algorithm, capacity_units, window_span)
        else {
            return Some((id, id_at, None));
        };
        if self.faults.count() > before {
            return Some((id, id_at, None));
        }
        let mut limit = Limit::builder(algorithm, capacity_units as u64, window_span);
        if let Some(units) = refill_units {
            limit = limit.refill(units as u64);
        }
        if let Some(span) = period_span {
            limit = limit.period(span);
        }
        let places = BandPlaces {
            band: node.position,
            capacity: capacity.map(|node| node.position),
            refill: refill.map(|node| node.position),
            period: period.map(|node| node.position),
        };
        let limit = self.limit(limit, style, &places);
        Some((id, id_at, limit))
    }

    fn limit(
        &mut self,
        limit: LimitBuilder,
        style: &BandStyle,
        places: &BandPlaces,
    ) -> Option<Limit> {
        let mut limit = limit.shape(style.shape);
        if let Some(max_wait) = style.max_wait {
            limit = limit.max_wait(max_wait);
        }
        match limit.build() {
            Ok(limit) => Some(limit),
            Err(error) => {
                let at = match &error {
                    LimitError::ShapeOnOther | LimitError::ShapeAndWait => Some(style.shape_at),
                    LimitError::Units { field, .. }
                    | LimitError::Span { field }
                    | LimitError::NotABucket { field } => match field {
                        Field::Capacity => places.capacity,
                        Field::Refill => places.refill,
                        Field::Period => places.period,
                        _ => None,
                    },
                    LimitError::FillTooLong => None,
                };
                self.faults
                    .add(at.unwrap_or(places.band), error.to_string());
                None
            }
        }
    }

    fn band_id(&mut self, node: &Node) -> Option<String> {
        let id = self.faults.text(node, "a band's `id`")?;
        let starts_well = id
            .bytes()
            .next()
            .is_some_and(|byte| byte.is_ascii_alphanumeric());
        let goes_on_well = id
            .bytes()
            .all(|byte| byte.is_ascii_alphanumeric() || b"_.-".contains(&byte));
        if !starts_well || !goes_on_well || id.len() > MAX_NAME {
            self.faults.add(
                node.position,
                format!("`{id}` is no band id; allowed is [A-Za-z0-9][A-Za-z0-9_.-]* up to {MAX_NAME} characters"),
            );
            return None;
        }
        Some(id.to_owned())
    }

    fn overrides(
        &mut self,
        node: &Node,
        key: Option<&[KeyPart]>,
        style: &BandStyle,
        all_bands: &mut Vec<Band>,
    ) -> HashMap<Box<[u8]>, Range<u32>> {
        let mut overrides = HashMap::new();
        for node in self.faults.list(node, "`overrides`") {
            let [identity, bands] = self
                .faults
                .fields(node, "an override", ["identity", "bands"]);
            let encoded = match (identity, key) {
                (None, _) => {
                    self.faults
                        .add(node.position, "an override needs an `identity`");
                    None
                }
                (Some(identity), Some(key)) => self.identity(identity, key),
                // The key itself is wrong, and that is noted.
                (Some(_), None) => None,
            };
            let bands = match bands {
                Some(bands) => self.bands(bands, style),
                None => {
                    self.faults.add(node.position, "an override needs `bands`");
                    Vec::new()
                }
            };
            let Some(encoded) = encoded else { continue };
            let start = all_bands.len() as u32;
            all_bands.extend(bands);
            let range = start..all_bands.len() as u32;
            if overrides.insert(encoded, range).is_some() {
                let at = identity.map_or(node.position, |node| node.position);
                self.faults
                    .add(at, "there is an override for this identity already");
            }
        }
        overrides
    }

    fn identity(&mut self, node: &Node, key: &[KeyPart]) -> Option<Box<[u8]>> {
        if key.is_empty() {
            self.faults.add(
                node.position,
                "a global rule has no identities that could be overridden",
            );
            return None;
        }
        let values: Option<Vec<&str>> = match &node.value {
            Value::List(_) => {
                let nodes = self.faults.list(node, "`identity`");
                nodes
                    .iter()
                    .map(|node| self.faults.text(node, "a value of `identity`"))
                    .collect()
            }
            _ => self
                .faults
                .text(node, "`identity`")
                .map(|value| vec![value]),
        };
        let values = values.filter(|values| !values.is_empty())?;
        let mut encoded = SubjectBytes::new();
        match key::encode_values(key, &values, self.options.ipv6_prefix, &mut encoded) {
            Ok(()) => Some(encoded.to_vec().into()),
            Err(error) => {
                self.faults.add(node.position, error.to_string());
                None
            }
        }
    }
}

/// What all bands of a rule have in common.
struct BandStyle {
    /// `None` where the name is wrong, and that is noted.
    algorithm: Option<Algorithm>,
    shape: bool,
    shape_at: Position,
    max_wait: Option<Duration>,
}

/// Where the numbers of a band stand.
struct BandPlaces {
    band: Position,
    capacity: Option<Position>,
    refill: Option<Position>,
    period: Option<Position>,
}

/// The start of every subject of a rule. A rule that resets on change has what
/// it says in it: any other text makes other subjects.
fn subject_of_rule(set: &str, id: &str, resets: Option<&Node>) -> SubjectBytes {
    let mut subject = SubjectBytes::new();
    key::encode_bytes(set, &mut subject);
    key::encode_bytes(id, &mut subject);
    if let Some(rule) = resets {
        let says = Sip13::PUBLIC.hash(rule.canonical().as_bytes());
        // No part of an identity begins with this byte.
        subject.push(b'!');
        subject.extend_from_slice(&says.to_le_bytes());
    }
    subject
}
