//! What the binary generates about itself: completions and manual pages.

use std::collections::BTreeSet;
use std::fs;
use std::process::Command;

use crate::support::Dir;

/// Returns the names of the commands, as `--help` lists them.
fn commands(dir: &Dir) -> Vec<String> {
    let help = dir.run(&["--help"]).stdout;
    let list = help.split("Commands:\n").nth(1).unwrap();
    let list = list.split("\n\n").next().unwrap();
    let names = list
        .lines()
        .filter_map(|line| line.split_whitespace().next());
    let names = names.filter(|name| *name != "help");
    names.map(str::to_owned).collect()
}

/// Returns what bash offers for the last of these words.
fn completed(dir: &Dir, words: &[&str]) -> BTreeSet<String> {
    const SCRIPT: &str = "source fluxgate.bash
        COMP_WORDS=(\"$@\") COMP_CWORD=$(($# - 1))
        _fluxgate \"$1\" \"${!#}\" \"${COMP_WORDS[COMP_CWORD - 1]}\"
        printf '%s\\n' \"${COMPREPLY[@]}\"";
    let mut bash = Command::new("bash");
    bash.args(["-c", SCRIPT, "bash"]).args(words);
    let output = bash.current_dir(dir.path("")).output().unwrap();
    assert!(output.status.success(), "{output:?}");
    let words = String::from_utf8(output.stdout).unwrap();
    words.lines().map(str::to_owned).collect()
}

#[test]
fn bash_completes_commands_options_and_values() {
    let dir = Dir::new();
    dir.write("fluxgate.bash", dir.run(&["completions", "bash"]).stdout);
    let set = |words: &[&str]| words.iter().map(|word| (*word).to_owned()).collect();
    let offered: BTreeSet<String> = set(&["health", "help", "history"]);
    let h: BTreeSet<_> = completed(&dir, &["fluxgate", "h"]);
    assert_eq!(h, offered);
    assert!(completed(&dir, &["fluxgate", ""]).is_superset(&commands(&dir).into_iter().collect()));
    assert_eq!(
        completed(&dir, &["fluxgate", "health", "--l"]),
        set(&["--live"])
    );
    assert_eq!(
        completed(&dir, &["fluxgate", "rules", "di"]),
        set(&["diff"])
    );
    let shells = completed(&dir, &["fluxgate", "completions", ""]);
    assert!(
        shells.is_superset(&set(&["bash", "fish", "zsh"])),
        "{shells:?}"
    );
}

#[test]
fn every_shell_gets_every_command() {
    let dir = Dir::new();
    for shell in ["bash", "zsh", "fish"] {
        let run = dir.run(&["completions", shell]);
        assert_eq!((run.code, &*run.stderr), (Some(0), ""));
        for command in commands(&dir) {
            assert!(run.stdout.contains(&command), "{shell}: {command}");
        }
    }
    assert_eq!(dir.run(&["completions", "csh"]).code, Some(2));
}

/// Returns the line with the name and the section of a page.
fn title(page: &str) -> String {
    let title = page.lines().find(|line| line.starts_with(".TH "));
    title.unwrap().replace("\\-", "-")
}

#[test]
fn every_command_has_a_manual_page() {
    let dir = Dir::new();
    let run = dir.run(&["man"]);
    assert_eq!((run.code, &*run.stderr), (Some(0), ""));
    assert!(title(&run.stdout).starts_with(".TH fluxgate 1 "));
    fs::create_dir(dir.path("man")).unwrap();
    assert_eq!(dir.run(&["man", "--dir", "man"]).lines(), [""; 0]);
    assert_eq!(dir.read("man/fluxgate.1"), run.stdout);
    for command in commands(&dir) {
        // A page of another page is a link to it.
        let name = format!("fluxgate\\-{}(1)", command.replace('-', "\\-"));
        assert!(run.stdout.contains(&name), "{name}: {}", run.stdout);
        let page = dir.read(&format!("man/fluxgate-{command}.1"));
        let expected = format!(".TH fluxgate-{command} 1 ");
        assert!(title(&page).starts_with(&expected), "{page}");
        assert!(page.contains("\n.SH SYNOPSIS\n"), "{page}");
    }
    assert!(
        dir.read("man/fluxgate-rules-diff.1")
            .contains(".SH OPTIONS")
    );
    let run = dir.run(&["man", "--dir", "missing"]);
    assert_eq!(run.code, Some(74), "{run:?}");
    assert!(run.stderr.starts_with("--dir: missing: "), "{run:?}");
}
