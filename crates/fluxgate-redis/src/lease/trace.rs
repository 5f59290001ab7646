//! Records what a table does, for tests that replay it against the specification
//! (`spec/tla/Leases.tla`).
//!
//! A line has the key, the time, the event, and the grants of the key after it. It is written while
//! the shard of the key is locked, so the lines of a key are in the order of their events. Without
//! the feature `lease-trace` nothing of this exists.

use fluxgate_core::algorithm::LeaseRequest;

use super::holder::{GrantReply, LeaseHolder};
use super::shard::LeaseOwner;

/// What happens to the units of a key: the actions of an instance in the specification.
#[derive(Clone, Copy, Debug)]
#[cfg_attr(
    not(feature = "lease-trace"),
    expect(dead_code, reason = "nothing is recorded")
)]
pub(super) enum Event<'e> {
    /// Units are spent.
    Spend(u64),
    /// Units are requested, and spent or returned ones are reported.
    Ask(&'e LeaseRequest),
    /// The server has answered.
    Receive(&'e GrantReply),
    /// The server has not answered.
    GiveUp,
}

#[cfg(feature = "lease-trace")]
pub(super) use enabled::Trace;

/// Records nothing.
#[cfg(not(feature = "lease-trace"))]
#[derive(Debug, Default)]
pub(super) struct Trace();

#[cfg(not(feature = "lease-trace"))]
impl Trace {
    #[inline(always)]
    pub(super) fn record(&self, _: &LeaseOwner, _: &LeaseHolder, _: u64, _: Event<'_>) {}
}

#[cfg(feature = "lease-trace")]
mod enabled {
    use std::fmt::Write as _;
    use std::fs::File;
    use std::io::{self, Write as _};
    use std::path::Path;
    use std::sync::atomic::{AtomicU32, Ordering};
    use std::sync::{Mutex, OnceLock};

    use super::{Event, GrantReply, LeaseHolder, LeaseOwner};
    use crate::lock::lock;

    /// The file to which a table writes, if it is traced.
    #[derive(Debug, Default)]
    pub(in crate::lease) struct Trace(OnceLock<Mutex<File>>);

    impl Trace {
        /// Begins to write to a new file of the directory.
        pub(in crate::lease) fn start(&self, directory: &Path) -> io::Result<()> {
            static NEXT: AtomicU32 = AtomicU32::new(0);
            let number = NEXT.fetch_add(1, Ordering::Relaxed);
            let name = format!("leases-{}-{number}", std::process::id());
            let file = File::create_new(directory.join(name))?;
            // A table is traced once.
            let _ = self.0.set(Mutex::new(file));
            Ok(())
        }

        pub(in crate::lease) fn record(
            &self,
            owner: &LeaseOwner,
            holder: &LeaseHolder,
            now: u64,
            event: Event<'_>,
        ) {
            if let Some(file) = self.0.get() {
                let line = line(owner, holder, now, event);
                // The test notices if a line is missing.
                let _ = lock(file).write_all(line.as_bytes());
            }
        }
    }

    fn line(owner: &LeaseOwner, holder: &LeaseHolder, now: u64, event: Event<'_>) -> String {
        let mut line = String::new();
        for byte in owner.subject().bytes {
            let _ = write!(line, "{byte:02x}");
        }
        let _ = write!(line, ".{:x} {now} ", owner.band().tag());
        let _ = match event {
            Event::Spend(units) => write!(line, "spend {units}"),
            Event::Ask(request) => {
                let _ = write!(line, "ask {}", request.want);
                request.reports().iter().try_for_each(|report| {
                    let (ends, spent, returned) = (report.ends, report.spent, report.returned);
                    write!(line, " {ends}:{spent}:{returned}")
                })
            }
            Event::Receive(GrantReply { grant, balance }) => write!(
                line,
                "receive {} {} {} {}",
                grant.units,
                grant.ends,
                grant.outstanding,
                balance.at.micros()
            ),
            Event::GiveUp => write!(line, "give-up"),
        };
        line.push_str(" |");
        for (ends, until, left, spent) in holder.grants() {
            let _ = write!(line, " {ends}:{until}:{left}:{spent}");
        }
        line.push('\n');
        line
    }
}
