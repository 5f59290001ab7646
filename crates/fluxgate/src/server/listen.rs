//! Sockets: one a core and address, among which the system shares connections.

use std::io;
use std::net::{SocketAddr, TcpListener};

use socket2::{Domain, Protocol, Socket, Type};

const BACKLOG: i32 = 4096;

/// Opens an address once for each core. A port of 0 is chosen by the system,
/// the same for all.
pub(crate) fn listen(address: SocketAddr, cores: usize) -> io::Result<Vec<TcpListener>> {
    // Whoever shares his port lets others of the same user in. An address that
    // another process already serves must be an error, so it is tried first
    // without sharing.
    let probe = socket(address)?;
    probe.bind(&address.into())?;
    let bound = probe.local_addr()?.as_socket();
    let address = bound.unwrap_or(address);
    probe.listen(1)?;
    drop(probe);
    (0..cores.max(1))
        .map(|_| {
            let socket = socket(address)?;
            socket.set_reuse_port(true)?;
            socket.bind(&address.into())?;
            socket.listen(BACKLOG)?;
            Ok(socket.into())
        })
        .collect()
}

fn socket(address: SocketAddr) -> io::Result<Socket> {
    let socket = Socket::new(
        Domain::for_address(address),
        Type::STREAM.nonblocking().cloexec(),
        Some(Protocol::TCP),
    )?;
    // Connections of the last run that are still closing do not count.
    socket.set_reuse_address(true)?;
    if address.is_ipv6() {
        socket.set_only_v6(false)?;
    }
    Ok(socket)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn all_cores_share_one_address_and_nobody_else_does() {
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
}
