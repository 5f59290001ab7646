//! Rules that decide by themselves, lists, groups and shadow rules next to limits, compared with
//! a slow model over random sequences: in a simulation, in memory and on Redis.
//!
//! The model tries every rule and every value of a list, and knows one algorithm only, the fixed
//! window, whose arithmetic is short enough to be read.

use std::collections::BTreeMap;
use std::net::IpAddr;

use fluxgate_core::memory::Retention;
use fluxgate_core::task::ready;
use fluxgate_core::{
    Decision, Limiter, ManualClock, MemoryStore, RequestContext, RuleSets, Store, Timestamp,
};
use fluxgate_redis::injected_time::ScriptStore;
use fluxgate_simulate::{Options, Simulation};
use fluxgate_testkit::RedisServer;
use proptest::prelude::*;
use proptest::test_runner::Config;

use crate::wire::Wire;

const SECOND: u64 = 1_000_000;
const USERS: [&str; 4] = ["ann", "bob", "eve", ""];
const KEYS: [&str; 2] = ["secret", "k2"];
/// The key `secret`, by its hash.
const SECRET: &str = "sha256:2bb80d537b1da3e38bd30361aa855686bde0eacd7162fef6a25fe97bf527a25b";
const ADDRESSES: [&str; 3] = ["10.1.2.3", "192.0.2.1", "2001:db8::1"];
const PATHS: [&str; 4] = ["/users/7", "/users/", "/a/b", "/a"];

/// Lists of users, of keys and of networks. The numbers are the users, keys and addresses in it.
const USER_LISTS: [&[usize]; 2] = [&[0, 2], &[1, 3]];
const KEY_LIST: &[usize] = &[0];
const NETWORK_LISTS: [(&str, &[usize]); 2] = [
    ("[10.0.0.0/8]", &[0]),
    ("[192.0.2.1, \"2001:db8::/32\"]", &[1, 2]),
];
/// Patterns, and the paths that they match.
const PATTERNS: [(&str, &[usize]); 3] = [
    ("/users/{id}", &[0]),
    ("/a/**", &[2, 3]),
    ("/*/*", &[0, 1, 2]),
];

#[derive(Clone, Debug)]
struct Request {
    after: u64,
    user: Option<usize>,
    key: Option<usize>,
    ip: Option<usize>,
    path: Option<usize>,
    cost: Option<u64>,
}

/// A condition on what has a number.
#[derive(Clone, Debug)]
enum Condition {
    One(usize),
    Not(usize),
    Present(bool),
    In(usize),
    NotIn(usize),
}

impl Condition {
    fn holds(&self, value: Option<usize>, lists: &[&[usize]]) -> bool {
        let is_in = |list: &usize| value.is_some_and(|value| lists[*list].contains(&value));
        match self {
            Self::One(one) => value == Some(*one),
            Self::Not(one) => value != Some(*one),
            Self::Present(present) => value.is_some() == *present,
            Self::In(list) => is_in(list),
            Self::NotIn(list) => !is_in(list),
        }
    }

    fn yaml(&self, values: &[&str], lists: &str) -> String {
        match self {
            Self::One(one) => format!("{:?}", values[*one]),
            Self::Not(one) => format!("{{ not: {:?} }}", values[*one]),
            Self::Present(present) => format!("{{ present: {present} }}"),
            Self::In(list) => format!("{{ in: {lists}{list} }}"),
            Self::NotIn(list) => format!("{{ not_in: {lists}{list} }}"),
        }
    }
}

#[derive(Clone, Copy, Debug, PartialEq)]
enum Kind {
    Deny,
    Allow,
    Limit {
        capacity: u64,
        per_user: bool,
        group: Option<u8>,
    },
}

#[derive(Clone, Debug)]
struct Rule {
    priority: u8,
    is_enabled: bool,
    is_shadow: bool,
    kind: Kind,
    user: Option<Condition>,
    key: Option<Condition>,
    /// A list of networks.
    ip: Option<usize>,
    not_ip: Option<usize>,
    path: Option<usize>,
    not_path: Option<usize>,
}

impl Rule {
    fn matches(&self, request: &Request) -> bool {
        let user = self.user.as_ref();
        let key = self.key.as_ref();
        let is_in = |list: usize| {
            let members = NETWORK_LISTS[list].1;
            request.ip.is_some_and(|ip| members.contains(&ip))
        };
        let fits = |pattern: usize| {
            let members = PATTERNS[pattern].1;
            request.path.is_some_and(|path| members.contains(&path))
        };
        user.is_none_or(|it| it.holds(request.user, &USER_LISTS))
            && key.is_none_or(|it| it.holds(request.key, &[KEY_LIST, KEY_LIST]))
            && self.ip.is_none_or(is_in)
            && !self.not_ip.is_some_and(is_in)
            && self.path.is_none_or(fits)
            && !self.not_path.is_some_and(fits)
    }

    /// Returns the identity that a limit counts; `None` if its key is missing.
    fn identity(&self, request: &Request) -> Option<&'static str> {
        match self.kind {
            Kind::Limit { per_user: true, .. } => {
                let user = request.user.map(|user| USERS[user]);
                user.filter(|user| !user.is_empty())
            }
            _ => Some(""),
        }
    }

    fn yaml(&self, id: usize) -> String {
        let mut parts = Vec::new();
        parts.extend(
            self.user
                .as_ref()
                .map(|it| format!("user: {}", it.yaml(&USERS, "u"))),
        );
        let keys = [SECRET, KEYS[1]];
        parts.extend(
            self.key
                .as_ref()
                .map(|it| format!("api_key: {}", it.yaml(&keys, "k"))),
        );
        parts.extend(self.ip.map(|list| format!("ip: {{ in: n{list} }}")));
        parts.extend(self.not_ip.map(|list| format!("not_ip: {{ in: n{list} }}")));
        parts.extend(self.path.map(|it| format!("path: [{:?}]", PATTERNS[it].0)));
        parts.extend(
            self.not_path
                .map(|it| format!("not_path: [{:?}]", PATTERNS[it].0)),
        );
        let kind = match self.kind {
            Kind::Deny => "action: deny".to_owned(),
            Kind::Allow => "action: allow".to_owned(),
            Kind::Limit {
                capacity,
                per_user,
                group,
            } => {
                let scope = if per_user { "per_user" } else { "global" };
                let group = group.map(|group| format!(", group: g{group}"));
                format!(
                    "scope: {scope}, on_missing_key: skip, algorithm: fixed_window, \
                     bands: [{{ capacity: {capacity}, window: 10s }}]{}",
                    group.unwrap_or_default()
                )
            }
        };
        format!(
            "{{ id: r{id}, priority: {}, enabled: {}, mode: {}, match: {{ {} }}, {kind} }}",
            self.priority,
            self.is_enabled,
            if self.is_shadow { "shadow" } else { "enforce" },
            parts.join(", "),
        )
    }
}

fn rules_yaml(rules: &[Rule]) -> String {
    let list = |values: &[usize], names: &[&str]| {
        let names: Vec<_> = values.iter().map(|value| names[*value]).collect();
        format!("{names:?}")
    };
    let mut lists = Vec::new();
    for (number, values) in USER_LISTS.iter().enumerate() {
        lists.push(format!("u{number}: {}", list(values, &USERS)));
    }
    // Once by its hash, once as it is.
    lists.push(format!("k0: [{SECRET:?}]"));
    lists.push(format!("k1: {}", list(KEY_LIST, &KEYS)));
    for (number, (networks, _)) in NETWORK_LISTS.iter().enumerate() {
        lists.push(format!("n{number}: {networks}"));
    }
    let rules = rules.iter().enumerate().map(|(id, rule)| rule.yaml(id));
    let rules: Vec<_> = rules.collect();
    format!(
        "rule_sets: {{ s: {{ lists: {{ {} }}, rules: [ {} ] }} }}",
        lists.join(", "),
        rules.join(",\n")
    )
}

/// What is counted: rule, identity and window.
type Counts = BTreeMap<(usize, &'static str, u64), u64>;

const WINDOW: u64 = 10 * SECOND;

/// What one limit says of a request.
struct Verdict {
    rule: usize,
    passes: bool,
    remaining: u64,
    /// `None` is never.
    retry: Option<u64>,
    reset: u64,
}

struct Model<'r> {
    rules: &'r [Rule],
    counts: Counts,
}

impl Model<'_> {
    /// Decides a request. Returns the line that a simulation writes.
    fn decide(&mut self, request: &Request, t: u64) -> String {
        let mut order: Vec<_> = (0..self.rules.len()).collect();
        order.sort_by_key(|id| self.rules[*id].priority);
        order.retain(|id| self.rules[*id].is_enabled && self.rules[*id].matches(request));
        let kind = |id: usize| self.rules[id].kind;
        let is_action = |id: &&usize| !matches!(kind(**id), Kind::Limit { .. });
        let mut enforced = order.iter().filter(|id| !self.rules[**id].is_shadow);
        if let Some(&id) = enforced.find(is_action) {
            return match kind(id) {
                Kind::Deny => line(
                    t,
                    false,
                    "forbidden",
                    Some(&format!("r{id}")),
                    None,
                    Some(0),
                    None,
                    0,
                    &[format!("r{id}/deny")],
                ),
                _ => line(
                    t,
                    true,
                    "exempt",
                    Some(&format!("r{id}")),
                    None,
                    None,
                    Some(0),
                    0,
                    &[],
                ),
            };
        }
        let cost = request.cost.unwrap_or(1);
        let verdicts: Vec<_> = self
            .limits(&order, request, false)
            .into_iter()
            .map(|(id, identity)| (self.verdict(id, identity, cost, t), identity))
            .collect();
        let denying: Vec<_> = verdicts.iter().filter(|(it, _)| !it.passes).collect();
        if let Some((first, _)) = denying.first() {
            // Never is longer than any time. On a tie, the first.
            let length = |verdict: &Verdict| verdict.retry.unwrap_or(u64::MAX);
            let longest = denying.iter().map(|(it, _)| it);
            let longest = longest.fold(
                first,
                |best, it| if length(it) > length(best) { it } else { best },
            );
            let violated: Vec<_> = denying
                .iter()
                .map(|(it, _)| format!("r{}/b0", it.rule))
                .collect();
            let outcome = if longest.retry.is_none() {
                "never"
            } else {
                "denied"
            };
            return self.reported(t, false, outcome, Some(longest), &violated);
        }
        let mut after = Vec::new();
        for (verdict, identity) in &verdicts {
            self.charge(verdict.rule, identity, cost, t);
            after.push(self.verdict(verdict.rule, identity, 0, t));
        }
        let mut violated = Vec::new();
        let mut shadows = 0;
        let shadow_limits = self.limits(&order, request, true);
        for &id in order.iter().filter(|id| self.rules[**id].is_shadow) {
            match self.rules[id].kind {
                Kind::Allow => {}
                Kind::Deny => {
                    shadows += 1;
                    violated.push(format!("r{id}/deny"));
                }
                Kind::Limit { .. } => {
                    let Some((_, identity)) = shadow_limits.iter().find(|(it, _)| *it == id) else {
                        continue;
                    };
                    shadows += 1;
                    match self.verdict(id, identity, cost, t).passes {
                        true => self.charge(id, identity, cost, t),
                        false => violated.push(format!("r{id}/b0")),
                    }
                }
            }
        }
        let outcome = match (verdicts.len() + shadows, violated.len()) {
            (0, _) => "no_rule",
            (_, 0) => "allowed",
            _ => "shadow_denied",
        };
        let least = after.iter().reduce(|best, it| {
            if it.remaining < best.remaining {
                it
            } else {
                best
            }
        });
        self.reported(t, true, outcome, least, &violated)
    }

    /// Returns the limits of one mode that apply, the first of each group, with their identities.
    fn limits(
        &self,
        order: &[usize],
        request: &Request,
        is_shadow: bool,
    ) -> Vec<(usize, &'static str)> {
        let mut groups = Vec::new();
        let mut found = Vec::new();
        for &id in order {
            let rule = &self.rules[id];
            let Kind::Limit { group, .. } = rule.kind else {
                continue;
            };
            let Some(identity) = rule.identity(request) else {
                continue;
            };
            if rule.is_shadow != is_shadow || group.is_some_and(|group| groups.contains(&group)) {
                continue;
            }
            groups.extend(group);
            found.push((id, identity));
        }
        found
    }

    fn verdict(&self, rule: usize, identity: &'static str, cost: u64, t: u64) -> Verdict {
        let Kind::Limit { capacity, .. } = self.rules[rule].kind else {
            unreachable!("only limits are counted")
        };
        let count = self
            .counts
            .get(&(rule, identity, t / WINDOW))
            .copied()
            .unwrap_or(0);
        let rest = (t / WINDOW + 1) * WINDOW - t;
        Verdict {
            rule,
            passes: count + cost <= capacity,
            remaining: capacity - count,
            retry: (cost <= capacity).then_some(rest),
            reset: if count > 0 { rest } else { 0 },
        }
    }

    fn charge(&mut self, rule: usize, identity: &'static str, cost: u64, t: u64) {
        *self.counts.entry((rule, identity, t / WINDOW)).or_default() += cost;
    }

    fn reported(
        &self,
        t: u64,
        allowed: bool,
        outcome: &str,
        it: Option<&Verdict>,
        violated: &[String],
    ) -> String {
        let Some(it) = it else {
            return line(t, allowed, outcome, None, None, None, Some(0), 0, violated);
        };
        let Kind::Limit { capacity, .. } = self.rules[it.rule].kind else {
            unreachable!("only limits are counted")
        };
        let retry = if allowed { Some(0) } else { it.retry };
        let rule = format!("r{}", it.rule);
        line(
            t,
            allowed,
            outcome,
            Some(&rule),
            Some(capacity),
            Some(it.remaining),
            retry,
            it.reset,
            violated,
        )
    }
}

/// Returns a decision as a simulation writes it. Only limits have a band.
#[expect(clippy::too_many_arguments, reason = "they are the fields of the line")]
fn line(
    t: u64,
    allowed: bool,
    outcome: &str,
    rule: Option<&str>,
    limit: Option<u64>,
    remaining: Option<u64>,
    retry: Option<u64>,
    reset: u64,
    violated: &[String],
) -> String {
    let number = |number: Option<u64>| number.map_or("null".into(), |it| it.to_string());
    let text = |text: Option<&str>| text.map_or("null".into(), |it| format!("\"{it}\""));
    let violated: Vec<_> = violated.iter().map(|it| format!("\"{it}\"")).collect();
    format!(
        "{{\"t\":{t},\"allowed\":{allowed},\"outcome\":\"{outcome}\",\"rule\":{},\"band\":{},\
         \"limit\":{},\"remaining\":{},\"retry_after_us\":{},\"reset_after_us\":{reset},\
         \"delay_us\":0,\"violated\":[{}]}}",
        text(rule),
        text(limit.map(|_| "b0")),
        number(limit),
        number(remaining),
        number(retry),
        violated.join(",")
    )
}

/// Returns a decision of a limiter in the same form.
fn decided(t: u64, decision: &Decision) -> String {
    let violated: Vec<_> = decision.violated().map(|it| it.to_string()).collect();
    line(
        t,
        decision.allowed(),
        decision.outcome().name(),
        decision.rule().map(|rule| rule.id()),
        decision.limit(),
        decision.remaining(),
        decision.retry().after().map(|wait| wait.get()),
        decision.reset_micros().get(),
        &violated,
    )
}

fn context(request: &Request) -> RequestContext<'static> {
    let mut context = RequestContext::builder();
    if let Some(user) = request.user {
        context = context.user(USERS[user]);
    }
    if let Some(key) = request.key {
        context = context.api_key(KEYS[key]);
    }
    if let Some(ip) = request.ip {
        context = context.ip(ADDRESSES[ip].parse::<IpAddr>().unwrap());
    }
    if let Some(path) = request.path {
        context = context.path(PATHS[path]);
    }
    if let Some(cost) = request.cost {
        context = context.cost(cost);
    }
    context.build()
}

fn event(request: &Request, t: u64) -> String {
    let mut fields = vec![format!("\"t\":{t}")];
    let text = |name: &str, value: &str| format!("\"{name}\":\"{value}\"");
    fields.extend(request.user.map(|it| text("user", USERS[it])));
    fields.extend(request.key.map(|it| text("api_key", KEYS[it])));
    fields.extend(request.ip.map(|it| text("ip", ADDRESSES[it])));
    fields.extend(request.path.map(|it| text("path", PATHS[it])));
    fields.extend(request.cost.map(|cost| format!("\"cost\":{cost}")));
    format!("{{{}}}\n", fields.join(","))
}

fn condition(values: usize, lists: usize) -> impl Strategy<Value = Option<Condition>> {
    let condition = prop_oneof![
        (0..values).prop_map(Condition::One),
        (0..values).prop_map(Condition::Not),
        any::<bool>().prop_map(Condition::Present),
        (0..lists).prop_map(Condition::In),
        (0..lists).prop_map(Condition::NotIn),
    ];
    prop::option::weighted(0.4, condition)
}

fn rule() -> impl Strategy<Value = Rule> {
    let limit = (
        1_u64..5,
        any::<bool>(),
        prop::option::weighted(0.4, 0_u8..2),
    );
    let limit = limit.prop_map(|(capacity, per_user, group)| Kind::Limit {
        capacity,
        per_user,
        group,
    });
    let kind = prop_oneof![1 => Just(Kind::Deny), 1 => Just(Kind::Allow), 3 => limit];
    let at_times = |count: usize| prop::option::weighted(0.2, 0..count);
    (
        (
            0_u8..3,
            prop::bool::weighted(0.9),
            prop::bool::weighted(0.3),
            kind,
        ),
        condition(USERS.len(), USER_LISTS.len()),
        condition(KEYS.len(), 2),
        (at_times(NETWORK_LISTS.len()), at_times(NETWORK_LISTS.len())),
        (at_times(PATTERNS.len()), at_times(PATTERNS.len())),
    )
        .prop_map(
            |(
                (priority, is_enabled, is_shadow, kind),
                user,
                key,
                (ip, not_ip),
                (path, not_path),
            )| Rule {
                priority,
                is_enabled,
                is_shadow,
                kind,
                user,
                key,
                ip,
                not_ip,
                path,
                not_path,
            },
        )
}

fn request() -> impl Strategy<Value = Request> {
    let after = prop_oneof![Just(0), 0..SECOND, Just(4 * SECOND), Just(WINDOW)];
    let one_of = |count: usize| prop::option::weighted(0.8, 0..count);
    let cost = prop::option::weighted(0.4, prop_oneof![0_u64..4, Just(100)]);
    (
        after,
        one_of(USERS.len()),
        one_of(KEYS.len()),
        one_of(ADDRESSES.len()),
        one_of(PATHS.len()),
        cost,
    )
        .prop_map(|(after, user, key, ip, path, cost)| Request {
            after,
            user,
            key,
            ip,
            path,
            cost,
        })
}

/// Decides all requests by a limiter on a store with this clock.
fn by_limiter(
    rules: &str,
    store: impl Store,
    clock: &ManualClock,
    requests: &[(u64, &Request)],
) -> Vec<String> {
    let limiter = Limiter::new(RuleSets::from_yaml(rules).unwrap(), store);
    let decide = |(t, request): &(u64, &Request)| {
        clock.set(Timestamp::from_micros(*t).unwrap());
        let context = context(request);
        let peeked = ready(limiter.peek("s", &context));
        let decision = ready(limiter.check("s", &context));
        if !decision.allowed() {
            assert_eq!(
                decided(*t, &peeked),
                decided(*t, &decision),
                "a peek of a denial"
            );
        }
        decided(*t, &decision)
    };
    requests.iter().map(decide).collect()
}

#[test]
fn a_simulation_memory_and_redis_agree_with_a_model_on_actions_lists_groups_and_shadows() {
    let server = RedisServer::start();
    let wire = Wire::to(&server);
    let config = Config {
        cases: 150,
        failure_persistence: None,
        ..Config::default()
    };
    let sequences = (
        prop::collection::vec(rule(), 1..8),
        prop::collection::vec(request(), 1..25),
    );
    proptest!(config, |((rules, requests) in sequences)| {
        let yaml = rules_yaml(&rules);
        let mut t = 1_700_000_000 * SECOND;
        let at: Vec<_> = requests
            .iter()
            .map(|request| {
                t += request.after;
                (t, request)
            })
            .collect();
        let mut model = Model { rules: &rules, counts: Counts::new() };
        let expected: Vec<_> = at.iter().map(|(t, request)| model.decide(request, *t)).collect();

        let events: String = at.iter().map(|(t, request)| event(request, *t)).collect();
        let parsed = RuleSets::from_yaml(&yaml).unwrap();
        let mut simulation = Simulation::new(parsed, Options::default());
        let mut lines = Vec::new();
        simulation.run(events.as_bytes(), &mut lines, |_| {}).unwrap();
        let lines = String::from_utf8(lines).unwrap();
        prop_assert_eq!(lines.lines().collect::<Vec<_>>(), expected.clone(), "{}", yaml);

        let clock = ManualClock::default();
        let memory = MemoryStore::new(clock.clone(), 1_000, Retention::default());
        prop_assert_eq!(by_limiter(&yaml, memory, &clock, &at), expected.clone(), "{}", yaml);

        wire.clear();
        let clock = ManualClock::default();
        let redis = ScriptStore::on_clock(&wire, clock.clone());
        prop_assert_eq!(by_limiter(&yaml, redis, &clock, &at), expected, "{}", yaml);
    });
}
