//! Where a filter reads identities and attributes.

use fluxgate_core::internals::yaml::{Faults, Node, Position};
use fluxgate_tower::{Identity, Source};

use super::{read, tree};

/// The sources of identities and attributes.
#[derive(Clone, Debug, Default)]
pub struct Sources {
    /// Each field that has a source: the user, the API key, then the attributes in the order of
    /// the file.
    fields: Vec<SourceField>,
}

/// A field of the request context, and its source.
#[derive(Clone, Debug)]
pub struct SourceField {
    /// The field.
    pub field: Field,
    /// The source.
    pub source: Source,
    /// Where the file names the source, unless it is the default.
    pub position: Option<Position>,
}

/// A field of the request context.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Field {
    /// The user.
    User,
    /// The API key.
    ApiKey,
    /// An attribute, by its name.
    Attribute(String),
}

impl std::fmt::Display for Field {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        match self {
            Self::User => f.write_str("identity.user"),
            Self::ApiKey => f.write_str("identity.api_key"),
            Self::Attribute(name) => write!(f, "attributes.{name}"),
        }
    }
}

impl Sources {
    /// Returns every field that has a source.
    pub fn fields(&self) -> &[SourceField] {
        &self.fields
    }

    /// Returns the sources of the user and the API key.
    pub fn identity(&self) -> Identity {
        let mut identity = Identity::default();
        for SourceField { field, source, .. } in &self.fields {
            match field {
                Field::User => identity.user = source.clone(),
                Field::ApiKey => identity.api_key = source.clone(),
                Field::Attribute(_) => {}
            }
        }
        identity
    }

    /// Returns the attributes and their sources.
    pub fn attributes(&self) -> impl Iterator<Item = (&str, &Source)> {
        self.fields.iter().filter_map(|it| match &it.field {
            Field::Attribute(name) => Some((&**name, &it.source)),
            Field::User | Field::ApiKey => None,
        })
    }

    /// Reads the sections `identity` and `attributes`.
    pub(super) fn read(
        identity: Option<&Node>,
        attributes: Option<&Node>,
        faults: &mut Faults,
    ) -> Self {
        let names = ["user", "api_key"];
        let [user, api_key] =
            identity.map_or([None; 2], |node| node.fields("`identity`", names, faults));
        let default = Identity::default();
        let mut fields = Vec::new();
        for (field, node, default, what) in [
            (Field::User, user, default.user, "`user`"),
            (Field::ApiKey, api_key, default.api_key, "`api_key`"),
        ] {
            let given = node.and_then(|node| read_source(node, what, faults));
            fields.push(SourceField {
                field,
                position: node.map(|node| node.position),
                source: given.unwrap_or(default),
            });
        }
        let attributes = attributes.map(|node| node.map("`attributes`", faults));
        for (_, key, node) in attributes.unwrap_or_default() {
            let name = read::name(key, "an attribute's name", faults);
            let what = format!("`{}`", name.unwrap_or_default());
            let source = read_source(node, &what, faults);
            if let (Some(name), Some(source)) = (name, source) {
                fields.push(SourceField {
                    field: Field::Attribute(name.into()),
                    source,
                    position: Some(node.position),
                });
            }
        }
        Self { fields }
    }

    pub(super) fn identity_node(&self) -> Node {
        let Identity { user, api_key } = self.identity();
        let text = |source: Source| Some(tree::text(source.to_string()));
        tree::map([("user", text(user)), ("api_key", text(api_key))])
    }

    pub(super) fn attributes_node(&self) -> Node {
        let text = |source: &Source| Some(tree::text(source.to_string()));
        tree::map(self.attributes().map(|(name, source)| (name, text(source))))
    }
}

/// Reads a source.
pub(super) fn read_source(node: &Node, what: &str, faults: &mut Faults) -> Option<Source> {
    let source = node.text(what, faults)?.parse::<Source>();
    source
        .map_err(|error| faults.add(node.position, format!("{what}: {error}")))
        .ok()
}
