//! Pages for readers: each begins with a question, and all together stay short.

use super::links::prose;
use super::pages;

/// The most words of all documents in English, without code, comments and targets of links.
const MAX_WORDS: usize = 50_200;

/// A reader knows from the first paragraph whether a page is the right one.
#[test]
fn every_page_begins_with_the_question_that_it_answers() {
    for document in pages() {
        let text = prose(&document);
        let mut paragraphs = text.split("\n\n").skip(1);
        let first = paragraphs.find(|it| !it.starts_with("[한국어]"));
        assert!(
            first.is_some_and(|it| it.contains('?')),
            "{document} does not begin with a question: {first:?}"
        );
    }
}

#[test]
fn all_pages_together_are_short() {
    let mut documents = pages();
    documents.push("README.md".to_owned());
    let words: usize = documents.iter().map(|it| words(&prose(it))).sum();
    assert!(
        words <= MAX_WORDS,
        "{words} words: say it in fewer, or link to where it is said"
    );
}

/// Counts the words that a reader sees.
fn words(prose: &str) -> usize {
    let text = without(prose, "<!--", "-->");
    let text = without(&text, "](", ")");
    let is_word = |it: &&str| it.contains(char::is_alphanumeric);
    text.split_whitespace().filter(is_word).count()
}

/// Returns a text without what is between two marks.
fn without(text: &str, begin: &str, end: &str) -> String {
    let mut pieces = text.split(begin);
    let mut kept = pieces.next().unwrap_or_default().to_owned();
    for piece in pieces {
        kept.push(']');
        kept += piece.split_once(end).map_or("", |(_, rest)| rest);
    }
    kept
}
