//! A rule file on an HTTP server.

use std::fmt;
use std::sync::Arc;
use std::time::Duration;

use bytes::Bytes;
use fluxgate_core::regular_file;
use fluxgate_core::regular_file::MAX_BYTES;
use fluxgate_core::rules::RuleOptions;
use fluxgate_http::{CallError, ClientCertificates, Endpoint};
use http::header::{ACCEPT, AUTHORIZATION, ETAG, IF_NONE_MATCH};
use http::{HeaderValue, Request, StatusCode};
use http_body_util::{BodyExt, Full, LengthLimitError, Limited};

use super::cache_file::CacheFile;
use super::error::ReloadError;
use super::rule_files::compile_files;
use super::snapshot::{CompiledRules, Document, Snapshot, run_blocking};
use super::source::{BoxFuture, KnownSnapshots, RuleSource};
use crate::config::{Deployment, HttpRulesConfig};
use crate::failure::{Exit, Failure};

/// How long a response may take, to the end of its body.
const DEADLINE: Duration = Duration::from_secs(10);
/// More than any token or certificate needs.
const MAX_FILE_BYTES: u64 = 1 << 20;

/// A rule file at a URL.
#[derive(Debug)]
pub(super) struct HttpRules {
    config: HttpRulesConfig,
    endpoint: Endpoint,
    options: RuleOptions,
    deployment: Arc<Deployment>,
    cache: Option<CacheFile>,
}

/// Why there is no rule file.
#[derive(Debug, thiserror::Error)]
enum FetchError {
    #[error("no response within {} s", DEADLINE.as_secs())]
    Deadline,
    #[error(transparent)]
    Call(#[from] CallError),
    #[error("invalid request: {0}")]
    Request(#[from] http::Error),
    #[error("the response has status {0}, not 200")]
    Status(StatusCode),
    #[error("the body has more than {MAX_BYTES} bytes")]
    TooLarge,
    #[error("the body of the response cannot be read: {0}")]
    Body(Box<dyn std::error::Error + Send + Sync>),
}

impl FetchError {
    /// Returns whether the server is down or failing.
    fn is_outage(&self) -> bool {
        match self {
            Self::Deadline | Self::Call(_) | Self::Body(_) => true,
            Self::Status(status) => status.is_server_error(),
            Self::Request(_) | Self::TooLarge => false,
        }
    }
}

impl HttpRules {
    pub(super) fn new(
        config: &HttpRulesConfig,
        options: RuleOptions,
        deployment: Deployment,
    ) -> Result<Self, Failure> {
        let field = "rules_from.http";
        let failure = |why: String| Failure::of_field(Exit::NoInput, field, why);
        let ca = config.ca.as_ref().map(|path| {
            regular_file::read(path, MAX_FILE_BYTES)
                .map_err(|error| failure(format!("`{field}.ca`: {}: {error}", path.display())))
        });
        let ca = ca.transpose()?;
        let certificates = ClientCertificates {
            ca: ca.as_deref(),
            ..ClientCertificates::default()
        };
        let endpoint = Endpoint::new(config.url.as_str(), certificates)
            .map_err(|error| failure(format!("`{field}`: {error}")))?;
        let deployment = Arc::new(deployment);
        let cache = config.cache_file.clone();
        Ok(Self {
            cache: cache.map(|path| CacheFile::new(path, options, Arc::clone(&deployment))),
            config: config.clone(),
            endpoint,
            options,
            deployment,
        })
    }

    /// Reads the token, which may have been replaced since the last time.
    async fn authorization(&self) -> Result<Option<HeaderValue>, ReloadError> {
        let Some(path) = self.config.token_file.clone() else {
            return Ok(None);
        };
        run_blocking(move || {
            let unreadable =
                |why: String| ReloadError::Unreadable(format!("{}: {why}", path.display()));
            let token = regular_file::read(&path, MAX_FILE_BYTES)
                .map_err(|error| unreadable(error.to_string()))?;
            let token = token.trim_ascii();
            if token.is_empty() {
                return Err(unreadable("expected a token, found an empty file".into()));
            }
            let mut value = HeaderValue::from_bytes(&[b"Bearer ", token].concat())
                .map_err(|_| unreadable("expected one line with a token".into()))?;
            value.set_sensitive(true);
            Ok(Some(value))
        })
        .await
    }

    async fn fetch(
        &self,
        authorization: Option<HeaderValue>,
        known: &KnownSnapshots,
    ) -> Result<Arc<Snapshot>, FetchError> {
        let mut request = Request::get(self.endpoint.path_and_query())
            .header(ACCEPT, "application/yaml, application/json, text/plain");
        if let Some(authorization) = authorization {
            request = request.header(AUTHORIZATION, authorization);
        }
        // One tag only, so that a 304 without a tag is clear.
        let known = known.newest_with_version();
        if let Some((_, etag)) = known {
            request = request.header(IF_NONE_MATCH, etag);
        }
        let response = self.endpoint.send(request.body(Full::default())?).await?;
        match (response.status(), known) {
            (StatusCode::OK, _) => {}
            (StatusCode::NOT_MODIFIED, Some((snapshot, _))) => return Ok(Arc::clone(snapshot)),
            (status, _) => return Err(FetchError::Status(status)),
        }
        let version = response.headers().get(ETAG);
        let version = version.and_then(|etag| etag.to_str().ok().map(str::to_owned));
        let body = Limited::new(response.into_body(), MAX_BYTES as usize).collect();
        let body: Bytes = body
            .await
            .map_err(|error| match error.downcast::<LengthLimitError>() {
                Ok(_) => FetchError::TooLarge,
                Err(error) => FetchError::Body(error),
            })?
            .to_bytes();
        Ok(Arc::new(Snapshot {
            version,
            documents: vec![Document {
                name: self.config.url.to_string(),
                content: body.into(),
            }],
            warnings: Vec::new(),
        }))
    }
}

impl RuleSource for HttpRules {
    fn kind(&self) -> &'static str {
        "http"
    }

    fn poll(&self) -> Duration {
        self.config.poll
    }

    fn read<'a>(
        &'a self,
        known: &'a KnownSnapshots,
    ) -> BoxFuture<'a, Result<Arc<Snapshot>, ReloadError>> {
        Box::pin(async move {
            let authorization = self.authorization().await?;
            let fetched = tokio::time::timeout(DEADLINE, self.fetch(authorization, known)).await;
            fetched
                .unwrap_or(Err(FetchError::Deadline))
                .map_err(|error| {
                    let why = format!("{}: {error}", self.config.url);
                    if error.is_outage() {
                        ReloadError::NoAnswer(why)
                    } else {
                        ReloadError::Unreadable(why)
                    }
                })
        })
    }

    fn compile(&self, snapshot: &Snapshot) -> Result<CompiledRules, ReloadError> {
        let url = self.config.url.to_string();
        compile_files(&snapshot.documents, self.options, &self.deployment, &url)
    }

    fn is_server(&self) -> bool {
        true
    }

    fn cache(&self) -> Option<&CacheFile> {
        self.cache.as_ref()
    }
}

impl fmt::Display for HttpRules {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}", self.config.url)
    }
}
