//! The page shows the numbers of the decisions and of the summary.

use std::collections::BTreeMap;

use serde_json::{Value, json};

use super::browser::{DESKTOP, evaluate};
use super::{RULES, report, requests};
use crate::support::Dir;

/// The cells of a table, row by row.
const TABLE: &str = "
    const cells = (id) => [...doc.querySelectorAll(`#${id} tr`)].slice(1)
        .map((row) => [...row.cells].map((cell) => cell.firstElementChild?.textContent ?? cell.textContent));
";

/// The tooltips of a chart, summed by name.
const SUMS: &str = "
    const sums = (id) => {
        const sums = {};
        for (const title of doc.querySelectorAll(`#${id} title`)) {
            for (const line of title.textContent.split('\\n').slice(1)) {
                const at = line.lastIndexOf(' ');
                const count = Number(line.slice(at + 1).replaceAll(',', ''));
                sums[line.slice(0, at)] = (sums[line.slice(0, at)] ?? 0) + count;
            }
        }
        return sums;
    };
";

fn count(decisions: &[Value], holds: impl Fn(&Value) -> bool) -> u64 {
    decisions.iter().filter(|decision| holds(decision)).count() as u64
}

fn number(cell: &Value) -> u64 {
    cell.as_str().unwrap().replace(',', "").parse().unwrap()
}

#[test]
fn the_tiles_and_charts_count_every_decision() {
    let dir = Dir::with_rules(RULES);
    let (page, run) = report(&dir, &requests(), &[]);
    let decisions = run.lines().into_iter();
    let decisions: Vec<Value> = decisions
        .map(|line| serde_json::from_str(line).unwrap())
        .collect();
    let allowed = count(&decisions, |decision| decision["allowed"] == true);
    let delayed = count(&decisions, |decision| decision["delay_us"] != 0);
    let shadow_denied = count(&decisions, |decision| {
        decision["outcome"] == "shadow_denied"
    });
    let no_rule = count(&decisions, |decision| decision["outcome"] == "no_rule");
    for (what, count) in [
        ("delayed", delayed),
        ("in shadow", shadow_denied),
        ("free", no_rule),
    ] {
        assert!(count > 10, "{what}: the input shows nothing");
    }
    let result = evaluate(
        &page,
        DESKTOP,
        &format!(
            "{SUMS} const tiles = {{}};
             for (const tile of doc.querySelectorAll('.tiles div')) {{
                 const dd = tile.querySelector('dd').firstChild.textContent;
                 tiles[tile.querySelector('dt').textContent] = Number(dd.replaceAll(',', ''));
             }}
             return [tiles, sums('traffic')];"
        ),
    );
    let tiles = json!({
        "requests": 900, "admitted": allowed, "denied": 900 - allowed,
        "delayed": delayed, "shadow-denied": shadow_denied, "no rule": no_rule,
    });
    let sums = json!({
        "no rule": no_rule, "admitted": allowed - delayed - no_rule, "delayed": delayed,
        "denied": 900 - allowed, "shadow-denied": shadow_denied, "released": allowed,
    });
    assert_eq!(result, json!([tiles, sums]));
}

#[test]
fn rules_and_identities_are_those_of_the_summary() {
    let dir = Dir::with_rules(RULES);
    let (page, run) = report(&dir, &requests(), &["--summary"]);
    let (rules, most) = run.stderr.split_once("\n\n").unwrap();
    let mut expected = BTreeMap::new();
    for line in rules
        .lines()
        .skip(1)
        .filter(|line| line.starts_with("api/"))
    {
        let mut words = line.split_whitespace();
        let name = words.next().unwrap().to_owned();
        expected.insert(
            name,
            words
                .map(|word| word.parse().unwrap())
                .collect::<Vec<u64>>(),
        );
    }
    let expected_most: Vec<_> = most
        .lines()
        .skip(1)
        .map(|line| line.split_whitespace().collect::<Vec<_>>())
        .map(|words| json!([words[2..].join(" "), words[1], words[0], ""]))
        .collect();
    let result = evaluate(
        &page,
        DESKTOP,
        &format!(
            "{TABLE} {SUMS}
             const charts = [...doc.querySelectorAll('[id^=rule-]:not([id$=-detail])')].map((chart) =>
                 [chart.closest('figure').querySelector('h3').textContent, sums(chart.id)]);
             return {{ rules: cells('rules'), most: cells('most-denied'), charts }};"
        ),
    );
    let mut shown = BTreeMap::new();
    for row in result["rules"].as_array().unwrap() {
        let row = row.as_array().unwrap();
        let name = row[0].as_str().unwrap().to_owned();
        shown.insert(name, row[1..5].iter().map(number).collect::<Vec<u64>>());
    }
    assert_eq!(shown, expected);
    assert_eq!(result["most"], Value::from(expected_most));
    // Each chart adds up to its row; a rule that no request matched has none.
    let charts = result["charts"].as_array().unwrap();
    assert_eq!(expected["api/unmet"], [0; 4]);
    assert_eq!(charts.len(), expected.len() - 1);
    for chart in charts {
        let sum = |name: &str| chart[1][name].as_u64().unwrap_or(0);
        let row = &expected[chart[0].as_str().unwrap()];
        assert_eq!(sum("admitted") + sum("delayed"), row[1] - row[3], "{chart}");
        assert_eq!(
            (sum("denied"), sum("shadow-denied")),
            (row[2], row[3]),
            "{chart}"
        );
    }
    // Only one rule makes requests wait.
    let delayed = run
        .stdout
        .lines()
        .filter(|line| !line.contains("\"delay_us\":0"));
    let slow = result["rules"]
        .as_array()
        .unwrap()
        .iter()
        .find(|row| row[0] == "api/slow");
    assert_eq!(number(&slow.unwrap()[5]), delayed.count() as u64);
    assert!(page.contains("No request matched <code>api/unmet</code>."));
}

/// Rules with that algorithm give the numbers of its row.
#[test]
fn each_algorithm_decides_as_if_it_were_configured() {
    let rules = |fields: &str| {
        format!(
            "rule_sets: {{ s: {{ rules: [ {{ id: r, scope: per_user, {fields}, bands: [ {{ capacity: 4, window: 2s }}, {{ capacity: 25, window: 20s }} ] }} ] }} }}"
        )
    };
    let dir = Dir::with_rules(&rules("algorithm: gcra"));
    let (page, first) = report(&dir, &requests(), &[]);
    let result = evaluate(
        &page,
        DESKTOP,
        &format!(
            "{TABLE} {SUMS}
             return cells('algorithms').map((row) => [row, row[0].includes(' ') ? {{}} : sums(row[0])]);"
        ),
    );
    let result = result.as_array().unwrap();
    assert_eq!(result.len(), 6);
    for row in &result[1..] {
        let (row, sums) = (&row[0], &row[1]);
        let name = row[0].as_str().unwrap();
        let fields = match name {
            "leaky_bucket" => "algorithm: leaky_bucket, shape: true".to_owned(),
            name => format!("algorithm: {name}"),
        };
        let run = Dir::with_rules(&rules(&fields)).simulate(requests(), &[]);
        let allowed = run
            .lines()
            .iter()
            .filter(|line| line.contains("\"allowed\":true"))
            .count();
        let delayed = run
            .lines()
            .iter()
            .filter(|line| !line.contains("\"delay_us\":0"))
            .count();
        let outcomes = run.outcomes();
        let pairs = outcomes
            .chars()
            .zip(first.outcomes().chars().collect::<Vec<_>>());
        let different = pairs.filter(|(one, other)| one != other).count();
        assert_eq!(number(&row[1]), allowed as u64, "{name}");
        assert_eq!(number(&row[2]), 900 - allowed as u64, "{name}");
        assert_eq!(number(&row[4]), delayed as u64, "{name}");
        assert_eq!(number(&row[7]), different as u64, "{name}");
        assert_eq!(sums["denied"], 900 - allowed as u64, "{name}");
    }
    let denied: Vec<_> = result[1..].iter().map(|row| number(&row[0][2])).collect();
    assert_eq!(denied[0], denied[1], "the two buckets admit the same");
    for other in &denied[2..] {
        assert_ne!(*other, denied[0], "the input shows nothing: {denied:?}");
    }
}

#[test]
fn settings_that_an_algorithm_ignores_are_listed() {
    let dir = Dir::with_rules(RULES);
    let (page, _) = report(&dir, &requests(), &[]);
    let result = evaluate(
        &page,
        DESKTOP,
        "return [...doc.querySelectorAll('#remarks li')].map((item) => item.textContent);",
    );
    let expected = json!([
        "Windows and logs cannot reserve units: on_exceed: wait is a denial: api/slow.",
        "Windows and logs have no refill: the window is the time in which the bucket fills: api/slow.",
    ]);
    assert_eq!(result, expected);
}

/// User 1 sends one request in an hour, user 2 two, and so on.
#[test]
fn the_capacities_are_the_percentiles_of_the_identities() {
    let rules = "
rule_sets:
  api:
    rules:
      - id: r
        scope: per_user
        algorithm: fixed_window
        bands: [ { id: hour, capacity: 20, window: 1h }, { id: day, capacity: 1000, window: 1d } ]
        overrides: [ { identity: u101, bands: [ { capacity: 1, window: 1h } ] } ]
      - { id: bucket, scope: global, bands: [ { capacity: 50, window: 1s, refill: 10, period: 1s } ] }
";
    let mut requests = Vec::new();
    for user in 1..=101 {
        for number in 0..user {
            // One user sends 40 of 100 an hour later.
            let hour = u64::from(user == 100 && number >= 60);
            requests.push((hour * 3_600_000_000 + user * 10_000_000, user));
        }
    }
    requests.sort();
    let lines = requests.into_iter();
    let lines = lines.map(|(t, user)| format!("{{\"t\":{t},\"user\":\"u{user}\"}}\n"));
    let input: String = lines.collect();
    let (page, _) = report(&Dir::with_rules(rules), &input, &[]);
    let cells = evaluate(
        &page,
        DESKTOP,
        &format!("{TABLE} return cells('capacities');"),
    );
    for expected in [
        "api/r/hour | 100 | 50 | 89 | 98 | 99 | 20.0 % | 98 per 1 h",
        "api/r/day | 100 | 50 | 90 | 99 | 100 | 100.0 % | 99 per 1 d",
        // Fills in 5 s, and no two users come within 5 s of each other.
        "api/bucket/b0 | 1 | 101 | 101 | 101 | 101 | 0.0 % | 101 at once, 21 per 1 s",
    ] {
        let expected: Vec<_> = expected.split(" | ").collect();
        let mut rows = cells.as_array().unwrap().iter();
        let row = rows.find(|row| row[0] == expected[0]);
        assert_eq!(row, Some(&json!(expected)));
    }
}
