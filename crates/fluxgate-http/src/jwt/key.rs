//! Keys that verify signatures. A key verifies only the algorithms of its own kind, whatever
//! algorithm a token names: otherwise a client could sign a token by HMAC with a public key as
//! the secret.

use std::fmt;

use ring::hmac;
use ring::signature::{
    ECDSA_P256_SHA256_FIXED, ECDSA_P384_SHA384_FIXED, ED25519, RSA_PKCS1_2048_8192_SHA256,
    RSA_PKCS1_2048_8192_SHA384, RSA_PKCS1_2048_8192_SHA512, RSA_PSS_2048_8192_SHA256,
    RSA_PSS_2048_8192_SHA384, RSA_PSS_2048_8192_SHA512, RsaParameters, RsaPublicKeyComponents,
    UnparsedPublicKey,
};

/// A key that verifies signatures.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) struct Key {
    /// Its `kid`.
    pub(super) id: Option<Box<str>>,
    /// The only algorithm that the issuer uses it for, if the issuer says so.
    pub(super) algorithm: Option<Algorithm>,
    pub(super) material: KeyMaterial,
}

/// What a signature is verified with.
#[derive(Clone, PartialEq, Eq)]
pub(super) enum KeyMaterial {
    /// Modulus and exponent, big-endian and without leading zeros.
    Rsa {
        n: Box<[u8]>,
        e: Box<[u8]>,
    },
    /// An uncompressed point.
    P256(Box<[u8]>),
    /// An uncompressed point.
    P384(Box<[u8]>),
    Ed25519(Box<[u8]>),
    Secret(Box<[u8]>),
}

impl Key {
    /// Returns whether the key can verify signatures of this algorithm.
    pub(super) fn fits(&self, algorithm: Algorithm) -> bool {
        let is_kind = match self.material {
            KeyMaterial::Rsa { .. } => algorithm.rsa().is_some(),
            KeyMaterial::P256(_) => algorithm == Algorithm::Es256,
            KeyMaterial::P384(_) => algorithm == Algorithm::Es384,
            KeyMaterial::Ed25519(_) => algorithm == Algorithm::EdDsa,
            KeyMaterial::Secret(_) => algorithm.hmac().is_some(),
        };
        is_kind && self.algorithm.is_none_or(|only| only == algorithm)
    }

    /// Returns whether this is the signature of the message by this key and algorithm.
    pub(super) fn verifies(&self, algorithm: Algorithm, message: &[u8], signature: &[u8]) -> bool {
        if !self.fits(algorithm) {
            return false;
        }
        let verified =
            match &self.material {
                KeyMaterial::Rsa { n, e } => {
                    let Some(parameters) = algorithm.rsa() else {
                        return false;
                    };
                    RsaPublicKeyComponents { n, e }.verify(parameters, message, signature)
                }
                KeyMaterial::P256(point) => UnparsedPublicKey::new(&ECDSA_P256_SHA256_FIXED, point)
                    .verify(message, signature),
                KeyMaterial::P384(point) => UnparsedPublicKey::new(&ECDSA_P384_SHA384_FIXED, point)
                    .verify(message, signature),
                KeyMaterial::Ed25519(point) => {
                    UnparsedPublicKey::new(&ED25519, point).verify(message, signature)
                }
                KeyMaterial::Secret(secret) => {
                    let Some(hash) = algorithm.hmac() else {
                        return false;
                    };
                    hmac::verify(&hmac::Key::new(hash, secret), message, signature)
                }
            };
        verified.is_ok()
    }
}

impl fmt::Debug for KeyMaterial {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            Self::Rsa { .. } => "Rsa",
            Self::P256(_) => "P256",
            Self::P384(_) => "P384",
            Self::Ed25519(_) => "Ed25519",
            Self::Secret(_) => "Secret",
        })
    }
}

/// A signature algorithm (RFC 7518, RFC 8037). `none` is not one.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Algorithm {
    Rs256,
    Rs384,
    Rs512,
    Ps256,
    Ps384,
    Ps512,
    Es256,
    Es384,
    EdDsa,
    Hs256,
    Hs384,
    Hs512,
}

impl Algorithm {
    /// Returns the algorithm of this name, if it is supported.
    pub(super) fn parse(name: &str) -> Option<Self> {
        Some(match name {
            "RS256" => Self::Rs256,
            "RS384" => Self::Rs384,
            "RS512" => Self::Rs512,
            "PS256" => Self::Ps256,
            "PS384" => Self::Ps384,
            "PS512" => Self::Ps512,
            "ES256" => Self::Es256,
            "ES384" => Self::Es384,
            // RFC 9864 names the curve instead.
            "EdDSA" | "Ed25519" => Self::EdDsa,
            "HS256" => Self::Hs256,
            "HS384" => Self::Hs384,
            "HS512" => Self::Hs512,
            _ => return None,
        })
    }

    /// Returns the parameters of ring, if an RSA key verifies this algorithm.
    pub(super) fn rsa(self) -> Option<&'static RsaParameters> {
        Some(match self {
            Self::Rs256 => &RSA_PKCS1_2048_8192_SHA256,
            Self::Rs384 => &RSA_PKCS1_2048_8192_SHA384,
            Self::Rs512 => &RSA_PKCS1_2048_8192_SHA512,
            Self::Ps256 => &RSA_PSS_2048_8192_SHA256,
            Self::Ps384 => &RSA_PSS_2048_8192_SHA384,
            Self::Ps512 => &RSA_PSS_2048_8192_SHA512,
            _ => return None,
        })
    }

    /// Returns the hash of ring, if a shared secret verifies this algorithm.
    pub(super) fn hmac(self) -> Option<hmac::Algorithm> {
        Some(match self {
            Self::Hs256 => hmac::HMAC_SHA256,
            Self::Hs384 => hmac::HMAC_SHA384,
            Self::Hs512 => hmac::HMAC_SHA512,
            _ => return None,
        })
    }
}
