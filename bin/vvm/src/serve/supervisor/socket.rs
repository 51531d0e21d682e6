//! The socket where a supervisor takes messages.

use std::{
    ffi::OsStr,
    io,
    os::unix::{
        ffi::OsStrExt,
        net::{SocketAddr, UnixDatagram},
    },
    sync::atomic::{AtomicBool, Ordering},
};

use tracing::warn;

/// The socket of a supervisor. Sending never waits.
pub(super) struct NotifySocket {
    socket: UnixDatagram,
    to: SocketAddr,
    has_failed: AtomicBool,
}

impl NotifySocket {
    /// Opens a socket to an address: a path, or an abstract name after `@`.
    pub(super) fn open(address: &OsStr) -> io::Result<NotifySocket> {
        let to = match address.as_bytes() {
            [b'@', name @ ..] => abstract_address(name)?,
            [b'/', ..] => SocketAddr::from_pathname(address)?,
            _ => return Err(io::Error::other("neither a path nor an abstract name")),
        };
        let socket = UnixDatagram::unbound()?;
        socket.set_nonblocking(true)?;
        Ok(NotifySocket { socket, to, has_failed: AtomicBool::new(false) })
    }

    /// Sends a message, and returns whether it was sent. A full queue refuses the message.
    pub(super) fn send(&self, message: &str) -> bool {
        match self.socket.send_to_addr(message.as_bytes(), &self.to) {
            Ok(_) => true,
            Err(error) => {
                let is_first = !self.has_failed.swap(true, Ordering::Relaxed);
                if is_first && error.kind() != io::ErrorKind::WouldBlock {
                    warn!(to = ?self.to, %error, "supervisor not reached");
                }
                false
            }
        }
    }
}

#[cfg(target_os = "linux")]
fn abstract_address(name: &[u8]) -> io::Result<SocketAddr> {
    use std::os::linux::net::SocketAddrExt;
    SocketAddr::from_abstract_name(name)
}

#[cfg(not(target_os = "linux"))]
fn abstract_address(_: &[u8]) -> io::Result<SocketAddr> {
    Err(io::Error::other("this system has no abstract names"))
}

#[cfg(test)]
mod tests {
    use std::ffi::OsString;

    use super::*;

    fn open(address: &OsStr) -> NotifySocket {
        NotifySocket::open(address).unwrap()
    }

    #[test]
    fn a_message_arrives_by_path_and_by_abstract_name() {
        let folder = tempfile::tempdir().unwrap();
        let path = folder.path().join("notify");
        let name = format!("vvm-test-{}", std::process::id());
        let hidden = abstract_address(name.as_bytes()).unwrap();
        let sockets = [
            (UnixDatagram::bind(&path).unwrap(), path.as_os_str().to_owned()),
            (UnixDatagram::bind_addr(&hidden).unwrap(), OsString::from(format!("@{name}"))),
        ];
        for (receiver, address) in sockets {
            assert!(open(&address).send("READY=1\n"), "{address:?}");
            let mut message = [0; 64];
            let length = receiver.recv(&mut message).unwrap();
            assert_eq!(&message[..length], b"READY=1\n", "{address:?}");
        }
    }

    #[test]
    fn a_full_queue_and_a_missing_socket_refuse_at_once() {
        let folder = tempfile::tempdir().unwrap();
        let path = folder.path().join("notify");
        assert!(!open(path.as_os_str()).send("READY=1\n"));
        let _unread = UnixDatagram::bind(&path).unwrap();
        let socket = open(path.as_os_str());
        let sent = (0..100_000).take_while(|_| socket.send("WATCHDOG=1\n")).count();
        assert!(sent > 0 && sent < 100_000, "{sent}");
        for wrong in ["", "notify", "vsock:2:1"] {
            assert!(NotifySocket::open(OsStr::new(wrong)).is_err(), "{wrong}");
        }
    }
}
