//! A trial: what changed rules would have decided about recent requests.

use std::fmt;

use fluxgate_core::yaml::{Node, Value};
use http::{Method, StatusCode};
use serde::Serialize;
use serde_json::{Value as Json, json};

use super::plan::Step;
use super::stored::active_rules;
use crate::cli::Failure;
use crate::cli::client::server::Server;
use crate::cli::client::text::count;
use crate::config::child_mut;
use crate::reload::{parse_json, to_json, unplaced};

/// How many bytes of rules and events a service accepts, with room for the other fields.
const MAX_BYTES: usize = (8 << 20) - 4096;
/// How many identities are listed.
const IDENTITIES: usize = 10;

/// The result of a trial.
#[derive(Debug, Default, Serialize)]
pub(super) struct Trial {
    /// Why there was none, if so.
    reason: Option<String>,
    requests: u64,
    newly_denied: u64,
    newly_allowed: u64,
    /// The identities with the most changes, as the service describes them.
    identities: Vec<Json>,
    warnings: Vec<Json>,
}

impl Trial {
    /// Tries the rules that the steps would make on the recent requests of their sets.
    pub(super) async fn run(server: &Server, steps: &[Step]) -> Result<Self, Failure> {
        let recent = server.call(Method::GET, "/v1/recent", None).await?;
        if recent["records"] != true {
            return Ok(Self::none(
                "the service does not record requests (`admin: { record: true }` in its config)",
            ));
        }
        let rules = to_json(&changed(active_rules(server).await?, steps));
        let is_affected = |event: &&Json| match event["rule_set"].as_str() {
            Some(set) => steps.iter().any(|step| step.set == set),
            None => true,
        };
        let events = recent["events"].as_array().into_iter().flatten();
        let events: Vec<_> = events.filter(is_affected).map(Json::to_string).collect();
        if events.is_empty() {
            return Ok(Self::none(
                "the service has recorded no request of these rule sets",
            ));
        }
        let rules = json!(rules).to_string();
        let room = MAX_BYTES.saturating_sub(rules.len());
        let events = newest(&events, room).join(",");
        let body = format!("{{\"rules\":{rules},\"events\":[{events}]}}");
        let answer = server
            .exchange(Method::POST, "/v1/simulate", &[], Some(body.into_bytes()))
            .await?;
        match answer.status {
            StatusCode::OK => Ok(Self::of(&server.json_of(&answer)?)),
            // There is too much to try.
            StatusCode::BAD_REQUEST | StatusCode::PAYLOAD_TOO_LARGE => {
                Ok(Self::none(&answer.detail()))
            }
            _ => Err(server.refused(&answer)),
        }
    }

    fn none(reason: &str) -> Self {
        Self {
            reason: Some(reason.to_owned()),
            ..Self::default()
        }
    }

    /// Reads the response of `/v1/simulate`.
    fn of(answer: &Json) -> Self {
        let changes = &answer["changes"];
        let number = |value: &Json| value.as_u64().unwrap_or_default();
        let list = |value: &Json| value.as_array().cloned().unwrap_or_default();
        let mut identities = list(&changes["identities"]);
        identities.truncate(IDENTITIES);
        Self {
            reason: None,
            requests: number(&answer["summary"]["total"]["requests"]),
            newly_denied: number(&changes["newly_denied"]),
            newly_allowed: number(&changes["newly_allowed"]),
            identities,
            warnings: list(&answer["warnings"]),
        }
    }
}

/// Returns the newest events that fit.
fn newest(events: &[String], room: usize) -> &[String] {
    let mut room = room;
    let fit = events.iter().rev().take_while(|event| {
        let rest = room.checked_sub(event.len() + 1);
        room = rest.unwrap_or_default();
        rest.is_some()
    });
    &events[events.len() - fit.count()..]
}

/// Returns the rules after all steps.
fn changed(mut rules: Node, steps: &[Step]) -> Node {
    let Some(sets) = child_mut(&mut rules, "rule_sets") else {
        return rules;
    };
    if let Value::Map(sets) = &mut sets.value {
        for step in steps {
            sets.retain(|(name, _)| name.as_text() != Some(&step.set));
            // The content was parsed before.
            let content = step.body.as_ref().and_then(|body| parse_json(body).ok());
            if let Some(content) = content {
                sets.push((unplaced(Value::Quoted(step.set.clone())), content));
            }
        }
    }
    rules
}

impl fmt::Display for Trial {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        if let Some(reason) = &self.reason {
            return writeln!(f, "no trial: {reason}");
        }
        let requests = |number| count(number, "request");
        writeln!(
            f,
            "trial on {} of these rule sets:",
            count(self.requests, "recent request")
        )?;
        writeln!(
            f,
            "  {} that the active rules allow would be denied",
            requests(self.newly_denied)
        )?;
        writeln!(
            f,
            "  {} that the active rules deny would be allowed",
            requests(self.newly_allowed)
        )?;
        for identity in &self.identities {
            let text = |name: &str| identity[name].as_str().unwrap_or_default();
            let number = |name: &str| identity[name].as_u64().unwrap_or_default();
            let (rule_set, rule) = (text("rule_set"), text("rule"));
            let change = match number("newly_denied") {
                0 => format!("{} newly allowed", number("newly_allowed")),
                denied => format!("{denied} newly denied"),
            };
            writeln!(f, "  {rule_set}/{rule}  {}  {change}", text("identity"))?;
        }
        for warning in &self.warnings {
            writeln!(f, "  warning: {}", warning.as_str().unwrap_or_default())?;
        }
        Ok(())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_newest_events_are_tried_if_not_all_fit() {
        let events = ["aaa", "bb", "c"].map(str::to_owned);
        for (room, fit) in [(0, 0), (1, 0), (2, 1), (5, 2), (8, 2), (9, 3), (99, 3)] {
            let kept = newest(&events, room);
            assert_eq!(kept, &events[3 - fit..], "{room}");
        }
    }

    #[test]
    fn sets_are_replaced_added_and_deleted() {
        let rules = Node::parse("on_missing_rule_set: deny\nrule_sets: { a: { x: 1 }, b: {} }");
        let step = |set: &str, body: Option<&str>| Step {
            set: set.into(),
            etag: None,
            body: body.map(str::to_owned),
            changes: Vec::new(),
        };
        let steps = [
            step("a", Some("{\"x\":2}")),
            step("c", Some("{}")),
            step("b", None),
        ];
        let rules = changed(rules.unwrap(), &steps);
        assert_eq!(
            to_json(&rules),
            r#"{"on_missing_rule_set":"deny","rule_sets":{"a":{"x":2},"c":{}}}"#
        );
    }
}
