//! Headers whose names differ only by `_` for `-`. CGI and its descendants do not distinguish
//! `X_User_Id` from `X-User-Id`.

use http::{HeaderMap, HeaderName};

use super::Filter;
use crate::request_head::RequestHead;

impl Filter {
    /// Returns whether the name of a header, in any case, differs only by `_` for `-` from one
    /// that this filter or its rules read. `rule_headers` are in lower case.
    ///
    /// Such a header must not reach the server, which may take it for the one that was counted.
    pub fn is_underscore_variant(&self, name: &str, rule_headers: &[Box<str>]) -> bool {
        if !name.contains('_') {
            return false;
        }
        let mut is_variant = false;
        let own = self.source_headers().chain([self.client_ip.header_name()]);
        let rule_headers = rule_headers.iter().map(|name| &**name);
        for known in own.chain(rule_headers) {
            if known.eq_ignore_ascii_case(name) {
                return false;
            }
            is_variant |= is_same_but_for_underscores(known, name);
        }
        is_variant
    }

    /// Returns whether a request has such a header.
    pub fn has_underscore_variant(
        &self,
        head: &impl RequestHead,
        rule_headers: &[Box<str>],
    ) -> bool {
        let mut headers = head.all_headers();
        headers.any(|(name, _)| self.is_underscore_variant(name, rule_headers))
    }

    /// Removes such headers.
    pub(crate) fn remove_underscore_variants(
        &self,
        headers: &mut HeaderMap,
        rule_headers: &[Box<str>],
    ) {
        let names = headers.keys();
        let variants = names.filter(|name| self.is_underscore_variant(name.as_str(), rule_headers));
        let variants: Vec<HeaderName> = variants.cloned().collect();
        for name in variants {
            headers.remove(name);
        }
    }

    /// Removes all lines but the first of the headers that are sources.
    pub(crate) fn keep_first_line(&self, headers: &mut HeaderMap) {
        self.sources.keep_first_line(headers);
    }
}

fn is_same_but_for_underscores(one: &str, other: &str) -> bool {
    let normalize = |byte: u8| match byte {
        b'_' => b'-',
        byte => byte.to_ascii_lowercase(),
    };
    one.len() == other.len() && one.bytes().map(normalize).eq(other.bytes().map(normalize))
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::client_ip::ClientIpSource;
    use crate::context::Identity;
    use crate::source::Source;

    #[test]
    fn only_names_that_differ_by_underscores_are_variants() {
        let filter = Filter::default()
            .identity(Identity::default().api_key_header("x_key"))
            .attribute("tenant", Source::header("X-Tenant-Id"))
            .attribute("plan", Source::cookie("x-cookie"))
            .client_ip(ClientIpSource::header("CF-Connecting-IP"));
        let rule_headers = ["x-plan".into(), "x-a_b-c".into()];
        for (name, expected) in [
            ("X_User_Id", true),
            ("x-user_id", true),
            ("X-User-Id", false),
            ("x_user_idx", false),
            ("xUser_Id", false),
            ("x_key", false),
            ("X_Tenant-Id", true),
            ("x-tenant-id", false),
            ("x_cookie", false),
            ("cf_connecting_ip", true),
            ("x_forwarded_for", false),
            ("X_PLAN", true),
            ("x-a_b-c", false),
            ("x-a_b_c", true),
        ] {
            assert_eq!(
                filter.is_underscore_variant(name, &rule_headers),
                expected,
                "{name}"
            );
        }
    }
}
