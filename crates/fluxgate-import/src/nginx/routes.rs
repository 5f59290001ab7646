//! The servers and locations that forward requests, as routes.
//!
//! nginx looks for the longest prefix and then for expressions; the first route that matches
//! wins. So routes are in this order: exact paths, prefixes with `^~`, expressions, prefixes.

use std::cmp::Reverse;
use std::collections::HashMap;

use super::areas::{Area, Kind};
use super::parse::Directive;
use crate::config_draft::{ConfigDraft, FilterDraft, RouteDraft};
use crate::draft::Remark;
use crate::names::{UniqueNames, set_name};

/// The directives of a server or a location that have a counterpart or a remark.
const KNOWN: &str = "listen server_name location proxy_pass include geo map upstream server http \
    limit_req limit_req_zone limit_req_dry_run limit_req_status limit_req_log_level \
    limit_conn limit_conn_zone limit_conn_dry_run limit_conn_status limit_conn_log_level \
    limit_rate limit_rate_after limit_zone set_real_ip_from real_ip_header \
    real_ip_recursive";

/// Returns the configuration, if there are routes. `sets` has the rule sets of servers by their
/// lines.
pub(super) fn read(directives: &[Directive], sets: &HashMap<usize, String>) -> Option<ConfigDraft> {
    let mut reader = RouteReader {
        sets,
        upstreams: HashMap::new(),
        ids: UniqueNames::default(),
        config: ConfigDraft::default(),
    };
    reader.upstreams(directives);
    reader.unread(directives, "the main block", 1);
    reader.block(directives);
    let mut config = reader.config;
    if config.routes.is_empty() {
        return None;
    }
    let text = "upstreams get the `Host` of the client, not `$proxy_host`, and a host that no \
                server names gets 404";
    config.remarks.push(Remark::changed(1, text));
    config.gateway.get_or_insert_with(|| "0.0.0.0:80".into());
    config.remarks.sort_by_key(|remark| remark.line);
    Some(config)
}

struct RouteReader<'r> {
    sets: &'r HashMap<usize, String>,
    /// The servers of each `upstream` block.
    upstreams: HashMap<String, Vec<String>>,
    ids: UniqueNames,
    config: ConfigDraft,
}

/// A location that forwards requests.
struct Forwarded {
    area: Area,
    upstreams: Vec<String>,
    remarks: Vec<Remark>,
}

impl RouteReader<'_> {
    fn lost(&mut self, line: usize, text: String) {
        self.config.remarks.push(Remark::lost(line, text));
    }

    fn upstreams(&mut self, directives: &[Directive]) {
        for directive in directives {
            match directive.name.as_str() {
                "http" => self.upstreams(&directive.block),
                "upstream" => {
                    let servers = directive.block.iter().filter(|it| it.name == "server");
                    let servers = servers
                        .map(|server| server.argument(0).to_owned())
                        .collect();
                    let name = directive.argument(0).to_owned();
                    self.upstreams.insert(name, servers);
                    let settings = directive
                        .block
                        .iter()
                        .filter(|it| it.name != "server" || it.arguments.len() > 1);
                    let settings: Vec<_> = settings.map(|it| (it.line(), it.text())).collect();
                    for (line, text) in settings {
                        let text = format!("`{text}` of `upstream {}`", directive.argument(0));
                        self.lost(line, text);
                    }
                }
                _ => {}
            }
        }
    }

    /// Reads the directives of the main or the `http` block.
    fn block(&mut self, directives: &[Directive]) {
        for directive in directives {
            match directive.name.as_str() {
                "http" => {
                    self.unread_of(directive);
                    self.block(&directive.block);
                }
                "server" => self.server(directive),
                _ => {}
            }
        }
    }

    fn server(&mut self, server: &Directive) {
        let (hosts, name) = self.hosts(server);
        self.listen(server);
        self.unread_of(server);
        let mut forwarded = Vec::new();
        self.locations(&server.block, &mut forwarded);
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

    /// Takes over the first address; the gateway has one.
    fn listen(&mut self, server: &Directive) {
        for listen in server.block.iter().filter(|it| it.name == "listen") {
            let address = listen.argument(0);
            let address = match address.parse::<u16>() {
                Ok(port) => format!("0.0.0.0:{port}"),
                Err(_) if address.contains(':') => address.replacen('*', "0.0.0.0", 1),
                Err(_) => format!("{address}:80"),
            };
            let mut options = listen.arguments.iter().skip(1);
            if options.any(|option| option.text == "ssl") {
                let text = "TLS: name the certificate and the key in `gateway.tls`".to_owned();
                self.lost(listen.line(), text);
            }
            match &self.config.gateway {
                _ if address.parse::<std::net::SocketAddr>().is_err() => {
                    self.lost(listen.line(), format!("`{}`", listen.text()));
                }
                None => self.config.gateway = Some(address),
                Some(first) if *first != address => {
                    let text = format!("`{}`: the gateway has one listener", listen.text());
                    self.lost(listen.line(), text);
                }
                Some(_) => {}
            }
        }
    }

    fn unread_of(&mut self, block: &Directive) {
        let name = format!("`{}`", block.text());
        self.unread(&block.block, &name, block.line());
    }

    /// Adds a remark on the directives of a block that have no counterpart.
    fn unread(&mut self, directives: &[Directive], block: &str, line: usize) {
        let is_known = |name: &str| KNOWN.split_whitespace().any(|it| it == name);
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

    fn locations(&mut self, directives: &[Directive], forwarded: &mut Vec<Forwarded>) {
        for location in directives.iter().filter(|it| it.name == "location") {
            self.location(location, forwarded);
            self.locations(&location.block, forwarded);
        }
    }

    fn location(&mut self, location: &Directive, forwarded: &mut Vec<Forwarded>) {
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
        let pass = location.block.iter().find(|it| it.name == "proxy_pass");
        let Some(pass) = pass else {
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
        match self.targets(pass.argument(0)) {
            Some((upstreams, path)) => {
                if !path.is_empty() {
                    let text = format!("the path of `{}`: paths stay as they are", pass.text());
                    remarks.push(Remark::lost(pass.line(), text));
                }
                forwarded.push(Forwarded {
                    area,
                    upstreams,
                    remarks,
                });
            }
            None => self.lost(line, format!("`{text}`: `{}` is no upstream", pass.text())),
        }
    }

    /// Returns the upstreams of `proxy_pass`, and the path after them.
    fn targets(&self, url: &str) -> Option<(Vec<String>, String)> {
        let (scheme, rest) = url.split_once("://")?;
        let (host, path) = rest.split_at(rest.find('/').unwrap_or(rest.len()));
        let servers = match self.upstreams.get(host) {
            Some(servers) => servers.clone(),
            None => vec![host.to_owned()],
        };
        let is_host = |it: &String| {
            let is_letter = |byte: u8| byte.is_ascii_alphanumeric() || b"-_.:[]".contains(&byte);
            !it.is_empty() && !it.starts_with("unix:") && it.bytes().all(is_letter)
        };
        let is_usable = matches!(scheme, "http" | "https") && servers.iter().all(is_host);
        let targets = servers.iter().map(|server| format!("{scheme}://{server}"));
        (is_usable && !servers.is_empty()).then(|| (targets.collect(), path.to_owned()))
    }
}
