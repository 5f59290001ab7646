//! Path patterns from the prefixes and regular expressions of other programs.

use fluxgate_core::internals::Pattern;

/// The most patterns that one expression becomes.
const MAX_PATTERNS: usize = 64;
const MAX_DEPTH: usize = 16;
const MAX_TOKENS: usize = 1_000;

/// The patterns of a regular expression.
#[derive(Debug, PartialEq, Eq)]
pub(super) struct Patterns {
    pub(super) patterns: Vec<String>,
    /// Whether they match exactly the same paths.
    pub(super) is_exact: bool,
}

/// Returns the pattern of all paths that begin with a text. A pattern cannot express a
/// literal `*`, `?`, `{` or `}`.
pub(super) fn prefix(text: &str) -> Option<String> {
    match text {
        "/" => Some("/**".into()),
        _ => literal(text).map(|text| format!("{text}*/**")),
    }
}

/// Returns the pattern of one path.
pub(super) fn literal(text: &str) -> Option<String> {
    let is_literal = text.starts_with('/') && !text.contains(['*', '?', '{', '}']);
    is_literal.then(|| text.to_owned())
}

/// Returns the pattern of an Ant-style one. Variables such as `{id}` have a counterpart, those
/// with an expression, such as `{id:[0-9]+}`, have none.
pub(super) fn ant(text: &str) -> Option<String> {
    let text = match text {
        "**" => "/**",
        text => text,
    };
    Pattern::parse(text).is_ok().then(|| text.to_owned())
}

/// Returns the patterns of a regular expression, if it uses only what patterns can express. An
/// expression that is not anchored matches a part of the path.
pub(super) fn regex(text: &str, is_anchored: (bool, bool)) -> Option<Patterns> {
    let mut parser = Parser {
        chars: text.chars().peekable(),
        is_exact: true,
    };
    let sequences = parser.alternatives(0)?;
    // What is left is a bracket that was not opened.
    if parser.chars.next().is_some() {
        return None;
    }
    let mut patterns = Vec::new();
    for mut tokens in sequences {
        // An anchor belongs to its alternative: `^/a|/b` finds `/b` anywhere.
        match tokens.first() {
            Some(Token::Start) => {
                tokens.remove(0);
            }
            _ if is_anchored.0 => {}
            _ => tokens.insert(0, Token::Any),
        }
        match tokens.last() {
            Some(Token::End) => {
                tokens.pop();
            }
            _ if is_anchored.1 => {}
            _ => tokens.push(Token::Any),
        }
        patterns.extend(globs(&merged(tokens))?);
        if patterns.len() > MAX_PATTERNS {
            return None;
        }
    }
    let mut unique = Vec::new();
    for pattern in patterns {
        if !unique.contains(&pattern) {
            unique.push(pattern);
        }
    }
    let is_valid = |pattern: &String| Pattern::parse(pattern).is_ok();
    let is_usable = !unique.is_empty() && unique.iter().all(is_valid);
    is_usable.then_some(Patterns {
        patterns: unique,
        is_exact: parser.is_exact,
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

struct Parser<'a> {
    chars: std::iter::Peekable<std::str::Chars<'a>>,
    is_exact: bool,
}

type Sequences = Vec<Vec<Token>>;

impl Parser<'_> {
    /// Parses alternatives up to a closing bracket or the end.
    fn alternatives(&mut self, depth: usize) -> Option<Sequences> {
        if depth > MAX_DEPTH {
            return None;
        }
        let mut all = Vec::new();
        let mut current: Sequences = vec![Vec::new()];
        while let Some(char) = self.chars.peek().copied() {
            if char == ')' {
                break;
            }
            self.chars.next();
            if char == '|' {
                all.append(&mut current);
                current.push(Vec::new());
                continue;
            }
            let choices = self.item(char, depth)?;
            current = product(&current, &choices)?;
        }
        all.append(&mut current);
        (all.len() <= MAX_PATTERNS).then_some(all)
    }

    /// Parses an item and its quantifier.
    fn item(&mut self, char: char, depth: usize) -> Option<Sequences> {
        let token = match char {
            '(' => return self.group(depth),
            '.' => return self.any(),
            '[' => return self.class(),
            '\\' => match self.chars.next()? {
                'd' | 'w' => return self.repeated(Token::One),
                char if char.is_ascii_alphanumeric() => return None,
                char => Token::Char(char),
            },
            '^' => Token::Start,
            '$' => Token::End,
            '*' | '+' | '?' | '{' | '}' | ']' => return None,
            char => Token::Char(char),
        };
        match self.chars.peek() {
            Some('?') => {
                self.chars.next();
                Some(vec![vec![token], Vec::new()])
            }
            Some('*' | '+' | '{') => None,
            _ => Some(vec![vec![token]]),
        }
    }

    /// Parses a group after its opening bracket.
    fn group(&mut self, depth: usize) -> Option<Sequences> {
        if self.chars.next_if_eq(&'?').is_some() {
            match self.chars.next()? {
                ':' => {}
                '<' => self.group_name()?,
                'P' if self.chars.next()? == '<' => self.group_name()?,
                // Other groups look ahead or set options.
                _ => return None,
            }
        }
        let mut sequences = self.alternatives(depth + 1)?;
        (self.chars.next()? == ')').then_some(())?;
        match self.chars.peek() {
            Some('?') => {
                self.chars.next();
                sequences.push(Vec::new());
                Some(sequences)
            }
            Some('*' | '+' | '{') => None,
            _ => Some(sequences),
        }
    }

    /// Parses the name of a group and the bracket after it. A group that looks behind has none.
    fn group_name(&mut self) -> Option<()> {
        let mut length = 0;
        loop {
            match self.chars.next()? {
                '>' => return (length > 0).then_some(()),
                char if char.is_ascii_alphanumeric() || char == '_' => length += 1,
                _ => return None,
            }
        }
    }

    /// Parses what follows a dot.
    fn any(&mut self) -> Option<Sequences> {
        let token = match self.chars.peek() {
            Some(quantifier @ ('*' | '+')) => {
                // The pattern also matches no character at all.
                self.is_exact &= *quantifier == '*';
                self.chars.next();
                // It may be lazy, which makes no difference to what matches.
                self.chars.next_if_eq(&'?');
                Token::Any
            }
            Some('?' | '{') => return None,
            _ => {
                self.is_exact = false;
                Token::One
            }
        };
        Some(vec![vec![token]])
    }

    /// Parses a class of characters after its opening bracket.
    fn class(&mut self) -> Option<Sequences> {
        let mut inside = String::new();
        loop {
            match self.chars.next()? {
                ']' if !inside.is_empty() => break,
                '\\' => inside.push(self.chars.next()?),
                char => inside.push(char),
            }
        }
        let is_segment = inside == "^/";
        // A class of other characters must not match a slash.
        if !is_segment && (inside.starts_with('^') || inside.contains('/')) {
            return None;
        }
        if is_segment {
            let was_exact = self.is_exact;
            let sequences = self.repeated(Token::One);
            self.is_exact = was_exact;
            return sequences;
        }
        self.repeated(Token::One)
    }

    /// Parses the quantifier of something that matches one character of a segment.
    fn repeated(&mut self, token: Token) -> Option<Sequences> {
        self.is_exact = false;
        match self.chars.peek() {
            Some('*') => {
                self.chars.next();
                Some(vec![vec![Token::Star]])
            }
            Some('+') => {
                self.chars.next();
                Some(vec![vec![token, Token::Star]])
            }
            Some('?' | '{') => None,
            _ => Some(vec![vec![token]]),
        }
    }
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
    use fluxgate_core::internals::PathSet;

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
            let found = regex(text, (true, true)).unwrap();
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
            let found = regex(text, (false, false)).unwrap();
            assert_eq!(found.patterns.join(" "), expected, "{text}");
        }
    }

    #[test]
    fn approximations_are_marked() {
        for (text, expected) in [
            ("/v\\d+/x", "/v?*/x"),
            ("/index.html", "/index?html"),
            ("/[a-z]*", "/*"),
            ("/api/.+", "/api/*/**"),
        ] {
            let found = regex(text, (true, true)).unwrap();
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
            assert_eq!(regex(text, (true, true)), None, "{text}");
        }
    }
}
