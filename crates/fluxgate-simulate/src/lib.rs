//! Replays recorded requests through rules, on virtual time.
//!
//! A [`Simulation`] reads one recorded request a line, decides it at the time that
//! the line states, and writes one decision a line. The same input gives the same
//! output, byte for byte. Afterwards it can sum up what the rules did, as a
//! [`Summary`] and as an HTML page that also compares the five algorithms, and what
//! [changes](Simulation::against) for the requests when rules replace others.
//!
//! ```
//! use fluxgate_core::RuleSets;
//! use fluxgate_simulate::{Options, Simulation};
//!
//! # fn main() -> Result<(), Box<dyn std::error::Error>> {
//! let rules = "
//! rule_sets:
//!   api:
//!     rules:
//!       - { id: per-user, scope: per_user, bands: [ { capacity: 1, window: 1m } ] }
//! ";
//! let options = Options { summary: true, ..Options::default() };
//! let mut simulation = Simulation::new(RuleSets::from_yaml(rules)?, options);
//! let requests = r#"{"t":0,"user":"ann"}
//! {"t":1000,"user":"ann"}"#;
//! let mut decisions = Vec::new();
//! simulation.run(requests.as_bytes(), &mut decisions, |_| {})?;
//! assert!(decisions.starts_with(br#"{"t":0,"allowed":true,"#));
//! let total = simulation.summary().map(|summary| summary.total());
//! assert_eq!(total.map(|total| total.denied), Some(1));
//! # Ok(())
//! # }
//! ```
//!
//! There is no clock, no file and no runtime here. Large inputs are parsed on a
//! second thread.
#![deny(missing_docs)]

mod changes;
mod combined;
mod event;
#[cfg(any(test, feature = "fuzzing"))]
pub mod fuzzing;
mod input;
mod replay;
mod report;
mod simulation;
mod summary;
mod time;
mod warm_start;

pub use changes::{Change, ChangeCounts, ChangedIdentity, Changes, Presence, RuleChange};
pub use input::Format;
pub use report::ReportLabels;
pub use simulation::{Options, Progress, Simulation, SimulationError};
pub use summary::{Counts, DeniedIdentity, Summary};
pub use warm_start::{CounterTrace, RecordedDecision, StartCharge};
