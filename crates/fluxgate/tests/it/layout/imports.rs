//! Reads the modules of a crate and where each uses items of the others.
//!
//! A module depends on another if its code names an item that the other's file defines: by a
//! private `use`, or by a path that starts with `crate`, `super`, `self`, a child module or an
//! imported name. A declaration (`mod child;`) or a re-export (`pub use child::Item;`) is no
//! dependency, so a parent may show its children's items while they use its own. It becomes
//! one as soon as the parent's own code names the re-exported item.

use std::collections::{BTreeMap, BTreeSet};
use std::path::{Path, PathBuf};
use std::{fmt, fs};

/// The modules of a crate, by path, such as `gateway::routes`. The path of the root is empty.
pub(super) struct Modules {
    modules: BTreeMap<String, Module>,
}

/// One source file.
struct Module {
    file: PathBuf,
    /// Imported and re-exported names and their paths.
    names: BTreeMap<String, Vec<String>>,
    /// Modules that the file re-exports by `*`.
    globs: Vec<Vec<String>>,
    uses: Vec<Use>,
}

/// A path in a source file.
struct Use {
    line: usize,
    path: Vec<String>,
    kind: UseKind,
}

#[derive(Clone, Copy, Debug, PartialEq)]
enum UseKind {
    Import,
    Reexport,
    /// A path or a single name in the code.
    Code,
}

/// A line that names an item of another module of the same crate.
#[derive(Clone, Debug)]
pub(super) struct Import {
    pub(super) file: PathBuf,
    pub(super) line: usize,
    /// The module that the line is in.
    pub(super) from: String,
    /// The module that defines the item.
    pub(super) to: String,
    /// Whether the line is a `pub use`.
    pub(super) is_reexport: bool,
}

/// What a path names.
enum Target {
    /// An item that the file of this module defines.
    Item(String),
    Module(String),
}

impl fmt::Display for Import {
    fn fmt(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
        let Self {
            file,
            line,
            from,
            to,
            ..
        } = self;
        write!(formatter, "{}:{line}: {from} uses {to}", file.display())
    }
}

impl Modules {
    /// Reads every module of the crate whose sources are in `source`.
    pub(super) fn read(source: &Path) -> Self {
        let mut modules = BTreeMap::new();
        let root = ["lib.rs", "main.rs"].map(|name| source.join(name));
        let root = root.iter().find(|file| file.is_file()).unwrap();
        read_module(root, source, String::new(), &mut modules);
        Self { modules }
    }

    /// Returns the names of the top-level modules.
    pub(super) fn top_level(&self) -> BTreeSet<&str> {
        let names = self.modules.keys().map(|path| top_level(path));
        names.filter(|name| !name.is_empty()).collect()
    }

    /// Returns every use of an item that another file of the crate defines.
    pub(super) fn imports(&self) -> Vec<Import> {
        let mut imports = Vec::new();
        for (from, module) in &self.modules {
            for Use { line, path, kind } in &module.uses {
                // Importing a module uses nothing of its file: the paths through it do.
                let to = match self.resolve(from, path, 0) {
                    Some(Target::Item(to)) => to,
                    Some(Target::Module(to)) if *kind == UseKind::Reexport => to,
                    _ => continue,
                };
                if to != *from {
                    imports.push(Import {
                        file: module.file.clone(),
                        line: *line,
                        from: from.clone(),
                        to,
                        is_reexport: *kind == UseKind::Reexport,
                    });
                }
            }
        }
        imports
    }

    /// Returns what `path` names, as seen from module `from`, or `None` if another crate
    /// defines it.
    fn resolve(&self, from: &str, path: &[String], depth: usize) -> Option<Target> {
        assert!(depth < 20, "{from}: {path:?} is a cycle of re-exports");
        let (first, rest) = path.split_first()?;
        let module = match first.as_str() {
            "crate" => String::new(),
            "self" => from.to_owned(),
            "super" => parent(from).to_owned(),
            // A single name is an item before it is a module: modules are only looked into.
            name if !rest.is_empty() && self.has_child(from, name) => child(from, name),
            name => {
                let target = self.modules[from].names.get(name)?;
                // `use regex;` names another crate.
                if target.first() == Some(first) {
                    return None;
                }
                let full: Vec<_> = target.iter().chain(rest).cloned().collect();
                return self.resolve(from, &full, depth + 1);
            }
        };
        self.resolve_in(module, rest, depth)
    }

    /// Returns what `path` names inside `module`.
    fn resolve_in(&self, mut module: String, path: &[String], depth: usize) -> Option<Target> {
        for (index, segment) in path.iter().enumerate() {
            module = match segment.as_str() {
                "self" => continue,
                "super" => parent(&module).to_owned(),
                name if self.has_child(&module, name) => child(&module, name),
                name => {
                    let known = &self.modules[&module];
                    let rest = &path[index + 1..];
                    if let Some(target) = known.names.get(name) {
                        let full: Vec<_> = target.iter().chain(rest).cloned().collect();
                        return self.resolve(&module, &full, depth + 1);
                    }
                    let from_globs = known.globs.iter().find_map(|glob| {
                        let full: Vec<_> = glob.iter().chain(&path[index..]).cloned().collect();
                        self.resolve(&module, &full, depth + 1)
                    });
                    return from_globs.or(Some(Target::Item(module)));
                }
            }
        }
        Some(Target::Module(module))
    }

    fn has_child(&self, module: &str, name: &str) -> bool {
        self.modules.contains_key(&child(module, name))
    }
}

/// Returns the first segment of a module's path.
pub(super) fn top_level(module: &str) -> &str {
    module.split("::").next().unwrap_or_default()
}

fn parent(module: &str) -> &str {
    module.rsplit_once("::").map_or("", |(parent, _)| parent)
}

fn child(module: &str, name: &str) -> String {
    match module {
        "" => name.to_owned(),
        _ => format!("{module}::{name}"),
    }
}

fn read_module(
    file: &Path,
    directory: &Path,
    path: String,
    modules: &mut BTreeMap<String, Module>,
) {
    let text = code_only(&fs::read_to_string(file).unwrap());
    let mut module = Module {
        file: file.to_owned(),
        names: BTreeMap::new(),
        globs: Vec::new(),
        uses: Vec::new(),
    };
    // Single names. Each counts if this file re-exports it.
    let mut single_names = Vec::new();
    let mut statements = Statements::new(&text);
    while let Some((line, statement)) = statements.next_statement() {
        let mut record = |path, kind| module.uses.push(Use { line, path, kind });
        match statement {
            Statement::Use { public, paths } => {
                let kind = if public {
                    UseKind::Reexport
                } else {
                    UseKind::Import
                };
                for (name, target) in paths {
                    record(target.clone(), kind);
                    match target.split_last() {
                        Some((last, module_path)) if last == "*" => {
                            if public {
                                module.globs.push(module_path.to_vec());
                            }
                        }
                        _ => drop(module.names.insert(name, target)),
                    }
                }
            }
            Statement::Path(path) if path.len() == 1 => single_names.push((line, path)),
            Statement::Path(path) => record(path, UseKind::Code),
            Statement::Mod(name) => {
                let file = [
                    directory.join(format!("{name}.rs")),
                    directory.join(&name).join("mod.rs"),
                ];
                let file = file.iter().find(|file| file.is_file());
                let file = file.unwrap_or_else(|| panic!("no file for mod {name} of {path}"));
                read_module(file, &directory.join(&name), child(&path, &name), modules);
            }
        }
    }
    let is_named = |path: &Vec<String>| module.names.contains_key(&path[0]);
    let single_names = single_names.into_iter().filter(|(_, path)| is_named(path));
    let kind = UseKind::Code;
    module
        .uses
        .extend(single_names.map(|(line, path)| Use { line, path, kind }));
    modules.insert(path, module);
}

/// Removes comments, strings and inline test modules, and keeps the line numbers.
fn code_only(text: &str) -> String {
    let mut code = String::new();
    let mut rest = text;
    while let Some(first) = rest.chars().next() {
        let skipped = if rest.starts_with("//") {
            rest.find('\n').unwrap_or(rest.len())
        } else if is_test_module(rest) {
            // Unit tests are at the end of a file.
            rest.len()
        } else if first == '"' {
            string_length(rest)
        } else if rest.starts_with("'\"'") {
            3
        } else if let Some(hashes) = raw_string_hashes(rest) {
            let end = format!("\"{}", "#".repeat(hashes));
            let start = hashes + 2;
            start + rest[start..].find(&end).unwrap() + end.len()
        } else {
            code.push(first);
            rest = &rest[first.len_utf8()..];
            continue;
        };
        let lines = rest[..skipped].matches('\n').count();
        code.extend(std::iter::repeat_n('\n', lines));
        rest = &rest[skipped..];
    }
    code
}

/// Returns whether the text starts with an inline test module.
fn is_test_module(text: &str) -> bool {
    let Some((attribute, rest)) = text.split_once('\n') else {
        return false;
    };
    let is_inline = |text: &str| {
        text.find(['{', ';'])
            .is_some_and(|at| text[at..].starts_with('{'))
    };
    attribute.starts_with("#[cfg(")
        && attribute.contains("test")
        && rest.starts_with("mod ")
        && is_inline(rest)
}

fn string_length(text: &str) -> usize {
    let mut escaped = false;
    let end = text.char_indices().skip(1).find(|(_, char)| {
        let ends = *char == '"' && !escaped;
        escaped = *char == '\\' && !escaped;
        ends
    });
    end.map_or(text.len(), |(at, _)| at + 1)
}

/// Returns the number of `#` before the quote if the text starts with a raw string.
fn raw_string_hashes(text: &str) -> Option<usize> {
    let rest = text.strip_prefix('r')?;
    let hashes = rest.len() - rest.trim_start_matches('#').len();
    rest[hashes..].starts_with('"').then_some(hashes)
}

enum Statement {
    Use {
        public: bool,
        /// Each imported name and its path.
        paths: Vec<(String, Vec<String>)>,
    },
    /// A path in the code, or a single name of a type, a function that is called, or a
    /// macro.
    Path(Vec<String>),
    /// A module in a file of its own.
    Mod(String),
}

/// Reads the statements of a file from its tokens.
struct Statements<'a> {
    tokens: Vec<(usize, &'a str)>,
    position: usize,
}

impl<'a> Statements<'a> {
    fn new(text: &'a str) -> Self {
        let mut tokens = Vec::new();
        for (number, line) in text.lines().enumerate() {
            let mut rest = line;
            while let Some(start) = rest.find(|char: char| !char.is_whitespace()) {
                rest = &rest[start..];
                let is_word = |char: char| char.is_alphanumeric() || char == '_';
                let length = match rest.chars().next() {
                    Some(first) if is_word(first) => {
                        rest.find(|char| !is_word(char)).unwrap_or(rest.len())
                    }
                    _ if rest.starts_with("::") => 2,
                    first => first.map_or(1, char::len_utf8),
                };
                tokens.push((number + 1, &rest[..length]));
                rest = &rest[length..];
            }
        }
        Self {
            tokens,
            position: 0,
        }
    }

    fn token(&self, ahead: usize) -> &'a str {
        self.tokens
            .get(self.position + ahead)
            .map_or("", |(_, token)| token)
    }

    fn next_statement(&mut self) -> Option<(usize, Statement)> {
        while let Some(&(line, token)) = self.tokens.get(self.position) {
            let back = |count| {
                self.position
                    .checked_sub(count)
                    .map_or("", |at| self.tokens[at].1)
            };
            let before = back(1);
            // `pub(in path)` is no use; `for x in path` is.
            let is_skipped =
                ["::", ".", "fn"].contains(&before) || before == "in" && back(2) == "(";
            let is_word = token.starts_with(|char: char| char.is_alphabetic() || char == '_');
            match token {
                "use" if before != "+" && self.token(1) != "<" => {
                    let public = before == "pub" || before == ")";
                    self.position += 1;
                    let mut paths = Vec::new();
                    self.use_tree(&[], &mut paths);
                    return Some((line, Statement::Use { public, paths }));
                }
                "mod" if self.token(2) == ";" => {
                    let name = self.token(1).to_owned();
                    self.position += 3;
                    return Some((line, Statement::Mod(name)));
                }
                _ if is_word && !is_skipped => {
                    let mut path = vec![token.to_owned()];
                    while self.token(1) == "::" && self.token(2) != "<" {
                        path.push(self.token(2).to_owned());
                        self.position += 2;
                    }
                    self.position += 1;
                    let is_type = token.starts_with(char::is_uppercase);
                    let names_item = is_type || ["(", "!", "::"].contains(&self.token(0));
                    if path.len() > 1 || names_item {
                        return Some((line, Statement::Path(path)));
                    }
                }
                _ => self.position += 1,
            }
        }
        None
    }

    /// Reads a tree such as `a::b::{c, d as e}` from the current position.
    fn use_tree(&mut self, prefix: &[String], paths: &mut Vec<(String, Vec<String>)>) {
        let mut path = prefix.to_vec();
        loop {
            match self.token(0) {
                "{" => {
                    self.position += 1;
                    while self.token(0) != "}" {
                        self.use_tree(&path, paths);
                        if self.token(0) == "," {
                            self.position += 1;
                        }
                    }
                    self.position += 1;
                    return;
                }
                "::" => self.position += 1,
                token => {
                    path.push(token.to_owned());
                    self.position += 1;
                    if self.token(0) != "::" {
                        break;
                    }
                }
            }
        }
        let mut name = path.last().cloned().unwrap_or_default();
        // `a::{self}` names the module `a`.
        if name == "self" && path.len() > 1 {
            path.pop();
            name = path.last().cloned().unwrap_or_default();
        }
        if self.token(0) == "as" {
            name = self.token(1).to_owned();
            self.position += 2;
        }
        paths.push((name, path));
    }
}
