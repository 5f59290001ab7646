//! The options of a server.

use std::fmt::Write as _;
use std::path::PathBuf;

use crate::clock::Skew;
use crate::tls::ClientAuth;

#[derive(Clone, Debug)]
pub(super) struct ServerOptions {
    pub(super) binary: PathBuf,
    pub(super) config: Vec<String>,
    pub(super) password: Option<String>,
    pub(super) users: Vec<String>,
    pub(super) unix_socket: bool,
    pub(super) tls: Option<ClientAuth>,
    pub(super) skew: Option<Skew>,
    pub(super) cluster: bool,
    pub(super) sentinel: bool,
}

impl Default for ServerOptions {
    fn default() -> Self {
        Self {
            binary: "redis-server".into(),
            config: Vec::new(),
            password: None,
            users: Vec::new(),
            unix_socket: false,
            tls: None,
            skew: None,
            cluster: false,
            sentinel: false,
        }
    }
}

impl ServerOptions {
    pub(super) fn has_users(&self) -> bool {
        self.password.is_some() || !self.users.is_empty()
    }

    /// Returns the ACL file, if there are users. `own` is a user with all permissions, whose
    /// password is its name.
    pub(super) fn users_file(&self, own: &str) -> Option<String> {
        if !self.has_users() {
            return None;
        }
        let mut file = format!("user {own} on >{own} ~* &* +@all\n");
        if let Some(password) = &self.password {
            let _ = writeln!(file, "user default on >{password} ~* &* +@all");
        }
        for user in &self.users {
            let _ = writeln!(file, "user {user}");
        }
        Some(file)
    }
}

pub(super) fn tls_auth_clients(auth: ClientAuth) -> &'static str {
    match auth {
        ClientAuth::Off => "no",
        ClientAuth::Required => "yes",
    }
}
