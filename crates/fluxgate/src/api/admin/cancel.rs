//! `POST /v1/give_back`: cancels a reservation.

use std::borrow::Cow;
use std::fmt;
use std::sync::Arc;

use axum::extract::{Request, State};
use axum::response::Response;
use fluxgate_core::Outcome;
use fluxgate_core::internals::json::{ContextFields, Text, read_once};
use fluxgate_http::Problem;
use serde::de::{self, Deserialize, Deserializer, MapAccess, Visitor};

use super::body::missing;
use super::state::is_uncertain;
use super::{Api, body, json_response, run_to_completion};
use crate::admin::{Change, Role};
use crate::api::check::NORMAL_PATH;

/// The names of the fields.
const FIELDS: [&str; 12] = {
    let [a, b, c, d, e, f, g, h, i] = ContextFields::NAMES;
    let (j, k) = ("outcome", "reservation");
    [a, b, c, d, e, f, g, h, i, NORMAL_PATH, j, k]
};

/// Cancels the reservation of a check whose request was not made.
pub(super) async fn cancel(
    State(api): State<Arc<Api>>,
    request: Request,
) -> Result<Response, Problem> {
    let (head, body) = request.into_parts();
    let caller = api.admin.authorize(&head, Role::Operator)?;
    let body = body::read(&head.headers, body).await?;
    let place = api.admin.reserve_audit_line().await?;
    run_to_completion(async move {
        let mut call: CancelRequest<'_> = body::parse(&body)?;
        let rule_set = call.context.rule_set.take();
        let rule_set = rule_set.ok_or_else(|| missing("rule_set"))?;
        let outcome = call.outcome()?;
        let mut context = call.context.into_context().map_err(Problem::bad_request)?;
        if let Some(Text(normal)) = call.normal_path {
            context = context.with_normal_path(normal);
        }
        let reservation = call.reservation.ok_or_else(|| missing("reservation"))?;
        let engine = &api.engine;
        let cancelled = engine
            .cancel(&rule_set, &context, outcome, &reservation)
            .await;
        let is_uncertain = is_uncertain(&cancelled);
        if cancelled.is_ok() || is_uncertain {
            let change = Change {
                action: "give_back",
                rule_set: &rule_set,
                is_uncertain,
                ..Change::default()
            };
            api.admin.audit(place, &caller, &head.headers, &change);
        }
        Ok(json_response(format!("{{\"given_back\":{}}}", cancelled?)))
    })
    .await
}

/// A check, its outcome and its reservation.
#[derive(Default)]
struct CancelRequest<'a> {
    context: ContextFields<'a>,
    normal_path: Option<Text<'a>>,
    outcome: Option<Cow<'a, str>>,
    reservation: Option<Cow<'a, str>>,
}

impl CancelRequest<'_> {
    /// Returns the outcome of the check, by default `allowed`.
    fn outcome(&self) -> Result<Outcome, Problem> {
        let Some(name) = &self.outcome else {
            return Ok(Outcome::Allowed);
        };
        let known = Outcome::ALL.into_iter().find(|known| known.name() == name);
        known.ok_or_else(|| Problem::bad_request(format!("`outcome`: unknown outcome {name:?}")))
    }
}

impl<'de: 'a, 'a> Deserialize<'de> for CancelRequest<'a> {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        struct CancelVisitor;

        impl<'de> Visitor<'de> for CancelVisitor {
            type Value = CancelRequest<'de>;

            fn expecting(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
                f.write_str("an object")
            }

            fn visit_map<M: MapAccess<'de>>(self, mut map: M) -> Result<Self::Value, M::Error> {
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
                Ok(CancelRequest {
                    context,
                    normal_path: normal_path.flatten(),
                    outcome: outcome.map(|text| text.0),
                    reservation: reservation.map(|text| text.0),
                })
            }
        }

        deserializer.deserialize_map(CancelVisitor)
    }
}
