//! Who may look at rules and state through the API, and who may change them.

mod audit;
mod site;
mod tokens;

use fluxgate_core::RuleOptions;
use http::request::Parts;
use http::{HeaderValue, Method, StatusCode, header};

pub(crate) use audit::{Change, may_be_done};
pub(crate) use tokens::{Role, TokensError};

use crate::config::Config;
use crate::http::Problem;
use crate::reload::ReloadHandle;
use crate::watch::ReloadedFile;
use tokens::TokensFile;

/// Lets in who may come in, and knows where rules are written.
#[derive(Debug)]
pub(crate) struct Admin {
    tokens: Option<ReloadedFile<TokensFile>>,
    /// Whether the API can be reached from this machine only.
    on_loopback: bool,
    /// What rules that are written have to know.
    pub(crate) options: RuleOptions,
    pub(crate) reloader: ReloadHandle,
    /// Held by who changes a stored rule set: those of one instance wait for one
    /// another, so that only other instances come in between.
    pub(crate) writing: tokio::sync::Mutex<()>,
}

/// Who makes a call.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct Caller {
    /// The name that stands before the token, or `loopback`.
    pub(crate) name: String,
}

impl Admin {
    /// As the config says.
    pub(crate) fn new(config: &Config, reloader: ReloadHandle) -> Result<Self, TokensError> {
        let api = config.listen.api;
        let tokens = config.admin.tokens_file.clone().map(TokensFile);
        Ok(Self {
            tokens: tokens.map(ReloadedFile::new).transpose()?,
            on_loopback: api.is_none_or(|api| api.ip().to_canonical().is_loopback()),
            options: config.rule_options(),
            reloader,
            writing: tokio::sync::Mutex::default(),
        })
    }

    /// Knows the tokens that the file holds by then; for ever.
    pub(crate) async fn keep_current(&self) {
        if let Some(tokens) = &self.tokens {
            tokens.keep_current().await;
        }
    }

    /// Lets a call in that shows only what rules there are: anybody's, unless
    /// there are tokens.
    pub(crate) fn admit_reader(&self, head: &Parts) -> Result<(), Problem> {
        match &self.tokens {
            Some(_) => self.admit(head, Role::Viewer).map(drop),
            // A name that was made to lead here shows it to a page of another site.
            None if self.on_loopback => site::check(head),
            None => Ok(()),
        }
    }

    /// Lets a call in that needs this role.
    pub(crate) fn admit(&self, head: &Parts, role: Role) -> Result<Caller, Problem> {
        let Some(tokens) = &self.tokens else {
            return self.admit_without_token(head);
        };
        let Some(token) = bearer_token(head) else {
            return Err(unauthorized("a bearer token is needed", "Bearer"));
        };
        let tokens = tokens.current();
        let Some(known) = tokens.find(token) else {
            let challenge = "Bearer error=\"invalid_token\"";
            return Err(unauthorized("the bearer token is not known", challenge));
        };
        if known.role < role {
            return Err(Problem::new(
                StatusCode::FORBIDDEN,
                format!(
                    "this needs the role {}; `{}` is {}",
                    role.name(),
                    known.name,
                    known.role.name()
                ),
            ));
        }
        Ok(Caller {
            name: known.name.clone(),
        })
    }

    /// Lets a call in that changes something. It must say that it sends JSON,
    /// which the forms of other sites cannot.
    pub(crate) fn admit_change(&self, head: &Parts, role: Role) -> Result<Caller, Problem> {
        let caller = self.admit(head, role)?;
        if head.method != Method::DELETE {
            require_json(head)?;
        }
        Ok(caller)
    }

    /// Lets a call in that changes something by its path alone. Only if there is
    /// a body must it say that this is JSON.
    pub(crate) fn admit_switch(
        &self,
        head: &Parts,
        has_body: bool,
        role: Role,
    ) -> Result<Caller, Problem> {
        let caller = self.admit(head, role)?;
        if has_body {
            require_json(head)?;
        }
        Ok(caller)
    }

    /// Refuses a call that changes something, a charge included, if a browser sends it
    /// for a page of another origin; calls of programs pass.
    pub(crate) fn refuse_other_sites(&self, head: &Parts) -> Result<(), Problem> {
        site::check_browser(head, self.on_loopback)
    }

    fn admit_without_token(&self, head: &Parts) -> Result<Caller, Problem> {
        if !self.on_loopback {
            return Err(Problem::new(
                StatusCode::FORBIDDEN,
                "without `admin.tokens_file` this is served only where `listen.api` is a \
                 loopback address",
            ));
        }
        site::check(head)?;
        Ok(Caller {
            name: "loopback".into(),
        })
    }
}

fn bearer_token(head: &Parts) -> Option<&[u8]> {
    let value = head.headers.get(header::AUTHORIZATION)?.as_bytes();
    let (scheme, token) = value.split_at_checked(7)?;
    let token = token.trim_ascii();
    (scheme.eq_ignore_ascii_case(b"bearer ") && !token.is_empty()).then_some(token)
}

fn require_json(head: &Parts) -> Result<(), Problem> {
    if is_json(head) {
        return Ok(());
    }
    Err(Problem::new(
        StatusCode::UNSUPPORTED_MEDIA_TYPE,
        "`Content-Type` must be application/json",
    ))
}

fn is_json(head: &Parts) -> bool {
    let value = head.headers.get(header::CONTENT_TYPE);
    let value = value.and_then(|value| value.to_str().ok());
    let kind = value.and_then(|value| value.split(';').next());
    kind.is_some_and(|kind| kind.trim().eq_ignore_ascii_case("application/json"))
}

fn unauthorized(detail: &str, challenge: &'static str) -> Problem {
    Problem::new(StatusCode::UNAUTHORIZED, detail).with_header(
        header::WWW_AUTHENTICATE,
        HeaderValue::from_static(challenge),
    )
}
