//! Reads the directives of an nginx configuration.

use fluxgate_core::yaml::{Fault, Position};

/// The deepest nesting of blocks.
const MAX_DEPTH: usize = 32;

/// A directive with its arguments and its block.
#[derive(Debug)]
pub(super) struct Directive {
    pub(super) position: Position,
    pub(super) name: String,
    pub(super) arguments: Vec<Word>,
    pub(super) block: Vec<Self>,
}

impl Directive {
    pub(super) fn line(&self) -> usize {
        self.position.line
    }

    /// Returns an argument, or an empty text.
    pub(super) fn argument(&self, index: usize) -> &str {
        self.arguments
            .get(index)
            .map_or("", |word| word.text.as_str())
    }

    /// Returns the directive as it could be written, without its block.
    pub(super) fn text(&self) -> String {
        let arguments = self.arguments.iter().map(|word| word.text.as_str());
        let words: Vec<_> = [self.name.as_str()].into_iter().chain(arguments).collect();
        words.join(" ")
    }

    /// Returns whether a directive of this name is inside its block.
    pub(super) fn contains(&self, name: &str) -> bool {
        let mut inside = self.block.iter();
        inside.any(|it| it.name == name || it.contains(name))
    }
}

#[derive(Clone, Debug)]
pub(super) struct Word {
    pub(super) position: Position,
    pub(super) text: String,
}

/// Returns the directives of a text.
pub(super) fn parse(text: &str) -> Result<Vec<Directive>, Fault> {
    let mut lexer = Lexer {
        chars: text.chars().peekable(),
        position: Position { line: 1, column: 1 },
    };
    let mut open: Vec<(Directive, Vec<Directive>)> = Vec::new();
    let mut current: Vec<Directive> = Vec::new();
    let mut words: Vec<Word> = Vec::new();
    loop {
        let at = lexer.skip_blank();
        match lexer.token()? {
            Token::Word(text) => words.push(Word { position: at, text }),
            Token::End if !words.is_empty() => {
                return Err(fault(
                    at,
                    format!("`{}` is not followed by `;`", words[0].text),
                ));
            }
            Token::End => {
                return match open.pop() {
                    Some((directive, _)) => Err(fault(
                        directive.position,
                        format!("the block of `{}` is not closed", directive.name),
                    )),
                    None => Ok(current),
                };
            }
            Token::Semicolon => current.push(directive(&mut words, at, ";")?),
            Token::Open => {
                if open.len() >= MAX_DEPTH {
                    let text = format!("blocks are nested more than {MAX_DEPTH} levels deep");
                    return Err(fault(at, text));
                }
                let directive = directive(&mut words, at, "{")?;
                if directive.name.ends_with("_by_lua_block") {
                    lexer.skip_foreign_block(at)?;
                    current.push(directive);
                } else {
                    open.push((directive, std::mem::take(&mut current)));
                }
            }
            Token::Close => {
                if !words.is_empty() {
                    let text = format!("`{}` is not followed by `;`", words[0].text);
                    return Err(fault(at, text));
                }
                let Some((mut directive, above)) = open.pop() else {
                    return Err(fault(at, "`}` closes no block"));
                };
                directive.block = std::mem::replace(&mut current, above);
                current.push(directive);
            }
        }
    }
}

fn directive(words: &mut Vec<Word>, at: Position, end: &str) -> Result<Directive, Fault> {
    let mut words = std::mem::take(words).into_iter();
    let Some(name) = words.next() else {
        return Err(fault(at, format!("`{end}` without a directive")));
    };
    Ok(Directive {
        position: name.position,
        name: name.text,
        arguments: words.collect(),
        block: Vec::new(),
    })
}

fn fault(position: Position, message: impl Into<String>) -> Fault {
    let message = message.into();
    Fault { position, message }
}

enum Token {
    Word(String),
    Semicolon,
    Open,
    Close,
    End,
}

struct Lexer<'t> {
    chars: std::iter::Peekable<std::str::Chars<'t>>,
    position: Position,
}

impl Lexer<'_> {
    fn next(&mut self) -> Option<char> {
        let char = self.chars.next()?;
        match char {
            '\n' => {
                self.position.line += 1;
                self.position.column = 1;
            }
            _ => self.position.column += 1,
        }
        Some(char)
    }

    /// Skips white space and comments, and returns the position of what follows.
    fn skip_blank(&mut self) -> Position {
        while let Some(char) = self.chars.peek() {
            match char {
                '#' => while self.next().is_some_and(|char| char != '\n') {},
                char if char.is_ascii_whitespace() => {
                    self.next();
                }
                _ => break,
            }
        }
        self.position
    }

    fn token(&mut self) -> Result<Token, Fault> {
        let at = self.position;
        match self.chars.peek().copied() {
            None => Ok(Token::End),
            Some(';') => self.single(Token::Semicolon),
            Some('{') => self.single(Token::Open),
            Some('}') => self.single(Token::Close),
            Some(quote @ ('"' | '\'')) => {
                self.next();
                self.quoted(quote, at).map(Token::Word)
            }
            Some(_) => Ok(Token::Word(self.plain())),
        }
    }

    fn single(&mut self, token: Token) -> Result<Token, Fault> {
        self.next();
        Ok(token)
    }

    fn quoted(&mut self, quote: char, at: Position) -> Result<String, Fault> {
        let mut text = String::new();
        loop {
            match self.next() {
                None => return Err(fault(at, "a quoted text is not closed")),
                Some(char) if char == quote => return Ok(text),
                Some('\\') => self.escaped(&mut text),
                Some(char) => text.push(char),
            }
        }
    }

    fn plain(&mut self) -> String {
        let mut text = String::new();
        while let Some(char) = self.chars.peek().copied() {
            match char {
                ';' | '}' => break,
                // A brace after `$` begins the name of a variable.
                '{' if !text.ends_with('$') => break,
                '{' => {
                    while let Some(char) = self.next() {
                        text.push(char);
                        if char == '}' {
                            break;
                        }
                    }
                    continue;
                }
                char if char.is_ascii_whitespace() => break,
                _ => {}
            }
            self.next();
            match char {
                '\\' => self.escaped(&mut text),
                _ => text.push(char),
            }
        }
        text
    }

    /// Reads what follows a backslash. Only quotes and a backslash lose theirs: in a regular
    /// expression it belongs to the text.
    fn escaped(&mut self, text: &mut String) {
        match self.chars.peek() {
            Some('"' | '\'') => {}
            _ => text.push('\\'),
        }
        text.extend(self.next());
    }

    /// Skips a block in another language, up to its closing brace.
    fn skip_foreign_block(&mut self, at: Position) -> Result<(), Fault> {
        let mut depth = 1;
        while depth > 0 {
            match self.next() {
                Some('{') => depth += 1,
                Some('}') => depth -= 1,
                Some(_) => {}
                None => return Err(fault(at, "the block is not closed")),
            }
        }
        Ok(())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn words_blocks_and_comments() {
        let text = "a b 'c; d' # x {\n{ e \"f\\\"g\" ${h}i; } j;";
        let parsed = parse(text).unwrap();
        assert_eq!(parsed.len(), 2);
        assert_eq!(parsed[0].text(), "a b c; d");
        assert_eq!(parsed[0].block[0].text(), "e f\"g ${h}i");
        assert_eq!(parsed[0].block[0].position, Position { line: 2, column: 3 });
        assert_eq!(parsed[1].text(), "j");
    }

    #[test]
    fn foreign_blocks_are_skipped() {
        let text = "content_by_lua_block { if x then y = {1} end } a;";
        let names: Vec<_> = parse(text).unwrap().into_iter().map(|it| it.name).collect();
        assert_eq!(names, ["content_by_lua_block", "a"]);
    }
}
