//! Decides recorded requests, each at the time that it states.

use std::borrow::Cow;
use std::io::{self, BufWriter, Read, Write};
use std::sync::mpsc;

use fluxgate_core::json::JsonWriter;
use fluxgate_core::{Decision, OnMissingRuleSet, RequestContext, RuleSets, Settled, Timestamp};

use crate::changes::{Changes, OldRules};
use crate::event::{Event, EventKind, RecordedRequest, RecordedSettlement};
use crate::input::{self, Block, BlockReader, Format};
use crate::replay::Replay;
use crate::report::{Report, ReportLabels};
use crate::summary::Summary;
use crate::warm_start::StartCharge;

const OUTPUT_BUFFER: usize = 256 * 1024;

/// The most rule sets that do not exist and that a report names.
const MAX_MISSING_NAMES: usize = 20;

/// How requests are replayed.
#[derive(Clone, Debug, Default)]
pub struct Options {
    /// How the requests are recorded.
    pub format: Format,
    /// The rule set for requests that name none; by default the only one, if there
    /// is only one.
    pub rule_set: Option<String>,
    /// Whether bad lines are skipped and counted. The first one ends the run
    /// otherwise.
    pub lenient: bool,
    /// Whether to count for a [`Summary`].
    pub summary: bool,
    /// Whether to collect what [`Simulation::report`] shows.
    pub report: bool,
    /// How many rules may be applied in all, to bound time and memory. Only counted with a
    /// summary.
    pub max_applied: Option<u64>,
}

/// Why a run ended early.
#[derive(Debug, thiserror::Error)]
pub enum SimulationError {
    /// The input cannot be read.
    #[error("cannot read the input: {0}")]
    Input(#[source] io::Error),
    /// The output cannot be written.
    #[error("cannot write the output: {0}")]
    Output(#[source] io::Error),
    /// A line is not a request that can be decided.
    #[error("line {line}: {reason}")]
    BadLine {
        /// The number of the line, from 1.
        line: u64,
        /// The fault. Control characters are escaped.
        reason: String,
    },
    /// More rules would be applied than [`Options::max_applied`].
    #[error("line {line}: {max} rules have been applied to requests, the most that is allowed")]
    TooMuch {
        /// The number of the line, from 1.
        line: u64,
        /// The most that is allowed.
        max: u64,
    },
}

/// How far a run has come.
#[derive(Clone, Copy, Debug)]
pub struct Progress {
    /// How many bytes of the input have been read.
    pub bytes: u64,
    /// How many lines have been decided or skipped.
    pub lines: u64,
}

/// Rules, and the state that requests have left behind.
#[derive(Debug)]
pub struct Simulation {
    replay: Replay,
    format: Format,
    default_set: Option<String>,
    lenient: bool,
    max_applied: u64,
    /// How many rules have been applied.
    applied: u64,
    /// The latest time so far, for formats in which time must not go back.
    latest: Timestamp,
    summary: Option<Summary>,
    report: Option<Report>,
    /// The old rules, if the rules are compared with any.
    old: Option<OldRules>,
    /// Lines so far, blank ones included.
    lines: u64,
    skipped: u64,
    /// The buffer of the line that is written.
    line: Vec<u8>,
}

impl Simulation {
    /// Creates a simulation of these rules in which no request was made yet.
    pub fn new(rules: RuleSets, options: Options) -> Self {
        let only = || rules.only().map(|set| set.name().to_owned());
        Self {
            format: options.format,
            default_set: options.rule_set.or_else(only),
            lenient: options.lenient,
            max_applied: options.max_applied.unwrap_or(u64::MAX),
            applied: 0,
            latest: Timestamp::default(),
            summary: (options.summary || options.report).then(|| Summary::new(&rules)),
            report: options.report.then(|| Report::new(&rules)),
            old: None,
            lines: 0,
            skipped: 0,
            line: Vec::with_capacity(512),
            replay: Replay::new(rules),
        }
    }

    /// Compares the rules with the `old` rules that they replace. The old rules decide every
    /// request as well, with their own state; [`Simulation::changes`] returns what changes.
    /// Only the decisions of the new rules are written.
    pub fn against(mut self, old: RuleSets) -> Self {
        self.old = Some(OldRules::new(old, &self.replay.limiter.rules()));
        self
    }

    /// Starts from counters that `rules` have charged, as if the rules of this simulation replaced
    /// them at the start: a counter is carried over as a store does when rules change. So do the old
    /// rules, if the rules are compared with any. No request must have been decided yet.
    pub fn starting_from(self, rules: &RuleSets, charges: &[StartCharge]) -> Self {
        let limiters = [
            Some(&self.replay.limiter),
            self.old.as_ref().map(|old| &old.replay.limiter),
        ];
        for limiter in limiters.into_iter().flatten() {
            let own = limiter.swap_rules(rules.clone());
            for charge in charges {
                charge.apply(limiter);
            }
            limiter.swap_rules(RuleSets::clone(&own));
        }
        self
    }

    /// Decides a request that is not a line of an input.
    ///
    /// # Errors
    /// If more rules would be applied than [`Options::max_applied`].
    pub fn decide_request(
        &mut self,
        rule_set: &str,
        context: RequestContext<'_>,
        at: Timestamp,
    ) -> Result<Decision, SimulationError> {
        self.lines += 1;
        self.check_bound()?;
        let request = RecordedRequest {
            rule_set: Some(rule_set.into()),
            context,
            hold: None,
        };
        self.decide(&request, at)
            .map_err(|reason| self.bad_line(&reason))
    }

    /// Decides every line of the input and writes one decision a line to the output.
    ///
    /// A decision is written before the next line is waited for. `progress` is
    /// called each time before more input is read.
    ///
    /// # Errors
    /// If the input cannot be read, if the output cannot be written, or, unless
    /// [`Options::lenient`] is set, if a line is bad. The decisions of all lines
    /// before it have been written then.
    pub fn run(
        &mut self,
        input: impl Read,
        output: impl Write,
        progress: impl FnMut(Progress),
    ) -> Result<(), SimulationError> {
        let mut output = BufWriter::with_capacity(OUTPUT_BUFFER, output);
        let result = self.run_blocks(BlockReader::new(input), &mut output, progress);
        let flushed = output.flush().map_err(SimulationError::Output);
        result.and(flushed)
    }

    fn run_blocks(
        &mut self,
        mut blocks: BlockReader<impl Read>,
        output: &mut impl Write,
        mut progress: impl FnMut(Progress),
    ) -> Result<(), SimulationError> {
        loop {
            output.flush().map_err(SimulationError::Output)?;
            progress(Progress {
                bytes: blocks.bytes_read,
                lines: self.lines,
            });
            match blocks.next().map_err(SimulationError::Input)? {
                Some(Block::Lines(text)) => self.run_lines(text, output)?,
                Some(Block::TooLong) => {
                    self.lines += 1;
                    self.run_line(&Err(input::too_long()), output)?;
                }
                None => return Ok(()),
            }
        }
    }

    /// Decides all lines of a block. A second thread parses the lines of a large
    /// block while this one decides those that are ready.
    fn run_lines(&mut self, text: &[u8], output: &mut impl Write) -> Result<(), SimulationError> {
        const LARGE: usize = 128 * 1024;
        const LINES_AT_ONCE: usize = 256;
        const BATCHES_AHEAD: usize = 8;
        let format = self.format;
        if text.len() < LARGE {
            return input::lines(text).try_for_each(|line| {
                self.lines += 1;
                match format.parse(line) {
                    Some(event) => self.run_line(&event, output),
                    None => Ok(()),
                }
            });
        }
        std::thread::scope(|scope| {
            let (sender, batches) = mpsc::sync_channel(BATCHES_AHEAD);
            // Batches go back to be freed by the thread that allocated them: two
            // threads on the same free lists would contend.
            let (done, used) = mpsc::channel::<Vec<Option<Result<Event<'_>, String>>>>();
            scope.spawn(move || {
                let mut lines = input::lines(text).peekable();
                while lines.peek().is_some() {
                    let mut batch = used.try_recv().unwrap_or_default();
                    batch.clear();
                    let lines = lines.by_ref().take(LINES_AT_ONCE);
                    batch.extend(lines.map(|line| format.parse(line)));
                    if sender.send(batch).is_err() {
                        // A bad line has ended the run.
                        break;
                    }
                }
            });
            for batch in batches {
                for event in &batch {
                    self.lines += 1;
                    if let Some(event) = event {
                        self.run_line(event, output)?;
                    }
                }
                // The parser has ended after the last batch.
                let _ = done.send(batch);
            }
            Ok(())
        })
    }

    /// Decides a line that was parsed, and writes the decision.
    fn run_line(
        &mut self,
        event: &Result<Event<'_>, String>,
        output: &mut impl Write,
    ) -> Result<(), SimulationError> {
        self.check_bound()?;
        let decided = match event {
            Ok(event) => self.run_event(event),
            Err(reason) => Err(Cow::Borrowed(reason.as_str())),
        };
        match decided {
            Ok(()) => output
                .write_all(&self.line)
                .map_err(SimulationError::Output),
            Err(_) if self.lenient => {
                self.skipped += 1;
                Ok(())
            }
            Err(reason) => Err(self.bad_line(&reason)),
        }
    }

    fn check_bound(&self) -> Result<(), SimulationError> {
        if self.applied < self.max_applied {
            return Ok(());
        }
        Err(SimulationError::TooMuch {
            line: self.lines,
            max: self.max_applied,
        })
    }

    fn bad_line(&self, reason: &str) -> SimulationError {
        SimulationError::BadLine {
            line: self.lines,
            reason: printable(reason),
        }
    }

    /// Decides a recorded request or settles a hold. The answer is left in `self.line`.
    fn run_event(&mut self, event: &Event<'_>) -> Result<(), Cow<'static, str>> {
        let mut at = event.at;
        if self.format == Format::Combined {
            // A line is logged when its request ends, so lines are out of order.
            self.latest = self.latest.max(at);
            at = self.latest;
        }
        match &event.kind {
            EventKind::Request(request) => self.decide(request, at).map(drop),
            EventKind::Settlement(settlement) => {
                self.settle(settlement, at);
                Ok(())
            }
        }
    }

    fn settle(&mut self, settlement: &RecordedSettlement<'_>, at: Timestamp) {
        let settled = self.replay.settle(settlement, at);
        if let Some(old) = &self.old {
            old.replay.settle(settlement, at);
        }
        self.line.clear();
        write_settled(&mut self.line, at, settled);
    }

    /// Decides a request. The decision is left in `self.line`, too.
    fn decide(
        &mut self,
        request: &RecordedRequest<'_>,
        at: Timestamp,
    ) -> Result<Decision, Cow<'static, str>> {
        let hold = request.hold.as_deref();
        if let Some(name) = hold.filter(|name| self.replay.is_held(name, at)) {
            return Err(format!("there is a hold `{name}` that has not ended").into());
        }
        let rule_set = request
            .rule_set
            .as_deref()
            .or(self.default_set.as_deref())
            .ok_or("`rule_set` is missing, and the rules do not have exactly one")?;
        let context = &request.context;
        let (summary, report, old) = (&mut self.summary, &mut self.report, &mut self.old);
        let applied = &mut self.applied;
        let limiter = &self.replay.limiter;
        let decision = if summary.is_none() && old.is_none() {
            limiter.check_at(rule_set, context, at)
        } else {
            limiter.check_at_reporting(rule_set, context, at, |verdict| {
                *applied += 1;
                if let Some(summary) = summary {
                    summary.record_rule(rule_set, &verdict);
                }
                if let Some(report) = report {
                    report.record_rule(at, &verdict);
                }
                if let Some(old) = old {
                    old.by_new.add(&verdict);
                }
            })
        };
        if let Some(summary) = summary {
            summary.record_decision(&decision);
        }
        if let Some(report) = report {
            report.record_decision(rule_set, context, at, &decision);
        }
        if let Some(old) = old {
            let change = old.compare(rule_set, request, at, &decision);
            if let (Some(report), Some(change)) = (report, change) {
                report.record_change(at, change);
            }
        }
        self.replay.record_hold(hold, &decision);
        self.line.clear();
        write_decision(&mut self.line, at, &decision);
        Ok(decision)
    }

    /// Returns the summary of all requests so far, if the options ask for one.
    pub fn summary(&self) -> Option<&Summary> {
        self.summary.as_ref()
    }

    /// Returns what changes for all requests so far, if the rules are
    /// [compared](Simulation::against) with old ones.
    pub fn changes(&self) -> Option<&Changes> {
        self.old.as_ref().map(|old| &old.changes)
    }

    /// Returns how many bad lines were skipped.
    pub fn skipped(&self) -> u64 {
        self.skipped
    }

    /// Returns a warning for each rule set that requests named and that does not
    /// exist. Control characters are escaped.
    pub fn warnings(&self) -> Vec<String> {
        let old = self.old.as_ref().map(|old| &old.replay);
        let replays = [
            ("there is no rule set", Some(&self.replay)),
            ("the old rules have no rule set", old),
        ];
        let mut warnings = Vec::new();
        for (problem, replay) in replays {
            let (names, on_missing) = replay.map(Replay::missing_rule_sets).unwrap_or_default();
            warnings.extend(names.iter().map(|name| warning(problem, name, on_missing)));
        }
        warnings
    }

    /// Returns an HTML page on all requests so far, if the options ask for one. It
    /// loads nothing and runs nothing.
    pub fn report(&self, labels: &ReportLabels<'_>) -> Option<String> {
        let (report, summary) = (self.report.as_ref()?, self.summary.as_ref()?);
        let mut warnings = self.warnings();
        let unnamed = warnings.len().saturating_sub(MAX_MISSING_NAMES);
        if unnamed > 0 {
            warnings.truncate(MAX_MISSING_NAMES);
            warnings.push(format!(
                "there are {unnamed} more rule sets that do not exist"
            ));
        }
        if self.skipped > 0 {
            warnings.push(format!("{} bad line(s) were skipped", self.skipped));
        }
        if let Some(reason) = labels.early_end {
            warnings.push(format!(
                "the run ended early, this is what came before: {reason}"
            ));
        }
        let rules = self.replay.limiter.rules();
        Some(report.page(labels, &warnings, &rules, summary, self.changes()))
    }
}

/// Returns the warning about a rule set that does not exist.
fn warning(problem: &str, name: &str, on_missing: OnMissingRuleSet) -> String {
    let outcome = match on_missing {
        OnMissingRuleSet::Allow => "allowed",
        OnMissingRuleSet::Deny => "denied",
    };
    format!(
        "{problem} `{}`; its requests were {outcome}",
        printable(name)
    )
}

/// Appends a decision as a line of JSON.
fn write_decision(line: &mut Vec<u8>, at: Timestamp, decision: &Decision) {
    let mut out = JsonWriter(line);
    out.text("{\"t\":");
    out.number(at.micros());
    out.text(",");
    out.decision_fields(decision);
    out.text(",\"retry_after_us\":");
    out.number_or_null(decision.retry().after().map(|wait| wait.get()));
    out.text(",\"reset_after_us\":");
    out.number(decision.reset_micros().get());
    out.text(",\"delay_us\":");
    out.number(decision.delay_micros().get());
    out.text(",\"violated\":");
    out.violated(decision);
    out.text("}\n");
}

/// Appends the answer to a settlement as a line of JSON.
fn write_settled(line: &mut Vec<u8>, at: Timestamp, settled: Option<Settled>) {
    let mut out = JsonWriter(line);
    out.text("{\"t\":");
    out.number(at.micros());
    out.text(if settled.is_some() {
        ",\"settled\":true,\"charged\":"
    } else {
        ",\"settled\":false,\"charged\":"
    });
    let Settled { charged, uncharged } = settled.unwrap_or_default();
    out.number(charged);
    out.text(",\"uncharged\":");
    out.number(uncharged);
    out.text("}\n");
}

/// Escapes control characters, which a terminal would obey.
fn printable(text: &str) -> String {
    let mut shown = String::with_capacity(text.len());
    for char in text.chars() {
        if char.is_control() {
            shown.extend(char.escape_default());
        } else {
            shown.push(char);
        }
    }
    shown
}
