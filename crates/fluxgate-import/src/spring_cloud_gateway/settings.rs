//! What a configuration says beyond its routes: Redis, ports and timeouts.

use std::time::Duration;

use fluxgate_core::yaml::Faults;

use super::definitions::PREFIXES;
use crate::config_draft::{ConfigDraft, RedisDraft};
use crate::draft::Remark;
use crate::spring::Properties;

/// Reads the settings.
pub(super) fn read(properties: &Properties, config: &mut ConfigDraft, faults: &mut Faults) {
    let prefixes = ["spring.data.redis", "spring.redis"];
    let prefix = prefixes.into_iter().find(|prefix| properties.has(prefix));
    if let Some(prefix) = prefix {
        config.redis = Some(redis(properties, prefix, faults));
    }
    if config.redis.is_none() && !config.filters.is_empty() {
        // The default of Spring Boot.
        config.redis = Some(RedisDraft {
            urls: vec!["redis://localhost:6379".into()],
            ..RedisDraft::default()
        });
    }
    let port = properties.number("server.port", 0, faults).unwrap_or(8080);
    let address = properties
        .text("server.address", faults)
        .unwrap_or("0.0.0.0");
    config.gateway = Some(if address.contains(':') {
        format!("[{address}]:{port}")
    } else {
        format!("{address}:{port}")
    });
    if properties.boolean("server.ssl.enabled", faults) != Some(false)
        && properties.has("server.ssl")
    {
        let text = "`server.ssl`: name the certificate and the key in `gateway.tls`";
        let line = properties.line("server.ssl");
        config.remarks.push(Remark::lost(line, text));
    }
    // One remark is enough for all of them.
    properties.below("server.ssl");
    for (ours, theirs) in [
        ("connect", "connect-timeout"),
        ("request", "response-timeout"),
    ] {
        for prefix in PREFIXES {
            let name = format!("{prefix}.httpclient.{theirs}");
            let time = properties
                .duration(&name, faults)
                .filter(|it| *it > Duration::ZERO);
            config.timeouts.extend(time.map(|time| (ours, time)));
        }
    }
    if !config.routes.is_empty() {
        let text = "upstreams get the `Host` of the client, as with the filter PreserveHostHeader";
        let routes = PREFIXES.map(|prefix| format!("{prefix}.routes"));
        let routes = routes.iter().find(|name| properties.has(name));
        let line = routes.map_or(1, |name| properties.line(name));
        config.remarks.push(Remark::changed(line, text));
    }
}

fn redis(properties: &Properties, prefix: &str, faults: &mut Faults) -> RedisDraft {
    let mut draft = RedisDraft::default();
    let mut text = |name: &str| {
        let value = properties.text(&format!("{prefix}.{name}"), faults);
        value.map(str::to_owned)
    };
    let (url, host, port) = (text("url"), text("host"), text("port"));
    let (database, username, password) = (text("database"), text("username"), text("password"));
    let is_tls = text("ssl.enabled").or_else(|| text("ssl")).as_deref() == Some("true");
    let master = text("sentinel.master");
    let scheme = if is_tls { "rediss" } else { "redis" };
    let database = database.filter(|it| it != "0");
    let database = database.map(|it| format!("/{it}")).unwrap_or_default();
    let mut servers = |name: &str| -> Vec<String> {
        let nodes = properties
            .texts(&format!("{prefix}.{name}"), faults)
            .into_iter();
        nodes
            .map(|(node, _)| format!("{scheme}://{node}"))
            .collect()
    };
    let (cluster, sentinels) = (servers("cluster.nodes"), servers("sentinel.nodes"));
    draft.username = username;
    if !cluster.is_empty() {
        draft.mode = Some("cluster");
        draft.urls = cluster;
    } else if let Some(master) = master.filter(|_| !sentinels.is_empty()) {
        draft.mode = Some("sentinel");
        draft.sentinel_master = Some(master);
        draft.urls = sentinels;
    } else if let Some(url) = url {
        // It takes precedence over all other settings.
        draft.username = None;
        draft.urls = vec![url];
    } else {
        let host = host.unwrap_or("localhost".into());
        let port = port.unwrap_or("6379".into());
        draft.urls = vec![format!("{scheme}://{host}:{port}{database}")];
    }
    if password.is_some() {
        let line = properties.line(&format!("{prefix}.password"));
        let text = "the password of Redis: put it into a file and name that in `password_file`";
        draft.remarks.push(Remark::lost(line, text));
    }
    for remark in properties.unread(prefix) {
        draft.remarks.push(remark);
    }
    draft
}

/// Returns the upstream of a route's URI, and how it differs, or why it has none.
pub(super) fn upstream(uri: &str) -> Result<(String, Option<String>), String> {
    let no_upstream = || format!("`{uri}` is no upstream");
    let (scheme, rest) = uri.split_once("://").ok_or_else(no_upstream)?;
    // Spring Cloud Gateway takes the path of the request, not of the URI.
    let end = rest.find(['/', '?', '#']).unwrap_or(rest.len());
    let host = &rest[..end];
    if host.is_empty() || host.contains('@') || host.contains("${") {
        return Err(no_upstream());
    }
    match scheme.to_ascii_lowercase().as_str() {
        scheme @ ("http" | "https") => Ok((format!("{scheme}://{host}"), None)),
        "ws" => Ok((format!("http://{host}"), None)),
        "wss" => Ok((format!("https://{host}"), None)),
        "lb" => {
            let text = format!("`{uri}` is the host `{host}`: FluxGate asks DNS, no registry");
            Ok((format!("http://{host}"), Some(text)))
        }
        _ => Err(no_upstream()),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn uris_become_upstreams() {
        for (uri, expected) in [
            (
                "http://a.example:8080/ignored",
                Some("http://a.example:8080"),
            ),
            ("https://a.example", Some("https://a.example")),
            ("ws://a:1", Some("http://a:1")),
            ("lb://orders", Some("http://orders")),
            ("forward:/fallback", None),
            ("no://op", None),
            ("http://", None),
            ("http://${HOST}", None),
        ] {
            let found = upstream(uri).ok().map(|(upstream, _)| upstream);
            assert_eq!(found.as_deref(), expected, "{uri}");
        }
    }
}
