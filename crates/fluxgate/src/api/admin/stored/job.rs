//! A change of what is stored, from the first look until it is in force.

use std::sync::Arc;
use std::time::Duration;

use axum::response::Response;
use fluxgate_core::{RuleOptions, StoreError};
use fluxgate_redis::{BackOff, Precondition, RuleStore, StoredSet, WriteOutcome, etag_of};
use http::request::Parts;
use http::{HeaderMap, StatusCode};

use super::super::conditions::Condition;
use super::edit::{Edit, Edited};
use super::{Api, answer, done, failed, no_such_set, not_in_force, read, store_of};
use crate::admin::{Caller, Change, may_be_done};
use crate::http::Problem;
use crate::telemetry::log::AuditPlace;

/// How often a change is tried because another instance changed the same set.
const MOST_TRIES: usize = 5;
/// How long to wait at most before the next try.
const LONGEST_WAIT: Duration = Duration::from_millis(200);

/// What somebody wants to be changed.
#[derive(Debug)]
pub(super) struct Job {
    headers: HeaderMap,
    caller: Caller,
    what: &'static str,
    set: String,
    /// Nothing where it is about the whole set.
    rule: Option<String>,
    edit: Edit,
    condition: Condition,
}

/// What was written.
#[derive(Debug)]
struct Outcome {
    edited: Edited,
    /// The ETag of the set before.
    before: Option<String>,
    /// Where it is to be noted.
    place: AuditPlace,
}

impl Job {
    pub(super) fn new(
        head: &Parts,
        caller: Caller,
        what: &'static str,
        (set, rule): (String, Option<String>),
        edit: Edit,
    ) -> Result<Arc<Self>, Problem> {
        Ok(Arc::new(Self {
            headers: head.headers.clone(),
            caller,
            what,
            set,
            rule,
            edit,
            condition: Condition::of(&head.headers)?,
        }))
    }

    /// Changes what is stored, if the conditions hold, notes it, and has it in
    /// force before it answers.
    pub(super) async fn run(self: Arc<Self>, api: Arc<Api>) -> Result<Response, Problem> {
        let place = api.admin.audit_place().await?;
        super::to_its_end(async move {
            let outcome = self.write(&api, place).await?;
            let Outcome {
                mut edited,
                before,
                place,
            } = outcome;
            if matches!(self.edit, Edit::Replace(_)) {
                edited.created = before.is_none();
            }
            self.note(&api, place, before.as_deref(), &edited, false);
            Ok(match api.admin.reloader.now().await {
                Ok(()) => answer(&edited),
                Err(why) => not_in_force(&why),
            })
        })
        .await
    }

    /// Whether it is the same to it what is there.
    fn needs_nothing(&self) -> bool {
        let is_whole = matches!(self.edit, Edit::Replace(_) | Edit::Delete);
        is_whole && self.condition == Condition::Any
    }

    async fn write(self: &Arc<Self>, api: &Api, place: AuditPlace) -> Result<Outcome, Problem> {
        let store = store_of(api)?;
        let _alone = api.admin.writing.lock().await;
        let mut back_off = BackOff::up_to(LONGEST_WAIT);
        let mut last = None;
        for _ in 0..MOST_TRIES {
            let stored = read(store, &self.set).await?;
            if stored.is_none() && !self.needs_nothing() {
                let lost = store.is_lost(&self.set).await.map_err(failed)?;
                if lost {
                    return Err(self.disagreement());
                }
            }
            let seen = stored.as_ref().map(|stored| stored.etag.clone());
            let edited = self.edited(stored, api.admin.options).await?;
            let written = match self.try_write(store, &edited, seen.as_deref()).await {
                Ok(written) => written,
                Err(error) => {
                    if may_be_done(&error) {
                        self.note(api, place, seen.as_deref(), &edited, true);
                    }
                    return Err(failed(error));
                }
            };
            let now = match written {
                WriteOutcome::Done { before: None } if edited.set.is_none() => {
                    return Err(no_such_set(&self.set));
                }
                WriteOutcome::Done { before } => {
                    return Ok(Outcome {
                        edited,
                        before,
                        place,
                    });
                }
                WriteOutcome::Conflict { now } => now,
            };
            // Who is only too slow does not see the same twice.
            let conflict = Some((seen, now));
            if last == conflict {
                return Err(self.disagreement());
            }
            last = conflict;
            tokio::time::sleep(back_off.next_wait()).await;
        }
        Err(Problem::new(
            StatusCode::SERVICE_UNAVAILABLE,
            format!(
                "rule set `{}` is being changed by too many at once",
                self.set
            ),
        ))
    }

    /// What is to be stored. A large set takes its time, and requests must not
    /// wait for it.
    async fn edited(
        self: &Arc<Self>,
        stored: Option<StoredSet>,
        options: RuleOptions,
    ) -> Result<Edited, Problem> {
        let job = Arc::clone(self);
        let work = move || {
            let (set, rule) = (&job.set, job.rule.as_deref());
            let stored = stored.as_ref();
            job.edit.apply(set, rule, stored, &job.condition, options)
        };
        done(tokio::task::spawn_blocking(work)).await
    }

    async fn try_write(
        &self,
        store: &RuleStore,
        edited: &Edited,
        seen: Option<&str>,
    ) -> Result<WriteOutcome, StoreError> {
        // Between the look and the blow somebody else may have written.
        let expected = match self.needs_nothing() {
            true => Precondition::Any,
            false => seen.map_or(Precondition::Absent, Precondition::Etag),
        };
        match &edited.set {
            Some(text) if self.edit.is_done(text, seen) => Ok(WriteOutcome::Done {
                before: seen.map(str::to_owned),
            }),
            Some(text) => store.put(&self.set, text, expected).await,
            None => store.delete(&self.set, expected).await,
        }
    }

    fn note(
        &self,
        api: &Api,
        place: AuditPlace,
        before: Option<&str>,
        edited: &Edited,
        is_unknown: bool,
    ) {
        let after = edited.set.as_deref().map(etag_of);
        let change = Change {
            what: self.what,
            rule_set: &self.set,
            rule: self.rule.as_deref(),
            etag_before: before,
            etag_after: after.as_deref(),
            is_unknown,
            ..Change::default()
        };
        api.admin.note(place, &self.caller, &self.headers, &change);
    }

    /// Somebody wrote a key by hand, or lost one.
    fn disagreement(&self) -> Problem {
        let detail = format!(
            "what is stored of rule set `{}` is not what the index says; put or delete the \
             whole set without a condition",
            self.set
        );
        Problem::new(StatusCode::CONFLICT, detail)
    }
}
