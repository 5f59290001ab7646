//! `POST /v1/give_back`.

use std::borrow::Cow;
use std::fmt;
use std::sync::Arc;

use axum::extract::{Request, State};
use axum::response::Response;
use fluxgate_core::Outcome;
use fluxgate_core::json::{ContextFields, Text, read_once};
use serde::de::{self, Deserialize, Deserializer, MapAccess, Visitor};

use super::state::failure;
use super::{Api, body, json, to_its_end};
use crate::admin::{Change, Role, may_be_done};
use crate::api::check::NORMAL_PATH;
use crate::http::Problem;

/// The names of the fields.
const FIELDS: [&str; 12] = {
    let [a, b, c, d, e, f, g, h, i] = ContextFields::NAMES;
    [
        a,
        b,
        c,
        d,
        e,
        f,
        g,
        h,
        i,
        NORMAL_PATH,
        "outcome",
        "reservation",
    ]
};

/// Cancels what a check reserved for a request that then did not take place.
pub(super) async fn give_back(
    State(api): State<Arc<Api>>,
    request: Request,
) -> Result<Response, Problem> {
    let (head, body) = request.into_parts();
    let caller = api.admin.admit_change(&head, Role::Operator)?;
    let body = body::read(body).await?;
    let place = api.admin.audit_place().await?;
    to_its_end(async move {
        let mut asked: Asked<'_> = body::parse(&body)?;
        let rule_set = asked.context.rule_set.take();
        let rule_set = rule_set.ok_or_else(|| Problem::bad_request("`rule_set` is missing"))?;
        let outcome = asked.outcome()?;
        let mut context = asked.context.into_context().map_err(Problem::bad_request)?;
        if let Some(Text(normal)) = asked.normal_path {
            context = context.with_normal_path(normal);
        }
        let reservation = asked.reservation;
        let reservation =
            reservation.ok_or_else(|| Problem::bad_request("`reservation` is missing"))?;
        let engine = &api.engine;
        let given = engine
            .cancel(&rule_set, &context, outcome, &reservation)
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
            api.admin.note(place, &caller, &head.headers, &change);
        }
        Ok(json(format!("{{\"given_back\":{}}}", given?)))
    })
    .await
}

/// A check, and how it was answered.
#[derive(Default)]
struct Asked<'a> {
    context: ContextFields<'a>,
    normal_path: Option<Text<'a>>,
    outcome: Option<Cow<'a, str>>,
    reservation: Option<Cow<'a, str>>,
}

impl Asked<'_> {
    /// The outcome of the check; allowed, if nothing is said.
    fn outcome(&self) -> Result<Outcome, Problem> {
        let Some(name) = &self.outcome else {
            return Ok(Outcome::Allowed);
        };
        let known = Outcome::ALL.into_iter().find(|known| known.name() == name);
        known.ok_or_else(|| Problem::bad_request(format!("`outcome`: there is no {name:?}")))
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
                let (mut outcome, mut reservation, mut normal_path) = (None, None, None);
                while let Some(Text(name)) = map.next_key()? {
                    match &*name {
                        "outcome" => read_once("outcome", &mut outcome, &mut map)?,
                        "reservation" => read_once("reservation", &mut reservation, &mut map)?,
                        NORMAL_PATH => read_once(NORMAL_PATH, &mut normal_path, &mut map)?,
                        _ if context.read(&name, &mut map)? => {}
                        _ => return Err(de::Error::unknown_field(&name, &FIELDS)),
                    }
                }
                let outcome: Option<Text<'de>> = outcome.flatten();
                let reservation: Option<Text<'de>> = reservation.flatten();
                Ok(Asked {
                    context,
                    normal_path: normal_path.flatten(),
                    outcome: outcome.map(|text| text.0),
                    reservation: reservation.map(|text| text.0),
                })
            }
        }

        deserializer.deserialize_map(AskedVisitor)
    }
}
