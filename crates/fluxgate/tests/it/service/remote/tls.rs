//! A service that is called over HTTPS.

use std::fs;

use fluxgate_testkit::Certificates;
use fluxgate_tower::{RemoteError, RemoteHandler};

use super::{App, GENEROUS, RULES};
use crate::service::Service;
use crate::support::Dir;

/// Starts a service whose API speaks TLS, and returns it with its address.
fn start(certificates: &Certificates, more: &str) -> (Service, String) {
    let dir = Dir::new();
    fs::copy(certificates.server_cert(), dir.path("tls.crt")).unwrap();
    fs::copy(certificates.server_key(), dir.path("tls.key")).unwrap();
    fs::copy(certificates.ca(), dir.path("ca.pem")).unwrap();
    let tls = format!("tls: {{ cert: tls.crt, key: tls.key{more} }}");
    let listen = format!("listen: {{ api: {{ address: '127.0.0.1:0', {tls} }} }}\n");
    dir.write("fluxgate.yaml", listen + RULES);
    let service = Service::open_in(dir, &["run", "--config", "fluxgate.yaml"], 1);
    let address = format!("https://localhost:{}", service.address("api").port());
    (service, address)
}

#[tokio::test]
async fn the_service_is_called_over_tls() {
    let certificates = Certificates::generate();
    let ca = Certificates::read(certificates.ca());
    let (_service, address) = start(&certificates, "");
    let handler = || RemoteHandler::new(&address).unwrap().deadline(GENEROUS);
    let app = App::new(handler().tls_ca(&ca).unwrap().deny_on_error());
    for status in [200, 200, 429] {
        assert_eq!(app.get("/api/x").await, status);
    }
    // Neither the authorities of the system nor another one have signed the certificate.
    let other = Certificates::read(Certificates::generate().ca());
    for untrusting in [handler(), handler().tls_ca(&other).unwrap()] {
        let app = App::new(untrusting.deny_on_error());
        assert_eq!(app.get("/none").await, 503);
    }
    // The certificate is for another name.
    let port = address.rsplit_once(':').unwrap().1;
    let misnamed = RemoteHandler::new(&format!("https://127.0.0.2:{port}")).unwrap();
    let misnamed = misnamed.deadline(GENEROUS).tls_ca(&ca).unwrap();
    assert_eq!(App::new(misnamed.deny_on_error()).get("/none").await, 503);
}

#[tokio::test]
async fn the_service_may_require_a_client_certificate() {
    let certificates = Certificates::generate();
    let (_service, address) = start(&certificates, ", client_ca: ca.pem");
    let ca = Certificates::read(certificates.ca());
    let (certificate, key) = (certificates.client_cert(), certificates.client_key());
    let (certificate, key) = (Certificates::read(certificate), Certificates::read(key));
    let handler = RemoteHandler::new(&address).unwrap().deadline(GENEROUS);
    let unknown = handler.deny_on_error().tls_ca(&ca).unwrap();
    assert_eq!(App::new(unknown.clone()).get("/none").await, 503);
    let known = unknown.tls_client(&certificate, &key).unwrap();
    assert!(!format!("{known:?}").contains("PRIVATE"), "{known:?}");
    assert_eq!(App::new(known).get("/none").await, 200);
}

#[test]
fn invalid_certificates_are_reported() {
    let handler = || RemoteHandler::new("https://localhost").unwrap();
    for result in [handler().tls_ca(b"none"), handler().tls_client(b"", b"")] {
        let error = result.unwrap_err();
        assert!(matches!(error, RemoteError::Trust(_)), "{error}");
    }
}
