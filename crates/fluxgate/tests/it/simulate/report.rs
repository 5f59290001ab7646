//! `fluxgate simulate --report`.

mod browser;
mod files;
mod numbers;
mod page;
mod pictures;

use crate::support::{Dir, Run};

/// Rules of every kind: enforced, in shadow, waiting, and for some paths only.
const RULES: &str = r#"
rule_sets:
  api:
    rules:
      - { id: per-user, scope: per_user, match: { path: ["/api/**"] }, bands: [ { capacity: 3, window: 2s }, { capacity: 20, window: 30s } ] }
      - { id: slow, scope: global, match: { path: [/slow] }, on_exceed: wait, max_wait: 3s, bands: [ { capacity: 2, window: 1s, refill: 1, period: 1s } ] }
      - { id: try, mode: shadow, scope: global, algorithm: fixed_window, match: { path: ["/api/**"] }, bands: [ { capacity: 10, window: 5s } ] }
      - { id: unmet, scope: global, match: { path: [/nowhere] }, bands: [ { capacity: 1, window: 1s } ] }
"#;

/// Returns requests of a minute and a half, most of them from one user.
fn requests() -> String {
    let mut lines = String::new();
    for step in 0..900_u64 {
        let t = 1_767_258_000_000_000 + step * 100_000;
        let (user, path) = match step % 9 {
            0..=4 => ("greedy".to_owned(), "/api/a"),
            5 => (format!("u{}", step % 7), "/api/b"),
            6 | 7 => (format!("u{}", step % 5), "/slow"),
            _ => ("guest".to_owned(), "/free"),
        };
        lines += &format!("{{\"t\":{t},\"user\":\"{user}\",\"path\":\"{path}\"}}\n");
    }
    lines
}

/// Returns the report on an input, and how the run ended.
fn report(dir: &Dir, input: &str, more: &[&str]) -> (String, Run) {
    let arguments = [&["--report", "out.html"][..], more].concat();
    let run = dir.simulate(input, &arguments);
    (dir.read("out.html"), run)
}
