//! The secret that all instances of a deployment share.
//!
//! The key `<prefix>:1:{rules}:secret` has 32 random bytes in hexadecimal digits. It never expires.

use std::fmt;
use std::sync::Arc;

use fluxgate_core::{HoldId, StoreError};
use redis::Cmd;

use crate::error::unexpected;
use crate::servers::Servers;

const BYTES: usize = 32;

/// A random secret that all instances share. `Debug` does not show it.
#[derive(Clone, PartialEq, Eq)]
pub struct DeploymentSecret([u8; BYTES]);

impl DeploymentSecret {
    /// Returns the bytes.
    pub fn as_bytes(&self) -> &[u8] {
        &self.0
    }

    fn random() -> Self {
        // Ids of holds are random numbers of the operating system.
        let [low, high] = [HoldId::random(), HoldId::random()].map(|id| id.bits().to_le_bytes());
        let mut bytes = [0; BYTES];
        bytes[..16].copy_from_slice(&low);
        bytes[16..].copy_from_slice(&high);
        Self(bytes)
    }

    fn to_hex(&self) -> String {
        self.0.iter().map(|byte| format!("{byte:02x}")).collect()
    }

    fn from_hex(text: &str) -> Option<Self> {
        let (digits, []) = text.as_bytes().as_chunks::<2>() else {
            return None;
        };
        let digit = |digit: u8| u8::try_from(char::from(digit).to_digit(16)?).ok();
        let byte = |[high, low]: &[u8; 2]| Some(digit(*high)? << 4 | digit(*low)?);
        let bytes: Option<Vec<u8>> = digits.iter().map(byte).collect();
        bytes?.try_into().ok().map(Self)
    }
}

impl fmt::Debug for DeploymentSecret {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("DeploymentSecret(..)")
    }
}

/// Returns the secret on the server. If it has none, it gets `known`, or a new one.
pub(crate) async fn fetch(
    servers: &Arc<Servers>,
    prefix: &str,
    known: Option<&DeploymentSecret>,
) -> Result<DeploymentSecret, StoreError> {
    let key = format!("{prefix}:1:{{rules}}:secret");
    let get = Cmd::get(&key);
    let mut found: Option<String> = servers.command(&get, &key, "the secret").await?;
    if found.is_none() {
        let secret = known.cloned().unwrap_or_else(DeploymentSecret::random);
        let mut set = redis::cmd("SET");
        set.arg(&key).arg(secret.to_hex()).arg("NX");
        // Another instance may be faster.
        let _: Option<String> = servers.command(&set, &key, "the secret").await?;
        found = servers.command(&get, &key, "the secret").await?;
    }
    let secret = found.as_deref().and_then(DeploymentSecret::from_hex);
    secret.ok_or_else(|| unexpected("the secret"))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_secret_is_read_as_it_is_written() {
        let secret = DeploymentSecret::random();
        assert_eq!(
            DeploymentSecret::from_hex(&secret.to_hex()),
            Some(secret.clone())
        );
        for bad in ["", "0", "zz", &secret.to_hex()[2..], &"0".repeat(66)] {
            assert_eq!(DeploymentSecret::from_hex(bad), None, "{bad}");
        }
        assert_eq!(format!("{secret:?}"), "DeploymentSecret(..)");
    }
}
