//! Headers that some servers take for others. CGI and what descends from it know no
//! difference between `X-User-Id` and `X_User_Id`.

use http::{HeaderMap, HeaderName};

use super::Filter;
use crate::head::RequestHead;

impl Filter {
    /// Whether the name of a header, in whatever case, differs only by `_` for `-` from one
    /// that this filter reads, or that its rules ask about (`of_rules`, in lower case).
    /// Such a header must not reach the service: it may take its value for the one that
    /// was counted.
    pub fn is_underscore_variant(&self, name: &str, of_rules: &[Box<str>]) -> bool {
        if !name.contains('_') {
            return false;
        }
        let mut is_like_one = false;
        let own = [
            &*self.identity.user,
            &*self.identity.api_key,
            self.client_ip.header_name(),
        ];
        for known in own.into_iter().chain(of_rules.iter().map(|name| &**name)) {
            if known.eq_ignore_ascii_case(name) {
                return false;
            }
            is_like_one |= is_alike(known, name);
        }
        is_like_one
    }

    /// Whether a request has such a header.
    pub fn has_underscore_variant(&self, head: &impl RequestHead, of_rules: &[Box<str>]) -> bool {
        let mut headers = head.all_headers();
        headers.any(|(name, _)| self.is_underscore_variant(name, of_rules))
    }

    /// Removes such headers.
    pub(crate) fn remove_lookalikes(&self, headers: &mut HeaderMap, of_rules: &[Box<str>]) {
        let names = headers.keys();
        let lookalikes = names.filter(|name| self.is_underscore_variant(name.as_str(), of_rules));
        let lookalikes: Vec<HeaderName> = lookalikes.cloned().collect();
        for name in lookalikes {
            headers.remove(name);
        }
    }

    /// Removes all lines but the first of the headers that say whom to count.
    pub(crate) fn keep_first_line(&self, headers: &mut HeaderMap) {
        self.identity.keep_first_line(headers);
    }
}

/// Whether two names are the same where `_` is `-` and case does not count.
fn is_alike(one: &str, other: &str) -> bool {
    let plain = |byte: u8| match byte {
        b'_' => b'-',
        byte => byte.to_ascii_lowercase(),
    };
    one.len() == other.len() && one.bytes().map(plain).eq(other.bytes().map(plain))
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::{ClientIpSource, Identity};

    #[test]
    fn only_names_that_differ_by_underscores_are_lookalikes() {
        let filter = Filter::default()
            .identity(Identity::default().api_key_header("x_key"))
            .client_ip(ClientIpSource::header("CF-Connecting-IP"));
        let of_rules = ["x-plan".into(), "x-a_b-c".into()];
        for (name, expected) in [
            ("X_User_Id", true),
            ("x-user_id", true),
            ("X-User-Id", false),
            ("x_user_idx", false),
            ("xUser_Id", false),
            ("x_key", false),
            ("cf_connecting_ip", true),
            ("x_forwarded_for", false),
            ("X_PLAN", true),
            ("x-a_b-c", false),
            ("x-a_b_c", true),
        ] {
            assert_eq!(
                filter.is_underscore_variant(name, &of_rules),
                expected,
                "{name}"
            );
        }
    }
}
