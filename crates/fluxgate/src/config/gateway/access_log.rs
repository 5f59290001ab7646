//! The access log of the gateway.

use std::path::PathBuf;

use fluxgate_core::Percent;

use crate::config::section::Section;
use crate::config::tree;

/// Where requests are logged, and how many of them.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct AccessLog {
    /// Where the lines are written.
    pub file: AccessLogFile,
    /// The share of requests that is logged.
    pub sample: Percent,
}

/// Where the lines of the access log are written.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum AccessLogFile {
    /// Standard output.
    Stdout,
    /// A file, which is appended to.
    Path(PathBuf),
}

impl AccessLog {
    /// Reads the setting, if it is given.
    pub(super) fn read(gateway: &mut Section<'_, '_>) -> Option<Self> {
        const STDOUT: &str = "-";
        let log = gateway.optional_section("access_log", &["file", "sample"], |section| {
            if section.get("file").is_none() {
                section.missing("`access_log` needs `file`, a path or \"-\" for standard output");
            }
            let file = section.path("file");
            let sample = if section.get("sample").is_some() {
                section.parsed("sample", |text| {
                    text.parse::<Percent>()
                        .map_err(|error| format!("must be a share: {error}"))
                })
            } else {
                let all = Percent::new(100);
                section.show("sample", tree::text(all.to_string()));
                Some(all)
            };
            Some(Self {
                file: match file? {
                    path if path.as_os_str() == STDOUT => AccessLogFile::Stdout,
                    path => AccessLogFile::Path(path),
                },
                sample: sample?,
            })
        });
        log.flatten()
    }
}
