//! What a path costs does not grow with the rules that it does not fit.

use std::ops::ControlFlow;

use super::pattern::Pattern;
use super::set::Patterns;
use super::work::steps_of;

/// Patterns from their numbers.
type Make = fn(usize) -> String;

fn patterns(count: usize, make: Make) -> Patterns {
    let patterns = (0..count).map(|rule| (Pattern::parse(&make(rule)).unwrap(), rule as u32));
    Patterns::new(&patterns.collect::<Vec<_>>())
}

/// The rules found, and the steps taken.
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

/// A literal or a wildcard at each of 14 places, by the bits of a number.
fn mixed(number: usize, wildcard: &str, between: &str) -> String {
    let places = (0..14).map(|bit| match (number >> bit & 1, bit % 2) {
        (1, _) => wildcard,
        (_, 0) => "a",
        _ => "b",
    });
    places.collect::<Vec<_>>().join(between)
}

#[test]
fn among_10_000_patterns_a_path_costs_about_what_it_does_among_10() {
    let shapes: &[(Make, Make)] = &[
        (
            |i| format!("/api/v1/r{i}/items"),
            |i| format!("/api/v1/r{i}/items"),
        ),
        (|i| format!("/api/r{i}/**"), |i| format!("/api/r{i}/a/b/c")),
        (|i| format!("/api/*/r{i}"), |i| format!("/api/zz/r{i}")),
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

/// What a client can write into a path to keep many patterns alive.
#[test]
fn a_path_that_begins_to_fit_many_patterns_costs_what_its_length_does() {
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
        assert_eq!(found, []);
        assert!(
            steps <= 3 * path.len(),
            "{number}: {steps} steps for {}",
            path.len()
        );
    }
}

#[test]
fn a_pattern_that_fits_again_and_again_is_found_once() {
    for rules in [10, 1000] {
        let same = patterns(rules, |_| "/**/a/**".to_owned());
        let path = "/a".repeat(10_000);
        let (found, steps) = cost(&same, &path);
        assert_eq!(found.len(), rules);
        assert!(steps <= 3 * path.len(), "{steps}");
    }
}
