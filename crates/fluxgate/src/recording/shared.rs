//! What an instance shares of its last requests: the form of it.

use std::io::{Read, Write};

use flate2::Compression;
use flate2::read::GzDecoder;
use flate2::write::GzEncoder;

use crate::telemetry::MAX_RECENT;

/// The first byte: the version of the form, or that requests are not recorded.
const VERSION: u8 = 1;
const NOT_RECORDED: u8 = 0;

/// What an instance shares.
#[derive(Debug, Default, PartialEq, Eq)]
pub(super) struct SharedRecording {
    pub(super) is_recording: bool,
    /// Encoded, the oldest first.
    pub(super) requests: Vec<Vec<u8>>,
    /// Whether there are older ones, which had no room.
    pub(super) is_cut: bool,
}

impl SharedRecording {
    /// Creates it from requests: the last ones that are not larger than `most` bytes together.
    pub(super) fn of(mut requests: Vec<Vec<u8>>, most: usize) -> Self {
        let mut size = 0;
        let kept = requests.iter().rev().take_while(|request| {
            size += request.len();
            size <= most
        });
        let cut = requests.len() - kept.count();
        requests.drain(..cut);
        Self {
            is_recording: true,
            requests,
            is_cut: cut > 0,
        }
    }

    pub(super) fn write(&self) -> Vec<u8> {
        if !self.is_recording {
            return vec![NOT_RECORDED];
        }
        let mut compressed = GzEncoder::new(Vec::new(), Compression::fast());
        // Writing to memory does not fail.
        let _ = compressed.write_all(&[u8::from(self.is_cut)]);
        for request in &self.requests {
            // At most a few kilobytes.
            let _ = compressed.write_all(&(request.len() as u32).to_le_bytes());
            let _ = compressed.write_all(request);
        }
        let mut bytes = vec![VERSION];
        bytes.extend(compressed.finish().unwrap_or_default());
        bytes
    }

    /// Reads what an instance wrote, of at most `most` bytes of requests. Other versions may write
    /// something else.
    pub(super) fn read(bytes: &[u8], most: usize) -> Option<Self> {
        let (version, compressed) = bytes.split_first()?;
        match *version {
            NOT_RECORDED => return Some(Self::default()),
            VERSION => {}
            _ => return None,
        }
        let mut content = Vec::new();
        let most = most + MAX_RECENT * size_of::<u32>() + 1;
        let mut decoder = GzDecoder::new(compressed).take(most as u64);
        decoder.read_to_end(&mut content).ok()?;
        let (is_cut, mut rest) = content.split_first()?;
        let mut requests = Vec::new();
        while let Some((size, behind)) = rest.split_first_chunk() {
            let size = u32::from_le_bytes(*size) as usize;
            let (request, behind) = behind.split_at_checked(size)?;
            requests.push(request.to_vec());
            rest = behind;
        }
        Some(Self {
            is_recording: true,
            requests,
            is_cut: *is_cut == 1,
        })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_recording_is_read_as_it_was_written() {
        let requests = vec![b"first".to_vec(), Vec::new(), vec![7; 300]];
        for (most, cut) in [(1000, 0), (302, 1), (299, 3)] {
            let shared = SharedRecording::of(requests.clone(), most);
            assert_eq!(shared.requests, requests[cut..], "{most}");
            assert_eq!(shared.is_cut, cut > 0);
            assert_eq!(SharedRecording::read(&shared.write(), most), Some(shared));
        }
        let none = SharedRecording::default();
        assert_eq!(SharedRecording::read(&none.write(), 1000), Some(none));
        for unknown in [&b""[..], &[9], &[VERSION], &[VERSION, 1, 2, 3]] {
            assert_eq!(SharedRecording::read(unknown, 1000), None);
        }
    }
}
