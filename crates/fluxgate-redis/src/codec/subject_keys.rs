//! The keys of the checks of a request.

use fluxgate_core::store::{Check, Subject};

use super::request::{KeyKind, Request, USUAL_NAME};
use crate::keys::KeyNaming;

/// Writes the keys of checks. Encodes a subject once for all its bands.
pub(super) struct SubjectKeyWriter<'c> {
    naming: &'c KeyNaming,
    subject: Option<Subject<'c>>,
    head: Vec<u8>,
}

impl<'c> SubjectKeyWriter<'c> {
    pub(super) fn new(naming: &'c KeyNaming) -> Self {
        Self {
            naming,
            subject: None,
            head: Vec::with_capacity(USUAL_NAME),
        }
    }

    /// Adds the key of a check to a request. Returns its number.
    pub(super) fn key_of(&mut self, request: &mut Request, check: &Check<'c>) -> usize {
        self.set_subject(check.subject);
        request.add_band(&self.head, check.band)
    }

    /// Returns the name of the key of a check.
    pub(super) fn name_of(&mut self, check: &Check<'c>) -> Vec<u8> {
        self.set_subject(check.subject);
        let mut name = self.head.clone();
        KeyNaming::write_band(check.band, &mut name);
        name
    }

    fn set_subject(&mut self, subject: Subject<'c>) {
        if self.subject != Some(subject) {
            self.head.clear();
            self.naming.write_subject(subject, &mut self.head);
            self.subject = Some(subject);
        }
    }

    /// Adds the key for the note that a charge of a check was undone. Returns its number.
    pub(super) fn undo_note_of(&self, request: &mut Request, check: &Check<'_>) -> usize {
        request.add_key(KeyKind::Cell, |names| {
            let subject = check.subject;
            self.naming.write_undo_subject(subject, names);
            KeyNaming::write_band(check.band, names);
        })
    }
}
