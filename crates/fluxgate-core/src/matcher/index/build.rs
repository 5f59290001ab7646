//! How an index is made.

use aho_corasick::Anchored;
use aho_corasick::automaton::Automaton;
use aho_corasick::nfa::contiguous::NFA;
use hashbrown::HashMap;

use super::{FiledPattern, FiledRun, Index};
use crate::matcher::fit::Anchor;
use crate::matcher::pattern::{Pattern, Segment};
use crate::matcher::runs::Run;

impl Index {
    /// Patterns with their rules. `None` if they are too many.
    pub(crate) fn new(patterns: &[&(Pattern, u32)]) -> Option<Self> {
        let mut places: HashMap<&Pattern, usize> = HashMap::new();
        let mut distinct: Vec<(&Pattern, Vec<u32>)> = Vec::new();
        for (pattern, rule) in patterns {
            let place = *places.entry(pattern).or_insert_with(|| {
                distinct.push((pattern, Vec::new()));
                distinct.len() - 1
            });
            distinct[place].1.push(*rule);
        }
        let mut texts = Texts::default();
        for (pattern, _) in &distinct {
            for run in pattern.runs() {
                *texts.patterns.entry(run.text).or_default() += 1;
            }
        }
        let mut without_run = Vec::new();
        let patterns = distinct
            .into_iter()
            .enumerate()
            .map(|(place, (pattern, rules))| {
                let runs = pattern.runs();
                match texts.rarest(runs.iter()) {
                    Some(rarest) => texts.file(rarest).patterns.push(place as u32),
                    None => without_run.push(place as u32),
                }
                let anchors = texts.anchors(pattern, &runs);
                FiledPattern {
                    ordered: texts.ordered(&runs, &anchors),
                    pattern: pattern.clone(),
                    anchors,
                    rules,
                }
            });
        let patterns = patterns.collect();
        let mut known: Vec<_> = texts.numbers.into_iter().collect();
        known.sort_unstable_by_key(|(_, number)| *number);
        let known = known.into_iter().map(|(text, _)| text);
        let automaton = NFA::builder().prefilter(false).build(known).ok()?;
        Some(Self {
            start: automaton.start_state(Anchored::No).ok()?,
            texts: automaton,
            runs: texts.filed,
            patterns,
            without_run,
        })
    }
}

/// The texts of all patterns.
#[derive(Default)]
struct Texts {
    /// How many patterns have each.
    patterns: HashMap<String, usize>,
    /// Those that something is found by.
    numbers: HashMap<String, usize>,
    filed: Vec<FiledRun>,
}

impl Texts {
    fn rarest<'r>(&self, runs: impl Iterator<Item = &'r Run>) -> Option<&'r Run> {
        // Of two, the longer one: it is less likely to be met by chance.
        runs.min_by_key(|run| (self.patterns.get(&run.text), usize::MAX - run.text.len()))
    }

    fn number(&mut self, text: &str) -> usize {
        *self.numbers.entry_ref(text).or_insert_with(|| {
            self.filed.push(FiledRun {
                length: text.len(),
                is_anchor: false,
                patterns: Vec::new(),
            });
            self.filed.len() - 1
        })
    }

    fn file(&mut self, run: &Run) -> &mut FiledRun {
        let number = self.number(&run.text);
        &mut self.filed[number]
    }

    /// For each inner block the rarest text that begins one of its segments.
    fn anchors(&mut self, pattern: &Pattern, runs: &[Run]) -> Box<[Option<Anchor>]> {
        let is_deep = |segment: &Segment| *segment == Segment::Deep;
        let deeps = pattern.segments.iter().enumerate();
        let deeps: Vec<_> = deeps.filter(|(_, segment)| is_deep(segment)).collect();
        let blocks = deeps.windows(2).map(|pair| pair[0].0 + 1..pair[1].0);
        let anchors = blocks.map(|block| {
            let begins_here = |run: &&Run| run.begins.is_some_and(|at| block.contains(&at));
            let rarest = self.rarest(runs.iter().filter(begins_here))?;
            let run = self.number(&rarest.text);
            self.filed[run].is_anchor = true;
            Some(Anchor {
                run: run as u32,
                before: rarest.begins? - block.start,
            })
        });
        anchors.collect()
    }

    /// The anchors, and what stands inside of segments.
    fn ordered(&mut self, runs: &[Run], anchors: &[Option<Anchor>]) -> Box<[u32]> {
        let numbers = runs.iter().map(|run| {
            let is_inside = !run.text.contains('/');
            let number = match is_inside {
                true => Some(self.number(&run.text)),
                false => self.numbers.get(&run.text).copied(),
            };
            let number = number? as u32;
            let mut anchors = anchors.iter().flatten();
            let is_anchor = anchors.any(|anchor| anchor.run == number);
            (is_inside || is_anchor).then_some(number)
        });
        numbers.flatten().collect()
    }
}
