//! Headers that servers may take for one that requests are counted by.

use http::{HeaderMap, HeaderName};

use super::Filter;
use crate::alike_names::{are_alike, is_plain_name};
use crate::checked_headers::remove_unread;
use crate::request_head::RequestHead;

impl Filter {
    /// Returns whether servers may take the header of this name for one that this filter or its
    /// rules read, although it is not. `rule_headers` are in lower case.
    ///
    /// Such a header must not reach the server.
    pub fn is_alike_header(&self, name: &str, rule_headers: &[Box<str>]) -> bool {
        if is_plain_name(name) && !self.reads_odd_headers(rule_headers) {
            return false;
        }
        let mut is_alike = false;
        for known in self.read_headers(rule_headers) {
            if known.eq_ignore_ascii_case(name) {
                return false;
            }
            is_alike |= are_alike(known.as_bytes(), name.as_bytes());
        }
        is_alike
    }

    /// Returns whether this filter or its rules read the header of this name.
    pub fn reads_header(&self, name: &str, rule_headers: &[Box<str>]) -> bool {
        let mut names = self.read_headers(rule_headers);
        names.any(|known| known.eq_ignore_ascii_case(name))
    }

    /// Returns whether this filter or its rules read a header whose name is not
    /// [plain](is_plain_name). Only then may a header with a plain name be alike to one of them.
    pub fn reads_odd_headers(&self, rule_headers: &[Box<str>]) -> bool {
        self.has_odd_source || rule_headers.iter().any(|name| !is_plain_name(name))
    }

    pub(super) fn find_odd_sources(mut self) -> Self {
        let mut names = self.read_headers(&[]);
        let has_odd_source = names.any(|name| !is_plain_name(name));
        drop(names);
        self.has_odd_source = has_odd_source;
        self
    }

    /// Returns whether a request has a header that servers may take for one that is read, or
    /// for one that proxies set.
    pub fn has_alike_header(&self, head: &impl RequestHead, rule_headers: &[Box<str>]) -> bool {
        let mut headers = head.all_headers();
        headers.any(|(name, _)| {
            imitates_proxy_header(name) || self.is_alike_header(name, rule_headers)
        })
    }

    /// Removes all headers whose names servers may take for another, unless they are read by
    /// their exact names. Rules may read any header.
    pub fn remove_unread_headers(&self, headers: &mut HeaderMap, rule_headers: &[Box<str>]) {
        remove_unread(headers, |name| self.reads_header(name, rule_headers));
    }

    /// Removes headers that are alike to one that is read.
    pub fn remove_alike_headers(&self, headers: &mut HeaderMap, rule_headers: &[Box<str>]) {
        let names = headers.keys();
        let alike = names.filter(|name| self.is_alike_header(name.as_str(), rule_headers));
        let alike: Vec<HeaderName> = alike.cloned().collect();
        for name in alike {
            headers.remove(name);
        }
    }

    /// Removes all lines but the first of the headers that are sources.
    pub fn keep_first_line(&self, headers: &mut HeaderMap) {
        self.sources.keep_first_line(headers);
    }

    /// Returns the names of all headers that requests are counted by or matched.
    fn read_headers<'a>(&'a self, rule_headers: &'a [Box<str>]) -> impl Iterator<Item = &'a str> {
        let own = self.sources.read_headers();
        let own = own.chain(self.client_ip.header_names());
        own.chain(rule_headers.iter().map(|name| &**name))
    }
}

/// Returns whether servers may take the header of this name for one that concerns the message
/// itself, or that proxies write, although it is not.
pub fn imitates_proxy_header(name: &str) -> bool {
    const NAMES: [&str; 21] = [
        "connection",
        "content-length",
        "content-type",
        "cookie",
        "expect",
        "forwarded",
        "host",
        "http2-settings",
        "keep-alive",
        "proxy",
        "proxy-authenticate",
        "proxy-authorization",
        "proxy-connection",
        "te",
        "trailer",
        "transfer-encoding",
        "upgrade",
        "x-original-url",
        "x-real-ip",
        "x-request-id",
        "x-rewrite-url",
    ];
    const PREFIX: &[u8] = b"x-forwarded";
    if is_plain_name(name) {
        return false;
    }
    let name = name.as_bytes();
    let is_other = |byte: &u8| !byte.is_ascii_alphanumeric();
    let start = name.iter().position(|byte| !is_other(byte)).unwrap_or(0);
    let prefix = name.get(start..start + PREFIX.len());
    let has_prefix = prefix.is_some_and(|prefix| are_alike(prefix, PREFIX))
        && name.get(start + PREFIX.len()).is_some_and(is_other);
    has_prefix || NAMES.iter().any(|known| are_alike(known.as_bytes(), name))
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::client_ip::ClientIpSource;
    use crate::context::Identity;
    use crate::source::Source;

    #[test]
    fn only_names_that_are_not_read_are_alike() {
        let filter = Filter::default()
            .identity(Identity::default().api_key_header("x_key"))
            .attribute("tenant", Source::header("X-Tenant-Id"))
            .attribute("plan", Source::cookie("x-cookie"))
            .client_ip(ClientIpSource::header("CF-Connecting-IP"));
        let rule_headers = ["x-plan".into(), "x-a_b-c".into()];
        for (name, expected) in [
            ("X_User_Id", true),
            ("x-user_id", true),
            ("X.User.Id", true),
            ("X~User~Id", true),
            ("_X-User-Id", true),
            ("X-User-Id", false),
            ("x_user_idx", false),
            ("xUser_Id", false),
            ("x_key", false),
            ("x-key", true),
            ("X_Tenant-Id", true),
            ("x-tenant-id", false),
            ("x_cookie", false),
            ("_cookie", true),
            ("cookie", false),
            ("cf_connecting_ip", true),
            ("x_forwarded_for", false),
            ("X_PLAN", true),
            ("x-a_b-c", false),
            ("x-a_b_c", true),
            ("x-a-b-c", true),
        ] {
            let is_alike = filter.is_alike_header(name, &rule_headers);
            assert_eq!(is_alike, expected, "{name}");
        }
        let plain = Filter::default();
        assert!(!plain.reads_odd_headers(&[]) && plain.reads_odd_headers(&["a_b".into()]));
        assert!(filter.reads_odd_headers(&[]));
    }

    #[test]
    fn headers_of_proxies_cannot_be_imitated() {
        for name in [
            "X_Forwarded_For",
            "X.Forwarded.For",
            "-x-forwarded-anything",
            "X~Original~URL",
            "x-rewrite_url",
            "_Host",
            "Content.Length",
            "Transfer_Encoding",
            "Proxy_",
            "x_request_id",
        ] {
            assert!(imitates_proxy_header(name), "{name}");
        }
        for name in [
            "X-Forwarded-For",
            "Content-Length",
            "Host",
            "x_forwardedfor",
            "x_forwarded",
            "x_original_urls",
            "sec_ch_ua",
        ] {
            assert!(!imitates_proxy_header(name), "{name}");
        }
    }
}
