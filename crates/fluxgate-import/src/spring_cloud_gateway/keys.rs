//! Key resolvers. They are Java beans, and a configuration has only their names.

use fluxgate_core::{KeyPart, OnMissingKey};

/// The key of a rule.
#[derive(Debug, PartialEq)]
pub(super) struct RuleKey {
    pub(super) part: KeyPart,
    pub(super) on_missing_key: OnMissingKey,
    /// What to check, because the code of the resolver is not known.
    pub(super) remark: String,
}

/// Guesses the key of a resolver from its name. `denies_empty` says whether requests without a key
/// are denied.
pub(super) fn resolve(resolver: Option<&str>, denies_empty: bool) -> RuleKey {
    let on_missing_key = if denies_empty {
        OnMissingKey::Deny
    } else {
        OnMissingKey::Skip
    };
    let Some(resolver) = resolver else {
        return RuleKey {
            part: KeyPart::User,
            on_missing_key,
            remark: "the key is the principal, which Spring Security knows: `identity.user` of \
                     the filter says where FluxGate finds it"
                .into(),
        };
    };
    let name = bean_name(resolver);
    let words = camel_case_words(name);
    let has = |word: &str| words.iter().any(|it| it == word);
    let is_address = has("ip") || has("addr") || has("address") || has("host");
    let (part, source) = if has("principal") || has("user") || has("username") {
        let source = "the user, which `identity.user` of the filter finds";
        (KeyPart::User, source.to_owned())
    } else if has("apikey") || has("api") {
        let source = "the API key, which `identity.api_key` of the filter finds";
        (KeyPart::ApiKey, source.to_owned())
    } else if is_address {
        (KeyPart::Ip, "the client's address".to_owned())
    } else if has("path") || has("uri") || has("url") {
        (KeyPart::Path, "the path".to_owned())
    } else {
        let source = format!(
            "the attribute `{name}`, which the filter must set; until then the client's address \
             is the key"
        );
        (KeyPart::Attribute(name.into()), source)
    };
    let on_missing_key = match part {
        KeyPart::User | KeyPart::ApiKey => on_missing_key,
        _ => OnMissingKey::Ip,
    };
    RuleKey {
        part,
        on_missing_key,
        remark: format!("the key resolver `{name}` is Java code, taken for {source}"),
    }
}

/// Returns the attribute of a key that no filter sets yet.
pub(super) fn unset(part: &KeyPart) -> Option<String> {
    match part {
        KeyPart::Attribute(name) => Some(name.to_string()),
        _ => None,
    }
}

/// Returns the name of the bean in `#{@name}`.
fn bean_name(expression: &str) -> &str {
    let inside = expression.trim().strip_prefix("#{");
    let inside = inside.and_then(|it| it.strip_suffix('}'));
    let name = inside.unwrap_or(expression).trim();
    name.strip_prefix('@').unwrap_or(name)
}

/// Returns the words of a name such as `remoteAddrKeyResolver`, in lower case.
fn camel_case_words(name: &str) -> Vec<String> {
    let chars: Vec<char> = name.chars().collect();
    let mut words = vec![String::new()];
    for (index, char) in chars.iter().enumerate() {
        let before = index.checked_sub(1).map(|index| chars[index]);
        let is_last_of_acronym = chars.get(index + 1).is_some_and(|next| next.is_lowercase());
        let starts = char.is_uppercase()
            && before.is_some_and(|before| !before.is_uppercase() || is_last_of_acronym);
        if starts || !char.is_alphanumeric() {
            words.push(String::new());
        }
        if let Some(word) = words.last_mut().filter(|_| char.is_alphanumeric()) {
            word.extend(char.to_lowercase());
        }
    }
    words
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn names_of_resolvers_stand_for_keys() {
        for (resolver, expected) in [
            ("#{@userKeyResolver}", "user"),
            ("#{@principalNameKeyResolver}", "user"),
            ("#{ @ipKeyResolver }", "ip"),
            ("#{@remoteAddrKeyResolver}", "ip"),
            ("#{@hostAddressResolver}", "ip"),
            ("#{@IPKeyResolver}", "ip"),
            ("#{@apiKeyResolver}", "api_key"),
            ("by-api-key", "api_key"),
            ("#{@pathKeyResolver}", "path"),
            ("#{@tenantResolver}", "attr:tenantResolver"),
            ("#{@descriptionResolver}", "attr:descriptionResolver"),
        ] {
            let found = resolve(Some(resolver), true).part.to_string();
            assert_eq!(found, expected, "{resolver}");
        }
        assert_eq!(resolve(None, true).on_missing_key, OnMissingKey::Deny);
        assert_eq!(resolve(None, false).on_missing_key, OnMissingKey::Skip);
        let address = resolve(Some("#{@ipKeyResolver}"), true);
        assert_eq!(address.on_missing_key, OnMissingKey::Ip);
    }
}
