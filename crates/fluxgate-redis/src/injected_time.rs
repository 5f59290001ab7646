//! For tests: a store that runs the script over a connection of the test, and can
//! set the time.
//!
//! Not for production. It sends one call after the other, without deadlines or
//! reconnections, and with a set time no key expires.

use std::sync::LazyLock;

use fluxgate_core::algorithm::Ask;
use fluxgate_core::store::{Charged, Checks, Micros, Subject, Verdicts};
use fluxgate_core::{
    Band, Clock, HoldId, Settled, Settlement, Store, StoreError, SystemClock, Timestamp,
};

use crate::codec::{Answer, Call, HoldOutcome, RecordedCharge, Request, Tally, read_record};
use crate::keys::KeyNaming;
use crate::lease::GrantReply;
use crate::script::{LEASE_SCRIPT, LEASE_TEST_SCRIPT, SCRIPT, Script, TEST_SCRIPT};

static READ_RECORD: LazyLock<Script> =
    LazyLock::new(|| Script::new("return redis.call('GET', KEYS[1]) or ''"));

/// A connection to a server.
pub trait Server: Send + Sync {
    /// Runs `EVALSHA`, or `EVAL` if the server lacks the script.
    fn eval(
        &self,
        script: &str,
        sha1: &str,
        keys: &[&[u8]],
        args: &[&[u8]],
    ) -> Result<Vec<u8>, StoreError>;

    /// Runs `UNLINK`.
    fn unlink(&self, keys: &[Vec<u8>]) -> Result<u64, StoreError>;

    /// Runs `SCAN MATCH` to its end.
    fn scan(&self, pattern: &[u8]) -> Result<Vec<Vec<u8>>, StoreError>;
}

/// A store that runs the script.
#[derive(Debug)]
pub struct ScriptStore<S, C = SystemClock> {
    server: S,
    /// `None`: the script for production, with the server's clock.
    clock: Option<C>,
    naming: KeyNaming,
    /// What it takes the server's time for, before the server answers.
    estimate: Timestamp,
}

/// A decision whose charges can be undone.
#[derive(Clone, Debug)]
pub struct Undoable(Answer);

impl<S: Server> ScriptStore<S> {
    /// Creates a store that runs the script for production, by the server's clock.
    pub fn on_server_time(server: S) -> Self {
        Self {
            server,
            clock: None,
            naming: KeyNaming::default(),
            estimate: Timestamp::default(),
        }
    }
}

impl<S: Server, C: Clock> ScriptStore<S, C> {
    /// Creates a store that runs the script for tests, by this clock.
    pub fn on_clock(server: S, clock: C) -> Self {
        Self {
            server,
            clock: Some(clock),
            naming: KeyNaming::default(),
            estimate: Timestamp::default(),
        }
    }

    /// Sets the names of keys.
    pub fn with_naming(mut self, naming: KeyNaming) -> Self {
        self.naming = naming;
        self
    }

    /// Decides several requests in one call.
    pub fn decide_all(
        &self,
        batch: &[&Checks<'_>],
    ) -> Result<Vec<Result<Verdicts, StoreError>>, StoreError> {
        let requests: Vec<_> = batch
            .iter()
            .map(|checks| {
                let mut request = Request::decide(checks, &self.naming, None);
                request.set_time(self.clock.as_ref().map_or(self.estimate, Clock::now));
                request
            })
            .collect();
        let answers = self.call(&requests.iter().collect::<Vec<_>>())?;
        let verdicts = answers.into_iter().zip(batch);
        let verdicts = verdicts.map(|(answer, checks)| answer?.verdicts(checks));
        Ok(verdicts.collect())
    }

    /// Decides checks whose charges may be undone.
    pub fn decide_undoable(&self, checks: &Checks<'_>) -> Result<(Verdicts, Undoable), StoreError> {
        let answer = self.one(&Request::decide(checks, &self.naming, None))?;
        Ok((answer.verdicts(checks)?, Undoable(answer)))
    }

    /// Undoes what was charged for `checks`.
    pub fn undo(&self, checks: &Checks<'_>, charged: &Undoable) -> Result<(), StoreError> {
        if let Some(undo) = Request::undo(checks, &charged.0, &self.naming, None)? {
            self.one(&undo)?;
        }
        Ok(())
    }

    /// Requests a lease of a leased band.
    pub fn lease(
        &self,
        subject: Subject<'_>,
        band: &Band,
        request: &Ask,
    ) -> Result<GrantReply, StoreError> {
        let lease = band.lease().expect("the band is leased");
        let request = Request::lease(subject, band, lease, request, &self.naming);
        self.one(&request)?.grant_reply(lease)
    }

    /// Returns the keys of a subject.
    pub fn keys(&self, subject: Subject<'_>, bands: &[Band]) -> Vec<Vec<u8>> {
        self.naming.keys(subject, bands)
    }

    /// Reads the record of a hold.
    fn record(&self, hold: HoldId) -> Result<Option<Vec<RecordedCharge>>, StoreError> {
        let script = &READ_RECORD;
        let key = self.naming.hold(hold);
        let record = self.server.eval(script.text, &script.sha1, &[&key], &[])?;
        match &record[..] {
            [] => Ok(None),
            record => read_record(record).map(Some),
        }
    }

    fn one(&self, request: &Request) -> Result<Answer, StoreError> {
        let mut request = request.clone();
        request.set_time(self.estimate);
        loop {
            let answer = self.call(&[&request])?.pop();
            let answer = answer.expect("as many answers as requests")?;
            if !answer.is_misdated() {
                return Ok(answer);
            }
            request.set_time(answer.now());
        }
    }

    fn call(&self, requests: &[&Request]) -> Result<Vec<Result<Answer, StoreError>>, StoreError> {
        let call = Call::new(requests, None);
        let now = self.clock.as_ref().map(|clock| clock.now().micros());
        let script: &Script = match (now.is_some(), call.has_leases()) {
            (true, true) => &LEASE_TEST_SCRIPT,
            (true, false) => &TEST_SCRIPT,
            (false, true) => &LEASE_SCRIPT,
            (false, false) => &SCRIPT,
        };
        // The script for production ignores it.
        let now = now.unwrap_or(0).to_string();
        let args = [&call.argument[..], now.as_bytes()];
        let reply = self
            .server
            .eval(script.text, &script.sha1, &call.keys, &args)?;
        call.answers(&reply, requests.len())
    }
}

impl<S: Server, C: Clock> Store for ScriptStore<S, C> {
    fn time(&self) -> Timestamp {
        self.clock
            .as_ref()
            .map_or_else(|| SystemClock::default().now(), Clock::now)
    }

    async fn decide(&self, checks: &Checks<'_>) -> Result<Verdicts, StoreError> {
        self.one(&Request::decide(checks, &self.naming, None))?
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

    async fn cancel(
        &self,
        subject: Subject<'_>,
        bands: &[Band],
        units: u64,
        charged: &[Charged],
    ) -> Result<(), StoreError> {
        let request = Request::cancel(subject, bands, units, charged, &self.naming);
        self.one(&request).map(drop)
    }

    async fn settle(
        &self,
        hold: HoldId,
        settlement: Settlement<'_>,
    ) -> Result<Option<Settled>, StoreError> {
        let Some(charges) = self.record(hold)? else {
            return Ok(None);
        };
        let key = self.naming.hold(hold);
        let answer = self.one(&Request::settle(&key, hold, &charges, &settlement))?;
        let HoldOutcome::Settled(charged) = answer.hold()? else {
            return Ok(None);
        };
        let mut tally = Tally::default();
        tally.add(&charges, &settlement, &charged);
        Ok(Some(tally.settled()))
    }

    async fn renew(&self, holds: &[(HoldId, Micros)]) -> Result<Vec<bool>, StoreError> {
        let renew = |(hold, span): &(HoldId, Micros)| {
            let Some(charges) = self.record(*hold)? else {
                return Ok(false);
            };
            let key = self.naming.hold(*hold);
            let answer = self.one(&Request::renew(&key, *hold, &charges, *span, *span))?;
            Ok(answer.hold()? == HoldOutcome::Renewed)
        };
        holds.iter().map(renew).collect()
    }

    async fn reset(&self, subject: Subject<'_>, bands: &[Band]) -> Result<u64, StoreError> {
        self.server.unlink(&self.naming.keys(subject, bands))
    }

    async fn reset_rule(&self, rule: Subject<'_>) -> Result<u64, StoreError> {
        let keys = self.server.scan(&self.naming.pattern(rule))?;
        self.server.unlink(&keys)
    }
}
