//! `fluxgate rules apply`: stores the rule sets of a file.

use http::header::{IF_MATCH, IF_NONE_MATCH};
use http::{Method, StatusCode};
use serde::Serialize;
use serde_json::json;

use super::change::{Change, text_of};
use super::plan::{Plan, PlanArguments, Planned, Step};
use super::rule_file::RuleFile;
use super::stored::path_of;
use super::trial::Trial;
use crate::api::body;
use crate::cli::client::server::Server;
use crate::cli::{Exit, Failure, print};

/// The arguments of `fluxgate rules apply`.
#[derive(Debug, clap::Args)]
pub(super) struct ApplyArguments {
    #[command(flatten)]
    target: PlanArguments,
    /// Write nothing: show what would change, and try it on recent requests; exits as `diff` does
    #[arg(long)]
    dry_run: bool,
}

/// Stores the rule sets of a file, or shows what that would change.
pub(super) async fn apply(
    server: &Server,
    arguments: &ApplyArguments,
    json: bool,
) -> Result<(), Failure> {
    let file = RuleFile::read(&arguments.target.file)?;
    file.validate_for(server).await?;
    let plan = match Plan::compare(server, &file, &arguments.target).await? {
        Planned::Writable(plan) => plan,
        Planned::ReadOnly(answer) => return Err(server.refused(&answer)),
    };
    check_sizes(&plan, file.name())?;
    if !json {
        plan.note_kept(file.name());
    }
    if arguments.dry_run {
        show(server, &plan, json).await
    } else {
        write_all(server, &plan, json).await
    }
}

/// Shows what a plan would change, and what its rules would decide.
async fn show(server: &Server, plan: &Plan, json: bool) -> Result<(), Failure> {
    let trial = if plan.is_change() {
        Some(Trial::run(server, &plan.steps).await?)
    } else {
        None
    };
    if json {
        let report = json!({
            "dry_run": true,
            "changed": plan.is_change(),
            "changes": plan.changes().collect::<Vec<_>>(),
            "not_in_file": plan.kept,
            "trial": trial,
        });
        print(&format!("{report}\n"))?;
    } else {
        let trial = trial.map(|trial| format!("\n{trial}"));
        print(&(text_of(plan.changes()) + &trial.unwrap_or_default()))?;
    }
    plan.exit()
}

/// Refuses sets that the service would not accept, before anything is written.
fn check_sizes(plan: &Plan, file: &str) -> Result<(), Failure> {
    let bytes = |step: &Step| step.body.as_ref().map_or(0, String::len);
    match plan.steps.iter().find(|step| bytes(step) > body::MAX_BYTES) {
        None => Ok(()),
        Some(step) => {
            let message = format!(
                "{file}: rule set `{}` has {} bytes as JSON; a service accepts at most {}; nothing \
                 was written",
                step.set,
                bytes(step),
                body::MAX_BYTES
            );
            Err(Failure::new(Exit::Data, message))
        }
    }
}

/// A rule set that was written.
#[derive(Debug, Serialize)]
struct WrittenSet<'p> {
    rule_set: &'p str,
    /// `None` if it was deleted.
    etag: Option<String>,
    /// Why it is not active yet, if it is not.
    #[serde(skip)]
    inactive: Option<String>,
}

/// Writes each set in turn, until one fails.
async fn write_all(server: &Server, plan: &Plan, json: bool) -> Result<(), Failure> {
    let mut written = Vec::new();
    let mut failed = None;
    for step in &plan.steps {
        match write(server, step).await {
            Ok(set) => {
                if !json {
                    print(&text_of(&step.changes))?;
                }
                written.push(set);
            }
            Err(failure) => {
                let rest = &plan.steps[written.len()..];
                failed = Some(stopped(failure, &written, rest));
                break;
            }
        }
    }
    // Another set may have prevented it, and may be valid by now.
    let inactive = written.last().and_then(|set| set.inactive.as_ref());
    let failed = failed.or_else(|| {
        let message = format!("{}: {}", server.name(), inactive?);
        Some(Failure::new(Exit::Unavailable, message))
    });
    if json {
        let done = plan.steps.iter().take(written.len());
        let changes: Vec<&Change> = done.flat_map(|step| &step.changes).collect();
        let left = plan.steps.iter().skip(written.len());
        let report = json!({
            "dry_run": false,
            "changed": !written.is_empty(),
            "changes": changes,
            "not_in_file": plan.kept,
            "written": written,
            "not_written": left.map(|step| &step.set).collect::<Vec<_>>(),
            "error": failed.as_ref().map(|failure| &failure.message),
        });
        print(&format!("{report}\n"))?;
    } else if !plan.is_change() {
        print("no changes\n")?;
    }
    failed.map_or(Ok(()), Err)
}

/// Writes a set, if it is still as it was read.
async fn write<'p>(server: &Server, step: &'p Step) -> Result<WrittenSet<'p>, Failure> {
    let method = if step.body.is_some() {
        Method::PUT
    } else {
        Method::DELETE
    };
    let condition = match &step.etag {
        Some(etag) => (IF_MATCH, &**etag),
        None => (IF_NONE_MATCH, "*"),
    };
    let body = step.body.clone().map(String::into_bytes);
    let answer = server
        .exchange(method, &path_of(&step.set), &[condition], body)
        .await
        .map_err(|failure| {
            let message = format!(
                "{}\nit is not known whether rule set `{}` was written",
                failure.message, step.set
            );
            Failure::new(failure.exit, message)
        })?;
    let inactive = match answer.status {
        StatusCode::ACCEPTED => Some(answer.detail()),
        status if status.is_success() => None,
        StatusCode::PRECONDITION_FAILED => {
            let message = format!(
                "{}\nrule set `{}` was changed by another writer after it was read; compare it and \
                 apply again",
                server.refused(&answer).message,
                step.set
            );
            return Err(Failure::new(Exit::TryAgain, message));
        }
        _ => return Err(server.refused(&answer)),
    };
    Ok(WrittenSet {
        rule_set: &step.set,
        etag: answer.etag,
        inactive,
    })
}

/// Adds to a failure what is written and what is not.
fn stopped(failure: Failure, written: &[WrittenSet<'_>], rest: &[Step]) -> Failure {
    let names = |names: Vec<&str>| {
        let names = names.iter().map(|name| format!("`{name}`"));
        names.collect::<Vec<_>>().join(", ")
    };
    let mut message = failure.message;
    if written.is_empty() {
        message += "\nnothing was written";
    } else {
        let written = written.iter().map(|set| set.rule_set).collect();
        message += &format!("\nwritten: {}", names(written));
    }
    let rest = rest.iter().map(|step| &*step.set).collect();
    message += &format!("\nnot written: {}", names(rest));
    Failure::new(failure.exit, message)
}
