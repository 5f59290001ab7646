//! `GET /v1/denials`: who was denied, by rule, identity and minute.

mod csv;
mod grouped;

use std::sync::Arc;

use axum::extract::State;
use axum::response::Response;
use fluxgate_http::Problem;
use fluxgate_redis::record::RecordedRule;
use http::header::{CONTENT_DISPOSITION, CONTENT_TYPE};
use http::request::Parts;
use http::{HeaderName, HeaderValue};
use serde::Serialize;

use super::history::history_of;
use super::query;
use super::response::{ApiResult, compressed_json, json_response};
use super::state::SharedState;
use crate::admin::Role;
use crate::history::{DenialCursor, DenialQuery, DenialReply, DenialRow, DeniedId, IdentityTest};
use crate::identities::Identities;
use csv::write_csv_line;
use grouped::Page;

const DEFAULT_COUNT: usize = 100;
const MAX_COUNT: usize = 10_000;
/// The maximum, and the default, of the forms that programs export.
const MAX_EXPORTED: usize = 100_000;
const CSV: HeaderValue = HeaderValue::from_static("text/csv; charset=utf-8; header=present");
const NDJSON: HeaderValue = HeaderValue::from_static("application/x-ndjson");
const CURSOR: HeaderName = HeaderName::from_static("x-fluxgate-cursor");
const DROPPED: HeaderName = HeaderName::from_static("x-fluxgate-dropped");

/// The form of a response.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
enum Format {
    #[default]
    Json,
    Csv,
    Ndjson,
}

/// The fields of a query.
#[derive(Debug, Default, PartialEq, Eq)]
struct DenialFields {
    rule_set: Option<String>,
    rule: Option<String>,
    from: Option<u64>,
    to: Option<u64>,
    identity: Option<String>,
    count: Option<String>,
    cursor: Option<DenialCursor>,
    format: Format,
    search: Option<String>,
    /// Whether there is one row for each rule and identity.
    is_grouped: bool,
    offset: Option<usize>,
}

/// A row as it is shown.
#[derive(Debug, Serialize)]
struct ShownDenial<'a> {
    rule_set: Option<&'a str>,
    rule: Option<&'a str>,
    band: Option<&'a str>,
    outcome: &'a str,
    identity: Option<String>,
    handle: Option<String>,
    first_ms: u64,
    last_ms: u64,
    count: u64,
    method: Option<&'a str>,
    path: Option<&'a str>,
}

#[derive(Serialize)]
struct DenialPage<'a> {
    denials: Vec<ShownDenial<'a>>,
    cursor: Option<String>,
    dropped: u64,
}

/// A page of rows that are summed by rule and identity.
#[derive(Serialize)]
struct GroupedPage<'a> {
    denials: Vec<ShownDenial<'a>>,
    /// There is none: `offset` continues.
    cursor: Option<&'a str>,
    /// How many rows the whole list has.
    total: usize,
    /// Whether all rows of the range are summed.
    complete: bool,
    dropped: u64,
}

/// Returns rows of denials, the newest first, or those with the most denials.
pub(super) async fn denials(State(api): SharedState, head: Parts) -> ApiResult {
    api.admin.authorize(&head, Role::Viewer)?;
    let fields = DenialFields::read(head.uri.query().unwrap_or_default())?;
    let history = history_of(&api)?;
    let format = fields.format;
    let page = fields.page()?;
    let query = fields.into_query(api.engine.identities())?;
    let reply = history.denials(query).await?;
    let identities = Arc::clone(api.engine.identities());
    // A long page takes a while.
    let work = move || {
        Ok(match page {
            Some(page) => compressed_json(&head.headers, grouped_json(reply, page, &identities)),
            None => respond(&reply, format, &identities),
        })
    };
    api.read_pool.run(work).await
}

impl DenialFields {
    fn read(query: &str) -> Result<Self, Problem> {
        let mut wanted = Self::default();
        for field in query::fields(query) {
            let (name, value) = field?;
            match &*name {
                "rule_set" => wanted.rule_set = query::name(value),
                "rule" => wanted.rule = query::name(value),
                "from" => wanted.from = Some(query::millis("from", &value)?),
                "to" => wanted.to = Some(query::millis("to", &value)?),
                "identity" => wanted.identity = query::name(value),
                "n" => wanted.count = Some(value),
                "search" => wanted.search = query::name(value),
                "group" => match &*value {
                    "identity" => wanted.is_grouped = true,
                    _ => return Err(query::expected("group", "identity", &value)),
                },
                "offset" => {
                    let offset = value.parse().ok();
                    let expected = || query::expected("offset", "a whole number", &value);
                    wanted.offset = Some(offset.ok_or_else(expected)?);
                }
                "cursor" => {
                    if let Some(value) = query::name(value) {
                        let cursor = DenialCursor::parse(&value);
                        let expected =
                            || query::expected("cursor", "one that was returned", &value);
                        wanted.cursor = Some(cursor.ok_or_else(expected)?);
                    }
                }
                "format" => {
                    wanted.format = match &*value {
                        "json" => Format::Json,
                        "csv" => Format::Csv,
                        "ndjson" => Format::Ndjson,
                        _ => return Err(query::expected("format", "json, csv or ndjson", &value)),
                    }
                }
                _ => return Err(query::unknown(&name)),
            }
        }
        Ok(wanted)
    }

    fn count(&self) -> Result<usize, Problem> {
        let (default, most) = match self.format {
            Format::Json => (DEFAULT_COUNT, MAX_COUNT),
            Format::Csv | Format::Ndjson => (MAX_EXPORTED, MAX_EXPORTED),
        };
        match &self.count {
            Some(count) => query::count("n", count, most),
            None => Ok(default),
        }
    }

    /// Returns which rows of a grouped list are wanted; `None` if it is not grouped.
    fn page(&self) -> Result<Option<Page>, Problem> {
        if !self.is_grouped {
            return match self.offset {
                Some(_) => Err(Problem::bad_request("`offset` needs `group=identity`")),
                None => Ok(None),
            };
        }
        if self.format != Format::Json || self.cursor.is_some() {
            let detail = "`group` cannot be combined with `format` or `cursor`";
            return Err(Problem::bad_request(detail));
        }
        Ok(Some(Page {
            offset: self.offset.unwrap_or_default(),
            count: self.count()?,
        }))
    }

    fn into_query(self, identities: &Arc<Identities>) -> Result<DenialQuery, Problem> {
        // All rows are summed before a page is cut.
        let count = if self.is_grouped {
            MAX_EXPORTED
        } else {
            self.count()?
        };
        let identity = self.identity.map(|text| identity_test(text, identities));
        let identity = match (identity.transpose()?, self.search) {
            (test, Some(text)) => Some(search_test(test, &text, identities)),
            (test, None) => test,
        };
        Ok(DenialQuery {
            rule_set: self.rule_set,
            rule: self.rule,
            from: self.from,
            to: self.to,
            identity,
            count,
            cursor: self.cursor,
        })
    }
}

/// Returns a test for the identities that a text means: a handle, `PART=VALUE` or what is shown.
fn identity_test(text: String, identities: &Arc<Identities>) -> Result<Box<IdentityTest>, Problem> {
    let identities = Arc::clone(identities);
    let handle = identities.open(&text).ok();
    let filter = identities.filter(&[&text]);
    let is_shown = text.starts_with(['~', '(']) || text == "anonymous" || text.contains(' ');
    if let Err(error) = &filter
        && handle.is_none()
        && !is_shown
    {
        return Err(Problem::bad_request(format!("`identity`: {error}")));
    }
    Ok(Box::new(move |rule: &RecordedRule, id: &DeniedId| {
        if let (Some(handle), DeniedId::Stored(identity)) = (&handle, id) {
            return *handle.rule_set == *rule.rule_set
                && *handle.rule == *rule.rule
                && handle.identity == *identity;
        }
        let is_found = match (&filter, id) {
            (Ok(filter), DeniedId::Stored(identity)) => identities.matches(filter, identity),
            _ => false,
        };
        is_found || show(id, &identities).is_some_and(|shown| shown == text)
    }))
}

/// Returns a test for the identities that show a text, and that pass `test`.
fn search_test(
    test: Option<Box<IdentityTest>>,
    text: &str,
    identities: &Arc<Identities>,
) -> Box<IdentityTest> {
    let (text, identities) = (text.to_lowercase(), Arc::clone(identities));
    Box::new(move |rule: &RecordedRule, id: &DeniedId| {
        let is_shown = match id {
            DeniedId::Stored(identity) => identities.is_shown_with(identity, &text),
            id => show(id, &identities).is_some_and(|shown| shown.contains(&text)),
        };
        is_shown && test.as_ref().is_none_or(|test| test(rule, id))
    })
}

fn show(id: &DeniedId, identities: &Identities) -> Option<String> {
    match id {
        DeniedId::None => None,
        DeniedId::Stored(identity) => Some(identities.show(identity)),
        DeniedId::Long(hash) => Some(identities.pseudonyms().of_value(hash)),
    }
}

impl<'a> ShownDenial<'a> {
    fn new(row: &'a DenialRow, identities: &Identities) -> Self {
        let named = |name: &'a str| Some(name).filter(|name| !name.is_empty());
        let RecordedRule { rule_set, rule } = &row.rule;
        let handle = match &row.identity {
            DeniedId::Stored(identity) => identities.handle(rule_set, rule, identity),
            DeniedId::None | DeniedId::Long(_) => None,
        };
        Self {
            rule_set: named(rule_set),
            rule: named(rule),
            band: row.detail.band.as_deref(),
            outcome: &row.detail.outcome,
            identity: show(&row.identity, identities),
            handle,
            first_ms: row.first_ms,
            last_ms: row.last_ms,
            count: row.count,
            method: row.detail.method.as_deref(),
            path: row.detail.path.as_deref(),
        }
    }
}

fn grouped_json(reply: DenialReply, page: Page, identities: &Identities) -> String {
    let rows = grouped::sum(reply.rows);
    let wanted = rows.iter().skip(page.offset).take(page.count);
    let list = GroupedPage {
        denials: wanted
            .map(|row| ShownDenial::new(row, identities))
            .collect(),
        cursor: None,
        total: rows.len(),
        complete: reply.cursor.is_none(),
        dropped: reply.dropped,
    };
    // Texts and numbers can always be written as JSON.
    serde_json::to_string(&list).unwrap_or_default()
}

fn respond(reply: &DenialReply, format: Format, identities: &Identities) -> Response {
    let rows = reply
        .rows
        .iter()
        .map(|row| ShownDenial::new(row, identities));
    let cursor = reply.cursor.as_ref().map(DenialCursor::to_text);
    // Texts and numbers have a form in JSON.
    let (kind, body) = match format {
        Format::Json => {
            let page = DenialPage {
                denials: rows.collect(),
                cursor,
                dropped: reply.dropped,
            };
            return json_response(serde_json::to_string(&page).unwrap_or_default());
        }
        Format::Csv => {
            let mut text = String::from(
                "rule_set,rule,band,outcome,identity,handle,first_ms,last_ms,count,method,path\r\n",
            );
            rows.for_each(|row| write_csv_line(&mut text, &row.texts()));
            (CSV, text)
        }
        Format::Ndjson => {
            let mut text = String::new();
            for row in rows {
                text += &serde_json::to_string(&row).unwrap_or_default();
                text.push('\n');
            }
            (NDJSON, text)
        }
    };
    let mut response = Response::new(body.into());
    let headers = response.headers_mut();
    if format == Format::Csv {
        let file = HeaderValue::from_static("attachment; filename=\"denials.csv\"");
        headers.insert(CONTENT_DISPOSITION, file);
    }
    headers.insert(CONTENT_TYPE, kind);
    headers.insert(DROPPED, HeaderValue::from(reply.dropped));
    if let Some(cursor) = cursor.and_then(|cursor| HeaderValue::try_from(cursor).ok()) {
        headers.insert(CURSOR, cursor);
    }
    response
}

impl ShownDenial<'_> {
    fn texts(&self) -> [String; 11] {
        let text = |text: Option<&str>| text.unwrap_or_default().to_owned();
        [
            text(self.rule_set),
            text(self.rule),
            text(self.band),
            self.outcome.to_owned(),
            text(self.identity.as_deref()),
            text(self.handle.as_deref()),
            self.first_ms.to_string(),
            self.last_ms.to_string(),
            self.count.to_string(),
            text(self.method),
            text(self.path),
        ]
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_query_is_read_strictly() {
        let read = |query| DenialFields::read(query).map_err(|problem| problem.detail().to_owned());
        let fields =
            read("rule_set=api&rule=r&from=1&to=2&identity=user%3Dann&format=csv").unwrap();
        assert_eq!(fields.identity.as_deref(), Some("user=ann"));
        assert_eq!(fields.count().unwrap(), MAX_EXPORTED);
        assert_eq!(read("").unwrap().count().unwrap(), 100);
        assert_eq!(read("cursor=&identity=").unwrap(), DenialFields::default());
        let page = read("group=identity&n=5&offset=10").unwrap().page();
        assert_eq!(
            page.unwrap(),
            Some(Page {
                offset: 10,
                count: 5
            })
        );
        for bad in ["offset=1", "group=identity&format=csv"] {
            assert!(read(bad).unwrap().page().is_err(), "{bad}");
        }
        for bad in [
            "from=x",
            "cursor=x",
            "format=xml",
            "m=1",
            "to=1s",
            "group=rule",
            "offset=x",
        ] {
            assert!(read(bad).is_err(), "{bad}");
        }
        for bad in ["n=0", "n=10001", "n=x"] {
            assert!(read(bad).unwrap().count().is_err(), "{bad}");
        }
    }

    #[test]
    fn an_identity_must_have_a_form_that_is_known() {
        let identities = Arc::new(Identities::in_memory());
        for good in [
            "user=ann",
            "~0123456789ab",
            "(everyone)",
            "user=ann path=/x",
        ] {
            assert!(identity_test(good.into(), &identities).is_ok(), "{good}");
        }
        for bad in ["ann", "users=ann", "ip=ann"] {
            assert!(identity_test(bad.into(), &identities).is_err(), "{bad}");
        }
    }
}
