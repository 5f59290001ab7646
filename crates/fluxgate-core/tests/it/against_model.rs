//! Random sequences, through the limiter and through the model: all fields of all
//! decisions must be equal.

use fluxgate_core::task::ready;
use fluxgate_core::{Algorithm, Timestamp};
use proptest::prelude::*;

use crate::model::{self, Answer, Counter, Limit};
use crate::sequences::{
    Cost, Numbers, Span, Step, Style, limit, numbers, rule, span_ms, start, step,
};
use crate::support::{ALGORITHMS, DecisionFields, Gate, cases, fields, micros};

/// The rule, for the limiter and for the model.
struct Run {
    gate: Gate,
    style: Style,
    numbers: Vec<Numbers>,
    bands: Vec<(Limit, Counter)>,
    now: u64,
    last: Option<DecisionFields>,
}

impl Run {
    fn new(style: Style, numbers: Vec<Numbers>, start: u64) -> Self {
        let bands: Vec<_> = numbers
            .iter()
            .map(|numbers| (limit(&style, numbers), Counter::default()))
            .collect();
        Self {
            gate: Gate::new(&rule(&style, &numbers)),
            style,
            numbers,
            bands,
            now: start.min(Timestamp::MAX.micros()),
            last: None,
        }
    }

    fn step(&mut self, step: &Step) -> Result<(), TestCaseError> {
        match step {
            Step::Advance(span) => {
                let later = self.now.saturating_add(self.span(span));
                self.now = later.min(Timestamp::MAX.micros());
            }
            Step::Back(span) => self.now = self.now.saturating_sub(self.span(span)),
            Step::Check(cost) => return self.compare(self.cost(cost), true),
            Step::Peek(cost) => return self.compare(self.cost(cost), false),
            Step::Look => {
                self.gate.at(self.now);
                let answers = model::decide(&mut self.bands, self.now, 0, false);
                let states = self.gate.state(&[]);
                let states = states.iter().map(|s| (s.remaining, micros(s.reset_after)));
                let expected = answers
                    .iter()
                    .map(|answer| (answer.remaining, answer.reset));
                prop_assert_eq!(states.collect::<Vec<_>>(), expected.collect::<Vec<_>>());
            }
            Step::Refund(cost) => {
                // The largest number may stand for all units.
                let units = self.cost(cost).min(u64::MAX - 1);
                let left = self.gate.at(self.now).refund(&[], units);
                let now = self.now;
                let mut expected = Vec::new();
                for (limit, counter) in &mut self.bands {
                    counter.refund(limit, now, units);
                    expected.push(counter.left(limit, now));
                }
                let least = expected.iter().map(|(left, _)| *left).min();
                prop_assert_eq!(Some(left), least);
                // Whether a full quota leaves state that a clock that goes back can find
                // depends on the store.
                if expected.iter().any(|(_, reset)| *reset == 0) {
                    ready(self.gate.limiter.reset("s", "r", &[])).unwrap();
                    for (limit, counter) in &mut self.bands {
                        counter.reset(limit);
                    }
                }
            }
            Step::ChangeNumbers(band, numbers) => {
                let band = band % self.numbers.len();
                let window_ms = self.numbers[band].window_ms;
                self.numbers[band] = Numbers {
                    window_ms,
                    ..numbers.clone()
                };
                self.change();
            }
            Step::ChangeWindow(band, window_ms) => {
                let band = band % self.numbers.len();
                self.numbers[band].window_ms = *window_ms;
                self.change();
            }
            Step::ChangeAlgorithm(index) => {
                self.style.algorithm = ALGORITHMS[*index];
                self.change();
            }
            Step::ChangeStyle(max_wait_ms, shape) => {
                self.style.max_wait_ms = *max_wait_ms;
                self.style.shape = *shape;
                self.change();
            }
        }
        Ok(())
    }

    fn change(&mut self) {
        for (numbers, band) in self.numbers.iter().zip(&mut self.bands) {
            band.0 = limit(&self.style, numbers);
        }
        self.gate.replace(&rule(&self.style, &self.numbers));
    }

    fn compare(&mut self, cost: u64, takes: bool) -> Result<(), TestCaseError> {
        self.gate.at(self.now);
        let decision = if takes {
            self.gate.take(cost)
        } else {
            self.gate.peek_units(cost)
        };
        let decision = fields(&decision);
        let answers = model::decide(&mut self.bands, self.now, cost, takes);
        let expected = combine(&self.bands, &answers);
        prop_assert_eq!(
            &decision,
            &expected,
            "at {} for {} of {:?}",
            self.now,
            cost,
            self.bands
        );
        self.last = Some(decision);
        Ok(())
    }

    fn span(&self, span: &Span) -> u64 {
        let last = self.last.as_ref();
        match span {
            Span::Micros(micros) => *micros,
            // In thousandths, and in u128 because a year is long.
            Span::PartOfWindow(part) => {
                let window = u128::from(self.bands[0].0.window);
                (window * u128::from(*part) / 1000) as u64
            }
            Span::Retry(more) => last
                .and_then(|last| last.retry)
                .map_or(1, |retry| retry.saturating_add_signed(*more)),
            Span::Reset(more) => last.map_or(1, |last| last.reset.saturating_add_signed(*more)),
        }
    }

    fn cost(&self, cost: &Cost) -> u64 {
        let left = self.last.as_ref().and_then(|last| last.remaining);
        match cost {
            Cost::Units(units) => *units,
            Cost::PartOfCapacity(part) => self.bands[0].0.capacity * part / 1000,
            Cost::Left(more) => left.unwrap_or(1) + more,
        }
    }
}

/// Combines the answers of all bands.
fn combine(bands: &[(Limit, Counter)], answers: &[Answer]) -> DecisionFields {
    let refusing: Vec<usize> = (0..answers.len())
        .filter(|&band| !answers[band].passes)
        .collect();
    // Never is longer than any span; of equals the first is reported.
    let length = |band: usize| answers[band].retry.unwrap_or(u64::MAX);
    let least = (0..answers.len()).min_by_key(|&band| answers[band].remaining);
    let longest = refusing.iter().copied().rev().max_by_key(|&b| length(b));
    let reported = longest.or(least).unwrap();
    let allowed = refusing.is_empty();
    let answer = &answers[reported];
    DecisionFields {
        allowed,
        outcome: match (allowed, answer.retry) {
            (true, _) => "allowed",
            (false, Some(_)) => "denied",
            (false, None) => "never",
        },
        rule: Some("r".into()),
        band: Some(format!("b{reported}")),
        limit: Some(bands[reported].0.capacity),
        remaining: Some(answer.remaining),
        retry: answer.retry,
        reset: answer.reset,
        delay: if allowed {
            answers.iter().map(|answer| answer.delay).max().unwrap()
        } else {
            0
        },
        violated: refusing.iter().map(|band| format!("r/b{band}")).collect(),
    }
}

fn agrees_with_the_model(algorithm: Algorithm) {
    let style = (prop::option::weighted(0.3, span_ms()), any::<bool>());
    let bands = prop::collection::vec(numbers(), 1..=2);
    let steps = prop::collection::vec(step(), 1..60);
    proptest!(cases(1000), |((max_wait_ms, shape) in style, bands in bands, start in start(), steps in steps)| {
        let style = Style { algorithm, max_wait_ms, shape };
        let mut run = Run::new(style, bands, start);
        for step in &steps {
            run.step(step)?;
        }
    });
}

#[test]
fn a_token_bucket_agrees_with_the_model() {
    agrees_with_the_model(Algorithm::TokenBucket);
}

#[test]
fn a_leaky_bucket_agrees_with_the_model() {
    agrees_with_the_model(Algorithm::LeakyBucket);
}

#[test]
fn a_fixed_window_agrees_with_the_model() {
    agrees_with_the_model(Algorithm::FixedWindow);
}

#[test]
fn a_sliding_log_agrees_with_the_model() {
    agrees_with_the_model(Algorithm::SlidingLog);
}

#[test]
fn a_sliding_window_agrees_with_the_model() {
    agrees_with_the_model(Algorithm::SlidingWindow);
}
