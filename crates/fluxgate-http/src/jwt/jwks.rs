//! Reads a JSON Web Key Set (RFC 7517).

use base64::Engine as _;
use base64::engine::general_purpose::URL_SAFE_NO_PAD;
use serde::Deserialize;
use serde_json::value::RawValue;

use super::key::{Algorithm, Key, KeyMaterial};

/// The most keys of a set, far more than issuers use at once.
const MAX_KEYS: usize = 100;
/// The sizes of RSA keys, in bytes: 2048 to 8192 bits.
const RSA_BYTES: std::ops::RangeInclusive<usize> = 256..=1024;

/// The keys of a set.
#[derive(Debug, Default)]
pub(super) struct Jwks {
    /// The keys that can verify signatures.
    pub(super) keys: Vec<Key>,
    /// For each key that is left out, its place in the set and why.
    pub(super) unusable: Vec<(usize, UnusableKey)>,
}

/// Why a document is not a key set.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub(super) enum JwksError {
    #[error("expected a JSON Web Key Set such as {{\"keys\": […]}}: {0}")]
    Json(String),
    #[error("the key set has more than {MAX_KEYS} keys")]
    TooMany,
}

/// Why a key of a set cannot be used.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub(super) enum UnusableKey {
    #[error("it is not a JSON Web Key: {0}")]
    Json(String),
    #[error("it is not for signatures")]
    Purpose,
    #[error("its `alg` is not supported")]
    Algorithm,
    #[error("its type or curve is not supported")]
    Kind,
    #[error("`{0}` is missing or is not base64url")]
    Field(&'static str),
    #[error("it has the wrong size")]
    Size,
}

#[derive(Deserialize)]
struct Document<'a> {
    #[serde(borrow)]
    keys: Vec<&'a RawValue>,
}

#[derive(Deserialize)]
struct Jwk {
    kty: String,
    kid: Option<String>,
    alg: Option<String>,
    #[serde(rename = "use")]
    purpose: Option<String>,
    key_ops: Option<Vec<String>>,
    crv: Option<String>,
    n: Option<String>,
    e: Option<String>,
    x: Option<String>,
    y: Option<String>,
    k: Option<String>,
}

impl Jwks {
    /// Reads a document. Keys that cannot be used do not make the others unusable: an issuer
    /// may publish keys for other purposes in the same set.
    pub(super) fn parse(document: &[u8]) -> Result<Self, JwksError> {
        let document: Document<'_> =
            serde_json::from_slice(document).map_err(|error| JwksError::Json(error.to_string()))?;
        if document.keys.len() > MAX_KEYS {
            return Err(JwksError::TooMany);
        }
        let mut set = Self::default();
        for (index, json) in document.keys.iter().enumerate() {
            match read_key(json) {
                Ok(key) => set.keys.push(key),
                Err(why) => set.unusable.push((index, why)),
            }
        }
        Ok(set)
    }
}

fn read_key(json: &RawValue) -> Result<Key, UnusableKey> {
    let jwk: Jwk =
        serde_json::from_str(json.get()).map_err(|error| UnusableKey::Json(error.to_string()))?;
    let has_purpose = jwk
        .purpose
        .as_deref()
        .is_none_or(|purpose| purpose == "sig");
    // A set may list `sign`, the operation of the private key.
    let is_operation = |operation: &String| ["verify", "sign"].contains(&operation.as_str());
    let has_operation = |operations: &Vec<String>| operations.iter().any(is_operation);
    if !has_purpose || !jwk.key_ops.as_ref().is_none_or(has_operation) {
        return Err(UnusableKey::Purpose);
    }
    let algorithm = match &jwk.alg {
        Some(name) => Some(Algorithm::parse(name).ok_or(UnusableKey::Algorithm)?),
        None => None,
    };
    Ok(Key {
        material: material(&jwk)?,
        id: jwk.kid.map(Into::into),
        algorithm,
    })
}

fn material(jwk: &Jwk) -> Result<KeyMaterial, UnusableKey> {
    match (&*jwk.kty, jwk.crv.as_deref()) {
        ("RSA", _) => {
            let n = without_leading_zeros(bytes(&jwk.n, "n")?);
            let e = without_leading_zeros(bytes(&jwk.e, "e")?);
            if RSA_BYTES.contains(&n.len()) {
                Ok(KeyMaterial::Rsa { n, e })
            } else {
                Err(UnusableKey::Size)
            }
        }
        ("EC", Some("P-256")) => Ok(KeyMaterial::P256(point(jwk, 32)?)),
        ("EC", Some("P-384")) => Ok(KeyMaterial::P384(point(jwk, 48)?)),
        ("OKP", Some("Ed25519")) => {
            let x = bytes(&jwk.x, "x")?;
            match x.len() {
                32 => Ok(KeyMaterial::Ed25519(x.into())),
                _ => Err(UnusableKey::Size),
            }
        }
        ("oct", _) => match bytes(&jwk.k, "k")? {
            secret if secret.is_empty() => Err(UnusableKey::Size),
            secret => Ok(KeyMaterial::Secret(secret.into())),
        },
        _ => Err(UnusableKey::Kind),
    }
}

/// Returns an uncompressed point whose coordinates have this size.
fn point(jwk: &Jwk, size: usize) -> Result<Box<[u8]>, UnusableKey> {
    const UNCOMPRESSED: u8 = 4;
    let (x, y) = (bytes(&jwk.x, "x")?, bytes(&jwk.y, "y")?);
    if (x.len(), y.len()) == (size, size) {
        Ok([&[UNCOMPRESSED][..], &x, &y].concat().into())
    } else {
        Err(UnusableKey::Size)
    }
}

fn bytes(text: &Option<String>, field: &'static str) -> Result<Vec<u8>, UnusableKey> {
    let text = text.as_ref().ok_or(UnusableKey::Field(field))?;
    let decoded = URL_SAFE_NO_PAD.decode(text);
    decoded.map_err(|_| UnusableKey::Field(field))
}

/// Removes leading zeros, which ring rejects.
fn without_leading_zeros(number: Vec<u8>) -> Box<[u8]> {
    let zeros = number.iter().take_while(|byte| **byte == 0).count();
    number[zeros..].into()
}

#[cfg(test)]
mod tests {
    use super::*;

    /// The example key of RFC 8037, appendix A.2.
    const ED25519: &str =
        r#"{"kty":"OKP","crv":"Ed25519","x":"11qYAYKxCrfVS_7TyWQHOg7hcvPapiMlrwIaaPcHURo"}"#;

    fn unusable(key: &str) -> UnusableKey {
        let document = format!("{{\"keys\":[{ED25519},{key}],\"other\":1}}");
        let set = Jwks::parse(document.as_bytes()).unwrap();
        assert_eq!(set.keys.len(), 1, "the other key stays usable");
        let [(1, why)] = &set.unusable[..] else {
            panic!("{key}: {:?}", set.unusable)
        };
        why.clone()
    }

    #[test]
    fn a_key_that_cannot_verify_signatures_is_left_out() {
        let key = |fields: &str| ED25519.replacen('{', &format!("{{{fields},"), 1);
        for (key, expected) in [
            (key(r#""use":"enc""#), UnusableKey::Purpose),
            (key(r#""key_ops":["encrypt"]"#), UnusableKey::Purpose),
            (key(r#""alg":"none""#), UnusableKey::Algorithm),
            (key(r#""alg":"RSA-OAEP""#), UnusableKey::Algorithm),
            (ED25519.replace("Ed25519", "Ed448"), UnusableKey::Kind),
            (r#"{"kty":"EC","crv":"P-521"}"#.into(), UnusableKey::Kind),
            (ED25519.replace("11q", "1==="), UnusableKey::Field("x")),
            (ED25519.replace("11qY", ""), UnusableKey::Size),
            (
                r#"{"kty":"EC","crv":"P-256","x":"AQ","y":"AQ"}"#.into(),
                UnusableKey::Size,
            ),
            // 1024 bits are too few.
            (
                format!(r#"{{"kty":"RSA","e":"AQAB","n":"{}"}}"#, "f".repeat(171)),
                UnusableKey::Field("n"),
            ),
            (
                format!(r#"{{"kty":"RSA","e":"AQAB","n":"{}w"}}"#, "f".repeat(170)),
                UnusableKey::Size,
            ),
            (r#"{"kty":"oct","k":""}"#.into(), UnusableKey::Size),
            (r#"{"kty":"oct"}"#.into(), UnusableKey::Field("k")),
        ] {
            assert_eq!(unusable(&key), expected, "{key}");
        }
        assert!(matches!(unusable("[]"), UnusableKey::Json(_)));
        assert!(matches!(unusable(r#"{"kty":1}"#), UnusableKey::Json(_)));
    }

    #[test]
    fn other_documents_are_refused() {
        for document in [
            "",
            "{}",
            "[]",
            r#"{"keys":{}}"#,
            r#"{"keys":[}"#,
            "-----BEGIN",
        ] {
            let error = Jwks::parse(document.as_bytes()).unwrap_err();
            assert!(matches!(error, JwksError::Json(_)), "{document}: {error}");
        }
        let many = [ED25519; MAX_KEYS + 1].join(",");
        let error = Jwks::parse(format!("{{\"keys\":[{many}]}}").as_bytes()).unwrap_err();
        assert_eq!(error, JwksError::TooMany);
        assert!(Jwks::parse(br#"{"keys":[]}"#).unwrap().keys.is_empty());
    }

    #[test]
    fn a_modulus_may_have_leading_zeros() {
        let n = URL_SAFE_NO_PAD.encode([&[0, 0][..], &[0xff; 256]].concat());
        let document = format!(r#"{{"keys":[{{"kty":"RSA","e":"AAEAAQ","n":"{n}"}}]}}"#);
        let set = Jwks::parse(document.as_bytes()).unwrap();
        let KeyMaterial::Rsa { n, e } = &set.keys[0].material else {
            panic!("{:?}", set.unusable)
        };
        assert_eq!((n.len(), &e[..]), (256, &[1, 0, 1][..]));
    }
}
