//! Where a filter reads identities and attributes from.

use fluxgate_core::yaml::{Faults, Node, Position};
use fluxgate_http::{Identity, Source, SourceList};

use super::section::{self, Section};
use super::tree;

/// The sources of identities and attributes.
#[derive(Clone, Debug, Default)]
pub struct Sources {
    /// Each field that has a source: the user, the API key, then the attributes in the order of
    /// the file.
    fields: Vec<FieldSources>,
}

/// A field of the request context, and its sources.
#[derive(Clone, Debug)]
pub struct FieldSources {
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
    pub fn fields(&self) -> &[FieldSources] {
        &self.fields
    }

    /// Returns the sources of the user and the API key.
    pub fn identity(&self) -> Identity {
        let mut identity = Identity::default();
        for FieldSources { field, sources, .. } in &self.fields {
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

    /// Reads the sections `identity` and `attributes` of a filter.
    pub(super) fn read(filter: &mut Section<'_, '_>) -> Self {
        let Identity { user, api_key } = Identity::default();
        let mut fields = filter.section("identity", &["user", "api_key"], |section| {
            vec![
                FieldSources::read(section, "user", Field::User, user),
                FieldSources::read(section, "api_key", Field::ApiKey, api_key),
            ]
        });
        let attributes = filter.get("attributes");
        let attributes = attributes.map(|node| node.map("`attributes`", filter.faults));
        let mut shown = Vec::new();
        for (_, key, node) in attributes.unwrap_or_default() {
            let name = section::name(key, "an attribute's name", filter.faults);
            let what = format!("`{}`", name.unwrap_or_default());
            let sources = read_sources(node, &what, filter.faults);
            if let (Some(name), Some(sources)) = (name, sources) {
                shown.push((name, tree::one_or_list(&sources)));
                fields.push(FieldSources {
                    field: Field::Attribute(name.into()),
                    sources,
                    position: Some(node.position),
                });
            }
        }
        filter.show("attributes", tree::map(shown));
        Self { fields }
    }
}

impl FieldSources {
    fn read(
        section: &mut Section<'_, '_>,
        name: &'static str,
        field: Field,
        default: SourceList,
    ) -> Self {
        let node = section.get(name);
        let given = node.and_then(|node| read_sources(node, &format!("`{name}`"), section.faults));
        let sources = given.unwrap_or(default);
        section.show(name, tree::one_or_list(&sources));
        Self {
            field,
            sources,
            position: node.map(|node| node.position),
        }
    }
}

/// Reads a source, or a list of them.
fn read_sources(node: &Node, what: &str, faults: &mut Faults) -> Option<SourceList> {
    let nodes = section::one_or_list(node, what, faults);
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
