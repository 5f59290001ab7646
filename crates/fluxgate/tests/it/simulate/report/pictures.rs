//! The pictures of `docs/algorithms.md` and of the course are charts of `simulate --report`.

use std::fs;
use std::os::unix::fs::symlink;
use std::path::Path;
use std::process::Command;

use crate::docs::{Block, first_of, only};
use crate::support::{Dir, project_file};

const ALGORITHMS: [&str; 5] = [
    "token_bucket",
    "leaky_bucket",
    "fixed_window",
    "sliding_log",
    "sliding_window",
];

/// The window of the limit in the pictures: 10 s.
const WINDOW: u64 = 10_000_000;

fn rules() -> String {
    fs::read_to_string(project_file("docs/images/rules.yaml")).unwrap()
}

fn traffic() -> String {
    fs::read_to_string(project_file("docs/images/traffic.ndjson")).unwrap()
}

/// Returns the text between two others.
fn between<'a>(text: &'a str, start: &str, end: &str) -> &'a str {
    let (_, rest) = text.split_once(start).unwrap();
    rest.split_once(end).unwrap().0
}

/// Returns one chart of a page as an SVG file, with the style of the page.
fn picture(page: &str, algorithm: &str) -> String {
    let style = between(page, "<style id=\"chart-style\">\n", "</style>");
    let chart = between(page, &format!("<svg id=\"{algorithm}\""), "</svg>");
    let (attributes, drawn) = chart.split_once(">\n").unwrap();
    let svg = "<svg xmlns=\"http://www.w3.org/2000/svg\" width=\"640\" height=\"280\"";
    format!("{svg}{attributes}>\n<style>\n{style}</style>\n{drawn}</svg>\n")
}

#[test]
fn the_pictures_are_those_of_the_report() {
    let dir = Dir::with_rules(&rules());
    let (page, run) = super::report(&dir, &traffic(), &[]);
    assert_eq!(run.code, Some(0));
    for algorithm in ALGORITHMS {
        assert_drawn(algorithm, &picture(&page, algorithm));
    }
}

/// The steps of the course and the charts that they show.
const COURSE: [(&str, &str); 5] = [
    ("1-fixed-window", "fixed_window"),
    ("2-sliding-log", "sliding_log"),
    ("3-sliding-window", "sliding_window"),
    ("4-buckets", "token_bucket"),
    ("4-buckets", "leaky_bucket"),
];

/// Every step has the same limit, and makes the same requests by its first command.
#[test]
fn the_pictures_of_the_course_are_those_of_the_report() {
    for (step, algorithm) in COURSE {
        let document = format!("docs/course/{step}.md");
        let blocks = Block::all_of(&document);
        let console = blocks.iter().find(|block| block.kind == "console").unwrap();
        let dir = Dir::with_rules(&first_of(&document, "yaml"));
        let made = Command::new("bash")
            .args(["-c", &console.commands()[0].command])
            .current_dir(dir.path("."))
            .status();
        assert!(made.unwrap().success(), "{document}");
        let (page, run) = super::report(&dir, &dir.read("requests.ndjson"), &[]);
        assert_eq!(run.code, Some(0), "{document}");
        assert_drawn(&format!("course-{algorithm}"), &picture(&page, algorithm));
        let text = fs::read_to_string(project_file(&document)).unwrap();
        let shown = format!("(../images/course-{algorithm}.svg)");
        assert!(text.contains(&shown), "{document} lacks {shown}");
    }
}

/// Checks that a picture in `docs/images` is what is drawn.
fn assert_drawn(name: &str, drawn: &str) {
    assert!(drawn.len() < 30_000, "{name}: {}", drawn.len());
    let path = project_file(&format!("docs/images/{name}.svg"));
    if std::env::var_os("FLUXGATE_DRAW").is_some() {
        fs::write(&path, drawn).unwrap();
    }
    let kept = fs::read_to_string(&path).unwrap_or_default();
    assert!(
        kept == drawn,
        "docs/images/{name}.svg is not what is drawn; FLUXGATE_DRAW=1 draws it anew"
    );
}

/// Returns the row of an algorithm: admitted, denied, delayed, and the most that are
/// released in any 10 s.
fn table_row(algorithm: &str) -> String {
    let field = match algorithm {
        "leaky_bucket" => "algorithm: leaky_bucket, shape: true",
        name => &format!("algorithm: {name}"),
    };
    let rules = rules().replace("scope: global", &format!("scope: global, {field}"));
    let run = Dir::with_rules(&rules).simulate(traffic(), &[]);
    let (mut denied, mut delayed, mut gone) = (0, 0, Vec::new());
    for line in run.lines() {
        let decision: serde_json::Value = serde_json::from_str(line).unwrap();
        let delay = decision["delay_us"].as_u64().unwrap();
        delayed += u64::from(delay > 0);
        if decision["allowed"].as_bool().unwrap() {
            gone.push(decision["t"].as_u64().unwrap() + delay);
        } else {
            denied += 1;
        }
    }
    gone.sort_unstable();
    let within = |start: u64| {
        gone.iter()
            .filter(|at| (start..start + WINDOW).contains(*at))
            .count()
    };
    let most = gone.iter().map(|at| within(*at)).max().unwrap();
    let admitted = gone.len();
    format!("| `{algorithm}` | {admitted} | {denied} | {delayed} | {most} |")
}

#[test]
fn the_table_of_the_algorithms_is_correct() {
    let document = fs::read_to_string(project_file("docs/algorithms.md")).unwrap();
    for algorithm in ALGORITHMS {
        let row = table_row(algorithm);
        assert!(document.contains(&row), "docs/algorithms.md lacks {row}");
        let shown = format!("(images/{algorithm}.svg)");
        assert!(
            document.contains(&shown),
            "docs/algorithms.md lacks {shown}"
        );
    }
}

#[test]
fn the_documented_command_makes_the_pictures() {
    let dir = Dir::new();
    symlink(project_file("docs"), dir.path("docs")).unwrap();
    let binary = Path::new(env!("CARGO_BIN_EXE_fluxgate")).parent().unwrap();
    let path = std::env::var("PATH").unwrap();
    let output = Command::new("sh")
        .args(["-e", "-c", &only("sh pictures")])
        .env("PATH", format!("{}:{path}", binary.display()))
        .current_dir(dir.path("."))
        .output()
        .unwrap();
    assert!(output.status.success(), "{output:?}");
    let page = dir.read("out.html");
    for algorithm in ALGORITHMS {
        let kept = project_file(&format!("docs/images/{algorithm}.svg"));
        let kept = fs::read_to_string(kept).unwrap();
        assert!(picture(&page, algorithm) == kept, "{algorithm}");
    }
}
