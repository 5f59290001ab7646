//! The parts of a configuration that no rule has, with one remark for many of them.

use crate::draft::Remark;
use crate::fields::Fields;

/// Names without repetition, and the first line of any.
#[derive(Debug, Default)]
pub(super) struct Names {
    line: Option<usize>,
    names: Vec<String>,
}

impl Names {
    pub(super) fn add(&mut self, name: String, line: usize) {
        let first = self.line.unwrap_or(line);
        self.line = Some(first.min(line));
        if !self.names.contains(&name) {
            self.names.push(name);
        }
    }

    /// Returns a remark on all names, unless there are none.
    pub(super) fn remark(&self, why: &str) -> Option<Remark> {
        let text = format!("{}: {why}", self.names.join(", "));
        self.line.map(|line| Remark::lost(line, text))
    }
}

/// What is not about limits.
#[derive(Debug, Default)]
pub(super) struct Others {
    fields: Names,
    plugins: Names,
}

impl Others {
    /// Adds the fields of an entity that are not among the known ones.
    pub(super) fn fields(&mut self, fields: &Fields<'_>, entities: &str, known: &[&str]) {
        for (name, line) in fields.unread_names(known) {
            self.fields.add(format!("`{name}` of {entities}"), line);
        }
    }

    /// Adds the sections of a configuration that are not among the known ones.
    pub(super) fn sections(&mut self, root: &Fields<'_>, known: &[&str]) {
        for (name, line) in root.unread_names(known) {
            self.fields.add(format!("`{name}`"), line);
        }
    }

    pub(super) fn plugin(&mut self, name: &str, line: usize) {
        self.plugins.add(format!("`{name}`"), line);
    }

    /// Returns a remark on all of them.
    pub(super) fn into_remark(self) -> Option<Remark> {
        let Self {
            mut fields,
            plugins,
        } = self;
        if let Some(line) = plugins.line {
            let names = plugins.names.join(", ");
            let noun = if plugins.names.len() == 1 {
                "plugin"
            } else {
                "plugins"
            };
            fields.add(format!("the {noun} {names}"), line);
        }
        fields.remark("rules only limit")
    }
}
