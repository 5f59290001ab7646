//! Servers and their rule sets.

use std::collections::{HashMap, HashSet};

use super::areas::Area;
use crate::draft::{Remark, Set};

/// A server.
#[derive(Debug)]
pub(super) struct Server {
    pub(super) name: String,
    /// Its other names.
    pub(super) aliases: Vec<String>,
    /// What remains of the server, then its locations.
    pub(super) areas: Vec<Area>,
}

impl Server {
    fn line(&self) -> usize {
        self.areas[0].line
    }
}

/// The sets of servers, which may have the same name.
#[derive(Debug, Default)]
pub(super) struct ServerSets {
    pub(super) all: Vec<Set>,
    names: HashSet<String>,
    /// The sets of each server name.
    by_server: HashMap<String, Vec<usize>>,
}

impl ServerSets {
    /// Adds the set of a server. Servers with the same name and limits, such as those for HTTP
    /// and HTTPS, share one set, because nginx counts their requests together.
    pub(super) fn add(&mut self, server: &Server, mut set: Set) -> Option<&Set> {
        if set.rules.is_empty() {
            return None;
        }
        let aliases = server.aliases.join(", ");
        let text = format!("the server is also named {aliases}: use this set for all its names");
        let remark = (!aliases.is_empty()).then(|| Remark::changed(server.line(), text));
        let same_name = self.by_server.entry(server.name.clone()).or_default();
        let same = same_name
            .iter()
            .find(|&&index| self.all[index].decides_like(&set));
        if let Some(&index) = same {
            let remarks = &mut self.all[index].remarks;
            let is_new = |it: &Remark| remarks.iter().all(|known| known.text != it.text);
            let remark = remark.filter(is_new);
            remarks.extend(remark);
            return None;
        }
        set.remarks.extend(remark);
        if let Some(&first) = same_name.first() {
            let text = format!(
                "another server has the same name and other limits, see `{}`",
                self.all[first].name
            );
            set.remarks.push(Remark::changed(server.line(), text));
        }
        let mut number = 2;
        while !self.names.insert(set.name.clone()) {
            set.name = format!("{}-{number}", server.name);
            number += 1;
        }
        same_name.push(self.all.len());
        self.all.push(set);
        self.all.last()
    }
}
