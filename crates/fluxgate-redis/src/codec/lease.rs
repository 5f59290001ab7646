//! Encodes asks for units to spend without asking, and decodes the grants.

use fluxgate_core::internals::BandLease;
use fluxgate_core::internals::algorithm::{Ask, Grant, rest};
use fluxgate_core::store::{Subject, Verdict};
use fluxgate_core::{Band, StoreError};

use super::answer::Answer;
use super::request::{Ends, KeyKind, Op, Request, put};
use crate::error::bad_response;
use crate::keys::KeyNaming;

/// An answer to an [`Ask`].
#[derive(Clone, Copy, Debug)]
pub(crate) struct Granted {
    pub(crate) grant: Grant,
    /// What the shared limit has left after it.
    pub(crate) rest: Verdict,
}

impl Request {
    /// Asks for units of a band. Their reports take effect at most once, so the request must
    /// not be sent again.
    pub(crate) fn ask(
        subject: Subject<'_>,
        band: &Band,
        lease: &BandLease,
        ask: &Ask,
        naming: &KeyNaming,
    ) -> Self {
        let mut request = Self::new(Op::Ask, 1);
        let mut head = Vec::new();
        naming.write_subject(subject, &mut head);
        let key = request.add_band(&head, band);
        let limit = lease.shared();
        request.push(limit, 0, false, key, true, Ends::Nothing);
        let out_key = request.add_key(KeyKind::Other, |names| {
            naming.write_lease_subject(subject, names);
            KeyNaming::write_band(band, names);
        });
        let is_bucket = limit.algorithm().is_bucket();
        let time_of = |units: u32| limit.rate().time_of(units.into());
        let rungs = match ask.want.checked_ilog2() {
            // Up to twice as many, to see whether half of what is left is less.
            Some(highest) if is_bucket => highest + 2,
            _ => 0,
        };
        let mut out = Vec::new();
        put(&mut out, out_key as u64, 4);
        put(&mut out, lease.most(), 4);
        put(&mut out, ask.want.into(), 4);
        put(&mut out, lease.span().get() / 1000, 4);
        // As many as grants are kept, and as bits of a number.
        out.extend_from_slice(&[ask.reports.len() as u8, rungs as u8]);
        for report in &ask.reports {
            put(&mut out, report.ends, 7);
            put(&mut out, report.spent.into(), 4);
            put(&mut out, report.returned.into(), 4);
            let time = if is_bucket {
                time_of(report.returned)
            } else {
                Default::default()
            };
            put(&mut out, time.whole, 7);
            put(&mut out, time.part.into(), 4);
        }
        for bit in (0..rungs).rev() {
            put(&mut out, 1 << bit, 4);
            let time = time_of(1 << bit);
            put(&mut out, time.whole, 7);
            put(&mut out, time.part.into(), 4);
        }
        request.trailers = out;
        request
    }

    /// Drops the asks that go with this request.
    pub(crate) fn drop_asks(&mut self) {
        self.asks.clear();
    }

    /// Sends an ask for units with this request. It must be about keys of the same slot.
    pub(crate) fn push_ask(&mut self, ask: Self) {
        self.asks.push(ask);
    }
}

impl Answer {
    /// Returns the grant, if the request was an ask for units of a band.
    pub(crate) fn granted(&self, lease: &BandLease) -> Result<Granted, StoreError> {
        let limit = lease.shared();
        let grant = self.grant();
        let mut grant = grant.ok_or_else(|| bad_response("the reply has no grant"))?;
        if limit.algorithm().is_bucket() {
            grant.window_left = None;
        }
        let cell = self.only_state()?.cell(limit)?;
        Ok(Granted {
            grant,
            rest: rest(limit, cell, self.now()),
        })
    }
}
