//! Reads strings of encoded messages in place. A request has a dozen headers, and decoding them
//! would allocate and count references for each.

/// The bytes are not a message.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct Malformed;

/// The fields of an encoded message that have a length: strings, bytes and messages, with their
/// numbers. Others are skipped.
#[derive(Clone, Copy, Debug)]
pub(super) struct Strings<'a>(&'a [u8]);

impl<'a> Strings<'a> {
    /// Reads this message.
    pub(super) fn of(message: &'a [u8]) -> Self {
        Self(message)
    }

    /// Returns the last field of each number from 1 to `N`; those that are missing are empty.
    pub(super) fn by_number<const N: usize>(self) -> Result<[&'a [u8]; N], Malformed> {
        let mut fields = [&[][..]; N];
        for field in self {
            let (number, value) = field?;
            let index = usize::try_from(number).ok();
            let index = index.and_then(|number| number.checked_sub(1));
            if let Some(field) = index.and_then(|index| fields.get_mut(index)) {
                *field = value;
            }
        }
        Ok(fields)
    }

    fn next_field(&mut self) -> Result<Option<(u64, &'a [u8])>, Malformed> {
        while !self.0.is_empty() {
            let key = self.varint()?;
            let number = key >> 3;
            if number == 0 {
                return Err(Malformed);
            }
            match key & 7 {
                0 => {
                    self.varint()?;
                }
                1 => {
                    self.take(8)?;
                }
                2 => {
                    let length = self.varint()?;
                    return Ok(Some((number, self.take(length)?)));
                }
                5 => {
                    self.take(4)?;
                }
                _ => return Err(Malformed),
            }
        }
        Ok(None)
    }

    fn varint(&mut self) -> Result<u64, Malformed> {
        let mut value = 0;
        for shift in (0..64).step_by(7) {
            let (&byte, rest) = self.0.split_first().ok_or(Malformed)?;
            self.0 = rest;
            value |= u64::from(byte & 0x7f) << shift;
            if byte < 0x80 {
                return Ok(value);
            }
        }
        Err(Malformed)
    }

    fn take(&mut self, length: u64) -> Result<&'a [u8], Malformed> {
        let length = usize::try_from(length).map_err(|_| Malformed)?;
        let (taken, rest) = self.0.split_at_checked(length).ok_or(Malformed)?;
        self.0 = rest;
        Ok(taken)
    }
}

/// Ends with the message, or behind its first fault.
impl<'a> Iterator for Strings<'a> {
    type Item = Result<(u64, &'a [u8]), Malformed>;

    fn next(&mut self) -> Option<Self::Item> {
        let next = self.next_field().transpose();
        if let Some(Err(Malformed)) = next {
            self.0 = &[];
        }
        next
    }
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;
    use prost::Message;

    use super::*;

    /// A message with a field of every kind beside strings.
    #[derive(Clone, PartialEq, Message)]
    struct Mixed {
        #[prost(bytes = "vec", tag = "1")]
        first: Vec<u8>,
        #[prost(uint64, tag = "4")]
        number: u64,
        #[prost(fixed64, tag = "5")]
        long: u64,
        #[prost(fixed32, tag = "6")]
        short: u32,
        #[prost(bytes = "vec", tag = "3")]
        third: Vec<u8>,
        #[prost(bytes = "vec", tag = "700")]
        far: Vec<u8>,
    }

    #[test]
    fn faults_are_found() {
        for message in [
            &[0x0a][..],
            &[0x0a, 1],
            &[0x0a, 0x80],
            &[0x02, 0],
            &[0x0b],
            &[0x0c],
            &[0x0f],
            &[0x09, 0, 0],
            &[0x0d, 0, 0],
            &[0x08],
            &[0xff; 11],
            &[
                0x0a, 0xff, 0xff, 0xff, 0xff, 0xff, 0xff, 0xff, 0xff, 0xff, 1,
            ],
        ] {
            let read = Strings::of(message).by_number::<3>();
            assert_eq!(read, Err(Malformed), "{message:?}");
            assert_eq!(Strings::of(message).count(), 1, "{message:?}");
        }
        assert_eq!(Strings::of(&[]).by_number(), Ok([&[][..]]));
    }

    proptest! {
        #[test]
        fn strings_are_those_that_prost_reads(
            (first, third, far) in any::<(Vec<u8>, Vec<u8>, Vec<u8>)>(),
            (number, long, short) in any::<(u64, u64, u32)>(),
        ) {
            let message = Mixed { first, number, long, short, third, far };
            let bytes = message.encode_to_vec();
            let [first, second, third] = Strings::of(&bytes).by_number().unwrap();
            prop_assert_eq!((first, second, third), (&*message.first, &[][..], &*message.third));
        }

        #[test]
        fn what_prost_reads_is_read_alike(
            bytes in prop::collection::vec(prop_oneof![0..0x20_u8, any::<u8>()], 0..60),
        ) {
            // Groups are obsolete, and no message of Envoy has one.
            if let (Ok(message), Ok([first, _, third])) =
                (Mixed::decode(&*bytes), Strings::of(&bytes).by_number())
            {
                prop_assert_eq!((first, third), (&*message.first, &*message.third));
            }
        }
    }
}
