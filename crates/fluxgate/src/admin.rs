//! Access to the admin API: tokens and roles, cross-origin requests and the audit log.

mod audit;
mod cross_origin;
mod tokens;
mod wrong_tokens;

use std::net::{IpAddr, Ipv6Addr};
use std::sync::Arc;
use std::time::Duration;

use fluxgate_core::rules::RuleOptions;
use fluxgate_http::{INVALID_TOKEN_CHALLENGE, Problem};
use fluxgate_redis::HashKeys;
use http::request::Parts;
use http::{HeaderValue, StatusCode, header};

pub(crate) use audit::{
    AuditedChange, may_have_been_applied, reason_of, reserve_audit_line, write_audit_line,
};
pub(crate) use tokens::{Caller, Role, TokensError};

use crate::config::{Config, Deployment};
use crate::events::Events;
use crate::failure::{Exit, Failure};
use crate::reload::ReloadHandle;
use crate::serve::PeerAddress;
use crate::telemetry::{AdminDenial, Telemetry, now};
use crate::watch::ReloadedFile;
use tokens::TokensFile;
use wrong_tokens::WrongTokens;

/// Authorizes calls of the admin API, and holds the state that changes of rules need.
#[derive(Debug)]
pub(crate) struct AdminAccess {
    tokens: Option<ReloadedFile<TokensFile>>,
    wrong_tokens: WrongTokens,
    telemetry: Arc<Telemetry>,
    events: Arc<Events>,
    /// Whether the API listens on a loopback address.
    on_loopback: bool,
    /// The options for rules that are written.
    pub(crate) options: RuleOptions,
    /// The parts of the config that warnings about rules depend on.
    pub(crate) deployment: Deployment,
    /// Whether no response may show identities.
    pub(crate) hides_identities: bool,
    pub(crate) reloader: ReloadHandle,
    /// Held while a stored rule set is changed. Changes by one instance wait for each other,
    /// so that only other instances can cause conflicts.
    pub(crate) write_lock: tokio::sync::Mutex<()>,
}

impl AdminAccess {
    /// Creates it from the config, and reads the tokens.
    pub(crate) fn new(
        config: &Config,
        reloader: ReloadHandle,
        events: Arc<Events>,
    ) -> Result<Self, TokensError> {
        let api = config.listen.api.as_ref().map(|api| api.address);
        let tokens = config.admin.tokens_file.clone().map(TokensFile);
        Ok(Self {
            tokens: tokens.map(ReloadedFile::new).transpose()?,
            wrong_tokens: WrongTokens::default(),
            telemetry: Arc::clone(events.engine().telemetry()),
            events,
            on_loopback: api.is_none_or(|api| api.ip().to_canonical().is_loopback()),
            options: config.rule_options(),
            deployment: Deployment::of(config),
            hides_identities: config.keys.hash_keys == HashKeys::All,
            reloader,
            write_lock: tokio::sync::Mutex::default(),
        })
    }

    /// Reloads the tokens whenever their file changes. Never returns.
    pub(crate) async fn keep_current(&self) {
        if let Some(tokens) = &self.tokens {
            tokens.keep_current().await;
        }
    }

    /// Authorizes a call that only lists the rules. Without tokens, every caller may.
    pub(crate) fn authorize_reader(&self, head: &Parts) -> Result<(), Problem> {
        match &self.tokens {
            Some(_) => self.authorize(head, Role::Viewer).map(drop),
            // DNS rebinding would reveal the rules to a page of another site.
            None if self.on_loopback => cross_origin::check(head),
            None => Ok(()),
        }
    }

    /// Authorizes a call that needs a role.
    pub(crate) fn authorize(&self, head: &Parts, role: Role) -> Result<Caller, Problem> {
        let Some(tokens) = &self.tokens else {
            return self.authorize_without_token(head);
        };
        let (peer, now) = (peer_of(head), self.telemetry.since_start(now()));
        let denied = |denial| self.telemetry.record_admin_denial(denial);
        // A valid token is refused too: the caller must not learn whether a token is valid.
        if let Some(left) = self.wrong_tokens.blocked_for(peer, now) {
            denied(AdminDenial::Blocked);
            return Err(too_many_wrong_tokens(left));
        }
        let Some(token) = bearer_token(head) else {
            denied(AdminDenial::NoToken);
            return Err(Problem::unauthorized(
                "a bearer token is required",
                HeaderValue::from_static("Bearer"),
            ));
        };
        let tokens = tokens.current();
        let Some(known) = tokens.find(token) else {
            denied(AdminDenial::WrongToken);
            if let Some(address) = self.wrong_tokens.record(peer, now) {
                tracing::warn!(
                    %address,
                    "too many wrong admin tokens; calls of this address that need a token are \
                     refused for a minute"
                );
                self.events.record_wrong_tokens(address.to_string());
            }
            return Err(Problem::unauthorized(
                "the bearer token is unknown",
                INVALID_TOKEN_CHALLENGE,
            ));
        };
        Caller::with_role(known, role).inspect_err(|_| denied(AdminDenial::Role))
    }

    /// Authorizes a long call again: its token may have been revoked since it began.
    pub(crate) fn is_still_authorized(&self, head: &Parts, role: Role) -> bool {
        let Some(tokens) = &self.tokens else {
            return true;
        };
        let tokens = tokens.current();
        let known = bearer_token(head).and_then(|token| tokens.find(token));
        known.is_some_and(|known| Caller::with_role(known, role).is_ok())
    }

    /// Returns whether calls need a token.
    pub(crate) fn has_tokens(&self) -> bool {
        self.tokens.is_some()
    }

    /// Refuses a call that changes something, including charges, if a browser sends it for a
    /// page of another origin. Calls that do not come from a browser pass.
    pub(crate) fn refuse_cross_origin(&self, head: &Parts) -> Result<(), Problem> {
        cross_origin::check_browser(head, self.on_loopback)
    }

    fn authorize_without_token(&self, head: &Parts) -> Result<Caller, Problem> {
        if !self.on_loopback {
            return Err(Problem::new(
                StatusCode::FORBIDDEN,
                "without `admin.tokens_file`, this is allowed only if `listen.api` is a \
                 loopback address",
            ));
        }
        cross_origin::check(head)?;
        Ok(Caller {
            name: "loopback".into(),
            role: Role::Admin,
        })
    }
}

impl From<TokensError> for Failure {
    fn from(error: TokensError) -> Self {
        match error {
            TokensError::Unreadable(error) => error.into(),
            // Each line names its place in the file of the tokens.
            TokensError::Invalid { .. } => Self::new(Exit::Config, error),
        }
    }
}

/// Returns the address of the client. Only tests call the API without a connection.
fn peer_of(head: &Parts) -> IpAddr {
    let peer = head.extensions.get::<PeerAddress>();
    peer.map_or(Ipv6Addr::UNSPECIFIED.into(), |peer| peer.0)
}

fn too_many_wrong_tokens(left: Duration) -> Problem {
    let seconds = left.as_secs() + u64::from(left.subsec_nanos() > 0);
    let detail = "too many wrong tokens came from this address; try again later";
    Problem::new(StatusCode::TOO_MANY_REQUESTS, detail)
        .with_header(header::RETRY_AFTER, HeaderValue::from(seconds))
}

fn bearer_token(head: &Parts) -> Option<&[u8]> {
    let value = head.headers.get(header::AUTHORIZATION)?.as_bytes();
    let (scheme, token) = value.split_at_checked(7)?;
    let token = token.trim_ascii();
    (scheme.eq_ignore_ascii_case(b"bearer ") && !token.is_empty()).then_some(token)
}
