//! Signs JSON Web Tokens with real keys.

mod hostile;

use std::sync::{Arc, Mutex};
use std::time::{SystemTime, UNIX_EPOCH};

use base64::Engine as _;
use base64::engine::general_purpose::{STANDARD, URL_SAFE_NO_PAD};
use ring::hmac;
use ring::rand::{SecureRandom as _, SystemRandom};
use ring::signature::{
    ECDSA_P256_SHA256_FIXED_SIGNING, ECDSA_P384_SHA384_FIXED_SIGNING, EcdsaKeyPair, Ed25519KeyPair,
    KeyPair as _, RSA_PKCS1_SHA256, RSA_PKCS1_SHA384, RSA_PKCS1_SHA512, RSA_PSS_SHA256,
    RSA_PSS_SHA384, RSA_PSS_SHA512, RsaEncoding, RsaKeyPair,
};

use crate::RawUpstream;

pub use hostile::{AUDIENCE, ISSUER, claims_of, hostile_tokens};

// ring cannot generate RSA keys. These are used only in tests and benchmarks.
const RSA: [&[u8]; 2] = [
    include_bytes!("tokens/rsa_1.pk8"),
    include_bytes!("tokens/rsa_2.pk8"),
];

/// A key that signs tokens. There are two RSA keys; all other keys are generated.
#[derive(Debug)]
pub struct TokenKey {
    id: String,
    algorithm: String,
    pair: Pair,
}

#[derive(Debug)]
enum Pair {
    Rsa(RsaKeyPair),
    Ecdsa(EcdsaKeyPair),
    Ed25519(Ed25519KeyPair),
    Secret(Vec<u8>),
}

impl TokenKey {
    /// The algorithms that a key may have.
    pub const ALGORITHMS: [&str; 12] = [
        "RS256", "RS384", "RS512", "PS256", "PS384", "PS512", "ES256", "ES384", "EdDSA", "HS256",
        "HS384", "HS512",
    ];

    /// Creates a key for this algorithm and with this `kid`.
    pub fn new(algorithm: &str, id: &str) -> Self {
        Self::generate(algorithm, id, RSA[0])
    }

    /// Creates a key that differs from [`TokenKey::new`] even if it is an RSA key.
    pub fn other(algorithm: &str, id: &str) -> Self {
        Self::generate(algorithm, id, RSA[1])
    }

    /// Creates a key whose secret is known.
    pub fn of_secret(algorithm: &str, id: &str, secret: &[u8]) -> Self {
        Self {
            id: id.into(),
            algorithm: algorithm.into(),
            pair: Pair::Secret(secret.into()),
        }
    }

    /// Generates a key, or uses `rsa` if it is to be an RSA key.
    fn generate(algorithm: &str, id: &str, rsa: &[u8]) -> Self {
        let random = SystemRandom::new();
        let ecdsa = |curve| {
            let der = EcdsaKeyPair::generate_pkcs8(curve, &random).expect("the key is valid");
            Pair::Ecdsa(
                EcdsaKeyPair::from_pkcs8(curve, der.as_ref(), &random).expect("the key is valid"),
            )
        };
        let pair = match algorithm {
            "ES256" => ecdsa(&ECDSA_P256_SHA256_FIXED_SIGNING),
            "ES384" => ecdsa(&ECDSA_P384_SHA384_FIXED_SIGNING),
            "EdDSA" => {
                let der = Ed25519KeyPair::generate_pkcs8(&random).expect("the key is valid");
                Pair::Ed25519(Ed25519KeyPair::from_pkcs8(der.as_ref()).expect("the key is valid"))
            }
            "HS256" | "HS384" | "HS512" => {
                let mut secret = vec![0; 64];
                random.fill(&mut secret).expect("the key is valid");
                Pair::Secret(secret)
            }
            _ => Pair::Rsa(RsaKeyPair::from_pkcs8(rsa).expect("the key is valid")),
        };
        Self {
            id: id.into(),
            algorithm: algorithm.into(),
            pair,
        }
    }

    /// Returns the public key, or the secret, as a JSON Web Key.
    fn jwk(&self) -> String {
        let fields = match &self.pair {
            Pair::Rsa(pair) => {
                let public: ring::rsa::PublicKeyComponents<Vec<u8>> = pair.public().into();
                let (n, e) = (encoded(&public.n), encoded(&public.e));
                format!(r#""kty":"RSA","n":"{n}","e":"{e}""#)
            }
            Pair::Ecdsa(pair) => {
                let point = &pair.public_key().as_ref()[1..];
                let (x, y) = point.split_at(point.len() / 2);
                let curve = match x.len() {
                    32 => "P-256",
                    _ => "P-384",
                };
                let (x, y) = (encoded(x), encoded(y));
                format!(r#""kty":"EC","crv":"{curve}","x":"{x}","y":"{y}""#)
            }
            Pair::Ed25519(pair) => {
                let x = encoded(pair.public_key().as_ref());
                format!(r#""kty":"OKP","crv":"Ed25519","x":"{x}""#)
            }
            Pair::Secret(secret) => format!(r#""kty":"oct","k":"{}""#, encoded(secret)),
        };
        let (id, algorithm) = (&self.id, &self.algorithm);
        format!(r#"{{{fields},"kid":"{id}","alg":"{algorithm}","use":"sig"}}"#)
    }

    /// Returns the public RSA key as DER.
    fn public_der(&self) -> Vec<u8> {
        match &self.pair {
            Pair::Rsa(pair) => pair.public_key().as_ref().into(),
            _ => panic!("{} is not an RSA algorithm", self.algorithm),
        }
    }

    /// Returns the public RSA key as PEM.
    fn public_pem(&self) -> String {
        let text = STANDARD.encode(self.public_der());
        let lines: Vec<_> = text
            .as_bytes()
            .chunks(64)
            .map(String::from_utf8_lossy)
            .collect();
        let lines = lines.join("\n");
        format!("-----BEGIN RSA PUBLIC KEY-----\n{lines}\n-----END RSA PUBLIC KEY-----\n")
    }

    /// Signs a token with these claims, a JSON object.
    pub fn token(&self, claims: &str) -> String {
        let (id, algorithm) = (&self.id, &self.algorithm);
        let header = format!(r#"{{"alg":"{algorithm}","typ":"JWT","kid":"{id}"}}"#);
        self.token_with_header(&header, claims)
    }

    /// Signs a token with this header, which need not describe the key.
    pub fn token_with_header(&self, header: &str, claims: &str) -> String {
        let message = format!(
            "{}.{}",
            encoded(header.as_bytes()),
            encoded(claims.as_bytes())
        );
        let signature = encoded(&self.signature(message.as_bytes()));
        format!("{message}.{signature}")
    }

    fn signature(&self, message: &[u8]) -> Vec<u8> {
        let random = SystemRandom::new();
        match &self.pair {
            Pair::Rsa(pair) => {
                let encoding: &dyn RsaEncoding = match &*self.algorithm {
                    "RS256" => &RSA_PKCS1_SHA256,
                    "RS384" => &RSA_PKCS1_SHA384,
                    "RS512" => &RSA_PKCS1_SHA512,
                    "PS256" => &RSA_PSS_SHA256,
                    "PS384" => &RSA_PSS_SHA384,
                    "PS512" => &RSA_PSS_SHA512,
                    other => panic!("{other} is unknown"),
                };
                let mut signature = vec![0; pair.public().modulus_len()];
                pair.sign(encoding, &random, message, &mut signature)
                    .expect("the key is valid");
                signature
            }
            Pair::Ecdsa(pair) => pair
                .sign(&random, message)
                .expect("the key is valid")
                .as_ref()
                .into(),
            Pair::Ed25519(pair) => pair.sign(message).as_ref().into(),
            Pair::Secret(secret) => {
                let hash = match &*self.algorithm {
                    "HS256" => hmac::HMAC_SHA256,
                    "HS384" => hmac::HMAC_SHA384,
                    "HS512" => hmac::HMAC_SHA512,
                    other => panic!("{other} is unknown"),
                };
                hmac::sign(&hmac::Key::new(hash, secret), message)
                    .as_ref()
                    .into()
            }
        }
    }
}

/// Returns the JSON Web Key Set of these keys.
pub fn jwks<'a>(keys: impl IntoIterator<Item = &'a TokenKey>) -> String {
    let keys: Vec<_> = keys.into_iter().map(TokenKey::jwk).collect();
    format!("{{\"keys\":[{}]}}", keys.join(","))
}

/// Encodes bytes as base64url without padding.
fn encoded(bytes: &[u8]) -> String {
    URL_SAFE_NO_PAD.encode(bytes)
}

/// Starts a server that responds to every request with the status and the body that `response`
/// holds at that time, such as `("200 OK", jwks)`.
pub fn key_server(response: &Arc<Mutex<(&'static str, String)>>) -> RawUpstream {
    let response = Arc::clone(response);
    RawUpstream::start(move |connection| {
        while connection.read_request().is_some() {
            let (status, body) = response.lock().expect("no test panics with it").clone();
            let length = body.len();
            let head = format!("HTTP/1.1 {status}\r\nContent-Length: {length}\r\n\r\n");
            connection.send(format!("{head}{body}"));
        }
    })
}

/// Returns the wall clock time in seconds since the Unix epoch, as in claims.
#[expect(
    clippy::disallowed_methods,
    reason = "servers compare the times of tokens with their own clock"
)]
pub fn unix_now() -> u64 {
    let since = SystemTime::now().duration_since(UNIX_EPOCH);
    since.map_or(0, |since| since.as_secs())
}
