//! A rule that decisions use.

use std::ops::Range;

use foldhash::HashMap;

use super::action::RuleAction;
use super::cost::{Cost, Tokens};
use super::rollout::Rollout;
use super::rule::RuleMode;
use crate::band::Band;
use crate::context::RequestContext;
use crate::key::{
    self, IdentityError, IdentityPart, IdentityRef, KeyPart, OnMissingKey, PartHash, RuleNumber,
    StoredIdentity, Subject, SubjectBytes,
};
use crate::lease::{BandLease, Lease};
use crate::limit::{Algorithm, Limit};
use crate::matcher::{Conditions, Field};
use crate::percent::Percent;
use crate::time::{Micros, Timestamp};

/// The overrides of encoded identities.
pub(super) type Overrides = HashMap<Box<[u8]>, ActiveOverride>;

/// The bands of an identity that has its own.
#[derive(Clone, Debug)]
pub(super) struct ActiveOverride {
    pub(super) bands: Range<u32>,
    /// From when on it does not apply.
    pub(super) until: Option<Timestamp>,
}

/// An enabled rule of a [`RuleSet`](crate::RuleSet), with all its values checked.
#[derive(Clone, Debug)]
pub struct ActiveRule {
    pub(super) id: Box<str>,
    pub(super) name: Option<Box<str>>,
    pub(super) mode: RuleMode,
    pub(super) action: RuleAction,
    pub(super) priority: i32,
    pub(crate) conditions: Conditions,
    pub(super) key: Vec<KeyPart>,
    /// The number of its group in its set.
    pub(crate) group: Option<u32>,
    /// Whether it, or a rule of its group, reads a call of the Model Context Protocol.
    pub(crate) depends_on_call: bool,
    /// The share of identities that it is enforced for, and its id with its set.
    pub(super) rollout: Option<(Rollout, Box<[u8]>)>,
    pub(crate) on_missing_key: OnMissingKey,
    pub(crate) cost: Cost,
    pub(super) clamp: bool,
    /// How long a request that it denies may wait; `None` if it may not.
    pub(super) max_wait: Option<Micros>,
    /// `None` also if the rule is one whose requests are decided call by call.
    pub(super) lease: Option<Lease>,
    /// Its own bands, followed by those of its overrides.
    pub(super) bands: Vec<Band>,
    /// The number of its own bands.
    pub(super) own: u32,
    pub(super) overrides: Overrides,
    pub(super) attributes: Vec<(Box<str>, Box<str>)>,
    /// The start of every subject of this rule: its set, its id and, if it resets on
    /// change, a hash of its text.
    pub(super) subject: Box<[u8]>,
    pub(super) number: RuleNumber,
    pub(super) reset_on_change: bool,
    /// In ascending order.
    pub(super) notify: Box<[Percent]>,
}

impl ActiveRule {
    /// Returns its id in its set.
    pub fn id(&self) -> &str {
        &self.id
    }

    /// Returns its name for people.
    pub fn name(&self) -> Option<&str> {
        self.name.as_deref()
    }

    /// Returns whether it may deny requests.
    pub fn mode(&self) -> RuleMode {
        self.mode
    }

    /// Returns what it does with the requests that it matches.
    pub fn action(&self) -> RuleAction {
        self.action
    }

    /// Returns its priority: the lowest is evaluated first.
    pub fn priority(&self) -> i32 {
        self.priority
    }

    /// Returns whether its conditions or its key read a call of the Model Context Protocol.
    pub(super) fn reads_call(&self) -> bool {
        let mut fields = self.conditions.values.iter().map(|(field, _)| field);
        let mut parts = self.key.iter();
        fields.any(|field| matches!(field, Field::Attribute(name) if key::is_of_call(name)))
            || parts.any(|part| matches!(part, KeyPart::Attribute(name) if key::is_of_call(name)))
            || self.cost.attribute().is_some_and(key::is_of_call)
    }

    /// Returns whether a request that it denies may wait (`on_exceed: wait`).
    pub fn waits(&self) -> bool {
        self.max_wait.is_some()
    }

    /// Returns whether it may delay requests, by a reservation or in a shaping queue.
    pub fn delays(&self) -> bool {
        self.max_wait().is_some() || self.bands.iter().any(|band| band.limit().rate().shape())
    }

    /// Returns how long a request that it denies may wait, if it may.
    pub fn max_wait(&self) -> Option<Micros> {
        self.max_wait
    }

    /// Returns the units that a request asks for.
    pub fn cost_of(&self, context: &RequestContext<'_>) -> u64 {
        self.cost.cost_of(context)
    }

    /// Returns how many slots a request takes; `None` if the rule has none. `cost` replaces
    /// the rule's own.
    pub fn slots_of(&self, context: &RequestContext<'_>, cost: Option<u64>) -> Option<u64> {
        let cost = || cost.unwrap_or_else(|| self.cost.cost_of(context));
        self.takes_slots().then(cost)
    }

    /// Returns whether requests take slots.
    pub fn takes_slots(&self) -> bool {
        let first = self.bands.first();
        first.is_some_and(|band| band.algorithm() == Algorithm::Concurrency)
    }

    /// Returns whether the gateway lowers the tokens that a request may use to those left.
    pub fn clamps(&self) -> bool {
        self.clamp
    }

    /// Returns the tokens of a request to a language model that it counts, if it does.
    pub fn tokens(&self) -> Option<Tokens> {
        match self.cost {
            Cost::Tokens(tokens) => Some(tokens),
            _ => None,
        }
    }

    /// Returns whether it counts requests: each costs the same, and takes no slots.
    pub fn counts_requests(&self) -> bool {
        let is_fixed = matches!(self.cost, Cost::Fixed(_));
        is_fixed && !self.takes_slots() && !self.action.decides()
    }

    /// Returns how instances take units of its bands in advance, if they do.
    pub fn lease(&self) -> Option<Lease> {
        let is_leased = self.bands.iter().any(|band| band.lease().is_some());
        self.lease.filter(|_| is_leased)
    }

    /// Returns the parts of its key; none for a global rule, and if its
    /// [action](ActiveRule::action) decides.
    pub fn key(&self) -> &[KeyPart] {
        &self.key
    }

    /// Returns whether it counts by the client's address, or does so for requests that lack a
    /// part of its key.
    pub(super) fn counts_addresses(&self) -> bool {
        let falls_back = self.on_missing_key == OnMissingKey::Ip && !self.key.is_empty();
        falls_back || self.key.contains(&KeyPart::Ip)
    }

    /// Returns its bands, without those of its overrides; none if its
    /// [action](ActiveRule::action) decides.
    pub fn bands(&self) -> &[Band] {
        self.bands_in(&(0..self.own))
    }

    /// Returns the attributes that logs and events carry.
    pub fn attributes(&self) -> impl Iterator<Item = (&str, &str)> {
        self.attributes.iter().map(|(k, v)| (&**k, &**v))
    }

    /// Returns whether its match or its cost depends on the value of this part of a request.
    pub fn reads(&self, part: &KeyPart) -> bool {
        let is_cost = match (&self.cost, part) {
            (Cost::Header(name), KeyPart::Header(part)) => name == part,
            (Cost::Attribute(name), KeyPart::Attribute(part)) => name == part,
            _ => false,
        };
        let mut fields = self.conditions.values.iter().map(|(field, _)| field);
        is_cost
            || fields.any(|field| match (field, part) {
                (Field::Header(name), KeyPart::Header(part)) => name == part,
                (Field::Attribute(name), KeyPart::Attribute(part)) => name == part,
                (Field::User, KeyPart::User) => true,
                (Field::ApiKey | Field::ApiKeyHash, KeyPart::ApiKey) => true,
                _ => false,
            })
    }

    /// Returns whether its units are charged even if the request is denied.
    pub fn charges_always(&self) -> bool {
        self.bands.first().is_some_and(Band::charges_always)
    }

    /// Charges denied requests too, and delays none.
    pub(super) fn charge_always(&mut self) {
        self.max_wait = None;
        self.lease = None;
        for band in &mut self.bands {
            // Its units are not shared out in advance: they are charged wherever they are.
            *band = band.with_limit(*band.limit()).charging_always();
        }
    }

    /// Returns whether any change of the rule resets its state.
    pub fn reset_on_change(&self) -> bool {
        self.reset_on_change
    }

    /// Returns the shares of a band whose use is reported, in ascending order.
    pub fn notify(&self) -> &[Percent] {
        &self.notify
    }

    /// Returns its number in this process.
    pub fn number(&self) -> RuleNumber {
        self.number
    }

    /// Replaces the limits of its bands, including those of its overrides.
    pub(super) fn set_limits(&mut self, limits: Vec<Limit>) {
        for (band, limit) in self.bands.iter_mut().zip(limits) {
            *band = band.with_limit(limit);
        }
        self.lease_bands();
    }

    /// Leases its bands, and those of each override: all or none, since a request is only
    /// decided by leases if all its bands have one.
    pub(super) fn lease_bands(&mut self) {
        let Some(lease) = self.lease else { return };
        let lists = self.overrides.values().map(|own| own.bands.clone());
        for list in lists.chain(std::iter::once(0..self.own)) {
            let bands = &mut self.bands[list.start as usize..list.end as usize];
            let leases = bands
                .iter()
                .map(|band| BandLease::new(&lease, band.limit()));
            let Some(leases) = leases.collect::<Option<Vec<_>>>() else {
                continue;
            };
            for (band, lease) in bands.iter_mut().zip(leases) {
                band.set_lease(lease);
            }
        }
    }

    /// Returns the share of identities that it is enforced for, if not for all.
    pub fn rollout(&self) -> Option<Rollout> {
        self.rollout.as_ref().map(|(share, _)| *share)
    }

    /// Returns whether it may deny the requests of an encoded identity.
    #[inline]
    pub(crate) fn mode_for(&self, identity: &[u8]) -> RuleMode {
        match &self.rollout {
            Some((share, rule)) if self.mode == RuleMode::Enforce => {
                let mut subject = SubjectBytes::from(&**rule);
                subject.extend_from_slice(identity);
                if share.includes(&subject) {
                    RuleMode::Enforce
                } else {
                    RuleMode::Shadow
                }
            }
            _ => self.mode,
        }
    }

    /// Returns whether it may deny the requests of the identity at a place among 10,000.
    fn mode_at(&self, place: u16) -> RuleMode {
        match &self.rollout {
            Some((share, _)) if self.mode == RuleMode::Enforce && !share.includes_place(place) => {
                RuleMode::Shadow
            }
            _ => self.mode,
        }
    }

    /// Returns the start of every subject of this rule.
    pub fn subject(&self) -> Subject<'_> {
        Subject {
            rule: self.number,
            bytes: &self.subject,
        }
    }

    /// Returns the bands of an encoded identity. Reads the time only if an override may end.
    pub(crate) fn bands_for(&self, identity: &[u8], now: impl FnOnce() -> Timestamp) -> Range<u32> {
        if self.overrides.is_empty() {
            return 0..self.own;
        }
        self.bands_of(self.overrides.get(identity), now)
    }

    /// Returns the bands of an override, if there is one and it has not ended.
    fn bands_of(
        &self,
        own: Option<&ActiveOverride>,
        now: impl FnOnce() -> Timestamp,
    ) -> Range<u32> {
        let own = own.filter(|own| own.until.is_none_or(|until| now() < until));
        own.map_or(0..self.own, |own| own.bands.clone())
    }

    pub(crate) fn bands_in(&self, range: &Range<u32>) -> &[Band] {
        &self.bands[range.start as usize..range.end as usize]
    }

    pub(crate) fn band(&self, index: u32) -> Option<&Band> {
        self.bands.get(index as usize)
    }

    /// Returns the subject of an identity, with what the rule does with it.
    pub(crate) fn subject_of(
        &self,
        identity: IdentityRef<'_>,
        ipv6_prefix: u8,
        hash: impl Fn(&IdentityPart<'_>) -> Option<PartHash>,
        now: impl FnOnce() -> Timestamp,
    ) -> Result<IdentitySubject, IdentityError> {
        let mut subject = SubjectBytes::new();
        subject.extend_from_slice(&self.subject);
        let start = self.subject.len();
        let stored = match identity {
            IdentityRef::Values(values) => {
                key::encode_values(&self.key, values, ipv6_prefix, &mut subject)?;
                None
            }
            IdentityRef::Stored(stored) if !key::fits(&self.key, stored.as_bytes()) => {
                return Err(IdentityError::OtherKey);
            }
            IdentityRef::Stored(stored) => {
                subject.extend_from_slice(stored.as_bytes());
                Some(stored)
            }
        };
        let hashed = stored.and_then(|stored| Some((stored, stored.place()?)));
        let identity = &subject[start..];
        let (bands, mode) = match hashed {
            None => (self.bands_for(identity, now), self.mode_for(identity)),
            Some((stored, place)) => {
                let own = self.override_of_stored(stored, place, hash);
                (self.bands_of(own, now), self.mode_at(place))
            }
        };
        Ok(IdentitySubject {
            subject,
            bands,
            mode,
        })
    }

    /// Returns the override of an identity of which the store keeps hashes. Only identities with the
    /// same place are hashed to compare them: one in 10,000.
    fn override_of_stored(
        &self,
        stored: &StoredIdentity,
        place: u16,
        hash: impl Fn(&IdentityPart<'_>) -> Option<PartHash>,
    ) -> Option<&ActiveOverride> {
        // Without the hash of a rule that resets on change.
        let resets = usize::from(self.reset_on_change) * (1 + size_of::<u128>());
        let rule = &self.subject[..self.subject.len() - resets];
        let has_place = |identity: &[u8]| {
            let mut subject = SubjectBytes::from(rule);
            subject.extend_from_slice(identity);
            key::place_of(&subject) == place
        };
        let is_it = |identity: &[u8]| {
            let mut parts = stored.parts();
            let all = key::parts_of(identity).all(|part| match (parts.next(), hash(&part)) {
                (Some(found), Some(hash)) => {
                    found.hash() == Some(&hash) && found.hashed_kind() == part.kind
                }
                (found, _) => found == Some(part),
            });
            all && parts.next().is_none()
        };
        let mut overrides = self.overrides.iter();
        let found = overrides.find(|(identity, _)| has_place(identity) && is_it(identity));
        found.map(|(_, own)| own)
    }
}

/// The subject of an identity, with what its rule does with it.
#[derive(Clone, Debug)]
pub(crate) struct IdentitySubject {
    pub(crate) subject: SubjectBytes,
    /// The bands that it has now.
    pub(crate) bands: Range<u32>,
    /// Whether its requests may be denied.
    pub(crate) mode: RuleMode,
}
