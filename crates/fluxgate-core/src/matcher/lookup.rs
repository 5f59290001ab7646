//! From short texts to values.

use hashbrown::HashMap;

/// With so few texts, comparing them all is cheaper than a hash.
const FEW: usize = 4;

/// A map that is a list while it is small.
#[derive(Clone, Debug)]
pub(super) enum Lookup<V> {
    Few(Vec<(Box<[u8]>, V)>),
    Many(HashMap<Box<[u8]>, V>),
}

impl<V> Default for Lookup<V> {
    fn default() -> Self {
        Self::Few(Vec::new())
    }
}

impl<V> Lookup<V> {
    pub(super) fn is_empty(&self) -> bool {
        matches!(self, Self::Few(known) if known.is_empty())
    }

    #[inline]
    pub(super) fn get(&self, text: &[u8]) -> Option<&V> {
        match self {
            Self::Few(known) => {
                let mut known = known.iter();
                let found = known.find(|(known, _)| **known == *text)?;
                Some(&found.1)
            }
            Self::Many(known) => known.get(text),
        }
    }

    /// Calls `change` with every value.
    pub(super) fn for_each(&mut self, change: impl FnMut(&mut V)) {
        match self {
            Self::Few(known) => known.iter_mut().map(|(_, value)| value).for_each(change),
            Self::Many(known) => known.values_mut().for_each(change),
        }
    }

    /// The value of a text, which is made if there is none.
    pub(super) fn get_or_insert_with(&mut self, text: &[u8], make: impl FnOnce() -> V) -> &mut V {
        if let Self::Few(known) = self
            && known.len() == FEW
            && known.iter().all(|(known, _)| **known != *text)
        {
            *self = Self::Many(std::mem::take(known).into_iter().collect());
        }
        match self {
            Self::Few(known) => {
                let found = known.iter().position(|(known, _)| **known == *text);
                let index = found.unwrap_or_else(|| {
                    known.push((text.into(), make()));
                    known.len() - 1
                });
                &mut known[index].1
            }
            Self::Many(known) => known.entry(text.into()).or_insert_with(make),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn it_finds_what_was_inserted_however_many_there_are() {
        let mut lookup = Lookup::default();
        assert!(lookup.is_empty());
        let texts: Vec<String> = (0..20).map(|number| "x".repeat(number)).collect();
        for (number, text) in texts.iter().enumerate() {
            assert_eq!(lookup.get(text.as_bytes()), None);
            assert_eq!(
                *lookup.get_or_insert_with(text.as_bytes(), || number),
                number
            );
            for (number, text) in texts[..=number].iter().enumerate() {
                assert_eq!(lookup.get(text.as_bytes()), Some(&number));
                assert_eq!(*lookup.get_or_insert_with(text.as_bytes(), || 99), number);
            }
        }
        assert!(!lookup.is_empty());
    }
}
