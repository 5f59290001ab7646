//! The figures of `docs/sizing.md` are those of `docs/benchmarks.md`.

use super::read;

/// Decisions a second of one core of Redis.
const REDIS: u64 = 144_000;

/// Returns the cells of the rows of the table that begins with a head.
fn table(document: &str, head: &str) -> Vec<Vec<String>> {
    let text = read(document);
    let rows = text.lines().skip_while(|line| !line.starts_with(head));
    let rows = rows.skip(2).take_while(|line| line.starts_with('|'));
    let cells = |row: &str| {
        row.trim_matches('|')
            .split('|')
            .map(|it| it.trim().to_owned())
            .collect()
    };
    let rows: Vec<Vec<String>> = rows.map(cells).collect();
    assert!(rows.len() > 3, "{document}: no table {head}");
    rows
}

fn number(text: &str) -> u64 {
    text.replace(',', "").parse().unwrap()
}

/// Returns the measured requests a second of an instance.
fn measured(name: &str) -> u64 {
    let rows = table("docs/sizing.md", "| an instance of two cores |");
    let row = rows.iter().find(|row| row[0] == name);
    number(&row.unwrap_or_else(|| panic!("no {name}"))[1])
}

#[test]
fn the_measured_figures_are_those_of_the_benchmarks() {
    let benchmarks = read("docs/benchmarks.md");
    for row in table("docs/sizing.md", "| an instance of two cores |") {
        let shown = [format!("{}/s", row[1]), format!("{} requests/s", row[1])];
        assert!(shown.iter().any(|it| benchmarks.contains(it)), "{row:?}");
    }
    assert!(benchmarks.contains("144,000/s"));
}

#[test]
fn the_short_table_follows_the_formulas() {
    let columns = [
        "gateway, Redis",
        "gateway, Redis with leases",
        "service over HTTP, Redis",
        "service over HTTP, Redis with leases",
    ];
    for row in table("docs/sizing.md", "| requests a second |") {
        let requests = number(&row[0]);
        for (name, cell) in columns.iter().zip(&row[1..]) {
            // Half of the time stays free.
            let instances = (2 * requests).div_ceil(measured(name)).max(2);
            assert_eq!(instances.to_string(), *cell, "{row:?}: {name}");
        }
        let load = (requests * 100 + REDIS / 2) / REDIS;
        assert!(row[5].starts_with(&format!("{load}%")), "{row:?}: {load}");
    }
}
