//! Blocks of plain text: output, commands and layouts.

use std::path::PathBuf;
use std::process::Command;

use fluxgate_testkit::RedisServer;

use super::{Block, blocks, first_of, only};
use crate::service::Service;
use crate::support::{Dir, project_file};

#[test]
fn the_faults_of_a_rule_file_are_reported_as_shown() {
    let run = Dir::with_rules(&only("yaml faulty")).run(&["validate", "rules.yaml"]);
    assert_eq!((run.code, run.stderr), (Some(78), only("text faults")));
}

/// Each line names the invalid variable or flag.
#[test]
fn the_bad_overrides_are_reported_as_shown() {
    for line in only("text bad-override").lines() {
        let (origin, _) = line.split_once(": ").unwrap();
        let dir = Dir::new();
        let mut command = dir.command(&["config", "show"]);
        match origin.split_once(' ').unwrap() {
            ("environment", variable) => command.env(variable, "soon"),
            (flag, path) => command.arg(flag).arg(format!("{path}=1")),
        };
        let output = command.output().unwrap();
        let stderr = String::from_utf8(output.stderr).unwrap();
        assert!(stderr.lines().any(|it| it == line), "{line}\n{stderr}");
    }
}

#[test]
fn the_bad_line_is_reported_as_shown() {
    let line = only("text bad-line");
    let dir = Dir::with_rules(&first_of("docs/simulate.md", "yaml"));
    dir.write(
        "requests.ndjson",
        "{\"t\":0}\n{\"t\":1}\n{\"t\":2,\"cost\":-1}\n",
    );
    let arguments = ["simulate", "--rules", "rules.yaml", "--input"];
    let run = dir.run(&[arguments.as_slice(), &["requests.ndjson"]].concat());
    assert_eq!((run.code, run.stderr), (Some(65), line));
    assert_eq!(run.stdout.lines().count(), 2);
}

#[test]
fn the_access_log_is_decided_as_documented() {
    let rules = first_of("docs/simulate.md", "yaml");
    let run = Dir::with_rules(&rules).simulate(only("text access-log"), &["--format", "combined"]);
    let [first, second] = run.lines()[..] else {
        panic!("{run:?}");
    };
    assert!(first.contains(r#""outcome":"no_rule""#), "{first}");
    assert!(second.contains(r#""limit":5,"remaining":4"#), "{second}");
}

#[test]
fn the_usage_names_every_option() {
    let usage = only("text usage");
    let help = Dir::new().run(&["simulate", "--help"]);
    let options = |text: &str| -> Vec<String> {
        let words = text.split(|it: char| !it.is_ascii_lowercase() && it != '-');
        let options = words.filter(|word| word.starts_with("--") && *word != "--help");
        let mut options: Vec<_> = options.map(str::to_owned).collect();
        options.sort();
        options.dedup();
        options
    };
    assert_eq!(options(&usage), options(&help.stdout));
}

/// Indented names are below the previous one; `src` may be omitted.
#[test]
fn the_layouts_name_files_that_exist() {
    let mut seen = 0;
    for block in blocks("text layout") {
        let mut above: Vec<(usize, PathBuf)> = Vec::new();
        for line in block.text.lines() {
            let indent = line.len() - line.trim_start().len();
            above.retain(|(it, _)| *it < indent);
            let folder = above
                .last()
                .map_or_else(|| project_file(""), |it| it.1.clone());
            let name = line.split_whitespace().next().unwrap();
            let mut places = [folder.join(name), folder.join("src").join(name)].into_iter();
            let path = places.find(|path| path.exists());
            // The parts of a module are in the directory of its name.
            let beside = || above.iter().rev().map(|it| it.1.with_file_name(name));
            let path = path.or_else(|| beside().find(|path| path.exists()));
            let path = path.unwrap_or_else(|| panic!("{block}: there is no {name}"));
            above.push((indent, path));
            seen += 1;
        }
    }
    assert!(seen > 20);
}

#[test]
fn redis_cli_shows_what_the_document_shows() {
    let config = first_of("docs/resp.md", "yaml");
    let listen = "listen: { resp: \"127.0.0.1:8083\" }\n";
    assert!(config.contains(listen), "{config}");
    let service = Service::start(&["resp"], &config.replace(listen, ""));
    let port = service.address("resp").port().to_string();
    for block in blocks("text redis-cli") {
        let mut lines = block.text.lines();
        let command = lines.next().and_then(|line| line.split_once("> "));
        let (_, command) = command.unwrap_or_else(|| panic!("{block}"));
        let output = Command::new("redis-cli")
            .args(["-p", &port, "--no-raw"])
            .args(command.split(' '))
            .output()
            .unwrap();
        let printed = String::from_utf8(output.stdout).unwrap();
        assert_explained(&block, &lines.collect::<Vec<_>>(), &printed);
    }
}

/// Checks that each line is the output followed by an explanation.
#[track_caller]
fn assert_explained(block: &Block, shown: &[&str], printed: &str) {
    let printed: Vec<_> = printed.lines().collect();
    assert_eq!(shown.len(), printed.len(), "{block}: {printed:#?}");
    for (shown, printed) in shown.iter().zip(printed) {
        let explanation = shown.strip_prefix(printed);
        assert!(
            explanation.is_some_and(|text| text.starts_with("  ")),
            "{block}: {shown}\nis {printed}"
        );
    }
}

#[test]
fn redis_starts_with_the_settings_of_the_guide() {
    let mut builder = RedisServer::builder();
    let text = only("text redis-conf");
    let setting = |line: &str| line.split('#').next().unwrap().trim().to_owned();
    let settings: Vec<_> = text.lines().map(setting).collect();
    for line in &settings {
        builder = builder.config(line.clone());
    }
    let server = builder.start();
    let mut cli = server.cli();
    let kept = cli.command(&["CONFIG", "GET", "maxmemory-policy"]);
    assert_eq!(kept.array()[1].text(), "noeviction");
    assert_eq!(settings.len(), 4);
}
