//! `POST /v1/give_back`.

use std::borrow::Cow;
use std::fmt;
use std::sync::Arc;

use axum::extract::{Request, State};
use axum::response::Response;
use fluxgate_core::Outcome;
use serde::de::{self, Deserialize, Deserializer, MapAccess, Visitor};

use super::state::failure;
use super::{Api, Problem, body, json, to_its_end};
use crate::admin::{Change, Role, may_be_done};
use crate::request_json::{ContextFields, Text, once};

/// The names of the fields.
const FIELDS: [&str; 11] = {
    let [a, b, c, d, e, f, g, h, i] = ContextFields::NAMES;
    [a, b, c, d, e, f, g, h, i, "outcome", "violated"]
};

/// Gives back what a check took of a request that then did not take place.
pub(super) async fn give_back(
    State(api): State<Arc<Api>>,
    request: Request,
) -> Result<Response, Problem> {
    let (head, body) = request.into_parts();
    let caller = api.admin.admit_change(&head, Role::Operator)?;
    let body = body::read(body).await?;
    to_its_end(async move {
        let mut asked: Asked<'_> = body::parse(&body)?;
        let rule_set = asked.context.rule_set.take();
        let rule_set = rule_set.ok_or_else(|| Problem::bad("`rule_set` is missing"))?;
        let outcome = asked.outcome()?;
        let context = asked.context.into_context().map_err(Problem::bad)?;
        // As `RULE/BAND`: a rule that refused took nothing.
        let refused = |rule: &str| {
            let mut violated = asked.violated.iter();
            violated.any(|it| it.0.split_once('/').is_some_and(|(id, _)| id == rule))
        };
        let engine = &api.engine;
        let given = engine
            .give_back(&rule_set, &context, outcome, refused)
            .await;
        let is_unknown = given
            .as_ref()
            .is_err_and(|it| failure(it).is_some_and(may_be_done));
        if given.is_ok() || is_unknown {
            let change = Change {
                what: "give_back",
                rule_set: &rule_set,
                is_unknown,
                ..Change::default()
            };
            api.admin.note(&caller, &head.headers, &change);
        }
        Ok(json(format!("{{\"given_back\":{}}}", given?)))
    })
    .await
}

/// A check, and how it was answered.
#[derive(Default)]
struct Asked<'a> {
    context: ContextFields<'a>,
    outcome: Option<Cow<'a, str>>,
    violated: Vec<Text<'a>>,
}

impl Asked<'_> {
    /// The outcome of the check; allowed, if nothing is said.
    fn outcome(&self) -> Result<Outcome, Problem> {
        let Some(name) = &self.outcome else {
            return Ok(Outcome::Allowed);
        };
        let known = Outcome::ALL.into_iter().find(|known| known.name() == name);
        known.ok_or_else(|| Problem::bad(format!("`outcome`: there is no {name:?}")))
    }
}

impl<'de: 'a, 'a> Deserialize<'de> for Asked<'a> {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        struct AskedVisitor;

        impl<'de> Visitor<'de> for AskedVisitor {
            type Value = Asked<'de>;

            fn expecting(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
                f.write_str("an object")
            }

            fn visit_map<M: MapAccess<'de>>(self, mut map: M) -> Result<Asked<'de>, M::Error> {
                let mut context = ContextFields::default();
                let (mut outcome, mut violated) = (None, None);
                while let Some(Text(name)) = map.next_key()? {
                    match &*name {
                        "outcome" => once("outcome", &mut outcome, &mut map)?,
                        "violated" => once("violated", &mut violated, &mut map)?,
                        _ if context.read(&name, &mut map)? => {}
                        _ => return Err(de::Error::unknown_field(&name, &FIELDS)),
                    }
                }
                let outcome: Option<Text<'de>> = outcome.flatten();
                Ok(Asked {
                    context,
                    outcome: outcome.map(|text| text.0),
                    violated: violated.flatten().unwrap_or_default(),
                })
            }
        }

        deserializer.deserialize_map(AskedVisitor)
    }
}
