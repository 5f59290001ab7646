//! Where the gateway listens: at one of the addresses of the servers that forward requests.

use super::parse::Directive;
use crate::draft::Remark;

/// An address of a server.
#[derive(Debug)]
pub(super) struct Listener {
    line: usize,
    text: String,
    /// The address, if it is one of TCP.
    address: Option<String>,
    is_tls: bool,
    /// The certificate and the key of the server.
    certificate: Option<Certificate>,
    /// Whether the server forwards requests.
    forwards: bool,
}

/// The files of a certificate and its key.
pub(super) type Certificate = (String, String);

/// Returns the addresses of a server. `above` are the certificate and the key of the block around
/// it; `forwards` says whether it forwards requests.
pub(super) fn read(
    server: &Directive,
    above: Option<&Certificate>,
    forwards: bool,
) -> Vec<Listener> {
    let certificate = certificate(&server.block).or(above.cloned());
    let listens = server.block.iter().filter(|it| it.name == "listen");
    let listener = |listen: &Directive| {
        let address = listen.argument(0);
        let address = match address.parse::<u16>() {
            Ok(port) => format!("0.0.0.0:{port}"),
            Err(_) if address.contains(':') => address.replacen('*', "0.0.0.0", 1),
            Err(_) => format!("{address}:80"),
        };
        let mut options = listen.arguments.iter().skip(1);
        Listener {
            line: listen.line(),
            text: listen.text(),
            address: Some(address).filter(|it| it.parse::<std::net::SocketAddr>().is_ok()),
            is_tls: options.any(|option| option.text == "ssl"),
            certificate: certificate.clone(),
            forwards,
        }
    };
    listens.map(listener).collect()
}

/// Returns the certificate and the key that a block names.
pub(super) fn certificate(block: &[Directive]) -> Option<Certificate> {
    let file = |name: &str| {
        let directive = block.iter().find(|it| it.name == name)?;
        let file = directive.argument(0);
        let is_file = !file.is_empty() && !file.contains('$') && !file.contains(':');
        is_file.then(|| file.to_owned())
    };
    Some((file("ssl_certificate")?, file("ssl_certificate_key")?))
}

/// Returns the address of the gateway, and its certificate. Adds a remark on every other address:
/// the gateway has one. One with TLS comes first.
pub(super) fn choose(
    listeners: &[Listener],
    remarks: &mut Vec<Remark>,
) -> (Option<String>, Option<Certificate>) {
    let usable = || { listeners.iter() }.filter(|it| it.forwards && it.address.is_some());
    let secure = usable().find(|it| it.is_tls && it.certificate.is_some());
    let chosen = secure.or_else(|| usable().next());
    for other in listeners {
        let text = match chosen {
            Some(chosen) if std::ptr::eq(chosen, other) => {
                if !other.is_tls || other.certificate.is_some() {
                    continue;
                }
                "TLS: name the certificate and the key in `gateway.tls`".to_owned()
            }
            Some(chosen) if other.address == chosen.address && other.is_tls == chosen.is_tls => {
                if !other.is_tls || other.certificate == chosen.certificate {
                    continue;
                }
                format!("the certificate for `{}`: the gateway has one", other.text)
            }
            _ if other.address.is_none() => format!("`{}`", other.text),
            _ => format!("`{}`: the gateway has one listener", other.text),
        };
        remarks.push(Remark::lost(other.line, text));
    }
    let tls = chosen.filter(|it| it.is_tls);
    (
        chosen.and_then(|it| it.address.clone()),
        tls.and_then(|it| it.certificate.clone()),
    )
}
