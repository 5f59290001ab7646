//! Connection strings of MongoDB. Secrets in them are never displayed.

use std::fmt;

/// What a connection string looks like.
const FORM: &str = "mongodb://USER:PASSWORD@HOST:PORT,HOST:PORT/?OPTIONS";

/// A connection string. Displayed without its password and other secrets.
#[derive(Clone, PartialEq, Eq)]
pub struct MongoUrl(String);

impl MongoUrl {
    /// Returns the text with its password.
    pub fn as_str(&self) -> &str {
        &self.0
    }

    /// Parses a connection string. The error says nothing of its content.
    pub(crate) fn parse(text: &str) -> Result<Self, String> {
        if text.starts_with("mongodb+srv://") {
            return Err(format!(
                "must name the hosts themselves, as in {FORM}: mongodb+srv is not supported"
            ));
        }
        if !text.starts_with("mongodb://") {
            return Err(format!("must be a connection string such as {FORM}"));
        }
        check(text)?;
        Ok(Self(text.to_owned()))
    }
}

/// Checks a connection string as the driver does.
#[cfg(feature = "mongodb")]
fn check(text: &str) -> Result<(), String> {
    let Err(error) = mongodb::options::ConnectionString::parse(text) else {
        return Ok(());
    };
    // The driver quotes what it cannot read, which may be part of a password.
    let has_secret = text.contains('@') || options(text).any(|(name, _)| is_secret(name));
    match &*error.kind {
        mongodb::error::ErrorKind::InvalidArgument { message, .. } if !has_secret => Err(format!(
            "must be a connection string such as {FORM}: {message}"
        )),
        _ => Err(format!(
            "must be a connection string such as {FORM}; in a user name and a password, write \
             special characters as percent escapes"
        )),
    }
}

#[cfg(not(feature = "mongodb"))]
fn check(_: &str) -> Result<(), String> {
    Ok(())
}

/// Returns the names and values of the options.
fn options(text: &str) -> impl Iterator<Item = (&str, &str)> {
    let options = text.split_once('?').map_or("", |(_, options)| options);
    let pairs = options.split('&').filter(|pair| !pair.is_empty());
    pairs.map(|pair| pair.split_once('=').unwrap_or((pair, "")))
}

/// Returns whether the value of an option is a secret.
fn is_secret(name: &str) -> bool {
    let name = name.to_ascii_lowercase();
    name.contains("password") || name == "authmechanismproperties"
}

impl fmt::Display for MongoUrl {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let (before, _) = self.0.split_once('?').unwrap_or((&self.0, ""));
        match before.rsplit_once('@') {
            Some((user, hosts)) => {
                let user = user.strip_prefix("mongodb://").unwrap_or(user);
                let (user, colon) = user.split_once(':').map_or((user, ""), |it| (it.0, ":***"));
                write!(f, "mongodb://{user}{colon}@{hosts}")?;
            }
            None => f.write_str(before)?,
        }
        for (index, (name, value)) in options(&self.0).enumerate() {
            let separator = if index == 0 { '?' } else { '&' };
            let value = if is_secret(name) { "***" } else { value };
            write!(f, "{separator}{name}={value}")?;
        }
        Ok(())
    }
}

impl fmt::Debug for MongoUrl {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "MongoUrl({self})")
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn secrets_are_not_displayed() {
        for (text, shown) in [
            ("mongodb://127.0.0.1:27017", "mongodb://127.0.0.1:27017"),
            (
                "mongodb://a:1,b/db?replicaSet=rs0&tls=true",
                "mongodb://a:1,b/db?replicaSet=rs0&tls=true",
            ),
            (
                "mongodb://ann:hu%40sh@a:1,b:2/?authSource=admin",
                "mongodb://ann:***@a:1,b:2/?authSource=admin",
            ),
            ("mongodb://ann@a/", "mongodb://ann@a/"),
            (
                "mongodb://a/?tls=true&tlsCertificateKeyFilePassword=hush",
                "mongodb://a/?tls=true&tlsCertificateKeyFilePassword=***",
            ),
        ] {
            // Without the driver's check, which refuses options that it was built without.
            let url = MongoUrl(text.to_owned());
            assert_eq!(url.to_string(), shown);
            let debug = format!("{url:?}");
            assert!(!debug.contains("hu"), "{debug}");
        }
    }

    #[test]
    fn errors_do_not_contain_secrets() {
        for text in [
            "mongodb+srv://ann:hush@a",
            "http://ann:hush@a",
            "hush",
            #[cfg(feature = "mongodb")]
            "mongodb://ann:hu?sh@a",
            #[cfg(feature = "mongodb")]
            "mongodb://ann:hu/sh@a",
            #[cfg(feature = "mongodb")]
            "mongodb://ann:hu@sh@a",
            #[cfg(feature = "mongodb")]
            "mongodb://a/?tlsCertificateKeyFilePassword=hush&x",
        ] {
            let error = MongoUrl::parse(text).unwrap_err();
            assert!(!error.contains("hu") && !error.contains("sh@"), "{error}");
        }
    }

    #[cfg(feature = "mongodb")]
    #[test]
    fn errors_say_why() {
        for (text, expected) in [("mongodb://a:x", "port"), ("mongodb://a/?x", "key=value")] {
            let error = MongoUrl::parse(text).unwrap_err();
            assert!(
                error.to_lowercase().contains(&expected.to_lowercase()),
                "{error}"
            );
        }
    }
}
