//! For tests: a store that runs the script over a connection of the test, at a time that the
//! test sets.
//!
//! Not for production: it sends one call after the other, without deadlines or reconnections,
//! and at a set time no key expires.

use std::sync::LazyLock;

use fluxgate_core::algorithm::LeaseRequest;
use fluxgate_core::store::{Charged, Checks, Micros, Subject, Verdicts};
use fluxgate_core::{
    Band, Clock, HoldId, Settled, Settlement, Store, StoreError, SystemClock, Timestamp,
};

use crate::codec::{
    Answer, Call, HoldOutcome, RecordedCharge, Request, SettlementTotal, read_record,
};
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
    /// `None` for the script of production, which reads the server's clock.
    clock: Option<C>,
    naming: KeyNaming,
    /// The assumed time of the server, before the server answers.
    estimate: Timestamp,
}

/// A decision whose charges can be undone.
#[derive(Clone, Debug)]
pub struct UndoableDecision(Answer);

impl<S: Server> ScriptStore<S> {
    /// Creates a store that runs the script of production, by the server's clock.
    pub fn on_server_time(server: S) -> Self {
        Self::new(server, None)
    }
}

impl<S: Server, C: Clock> ScriptStore<S, C> {
    /// Creates a store that runs the script of tests, by this clock.
    pub fn on_clock(server: S, clock: C) -> Self {
        Self::new(server, Some(clock))
    }

    fn new(server: S, clock: Option<C>) -> Self {
        Self {
            server,
            clock,
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
        let request = |checks: &&Checks<'_>| {
            let mut request = Request::decide(checks, &self.naming, None);
            request.set_windows(self.clock.as_ref().map_or(self.estimate, Clock::now));
            request
        };
        let requests: Vec<_> = batch.iter().map(request).collect();
        let answers = self.call(&requests.iter().collect::<Vec<_>>())?;
        Ok(answers
            .into_iter()
            .zip(batch)
            .map(|(answer, checks)| answer?.verdicts(checks))
            .collect())
    }

    /// Decides checks and returns what undoes their charges.
    pub fn decide_undoable(
        &self,
        checks: &Checks<'_>,
    ) -> Result<(Verdicts, UndoableDecision), StoreError> {
        let answer = self.send(&Request::decide(checks, &self.naming, None))?;
        Ok((answer.verdicts(checks)?, UndoableDecision(answer)))
    }

    /// Undoes what was charged for `checks`.
    pub fn undo(&self, checks: &Checks<'_>, charged: &UndoableDecision) -> Result<(), StoreError> {
        if let Some(undo) = Request::undo(checks, &charged.0, &self.naming, None)? {
            self.send(&undo)?;
        }
        Ok(())
    }

    /// Requests a lease of a leased band.
    pub fn lease(
        &self,
        subject: Subject<'_>,
        band: &Band,
        request: &LeaseRequest,
    ) -> Result<GrantReply, StoreError> {
        let lease = band.lease().expect("the band is leased");
        let request = Request::lease(subject, band, lease, request, &self.naming);
        self.send(&request)?.grant_reply(lease)
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

    fn send(&self, request: &Request) -> Result<Answer, StoreError> {
        let mut request = request.clone();
        request.set_windows(self.estimate);
        loop {
            let mut answers = self.call(&[&request])?;
            let answer = answers.pop().expect("as many answers as requests")?;
            if !answer.is_outside_window {
                return Ok(answer);
            }
            request.set_windows(answer.now);
        }
    }

    fn call(&self, requests: &[&Request]) -> Result<Vec<Result<Answer, StoreError>>, StoreError> {
        let call = Call::new(requests, None);
        let now = self.clock.as_ref().map(|clock| clock.now().micros());
        let script: &Script = match (now.is_some(), call.has_leases) {
            (true, true) => &LEASE_TEST_SCRIPT,
            (true, false) => &TEST_SCRIPT,
            (false, true) => &LEASE_SCRIPT,
            (false, false) => &SCRIPT,
        };
        // The script of production ignores it.
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
        self.send(&Request::decide(checks, &self.naming, None))?
            .verdicts(checks)
    }

    async fn refund(
        &self,
        subject: Subject<'_>,
        bands: &[Band],
        units: u64,
    ) -> Result<Verdicts, StoreError> {
        let request = Request::refund(subject, bands, units, &self.naming);
        self.send(&request)?.states(bands.iter())
    }

    async fn cancel(
        &self,
        subject: Subject<'_>,
        bands: &[Band],
        units: u64,
        charged: &[Charged],
    ) -> Result<(), StoreError> {
        let request = Request::cancel(subject, bands, units, charged, &self.naming);
        self.send(&request).map(drop)
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
        let answer = self.send(&Request::settle(&key, hold, &charges, &settlement))?;
        let HoldOutcome::Settled(charged) = answer.into_hold_outcome()? else {
            return Ok(None);
        };
        let mut total = SettlementTotal::default();
        total.add(&charges, &settlement, &charged);
        Ok(Some(total.settled()))
    }

    async fn renew(&self, holds: &[(HoldId, Micros)]) -> Result<Vec<bool>, StoreError> {
        let renew = |(hold, span): &(HoldId, Micros)| {
            let Some(charges) = self.record(*hold)? else {
                return Ok(false);
            };
            let key = self.naming.hold(*hold);
            let answer = self.send(&Request::renew(&key, *hold, &charges, *span, *span))?;
            Ok(answer.into_hold_outcome()? == HoldOutcome::Renewed)
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
