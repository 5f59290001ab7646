//! The messages in the body of a request.
//!
//! What servers read in different ways is refused, never guessed: a call that the upstream
//! executes must be the call that was counted.

use std::fmt::Write as _;

use fluxgate_http::McpCall;
use fluxgate_llm::json::{JsonFault, JsonStr, Kind, MAX_DEPTH, Reader, reads_as};

/// How many messages a batch may have: as many as a call over gRPC has descriptors.
const MAX_BATCH: usize = 1_000;
/// The longest method or name in bytes. Names are parts of keys.
const MAX_TEXT: usize = 8 * 1024;

/// The members of a message that servers read.
const MESSAGE: [&str; 7] = [
    "method", "id", "params", "result", "error", "jsonrpc", PROTOTYPE,
];
/// The members of `params` that calls name something with.
const PARAMS: [&str; 4] = ["name", "uri", "taskId", PROTOTYPE];
/// Some servers in JavaScript take the members of this one for those of the object.
const PROTOTYPE: &str = "__proto__";

/// The messages of a request: one, or a batch of them.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub(crate) struct Messages {
    /// Requests and notifications. Answers of the client to requests of the server are no calls.
    pub(crate) calls: Vec<Call>,
    pub(crate) is_batch: bool,
}

/// A request or a notification.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct Call {
    pub(crate) method: Box<str>,
    /// What `Mcp-Name` repeats: the tool, resource, prompt or task that the call is about.
    pub(crate) target: Option<Box<str>>,
    /// The id of a request as it is written: a string or a number.
    pub(crate) id: Option<Box<[u8]>>,
}

impl Call {
    /// Returns the call as filters see it.
    pub(crate) fn as_mcp_call(&self) -> McpCall<'_> {
        McpCall {
            method: &self.method,
            name: self
                .target
                .as_deref()
                .filter(|_| NameMember::of(&self.method).is_some()),
        }
    }
}

/// The member of `params` that names the tool, resource or prompt of a call.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum NameMember {
    Name,
    Uri,
}

const NAMED: [(&str, NameMember); 5] = [
    ("tools/call", NameMember::Name),
    ("prompts/get", NameMember::Name),
    ("resources/read", NameMember::Uri),
    ("resources/subscribe", NameMember::Uri),
    ("resources/unsubscribe", NameMember::Uri),
];
const OF_TASKS: [&str; 3] = ["tasks/get", "tasks/update", "tasks/cancel"];

impl NameMember {
    /// Returns the member that names what calls of this method are about, if one does.
    pub(super) fn of(method: &str) -> Option<Self> {
        let mut named = NAMED.iter();
        named
            .find(|(it, _)| *it == method)
            .map(|(_, member)| *member)
    }
}

/// Why the messages of a body cannot be counted, for the client.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct MessageFault(pub(crate) String);

impl MessageFault {
    fn new(text: impl Into<String>) -> Self {
        Self(text.into())
    }
}

impl From<JsonFault> for MessageFault {
    fn from(fault: JsonFault) -> Self {
        Self(match fault {
            JsonFault::Syntax { at, expected } => {
                format!("the body is not JSON: expected {expected} at byte {at}")
            }
            JsonFault::TooDeep { at } => {
                format!("the body is nested deeper than {MAX_DEPTH} levels at byte {at}")
            }
        })
    }
}

impl Messages {
    /// Reads a body.
    ///
    /// # Errors
    /// If it is not one message or a batch of them, or if servers may read it in different ways.
    pub(crate) fn read(body: &[u8]) -> Result<Self, MessageFault> {
        if let Err(error) = std::str::from_utf8(body) {
            let at = error.valid_up_to();
            let text = format!("the body is not UTF-8: byte {at} begins no character");
            return Err(MessageFault(text));
        }
        let mut reader = Reader::new(body);
        let mut calls = Vec::new();
        let kind = reader.kind()?;
        match kind {
            Kind::Object => calls.extend(read_message(&mut reader)?),
            Kind::Array => {
                let mut count = 0;
                reader.for_each_element(|reader| {
                    count += 1;
                    if count > MAX_BATCH {
                        let text = format!("the batch has more than {MAX_BATCH} messages");
                        return Err(MessageFault(text));
                    }
                    calls.extend(read_message(reader)?);
                    Ok(())
                })?;
                if count == 0 {
                    return Err(MessageFault::new("the batch is empty"));
                }
            }
            _ => return Err(MessageFault::new("the body is not a message")),
        }
        reader.end()?;
        Ok(Self {
            calls,
            is_batch: kind == Kind::Array,
        })
    }

    /// Returns the call of a body that is one call and no batch.
    pub(crate) fn only_call(&self) -> Option<&Call> {
        match &self.calls[..] {
            [call] if !self.is_batch => Some(call),
            _ => None,
        }
    }
}

/// Reads a message. Returns `None` for an answer of the client.
fn read_message(reader: &mut Reader<'_>) -> Result<Option<Call>, MessageFault> {
    if reader.kind()? != Kind::Object {
        return Err(MessageFault::new("a message must be an object"));
    }
    let mut members = Members::new(&MESSAGE);
    let (mut method, mut id) = (None, None);
    let mut params = Params::default();
    let mut is_answer = false;
    reader.try_for_each_member(|reader, name| {
        match members.find(name)? {
            Some("method") => {
                let Text::String(text) = Text::read(reader)? else {
                    return Err(MessageFault::new("`method` must be a string"));
                };
                method = Some(clear_text(text, "method")?);
            }
            Some("id") => id = read_id(reader)?,
            Some("params") => params = Params::read(reader)?,
            Some("result" | "error") => {
                is_answer = true;
                reader.skip()?;
            }
            _ => reader.skip()?,
        }
        Ok(())
    })?;
    match method {
        // Whatever else it has, a server may execute it.
        Some(method) => {
            let target = params.target(&method)?;
            Ok(Some(Call { method, target, id }))
        }
        None if is_answer => Ok(None),
        None => Err(MessageFault::new(
            "a message must have `method`, `result` or `error`",
        )),
    }
}

/// Reads the id of a message, which the answer repeats as it is written.
fn read_id(reader: &mut Reader<'_>) -> Result<Option<Box<[u8]>>, MessageFault> {
    match reader.kind()? {
        Kind::String | Kind::Number => Ok(Some(reader.raw()?.into())),
        Kind::Null => {
            reader.null()?;
            Ok(None)
        }
        _ => Err(MessageFault::new("`id` must be a string or a number")),
    }
}

/// A value that may be a string.
#[derive(Clone, Copy, Debug)]
enum Text<'a> {
    String(JsonStr<'a>),
    Other,
}

impl<'a> Text<'a> {
    fn read(reader: &mut Reader<'a>) -> Result<Self, MessageFault> {
        if reader.kind()? == Kind::String {
            return Ok(Self::String(reader.string()?));
        }
        reader.skip()?;
        Ok(Self::Other)
    }
}

/// The members of `params` that name what a call is about.
#[derive(Clone, Copy, Debug, Default)]
struct Params<'a> {
    name: Option<Text<'a>>,
    uri: Option<Text<'a>>,
    task: Option<Text<'a>>,
}

impl<'a> Params<'a> {
    fn read(reader: &mut Reader<'a>) -> Result<Self, MessageFault> {
        match reader.kind()? {
            Kind::Object => {}
            Kind::Null => {
                reader.null()?;
                return Ok(Self::default());
            }
            // By position, some servers would find a name in it.
            _ => return Err(MessageFault::new("`params` must be an object")),
        }
        let mut params = Self::default();
        let mut members = Members::new(&PARAMS);
        reader.try_for_each_member(|reader, name| {
            match members.find(name)? {
                Some("name") => params.name = Some(Text::read(reader)?),
                Some("uri") => params.uri = Some(Text::read(reader)?),
                Some("taskId") => params.task = Some(Text::read(reader)?),
                _ => reader.skip()?,
            }
            Ok::<_, MessageFault>(())
        })?;
        Ok(params)
    }

    /// Returns what a call of this method is about.
    fn target(&self, method: &str) -> Result<Option<Box<str>>, MessageFault> {
        let known = NAMED.iter().map(|(known, _)| *known).chain(OF_TASKS);
        for known in known {
            if known != method && reads_as(method, known) {
                let text = format!("the method {method:?} must be written `{known}`");
                return Err(MessageFault(text));
            }
        }
        let (value, member) = match NameMember::of(method) {
            Some(NameMember::Name) => (self.name, "params.name"),
            Some(NameMember::Uri) => (self.uri, "params.uri"),
            None if OF_TASKS.contains(&method) => (self.task, "params.taskId"),
            None => return Ok(None),
        };
        match value {
            Some(Text::String(text)) => clear_text(text, member).map(Some),
            _ => {
                let text = format!("`{method}` needs `{member}`, a string");
                Err(MessageFault(text))
            }
        }
    }
}

/// Returns a text that every server reads alike: without what some of them cut off, and without
/// halves of surrogate pairs, which each decodes in its own way.
fn clear_text(text: JsonStr<'_>, member: &str) -> Result<Box<str>, MessageFault> {
    let fault = |problem: &str| MessageFault(format!("`{member}` {problem}"));
    let decoded = text.decode();
    if decoded.len() > MAX_TEXT {
        let mut problem = String::new();
        // Writing to memory does not fail.
        let _ = write!(problem, "has more than {MAX_TEXT} bytes");
        return Err(fault(&problem));
    }
    // The body is UTF-8, and so are decoded escapes.
    let text = std::str::from_utf8(&decoded).map_err(|_| fault("is not UTF-8"))?;
    let is_space = |it: char| it.is_whitespace() || it == '\u{feff}';
    if text.is_empty() {
        return Err(fault("is empty"));
    }
    if text.starts_with(is_space) || text.ends_with(is_space) {
        return Err(fault("begins or ends with white space"));
    }
    if text.contains(|it: char| it.is_control() || it == char::REPLACEMENT_CHARACTER) {
        return Err(fault("has control characters or half a surrogate pair"));
    }
    Ok(text.into())
}

/// The known members of an object that have occurred so far.
struct Members {
    known: &'static [&'static str],
    /// A bit for each.
    seen: u8,
}

impl Members {
    fn new(known: &'static [&'static str]) -> Self {
        Self { known, seen: 0 }
    }

    /// Returns the known member of this name, if it is one.
    ///
    /// # Errors
    /// If it occurs for the second time, if a server that ignores case would take it for a known
    /// one, or if it is a prototype.
    fn find(&mut self, name: JsonStr<'_>) -> Result<Option<&'static str>, MessageFault> {
        /// No spelling of a known name is longer.
        const LONGEST: usize = 32;
        let name = name.decode();
        if name.len() > LONGEST {
            return Ok(None);
        }
        let name = String::from_utf8_lossy(&name);
        let Some(index) = self.known.iter().position(|it| reads_as(&name, it)) else {
            return Ok(None);
        };
        let known = self.known[index];
        if known == PROTOTYPE {
            return Err(MessageFault(format!(
                "the member `{PROTOTYPE}` is not allowed"
            )));
        }
        if *name != *known {
            let text = format!("the member {name:?} must be written `{known}`");
            return Err(MessageFault(text));
        }
        if self.seen & 1 << index != 0 {
            return Err(MessageFault(format!("the member `{known}` occurs twice")));
        }
        self.seen |= 1 << index;
        Ok(Some(known))
    }
}

#[cfg(test)]
mod tests;
