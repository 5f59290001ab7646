//! A list of a few plain values that seldom needs the heap.

use std::ops::{Deref, DerefMut};

/// Up to `N` values in place; more of them on the heap.
#[derive(Clone, Debug)]
pub(crate) struct Small<T, const N: usize> {
    place: [T; N],
    length: usize,
    /// All values, once there are more than `N`.
    heap: Vec<T>,
}

impl<T: Copy + Default, const N: usize> Small<T, N> {
    #[inline]
    pub(crate) fn new() -> Self {
        Self {
            place: [T::default(); N],
            length: 0,
            heap: Vec::new(),
        }
    }

    #[inline]
    pub(crate) fn push(&mut self, value: T) {
        if self.length < N {
            self.place[self.length] = value;
        } else {
            self.move_to_heap();
            self.heap.push(value);
        }
        self.length += 1;
    }

    #[inline]
    pub(crate) fn extend_from_slice(&mut self, values: &[T]) {
        let length = self.length + values.len();
        if length <= N {
            self.place[self.length..length].copy_from_slice(values);
        } else {
            self.move_to_heap();
            self.heap.extend_from_slice(values);
        }
        self.length = length;
    }

    #[inline]
    pub(crate) fn clear(&mut self) {
        self.length = 0;
        self.heap.clear();
    }

    pub(crate) fn truncate(&mut self, length: usize) {
        if length >= self.length {
            return;
        }
        if self.length > N {
            self.heap.truncate(length);
            if length <= N {
                self.place[..length].copy_from_slice(&self.heap);
                self.heap.clear();
            }
        }
        self.length = length;
    }

    /// Keeps one of equals that stand side by side.
    pub(crate) fn dedup(&mut self)
    where
        T: PartialEq,
    {
        let mut kept = 0;
        for index in 0..self.length {
            if kept == 0 || self[index] != self[kept - 1] {
                self[kept] = self[index];
                kept += 1;
            }
        }
        self.truncate(kept);
    }

    fn move_to_heap(&mut self) {
        if self.length <= N {
            self.heap.extend_from_slice(&self.place[..self.length]);
        }
    }
}

impl<T: Copy + Default, const N: usize> Default for Small<T, N> {
    fn default() -> Self {
        Self::new()
    }
}

impl<T, const N: usize> Deref for Small<T, N> {
    type Target = [T];

    #[inline]
    fn deref(&self) -> &[T] {
        if self.length <= N {
            &self.place[..self.length]
        } else {
            &self.heap
        }
    }
}

impl<T, const N: usize> DerefMut for Small<T, N> {
    #[inline]
    fn deref_mut(&mut self) -> &mut [T] {
        if self.length <= N {
            &mut self.place[..self.length]
        } else {
            &mut self.heap
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn it_is_a_list_wherever_it_lives() {
        let mut small = Small::<u8, 3>::new();
        let mut list = Vec::new();
        for step in 0..40_u8 {
            match step % 7 {
                0 | 2 => {
                    small.push(step);
                    list.push(step);
                }
                1 | 4 => {
                    small.extend_from_slice(&[step, step + 1]);
                    list.extend_from_slice(&[step, step + 1]);
                }
                3 => {
                    small.truncate(2);
                    list.truncate(2);
                }
                5 => {
                    small.truncate(4);
                    list.truncate(4);
                }
                _ if step > 30 => {
                    small.clear();
                    list.clear();
                }
                _ => {
                    small.sort_unstable();
                    small.dedup();
                    list.sort_unstable();
                    list.dedup();
                }
            }
            assert_eq!(&*small, &*list, "step {step}");
        }
    }
}
