//! The field `fluxgate` of a rule document: what OpenFluxGate cannot express.

use fluxgate_core::yaml::{Faults, Node, Value};

/// The fields of a rule set, which an overlay may have, too.
pub(super) const SET_FIELDS: [&str; 2] = ["on_error", "lists"];

/// The fields that only rules that limit have.
const LIMIT_FIELDS: [&str; 9] = [
    "scope",
    "key",
    "group",
    "on_missing_key",
    "algorithm",
    "bands",
    "cost",
    "on_exceed",
    "max_wait",
];

/// Fields of a rule that take precedence over those of its document.
#[derive(Clone, Copy, Debug, Default)]
pub(super) struct Overlay<'n>(&'n [(Node, Node)]);

impl<'n> Overlay<'n> {
    pub(super) fn read(node: Option<&'n Node>, faults: &mut Faults) -> Self {
        let Some(node) = node else {
            return Self::default();
        };
        // Reports what is no mapping, and duplicates.
        node.map("`fluxgate`", faults);
        match &node.value {
            Value::Map(fields) => Self(fields),
            _ => Self::default(),
        }
    }

    /// Returns the value of a field. A null counts as absent.
    pub(super) fn get(&self, name: &str) -> Option<&'n Node> {
        self.given()
            .find(|(key, _)| key.as_text() == Some(name))
            .map(|(_, value)| value)
    }

    pub(super) fn text(&self, name: &str) -> Option<&'n str> {
        self.get(name).and_then(Node::as_text)
    }

    /// Returns whether it says what the rule counts by, or that it does not count.
    pub(super) fn has_key(&self) -> bool {
        self.get("scope").or(self.get("key")).is_some() || self.decides()
    }

    /// Returns whether it has the bands, or the rule has none.
    pub(super) fn has_bands(&self) -> bool {
        self.get("bands").is_some() || self.decides()
    }

    /// Replaces and adds fields of a rule.
    pub(super) fn apply(&self, rule: &mut Node) {
        let Value::Map(fields) = &mut rule.value else {
            return;
        };
        fields.retain(|(key, _)| !key.as_text().is_some_and(|name| self.replaces(name)));
        let own = self.given().filter(|(key, _)| {
            let name = key.as_text();
            !name.is_some_and(|name| SET_FIELDS.contains(&name))
        });
        fields.extend(own.cloned());
    }

    fn given(&self) -> impl Iterator<Item = &'n (Node, Node)> {
        self.0.iter().filter(|(_, value)| !value.is_null())
    }

    /// Returns whether a field of the document has no effect.
    fn replaces(&self, name: &str) -> bool {
        let is_related = match name {
            "scope" | "key" => self.has_key(),
            "max_wait" => self.get("on_exceed").is_some(),
            _ => false,
        };
        is_related || self.get(name).is_some() || (self.decides() && LIMIT_FIELDS.contains(&name))
    }

    /// Returns whether the rule allows or denies without a limit.
    fn decides(&self) -> bool {
        self.text("action").is_some_and(|action| action != "limit")
    }
}
