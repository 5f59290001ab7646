//! `fluxgate simulate`: recorded requests through rules, on virtual time.

#[cfg(any(test, feature = "fuzzing"))]
pub(crate) mod any_bytes;
mod blocks;
mod combined;
mod event;
mod files;
mod missing;
mod output;
mod progress;
mod report;
mod summary;
mod time;

use std::io::{self, BufWriter, IsTerminal, Read, Write};
use std::path::{Path, PathBuf};
use std::sync::mpsc;

use fluxgate_core::memory::Retention;
use fluxgate_core::{Limiter, ManualClock, MemoryStore, OnMissingRuleSet, Timestamp};

use crate::cli::{Exit, Failure};
use crate::rule_file;
use blocks::{Block, Blocks};
use event::Event;
use files::{Input, create_output, create_report, is_standard, open_input};
use missing::MissingSets;
use progress::Progress;
use report::{Report, Told};
use summary::Summary;

/// The arguments of `fluxgate simulate`.
#[derive(Debug, clap::Args)]
pub(crate) struct Options {
    /// The rule file
    #[arg(long, value_name = "FILE")]
    rules: PathBuf,
    /// The recorded requests; `-` is standard input
    #[arg(long, value_name = "FILE|-")]
    input: PathBuf,
    /// Where the decisions go; `-` is standard output
    #[arg(long, value_name = "FILE|-", default_value = "-")]
    output: PathBuf,
    /// How the requests are recorded
    #[arg(long, value_enum, default_value_t = Format::Ndjson)]
    format: Format,
    /// The rule set for lines that name none; by default the only one
    #[arg(long, value_name = "NAME")]
    rule_set: Option<String>,
    /// Print a table by rule and the most denied identities to standard error
    #[arg(long)]
    summary: bool,
    /// Write a page that shows what the rules did: over time, by rule, whom they
    /// denied most, and how each of the five algorithms would have decided
    #[arg(long, value_name = "FILE")]
    report: Option<PathBuf>,
    /// Skip and count bad lines instead of ending at the first
    #[arg(long)]
    lenient: bool,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq, clap::ValueEnum)]
enum Format {
    /// One JSON object a line
    Ndjson,
    /// Access logs of Apache and nginx
    Combined,
}

/// More rule sets that do not exist are not named in a report.
const MOST_MISSING: usize = 20;

/// What is buffered on the way out.
const OUTPUT_BUFFER: usize = 256 * 1024;

pub(crate) fn run(options: &Options) -> Result<(), Failure> {
    let rules = rule_file::load(&options.rules)?;
    let input = open_input(&options.input)?;
    let progress = Progress::of(&input, options);
    let report = create_report(options, &rules)?;
    let output = create_output(options)?;

    let default_set = match &options.rule_set {
        Some(name) => Some(name.clone()),
        None => rules.only().map(|set| set.name().to_owned()),
    };
    let store = MemoryStore::new(ManualClock::default(), usize::MAX, Retention::Forever);
    let missing = MissingSets::default();
    let counts = options.summary || report.is_some();
    let mut simulation = Simulation {
        summary: counts.then(|| Summary::new(&rules)),
        limiter: Limiter::new(rules, store).with_observer(missing.clone()),
        missing,
        default_set,
        format: options.format,
        latest: Timestamp::default(),
        report,
        lines: 0,
        skipped: 0,
        line: Vec::with_capacity(512),
    };
    let mut output = BufWriter::with_capacity(OUTPUT_BUFFER, output);
    let result = simulation.run(Blocks::new(input.reader), &mut output, progress, options);
    let flushed = output
        .flush()
        .map_err(|error| cannot_write(options, &error));
    // Whoever reads standard error may have gone too; that is no failure.
    let _ = simulation.print_summary(options, &mut io::stderr().lock());
    let result = result.and(flushed);
    let reported = simulation.write_report(options, result.as_ref().err());
    match result.and(reported) {
        // Whoever read the output has seen enough.
        Err(Stop::ReaderGone) => Ok(()),
        Err(Stop::Failed(failure)) => Err(failure),
        Ok(()) => Ok(()),
    }
}

/// Why a simulation ended early.
enum Stop {
    ReaderGone,
    Failed(Failure),
}

impl From<Failure> for Stop {
    fn from(failure: Failure) -> Self {
        Self::Failed(failure)
    }
}

struct Simulation {
    limiter: Limiter<MemoryStore<ManualClock>>,
    missing: MissingSets,
    default_set: Option<String>,
    format: Format,
    /// The latest time so far, where time is not to go back.
    latest: Timestamp,
    summary: Option<Summary>,
    report: Option<Report>,
    /// Lines so far, blank ones included.
    lines: u64,
    skipped: u64,
    /// Reused for every line that is written.
    line: Vec<u8>,
}

impl Simulation {
    fn run(
        &mut self,
        mut blocks: Blocks<impl Read>,
        output: &mut impl Write,
        mut progress: Progress,
        options: &Options,
    ) -> Result<(), Stop> {
        loop {
            // Nobody who waits for an answer shall wait for the next question.
            output
                .flush()
                .map_err(|error| cannot_write(options, &error))?;
            progress.show(blocks.bytes_read(), self.lines);
            match blocks.next() {
                Ok(Some(Block::Lines(text))) => self.run_block(text, output, options)?,
                Ok(Some(Block::TooLong)) => {
                    self.lines += 1;
                    self.finish_line(&Err(too_long()), output, options)?;
                }
                Ok(None) => return Ok(()),
                Err(error) => {
                    let input = options.input.display();
                    return Err(Failure::new(Exit::NoInput, format!("{input}: {error}")).into());
                }
            }
        }
    }

    /// Decides all lines of a block. Of a large one, a second thread reads the
    /// lines while this one decides what has been read.
    fn run_block(
        &mut self,
        text: &[u8],
        output: &mut impl Write,
        options: &Options,
    ) -> Result<(), Stop> {
        const LARGE: usize = 128 * 1024;
        const LINES_AT_ONCE: usize = 256;
        const BATCHES_AHEAD: usize = 8;
        let format = self.format;
        if text.len() < LARGE {
            return blocks::lines(text).try_for_each(|line| {
                self.lines += 1;
                match parse(format, line) {
                    Some(event) => self.finish_line(&event, output, options),
                    None => Ok(()),
                }
            });
        }
        std::thread::scope(|scope| {
            let (sender, batches) = mpsc::sync_channel(BATCHES_AHEAD);
            // What has been decided goes back to be freed where it was made:
            // two threads at one allocator's lists wait for each other.
            let (done, used) = mpsc::channel::<Vec<Option<Result<Event<'_>, String>>>>();
            scope.spawn(move || {
                let mut lines = blocks::lines(text).peekable();
                while lines.peek().is_some() {
                    let mut batch = used.try_recv().unwrap_or_default();
                    batch.clear();
                    let lines = lines.by_ref().take(LINES_AT_ONCE);
                    batch.extend(lines.map(|line| parse(format, line)));
                    if sender.send(batch).is_err() {
                        // The simulation has ended at a bad line.
                        break;
                    }
                }
            });
            for batch in batches {
                for event in &batch {
                    self.lines += 1;
                    if let Some(event) = event {
                        self.finish_line(event, output, options)?;
                    }
                }
                // Nobody reads on after the last line of the block.
                let _ = done.send(batch);
            }
            Ok(())
        })
    }

    /// Decides a line that was read, and writes the answer.
    fn finish_line(
        &mut self,
        event: &Result<Event<'_>, String>,
        output: &mut impl Write,
        options: &Options,
    ) -> Result<(), Stop> {
        let decided = match event {
            Ok(event) => self.decide(event),
            Err(what) => Err(what.as_str()),
        };
        match decided {
            Ok(()) => output
                .write_all(&self.line)
                .map_err(|error| cannot_write(options, &error)),
            Err(_) if options.lenient => {
                self.skipped += 1;
                Ok(())
            }
            Err(what) => {
                let input = options.input.display();
                let what = printable(what);
                let message = format!("{input}:{}: {what}", self.lines);
                Err(Failure::new(Exit::Data, message).into())
            }
        }
    }

    /// Decides one recorded request; the answer stands in `self.line`.
    fn decide(&mut self, event: &Event<'_>) -> Result<(), &'static str> {
        let mut at = event.at;
        if self.format == Format::Combined {
            // Lines are written when requests end: not in the order they came.
            self.latest = self.latest.max(at);
            at = self.latest;
        }
        let rule_set = event.rule_set.as_deref().or(self.default_set.as_deref());
        let rule_set = rule_set.ok_or("no `rule_set`, and the rule file has not just one")?;
        let context = &event.context;
        let decision = match &mut self.summary {
            None => self.limiter.check_at(rule_set, context, at),
            Some(summary) => {
                let report = &mut self.report;
                let decision = self
                    .limiter
                    .check_at_reporting(rule_set, context, at, |fate| {
                        summary.noted(rule_set, &fate);
                        if let Some(report) = report {
                            report.noted(rule_set, at, &fate);
                        }
                    });
                summary.decided(rule_set, &decision);
                if let Some(report) = report {
                    report.decided(rule_set, context, at, &decision);
                }
                decision
            }
        };
        self.line.clear();
        output::write_decision(&mut self.line, at, &decision);
        Ok(())
    }

    fn print_summary(&self, options: &Options, out: &mut impl Write) -> io::Result<()> {
        if let Some(summary) = self.summary.as_ref().filter(|_| options.summary) {
            write!(out, "{summary}")?;
        }
        if options.lenient && (self.skipped > 0 || options.summary) {
            writeln!(out, "{} bad line(s) skipped", self.skipped)?;
        }
        for remark in self.missing_sets() {
            writeln!(out, "{remark}")?;
        }
        Ok(())
    }

    /// What is told of rule sets that do not exist.
    fn missing_sets(&self) -> Vec<String> {
        let fate = match self.limiter.rules().on_missing() {
            OnMissingRuleSet::Allow => "allowed",
            OnMissingRuleSet::Deny => "denied",
        };
        let names = self.missing.names().into_iter();
        names
            .map(|name| {
                let name = printable(&name);
                format!("there is no rule set `{name}`; its requests were {fate}")
            })
            .collect()
    }

    /// Writes the page of `--report`, of what came before an early end too.
    fn write_report(&mut self, options: &Options, stop: Option<&Stop>) -> Result<(), Stop> {
        let (Some(path), Some(report), Some(summary)) =
            (&options.report, self.report.take(), &self.summary)
        else {
            return Ok(());
        };
        let mut warnings = self.missing_sets();
        if let Some(more) = warnings
            .len()
            .checked_sub(MOST_MISSING)
            .filter(|more| *more > 0)
        {
            warnings.truncate(MOST_MISSING);
            warnings.push(format!("and so of {more} more names"));
        }
        if self.skipped > 0 {
            warnings.push(format!("{} bad line(s) were left out", self.skipped));
        }
        if let Some(stop) = stop {
            let why = match stop {
                Stop::ReaderGone => "nobody read the decisions any more",
                Stop::Failed(failure) => &failure.message,
            };
            warnings.push(format!("This is only what came before an early end: {why}"));
        }
        let told = Told {
            rules_file: &options.rules,
            input: &options.input,
            rules: &self.limiter.rules(),
            summary,
            warnings,
        };
        let written = report.write(&told);
        written.map_err(|error| cannot_report(path, &error).into())
    }
}

fn cannot_report(path: &Path, error: &io::Error) -> Failure {
    Failure::new(Exit::Io, format!("{}: {error}", path.display()))
}

/// What a line holds may be anything; a terminal shall not obey it.
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

/// A recorded request, unless the line is blank.
fn parse(format: Format, line: &[u8]) -> Option<Result<Event<'_>, String>> {
    if line.trim_ascii().is_empty() {
        return None;
    }
    if line.len() > blocks::LONGEST {
        return Some(Err(too_long()));
    }
    Some(match format {
        Format::Ndjson => Event::from_json(line),
        Format::Combined => combined::parse(line),
    })
}

fn too_long() -> String {
    format!("longer than {} bytes", blocks::LONGEST)
}

fn cannot_write(options: &Options, error: &io::Error) -> Stop {
    if error.kind() == io::ErrorKind::BrokenPipe {
        return Stop::ReaderGone;
    }
    let output = options.output.display();
    Failure::new(Exit::Io, format!("{output}: {error}")).into()
}

impl Progress {
    /// Shown to a person who waits for a large file, and only where it does not
    /// get in the way of the decisions.
    fn of(input: &Input, options: &Options) -> Self {
        const LARGE: u64 = 16 * 1024 * 1024;
        let shares_terminal = is_standard(&options.output) && io::stdout().is_terminal();
        match input.size {
            Some(size) if size >= LARGE && io::stderr().is_terminal() && !shares_terminal => {
                Self::new(size)
            }
            _ => Self::off(),
        }
    }
}
