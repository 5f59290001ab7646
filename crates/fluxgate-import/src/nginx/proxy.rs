//! How locations forward requests: directives that they inherit from the blocks around them.

use std::time::Duration;

use super::parse::Directive;
use crate::config_draft::ForwardingDraft;
use crate::draft::Remark;

/// The directives that this module reads, or that ask for what the gateway always does.
pub(super) const READ: &str = "client_max_body_size proxy_pass proxy_connect_timeout \
    proxy_read_timeout proxy_set_header proxy_hide_header proxy_http_version grpc_pass \
    grpc_connect_timeout grpc_read_timeout grpc_set_header grpc_hide_header http2";

/// The headers that the gateway sets for each request, or needs not, with the values that ask for
/// that.
const OWN_HEADERS: &str = "connection forwarded te upgrade x-forwarded-for x-forwarded-host \
    x-forwarded-port x-forwarded-proto x-request-id";
const OWN_VALUES: [&str; 15] = [
    "",
    "$connection_upgrade",
    "$host",
    "$http_host",
    "$http_upgrade",
    "$proxy_add_x_forwarded_for",
    "$remote_addr",
    "$request_id",
    "$scheme",
    "$server_port",
    "close",
    "keep-alive",
    "trailers",
    "upgrade",
    "websocket",
];

/// Headers of the message, and those that no route may set.
const RESERVED: &str = "content-length expect http2-settings keep-alive proxy proxy-authenticate \
    proxy-authorization proxy-connection trailer transfer-encoding x-original-url x-rewrite-url";

/// What nginx does without a directive.
pub(super) const READ_TIMEOUT: Duration = Duration::from_secs(60);
pub(super) const MAX_BODY: u64 = 1 << 20;
const MAX_TIMEOUT: Duration = Duration::from_secs(86_400);

/// What a block says of forwarding, with what it inherits.
#[derive(Clone, Debug, Default)]
pub(super) struct Forwarding {
    http: Protocol,
    grpc: Protocol,
    max_body: Option<u64>,
}

/// The directives that begin with `proxy_`, or those that begin with `grpc_`.
#[derive(Clone, Debug, Default)]
struct Protocol {
    connect: Option<Duration>,
    read: Option<Duration>,
    /// All lines of a block replace those of the block around it.
    headers: Headers,
    hidden: Vec<String>,
}

#[derive(Clone, Debug, Default)]
struct Headers {
    host: Option<Host>,
    set: Vec<(String, String)>,
    removed: Vec<String>,
}

/// The `Host` that upstreams get.
#[derive(Clone, Debug)]
enum Host {
    Client,
    Name(String),
}

impl Forwarding {
    /// Returns what a block inside of this one says. Adds a remark on each directive of it that
    /// cannot be expressed.
    pub(super) fn inside(&self, block: &[Directive], remarks: &mut Vec<Remark>) -> Self {
        let mut inner = self.clone();
        inner.http.read("proxy", block, remarks);
        inner.grpc.read("grpc", block, remarks);
        if let Some(size) = block.iter().find(|it| it.name == "client_max_body_size") {
            match parse_size(size.argument(0)) {
                Some(bytes) => inner.max_body = Some(bytes),
                None => remarks.push(Remark::lost(size.line(), format!("`{}`", size.text()))),
            }
        }
        inner
    }

    /// Returns what a route says, over HTTP or gRPC. `name` is the name of the upstream, which it
    /// gets as `Host` if nothing else is said.
    pub(super) fn draft(&self, is_grpc: bool, name: &str) -> ForwardingDraft {
        let own = if is_grpc { &self.grpc } else { &self.http };
        let read = own.read.filter(|it| *it != READ_TIMEOUT);
        // nginx waits so long for each part of a response.
        let timeouts = [("connect", own.connect), ("request", read), ("idle", read)];
        let timeouts = { timeouts.into_iter() }.filter_map(|(name, time)| Some((name, time?)));
        ForwardingDraft {
            host: match &own.headers.host {
                Some(Host::Client) => None,
                Some(Host::Name(name)) => Some(name.clone()),
                None => Some(host_of(name)),
            },
            set_headers: own.headers.set.clone(),
            removed_headers: own.headers.removed.clone(),
            hidden_headers: own.hidden.clone(),
            timeouts: timeouts.collect(),
            max_body: self.max_body.filter(|it| *it != MAX_BODY),
        }
    }
}

impl Protocol {
    fn read(&mut self, prefix: &str, block: &[Directive], remarks: &mut Vec<Remark>) {
        let (mut headers, mut hidden) = (None, Vec::new());
        for directive in block {
            let name = directive.name.strip_prefix(prefix).unwrap_or_default();
            let mut lost = || {
                let text = format!("`{}`", directive.text());
                remarks.push(Remark::lost(directive.line(), text));
            };
            match name {
                "_connect_timeout" | "_read_timeout" => {
                    let Some(time) = parse_time(directive.argument(0)) else {
                        lost();
                        continue;
                    };
                    let is_connect = name == "_connect_timeout";
                    let field = if is_connect {
                        &mut self.connect
                    } else {
                        &mut self.read
                    };
                    *field = Some(time);
                }
                "_set_header" => {
                    let headers = headers.get_or_insert_with(Headers::default);
                    remarks.extend(headers.add(directive));
                }
                "_hide_header" => {
                    let name = directive.argument(0).to_ascii_lowercase();
                    if !may_change(&name) {
                        lost();
                    } else if !hidden.contains(&name) {
                        hidden.push(name);
                    }
                }
                _ => {}
            }
        }
        if let Some(headers) = headers {
            self.headers = headers;
        }
        if !hidden.is_empty() {
            self.hidden = hidden;
        }
    }
}

impl Headers {
    /// Adds a line of `proxy_set_header`. Returns a remark if it cannot be expressed.
    fn add(&mut self, line: &Directive) -> Option<Remark> {
        let (name, value) = (line.argument(0).to_ascii_lowercase(), line.argument(1));
        let lost = |why: &str| Some(Remark::lost(line.line(), format!("`{}`{why}", line.text())));
        if name == "host" {
            self.host = match value {
                "$host" | "$http_host" => Some(Host::Client),
                "$proxy_host" => None,
                name if is_host(name) => Some(Host::Name(name.to_owned())),
                _ => return lost(""),
            };
            return None;
        }
        if OWN_HEADERS.split_whitespace().any(|own| own == name) {
            let is_usual = OWN_VALUES.contains(&&*value.to_ascii_lowercase());
            return if is_usual {
                None
            } else {
                lost(": the gateway sets it by itself")
            };
        }
        if name == "x-real-ip" {
            return lost(": upstreams find the client in `X-Forwarded-For`");
        }
        let is_known = self.set.iter().any(|(known, _)| *known == name);
        let is_visible = value.chars().all(|char| matches!(char, ' '..='~'));
        let is_plain = is_visible && value.trim() == value && !value.contains('$');
        if !may_change(&name) || is_known || self.removed.contains(&name) || !is_plain {
            return lost("");
        }
        if value.is_empty() {
            self.removed.push(name);
        } else {
            self.set.push((name, value.to_owned()));
        }
        None
    }
}

/// Returns whether a route may set or remove a header.
fn may_change(name: &str) -> bool {
    let is_letter = |byte: u8| byte.is_ascii_alphanumeric() || b"-_".contains(&byte);
    let mut reserved = RESERVED.split_whitespace();
    !name.is_empty()
        && name.bytes().all(is_letter)
        && !reserved.any(|it| it == name)
        && !OWN_HEADERS.split_whitespace().any(|own| own == name)
        && !name.contains("ratelimit")
        && !["host", "x-real-ip"].contains(&name)
}

/// Returns the `Host` for an upstream of this name. Two names mean something else.
fn host_of(name: &str) -> String {
    let name = if is_host(name) { name } else { "upstream" };
    name.to_owned()
}

fn is_host(text: &str) -> bool {
    let (name, port) = text.split_once(':').unwrap_or((text, "80"));
    let is_letter = |byte: u8| byte.is_ascii_alphanumeric() || b"-_".contains(&byte);
    let is_label = |label: &str| !label.is_empty() && label.bytes().all(is_letter);
    let is_name = name.len() <= 253 && name.split('.').all(is_label);
    is_name && port.parse::<u16>().is_ok() && !["client", "upstream"].contains(&text)
}

/// Parses a size such as `512k` or `2m`.
fn parse_size(text: &str) -> Option<u64> {
    let digits = text.bytes().take_while(u8::is_ascii_digit).count();
    let (number, unit) = text.split_at(digits);
    let shift = match unit {
        "" => 0,
        "k" | "K" => 10,
        "m" | "M" => 20,
        "g" | "G" => 30,
        _ => return None,
    };
    let bytes = number.parse::<u64>().ok()?.checked_mul(1 << shift)?;
    (bytes <= 1 << 50).then_some(bytes)
}

/// Parses a time such as `60`, `1500ms` or `1h 30m`.
fn parse_time(text: &str) -> Option<Duration> {
    let mut total = Duration::ZERO;
    let mut rest = text;
    while !rest.is_empty() {
        let digits = rest.bytes().take_while(u8::is_ascii_digit).count();
        let (number, after) = rest.split_at(digits);
        let letters = after.bytes().take_while(u8::is_ascii_alphabetic).count();
        let (unit, after) = after.split_at(letters);
        let millis = match unit {
            "ms" => 1,
            "" | "s" => 1_000,
            "m" => 60_000,
            "h" => 3_600_000,
            "d" => 86_400_000,
            _ => return None,
        };
        let millis = number.parse::<u64>().ok()?.checked_mul(millis)?;
        total = total.checked_add(Duration::from_millis(millis))?;
        rest = after.trim_start();
    }
    (total > Duration::ZERO && total <= MAX_TIMEOUT).then_some(total)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn times_and_sizes() {
        for (text, expected) in [
            ("60", Some(60_000)),
            ("1500ms", Some(1_500)),
            ("1h30m", Some(5_400_000)),
            ("1m 5s", Some(65_000)),
            ("1d", Some(86_400_000)),
            ("0", None),
            ("", None),
            ("2d", None),
            ("5x", None),
            ("s", None),
        ] {
            let millis = parse_time(text).map(|it| it.as_millis());
            assert_eq!(millis, expected, "{text}");
        }
        for (text, expected) in [
            ("0", Some(0)),
            ("100", Some(100)),
            ("8k", Some(8 << 10)),
            ("2M", Some(2 << 20)),
            ("1g", Some(1 << 30)),
            ("m", None),
            ("2t", None),
            ("99999999g", None),
        ] {
            assert_eq!(parse_size(text), expected, "{text}");
        }
    }
}
