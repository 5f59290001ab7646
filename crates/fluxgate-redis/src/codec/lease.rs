//! Encodes lease requests and decodes the grants.

use fluxgate_core::algorithm::{LeaseRequest, balance_of};
use fluxgate_core::lease::BandLease;
use fluxgate_core::store::Subject;
use fluxgate_core::{Band, StoreError};

use super::answer::Answer;
use super::request::{CheckSpec, KeyKind, Op, Request, put};
use crate::error::bad_response;
use crate::keys::KeyNaming;
use crate::lease::GrantReply;

impl Request {
    /// Requests a lease of a band. It must not be sent twice: each report takes effect.
    pub(crate) fn lease(
        subject: Subject<'_>,
        band: &Band,
        lease: &BandLease,
        ask: &LeaseRequest,
        naming: &KeyNaming,
    ) -> Self {
        let mut request = Self::new(Op::Lease, 1);
        let mut head = Vec::new();
        naming.write_subject(subject, &mut head);
        let key = request.add_band(&head, band);
        let limit = lease.shared();
        request.push(CheckSpec::alone(limit, 0, key));
        let out_key = request.add_key(KeyKind::Other, |names| {
            naming.write_lease_subject(subject, names);
            KeyNaming::write_band(band, names);
        });
        let is_bucket = limit.algorithm().is_bucket();
        let time_of = |units: u32| limit.rate().time_of(units.into());
        let rungs = match ask.want.checked_ilog2() {
            // Up to twice as many units, to find out whether half of what is left is fewer.
            Some(highest) if is_bucket => highest + 2,
            _ => 0,
        };
        let mut out = Vec::new();
        put(&mut out, out_key as u64, 4);
        put(&mut out, lease.most(), 4);
        put(&mut out, ask.want.into(), 4);
        put(&mut out, lease.span().get() / 1000, 4);
        // At most the grants of a holder, and the bits of a number.
        out.extend_from_slice(&[ask.reports().len() as u8, rungs as u8]);
        for report in ask.reports() {
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

    /// Drops the lease requests that go with this request.
    pub(crate) fn drop_lease_requests(&mut self) {
        self.lease_requests.clear();
    }

    /// Sends a lease request with this request. Its keys must be in the same hash slot.
    pub(crate) fn add_lease_request(&mut self, request: Self) {
        self.lease_requests.push(request);
    }
}

impl Answer {
    /// Returns the reply to a lease request.
    pub(crate) fn grant_reply(&self, lease: &BandLease) -> Result<GrantReply, StoreError> {
        let limit = lease.shared();
        let mut grant = self
            .grant()
            .ok_or_else(|| bad_response("the reply has no grant"))?;
        if limit.algorithm().is_bucket() {
            grant.window_left = None;
        }
        let cell = self.only_state()?.cell(limit)?;
        Ok(GrantReply {
            grant,
            balance: balance_of(limit, cell, self.now()),
        })
    }
}
