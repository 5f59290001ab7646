//! Where requests are forwarded to: `upstream` blocks, and the URLs of `proxy_pass` and
//! `grpc_pass`.

use std::collections::HashMap;

use super::parse::Directive;
use crate::config_draft::UpstreamDraft;
use crate::draft::Remark;

/// Settings of an `upstream` block that ask for what the gateway always does.
const USUAL: &str = "keepalive keepalive_requests keepalive_time keepalive_timeout least_conn";
const MAX_WEIGHT: u64 = 100;

/// The servers of each `upstream` block.
#[derive(Debug, Default)]
pub(super) struct Upstreams(HashMap<String, Vec<Server>>);

/// A server of an `upstream` block.
#[derive(Clone, Debug)]
struct Server {
    address: String,
    weight: Option<u64>,
}

/// Where a location forwards its requests to.
#[derive(Debug)]
pub(super) struct Target {
    pub(super) upstreams: Vec<UpstreamDraft>,
    /// The name of the upstream, as it is written, with its port.
    pub(super) name: String,
    /// What replaces the text of the location in the paths of requests. It may be empty.
    pub(super) path: String,
    pub(super) is_tls: bool,
}

impl Upstreams {
    /// Reads the blocks of the main or the `http` block.
    pub(super) fn read(&mut self, directives: &[Directive], remarks: &mut Vec<Remark>) {
        for directive in directives {
            match directive.name.as_str() {
                "http" => self.read(&directive.block, remarks),
                "upstream" => {
                    let name = directive.argument(0);
                    let mut servers = Vec::new();
                    for setting in &directive.block {
                        if setting.name == "server" {
                            servers.extend(server(setting, name, remarks));
                        } else if !USUAL.split_whitespace().any(|it| it == setting.name) {
                            let text = format!("`{}` of `upstream {name}`", setting.text());
                            remarks.push(Remark::lost(setting.line(), text));
                        }
                    }
                    self.0.insert(name.to_owned(), servers);
                }
                _ => {}
            }
        }
    }

    /// Returns the target of `proxy_pass` or `grpc_pass`.
    pub(super) fn target(&self, pass: &Directive) -> Option<Target> {
        let url = pass.argument(0);
        let is_grpc = pass.name == "grpc_pass";
        let (scheme, rest) = match url.split_once("://") {
            Some((scheme, rest)) => (scheme, rest),
            None if is_grpc => ("grpc", url),
            None => return None,
        };
        let scheme = match (is_grpc, scheme) {
            (false, "http" | "https") => scheme,
            (true, "grpc") => "h2c",
            (true, "grpcs") => "https",
            _ => return None,
        };
        let (name, path) = rest.split_at(rest.find('/').unwrap_or(rest.len()));
        let servers = match self.0.get(name) {
            Some(servers) => servers.clone(),
            None => vec![Server {
                address: name.to_owned(),
                weight: None,
            }],
        };
        let is_usable = |it: &Server| {
            let is_letter = |byte: u8| byte.is_ascii_alphanumeric() || b"-_.:[]".contains(&byte);
            let address = &it.address;
            !address.is_empty() && !address.starts_with("unix:") && address.bytes().all(is_letter)
        };
        if servers.is_empty() || !servers.iter().all(is_usable) {
            return None;
        }
        let draft = |server: Server| UpstreamDraft {
            url: format!("{scheme}://{}", server.address),
            weight: server.weight,
        };
        Some(Target {
            upstreams: servers.into_iter().map(draft).collect(),
            name: name.to_owned(),
            path: path.to_owned(),
            is_tls: scheme == "https",
        })
    }
}

/// Returns a server of an `upstream` block, unless it gets no requests as long as others do.
fn server(server: &Directive, upstream: &str, remarks: &mut Vec<Remark>) -> Option<Server> {
    let mut weight = None;
    let mut others = Vec::new();
    for word in server.arguments.iter().skip(1) {
        let number = word.text.strip_prefix("weight=");
        let number = number.and_then(|it| it.parse().ok());
        match number.filter(|it| (1..=MAX_WEIGHT).contains(it)) {
            Some(number) => weight = Some(number),
            None => others.push(word.text.as_str()),
        }
    }
    let lost = |what: &str| {
        let text = format!("`{what}` of `upstream {upstream}`");
        Remark::lost(server.line(), text)
    };
    if others.contains(&"down") || others.contains(&"backup") {
        remarks.push(lost(&server.text()));
        return None;
    }
    let address = server.argument(0).to_owned();
    if !others.is_empty() {
        let text = format!("{}` of `server {address}", others.join(" "));
        remarks.push(lost(&text));
    }
    Some(Server { address, weight })
}
