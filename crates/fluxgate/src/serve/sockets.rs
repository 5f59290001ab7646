//! Listening sockets: one for each core, among which the kernel distributes connections.

use std::io;
use std::net::{Ipv4Addr, SocketAddr, TcpListener};

use socket2::{Domain, Protocol, Socket, Type};

const BACKLOG: i32 = 4096;

/// Opens an address once for each core. Port 0 means a free port, the same for all cores. The
/// unspecified IPv6 address includes all of IPv4; on a machine without IPv6 it means all of IPv4
/// only.
pub(crate) fn listen(address: SocketAddr, cores: usize) -> io::Result<Vec<TcpListener>> {
    let is_every_address = address.is_ipv6() && address.ip().is_unspecified();
    match open(address, cores) {
        Err(error) if is_every_address && lacks_ipv6(&error) => {
            open((Ipv4Addr::UNSPECIFIED, address.port()).into(), cores)
        }
        opened => opened,
    }
}

/// Returns whether an address cannot be opened because the kernel has no IPv6, or because
/// it is switched off.
fn lacks_ipv6(error: &io::Error) -> bool {
    let code = error.raw_os_error();
    matches!(code, Some(libc::EAFNOSUPPORT | libc::EADDRNOTAVAIL))
}

fn open(address: SocketAddr, cores: usize) -> io::Result<Vec<TcpListener>> {
    // With SO_REUSEPORT another process of the same user could share the address. An
    // address in use must be an error, so the first socket gets the option only once it listens.
    // It is not opened again: the connections that it has already would be reset.
    let first = socket(address)?;
    first.bind(&address.into())?;
    first.listen(BACKLOG)?;
    first.set_reuse_port(true)?;
    let bound = first.local_addr()?.as_socket();
    let address = bound.unwrap_or(address);
    let mut sockets = vec![first.into()];
    for _ in 1..cores {
        let socket = socket(address)?;
        socket.set_reuse_port(true)?;
        socket.bind(&address.into())?;
        socket.listen(BACKLOG)?;
        sockets.push(socket.into());
    }
    Ok(sockets)
}

fn socket(address: SocketAddr) -> io::Result<Socket> {
    let socket = Socket::new(
        Domain::for_address(address),
        Type::STREAM.nonblocking().cloexec(),
        Some(Protocol::TCP),
    )?;
    // Connections of an earlier run may still be in TIME_WAIT.
    socket.set_reuse_address(true)?;
    if address.is_ipv6() {
        socket.set_only_v6(false)?;
    }
    Ok(socket)
}

#[cfg(test)]
mod tests {
    use std::io::{Read as _, Write as _};
    use std::net::TcpStream;
    use std::thread;

    use fluxgate_testkit::ports;

    use super::*;

    #[test]
    fn all_cores_share_one_address_and_no_other_process_does() {
        let any = SocketAddr::from(([127, 0, 0, 1], 0));
        let sockets = listen(any, 3).unwrap();
        let address = sockets[0].local_addr().unwrap();
        assert_ne!(address.port(), 0);
        for socket in &sockets {
            assert_eq!(socket.local_addr().unwrap(), address);
        }
        let again = listen(address, 3).unwrap_err();
        assert_eq!(again.kind(), io::ErrorKind::AddrInUse);
    }

    #[test]
    fn every_core_gets_connections() {
        let any = SocketAddr::from(([127, 0, 0, 1], 0));
        let sockets = listen(any, 3).unwrap();
        let address = sockets[0].local_addr().unwrap();
        // The chance that a core gets none of them is one in 10^17.
        let _clients = [(); 100].map(|()| TcpStream::connect(address).unwrap());
        for socket in &sockets {
            assert!(socket.accept().is_ok());
        }
    }

    #[test]
    fn a_connection_during_the_opening_is_not_reset() {
        for _ in 0..100 {
            let port = ports::free();
            let address = port.addr();
            let client = thread::spawn(move || {
                loop {
                    if let Ok(client) = TcpStream::connect(address) {
                        break client;
                    }
                }
            });
            let sockets = listen(address, 2).unwrap();
            let mut client = client.join().unwrap();
            let accepted = sockets.iter().find_map(|socket| socket.accept().ok());
            let (mut accepted, _) = accepted.unwrap();
            accepted.write_all(b"a").unwrap();
            client.read_exact(&mut [0]).unwrap();
        }
    }

    #[test]
    fn every_address_includes_those_of_ipv4() {
        let every = SocketAddr::from((std::net::Ipv6Addr::UNSPECIFIED, 0));
        let sockets = listen(every, 1).unwrap();
        let port = sockets[0].local_addr().unwrap().port();
        let connected = std::net::TcpStream::connect((Ipv4Addr::LOCALHOST, port));
        assert!(connected.is_ok(), "{connected:?}");
    }

    #[test]
    fn only_the_lack_of_ipv6_is_a_reason_for_ipv4() {
        let error = io::Error::from_raw_os_error;
        assert!(lacks_ipv6(&error(libc::EAFNOSUPPORT)));
        assert!(lacks_ipv6(&error(libc::EADDRNOTAVAIL)));
        assert!(!lacks_ipv6(&error(libc::EADDRINUSE)));
        assert!(!lacks_ipv6(&error(libc::EACCES)));
    }
}
