//! URLs of servers. Passwords are never displayed.

use std::fmt;

use fluxgate_gateway::{UpstreamScheme, UpstreamTarget};
use http::Uri;
use url::{Host, Url};

/// The URL of a Redis server. Displayed without its password.
#[derive(Clone, PartialEq, Eq)]
pub struct RedisUrl {
    text: String,
    url: Url,
    pub(super) transport: Transport,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Transport {
    Tcp,
    Tls,
    Unix,
}

impl RedisUrl {
    /// Returns the URL with its password.
    pub fn as_str(&self) -> &str {
        &self.text
    }

    pub(super) fn parse(text: &str) -> Result<Self, String> {
        const ALLOWED: &str = "redis://HOST:PORT, rediss://HOST:PORT or unix:///PATH";
        let refuse = |why: &str| format!("must be {ALLOWED}: {why}");
        let url = Url::parse(text).map_err(|error| refuse(&error.to_string()))?;
        let transport = match url.scheme() {
            "redis" => Transport::Tcp,
            "rediss" => Transport::Tls,
            "unix" => Transport::Unix,
            _ => return Err(refuse("unknown scheme")),
        };
        if url.query().is_some() || url.fragment().is_some() {
            return Err(refuse("a query or fragment is not allowed"));
        }
        let has_host = url.host_str().is_some_and(|host| !host.is_empty());
        match transport {
            Transport::Unix if has_host => return Err(refuse("a socket has no host")),
            Transport::Unix if url.path().len() < 2 => return Err(refuse("the path is missing")),
            Transport::Unix => {}
            _ if !has_host => return Err(refuse("the host is missing")),
            _ if !is_database(url.path()) => {
                return Err(refuse("only a database number may follow the host"));
            }
            _ => {}
        }
        Ok(Self {
            text: text.into(),
            url,
            transport,
        })
    }

    pub(super) fn has_user(&self) -> bool {
        !self.url.username().is_empty()
    }

    pub(super) fn has_password(&self) -> bool {
        self.url.password().is_some()
    }
}

impl fmt::Display for RedisUrl {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&without_password(&self.url, &self.text))
    }
}

impl fmt::Debug for RedisUrl {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "RedisUrl({self})")
    }
}

/// The URL of an HTTP server. Displayed without its password.
#[derive(Clone, PartialEq, Eq)]
pub struct HttpUrl {
    text: String,
    url: Url,
}

impl HttpUrl {
    /// Returns the URL with its password.
    pub fn as_str(&self) -> &str {
        &self.text
    }

    /// Returns the URL with a placeholder for its query, which may be secret.
    pub fn without_query(&self) -> String {
        match self.text.split_once('?') {
            Some((before, _)) => format!("{before}?***"),
            None => self.text.clone(),
        }
    }

    /// Returns its parts.
    pub(crate) fn url(&self) -> &Url {
        &self.url
    }

    /// Returns whether the scheme is `https`.
    pub(super) fn is_secure(&self) -> bool {
        self.url.scheme() == "https"
    }

    /// Returns whether the server is on this machine.
    pub(super) fn is_loopback(&self) -> bool {
        match self.url.host() {
            Some(Host::Domain(name)) => name == "localhost",
            Some(Host::Ipv4(address)) => address.is_loopback(),
            Some(Host::Ipv6(address)) => address.is_loopback(),
            None => false,
        }
    }

    /// Returns whether it has a user name or a password.
    fn has_credentials(&self) -> bool {
        !self.url.username().is_empty() || self.url.password().is_some()
    }

    pub(crate) fn parse(text: &str) -> Result<Self, String> {
        let (text, url) = (text.to_owned(), http_url(text)?);
        Ok(Self { text, url })
    }

    /// Parses a URL without credentials, such as `example`, that an HTTP client accepts as it is.
    pub(super) fn parse_strict(text: &str, example: &str) -> Result<Self, String> {
        let url = Self::parse(text)?;
        // `Url` accepts and repairs more than an HTTP client does.
        let is_strict = text.parse::<Uri>().is_ok_and(|uri| uri.host().is_some());
        if url.has_credentials() {
            Err("must not have a user name or password".into())
        } else if !is_strict {
            Err(format!("must be a URL such as {example}"))
        } else {
            Ok(url)
        }
    }
}

impl fmt::Display for HttpUrl {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&without_password(&self.url, &self.text))
    }
}

impl fmt::Debug for HttpUrl {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "HttpUrl({self})")
    }
}

/// Parses the target of an upstream.
pub(super) fn parse_upstream(text: &str) -> Result<UpstreamTarget, String> {
    if text == "echo" {
        return Ok(UpstreamTarget::Echo);
    }
    const ALLOWED: &str = "must be http://HOST:PORT, h2c://HOST:PORT, https://HOST:PORT or echo";
    // `Url` knows the rules of hosts and ports for `http` only.
    let (url, is_h2c) = match text.strip_prefix("h2c://") {
        Some(rest) => (Url::parse(&format!("http://{rest}")), true),
        None => (Url::parse(text), false),
    };
    let url = url.map_err(|error| format!("{ALLOWED} ({error})"))?;
    let scheme = match url.scheme() {
        "http" if is_h2c => UpstreamScheme::H2c,
        "http" => UpstreamScheme::Http,
        "https" => UpstreamScheme::Https,
        "grpc" | "grpcs" => {
            return Err(format!("{ALLOWED} (gRPC is h2c://, or https:// over TLS)"));
        }
        _ => return Err(format!("{ALLOWED} (unknown scheme)")),
    };
    let bare = url.username().is_empty() && url.password().is_none();
    let whole = url.query().is_none() && url.fragment().is_none() && url.path() == "/";
    match (url.host_str(), url.port_or_known_default()) {
        (Some(host), Some(port)) if bare && whole => Ok(UpstreamTarget::Http {
            scheme,
            host: host.into(),
            port,
            ca: None,
        }),
        _ => Err(format!("{ALLOWED}, with nothing else")),
    }
}

fn http_url(text: &str) -> Result<Url, String> {
    let refuse = |why: &str| format!("must be http://HOST:PORT or https://HOST:PORT ({why})");
    let url = Url::parse(text).map_err(|error| refuse(&error.to_string()))?;
    match url.scheme() {
        "http" | "https" => Ok(url),
        _ => Err(refuse("unknown scheme")),
    }
}

fn is_database(path: &str) -> bool {
    let number = path.strip_prefix('/').unwrap_or(path);
    number.bytes().all(|byte| byte.is_ascii_digit())
}

fn without_password(url: &Url, text: &str) -> String {
    if url.password().is_none() {
        return text.into();
    }
    let mut url = url.clone();
    match url.set_password(Some("***")) {
        Ok(()) => url.into(),
        Err(()) => format!("{}:", url.scheme()),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn redis() {
        for good in [
            "redis://127.0.0.1:6379",
            "redis://localhost",
            "redis://[::1]:6379/3",
            "rediss://user:pw@redis.example.com:6380/",
            "unix:///run/redis.sock",
        ] {
            assert_eq!(RedisUrl::parse(good).map(|url| url.text), Ok(good.into()));
        }
        for bad in [
            "",
            "127.0.0.1:6379",
            "http://a",
            "redis://",
            "redis:///1",
            "redis://a/b",
            "redis://a:99999",
            "redis://a?x=1",
            "rediss://a/#insecure",
            "unix://",
            "unix://host/path",
        ] {
            assert!(RedisUrl::parse(bad).is_err(), "{bad}");
        }
    }

    #[test]
    fn a_password_is_not_displayed() {
        let url = RedisUrl::parse("redis://ann:hush@host:1/2").unwrap();
        assert_eq!(url.to_string(), "redis://ann:***@host:1/2");
        assert!(!format!("{url:?}").contains("hush"));
        assert!(RedisUrl::parse(&url.to_string()).is_ok());
        let refused = RedisUrl::parse("redis://ann:hush@host:x").unwrap_err();
        assert!(!refused.contains("hush"), "{refused}");
        let url = HttpUrl::parse("http://ann:hush@host/x").unwrap();
        assert!(!format!("{url:?} {url}").contains("hush"));
    }

    #[test]
    fn upstreams() {
        let good = [
            ("echo", "echo"),
            ("http://127.0.0.1:9000", "http://127.0.0.1:9000"),
            ("http://a.example/", "http://a.example:80"),
            ("https://[::1]", "https://[::1]:443"),
            ("h2c://10.0.0.1:9000", "h2c://10.0.0.1:9000"),
            ("h2c://a.example", "h2c://a.example:80"),
        ];
        for (text, shown) in good {
            assert_eq!(
                parse_upstream(text).map(|up| up.to_string()),
                Ok(shown.into())
            );
        }
        for bad in [
            "",
            "a:1",
            "ftp://a",
            "http://",
            "http://a/x",
            "http://a?x",
            "http://u@a",
            "h2c://",
            "h2c://a/x",
            "h2c://http://a",
            "h2://a",
        ] {
            assert!(parse_upstream(bad).is_err(), "{bad}");
        }
        let error = parse_upstream("grpc://a:1").map(|up| up.to_string());
        assert!(error.is_err_and(|it| it.contains("(gRPC is h2c://")));
    }
}
