//! The servers and locations that forward requests, as routes.
//!
//! nginx looks for the longest prefix and then for expressions; the first route that matches
//! wins. So routes are in this order: exact paths, prefixes with `^~`, expressions, prefixes.

use std::cmp::Reverse;
use std::collections::HashMap;

use super::areas::{Area, Kind};
use super::listen::{self, Certificate, Listener};
use super::parse::Directive;
use super::proxy::{self, Forwarding};
use super::upstreams::Upstreams;
use crate::config_draft::{ConfigDraft, FilterDraft, ForwardingDraft, RouteDraft, UpstreamDraft};
use crate::draft::Remark;
use crate::names::{UniqueNames, set_name};

/// The directives of a server or a location that have a counterpart or a remark.
const KNOWN: &str = "listen server_name location include geo map upstream server http \
    ssl_certificate ssl_certificate_key limit_req limit_req_zone limit_req_dry_run limit_req_status limit_req_log_level \
    limit_conn limit_conn_zone limit_conn_dry_run limit_conn_status limit_conn_log_level \
    limit_rate limit_rate_after limit_zone set_real_ip_from real_ip_header \
    real_ip_recursive";

/// Returns the configuration, if there are routes. `sets` has the rule sets of servers by their
/// lines.
pub(super) fn read(directives: &[Directive], sets: &HashMap<usize, String>) -> Option<ConfigDraft> {
    let mut reader = RouteReader {
        sets,
        upstreams: Upstreams::default(),
        listeners: Vec::new(),
        ids: UniqueNames::default(),
        config: ConfigDraft::default(),
    };
    reader
        .upstreams
        .read(directives, &mut reader.config.remarks);
    reader.unread(directives, "the main block", 1);
    reader.block(directives, &Forwarding::default(), None);
    let mut config = reader.config;
    if config.routes.is_empty() {
        return None;
    }
    if config.routes.iter().all(|route| !route.host.is_empty()) {
        let text = "a host that no server names gets 404";
        config.remarks.push(Remark::changed(1, text));
    }
    let (address, tls) = listen::choose(&reader.listeners, &mut config.remarks);
    config.gateway = Some(address.unwrap_or_else(|| "0.0.0.0:80".into()));
    config.tls = tls;
    config.timeouts.push(("request", proxy::READ_TIMEOUT));
    config.max_body = Some(proxy::MAX_BODY);
    config.remarks.sort_by_key(|remark| remark.line);
    Some(config)
}

struct RouteReader<'r> {
    sets: &'r HashMap<usize, String>,
    upstreams: Upstreams,
    listeners: Vec<Listener>,
    ids: UniqueNames,
    config: ConfigDraft,
}

/// A location that forwards requests.
struct Forwarded {
    area: Area,
    upstreams: Vec<UpstreamDraft>,
    /// The prefix that is removed from paths, and the one that is added.
    prefixes: [Option<String>; 2],
    forwarding: ForwardingDraft,
    remarks: Vec<Remark>,
}

impl RouteReader<'_> {
    fn lost(&mut self, line: usize, text: String) {
        self.config.remarks.push(Remark::lost(line, text));
    }

    /// Reads the directives of the main or the `http` block.
    fn block(
        &mut self,
        directives: &[Directive],
        above: &Forwarding,
        certificate: Option<&Certificate>,
    ) {
        let own = above.inside(directives, &mut self.config.remarks);
        let own_certificate = listen::certificate(directives);
        let certificate = own_certificate.as_ref().or(certificate);
        for directive in directives {
            match directive.name.as_str() {
                "http" => {
                    self.unread_of(directive);
                    self.block(&directive.block, &own, certificate);
                }
                "server" => self.server(directive, &own, certificate),
                _ => {}
            }
        }
    }

    fn server(
        &mut self,
        server: &Directive,
        above: &Forwarding,
        certificate: Option<&Certificate>,
    ) {
        let (hosts, name) = self.hosts(server);
        self.unread_of(server);
        let own = above.inside(&server.block, &mut self.config.remarks);
        let mut forwarded = Vec::new();
        self.locations(&server.block, &own, &mut forwarded);
        let listeners = listen::read(server, certificate, !forwarded.is_empty());
        self.listeners.extend(listeners);
        forwarded.sort_by_key(|it| match it.area.kind {
            Kind::Exact => (0, Reverse(0)),
            Kind::FinalPrefix => (1, Reverse(it.area.text.len())),
            Kind::Regex => (2, Reverse(0)),
            Kind::Prefix | Kind::Server => (3, Reverse(it.area.text.len())),
        });
        let set = self.sets.get(&server.line());
        let is_new = |set: &&String| !self.config.filters.iter().any(|it| it.name == **set);
        if let Some(set) = set.filter(|set| !forwarded.is_empty() && is_new(set)) {
            self.config.filters.push(FilterDraft {
                name: set.clone(),
                rule_set: Some(set.clone()),
                ..FilterDraft::default()
            });
        }
        for Forwarded {
            area,
            upstreams,
            prefixes: [strip_prefix, add_prefix],
            forwarding,
            remarks,
        } in forwarded
        {
            let path = area.patterns.unwrap_or_default();
            self.config.routes.push(RouteDraft {
                remarks,
                id: self.ids.unique(&set_name(&format!("{name}{}", area.text))),
                // `/**` is every path.
                path: if path == ["/**"] { Vec::new() } else { path },
                host: hosts.clone(),
                upstreams,
                strip_prefix,
                add_prefix,
                forwarding,
                filters: set.into_iter().cloned().collect(),
                ..RouteDraft::default()
            });
        }
    }

    /// Returns the hosts of a server, and its first name.
    fn hosts(&mut self, server: &Directive) -> (Vec<String>, String) {
        let names = server.block.iter().filter(|it| it.name == "server_name");
        let names = names.flat_map(|it| &it.arguments);
        let names: Vec<_> = names.map(|word| word.text.to_ascii_lowercase()).collect();
        let mut hosts = Vec::new();
        for name in names
            .iter()
            .filter(|name| !matches!(name.as_str(), "_" | ""))
        {
            let plain = name.strip_prefix("*.").unwrap_or(name);
            let plain = plain.strip_prefix('.').unwrap_or(plain);
            let is_letter = |byte: u8| byte.is_ascii_alphanumeric() || b"-_.".contains(&byte);
            if plain.is_empty() || plain.starts_with('.') || !plain.bytes().all(is_letter) {
                self.lost(server.line(), format!("the server name `{name}`"));
            } else if name.starts_with('.') {
                hosts.extend([plain.to_owned(), format!("*.{plain}")]);
            } else {
                hosts.push(name.clone());
            }
        }
        let name = hosts.first().cloned().unwrap_or("nginx".into());
        (hosts, name)
    }

    fn unread_of(&mut self, block: &Directive) {
        let name = format!("`{}`", block.text());
        self.unread(&block.block, &name, block.line());
    }

    /// Adds a remark on the directives of a block that have no counterpart.
    fn unread(&mut self, directives: &[Directive], block: &str, line: usize) {
        let known = || { KNOWN.split_whitespace() }.chain(proxy::READ.split_whitespace());
        let is_known = |name: &str| known().any(|it| it == name);
        let mut names: Vec<&str> = Vec::new();
        for directive in directives {
            let name = directive.name.as_str();
            if !is_known(name) && !names.contains(&name) {
                names.push(name);
            }
        }
        if !names.is_empty() {
            let names = names.iter().map(|it| format!("`{it}`"));
            let names = names.collect::<Vec<_>>().join(", ");
            self.lost(line, format!("{names} of {block}"));
        }
    }

    fn locations(
        &mut self,
        directives: &[Directive],
        above: &Forwarding,
        forwarded: &mut Vec<Forwarded>,
    ) {
        for location in directives.iter().filter(|it| it.name == "location") {
            let own = above.inside(&location.block, &mut self.config.remarks);
            self.location(location, &own, forwarded);
            self.locations(&location.block, &own, forwarded);
        }
    }

    fn location(&mut self, location: &Directive, own: &Forwarding, forwarded: &mut Vec<Forwarded>) {
        let (line, text) = (location.line(), location.text());
        let arguments: Vec<_> = location
            .arguments
            .iter()
            .map(|it| it.text.as_str())
            .collect();
        let area = Area::location(line, &arguments, Vec::new());
        let is_named = location.argument(0).starts_with('@');
        let Some(area) = area.filter(|it| it.patterns.is_some() && !is_named) else {
            self.lost(
                line,
                format!("`{text}`: no path pattern matches the same paths"),
            );
            return;
        };
        let is_pass = |it: &&Directive| matches!(it.name.as_str(), "proxy_pass" | "grpc_pass");
        let Some(pass) = location.block.iter().find(is_pass) else {
            let text = format!("`{text}`: it does not forward requests; they go to a later route");
            self.lost(line, text);
            return;
        };
        self.unread_of(location);
        let mut remarks = Vec::new();
        if area.is_approximate {
            let text = format!("the path patterns only resemble `{}`", area.text);
            remarks.push(Remark::changed(line, text));
        }
        let Some(target) = self.upstreams.target(pass) else {
            self.lost(line, format!("`{text}`: `{}` is no upstream", pass.text()));
            return;
        };
        if target.is_tls {
            let text = format!("`{}`: the gateway verifies the certificate", pass.text());
            remarks.push(Remark::changed(pass.line(), text));
        }
        let prefixes = match replaced_prefix(&area, &target.path) {
            Some(Replaced { prefixes, is_exact }) => {
                if !is_exact {
                    let text = format!("`{}`: only whole segments are replaced", pass.text());
                    remarks.push(Remark::changed(pass.line(), text));
                }
                prefixes
            }
            None => {
                let text = format!("the path of `{}`: paths stay as they are", pass.text());
                remarks.push(Remark::lost(pass.line(), text));
                [None, None]
            }
        };
        forwarded.push(Forwarded {
            area,
            upstreams: target.upstreams,
            prefixes,
            forwarding: own.draft(pass.name == "grpc_pass", &target.name),
            remarks,
        });
    }
}

/// How a path replaces the text of a location.
struct Replaced {
    /// The prefix that is removed from paths, and the one that is added.
    prefixes: [Option<String>; 2],
    is_exact: bool,
}

/// Returns how the path of `proxy_pass` replaces the text of its location, if prefixes of whole
/// segments can express it.
fn replaced_prefix(area: &Area, path: &str) -> Option<Replaced> {
    let text = area.text.as_str();
    if path.is_empty() || path == text {
        return Some(Replaced {
            prefixes: [None, None],
            is_exact: true,
        });
    }
    let ends = [text, path].map(|it| it.ends_with('/'));
    let is_prefix = matches!(area.kind, Kind::Prefix | Kind::FinalPrefix);
    // `/api/` and `/v1` make `/v1x` of `/api/x`.
    if !is_prefix || ends == [true, false] {
        return None;
    }
    let mut prefixes = [None, None];
    for (prefix, text) in prefixes.iter_mut().zip([text, path]) {
        let text = text.strip_suffix('/').unwrap_or(text);
        if !text.is_empty() {
            *prefix = Some(text.to_owned()).filter(|it| is_whole(it));
            prefix.as_ref()?;
        }
    }
    Some(Replaced {
        prefixes,
        is_exact: ends == [true, true],
    })
}

/// Returns whether a text is a prefix of whole segments without escapes.
fn is_whole(text: &str) -> bool {
    let is_plain = |byte: u8| byte.is_ascii_alphanumeric() || b"-._~!$&'()*+,=:@/".contains(&byte);
    let mut segments = text.split('/').skip(1);
    text.starts_with('/')
        && text.bytes().all(is_plain)
        && segments.all(|segment| !matches!(segment, "" | "." | ".."))
}
