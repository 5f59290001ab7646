//! `fluxgate explain`: why a request is decided as it is, on an empty store.

use std::fmt::{self, Write as _};
use std::path::PathBuf;
use std::time::Duration;

use fluxgate_core::text::duration_text;
use fluxgate_core::{
    BandExplanation, Decision, Explanation, OnMissingKey, Outcome, RuleExplanation, RuleMode,
};

use super::client::{self, OptionalServer};
use super::input::{load_rules, read_request};
use super::{Exit, Failure, print};
use crate::api::explain::{action_name, explain_offline, explanation_json, mode_name};

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
    let Some(rules) = &arguments.rules else {
        let request = with_rule_set(request, arguments.rule_set.as_deref())?;
        let explanation = client::explain(&arguments.service.required(), request)?;
        return print(&format!("{explanation}\n"));
    };
    let instead = "ask the running service with --server";
    let rules = load_rules(rules, instead)?;
    let explanation = explain_offline(rules, &request, arguments.rule_set.as_deref())
        .map_err(|problem| Failure::new(Exit::Data, format!("--request: {}", problem.detail())))?;
    if arguments.json {
        let json = explanation_json(&explanation, &[]);
        return print(&format!("{}\n", String::from_utf8_lossy(&json)));
    }
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

/// An explanation as text: the decision, and a block for each rule.
struct ExplanationText<'a>(&'a Explanation);

impl fmt::Display for ExplanationText<'_> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let Explanation {
            decision, rules, ..
        } = self.0;
        writeln!(f, "{}", decision_line(decision))?;
        for rule in rules {
            write_rule(f, rule)?;
        }
        Ok(())
    }
}

fn decision_line(decision: &Decision) -> String {
    let mut line = decision.outcome().name().to_owned();
    // Writing to a string does not fail.
    if let (Some(rule), Some(band)) = (decision.rule(), decision.band()) {
        let (left, limit) = (decision.remaining().unwrap_or(0), band.capacity());
        let _ = write!(
            line,
            ": {}/{}, {left} of {limit} left",
            rule.id(),
            band.id()
        );
    }
    if let (Outcome::Forbidden | Outcome::Exempt, Some(rule)) =
        (decision.outcome(), decision.rule())
    {
        let _ = write!(line, ": by {}", rule.id());
    } else if !decision.allowed() {
        let _ = match decision.retry_after() {
            Some(wait) => write!(line, ", retry after {}", span(wait)),
            None => {
                let separator = if decision.band().is_some() { ";" } else { ":" };
                write!(line, "{separator} denied, and waiting does not help")
            }
        };
    }
    if !decision.delay().is_zero() {
        let _ = write!(line, ", delayed by {}", span(decision.delay()));
    }
    let violated: Vec<_> = decision.violated().map(|it| it.to_string()).collect();
    if !violated.is_empty() {
        let _ = write!(line, "\nviolated: {}", violated.join(", "));
    }
    line
}

fn write_rule(f: &mut fmt::Formatter<'_>, rule: &RuleExplanation) -> fmt::Result {
    let state = match (&rule.failed, rule.applies) {
        (Some(failed), _) if failed == "enabled" => "disabled".to_owned(),
        (Some(failed), _) if failed == "key" => "does not match: its key is missing".to_owned(),
        (Some(failed), _) => match &rule.list {
            Some(list) => format!("does not match: match.{failed} (list {list})"),
            None => format!("does not match: match.{failed}"),
        },
        (None, true) => "applies".to_owned(),
        (None, false) => "matches, but does not apply".to_owned(),
    };
    writeln!(f, "\n{}: {state}", rule.rule)?;
    if let Some(action) = action_name(rule.action) {
        writeln!(f, "  action: {action}")?;
    }
    if let Some(group) = &rule.group {
        write!(f, "  group: {}, place {}", group.name, group.place)?;
        match &group.instead {
            Some(instead) => writeln!(f, "; {instead} applies instead")?,
            None => writeln!(f)?,
        }
    }
    if let Some(rollout) = &rule.rollout {
        write!(f, "  rollout: {rollout}")?;
        match &rule.identity {
            Some(_) => writeln!(f, "; {} for this identity", mode_name(rule.mode))?,
            None => writeln!(f)?,
        }
    } else if rule.mode == RuleMode::Shadow {
        writeln!(f, "  mode: shadow")?;
    }
    if let Some(lease) = rule.lease {
        let (share, span) = (lease.share(), duration_text(lease.span()));
        writeln!(f, "  lease: {share} for {span}")?;
    }
    if !rule.missing.is_empty() {
        let parts: Vec<_> = rule.missing.iter().map(ToString::to_string).collect();
        let verb = if parts.len() == 1 { "is" } else { "are" };
        let (parts, effect) = (parts.join(", "), on_missing_name(rule.on_missing_key));
        writeln!(
            f,
            "  key: {parts} {verb} missing (on_missing_key: {effect})"
        )?;
    }
    if let Some(identity) = &rule.identity {
        writeln!(f, "  identity: {identity}")?;
    }
    for band in &rule.bands {
        write_band(f, band)?;
    }
    Ok(())
}

/// Returns the name in rules.
fn on_missing_name(on_missing: OnMissingKey) -> &'static str {
    match on_missing {
        OnMissingKey::Ip => "ip",
        OnMissingKey::Anonymous => "anonymous",
        OnMissingKey::Skip => "skip",
        OnMissingKey::Deny => "deny",
    }
}

fn write_band(f: &mut fmt::Formatter<'_>, band: &BandExplanation) -> fmt::Result {
    let BandExplanation { before, after, .. } = band;
    let (id, limit) = (before.band.id(), before.band.capacity());
    write!(f, "  band {id}: {} of {limit} left", before.remaining)?;
    if band.denies {
        write!(f, ", denies")?;
    } else {
        write!(f, ", {} after it", after.remaining)?;
    }
    match after.reset_after {
        Duration::ZERO => writeln!(f),
        reset => writeln!(f, "; full in {}", span(reset)),
    }
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
