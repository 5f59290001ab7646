//! A Redis deployment, and how the store uses it.

use std::num::NonZeroU32;
use std::path::PathBuf;
use std::time::Duration;

use fluxgate_core::yaml::Node;
use fluxgate_redis::{DEFAULT_DEADLINE, DEFAULT_PREFIX, Topology};

use crate::config::section::Section;
use crate::config::tree;
use crate::config::url::{RedisUrl, Transport};

const MAX_CLUSTER_WAITS: u32 = 1_000_000_000;

/// A Redis deployment, and how the store uses it.
#[derive(Clone, Debug)]
pub struct Redis {
    /// At least one URL. Several URLs are nodes of a cluster, or sentinels.
    pub urls: Vec<RedisUrl>,
    /// The kind of deployment.
    pub topology: Topology,
    /// The file with the password of the sentinels, if they need one.
    pub sentinel_password_file: Option<PathBuf>,
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
    pub(super) fn read(store: &mut Section<'_, '_>) -> Self {
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
        store.section("redis", FIELDS, |section| {
            let urls = read_urls(section);
            let (topology, sentinel_password_file) = read_topology(section, &urls);
            if let Some(node) = section.get("username")
                && urls.iter().any(|(_, url)| url.has_user())
            {
                section.fault(node, "the URL already names a user");
            }
            if let Some(node) = section.get("password_file")
                && urls.iter().any(|(_, url)| url.has_password())
            {
                section.fault(node, "the URL already has a password");
            }
            if let Some(node) = section.get("tls")
                && !urls.is_empty()
                && urls.iter().all(|(_, url)| url.transport != Transport::Tls)
            {
                section.fault(node, "`tls` is for URLs that begin with rediss://");
            }
            let waits = section.optional_whole("max_cluster_waits", 1..=MAX_CLUSTER_WAITS);
            Self {
                urls: urls.into_iter().map(|(_, url)| url).collect(),
                topology,
                sentinel_password_file,
                username: section.name("username").map(Into::into),
                password_file: section.path("password_file"),
                deadline: section.duration("deadline", DEFAULT_DEADLINE),
                key_prefix: read_prefix(section).into(),
                near_cache: section.boolean("near_cache", true),
                max_cluster_waits: waits.and_then(NonZeroU32::new),
                tls: RedisTls::read(section),
            }
        })
    }
}

/// Reads the URLs, each with its node.
fn read_urls<'n>(section: &mut Section<'n, '_>) -> Vec<(&'n Node, RedisUrl)> {
    let (nodes, what) = match (section.get("url"), section.get("urls")) {
        (Some(url), None) => (std::slice::from_ref(url), "`url`"),
        (None, Some(_)) => (section.list("urls"), "a URL"),
        (Some(_), Some(urls)) => {
            section.fault(urls, "`redis` has either `url` or `urls`, not both");
            return Vec::new();
        }
        (None, None) => {
            section.missing("`redis` needs `url` or `urls`");
            return Vec::new();
        }
    };
    let mut read = Vec::new();
    for node in nodes {
        let Some(text) = node.text(what, section.faults) else {
            continue;
        };
        match RedisUrl::parse(text) {
            Ok(url) => read.push((node, url)),
            Err(why) => section.fault(node, format!("{what} {why}")),
        }
    }
    let urls = read.iter().map(|(_, url)| url);
    if section.get("urls").is_some() {
        section.show("urls", tree::texts(urls));
    } else {
        section.show("url", tree::one_or_list(urls));
    }
    read
}

fn read_prefix<'n>(section: &mut Section<'n, '_>) -> &'n str {
    let Some(prefix) = section.name("key_prefix") else {
        section.show("key_prefix", tree::text(DEFAULT_PREFIX));
        return DEFAULT_PREFIX;
    };
    if let Some(node) = section
        .get("key_prefix")
        .filter(|_| prefix.contains(['{', '}']))
    {
        let message =
            "`key_prefix` must not contain braces: Redis Cluster reads them as a hash tag";
        section.fault(node, message);
    }
    prefix
}

/// Reads the kind of deployment, and the file with the password of the sentinels.
fn read_topology(
    section: &mut Section<'_, '_>,
    urls: &[(&Node, RedisUrl)],
) -> (Topology, Option<PathBuf>) {
    const NAMES: [(&str, &str); 4] = [
        ("auto", "auto"),
        ("standalone", "standalone"),
        ("cluster", "cluster"),
        ("sentinel", "sentinel"),
    ];
    let mode = section.one_of("mode", &NAMES, "auto");
    if let Some((node, _)) = urls.get(1)
        && mode == "standalone"
    {
        section.fault(node, "`mode: standalone` takes only one URL");
    }
    let socket = urls
        .iter()
        .find(|(_, url)| url.transport == Transport::Unix);
    if let Some((node, _)) = socket
        && (matches!(mode, "cluster" | "sentinel") || urls.len() > 1)
    {
        section.fault(
            node,
            "a unix:// socket can only be a single standalone server",
        );
    }
    let sentinel = section.get("sentinel");
    let topology = match mode {
        "standalone" => Topology::Standalone,
        "cluster" => Topology::Cluster,
        "sentinel" => {
            let fields = &["master", "password_file"];
            let read = section.optional_section("sentinel", fields, |sentinel| {
                if sentinel.get("master").is_none() {
                    sentinel.missing("`sentinel` needs `master`");
                }
                let master = sentinel.name("master").unwrap_or_default().into();
                (
                    Topology::Sentinel { master },
                    sentinel.path("password_file"),
                )
            });
            if let (None, Some(node)) = (&read, section.get("mode")) {
                section.fault(node, "`mode: sentinel` needs `sentinel: { master: NAME }`");
            }
            return read.unwrap_or_default();
        }
        _ => Topology::Auto,
    };
    if let Some(node) = sentinel {
        section.fault(node, "`sentinel` belongs to `mode: sentinel` only");
    }
    (topology, None)
}

impl RedisTls {
    fn read(section: &mut Section<'_, '_>) -> Option<Self> {
        section.optional_section("tls", &["ca", "cert", "key"], |section| {
            if section.get("cert").is_some() != section.get("key").is_some() {
                section.missing("`cert` and `key` need each other");
            }
            Self {
                ca: section.path("ca"),
                client: section.path("cert").zip(section.path("key")),
            }
        })
    }
}
