//! A store at a time it is told, for tests: the script in a variant that takes
//! the time from its caller, over whatever connection the test has.

use fluxgate_core::{Band, Checks, Clock, Store, StoreError, Subject, Verdicts};

use crate::codec::{Answer, Call, Request, parse_reply};
use crate::key_name::Naming;
use crate::script::{SCRIPT, TEST_SCRIPT};

/// A connection to a server.
pub trait Server: Send + Sync {
    /// `EVAL` with a reply of bytes.
    fn eval(&self, script: &str, keys: &[&[u8]], args: &[&[u8]]) -> Result<Vec<u8>, StoreError>;

    /// `UNLINK`.
    fn unlink(&self, keys: &[Vec<u8>]) -> Result<u64, StoreError>;

    /// `SCAN MATCH` to its end.
    fn scan(&self, pattern: &[u8]) -> Result<Vec<Vec<u8>>, StoreError>;
}

/// Decides at the time of a clock of its own, one call after the other. Nothing
/// that it writes expires.
#[derive(Debug)]
pub struct InjectedStore<S, C> {
    server: S,
    clock: C,
    naming: Naming,
}

/// The production script, so that tests can tell it from this one.
pub fn production_script() -> &'static str {
    SCRIPT.text
}

impl<S: Server, C: Clock> InjectedStore<S, C> {
    /// A store with the default names.
    pub fn new(server: S, clock: C) -> Self {
        Self::named(server, clock, Naming::default())
    }

    /// A store with other names.
    pub fn named(server: S, clock: C, naming: Naming) -> Self {
        Self {
            server,
            clock,
            naming,
        }
    }

    /// Decides several requests in one call.
    pub fn decide_all(
        &self,
        batch: &[&Checks<'_>],
    ) -> Result<Vec<Result<Verdicts, StoreError>>, StoreError> {
        let requests: Vec<_> = batch
            .iter()
            .map(|checks| Request::decide(checks, &self.naming))
            .collect();
        let answers = self.call(&requests.iter().collect::<Vec<_>>())?;
        let verdicts = answers.into_iter().zip(batch);
        let verdicts = verdicts.map(|(answer, checks)| answer?.verdicts(checks));
        Ok(verdicts.collect())
    }

    /// Decides, lets something else happen, and takes back what was charged.
    pub fn decide_and_undo(
        &self,
        checks: &Checks<'_>,
        meanwhile: impl FnOnce(),
    ) -> Result<Verdicts, StoreError> {
        let answer = self.one(&Request::decide(checks, &self.naming))?;
        let verdicts = answer.verdicts(checks)?;
        meanwhile();
        if let Some(undo) = Request::undo(checks, &answer, &self.naming)? {
            self.one(&undo)?;
        }
        Ok(verdicts)
    }

    /// The names of the keys of a subject.
    pub fn keys(&self, subject: Subject<'_>, bands: &[Band]) -> Vec<Vec<u8>> {
        self.naming.keys(subject, bands)
    }

    fn one(&self, request: &Request) -> Result<Answer, StoreError> {
        let answer = self.call(&[request])?.pop();
        answer.expect("as many answers as requests")
    }

    fn call(&self, requests: &[&Request]) -> Result<Vec<Result<Answer, StoreError>>, StoreError> {
        let now = self.clock.now().micros().to_string();
        let call = Call::new(requests, None);
        let args = [&call.argument[..], now.as_bytes()];
        let reply = self.server.eval(TEST_SCRIPT.text, &call.keys, &args)?;
        parse_reply(&reply, requests.len())
    }
}

impl<S: Server, C: Clock> Store for InjectedStore<S, C> {
    async fn decide(&self, checks: &Checks<'_>) -> Result<Verdicts, StoreError> {
        self.one(&Request::decide(checks, &self.naming))?
            .verdicts(checks)
    }

    async fn refund(
        &self,
        subject: Subject<'_>,
        bands: &[Band],
        units: u64,
    ) -> Result<Verdicts, StoreError> {
        let request = Request::refund(subject, bands, units, &self.naming);
        self.one(&request)?.states(bands.iter())
    }

    async fn reset(&self, subject: Subject<'_>, bands: &[Band]) -> Result<u64, StoreError> {
        self.server.unlink(&self.naming.keys(subject, bands))
    }

    async fn reset_rule(&self, rule: Subject<'_>) -> Result<u64, StoreError> {
        let keys = self.server.scan(&self.naming.pattern(rule))?;
        self.server.unlink(&keys)
    }
}
