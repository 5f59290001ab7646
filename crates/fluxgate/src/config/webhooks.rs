//! The section `webhooks`: where events are sent.

use std::path::PathBuf;

use fluxgate_core::yaml::{Faults, Node};

use super::section::Section;
use super::tree;
use super::url::HttpUrl;

/// More than any deployment needs. Each has a task and a connection.
const MAX_WEBHOOKS: usize = 32;

/// What an event is about.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum EventKind {
    /// An identity has used a share of a limit.
    Threshold,
    /// Rules have changed, or were refused.
    Rules,
    /// The store has failed, or is back.
    Store,
    /// An upstream of the gateway is out, or back.
    Upstream,
    /// An address has tried out tokens.
    Login,
}

impl EventKind {
    /// All kinds.
    pub const ALL: [Self; 5] = [
        Self::Threshold,
        Self::Rules,
        Self::Store,
        Self::Upstream,
        Self::Login,
    ];

    /// Returns its name in events and configurations.
    pub const fn name(self) -> &'static str {
        match self {
            Self::Threshold => "threshold",
            Self::Rules => "rules",
            Self::Store => "store",
            Self::Upstream => "upstream",
            Self::Login => "login",
        }
    }
}

/// Where events are sent.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Webhook {
    /// The address that they are posted to.
    pub url: HttpUrl,
    /// The file with the secret that signs them.
    pub secret_file: PathBuf,
    /// The kinds of events that are sent.
    pub kinds: Vec<EventKind>,
    /// The certificate authority of the server, instead of those of the system.
    pub ca: Option<PathBuf>,
}

impl Webhook {
    /// Creates a webhook for all kinds of events. An error says what an address must be.
    pub fn new(url: &str, secret_file: PathBuf) -> Result<Self, String> {
        Ok(Self {
            url: parse_url(url)?,
            secret_file,
            kinds: EventKind::ALL.to_vec(),
            ca: None,
        })
    }

    /// Returns the address without what may be secret: its path and query.
    pub fn server(&self) -> String {
        let url = self.url.url();
        let host = url.host_str().unwrap_or_default();
        let port = url.port().map(|port| format!(":{port}"));
        format!("{}://{host}{}", url.scheme(), port.unwrap_or_default())
    }

    pub(super) fn read_all(root: &mut Section<'_, '_>) -> Vec<Self> {
        let nodes = root.list_or_empty("webhooks");
        if let Some(node) = nodes.get(MAX_WEBHOOKS) {
            let message = format!("`webhooks` has at most {MAX_WEBHOOKS} entries");
            root.fault(node, message);
        }
        let (mut webhooks, mut shown) = (Vec::<Self>::new(), Vec::new());
        for node in nodes {
            let (webhook, entry) = Self::read(node, &webhooks, root.faults);
            shown.push(entry);
            let Some(webhook) = webhook else { continue };
            // The queue of a webhook is found by its address.
            if webhooks.iter().any(|known| known.url == webhook.url) {
                let at = tree::child(node, "url").unwrap_or(node);
                root.fault(at, "there is a webhook for this address already");
            }
            webhooks.push(webhook);
        }
        if !shown.is_empty() {
            root.show("webhooks", tree::list(shown));
        }
        webhooks
    }

    fn read(node: &Node, known: &[Self], faults: &mut Faults) -> (Option<Self>, Node) {
        const FIELDS: &[&str] = &["url", "secret_file", "kinds", "ca"];
        let mut section = Section::read(node, "a webhook", FIELDS, faults);
        let url = section.get("url").and_then(|node| {
            let text = node.text("`url`", section.faults)?;
            match parse_url(text) {
                Ok(url) => Some(url),
                Err(why) => {
                    section.fault(node, format!("`url` {why}"));
                    None
                }
            }
        });
        section.show(
            "url",
            url.as_ref().map(|url| tree::text(shown_url(url, known))),
        );
        let secret_file = section.path("secret_file");
        let ca = section.path("ca");
        let kinds = read_kinds(&mut section);
        for field in ["url", "secret_file"] {
            if section.get(field).is_none() {
                section.missing(format!("a webhook needs a `{field}`"));
            }
        }
        if let Some((url, node)) = url.as_ref().zip(section.get("ca"))
            && !url.is_secure()
        {
            section.fault(node, "`ca` is only for https");
        }
        let webhook = url.zip(secret_file).map(|(url, secret_file)| Self {
            url,
            secret_file,
            kinds,
            ca,
        });
        (webhook, section.into_node())
    }
}

/// Returns a URL without its query. If another webhook is shown alike, the placeholder has a number: the
/// shown config is valid, too.
fn shown_url(url: &HttpUrl, known: &[Webhook]) -> String {
    let shown = url.without_query();
    let is_alike = |it: &&Webhook| it.url != *url && it.url.without_query() == shown;
    match known.iter().filter(is_alike).count() {
        0 => shown,
        alike => format!("{shown}{}", alike + 1),
    }
}

fn parse_url(text: &str) -> Result<HttpUrl, String> {
    HttpUrl::parse_strict(text, "https://example.com/fluxgate")
}

fn read_kinds(section: &mut Section<'_, '_>) -> Vec<EventKind> {
    let names = EventKind::ALL.map(|kind| (kind.name(), kind));
    let nodes = section.list("kinds");
    let mut kinds = Vec::new();
    for node in nodes {
        let kind = node.one_of("a kind of `kinds`", &names, section.faults);
        if let Some(kind) = kind
            && kinds.contains(&kind)
        {
            section.fault(node, format!("`{}` appears twice in `kinds`", kind.name()));
        }
        kinds.extend(kind);
    }
    if section.get("kinds").is_none() {
        kinds = EventKind::ALL.to_vec();
    }
    section.show("kinds", tree::texts(kinds.iter().map(|kind| kind.name())));
    kinds
}
