//! Documents of MongoDB as trees whose positions stand for their fields.

use fluxgate_core::yaml::{Node, Position, Value};
use mongodb::bson::{RawBsonRef, RawDocument, RawDocumentBuf};

use crate::reload::snapshot::Document;

/// The maximum nesting depth.
const MAX_DEPTH: usize = 64;
/// The maximum number of values in all documents.
const MAX_VALUES: usize = 1_000_000;
/// The most characters of an id in messages.
const MAX_ID_SHOWN: usize = 100;

/// Returns the documents in the order of their ids, with names for messages.
pub(super) fn sorted_by_id(documents: Vec<RawDocumentBuf>) -> Vec<Document> {
    let mut documents: Vec<_> = documents
        .into_iter()
        .map(|document| {
            let id = text_of(&document, "id");
            let name = match &id {
                Some(id) => format!("document {:?}", shortened(id, MAX_ID_SHOWN)),
                None => {
                    let id = text_of(&document, "_id").unwrap_or_else(|| "?".into());
                    let id = shortened(&id, MAX_ID_SHOWN);
                    format!("document without `id` (`_id` {id})")
                }
            };
            let content = document.into_bytes();
            (id, Document { name, content })
        })
        .collect();
    // Documents with the same id have an order, too, so that two reads of them are equal.
    documents.sort_by(|(id, document), (other_id, other)| {
        (id, &document.content).cmp(&(other_id, &other.content))
    });
    documents
        .into_iter()
        .map(|(_, document)| document)
        .collect()
}

/// Returns the beginning of a text that is too long to be shown.
pub(super) fn shortened(text: &str, most: usize) -> String {
    match text.char_indices().nth(most) {
        Some((end, _)) => format!("{}…", &text[..end]),
        None => text.to_owned(),
    }
}

/// Returns the text of a field that is a scalar.
fn text_of(document: &RawDocument, field: &str) -> Option<String> {
    let value = scalar(document.get(field).ok()??);
    let node = Node {
        value,
        position: Position { line: 1, column: 1 },
    };
    node.as_text().map(str::to_owned)
}

/// Converts documents to trees. The line of a value is the number of its document; the columns
/// number the values of a document.
#[derive(Debug)]
pub(super) struct DocumentConverter {
    line: usize,
    column: usize,
    values: usize,
}

impl DocumentConverter {
    pub(super) fn new() -> Self {
        Self {
            line: 0,
            column: 0,
            values: 0,
        }
    }

    /// Converts the next document, or returns why that is not possible.
    pub(super) fn convert(&mut self, bytes: &[u8]) -> Result<Node, String> {
        self.line += 1;
        self.column = 0;
        let document = RawDocument::from_bytes(bytes).map_err(|error| malformed(&error))?;
        self.node(RawBsonRef::Document(document), 0)
    }

    /// Returns the position of the document that was converted last.
    pub(super) fn position(&self) -> Position {
        Position {
            line: self.line,
            column: 1,
        }
    }

    fn node(&mut self, value: RawBsonRef<'_>, depth: usize) -> Result<Node, String> {
        self.column += 1;
        self.values += 1;
        if depth > MAX_DEPTH {
            return Err(format!("nested too deeply: over {MAX_DEPTH} levels"));
        }
        if self.values > MAX_VALUES {
            return Err(format!(
                "too large: over {MAX_VALUES} values in all documents"
            ));
        }
        let position = Position {
            line: self.line,
            column: self.column,
        };
        let value = match value {
            RawBsonRef::Document(document) => {
                let mut pairs = Vec::new();
                for field in document {
                    let (name, value) = field.map_err(|error| malformed(&error))?;
                    let value = self.node(value, depth + 1)?;
                    let name = Node {
                        value: Value::Quoted(name.as_str().to_owned()),
                        position: value.position,
                    };
                    pairs.push((name, value));
                }
                Value::Map(pairs)
            }
            RawBsonRef::Array(array) => {
                let items = array.into_iter().map(|item| {
                    let item = item.map_err(|error| malformed(&error))?;
                    self.node(item, depth + 1)
                });
                Value::List(items.collect::<Result<_, _>>()?)
            }
            scalar_value => scalar(scalar_value),
        };
        Ok(Node { value, position })
    }
}

fn malformed(error: &impl std::fmt::Display) -> String {
    format!("malformed BSON: {error}")
}

/// Returns a value that is neither a document nor an array. Numbers of all types are written
/// alike. Types that no rule has become mappings, which are refused wherever they are read.
fn scalar(value: RawBsonRef<'_>) -> Value {
    match value {
        RawBsonRef::String(text) | RawBsonRef::Symbol(text) => Value::Quoted(text.to_owned()),
        RawBsonRef::Boolean(value) => Value::Plain(value.to_string()),
        RawBsonRef::Null | RawBsonRef::Undefined => Value::Plain("null".into()),
        RawBsonRef::Int32(number) => Value::Plain(number.to_string()),
        RawBsonRef::Int64(number) => Value::Plain(number.to_string()),
        // Without a point if it is a whole number.
        RawBsonRef::Double(number) => Value::Plain(number.to_string()),
        RawBsonRef::Decimal128(number) => Value::Plain(decimal_text(&number.to_string())),
        RawBsonRef::ObjectId(id) => Value::Quoted(id.to_hex()),
        RawBsonRef::DateTime(time) => {
            Value::Quoted(time.try_to_rfc3339_string().unwrap_or_default())
        }
        _ => Value::Map(Vec::new()),
    }
}

/// Returns a decimal number without a point and an exponent, if it is a whole number of a
/// reasonable length.
fn decimal_text(text: &str) -> String {
    whole_number(text).unwrap_or_else(|| text.to_owned())
}

fn whole_number(text: &str) -> Option<String> {
    const MAX_DIGITS: usize = 40;
    let (sign, unsigned) = match text.strip_prefix('-') {
        Some(unsigned) => ("-", unsigned),
        None => ("", text),
    };
    let (number, exponent) = unsigned.split_once('E').unwrap_or((unsigned, "0"));
    let (whole, fraction) = number.split_once('.').unwrap_or((number, ""));
    let exponent: i32 = exponent.parse().ok()?;
    let digits = [whole, fraction].concat();
    if digits.is_empty() || !digits.bytes().all(|byte| byte.is_ascii_digit()) {
        return None;
    }
    let point = i32::try_from(whole.len()).ok()?.checked_add(exponent)?;
    let point = usize::try_from(point).unwrap_or(0);
    let (digits, rest) = match digits.split_at_checked(point) {
        Some((digits, rest)) => (digits.to_owned(), rest),
        None if point <= MAX_DIGITS => (format!("{digits:0<point$}"), ""),
        None => return None,
    };
    if !rest.bytes().all(|byte| byte == b'0') {
        return None;
    }
    let digits = digits.trim_start_matches('0');
    Some(format!(
        "{sign}{}",
        if digits.is_empty() { "0" } else { digits }
    ))
}

/// Returns the path of the field at a position, such as `bands.0.capacity`; `None` for the
/// document itself.
pub(super) fn field_at(document: &Node, position: Position) -> Option<String> {
    let mut path = Vec::new();
    let found = document.position != position && find(document, position, &mut path);
    found.then(|| path.join("."))
}

fn find(node: &Node, position: Position, path: &mut Vec<String>) -> bool {
    if node.position == position {
        return true;
    }
    let children: Vec<(String, &Node)> = match &node.value {
        Value::Plain(_) | Value::Quoted(_) => return false,
        Value::List(items) => {
            let items = items.iter().enumerate();
            items
                .map(|(index, item)| (index.to_string(), item))
                .collect()
        }
        Value::Map(pairs) => {
            let pairs = pairs.iter();
            pairs
                .map(|(key, value)| (key.as_text().unwrap_or_default().to_owned(), value))
                .collect()
        }
    };
    // The values of a subtree are numbered one after the other.
    let after = children.partition_point(|(_, child)| child.position <= position);
    let Some((name, child)) = children.into_iter().take(after).next_back() else {
        return false;
    };
    path.push(name);
    find(child, position, path)
}

#[cfg(test)]
mod tests {
    use mongodb::bson::{DateTime, Decimal128, doc, rawdoc};

    use super::*;

    fn convert(document: &RawDocument) -> Result<Node, String> {
        DocumentConverter::new().convert(document.as_bytes())
    }

    #[test]
    fn numbers_of_all_types_are_written_alike() {
        let decimal = |text: &str| text.parse::<Decimal128>().unwrap();
        let document = rawdoc! {
            "int32": 60_i32, "int64": 60_i64, "double": 60.0, "plain": decimal("60"),
            "exponent": decimal("6E+1"), "fraction": decimal("60.00"), "small": decimal("600E-1"),
        };
        let Value::Map(pairs) = convert(&document).unwrap().value else {
            panic!("{document:?}");
        };
        assert_eq!(pairs.len(), 7);
        for (name, value) in pairs {
            assert!(
                matches!(&value.value, Value::Plain(text) if text == "60"),
                "{name:?}: {value:?}"
            );
        }
    }

    #[test]
    fn other_numbers_stay_as_they_are() {
        for (text, expected) in [
            ("0", "0"),
            ("-0E+3", "-0"),
            ("-12.50", "-12.50"),
            ("1E-3", "1E-3"),
            ("0.001E+3", "1"),
            ("1E+6000", "1E+6000"),
            ("NaN", "NaN"),
            ("-Infinity", "-Infinity"),
            (
                "9999999999999999999999999999999999",
                "9999999999999999999999999999999999",
            ),
        ] {
            assert_eq!(decimal_text(text), expected, "{text}");
        }
        let document = rawdoc! { "a": 1.5, "b": f64::NAN, "c": 1e300 };
        assert!(convert(&document).is_ok());
    }

    #[test]
    fn documents_are_sorted_by_their_ids() {
        let documents = vec![
            rawdoc! { "id": "나", "_id": 1 },
            rawdoc! { "_id": DateTime::from_millis(0) },
            rawdoc! { "id": 7, "_id": 2 },
            rawdoc! { "id": "a", "_id": 3 },
            rawdoc! { "id": "B", "_id": 4 },
        ];
        let names = sorted_by_id(documents);
        let names: Vec<_> = names.iter().map(|document| &*document.name).collect();
        assert_eq!(
            names,
            [
                "document without `id` (`_id` 1970-01-01T00:00:00Z)",
                "document \"7\"",
                "document \"B\"",
                "document \"a\"",
                "document \"나\"",
            ]
        );
    }

    #[test]
    fn fields_are_found_by_their_positions() {
        let document = rawdoc! {
            "id": "a", "bands": [ { "capacity": 1, "windowSeconds": 2 }, { "capacity": 3 } ],
            "fluxgate": { "match": { "path": ["/a", "/b"] } }, "last": null,
        };
        let node = convert(&document).unwrap();
        let paths: Vec<_> = (1..=14)
            .map(|column| {
                let position = Position { line: 1, column };
                field_at(&node, position).unwrap_or_default()
            })
            .collect();
        assert_eq!(
            paths.join(" "),
            " id bands bands.0 bands.0.capacity bands.0.windowSeconds bands.1 bands.1.capacity \
             fluxgate fluxgate.match fluxgate.match.path fluxgate.match.path.0 \
             fluxgate.match.path.1 last"
        );
    }

    #[test]
    fn deep_and_large_documents_are_refused() {
        let mut deep = doc! {};
        for _ in 0..70 {
            deep = doc! { "a": deep };
        }
        let deep = RawDocumentBuf::try_from(&deep).unwrap();
        let error = convert(&deep).unwrap_err();
        assert!(error.contains("nested too deeply"), "{error}");
        let large = doc! { "a": vec![0; MAX_VALUES] };
        let large = RawDocumentBuf::try_from(&large).unwrap();
        let error = convert(&large).unwrap_err();
        assert!(error.contains("too large"), "{error}");
        let cut = &large.as_bytes()[..100];
        let error = DocumentConverter::new().convert(cut).unwrap_err();
        assert!(error.contains("malformed"), "{error}");
    }
}
