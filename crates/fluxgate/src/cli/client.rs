//! Commands that call a running service.

mod health;
mod record;
mod rules;
mod server;
mod text;
mod top;

use http::Method;
use serde_json::{Value, json};

use super::input::read_request;
use super::{Exit, Failure, print};
pub(crate) use health::{HealthArguments, health};
pub(crate) use record::{
    DenialsArguments, EventsArguments, HistoryArguments, UsageArguments, denials, events, history,
    usage,
};
pub(crate) use rules::{RulesArguments, rules};
pub(crate) use server::{OptionalServer, ServerArguments};
use text::{Table, duration_of};
pub(crate) use top::TopArguments;

/// The arguments of `fluxgate check`.
#[derive(Debug, clap::Args)]
pub(crate) struct CheckArguments {
    #[command(flatten)]
    server: ServerArguments,
    /// The request, as in `POST /v1/check`: JSON, `@FILE`, or `-` for standard input
    #[arg(long, value_name = "JSON")]
    request: String,
}

/// The arguments of `fluxgate state`.
#[derive(Debug, clap::Args)]
pub(crate) struct StateArguments {
    #[command(flatten)]
    target: RuleIdentity,
    /// Print the response as JSON
    #[arg(long)]
    json: bool,
}

/// The arguments of `fluxgate refund`.
#[derive(Debug, clap::Args)]
pub(crate) struct RefundArguments {
    #[command(flatten)]
    target: RuleIdentity,
    /// How many units to refund
    #[arg(long, value_name = "N")]
    units: u64,
}

/// The arguments of `fluxgate reset`.
#[derive(Debug, clap::Args)]
pub(crate) struct ResetArguments {
    #[command(flatten)]
    target: RuleIdentity,
    /// Reset all identities of the rule
    #[arg(long, conflicts_with = "identity")]
    all: bool,
}

/// An identity of a rule.
#[derive(Debug, clap::Args)]
struct RuleIdentity {
    #[command(flatten)]
    server: ServerArguments,
    /// The rule, as `SET/RULE`
    #[arg(value_name = "SET/RULE")]
    rule: String,
    /// The values of the rule's key, in order; none for a global rule
    #[arg(value_name = "IDENTITY")]
    identity: Vec<String>,
}

impl RuleIdentity {
    /// Returns the fields that name it.
    fn fields(&self) -> Result<Value, Failure> {
        let (rule_set, rule) = self.rule.rsplit_once('/').ok_or_else(|| {
            let message = format!("{:?} is not a rule such as api/per-user", self.rule);
            Failure::new(Exit::Data, message)
        })?;
        Ok(json!({ "rule_set": rule_set, "rule": rule, "identity": self.identity }))
    }

    fn describe(&self) -> String {
        let identity = self.identity.join(", ");
        if identity.is_empty() {
            self.rule.clone()
        } else {
            format!("{} of {identity}", self.rule)
        }
    }
}

/// Sends a request to the service in `arguments`.
fn call(
    arguments: &ServerArguments,
    method: Method,
    path: &str,
    body: Option<Vec<u8>>,
) -> Result<Value, Failure> {
    let server = arguments.server()?;
    run(server.call(method, path, body))
}

/// Runs a call to its end.
fn run<T>(work: impl Future<Output = Result<T, Failure>>) -> Result<T, Failure> {
    let runtime = tokio::runtime::Builder::new_current_thread()
        .enable_all()
        .build()
        .map_err(|error| Failure::new(Exit::System, error))?;
    runtime.block_on(work)
}

/// Prints the decision about a request, which is charged. A denial ends with an exit code of
/// its own.
pub(crate) fn check(arguments: &CheckArguments) -> Result<(), Failure> {
    let request = read_request(&arguments.request)?;
    let decision = call(&arguments.server, Method::POST, "/v1/check", Some(request))?;
    print(&format!("{decision}\n"))?;
    if decision["allowed"] == true {
        Ok(())
    } else {
        Err(Failure::new(Exit::TryAgain, "denied"))
    }
}

/// Returns how a service would decide a request.
pub(crate) fn explain(server: &ServerArguments, request: Vec<u8>) -> Result<Value, Failure> {
    call(server, Method::POST, "/v1/explain", Some(request))
}

/// Prints what an identity has left.
pub(crate) fn state(arguments: &StateArguments) -> Result<(), Failure> {
    let target = &arguments.target;
    let fields = target.fields()?;
    let mut query = url::form_urlencoded::Serializer::new(String::new());
    for name in ["rule_set", "rule"] {
        query.append_pair(name, fields[name].as_str().unwrap_or_default());
    }
    for value in &target.identity {
        query.append_pair("identity", value);
    }
    let path = format!("/v1/state?{}", query.finish());
    let state = call(&target.server, Method::GET, &path, None)?;
    if arguments.json {
        return print(&format!("{state}\n"));
    }
    let mut table = Table::new(["BAND", "LIMIT", "LEFT", "FULL IN", "ON LEASE"]);
    for band in state["bands"].as_array().into_iter().flatten() {
        let reset = band["reset_after_ms"].as_u64().unwrap_or_default();
        let text = |name: &str| match &band[name] {
            Value::Null => "-".to_owned(),
            Value::String(text) => text.clone(),
            value => value.to_string(),
        };
        table.row([
            text("band"),
            text("limit"),
            text("remaining"),
            match reset {
                0 => "now".to_owned(),
                _ => duration_of(reset),
            },
            text("on_lease"),
        ]);
    }
    print(&table.to_string())
}

/// Refunds units.
pub(crate) fn refund(arguments: &RefundArguments) -> Result<(), Failure> {
    let target = &arguments.target;
    let mut fields = target.fields()?;
    fields["units"] = arguments.units.into();
    let body = fields.to_string().into_bytes();
    let answer = call(&target.server, Method::POST, "/v1/refund", Some(body))?;
    let line = format!(
        "refunded {} to {}: {} left\n",
        arguments.units,
        target.describe(),
        answer["remaining"]
    );
    print(&line)
}

/// Deletes the state of an identity or of a rule.
pub(crate) fn reset(arguments: &ResetArguments) -> Result<(), Failure> {
    let target = &arguments.target;
    let mut fields = target.fields()?;
    if arguments.all
        && let Some(fields) = fields.as_object_mut()
    {
        fields.remove("identity");
    }
    let body = fields.to_string().into_bytes();
    let answer = call(&target.server, Method::POST, "/v1/reset", Some(body))?;
    let plural = if answer["reset"] == 1 { "" } else { "s" };
    let line = format!(
        "reset {}: {} counter{plural}\n",
        target.describe(),
        answer["reset"]
    );
    print(&line)
}

/// Shows what happens, as a live table.
pub(crate) fn top(arguments: &TopArguments) -> Result<(), Failure> {
    run(top::run(arguments))
}
