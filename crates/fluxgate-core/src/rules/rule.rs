//! A rule as it is written, in Rust or in YAML.

use std::sync::Arc;
use std::time::Duration;

use super::action::RuleAction;
use super::cost::Cost;
use super::rollout::Rollout;
use crate::band::Band;
use crate::key::{KeyPart, OnMissingKey};
use crate::lease::Lease;
use crate::matcher::ValueMatch;
use crate::percent::Percent;
use crate::time::Timestamp;

/// The decision when the store fails.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum OnError {
    /// Allows the request.
    Allow,
    /// Denies the request.
    Deny,
    /// Lets the embedded store decide by the same rules.
    #[default]
    Local,
}

impl OnError {
    /// Their names in rules and configurations.
    pub const NAMES: [(&str, Self); 3] = [
        ("allow", Self::Allow),
        ("deny", Self::Deny),
        ("local", Self::Local),
    ];
}

/// Whether a rule may deny requests.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum RuleMode {
    /// It may.
    #[default]
    Enforce,
    /// It is evaluated, charged and reported, but never denies.
    Shadow,
}

/// A limit on the requests that match, for each value of a key; or a rule that denies or allows
/// what it matches.
///
/// ```
/// use std::time::Duration;
///
/// use fluxgate_core::{Band, KeyPart, Quota, Rule};
///
/// let tenants = Rule::new("per-tenant")
///     .match_path("/api/**")
///     .match_attribute("plan", "free")
///     .key([KeyPart::Attribute("tenant".into()), KeyPart::Method])
///     .band(Quota::per_second(10))
///     .band(Band::new("daily", Quota::per_day(5_000)))
///     .wait_up_to(Duration::from_secs(2));
/// ```
///
/// A rule needs a key (or a scope, which is a key of one part) and at least one band, unless it
/// decides by itself ([`Rule::deny`], [`Rule::allow`]). All bands of a rule have the same algorithm:
/// for another one, add a second rule with the same key. Its values are checked when its
/// [`RuleSet`](crate::RuleSet) is built.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Rule {
    /// `None` if the rule file has a fault there, which has been reported.
    pub(super) id: Option<Box<str>>,
    pub(super) name: Option<Box<str>>,
    pub(super) enabled: bool,
    pub(super) mode: RuleMode,
    pub(super) action: RuleAction,
    pub(super) priority: i32,
    pub(super) paths: Vec<Box<str>>,
    pub(super) not_paths: Vec<Box<str>>,
    pub(super) methods: Vec<Box<str>>,
    pub(super) match_headers: ValueMatches,
    pub(super) match_attributes: ValueMatches,
    pub(super) match_user: Option<ValueMatch>,
    pub(super) match_api_key: Option<ValueMatch>,
    pub(super) ips: Vec<Box<str>>,
    /// The list in place of `ips`.
    pub(super) ip_list: Option<Box<str>>,
    pub(super) not_ips: Vec<Box<str>>,
    /// The list in place of `not_ips`.
    pub(super) not_ip_list: Option<Box<str>>,
    pub(super) key: Key,
    pub(super) group: Option<Box<str>>,
    pub(super) rollout: Option<Rollout>,
    pub(super) on_missing_key: OnMissingKey,
    pub(super) bands: Vec<Band>,
    pub(super) cost: Cost,
    /// Whether the gateway lowers the tokens that a request may use to those left.
    pub(super) clamp: bool,
    /// How long a request that it denies may wait; `None` if it may not.
    pub(super) max_wait: Option<Duration>,
    pub(super) lease: Option<Lease>,
    pub(super) overrides: Vec<Override>,
    /// Whether its units are charged even if the request is denied.
    pub(super) charge_always: bool,
    /// The shares of a band at which the service reports that an identity has used them.
    pub(super) notify: Vec<Percent>,
    pub(super) reset_on_change: bool,
    pub(super) attributes: Pairs,
}

/// Names, and the values that match.
pub(super) type ValueMatches = Vec<(Box<str>, ValueMatch)>;

/// Names and values.
pub(super) type Pairs = Vec<(Box<str>, Box<str>)>;

/// The identities that a rule counts.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) enum Key {
    /// Neither a scope nor a key was given.
    Missing,
    /// The rule file has a fault there, which has been reported.
    #[cfg_attr(not(feature = "yaml"), expect(dead_code))]
    Faulty,
    /// All requests together.
    Global,
    Parts(Vec<KeyPart>),
}

/// Other bands for one identity.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) struct Override {
    /// `None` if the rule file has a fault there, which has been reported.
    pub(super) identity: Option<Vec<Box<str>>>,
    pub(super) bands: Vec<Band>,
    /// From when on it does not apply.
    pub(super) until: Option<Timestamp>,
}

pub(super) const DEFAULT_PRIORITY: i32 = 100;

impl Rule {
    /// Starts a rule. Its id must be unique in its set, and consist of lower-case letters,
    /// digits, `_` and `-`.
    pub fn new(id: impl Into<Box<str>>) -> Self {
        Self::with_id(Some(id.into()))
    }

    pub(super) fn with_id(id: Option<Box<str>>) -> Self {
        Self {
            id,
            name: None,
            enabled: true,
            mode: RuleMode::default(),
            action: RuleAction::default(),
            priority: DEFAULT_PRIORITY,
            paths: Vec::new(),
            not_paths: Vec::new(),
            methods: Vec::new(),
            match_headers: Vec::new(),
            match_attributes: Vec::new(),
            match_user: None,
            match_api_key: None,
            ips: Vec::new(),
            ip_list: None,
            not_ips: Vec::new(),
            not_ip_list: None,
            key: Key::Missing,
            group: None,
            rollout: None,
            on_missing_key: OnMissingKey::default(),
            bands: Vec::new(),
            cost: Cost::default(),
            clamp: false,
            max_wait: None,
            lease: None,
            overrides: Vec::new(),
            charge_always: false,
            notify: Vec::new(),
            reset_on_change: false,
            attributes: Vec::new(),
        }
    }

    /// Sets a name for people.
    pub fn name(mut self, name: impl Into<Box<str>>) -> Self {
        self.name = Some(name.into());
        self
    }

    /// Turns the rule off, or on again.
    pub fn enabled(mut self, enabled: bool) -> Self {
        self.enabled = enabled;
        self
    }

    /// Only reports what the rule would deny.
    pub fn shadow(mut self) -> Self {
        self.mode = RuleMode::Shadow;
        self
    }

    /// Denies every request that matches, with the status 403 over HTTP. Such a rule has no key,
    /// bands or cost. Of the rules that deny or allow what they match, the first in the order of
    /// evaluation decides, before any limit: nothing is charged, and the store is not asked.
    ///
    /// ```
    /// use fluxgate_core::Rule;
    ///
    /// let rule = Rule::new("no-admin").match_path("/admin/**").match_not_ip("10.0.0.0/8").deny();
    /// ```
    pub fn deny(self) -> Self {
        self.deny_with(RuleAction::DEFAULT_STATUS)
    }

    /// Denies like [`Rule::deny`], with this status over HTTP: 400 to 499.
    pub fn deny_with(mut self, status: u16) -> Self {
        self.action = RuleAction::Deny { status };
        self
    }

    /// Allows every request that matches, without counting it. Such a rule has no key, bands or
    /// cost, and decides like one that [denies](Rule::deny).
    pub fn allow(mut self) -> Self {
        self.action = RuleAction::Allow;
        self
    }

    /// Sets the priority, 100 by default. Rules are evaluated and reported in ascending
    /// order; those of one priority in the order of their set.
    pub fn priority(mut self, priority: i32) -> Self {
        self.priority = priority;
        self
    }

    /// Requires the path to match this pattern, or another one that is added like this.
    /// `?` is one character, `*` any characters of a segment, `{name}` one segment that is not
    /// empty, `**` zero or more segments.
    pub fn match_path(mut self, pattern: impl Into<Box<str>>) -> Self {
        self.paths.push(pattern.into());
        self
    }

    /// Excepts the paths that match this pattern.
    pub fn match_not_path(mut self, pattern: impl Into<Box<str>>) -> Self {
        self.not_paths.push(pattern.into());
        self
    }

    /// Requires this method, or another one that is added like this.
    pub fn match_method(mut self, method: impl Into<Box<str>>) -> Self {
        self.methods.push(method.into());
        self
    }

    /// Requires a header to have this value, one of several, or any other [`ValueMatch`].
    ///
    /// ```
    /// use fluxgate_core::{Quota, Rule, ValueMatch};
    ///
    /// let rule = Rule::new("apps")
    ///     .match_header("x-client", ["ios", "android"])
    ///     .match_header("x-debug", ValueMatch::absent())
    ///     .per_user()
    ///     .band(Quota::per_second(10));
    /// ```
    pub fn match_header(mut self, name: impl Into<Box<str>>, value: impl Into<ValueMatch>) -> Self {
        self.match_headers.push((name.into(), value.into()));
        self
    }

    /// Requires an attribute of the request to have this value, one of several, or any
    /// other [`ValueMatch`].
    pub fn match_attribute(
        mut self,
        name: impl Into<Box<str>>,
        value: impl Into<ValueMatch>,
    ) -> Self {
        self.match_attributes.push((name.into(), value.into()));
        self
    }

    /// Requires the user to be this one, one of several, or any other [`ValueMatch`].
    pub fn match_user(mut self, user: impl Into<ValueMatch>) -> Self {
        self.match_user = Some(user.into());
        self
    }

    /// Requires the API key to be this one, one of several, or any other [`ValueMatch`]. A value
    /// may be written as `sha256:` and the 64 hexadecimal digits of the key's SHA-256, so that
    /// the rules do not reveal the key.
    pub fn match_api_key(mut self, key: impl Into<ValueMatch>) -> Self {
        self.match_api_key = Some(key.into());
        self
    }

    /// Requires the client's address to be in this network, or in another one that is added
    /// like this: `10.0.0.0/8`, `2001:db8::/32` or a single address.
    pub fn match_ip(mut self, network: impl Into<Box<str>>) -> Self {
        self.ips.push(network.into());
        self
    }

    /// Requires the client's address to be in a [list](crate::RuleSetBuilder::list) of addresses
    /// and networks, instead of networks of the rule itself.
    pub fn match_ip_in(mut self, list: impl Into<Box<str>>) -> Self {
        self.ip_list = Some(list.into());
        self
    }

    /// Excepts the clients in a [list](crate::RuleSetBuilder::list) of addresses and networks.
    pub fn match_not_ip_in(mut self, list: impl Into<Box<str>>) -> Self {
        self.not_ip_list = Some(list.into());
        self
    }

    /// Excepts the clients in this network.
    pub fn match_not_ip(mut self, network: impl Into<Box<str>>) -> Self {
        self.not_ips.push(network.into());
        self
    }

    /// Puts the rule into a group. Of the rules of a group that match a request, only the
    /// first one applies: tiers, with a rule for everybody else at the end.
    ///
    /// ```
    /// use fluxgate_core::{Quota, Rule, RuleSet};
    ///
    /// # fn main() -> Result<(), fluxgate_core::InvalidRules> {
    /// let tier = |id: &str| Rule::new(id).group("plan").per_user();
    /// let api = RuleSet::builder("api")
    ///     .rule(tier("pro").match_attribute("plan", "pro").band(Quota::per_second(100)))
    ///     .rule(tier("others").band(Quota::per_second(10)))
    ///     .build()?;
    /// # Ok(())
    /// # }
    /// ```
    ///
    /// Rules that are only reported have a first one of their own.
    pub fn group(mut self, name: impl Into<Box<str>>) -> Self {
        self.group = Some(name.into());
        self
    }

    /// Enforces the rule for a share of its identities, and only reports what it would deny
    /// for the others. Which ones depends on the rule set, the rule's id and the identity; a
    /// larger share only adds identities.
    ///
    /// ```
    /// use fluxgate_core::{Quota, Rollout, Rule};
    ///
    /// let rule = Rule::new("stricter")
    ///     .per_user()
    ///     .rollout(Rollout::percent(10))
    ///     .band(Quota::per_second(5));
    /// ```
    pub fn rollout(mut self, share: Rollout) -> Self {
        self.rollout = Some(share);
        self
    }

    /// Counts all requests together.
    pub fn global(mut self) -> Self {
        self.key = Key::Global;
        self
    }

    /// Counts each client address by itself.
    pub fn per_ip(self) -> Self {
        self.key([KeyPart::Ip])
    }

    /// Counts each user by itself.
    pub fn per_user(self) -> Self {
        self.key([KeyPart::User])
    }

    /// Counts each API key by itself.
    pub fn per_api_key(self) -> Self {
        self.key([KeyPart::ApiKey])
    }

    /// Counts each combination of these parts of a request by itself.
    pub fn key(mut self, parts: impl IntoIterator<Item = KeyPart>) -> Self {
        self.key = Key::Parts(parts.into_iter().collect());
        self
    }

    /// Sets what happens to a request that lacks a part of the key.
    pub fn on_missing_key(mut self, on_missing_key: OnMissingKey) -> Self {
        self.on_missing_key = on_missing_key;
        self
    }

    /// Adds a band: a [`Quota`](crate::Quota), or a [`Band`] with an id of its own. All
    /// bands of a rule use the same algorithm.
    pub fn band(mut self, band: impl Into<Band>) -> Self {
        push_band(&mut self.bands, band.into());
        self
    }

    /// Sets the cost of a request; 1 by default.
    ///
    /// ```
    /// use fluxgate_core::{Cost, Quota, Rule};
    ///
    /// let uploads = Rule::new("uploads")
    ///     .match_path("/upload")
    ///     .per_user()
    ///     .cost(Cost::Header("x-megabytes".into()))
    ///     .band(Quota::per_day(1_000));
    /// ```
    pub fn cost(mut self, cost: impl Into<Cost>) -> Self {
        self.cost = cost.into();
        self
    }

    /// Lets the gateway lower the completion of a request to a language model to what is left
    /// of this rule, instead of denying it. The cost must be
    /// [`Tokens::Total`](crate::Tokens::Total) or
    /// [`Tokens::Completion`](crate::Tokens::Completion).
    pub fn clamp(mut self) -> Self {
        self.clamp = true;
        self
    }

    /// Lets a request wait for up to `max_wait` instead of denying it.
    pub fn wait_up_to(mut self, max_wait: Duration) -> Self {
        self.max_wait = Some(max_wait);
        self
    }

    /// Lets instances that share a store take units of the bands in advance, and decide by
    /// themselves until these are spent. A store in memory ignores it.
    ///
    /// ```
    /// use std::time::Duration;
    ///
    /// use fluxgate_core::{Lease, Percent, Quota, Rule};
    ///
    /// let rule = Rule::new("per-key")
    ///     .per_api_key()
    ///     .band(Quota::per_second(1_000))
    ///     .lease(Lease::new(Percent::new(20), Duration::from_secs(1)));
    /// ```
    pub fn lease(mut self, lease: Lease) -> Self {
        self.lease = Some(lease);
        self
    }

    /// Sets other bands for one identity: one value for each part of the key.
    ///
    /// ```
    /// use fluxgate_core::{Quota, Rule};
    ///
    /// let rule = Rule::new("per-user")
    ///     .per_user()
    ///     .band(Quota::per_second(10))
    ///     .override_for(["ann"], [Quota::per_second(100)]);
    /// ```
    pub fn override_for(
        mut self,
        identity: impl IntoIterator<Item = impl Into<Box<str>>>,
        bands: impl IntoIterator<Item = impl Into<Band>>,
    ) -> Self {
        let mut own = Vec::new();
        for band in bands {
            push_band(&mut own, band.into());
        }
        self.overrides.push(Override {
            identity: Some(identity.into_iter().map(Into::into).collect()),
            bands: own,
            until: None,
        });
        self
    }

    /// Sets other bands for one identity like [`Rule::override_for`], until an instant. From
    /// then on, by the store's clock, the identity has the rule's own bands.
    ///
    /// ```
    /// use std::time::{Duration, SystemTime};
    ///
    /// use fluxgate_core::{Quota, Rule};
    ///
    /// let tomorrow = SystemTime::now() + Duration::from_secs(86_400);
    /// let rule = Rule::new("per-user")
    ///     .per_user()
    ///     .band(Quota::per_second(10))
    ///     .override_until(["ann"], [Quota::per_second(100)], tomorrow);
    /// ```
    pub fn override_until(
        self,
        identity: impl IntoIterator<Item = impl Into<Box<str>>>,
        bands: impl IntoIterator<Item = impl Into<Band>>,
        until: impl Into<Timestamp>,
    ) -> Self {
        let mut rule = self.override_for(identity, bands);
        if let Some(last) = rule.overrides.last_mut() {
            last.until = Some(until.into());
        }
        rule
    }

    /// Charges its units even if the request is denied, by this rule or by others, and whether
    /// or not they fit: for costs that are known after the fact. A band owes at most its
    /// capacity.
    ///
    /// ```
    /// use fluxgate_core::{Limiter, MemoryStore, Quota, RequestContext, Rule, RuleSet};
    ///
    /// # fn main() -> Result<(), Box<dyn std::error::Error>> {
    /// let tokens = Rule::new("tokens").global().band(Quota::per_hour(10_000)).charge_always();
    /// let rules = RuleSet::builder("llm").rule(tokens).build()?;
    /// let limiter = Limiter::new(rules, MemoryStore::default());
    /// let llm = limiter.rule_set("llm")?;
    /// let used = |tokens| RequestContext::builder().cost(tokens).build();
    /// assert!(llm.check_sync(&used(6_000)).allowed());
    /// assert!(!llm.check_sync(&used(6_000)).allowed());
    /// // It owes 2,000, so nothing is admitted.
    /// assert!(!llm.check_sync(&used(0)).allowed());
    /// # Ok(())
    /// # }
    /// ```
    pub fn charge_always(mut self) -> Self {
        self.charge_always = true;
        self
    }

    /// Reports an event when an identity's use of a band reaches one of these shares: above 0%
    /// to 100%, at most ten. Only bands whose window, or time to fill, is a minute or more are
    /// reported, and the rule needs such a band. See [`Decision::uses`](crate::Decision::uses)
    /// for how programs find them; the service `fluxgate` sends them as events.
    ///
    /// ```
    /// use fluxgate_core::{Percent, Quota, Rule};
    ///
    /// let rule = Rule::new("per-user")
    ///     .per_user()
    ///     .band(Quota::per_day(1_000))
    ///     .notify([Percent::new(80), Percent::new(100)]);
    /// ```
    pub fn notify(mut self, shares: impl IntoIterator<Item = Percent>) -> Self {
        self.notify = shares.into_iter().collect();
        self
    }

    /// Deletes the rule's state whenever the rule changes.
    pub fn reset_on_change(mut self) -> Self {
        self.reset_on_change = true;
        self
    }

    /// Adds an attribute for logs and events.
    pub fn attribute(mut self, name: impl Into<Box<str>>, value: impl Into<Box<str>>) -> Self {
        self.attributes.push((name.into(), value.into()));
        self
    }
}

/// The most values of one list.
pub(super) const MAX_VALUES: usize = 100_000;

/// A named list of values, as it is written.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) struct List {
    pub(super) name: Box<str>,
    pub(super) values: Arc<[Box<str>]>,
}

impl List {
    pub(super) fn new(name: impl Into<Box<str>>, values: Vec<Box<str>>) -> Self {
        let (name, values) = (name.into(), values.into());
        Self { name, values }
    }
}

/// Adds a band. Without an id it is named by its position.
pub(super) fn push_band(bands: &mut Vec<Band>, band: Band) {
    let band = match band.id() {
        "" => Band::new(format!("b{}", bands.len()), *band.limit()),
        _ => band,
    };
    bands.push(band);
}
