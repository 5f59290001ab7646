//! `fluxgate explain`: why a request is decided as it is, on an empty store or in a running
//! service.

use std::fmt;
use std::path::PathBuf;
use std::time::Duration;

use serde_json::Value;

use super::client::{self, OptionalServer};
use super::input::{load_rules, read_request};
use super::{Exit, Failure, print};
use crate::api::explain::{explain_offline, explanation_json};

/// The arguments of `fluxgate explain`.
#[derive(Debug, clap::Args)]
pub(crate) struct Arguments {
    /// The rules: a rule file, a config or a directory of rule files
    #[arg(long, value_name = "FILE", required_unless_present = "server")]
    rules: Option<PathBuf>,
    #[command(flatten)]
    service: OptionalServer,
    /// The request, as in `POST /v1/check`: JSON, `@FILE`, or `-` for standard input
    #[arg(long, value_name = "JSON")]
    request: String,
    /// The rule set, if the request names none (default: the only rule set)
    #[arg(long, value_name = "NAME")]
    rule_set: Option<String>,
    /// Print JSON, as `POST /v1/explain` answers
    #[arg(long)]
    json: bool,
}

/// Prints the decision and how each rule contributes to it.
pub(crate) fn run(arguments: &Arguments) -> Result<(), Failure> {
    let request = read_request(&arguments.request)?;
    let rule_set = arguments.rule_set.as_deref();
    let explanation = match &arguments.rules {
        Some(rules) => {
            let instead = "ask the running service with --server";
            let rules = load_rules(rules, instead)?;
            let explanation = explain_offline(rules, &request, rule_set).map_err(|problem| {
                Failure::new(Exit::Data, format!("--request: {}", problem.detail()))
            })?;
            String::from_utf8_lossy(&explanation_json(&explanation, &[])).into()
        }
        None => {
            let request = with_rule_set(request, rule_set)?;
            client::explain(&arguments.service.required(), request)?.to_string()
        }
    };
    if arguments.json {
        return print(&format!("{explanation}\n"));
    }
    let explanation: Value = serde_json::from_str(&explanation)
        .map_err(|error| Failure::new(Exit::Unavailable, format!("no explanation: {error}")))?;
    print(&ExplanationText(&explanation).to_string())
}

/// Adds the rule set to a request that names none.
fn with_rule_set(request: Vec<u8>, rule_set: Option<&str>) -> Result<Vec<u8>, Failure> {
    let Some(rule_set) = rule_set else {
        return Ok(request);
    };
    let invalid = |error| Failure::new(Exit::Data, format!("--request: {error}"));
    let mut fields: serde_json::Map<String, serde_json::Value> =
        serde_json::from_slice(&request).map_err(invalid)?;
    fields.entry("rule_set").or_insert_with(|| rule_set.into());
    serde_json::to_vec(&fields).map_err(invalid)
}

/// An explanation in the form of the API as text: the decision, and a block for each rule.
struct ExplanationText<'a>(&'a Value);

impl fmt::Display for ExplanationText<'_> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let Self(explanation) = self;
        write_decision(f, &explanation["decision"])?;
        for rule in list(&explanation["rules"]) {
            write_rule(f, rule)?;
        }
        Ok(())
    }
}

fn text(value: &Value) -> &str {
    value.as_str().unwrap_or_default()
}

fn list(value: &Value) -> &[Value] {
    value.as_array().map_or(&[], Vec::as_slice)
}

fn texts(value: &Value) -> Vec<&str> {
    list(value).iter().map(text).collect()
}

fn write_decision(f: &mut fmt::Formatter<'_>, decision: &Value) -> fmt::Result {
    let outcome = text(&decision["outcome"]);
    write!(f, "{outcome}")?;
    let (rule, band) = (text(&decision["rule"]), decision["band"].as_str());
    if let Some(band) = band {
        let (left, limit) = (&decision["remaining"], &decision["limit"]);
        write!(f, ": {rule}/{band}, {left} of {limit} left")?;
    }
    if matches!(outcome, "forbidden" | "exempt") {
        write!(f, ": by {rule}")?;
    } else if decision["allowed"] != true {
        match millis(&decision["retry_after_ms"]) {
            Some(wait) => write!(f, ", retry after {}", span(wait))?,
            None => {
                let separator = if band.is_some() { ";" } else { ":" };
                write!(f, "{separator} denied, and waiting does not help")?;
            }
        }
    }
    match millis(&decision["delay_ms"]) {
        None | Some(Duration::ZERO) => writeln!(f)?,
        Some(delay) => writeln!(f, ", delayed by {}", span(delay))?,
    }
    let violated = texts(&decision["violated"]);
    if violated.is_empty() {
        return Ok(());
    }
    writeln!(f, "violated: {}", violated.join(", "))
}

fn write_rule(f: &mut fmt::Formatter<'_>, rule: &Value) -> fmt::Result {
    write!(f, "\n{}: ", text(&rule["rule"]))?;
    match (rule["failed"].as_str(), rule["list"].as_str()) {
        (Some("enabled"), _) => writeln!(f, "disabled")?,
        (Some("key"), _) => writeln!(f, "does not match: its key is missing")?,
        (Some(failed), Some(list)) => writeln!(f, "does not match: match.{failed} (list {list})")?,
        (Some(failed), None) => writeln!(f, "does not match: match.{failed}")?,
        (None, _) if rule["applies"] == true => writeln!(f, "applies")?,
        (None, _) => writeln!(f, "matches, but does not apply")?,
    }
    if let Some(action) = rule["action"].as_str() {
        writeln!(f, "  action: {action}")?;
    }
    if let Some(name) = rule["group"]["name"].as_str() {
        write!(f, "  group: {name}, place {}", rule["group"]["place"])?;
        match rule["group"]["instead"].as_str() {
            Some(instead) => writeln!(f, "; {instead} applies instead")?,
            None => writeln!(f)?,
        }
    }
    let (mode, identity) = (text(&rule["mode"]), rule["identity"].as_str());
    if let Some(rollout) = rule["rollout"].as_str() {
        write!(f, "  rollout: {rollout}")?;
        match identity {
            Some(_) => writeln!(f, "; {mode} for this identity")?,
            None => writeln!(f)?,
        }
    } else if mode == "shadow" {
        writeln!(f, "  mode: shadow")?;
    }
    if let Some(share) = rule["lease"]["share"].as_str() {
        writeln!(f, "  lease: {share} for {}", text(&rule["lease"]["for"]))?;
    }
    let missing = texts(&rule["missing"]);
    if !missing.is_empty() {
        let verb = if missing.len() == 1 { "is" } else { "are" };
        write!(f, "  key: {} {verb} missing", missing.join(", "))?;
        match rule["on_missing_key"].as_str() {
            Some(effect) => writeln!(f, " (on_missing_key: {effect})")?,
            None => writeln!(f)?,
        }
    }
    if let Some(identity) = identity {
        writeln!(f, "  identity: {identity}")?;
    }
    for band in list(&rule["bands"]) {
        write_band(f, band)?;
    }
    Ok(())
}

fn write_band(f: &mut fmt::Formatter<'_>, band: &Value) -> fmt::Result {
    let (before, after) = (&band["before"], &band["after"]);
    let (id, limit) = (text(&band["band"]), &band["limit"]);
    write!(f, "  band {id}: {} of {limit} left", before["remaining"])?;
    if band["denies"] == true {
        write!(f, ", denies")?;
    } else {
        write!(f, ", {} after it", after["remaining"])?;
    }
    if let Some(units) = band["on_lease"].as_u64() {
        write!(f, ", {units} on lease")?;
    }
    match millis(&after["reset_after_ms"]) {
        None | Some(Duration::ZERO) => writeln!(f),
        Some(reset) => writeln!(f, "; full in {}", span(reset)),
    }
}

fn millis(value: &Value) -> Option<Duration> {
    value.as_u64().map(Duration::from_millis)
}

/// Writes a duration of up to an hour exactly, as `1.5s`, and a longer one by its two largest
/// units, as `13d 19h`, rounded up.
fn span(span: Duration) -> String {
    const HOUR: u64 = 60;
    const DAY: u64 = 24 * HOUR;
    if span <= Duration::from_secs(3600) {
        return format!("{span:?}");
    }
    let minutes = span.as_micros().div_ceil(60_000_000);
    match u64::try_from(minutes).unwrap_or(u64::MAX) {
        minutes if minutes < DAY => format!("{}h {}m", minutes / HOUR, minutes % HOUR),
        minutes => {
            let hours = minutes.div_ceil(HOUR);
            format!("{}d {}h", hours / 24, hours % 24)
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn long_spans_are_rounded_up_to_their_two_largest_units() {
        for (micros, text) in [
            (1_500_000, "1.5s"),
            (3_600_000_000, "3600s"),
            (3_600_000_001, "1h 1m"),
            (86_399_000_001, "1d 0h"),
            (1_192_734_563_182, "13d 20h"),
        ] {
            assert_eq!(span(Duration::from_micros(micros)), text);
        }
    }
}
