//! Commands about what happened: `fluxgate history`, `denials`, `usage` and `events`.

mod denials;
mod events;
mod history;
mod span;
mod usage;

pub(crate) use denials::{DenialsArguments, denials};
pub(crate) use events::{EventsArguments, events};
pub(crate) use history::{HistoryArguments, history};
pub(crate) use usage::{UsageArguments, usage};

use url::form_urlencoded::Serializer;

use crate::cli::{Exit, Failure};

/// A rule, or all rules of a set, as `SET/RULE` or `SET`.
#[derive(Clone, Debug, Default, clap::Args)]
struct RuleFilter {
    /// Only this rule, as `SET/RULE`, or the rules of this rule set
    #[arg(value_name = "SET[/RULE]")]
    rule: Option<String>,
}

impl RuleFilter {
    /// Adds the fields that name it to a query.
    fn add_to(&self, query: &mut Serializer<'_, String>) {
        let Some(name) = &self.rule else { return };
        let (set, rule) = match name.rsplit_once('/') {
            Some((set, rule)) => (set, Some(rule)),
            None => (&**name, None),
        };
        query.append_pair("rule_set", set);
        if let Some(rule) = rule {
            query.append_pair("rule", rule);
        }
    }
}

/// Returns the path of a call with this query.
fn path_of(path: &str, mut query: Serializer<'_, String>) -> String {
    match query.finish() {
        query if query.is_empty() => path.to_owned(),
        query => format!("{path}?{query}"),
    }
}

fn invalid(option: &str, message: impl std::fmt::Display) -> Failure {
    Failure::new(Exit::Data, format!("{option}: {message}"))
}
