//! A Redis deployment, and how the store uses it.

use std::num::NonZeroU32;
use std::path::PathBuf;
use std::time::Duration;

use fluxgate_core::yaml::{Faults, Node};
use fluxgate_redis::{DEFAULT_DEADLINE, DEFAULT_PREFIX};

use crate::config::read::Section;
use crate::config::tree;
use crate::config::url::{RedisUrl, Transport};

const MAX_CLUSTER_WAITS: u64 = 1_000_000_000;

/// A Redis deployment, and how the store uses it.
#[derive(Clone, Debug)]
pub struct Redis {
    /// At least one URL. Several URLs are nodes of a cluster, or sentinels.
    pub urls: Vec<RedisUrl>,
    /// The kind of deployment.
    pub mode: RedisMode,
    /// The user to log in as.
    pub username: Option<String>,
    /// The file with the password.
    pub password_file: Option<PathBuf>,
    /// The time limit of a decision.
    pub deadline: Duration,
    /// The prefix of all keys.
    pub key_prefix: String,
    /// Whether denials are cached in this process.
    pub near_cache: bool,
    /// How many requests may wait at a time, in all processes together.
    pub max_cluster_waits: Option<NonZeroU32>,
    /// The certificates for `rediss` URLs.
    pub tls: Option<RedisTls>,
    /// Whether the URLs were given as `urls`.
    listed: bool,
}

/// The kind of a Redis deployment.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum RedisMode {
    /// Detected from the server's replies.
    Auto,
    /// One server.
    Standalone,
    /// A cluster; the URLs are some of its nodes.
    Cluster,
    /// The URLs are sentinels.
    Sentinel {
        /// The name that they know the primary by.
        master: String,
        /// The file with the password of the sentinels, if they need one.
        password_file: Option<PathBuf>,
    },
}

/// PEM files for TLS connections to Redis.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct RedisTls {
    /// The certificate authority to trust instead of the system's.
    pub ca: Option<PathBuf>,
    /// The client certificate and its key.
    pub client: Option<(PathBuf, PathBuf)>,
}

impl Redis {
    pub(super) fn read(node: &Node, faults: &mut Faults) -> Self {
        let before = faults.count();
        const FIELDS: &[&str] = &[
            "url",
            "urls",
            "mode",
            "sentinel",
            "username",
            "password_file",
            "deadline",
            "key_prefix",
            "near_cache",
            "max_cluster_waits",
            "tls",
        ];
        let section = Section::read(node, "`redis`", FIELDS, faults);
        let (url, urls) = (section.get("url"), section.get("urls"));
        let listed = urls.is_some();
        // A node that is not a mapping has been reported already.
        if url.is_none() && urls.is_none() && faults.count() == before {
            faults.add(node.position, "`redis` needs `url` or `urls`");
        }
        let urls = read_urls(url, urls, faults);
        let mode = RedisMode::read(node, &section, &urls, faults);
        if let Some(node) = section.get("username")
            && urls.iter().any(|(_, url)| url.has_user)
        {
            faults.add(node.position, "the URL already names a user");
        }
        if let Some(node) = section.get("password_file")
            && urls.iter().any(|(_, url)| url.has_password)
        {
            faults.add(node.position, "the URL already has a password");
        }
        let prefix = read_prefix(&section, faults);
        let waits = section
            .whole("max_cluster_waits", 1..=MAX_CLUSTER_WAITS, faults)
            .and_then(|waits| u32::try_from(waits).ok());
        let tls = section.get("tls").map(|node| {
            let over_tls = |(_, url): &(_, RedisUrl)| url.transport == Transport::Tls;
            if !urls.is_empty() && !urls.iter().any(over_tls) {
                faults.add(node.position, "`tls` is for URLs that begin with rediss://");
            }
            RedisTls::read(node, faults)
        });
        Self {
            urls: urls.into_iter().map(|(_, url)| url).collect(),
            mode,
            username: section.name("username", faults).map(Into::into),
            password_file: section.path("password_file", faults),
            deadline: section.duration("deadline", DEFAULT_DEADLINE, faults),
            key_prefix: prefix.unwrap_or(DEFAULT_PREFIX).into(),
            near_cache: section.boolean("near_cache", true, faults),
            max_cluster_waits: waits.and_then(NonZeroU32::new),
            tls,
            listed,
        }
    }

    pub(super) fn node(&self) -> Node {
        let mut urls = self.urls.iter().map(|url| tree::text(url.to_string()));
        let (url, urls) = if self.listed {
            (None, Some(tree::list(urls)))
        } else {
            (urls.next(), None)
        };
        let (mode, sentinel) = match &self.mode {
            RedisMode::Auto => ("auto", None),
            RedisMode::Standalone => ("standalone", None),
            RedisMode::Cluster => ("cluster", None),
            RedisMode::Sentinel {
                master,
                password_file,
            } => {
                let password_file = password_file.as_deref().map(tree::path);
                let master = Some(tree::text(master));
                let sentinel = [("master", master), ("password_file", password_file)];
                ("sentinel", Some(tree::map(sentinel)))
            }
        };
        let tls = self.tls.as_ref().map(|tls| {
            let client = tls.client.as_ref();
            tree::map([
                ("ca", tls.ca.as_deref().map(tree::path)),
                ("cert", client.map(|(cert, _)| tree::path(cert))),
                ("key", client.map(|(_, key)| tree::path(key))),
            ])
        });
        tree::map([
            ("url", url),
            ("urls", urls),
            ("mode", Some(tree::plain(mode))),
            ("sentinel", sentinel),
            ("username", self.username.as_ref().map(tree::text)),
            (
                "password_file",
                self.password_file.as_deref().map(tree::path),
            ),
            ("deadline", Some(tree::duration(self.deadline))),
            ("key_prefix", Some(tree::text(&self.key_prefix))),
            ("near_cache", Some(tree::plain(self.near_cache))),
            ("max_cluster_waits", self.max_cluster_waits.map(tree::plain)),
            ("tls", tls),
        ])
    }
}

/// Reads the URLs, each with its node.
fn read_urls<'n>(
    url: Option<&'n Node>,
    urls: Option<&'n Node>,
    faults: &mut Faults,
) -> Vec<(&'n Node, RedisUrl)> {
    let (nodes, what) = match (url, urls) {
        (Some(url), None) => (std::slice::from_ref(url), "`url`"),
        (None, Some(urls)) => (urls.list("`urls`", faults), "a URL"),
        (Some(_), Some(urls)) => {
            faults.add(
                urls.position,
                "`redis` has either `url` or `urls`, not both",
            );
            return Vec::new();
        }
        (None, None) => return Vec::new(),
    };
    let mut read = Vec::new();
    for node in nodes {
        let Some(text) = node.text(what, faults) else {
            continue;
        };
        match RedisUrl::parse(text) {
            Ok(url) => read.push((node, url)),
            Err(why) => faults.add(node.position, format!("{what} {why}")),
        }
    }
    read
}

fn read_prefix<'n>(section: &Section<'n>, faults: &mut Faults) -> Option<&'n str> {
    let prefix = section.name("key_prefix", faults)?;
    if prefix.contains(['{', '}']) {
        faults.add(
            section.get("key_prefix")?.position,
            "`key_prefix` must not contain braces: Redis Cluster reads them as a hash tag",
        );
        return None;
    }
    Some(prefix)
}

impl RedisMode {
    fn read(
        redis: &Node,
        section: &Section<'_>,
        urls: &[(&Node, RedisUrl)],
        faults: &mut Faults,
    ) -> Self {
        let names = [
            ("auto", "auto"),
            ("standalone", "standalone"),
            ("cluster", "cluster"),
            ("sentinel", "sentinel"),
        ];
        let name = section.one_of("mode", &names, faults).unwrap_or("auto");
        if let Some((node, _)) = urls.get(1)
            && name == "standalone"
        {
            faults.add(node.position, "`mode: standalone` takes only one URL");
        }
        let socket = urls
            .iter()
            .find(|(_, url)| url.transport == Transport::Unix);
        if let Some((node, _)) = socket
            && (matches!(name, "cluster" | "sentinel") || urls.len() > 1)
        {
            faults.add(
                node.position,
                "a unix:// socket can only be a single standalone server",
            );
        }
        match (name, section.get("sentinel")) {
            ("sentinel", Some(node)) => {
                const FIELDS: &[&str] = &["master", "password_file"];
                let sentinel = Section::read(node, "`sentinel`", FIELDS, faults);
                if sentinel.get("master").is_none() {
                    faults.add(node.position, "`sentinel` needs `master`");
                }
                let master = sentinel.name("master", faults);
                return Self::Sentinel {
                    master: master.unwrap_or_default().into(),
                    password_file: sentinel.path("password_file", faults),
                };
            }
            ("sentinel", None) => {
                let at = section.get("mode").unwrap_or(redis).position;
                faults.add(at, "`mode: sentinel` needs `sentinel: { master: NAME }`");
            }
            (_, Some(node)) => {
                faults.add(node.position, "`sentinel` belongs to `mode: sentinel` only");
            }
            (_, None) => {}
        }
        match name {
            "standalone" => Self::Standalone,
            "cluster" => Self::Cluster,
            _ => Self::Auto,
        }
    }
}

impl RedisTls {
    fn read(node: &Node, faults: &mut Faults) -> Self {
        let section = Section::read(node, "`tls`", &["ca", "cert", "key"], faults);
        if section.get("cert").is_some() != section.get("key").is_some() {
            faults.add(node.position, "`cert` and `key` need each other");
        }
        let ca = section.path("ca", faults);
        let cert = section.path("cert", faults);
        let key = section.path("key", faults);
        let client = cert.zip(key);
        Self { ca, client }
    }
}
