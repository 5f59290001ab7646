//! Identities as responses and records name them.
//!
//! An identity is listed in the form in which the store keeps it, with a [handle](handle) that refers
//! to it in later calls, and with a name for people: its parts, or pseudonyms of them where identities
//! must stay hidden. Handles and pseudonyms depend on a secret that all instances of a deployment
//! share.

mod filter;
mod handle;
mod pseudonyms;
mod sealed;

use std::hash::{BuildHasher, RandomState};
use std::net::IpAddr;
use std::slice;
use std::sync::{Arc, PoisonError, RwLock};
use std::time::Duration;

use fluxgate_core::key::{
    IdentityPart, PartHash, describe_identity_with, encoded_identity, parts_of,
};
use fluxgate_core::{KeyPart, Store, StoredIdentity};
use fluxgate_redis::{BackOff, DeploymentSecret, HashKeys, RedisStore};
use tokio_util::sync::CancellationToken;

pub(crate) use filter::{IdentityFilter, IdentityFilterError};
pub(crate) use handle::{HandleError, HandleTarget};
pub(crate) use pseudonyms::Pseudonyms;

use crate::config::{Config, Secret};
use handle::{HandleKeys, derived_key};
use sealed::SealKey;

/// How often the secret on the server is read again, and restored if the server has lost it.
const CHECK_INTERVAL: Duration = Duration::from_secs(60);
/// The longest wait between attempts to read it the first time.
const MAX_RETRY_WAIT: Duration = Duration::from_secs(1);

/// Names identities, and finds them by their names.
#[derive(Debug)]
pub(crate) struct Identities {
    /// The store, if it may hash parts of identities.
    redis: Option<Arc<RedisStore>>,
    /// Whether logs may name identities.
    names: bool,
    /// Whether no response may name identities.
    hides: bool,
    ipv6_prefix: u8,
    /// Whether the secret comes from a file.
    has_secret_file: bool,
    keys: RwLock<Arc<SecretKeys>>,
}

/// What depends on the secret of the deployment.
#[derive(Clone, Debug)]
struct SecretKeys {
    /// `None` before the secret is known.
    handles: Option<HandleKeys>,
    /// `None` before the secret is known.
    seal: Option<SealKey>,
    pseudonyms: Pseudonyms,
}

impl SecretKeys {
    /// Derives all of them from a secret that is known.
    fn derive(secret: &[u8]) -> Self {
        Self {
            handles: Some(HandleKeys::derive(secret)),
            seal: Some(SealKey::derive(secret)),
            pseudonyms: pseudonyms_of(secret),
        }
    }
}

impl Identities {
    /// Creates it from the config. `secret` is the content of `keys.hash_secret_file`.
    pub(crate) fn new(
        config: &Config,
        secret: Option<&Secret>,
        redis: Option<Arc<RedisStore>>,
    ) -> Self {
        let random = random_secret();
        let shared = secret.map(Secret::as_bytes);
        let keys = match (&redis, shared) {
            // State in memory ends with the process, and so do handles of it, which contain
            // identities in the clear.
            (None, _) => SecretKeys {
                pseudonyms: pseudonyms_of(shared.unwrap_or(&random)),
                ..SecretKeys::derive(&random)
            },
            (Some(_), Some(shared)) => SecretKeys::derive(shared),
            (Some(_), None) => SecretKeys {
                handles: None,
                seal: None,
                pseudonyms: pseudonyms_of(&random),
            },
        };
        Self {
            redis,
            names: config.telemetry.identities,
            hides: config.keys.hash_keys == HashKeys::All,
            ipv6_prefix: config.keys.ipv6_prefix,
            has_secret_file: shared.is_some(),
            keys: RwLock::new(Arc::new(keys)),
        }
    }

    /// Creates it for the memory store, with the default config.
    #[cfg(any(test, feature = "fuzzing"))]
    pub(crate) fn in_memory() -> Self {
        let random = random_secret();
        Self {
            redis: None,
            names: false,
            hides: false,
            ipv6_prefix: 64,
            has_secret_file: false,
            keys: RwLock::new(Arc::new(SecretKeys::derive(&random))),
        }
    }

    /// Reads the secret from the server if it is kept there, until the service closes.
    pub(crate) async fn keep_secret(&self, closing: &CancellationToken) {
        let Some(store) = self.redis.as_ref().filter(|_| !self.has_secret_file) else {
            return;
        };
        let mut known: Option<DeploymentSecret> = None;
        let mut back_off = BackOff::up_to(MAX_RETRY_WAIT);
        loop {
            // Failures show up in the breaker state.
            if let Ok(secret) = store.deployment_secret(known.as_ref()).await
                && known.as_ref() != Some(&secret)
            {
                *self.keys.write().unwrap_or_else(PoisonError::into_inner) =
                    Arc::new(SecretKeys::derive(secret.as_bytes()));
                known = Some(secret);
            }
            let wait = match known {
                Some(_) => CHECK_INTERVAL,
                None => back_off.next_wait(),
            };
            tokio::select! {
                () = tokio::time::sleep(wait) => {}
                () = closing.cancelled() => return,
            }
        }
    }

    /// Returns the encoded identity of a rule in the form in which the store keeps it.
    pub(crate) fn stored(&self, rule_set: &str, rule: &str, identity: &[u8]) -> StoredIdentity {
        StoredIdentity::new(rule_set, rule, identity, |part| self.hash_part(part))
    }

    /// Returns the handle of an identity, by which later calls find it. `None` if it is too large, or
    /// before the store has answered for the first time.
    pub(crate) fn handle(
        &self,
        rule_set: &str,
        rule: &str,
        identity: &StoredIdentity,
    ) -> Option<String> {
        self.keys().handles.as_ref()?.seal(rule_set, rule, identity)
    }

    /// Returns what a handle refers to. The rule may no longer exist.
    pub(crate) fn open(&self, handle: &str) -> Result<HandleTarget, HandleError> {
        let keys = self.keys();
        let keys = keys.handles.as_ref().ok_or(HandleError::NotReady)?;
        keys.open(handle)
    }

    /// Encrypts what instances share of requests, so that the store keeps no identities in the clear.
    /// `about` is not encrypted, but cannot be exchanged. `None` before the secret is known.
    pub(crate) fn seal(&self, content: Vec<u8>, about: &[u8]) -> Option<Vec<u8>> {
        self.keys().seal.as_ref()?.seal(content, about)
    }

    /// Decrypts what an instance of this deployment has encrypted.
    pub(crate) fn unseal(&self, sealed: &[u8], about: &[u8]) -> Option<Vec<u8>> {
        self.keys().seal.as_ref()?.open(sealed, about)
    }

    /// Returns an identity as logs name it: in the clear, or as pseudonyms of its parts.
    pub(crate) fn show(&self, identity: &StoredIdentity) -> String {
        self.show_if(self.names_identities(), identity)
    }

    /// Returns an identity as the live view names it: in the clear, unless all identities are hashed.
    pub(crate) fn show_live(&self, identity: &StoredIdentity) -> String {
        self.show_if(!self.hides, identity)
    }

    /// Returns whether a text in lower case is a part of what responses show of an identity.
    pub(crate) fn is_shown_with(&self, identity: &StoredIdentity, text: &str) -> bool {
        let has = |shown: String| shown.to_lowercase().contains(text);
        has(self.show_live(identity)) || has(self.show(identity))
    }

    /// Returns a description of an identity that was too long to be kept, as the live view names it.
    pub(crate) fn show_long(&self, description: &str) -> String {
        if self.hides {
            self.keys().pseudonyms.of_value(description.as_bytes())
        } else {
            description.to_owned()
        }
    }

    /// Returns the address of a client as logs name it: in the clear, or as the pseudonym that it has
    /// in identities.
    pub(crate) fn address_in_logs(&self, address: IpAddr) -> String {
        let text = address.to_canonical().to_string();
        if self.names_identities() {
            return text;
        }
        let encoded = encoded_identity(&[KeyPart::Ip], &[&text], self.ipv6_prefix);
        let pseudonym = |part: &IdentityPart<'_>| Some(self.pseudonym_of_part(part));
        // An address can always be encoded.
        let named = encoded.map(|encoded| describe_identity_with(&encoded, pseudonym));
        let named = named.unwrap_or_default();
        match named.split_once('=') {
            Some((_, pseudonym)) => pseudonym.to_owned(),
            None => named,
        }
    }

    /// Returns whether responses name identities as logs do in the clear.
    pub(crate) fn names_identities(&self) -> bool {
        self.names && !self.hides
    }

    /// Returns the pseudonyms of this deployment.
    pub(crate) fn pseudonyms(&self) -> Pseudonyms {
        self.keys().pseudonyms.clone()
    }

    /// Reads `PART=VALUE` texts, which an identity must have all.
    pub(crate) fn filter<T: AsRef<str>>(
        &self,
        texts: &[T],
    ) -> Result<IdentityFilter, IdentityFilterError> {
        IdentityFilter::parse(texts, self.ipv6_prefix, |part| self.hash_part(part))
    }

    /// Returns whether an identity has what a filter wants.
    pub(crate) fn matches(&self, filter: &IdentityFilter, identity: &StoredIdentity) -> bool {
        filter.matches(identity.as_bytes(), |part| self.pseudonym_of_part(part))
    }

    /// Returns whether a request with these values of parts has what a filter wants.
    pub(crate) fn matches_values(
        &self,
        filter: &IdentityFilter,
        parts: &[KeyPart],
        values: &[&str],
    ) -> bool {
        let encoded = encoded_identity(parts, values, self.ipv6_prefix);
        encoded.is_ok_and(|it| filter.matches(&it, |part| self.pseudonym_of_part(part)))
    }

    fn show_if(&self, in_the_clear: bool, identity: &StoredIdentity) -> String {
        describe_identity_with(identity.as_bytes(), |part| {
            let is_hidden = !in_the_clear || part.hash().is_some();
            is_hidden.then(|| self.pseudonym_of_part(part))
        })
    }

    /// Returns the pseudonym of a part of an identity, whether it is hashed or not.
    pub(crate) fn pseudonym_of_part(&self, part: &IdentityPart<'_>) -> String {
        let hash = part.hash().copied().or_else(|| self.hash_part(part));
        let value = hash.as_ref().map_or(part.value, |hash| hash);
        self.keys().pseudonyms.of_value(value)
    }

    /// Returns the pseudonym that identities have in place of a value.
    pub(crate) fn pseudonym_of(&self, part: &KeyPart, value: &str) -> String {
        let encoded = encoded_identity(slice::from_ref(part), &[value], self.ipv6_prefix).ok();
        match encoded.as_ref().and_then(|it| parts_of(it).next()) {
            Some(part) => self.pseudonym_of_part(&part),
            // No rule can count it.
            None => self.keys().pseudonyms.of_value(value.as_bytes()),
        }
    }

    fn hash_part(&self, part: &IdentityPart<'_>) -> Option<PartHash> {
        self.redis.as_ref()?.hash_part(part)
    }

    fn keys(&self) -> Arc<SecretKeys> {
        Arc::clone(&self.keys.read().unwrap_or_else(PoisonError::into_inner))
    }
}

fn pseudonyms_of(secret: &[u8]) -> Pseudonyms {
    Pseudonyms::new(derived_key(secret, "fluxgate pseudonyms"))
}

fn random_secret() -> [u8; 32] {
    let mut secret = [0; 32];
    for word in secret.as_chunks_mut::<8>().0 {
        *word = RandomState::new().hash_one(0).to_le_bytes();
    }
    secret
}

#[cfg(test)]
mod tests {
    use fluxgate_redis::HashSecret;

    use super::*;

    fn identities(which: HashKeys, names: bool) -> Identities {
        let store = RedisStore::builder(["redis://127.0.0.1:1"]);
        let store = store.hash_keys(which, HashSecret::new(b"hash")).build();
        Identities {
            redis: Some(Arc::new(store.unwrap())),
            names,
            hides: which == HashKeys::All,
            ..Identities::in_memory()
        }
    }

    fn ann(identities: &Identities) -> StoredIdentity {
        let key = [KeyPart::User, KeyPart::ApiKey, KeyPart::Ip];
        let values = ["ann", "a-secret-key-1", "2001:db8::7"];
        let identity = encoded_identity(&key, &values, 64).unwrap();
        identities.stored("api", "r", &identity)
    }

    #[test]
    fn an_identity_is_shown_in_the_clear_or_by_pseudonyms() {
        let clear = identities(HashKeys::None, true);
        assert_eq!(
            clear.show(&ann(&clear)),
            "user=ann api_key=a-se…-1 ip=2001:db8::"
        );
        let hashed = identities(HashKeys::ApiKeys, true);
        let shown = hashed.show(&ann(&hashed));
        let key = shown.strip_prefix("user=ann api_key=").unwrap();
        let key = key.strip_suffix(" ip=2001:db8::").unwrap();
        assert!(Pseudonyms::is_pseudonym(key), "{shown}");
        for which in [HashKeys::None, HashKeys::ApiKeys, HashKeys::All] {
            let hidden = identities(which, which == HashKeys::All);
            let shown = hidden.show(&ann(&hidden));
            for part in shown.split(' ') {
                let (_, name) = part.split_once('=').unwrap();
                assert!(Pseudonyms::is_pseudonym(name), "{shown}");
            }
            let is_clear = hidden.show_live(&ann(&hidden)).starts_with("user=ann ");
            assert_eq!(is_clear, which != HashKeys::All);
        }
    }

    #[test]
    fn a_part_has_one_pseudonym_hashed_or_not() {
        let hashed = identities(HashKeys::All, false);
        let key = encoded_identity(&[KeyPart::User], &["ann"], 64).unwrap();
        let part = fluxgate_core::key::parts_of(&key).next().unwrap();
        let stored = hashed.stored("s", "r", &key);
        let name = hashed.pseudonym_of_part(&part);
        assert_eq!(hashed.show(&stored), format!("user={name}"));
        assert_eq!(hashed.pseudonym_of(&KeyPart::User, "ann"), name);
        assert!(Pseudonyms::is_pseudonym(
            &hashed.pseudonym_of(&KeyPart::User, "")
        ));
    }

    #[test]
    fn identities_are_found_by_their_parts_in_every_form() {
        for which in [HashKeys::None, HashKeys::ApiKeys, HashKeys::All] {
            let names = identities(which, false);
            let ann = ann(&names);
            let finds = |texts: &[&str]| names.matches(&names.filter(texts).unwrap(), &ann);
            for found in [
                &["user=ann"][..],
                &["api_key=a-secret-key-1"],
                &["ip=2001:db8::7"],
                &["ip=2001:db8::99", "user=ann"],
                &[],
            ] {
                assert!(finds(found), "{which:?}: {found:?}");
            }
            for missing in [
                &["user=bob"][..],
                &["api_key=ann"],
                &["user=a-secret-key-1"],
                &["user=ann", "api_key=other"],
                &["header:x-user=ann"],
                &["ip=10.0.0.1"],
                &["key=ann"],
                &["user=~0123456789ab"],
            ] {
                assert!(!finds(missing), "{which:?}: {missing:?}");
            }
            // What is shown finds it, too.
            let shown = names.show(&ann);
            assert!(finds(&shown.split(' ').collect::<Vec<_>>()), "{shown}");
        }
    }

    #[test]
    fn a_filter_is_read_strictly() {
        let names = Identities::in_memory();
        for bad in ["ann", "name=ann", "ip=ann", "user=", "header:=x", "=x"] {
            assert!(names.filter(&[bad]).is_err(), "{bad}");
        }
    }

    #[test]
    fn there_are_no_handles_before_the_secret_is_known() {
        let names = Identities {
            keys: RwLock::new(Arc::new(SecretKeys {
                handles: None,
                seal: None,
                pseudonyms: pseudonyms_of(b""),
            })),
            ..Identities::in_memory()
        };
        assert_eq!(names.handle("api", "r", &ann(&names)), None);
        assert_eq!(names.open("AQ"), Err(HandleError::NotReady));
    }
}
