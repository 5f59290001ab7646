//! What a rule file would change, and `fluxgate rules diff`.

use std::path::PathBuf;

use fluxgate_core::yaml::Value;
use serde_json::json;

use super::change::{Change, changes_of, text_of};
use super::content::SetContent;
use super::rule_file::RuleFile;
use super::stored::{Lookup, StoredSet, active_names, active_rules, look_up};
use crate::cli::client::server::{Answer, Server};
use crate::cli::{Exit, Failure, print, print_message};
use crate::config::child;
use crate::reload::to_json;

/// The arguments of `fluxgate rules diff`.
#[derive(Debug, clap::Args)]
pub(super) struct DiffArguments {
    #[command(flatten)]
    target: PlanArguments,
}

/// A rule file, and what to do with it.
#[derive(Debug, clap::Args)]
pub(super) struct PlanArguments {
    /// The rule file, or `-` for standard input
    pub(super) file: PathBuf,
    /// Only this rule set (repeatable)
    #[arg(long, value_name = "SET")]
    set: Vec<String>,
    /// Delete rule sets that are not in the file
    #[arg(long)]
    prune: bool,
}

/// Prints what a file would change.
pub(super) async fn diff(
    server: &Server,
    arguments: &DiffArguments,
    json: bool,
) -> Result<(), Failure> {
    let target = &arguments.target;
    let file = RuleFile::read(&target.file)?;
    file.validate_for(server).await?;
    let plan = match Plan::compare(server, &file, target).await? {
        Planned::Writable(plan) => plan,
        Planned::ReadOnly(answer) => {
            print_message(&format!("{}: note: {}", server.name(), answer.detail()));
            Plan::against_active(server, &file, target).await?
        }
    };
    if json {
        let report = json!({
            "changed": plan.is_change(),
            "changes": plan.changes().collect::<Vec<_>>(),
            "not_in_file": plan.kept,
        });
        print(&format!("{report}\n"))?;
    } else {
        plan.note_kept(file.name());
        print(&text_of(plan.changes()))?;
    }
    plan.exit()
}

/// What to write to a service, in order.
#[derive(Debug, Default)]
pub(super) struct Plan {
    pub(super) steps: Vec<Step>,
    /// The rule sets that are not in the file and stay.
    pub(super) kept: Vec<String>,
}

/// One rule set to write.
#[derive(Debug)]
pub(super) struct Step {
    pub(super) set: String,
    /// The ETag of the stored set, if there is one.
    pub(super) etag: Option<String>,
    /// The new content, as JSON; `None` deletes the set.
    pub(super) body: Option<String>,
    pub(super) changes: Vec<Change>,
}

/// A plan, if the service can change its rules.
pub(super) enum Planned {
    Writable(Plan),
    /// The rules come from elsewhere; the response says from where.
    ReadOnly(Answer),
}

impl Plan {
    /// Compares a file with the stored rule sets.
    pub(super) async fn compare(
        server: &Server,
        file: &RuleFile,
        target: &PlanArguments,
    ) -> Result<Planned, Failure> {
        target.check_names(file)?;
        let mut plan = Self::default();
        for (name, content) in file.sets().filter(|(name, _)| target.includes(name)) {
            match look_up(server, name).await? {
                Lookup::Found(stored) => plan.replace(name, Some(stored), content),
                Lookup::Absent => plan.replace(name, None, content),
                Lookup::ReadOnly(answer) => return Ok(Planned::ReadOnly(answer)),
            }
        }
        let names = match active_names(server).await {
            Ok(names) => names,
            // Without rules the service does not list any.
            Err(failure) if !target.prune && failure.exit == Exit::Unavailable => Vec::new(),
            Err(failure) => return Err(failure),
        };
        for name in plan.others(names, file, target) {
            match look_up(server, &name).await? {
                Lookup::Found(stored) => plan.delete(name, stored),
                Lookup::Absent => {}
                Lookup::ReadOnly(answer) => return Ok(Planned::ReadOnly(answer)),
            }
        }
        Ok(Planned::Writable(plan))
    }

    /// Compares a file with the active rules, which do not come from Redis.
    async fn against_active(
        server: &Server,
        file: &RuleFile,
        target: &PlanArguments,
    ) -> Result<Self, Failure> {
        let rules = active_rules(server).await?;
        let sets = match child(&rules, "rule_sets").map(|sets| &sets.value) {
            Some(Value::Map(sets)) => &sets[..],
            _ => &[],
        };
        let mut active = Vec::new();
        for (name, node) in sets {
            let name = name.as_text().unwrap_or_default();
            // Active rules are valid.
            active.push((name.to_owned(), SetContent::read(name, to_json(node)).ok()));
        }
        let unstored = |content| StoredSet {
            etag: String::new(),
            content,
        };
        let mut plan = Self::default();
        let names = active.iter().map(|(name, _)| name.clone()).collect();
        let others = plan.others(names, file, target);
        for (name, content) in file.sets().filter(|(name, _)| target.includes(name)) {
            let found = active.iter().position(|(active, _)| active == name);
            let stored = found.map(|index| unstored(active.remove(index).1));
            plan.replace(name, stored, content);
        }
        for (name, content) in active {
            if others.contains(&name) {
                plan.delete(name, unstored(content));
            }
        }
        Ok(plan)
    }

    /// Adds a step that stores a set, unless that changes nothing.
    fn replace(&mut self, name: &str, stored: Option<StoredSet>, content: &SetContent) {
        let before = stored.as_ref().and_then(|stored| stored.content.as_ref());
        let changes = changes_of(name, before, Some(content));
        if !changes.is_empty() {
            self.steps.push(Step {
                set: name.to_owned(),
                etag: stored.map(|stored| stored.etag),
                body: Some(content.json.clone()),
                changes,
            });
        }
    }

    /// Adds a step that deletes a set.
    fn delete(&mut self, name: String, stored: StoredSet) {
        let changes = match &stored.content {
            Some(content) => changes_of(&name, Some(content), None),
            None => vec![Change::removed_set(&name)],
        };
        self.steps.push(Step {
            changes,
            set: name,
            etag: Some(stored.etag),
            body: None,
        });
    }

    /// Returns the sets to delete, and remembers those that stay.
    fn others(
        &mut self,
        mut names: Vec<String>,
        file: &RuleFile,
        target: &PlanArguments,
    ) -> Vec<String> {
        names.retain(|name| !file.has(name) && target.includes(name));
        if target.prune {
            names
        } else {
            self.kept = names;
            Vec::new()
        }
    }

    pub(super) fn changes(&self) -> impl Iterator<Item = &Change> {
        self.steps.iter().flat_map(|step| &step.changes)
    }

    pub(super) fn is_change(&self) -> bool {
        !self.steps.is_empty()
    }

    /// Says which rule sets of the service are not in the file, and stay.
    pub(super) fn note_kept(&self, file: &str) {
        for set in &self.kept {
            print_message(&format!(
                "note: rule set `{set}` is not in {file} and stays; --prune deletes it"
            ));
        }
    }

    /// Returns the result of a command that only compares.
    pub(super) fn exit(&self) -> Result<(), Failure> {
        let message = match self.steps.len() {
            0 => return Ok(()),
            1 => "1 rule set differs".to_owned(),
            more => format!("{more} rule sets differ"),
        };
        Err(Failure::new(Exit::Different, message))
    }
}

impl PlanArguments {
    fn includes(&self, set: &str) -> bool {
        self.set.is_empty() || self.set.iter().any(|name| name == set)
    }

    /// Refuses names of rule sets that the file does not have, unless they are to be deleted.
    fn check_names(&self, file: &RuleFile) -> Result<(), Failure> {
        let mut names = self.set.iter();
        match names.find(|name| !self.prune && !file.has(name)) {
            Some(name) => {
                let message = format!("--set: {} has no rule set `{name}`", file.name());
                Err(Failure::new(Exit::Data, message))
            }
            None => Ok(()),
        }
    }
}
