//! Checks by the slots of a cluster that they are in.

use fluxgate_core::{Checks, Group, Mode, Verdict};

use crate::cluster::slot_of;
use crate::key_name::Naming;

/// Checks that one call can decide.
#[derive(Debug)]
pub(crate) struct Part {
    pub(crate) slot: u16,
    pub(crate) group: Group,
    /// Which of the request's checks.
    indices: Vec<usize>,
}

/// The parts of a request, in the order of their first checks.
pub(crate) fn parts_by_slot(checks: &Checks<'_>, naming: &Naming) -> Vec<Part> {
    let mut parts: Vec<Part> = Vec::new();
    let mut name = Vec::new();
    for (index, check) in checks.list().iter().enumerate() {
        name.clear();
        naming.write_subject(check.subject, &mut name);
        Naming::write_band(check.band, &mut name);
        let slot = slot_of(&name);
        let group = check.group;
        let same = |part: &&mut Part| part.slot == slot && part.group == group;
        match parts.iter_mut().find(same) {
            Some(part) => part.indices.push(index),
            None => parts.push(Part {
                slot,
                group,
                indices: vec![index],
            }),
        }
    }
    parts
}

impl Part {
    /// Its checks, to be charged or not.
    pub(crate) fn checks<'r>(&self, all: &Checks<'r>, mode: Mode) -> Checks<'r> {
        let mut checks = Checks::new(mode);
        for check in self.indices.iter().map(|index| &all.list()[*index]) {
            let band = std::slice::from_ref(check.band);
            checks.push(check.subject, band, check.cost, check.group);
        }
        checks
    }

    /// Puts its verdicts where the whole request has them.
    pub(crate) fn place(&self, verdicts: &[Verdict], all: &mut [Option<Verdict>]) {
        for (index, verdict) in self.indices.iter().zip(verdicts) {
            all[*index] = Some(*verdict);
        }
    }
}
