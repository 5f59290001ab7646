//! A map from short texts to values.

use foldhash::HashMap;

/// Up to this many texts, comparing them all is cheaper than hashing.
const FEW: usize = 4;

/// A map that is a list as long as it is small.
#[derive(Clone, Debug)]
pub(super) enum SmallMap<V> {
    Few(Vec<(Box<[u8]>, V)>),
    Many(HashMap<Box<[u8]>, V>),
}

impl<V> Default for SmallMap<V> {
    fn default() -> Self {
        Self::Few(Vec::new())
    }
}

impl<V> SmallMap<V> {
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

    /// Returns the value of a text, and inserts it if there is none.
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
    fn inserted_values_are_found_in_a_list_and_in_a_map() {
        let mut map = SmallMap::default();
        assert!(map.is_empty());
        let texts: Vec<String> = (0..20).map(|number| "x".repeat(number)).collect();
        for (number, text) in texts.iter().enumerate() {
            assert_eq!(map.get(text.as_bytes()), None);
            assert_eq!(*map.get_or_insert_with(text.as_bytes(), || number), number);
            for (number, text) in texts[..=number].iter().enumerate() {
                assert_eq!(map.get(text.as_bytes()), Some(&number));
                assert_eq!(*map.get_or_insert_with(text.as_bytes(), || 99), number);
            }
        }
        assert!(!map.is_empty());
    }
}
