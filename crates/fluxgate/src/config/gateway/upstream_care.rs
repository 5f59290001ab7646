//! How a route takes care of its upstreams: health checks and retries.

use std::collections::HashSet;
use std::time::Duration;

use fluxgate_core::Percent;
use fluxgate_gateway::{HealthConfig, RetryConfig, RetryOn};

use super::values::read_methods;
use crate::config::section::Section;
use crate::config::tree;

/// Reads the active health check of a route, if it has one.
pub(super) fn read_health(route: &mut Section<'_, '_>) -> Option<HealthConfig> {
    const FIELDS: &[&str] = &[
        "path",
        "interval",
        "timeout",
        "healthy",
        "unhealthy",
        "status",
    ];
    const MAX_STREAK: u32 = 100;
    let health = route.optional_section("health", FIELDS, |section| {
        let Some(node) = section.get("path") else {
            section.missing("`health` needs `path`, such as /healthz");
            return None;
        };
        let path = node.text("`path`", section.faults)?;
        let is_visible = |byte: u8| byte.is_ascii_graphic() && byte != b'#';
        if !path.starts_with('/') || !path.bytes().all(is_visible) {
            let message = "`path` must begin with / and have no spaces and no fragment";
            section.fault(node, message);
        }
        section.show("path", tree::text(path));
        Some(HealthConfig {
            path: path.to_owned(),
            interval: section.duration("interval", Duration::from_secs(5)),
            timeout: section.duration("timeout", Duration::from_secs(1)),
            healthy: section.whole("healthy", 1..=MAX_STREAK, 2),
            unhealthy: section.whole("unhealthy", 1..=MAX_STREAK, 3),
            status: section.whole("status", 200..=599, 200),
        })
    });
    health.flatten()
}

/// Reads which requests of a route are tried again, if it says so.
pub(super) fn read_retry(route: &mut Section<'_, '_>) -> Option<RetryConfig> {
    const FIELDS: &[&str] = &["attempts", "on", "methods", "budget"];
    const MAX_ATTEMPTS: u32 = 10;
    const BUDGET: Percent = Percent::new(20);
    route.optional_section("retry", FIELDS, |section| {
        let methods = read_retried_methods(section);
        let budget = match section.get("budget") {
            Some(_) => section.parsed("budget", |text| {
                text.parse::<Percent>()
                    .map_err(|error| format!("must be a share: {error}"))
            }),
            None => {
                section.show("budget", tree::text(BUDGET.to_string()));
                None
            }
        };
        RetryConfig {
            attempts: section.whole("attempts", 2..=MAX_ATTEMPTS, 2),
            on: read_retry_on(section),
            methods,
            budget: budget.unwrap_or(BUDGET),
        }
    })
}

fn read_retried_methods(section: &mut Section<'_, '_>) -> Vec<String> {
    let mut methods = read_methods(section);
    if section.get("methods").is_none() {
        methods = ["GET", "HEAD", "OPTIONS"].map(str::to_owned).into();
    }
    section.show("methods", tree::texts(&methods));
    methods
}

/// Reads the failures that are tried again. By default these are all that can be named, but for 500.
fn read_retry_on(section: &mut Section<'_, '_>) -> RetryOn {
    let mut names = HashSet::new();
    let mut on = RetryOn::default();
    for node in section.list("on") {
        let Some(name) = node.text("a failure", section.faults) else {
            continue;
        };
        if !names.insert(name) {
            section.fault(node, format!("`{name}` appears twice"));
        }
        match (name, name.parse::<u16>()) {
            ("connect", _) => on.connect = true,
            ("reset", _) => on.reset = true,
            (_, Ok(status @ 500..=599)) => on.statuses.push(status),
            _ => {
                let message =
                    format!("`on` lists connect, reset and statuses from 500 to 599, not `{name}`");
                section.fault(node, message);
            }
        }
    }
    if section.get("on").is_none() {
        on = RetryOn {
            connect: true,
            reset: true,
            statuses: vec![502, 503, 504],
        };
    }
    let kinds = [("connect", on.connect), ("reset", on.reset)];
    let kinds = kinds.into_iter().filter(|(_, is_on)| *is_on);
    let kinds = kinds.map(|(name, _)| name.to_owned());
    let statuses = on.statuses.iter().map(u16::to_string);
    section.show("on", tree::texts(kinds.chain(statuses)));
    on
}
