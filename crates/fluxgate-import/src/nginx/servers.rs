//! Servers and their rule sets.

use std::collections::HashMap;

use super::areas::Area;
use crate::draft::{Remark, RuleSetDraft};
use crate::names::UniqueNames;

/// A server.
#[derive(Debug)]
pub(super) struct Server {
    pub(super) name: String,
    /// Its other names.
    pub(super) aliases: Vec<String>,
    /// The server outside of its locations, then its locations.
    pub(super) areas: Vec<Area>,
}

impl Server {
    fn line(&self) -> usize {
        self.areas[0].line
    }
}

/// The rule sets of all servers. Servers may have the same name.
#[derive(Debug, Default)]
pub(super) struct ServerSets {
    pub(super) all: Vec<RuleSetDraft>,
    names: UniqueNames,
    /// The sets of each server name.
    by_server: HashMap<String, Vec<usize>>,
}

impl ServerSets {
    /// Adds the set of a server, unless it has no rules. Servers with the same name and limits,
    /// such as those for HTTP and HTTPS, share one set, because nginx counts their requests
    /// together.
    pub(super) fn add(&mut self, server: &Server, mut set: RuleSetDraft) {
        if set.rules.is_empty() {
            return;
        }
        let remark = (!server.aliases.is_empty()).then(|| {
            let names = server.aliases.join(", ");
            let text = format!("the server is also named {names}: use this set for all its names");
            Remark::changed(server.line(), text)
        });
        let same_name = self.by_server.entry(server.name.clone()).or_default();
        let same = same_name
            .iter()
            .find(|&&index| self.all[index].decides_like(&set));
        if let Some(&index) = same {
            let remarks = &mut self.all[index].remarks;
            let is_known = |new: &Remark| remarks.iter().any(|known| known.text == new.text);
            let new = remark.filter(|remark| !is_known(remark));
            remarks.extend(new);
            return;
        }
        set.remarks.extend(remark);
        if let Some(&first) = same_name.first() {
            let text = format!(
                "another server has the same name and other limits, see `{}`",
                self.all[first].name
            );
            set.remarks.push(Remark::changed(server.line(), text));
        }
        set.name = self.names.unique(&server.name);
        same_name.push(self.all.len());
        self.all.push(set);
    }
}
