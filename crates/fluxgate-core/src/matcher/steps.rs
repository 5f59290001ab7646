//! A count of the steps that matching takes, in tests.

#[cfg(test)]
use std::cell::Cell;

#[cfg(test)]
thread_local! {
    static STEPS: Cell<usize> = const { Cell::new(0) };
}

/// Counts steps, in tests only.
#[inline(always)]
pub(super) fn steps(count: usize) {
    #[cfg(test)]
    STEPS.set(STEPS.get() + count);
    #[cfg(not(test))]
    let _ = count;
}

#[cfg(test)]
mod tests {
    //! The cost of a path does not grow with the rules that it does not match.

    use std::ops::ControlFlow;

    use super::STEPS;
    use crate::matcher::pattern::Pattern;
    use crate::matcher::pattern_set::Patterns;

    /// Returns the steps that `work` takes.
    fn steps_of(work: impl FnOnce()) -> usize {
        STEPS.set(0);
        work();
        STEPS.get()
    }

    /// Makes a pattern or path of a number.
    type Make = fn(usize) -> String;

    fn patterns(count: usize, make: Make) -> Patterns {
        let patterns = (0..count).map(|rule| (Pattern::parse(&make(rule)).unwrap(), rule as u32));
        Patterns::new(&patterns.collect::<Vec<_>>())
    }

    /// Returns the rules found, and the steps taken.
    fn cost(patterns: &Patterns, path: &str) -> (Vec<u32>, usize) {
        let mut found = Vec::new();
        let steps = steps_of(|| {
            let _ = patterns.find(path, |rules| {
                found.extend_from_slice(rules);
                ControlFlow::Continue(())
            });
        });
        (found, steps)
    }

    /// Returns a literal or a wildcard at each of 14 positions, by the bits of a number.
    fn mixed(number: usize, wildcard: &str, between: &str) -> String {
        let segments = (0..14).map(|bit| match (number >> bit & 1, bit % 2) {
            (1, _) => wildcard,
            (_, 0) => "a",
            _ => "b",
        });
        segments.collect::<Vec<_>>().join(between)
    }

    #[test]
    fn a_path_takes_about_as_many_steps_among_10_000_patterns_as_among_10() {
        let shapes: &[(Make, Make)] = &[
            (
                |i| format!("/api/v1/r{i}/items"),
                |i| format!("/api/v1/r{i}/items"),
            ),
            (|i| format!("/api/r{i}/**"), |i| format!("/api/r{i}/a/b/c")),
            (|i| format!("/api/*/r{i}"), |i| format!("/api/zz/r{i}")),
            (|i| format!("/api/{{id}}/r{i}"), |i| format!("/api/zz/r{i}")),
            (|i| format!("/**/r{i}"), |i| format!("/a/b/c/r{i}")),
            (|i| format!("/**/r{i}/**"), |i| format!("/a/b/c/r{i}/d")),
            (|i| format!("/**/*.e{i}"), |i| format!("/a/b/file.e{i}")),
            (|i| format!("/v?/t{i}/**"), |i| format!("/v1/t{i}/z")),
            (|i| format!("/api/r{i}-*"), |i| format!("/api/r{i}-xyz")),
            (
                |i| format!("/api/*-r{i}-*"),
                |i| format!("/api/xyz-r{i}-abc"),
            ),
            (|i| format!("/a*{i}x*b"), |i| format!("/a{i}x11b")),
            (
                |i| format!("/**/a/**/a/**/r{i}"),
                |i| format!("{}/r{i}", "/a".repeat(20)),
            ),
            (
                |i| format!("/{}/x{i}", mixed(i, "*", "/")),
                |i| format!("/{}/x{i}", mixed(0, "", "/")),
            ),
            (
                |i| format!("/{}{i}", mixed(i, "?", "")),
                |i| format!("/{}{i}", mixed(0, "", "")),
            ),
        ];
        for (number, (pattern, path)) in shapes.iter().enumerate() {
            let (few, many) = (patterns(10, *pattern), patterns(10_000, *pattern));
            for wanted in [0, 3, 9] {
                let path = path(wanted);
                let (found_among_few, few) = cost(&few, &path);
                let (found_among_many, many) = cost(&many, &path);
                assert_eq!(found_among_few, [wanted as u32], "{path}");
                assert_eq!(found_among_many, [wanted as u32], "{path}");
                assert!(
                    many <= 2 * (few + path.len()),
                    "{number}: {few} steps, then {many}"
                );
            }
        }
    }

    /// A client may send a path that keeps many patterns active.
    #[test]
    fn steps_are_linear_in_the_path_even_if_it_begins_like_many_patterns() {
        const RULES: usize = 1000;
        let begun: String = (0..RULES).map(|rule| format!("/x{rule}")).collect();
        let ends: String = (0..RULES).map(|rule| format!("/y{rule}")).collect();
        let long = "/z".repeat(10_000);
        let shapes: &[(Make, String)] = &[
            (|i| format!("/**/x{i}/**/admin"), format!("{begun}{long}")),
            (
                |i| format!("/**/x{i}/**/admin"),
                format!("/admin{begun}/admin{long}"),
            ),
            (
                |i| format!("/**/x{i}/**/y{i}/**"),
                format!("{ends}{begun}{long}"),
            ),
            (|i| format!("/**/x{i}/*/q/**"), format!("/q{begun}{long}")),
            (
                |i| format!("/**/x{i}/*/q/**"),
                format!("{begun}{long}{begun}{long}/q/z"),
            ),
            (|i| format!("/**/?/x{i}/**/q"), format!("{begun}{long}/q")),
            (|i| format!("/**/x{i}/**/?/q"), format!("{begun}{long}/q/z")),
            (
                |i| format!("/*x{i}*y"),
                format!("{}y/", begun.replace('/', "")),
            ),
            (
                |i| format!("/*x{i}*y"),
                format!("/{}z", begun.replace('/', "")),
            ),
            (
                |i| format!("/*x{i}*y*"),
                format!("/y{}z", begun.replace('/', "")),
            ),
        ];
        for (number, (pattern, path)) in shapes.iter().enumerate() {
            let (found, steps) = cost(&patterns(RULES, *pattern), path);
            assert!(found.is_empty(), "{found:?}");
            assert!(
                steps <= 3 * path.len(),
                "{number}: {steps} steps for {}",
                path.len()
            );
        }
    }

    #[test]
    fn a_pattern_that_matches_repeatedly_is_found_once() {
        for rules in [10, 1000] {
            let same = patterns(rules, |_| "/**/a/**".to_owned());
            let path = "/a".repeat(10_000);
            let (found, steps) = cost(&same, &path);
            assert_eq!(found.len(), rules);
            assert!(steps <= 3 * path.len(), "{steps}");
        }
    }
}
