//! Many patterns with wildcards, found by what a path must contain to fit.

mod build;

use std::ops::ControlFlow;

use aho_corasick::Anchored;
use aho_corasick::automaton::{Automaton, StateID};
use aho_corasick::nfa::contiguous::NFA;

use super::fit::Anchor;
use super::pattern::Pattern;
use super::seen::Seen;
use super::work::steps;

/// Patterns, each filed under that text of it which the fewest others have.
/// One walk over a path finds all these texts in it; what is filed under those
/// is then compared one by one. So what a path costs depends on itself and on
/// the patterns that share their rarest text with it.
#[derive(Clone, Debug)]
pub(super) struct Index {
    texts: NFA,
    start: StateID,
    runs: Vec<FiledRun>,
    patterns: Vec<FiledPattern>,
    /// Those without any text, which are compared each time.
    without_run: Vec<u32>,
}

/// A text that patterns are found by, or their blocks.
#[derive(Clone, Debug)]
struct FiledRun {
    length: usize,
    is_anchor: bool,
    /// The patterns that are found by it.
    patterns: Vec<u32>,
}

#[derive(Clone, Debug)]
struct FiledPattern {
    pattern: Pattern,
    /// Of each inner block, where one can be had.
    anchors: Box<[Option<Anchor>]>,
    /// Texts that a path must contain in this order: with them most that does
    /// not fit is told without another look at the path.
    ordered: Box<[u32]>,
    rules: Vec<u32>,
}

impl Index {
    /// Calls `found` with the rules of every pattern that fits, until it breaks.
    pub(super) fn find(
        &self,
        path: &str,
        mut found: impl FnMut(&[u32]) -> ControlFlow<()>,
    ) -> ControlFlow<()> {
        let seen = self.texts_in(path);
        let by_text = seen.runs().map(|run| &self.runs[run as usize].patterns);
        for candidates in by_text.chain([&self.without_run]) {
            for &candidate in candidates {
                let candidate = &self.patterns[candidate as usize];
                if seen.are_in_order(&candidate.ordered)
                    && candidate.pattern.fits(path, &candidate.anchors, &seen)
                {
                    found(&candidate.rules)?;
                }
            }
        }
        ControlFlow::Continue(())
    }

    fn texts_in(&self, path: &str) -> Seen {
        let mut seen = Seen::default();
        let mut state = self.start;
        // With a slash behind it, every segment ends with one.
        for (index, byte) in path.bytes().chain([b'/']).enumerate() {
            steps(1);
            state = self.texts.next_state(Anchored::No, state, byte);
            if self.texts.is_match(state) {
                for ended in 0..self.texts.match_len(state) {
                    let number = self.texts.match_pattern(state, ended).as_u32();
                    let run = &self.runs[number as usize];
                    let start = index + 1 - run.length;
                    seen.note(number, start, run.is_anchor);
                }
            }
        }
        seen
    }
}
