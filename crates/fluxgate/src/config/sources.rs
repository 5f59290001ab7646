//! Where a filter reads identities and attributes.

use fluxgate_core::yaml::{Faults, Node, Position};
use fluxgate_http::{Identity, Source, SourceList};

use super::read::{self, Section};
use super::tree;

/// The sources of identities and attributes.
#[derive(Clone, Debug, Default)]
pub struct Sources {
    /// Each field that has a source: the user, the API key, then the attributes in the order of
    /// the file.
    fields: Vec<SourceField>,
}

/// A field of the request context, and its sources.
#[derive(Clone, Debug)]
pub struct SourceField {
    /// The field.
    pub field: Field,
    /// The sources, in order of precedence.
    pub sources: SourceList,
    /// Where the file names them, unless they are the default.
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
        for SourceField { field, sources, .. } in &self.fields {
            match field {
                Field::User => identity.user = sources.clone(),
                Field::ApiKey => identity.api_key = sources.clone(),
                Field::Attribute(_) => {}
            }
        }
        identity
    }

    /// Returns the attributes and their sources.
    pub fn attributes(&self) -> impl Iterator<Item = (&str, &SourceList)> {
        self.fields.iter().filter_map(|it| match &it.field {
            Field::Attribute(name) => Some((&**name, &it.sources)),
            Field::User | Field::ApiKey => None,
        })
    }

    /// Reads the sections `identity` and `attributes`.
    pub(super) fn read(
        identity: Option<&Node>,
        attributes: Option<&Node>,
        faults: &mut Faults,
    ) -> Self {
        let identity = Section::read(identity, "`identity`", &["user", "api_key"], faults);
        let default = Identity::default();
        let mut fields = Vec::new();
        for (field, name, default) in [
            (Field::User, "user", default.user),
            (Field::ApiKey, "api_key", default.api_key),
        ] {
            let node = identity.get(name);
            let what = format!("`{name}`");
            let given = node.and_then(|node| read_sources(node, &what, faults));
            fields.push(SourceField {
                field,
                position: node.map(|node| node.position),
                sources: given.unwrap_or(default),
            });
        }
        let attributes = attributes.map(|node| node.map("`attributes`", faults));
        for (_, key, node) in attributes.unwrap_or_default() {
            let name = read::name(key, "an attribute's name", faults);
            let what = format!("`{}`", name.unwrap_or_default());
            let sources = read_sources(node, &what, faults);
            if let (Some(name), Some(sources)) = (name, sources) {
                fields.push(SourceField {
                    field: Field::Attribute(name.into()),
                    sources,
                    position: Some(node.position),
                });
            }
        }
        Self { fields }
    }

    pub(super) fn identity_node(&self) -> Node {
        let Identity { user, api_key } = self.identity();
        let user = sources_node(&user);
        tree::map([
            ("user", Some(user)),
            ("api_key", Some(sources_node(&api_key))),
        ])
    }

    pub(super) fn attributes_node(&self) -> Node {
        let attributes = self.attributes();
        tree::map(attributes.map(|(name, sources)| (name, Some(sources_node(sources)))))
    }
}

fn sources_node(sources: &SourceList) -> Node {
    let texts = sources.iter().map(|source| tree::text(source.to_string()));
    tree::one_or_list(texts)
}

/// Reads a source, or a list of them.
fn read_sources(node: &Node, what: &str, faults: &mut Faults) -> Option<SourceList> {
    let nodes = read::one_or_list(node, what, faults);
    let sources: Vec<_> = nodes
        .iter()
        .map(|node| read_source(node, what, faults))
        .collect::<Option<_>>()?;
    (!sources.is_empty()).then(|| sources.into())
}

/// Reads a source.
pub(super) fn read_source(node: &Node, what: &str, faults: &mut Faults) -> Option<Source> {
    let source = node.text(what, faults)?.parse::<Source>();
    source
        .map_err(|error| faults.add(node.position, format!("{what}: {error}")))
        .ok()
}
