//! Path patterns from the prefixes and regular expressions of other programs.

use fluxgate_core::path::Pattern;
use regex_syntax::ast::parse::ParserBuilder;
use regex_syntax::ast::{AssertionKind, Ast, ClassSet, ClassSetItem, Repetition, RepetitionKind};

/// The most patterns that one expression becomes.
const MAX_PATTERNS: usize = 64;
/// The deepest nesting of an expression.
const MAX_DEPTH: u32 = 32;
/// The most tokens of one sequence.
const MAX_TOKENS: usize = 1_000;

/// The patterns of a regular expression.
#[derive(Debug, PartialEq, Eq)]
pub(crate) struct Patterns {
    pub(crate) patterns: Vec<String>,
    /// Whether they match exactly the same paths.
    pub(crate) is_exact: bool,
}

/// Returns the pattern of all paths that begin with a text. A pattern cannot express a
/// literal `*`, `?`, `{` or `}`.
pub(crate) fn prefix(text: &str) -> Option<String> {
    match text {
        "/" => Some("/**".into()),
        _ => literal(text).map(|text| format!("{text}*/**")),
    }
}

/// Returns the pattern of one path.
pub(crate) fn literal(text: &str) -> Option<String> {
    let is_literal = text.starts_with('/') && !text.contains(['*', '?', '{', '}']);
    is_literal.then(|| text.to_owned())
}

/// Returns the pattern of an Ant-style one. A variable such as `{id}` has a counterpart, one with
/// an expression, such as `{id:[0-9]+}`, has none.
pub(crate) fn ant(text: &str) -> Option<String> {
    let text = if text == "**" { "/**" } else { text };
    Pattern::parse(text).is_ok().then(|| text.to_owned())
}

/// The parts of a path that an expression must match.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Anchors {
    /// The whole path.
    Both,
    /// The beginning of the path.
    Start,
    /// Any part of the path.
    None,
}

/// Returns the patterns of a regular expression, if it uses only what patterns can express.
pub(crate) fn regex(text: &str, anchors: Anchors) -> Option<Patterns> {
    let mut parser = ParserBuilder::new().nest_limit(MAX_DEPTH).build();
    let mut converter = Converter { is_exact: true };
    let mut patterns = Vec::new();
    for mut tokens in converter.convert(&parser.parse(text).ok()?)? {
        // An anchor belongs to its alternative: `^/a|/b` finds `/b` anywhere.
        if tokens.first() == Some(&Token::Start) {
            tokens.remove(0);
        } else if anchors == Anchors::None {
            tokens.insert(0, Token::Any);
        }
        if tokens.last() == Some(&Token::End) {
            tokens.pop();
        } else if anchors != Anchors::Both {
            tokens.push(Token::Any);
        }
        for glob in globs(&merged(tokens))? {
            if !patterns.contains(&glob) {
                patterns.push(glob);
            }
        }
        if patterns.len() > MAX_PATTERNS {
            return None;
        }
    }
    let is_valid = |pattern: &String| Pattern::parse(pattern).is_ok();
    let is_usable = !patterns.is_empty() && patterns.iter().all(is_valid);
    is_usable.then_some(Patterns {
        patterns,
        is_exact: converter.is_exact,
    })
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Token {
    Char(char),
    /// One character of a segment.
    One,
    /// Any characters of a segment.
    Star,
    /// Any characters, slashes included.
    Any,
    /// The start of the path.
    Start,
    /// The end of the path.
    End,
}

/// The alternatives of an expression.
type Sequences = Vec<Vec<Token>>;

/// Converts the syntax tree of an expression into sequences of tokens.
struct Converter {
    /// Whether the sequences match exactly what the expression matches.
    is_exact: bool,
}

impl Converter {
    /// Returns the sequences, or `None` if no patterns can express the tree.
    fn convert(&mut self, ast: &Ast) -> Option<Sequences> {
        let token = match ast {
            Ast::Empty(_) => return Some(vec![Vec::new()]),
            Ast::Literal(literal) => Token::Char(literal.c),
            Ast::Dot(_) => {
                self.is_exact = false;
                Token::One
            }
            Ast::Assertion(assertion) => match assertion.kind {
                AssertionKind::StartLine => Token::Start,
                AssertionKind::EndLine => Token::End,
                _ => return None,
            },
            Ast::ClassPerl(class) if !class.negated => {
                self.is_exact = false;
                Token::One
            }
            Ast::ClassBracketed(class) => {
                let ClassSet::Item(item) = &class.kind else {
                    return None;
                };
                // One that matches a slash cannot become a `?`.
                if contains_slash(item)? != class.negated {
                    return None;
                }
                self.is_exact &= class.negated && is_slash(item);
                Token::One
            }
            Ast::Repetition(repetition) => return self.convert_repetition(repetition),
            Ast::Group(group) if group.flags().is_none_or(|flags| flags.items.is_empty()) => {
                return self.convert(&group.ast);
            }
            Ast::Alternation(alternation) => {
                let mut all = Vec::new();
                for ast in &alternation.asts {
                    all.append(&mut self.convert(ast)?);
                }
                return (all.len() <= MAX_PATTERNS).then_some(all);
            }
            Ast::Concat(concat) => {
                let mut all = vec![Vec::new()];
                for ast in &concat.asts {
                    all = product(&all, &self.convert(ast)?)?;
                }
                return Some(all);
            }
            _ => return None,
        };
        Some(vec![vec![token]])
    }

    fn convert_repetition(&mut self, repetition: &Repetition) -> Option<Sequences> {
        let kind = &repetition.op.kind;
        if *kind == RepetitionKind::ZeroOrOne {
            let mut sequences = self.convert(&repetition.ast)?;
            sequences.push(Vec::new());
            return Some(sequences);
        }
        let tokens = match (&*repetition.ast, kind) {
            (Ast::Dot(_), RepetitionKind::ZeroOrMore) => vec![Token::Any],
            (Ast::Dot(_), RepetitionKind::OneOrMore) => {
                // The pattern also matches no character at all.
                self.is_exact = false;
                vec![Token::Any]
            }
            (class @ (Ast::ClassPerl(_) | Ast::ClassBracketed(_)), kind) => {
                self.convert(class)?;
                match kind {
                    RepetitionKind::ZeroOrMore => vec![Token::Star],
                    RepetitionKind::OneOrMore => vec![Token::One, Token::Star],
                    _ => return None,
                }
            }
            _ => return None,
        };
        Some(vec![tokens])
    }
}

/// Returns whether a class contains a slash, or `None` if it is of a rare kind.
fn contains_slash(item: &ClassSetItem) -> Option<bool> {
    Some(match item {
        ClassSetItem::Literal(literal) => literal.c == '/',
        ClassSetItem::Range(range) => (range.start.c..=range.end.c).contains(&'/'),
        ClassSetItem::Perl(class) => class.negated,
        ClassSetItem::Union(union) => {
            let mut items = union.items.iter().map(contains_slash);
            items.try_fold(false, |any, contains| Some(any | contains?))?
        }
        _ => return None,
    })
}

fn is_slash(item: &ClassSetItem) -> bool {
    matches!(item, ClassSetItem::Literal(literal) if literal.c == '/')
}

/// Returns each of the first sequences followed by each of the second.
fn product(first: &Sequences, second: &Sequences) -> Option<Sequences> {
    if first.len() * second.len() > MAX_PATTERNS {
        return None;
    }
    let pairs = first.iter().flat_map(|begin| {
        let join = move |end: &Vec<Token>| [begin.as_slice(), end].concat();
        second.iter().map(join)
    });
    let joined: Sequences = pairs.collect();
    let is_short = joined.iter().all(|tokens| tokens.len() <= MAX_TOKENS);
    is_short.then_some(joined)
}

/// Merges neighbours that match any number of characters.
fn merged(tokens: Vec<Token>) -> Vec<Token> {
    let mut merged: Vec<Token> = Vec::with_capacity(tokens.len());
    for token in tokens {
        match (merged.last_mut(), token) {
            (Some(last @ (Token::Any | Token::Star)), Token::Any) => *last = Token::Any,
            (Some(Token::Any | Token::Star), Token::Star) => {}
            _ => merged.push(token),
        }
    }
    merged
}

/// Returns the patterns of a sequence that must match the whole path.
fn globs(tokens: &[Token]) -> Option<Vec<String>> {
    let mut globs = vec![String::new()];
    for (index, token) in tokens.iter().enumerate() {
        let next = tokens.get(index + 1);
        let endings: &[&str] = match (token, index) {
            // An anchor in the middle, or a character that a pattern cannot express.
            (Token::Start | Token::End | Token::Char('*' | '?' | '{' | '}'), _) => return None,
            (Token::Char('/'), _) => &["/"],
            // Every path begins with a slash, so the sequence matches none.
            (Token::Char(_) | Token::One | Token::Star, 0) => return Some(Vec::new()),
            (Token::Char(char), _) => {
                globs.iter_mut().for_each(|glob| glob.push(*char));
                continue;
            }
            (Token::One, _) => &["?"],
            (Token::Star, _) => &["*"],
            (Token::Any, 0) => match next {
                None | Some(Token::Char('/')) => &["/**"],
                Some(_) => &["/**/*"],
            },
            (Token::Any, 1) if next.is_none() && tokens[0] == Token::Char('/') => &["**"],
            (Token::Any, _) => match next {
                None | Some(Token::Char('/')) => &["*/**"],
                Some(_) => &["*", "*/**/*"],
            },
        };
        if globs.len() * endings.len() > MAX_PATTERNS {
            return None;
        }
        let longer = globs.iter().flat_map(|glob| {
            let append = move |ending: &&str| format!("{glob}{ending}");
            endings.iter().map(append)
        });
        globs = longer.collect();
    }
    globs.retain(|glob| !glob.is_empty());
    Some(globs)
}

#[cfg(test)]
mod tests {
    use super::*;
    use fluxgate_core::path::PathSet;

    fn matches(patterns: &[String], path: &str) -> bool {
        let patterns = patterns.iter().map(|it| Pattern::parse(it).unwrap());
        PathSet::new(patterns.collect()).contains(Some(path))
    }

    #[test]
    fn prefixes_match_what_begins_with_them() {
        for (text, yes, no) in [
            ("/", vec!["/", "/a", "/a/b", "/a/"], vec![]),
            (
                "/api",
                vec!["/api", "/apis", "/api/", "/api/x/y"],
                vec!["/ap", "/x/api"],
            ),
            (
                "/api/",
                vec!["/api/", "/api/x", "/api/x/"],
                vec!["/api", "/apis/x"],
            ),
        ] {
            let pattern = [prefix(text).unwrap()];
            for path in yes {
                assert!(matches(&pattern, path), "{text} {path} {pattern:?}");
            }
            for path in no {
                assert!(!matches(&pattern, path), "{text} {path} {pattern:?}");
            }
        }
        assert_eq!(prefix("/a*"), None);
        assert_eq!(prefix("api"), None);
    }

    #[test]
    fn ant_patterns_may_have_variables_for_whole_segments() {
        assert_eq!(ant("/api/**").as_deref(), Some("/api/**"));
        assert_eq!(ant("**").as_deref(), Some("/**"));
        assert_eq!(ant("/users/{id}").as_deref(), Some("/users/{id}"));
        for text in [
            "api",
            "/a**",
            "/users/{id}.json",
            "/users/{id:[0-9]+}",
            "/files/{*path}",
        ] {
            assert_eq!(ant(text), None, "{text}");
        }
    }

    #[test]
    fn expressions_that_match_the_whole_path() {
        for (text, expected) in [
            (".*", "/**"),
            ("/.*", "/**"),
            ("/api/.*", "/api/*/**"),
            ("/api.*", "/api*/**"),
            ("^/api/v1$", "/api/v1"),
            ("^(/hello).*", "/hello*/**"),
            ("/(a|b)/x", "/a/x /b/x"),
            ("/(?<kind>a|b)/x", "/a/x /b/x"),
            ("/(?P<kind_2>a|b)/x", "/a/x /b/x"),
            ("/api(/.*)?", "/api/*/** /api"),
            ("/api/?", "/api/ /api"),
            ("/users/[^/]+/orders", "/users/?*/orders"),
            (".*\\.json", "/**/*.json"),
            (".*/x", "/**/x"),
            ("/a.*b", "/a*b /a*/**/*b"),
            ("/a.*/b", "/a*/**/b"),
            ("^/a$|^/b$", "/a /b"),
        ] {
            let found = regex(text, Anchors::Both).unwrap();
            assert_eq!(found.patterns.join(" "), expected, "{text}");
            assert!(found.is_exact, "{text}");
        }
    }

    #[test]
    fn expressions_that_match_a_part_of_the_path() {
        for (text, expected) in [
            ("\\.php$", "/**/*.php"),
            ("^/admin", "/admin*/**"),
            ("/admin/", "/**/admin/*/**"),
            ("^/(img|css)/", "/img/*/** /css/*/**"),
            ("x", "/**/*x*/**"),
            ("^/a|/b", "/a*/** /**/b*/**"),
            ("/a|/b$", "/**/a*/** /**/b"),
            ("(^/a|/b)$", "/a /**/b"),
            ("/a\\$", "/**/a$*/**"),
        ] {
            let found = regex(text, Anchors::None).unwrap();
            assert_eq!(found.patterns.join(" "), expected, "{text}");
        }
    }

    #[test]
    fn approximations_are_marked() {
        for (text, expected) in [
            ("/v\\d+/x", "/v?*/x"),
            ("/index.html", "/index?html"),
            ("/[a-z]*", "/*"),
            ("/[a-z]?", "/? /"),
            ("/[^/.]+", "/?*"),
            ("/api/.+", "/api/*/**"),
        ] {
            let found = regex(text, Anchors::Both).unwrap();
            assert_eq!(
                (found.patterns.join(" ").as_str(), found.is_exact),
                (expected, false)
            );
        }
    }

    #[test]
    fn other_expressions_are_refused() {
        let deep = "(".repeat(100_000);
        let wide = "(a|b)".repeat(30);
        for text in [
            "/a*",
            "/a{2}",
            "(?!x).*",
            "/(?<=x)y",
            "/(?<!x)y",
            "/(?<>x)",
            "/(?<n",
            "/(?P=n)",
            "/(?P<n>x",
            "/\\bx",
            "/(a",
            "/a)",
            "/[^a]+",
            "/[!-~]+",
            "/\\D+",
            "/(a)+",
            "/a^b",
            "/a$b",
            "*",
            "x",
            "",
            "/\\*",
            &deep,
            &format!("/{wide}"),
        ] {
            assert_eq!(regex(text, Anchors::Both), None, "{text}");
        }
    }
}
