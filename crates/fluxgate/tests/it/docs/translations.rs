//! Translations: `README.ko.md` is `README.md` in Korean.

use super::links::{links, prose};
use super::{read, translations};

/// Code, headings, tables and links are those of the original.
#[test]
fn translations_are_up_to_date() {
    let translations = translations();
    assert!(translations.contains(&"README.ko.md".to_owned()));
    for translation in translations {
        let original = translation.replace(".ko.md", ".md");
        let (theirs, ours) = (outline(&original), outline(&translation));
        let differs = theirs.iter().zip(&ours).find(|((_, a), (_, b))| a != b);
        if let Some(((line, wanted), (behind, found))) = differs {
            panic!(
                "{translation}:{behind} is behind {original}:{line}\n{original}: {wanted}\n\
                 {translation}: {found}"
            );
        }
        assert_eq!(
            theirs.len(),
            ours.len(),
            "{translation} is behind {original}: its end differs"
        );
        assert_eq!(
            targets(&original),
            targets(&translation),
            "{translation} is behind {original}: its links differ"
        );
    }
}

/// Returns the lines of code, the levels of headings and the code spans of table rows, with their
/// line numbers.
fn outline(document: &str) -> Vec<(usize, String)> {
    let mut outline = Vec::new();
    let mut is_code = false;
    for (index, line) in read(document).lines().enumerate() {
        let is_fence = line.trim_start().starts_with("```");
        let kept = if is_code || is_fence {
            line.to_owned()
        } else if line.starts_with('#') {
            line.chars().take_while(|it| *it == '#').collect()
        } else if line.starts_with('|') {
            let mut spans: Vec<_> = line.split('`').skip(1).step_by(2).collect();
            spans.sort_unstable();
            format!("| {}", spans.join(" | "))
        } else {
            continue;
        };
        is_code ^= is_fence;
        outline.push((index + 1, kept));
    }
    outline
}

/// Returns the targets of links, sorted, as those of an original. Headings have other anchors in
/// each language.
fn targets(document: &str) -> Vec<String> {
    let links = links(&prose(document)).into_iter();
    let mut targets: Vec<_> = links
        .map(|link| {
            let path = link.split('#').next().unwrap();
            path.replace(".ko.md", ".md")
        })
        .collect();
    targets.sort_unstable();
    targets
}
