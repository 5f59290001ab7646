//! Bearer tokens, which are stored only as hashes.

use std::fmt;
use std::path::{Path, PathBuf};

use fluxgate_core::text::parse_sha256;
use fluxgate_http::Problem;
use http::StatusCode;
use sha2::{Digest, Sha256};
use subtle::ConstantTimeEq;

use crate::config::{Secret, SecretError};
use crate::watch::FileValue;

/// The permissions of a token. Each role includes the roles before it.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub(crate) enum Role {
    /// Reads rules and state.
    Viewer,
    /// Refunds, resets, and enables and disables rules.
    Operator,
    /// Writes and deletes rules.
    Admin,
}

impl Role {
    const ALL: [Self; 3] = [Self::Viewer, Self::Operator, Self::Admin];

    pub(crate) const fn name(self) -> &'static str {
        match self {
            Self::Viewer => "viewer",
            Self::Operator => "operator",
            Self::Admin => "admin",
        }
    }
}

/// A token.
#[derive(Clone)]
pub(super) struct Token {
    pub(super) name: String,
    pub(super) role: Role,
    sha256: [u8; 32],
}

impl fmt::Debug for Token {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}:{}:(hash)", self.name, self.role.name())
    }
}

/// The caller of an admin endpoint, as named in the audit log.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct Caller {
    /// The name of the token, or `loopback`.
    pub(crate) name: String,
    pub(crate) role: Role,
}

impl Caller {
    /// Returns the caller with this token, if its role suffices.
    pub(super) fn with_role(token: &Token, role: Role) -> Result<Self, Problem> {
        if token.role < role {
            return Err(Problem::new(
                StatusCode::FORBIDDEN,
                format!(
                    "this needs the role {}; `{}` has the role {}",
                    role.name(),
                    token.name,
                    token.role.name()
                ),
            ));
        }
        Ok(Self {
            name: token.name.clone(),
            role: token.role,
        })
    }
}

/// All tokens.
#[derive(Clone, Debug)]
pub(super) struct Tokens(Vec<Token>);

/// The file of the tokens.
#[derive(Clone, Debug)]
pub(super) struct TokensFile(pub(super) PathBuf);

impl FileValue for TokensFile {
    type Content = Secret;
    type Value = Tokens;
    type Error = TokensError;

    fn replaced_message(&self) -> String {
        "the tokens of the admin API have changed".into()
    }

    fn kept_message(&self) -> String {
        "the admin API keeps its tokens".into()
    }

    fn read(&self) -> Result<Secret, TokensError> {
        Ok(Secret::read_text("admin.tokens_file", &self.0)?)
    }

    fn build(&self, content: &Secret) -> Result<Tokens, TokensError> {
        Tokens::parse(&self.0, content.as_text().unwrap_or_default())
    }
}

/// An unusable tokens file.
#[derive(Debug, thiserror::Error)]
pub(crate) enum TokensError {
    /// The file cannot be read.
    #[error(transparent)]
    Unreadable(#[from] SecretError),
    /// The content is invalid. Displays one line per fault.
    #[error("{}", lines(path, faults))]
    Invalid {
        /// The file.
        path: PathBuf,
        /// The number of each invalid line, and its message.
        faults: Vec<(usize, &'static str)>,
    },
}

fn lines(path: &Path, faults: &[(usize, &'static str)]) -> String {
    let path = path.display();
    let lines = faults
        .iter()
        .map(|(line, what)| format!("{path}:{line}:1: {what}"));
    lines.collect::<Vec<_>>().join("\n")
}

impl Tokens {
    /// Parses lines of `name:role:sha256`. Blank lines and lines that begin with `#` are
    /// ignored. Messages do not quote a line, because it may be a secret in the wrong file.
    pub(super) fn parse(path: &Path, text: &str) -> Result<Self, TokensError> {
        let mut tokens: Vec<Token> = Vec::new();
        let mut faults = Vec::new();
        for (index, line) in text.lines().enumerate() {
            let line = line.trim();
            if line.is_empty() || line.starts_with('#') {
                continue;
            }
            match parse_token(line) {
                Ok(token) if tokens.iter().any(|known| known.sha256 == token.sha256) => {
                    faults.push((index + 1, "this token is already in the file"));
                }
                Ok(token) => tokens.push(token),
                Err(what) => faults.push((index + 1, what)),
            }
        }
        if tokens.is_empty() && faults.is_empty() {
            faults.push((1, "the file has no tokens"));
        }
        if faults.is_empty() {
            Ok(Self(tokens))
        } else {
            Err(TokensError::Invalid {
                path: path.into(),
                faults,
            })
        }
    }

    /// Finds a token. The time this takes reveals neither how close a guess is nor where the
    /// token is in the file.
    pub(super) fn find(&self, token: &[u8]) -> Option<&Token> {
        let hash: [u8; 32] = Sha256::digest(token).into();
        let mut found = None;
        for known in &self.0 {
            if bool::from(known.sha256.ct_eq(&hash)) {
                found = Some(known);
            }
        }
        found
    }
}

fn parse_token(line: &str) -> Result<Token, &'static str> {
    let parts: Vec<_> = line.split(':').collect();
    let [name, role, sha256] = parts[..] else {
        return Err("a line must be name:role:sha256");
    };
    let is_plain = |byte: u8| byte.is_ascii_alphanumeric() || b"-_.@".contains(&byte);
    if name.is_empty() || name.len() > 64 || !name.bytes().all(is_plain) {
        return Err("the name must have 1 to 64 of the characters A-Z a-z 0-9 - _ . @");
    }
    let role = Role::ALL
        .into_iter()
        .find(|known| known.name() == role)
        .ok_or("the role must be viewer, operator or admin")?;
    let sha256 = parse_sha256(sha256).ok_or("the hash must be a SHA-256: 64 hexadecimal digits")?;
    Ok(Token {
        name: name.into(),
        role,
        sha256,
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    /// The SHA-256 of `secret`.
    const HASH: &str = "2bb80d537b1da3e38bd30361aa855686bde0eacd7162fef6a25fe97bf527a25b";

    fn parse(text: &str) -> Result<Tokens, String> {
        Tokens::parse(Path::new("tokens"), text).map_err(|error| error.to_string())
    }

    #[test]
    fn a_token_is_found_by_its_hash() {
        let text = format!("# who\n\n ann:operator:{}\n", HASH.to_uppercase());
        let tokens = parse(&text).unwrap();
        let found = tokens.find(b"secret").unwrap();
        assert_eq!((&*found.name, found.role), ("ann", Role::Operator));
        for other in [&b""[..], b"secre", b"secret ", HASH.as_bytes()] {
            assert!(tokens.find(other).is_none());
        }
    }

    #[test]
    fn every_invalid_line_is_reported_with_its_position_but_not_quoted() {
        let text = format!(
            "ann\nann:root:{HASH}\nann:admin:12\n:admin:{HASH}\nb:viewer:{HASH}\nc:admin:{HASH}"
        );
        let error = parse(&text).unwrap_err();
        let starts: Vec<_> = error.lines().map(|line| &line[..11]).collect();
        assert_eq!(
            starts,
            [
                "tokens:1:1:",
                "tokens:2:1:",
                "tokens:3:1:",
                "tokens:4:1:",
                "tokens:6:1:"
            ]
        );
        assert!(!error.contains(HASH) && !error.contains("root"));
        assert_eq!(
            parse("# none\n").unwrap_err(),
            "tokens:1:1: the file has no tokens"
        );
    }
}
