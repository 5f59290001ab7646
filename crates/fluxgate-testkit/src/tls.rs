//! Certificates for one test.

use std::fs;
use std::path::{Path, PathBuf};

use rcgen::{
    BasicConstraints, CertificateParams, DnType, ExtendedKeyUsagePurpose, IsCa, Issuer, KeyPair,
    KeyUsagePurpose,
};

use crate::dir::Dir;

/// Whether clients must present a certificate.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum ClientAuth {
    /// No certificate is needed.
    Off,
    /// A certificate signed by the server's authority is required.
    Required,
}

/// PEM files of an authority, a server and a client. The server's certificate is for
/// `localhost` and 127.0.0.1.
#[derive(Debug)]
pub struct Certificates {
    dir: Dir,
}

impl Certificates {
    /// Generates certificates with a new authority.
    pub fn generate() -> Self {
        let dir = Dir::new();
        let authority_key = KeyPair::generate().expect("generate a key");
        let mut authority = params("FluxGate test authority", &[]);
        authority.is_ca = IsCa::Ca(BasicConstraints::Unconstrained);
        authority.key_usages = vec![KeyUsagePurpose::KeyCertSign, KeyUsagePurpose::CrlSign];
        let certificate = authority.self_signed(&authority_key).expect("sign the CA");
        dir.write("ca.pem", &certificate.pem());
        let issuer = Issuer::new(authority, authority_key);

        let server = params("FluxGate test server", &["localhost", "127.0.0.1"]);
        sign(
            &dir,
            "server",
            server,
            ExtendedKeyUsagePurpose::ServerAuth,
            &issuer,
        );
        let client = params("FluxGate test client", &[]);
        sign(
            &dir,
            "client",
            client,
            ExtendedKeyUsagePurpose::ClientAuth,
            &issuer,
        );
        Self { dir }
    }

    /// The authority's certificate.
    pub fn ca(&self) -> PathBuf {
        self.dir.file("ca.pem")
    }

    /// The server's certificate.
    pub fn server_cert(&self) -> PathBuf {
        self.dir.file("server.pem")
    }

    /// The server's key.
    pub fn server_key(&self) -> PathBuf {
        self.dir.file("server.key")
    }

    /// The client's certificate.
    pub fn client_cert(&self) -> PathBuf {
        self.dir.file("client.pem")
    }

    /// The client's key.
    pub fn client_key(&self) -> PathBuf {
        self.dir.file("client.key")
    }

    /// Reads a file.
    #[track_caller]
    pub fn read(path: impl AsRef<Path>) -> Vec<u8> {
        fs::read(path).expect("read a PEM file")
    }
}

fn params(name: &str, hosts: &[&str]) -> CertificateParams {
    let hosts: Vec<String> = hosts.iter().map(|host| (*host).to_owned()).collect();
    let mut params = CertificateParams::new(hosts).expect("hosts that are names or addresses");
    params.distinguished_name.push(DnType::CommonName, name);
    params
}

fn sign(
    dir: &Dir,
    name: &str,
    mut params: CertificateParams,
    usage: ExtendedKeyUsagePurpose,
    issuer: &Issuer<'_, KeyPair>,
) {
    let key = KeyPair::generate().expect("generate a key");
    params.use_authority_key_identifier_extension = true;
    params.key_usages = vec![KeyUsagePurpose::DigitalSignature];
    params.extended_key_usages = vec![usage];
    let certificate = params.signed_by(&key, issuer).expect("sign a certificate");
    dir.write(&format!("{name}.pem"), &certificate.pem());
    dir.write(&format!("{name}.key"), &key.serialize_pem());
}
