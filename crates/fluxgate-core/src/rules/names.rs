//! The names that rules may have.

/// The most bytes of a name or an id.
pub(super) const MAX_NAME: usize = 200;

pub(super) fn is_set_name(name: &str) -> bool {
    !name.is_empty() && name.len() <= MAX_NAME && !name.chars().any(char::is_control)
}

pub(super) fn is_rule_id(id: &str) -> bool {
    let is_alphanumeric = |byte: u8| byte.is_ascii_lowercase() || byte.is_ascii_digit();
    let is_allowed = |byte: u8| is_alphanumeric(byte) || b"_-".contains(&byte);
    is_id(id, is_alphanumeric, is_allowed)
}

pub(super) fn is_band_id(id: &str) -> bool {
    let is_alphanumeric = |byte: u8| byte.is_ascii_alphanumeric();
    let is_allowed = |byte: u8| is_alphanumeric(byte) || b"_.-".contains(&byte);
    is_id(id, is_alphanumeric, is_allowed)
}

fn is_id(id: &str, starts: impl Fn(u8) -> bool, continues: impl Fn(u8) -> bool) -> bool {
    let first = id.bytes().next();
    first.is_some_and(starts) && id.bytes().all(continues) && id.len() <= MAX_NAME
}

/// Returns the name of a header in lower case, or `None` if it is not one.
pub(super) fn lower_header_name(name: &str) -> Option<Box<str>> {
    let is_token = |byte: u8| byte.is_ascii_alphanumeric() || b"!#$%&'*+-.^_`|~".contains(&byte);
    let is_name = !name.is_empty() && name.bytes().all(is_token);
    is_name.then(|| name.to_ascii_lowercase().into())
}
