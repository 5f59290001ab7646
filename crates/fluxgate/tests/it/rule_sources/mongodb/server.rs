//! Servers with the protocol of MongoDB, and a client that writes documents.

use std::net::SocketAddr;
use std::path::{Path, PathBuf};

use fluxgate_testkit::{Certificates, ClientAuth, Program};
use mongodb::bson::{Document, doc};
use mongodb::{Client, Collection};
use tokio::runtime::Runtime;

use crate::support::{Dir, fetched};

/// FerretDB, which keeps its data in a directory and has no change streams.
pub(super) struct FerretDb {
    pub(super) address: SocketAddr,
    pub(super) program: Program,
    _dir: Dir,
}

impl FerretDb {
    pub(super) fn start() -> Self {
        Self::start_with(&[])
    }

    /// Starts it with TLS. Clients may have to show a certificate.
    pub(super) fn start_with_tls(files: &Certificates, clients: ClientAuth) -> Self {
        let mut arguments = vec![files.server_cert(), files.server_key()];
        if clients == ClientAuth::Required {
            arguments.push(files.ca());
        }
        Self::start_with(&arguments)
    }

    fn start_with(arguments: &[PathBuf]) -> Self {
        let dir = Dir::new();
        let server = fetched("FLUXGATE_FERRETDB", "ferretdb/ferretdb");
        let program = Program::start(server, |command| {
            command.arg(dir.path("")).args(arguments);
            command.current_dir(dir.path(""));
        });
        Self {
            address: address_of(&program),
            program,
            _dir: dir,
        }
    }
}

/// mongo-java-server, which keeps its data in memory and has change streams.
pub(super) struct MongoJavaServer {
    pub(super) address: SocketAddr,
    pub(super) program: Program,
}

impl MongoJavaServer {
    pub(super) fn start() -> Self {
        let server = fetched("FLUXGATE_MONGO_JAVA_SERVER", "mongo-java-server/server.jar");
        let program = Program::start(Path::new("java"), |command| {
            command
                .args(["-XX:TieredStopAtLevel=1", "-jar"])
                .arg(server);
        });
        Self {
            address: address_of(&program),
            program,
        }
    }
}

/// Returns the address that a server prints once it listens.
fn address_of(program: &Program) -> SocketAddr {
    program.wait_for_line("the address of the server", |line| {
        let url = line.strip_prefix("listening: mongodb://")?;
        let (address, _) = url.split_once('/')?;
        address.parse().ok()
    })
}

/// A client that writes rule documents, as OpenFluxGate and its users do.
pub(super) struct RuleWriter {
    runtime: Runtime,
    rules: Collection<Document>,
}

impl RuleWriter {
    pub(super) fn connect(address: SocketAddr) -> Self {
        Self::of_collection(address, "fluxgate", "rate_limit_rules")
    }

    pub(super) fn of_collection(address: SocketAddr, database: &str, collection: &str) -> Self {
        Self::by_url(&format!("mongodb://{address}"), database, collection)
    }

    pub(super) fn by_url(url: &str, database: &str, collection: &str) -> Self {
        let runtime = tokio::runtime::Builder::new_multi_thread()
            .worker_threads(1)
            .enable_all()
            .build()
            .unwrap();
        let client = runtime.block_on(Client::with_uri_str(url)).unwrap();
        let rules = client.database(database).collection(collection);
        Self { runtime, rules }
    }

    pub(super) fn insert(&self, documents: impl IntoIterator<Item = Document>) {
        let documents: Vec<_> = documents.into_iter().collect();
        for documents in documents.chunks(10_000) {
            let insert = self.rules.insert_many(documents);
            self.runtime.block_on(insert.into_future()).unwrap();
        }
    }

    /// Writes a document, in the place of one with the same `id`.
    pub(super) fn upsert(&self, document: &Document) {
        let id = doc! { "id": document.get("id").unwrap() };
        let replace = self.rules.replace_one(id, document).upsert(true);
        self.runtime.block_on(replace.into_future()).unwrap();
    }

    pub(super) fn delete(&self, filter: Document) {
        let delete = self.rules.delete_many(filter);
        self.runtime.block_on(delete.into_future()).unwrap();
    }

    /// Replaces all documents, so that there is never none.
    pub(super) fn replace_all(&self, documents: &[Document]) {
        let (known, new): (Vec<_>, Vec<_>) = {
            let ids = self.rules.distinct("id", doc! {});
            let ids = self.runtime.block_on(ids.into_future()).unwrap();
            let is_known = |document: &&Document| ids.contains(document.get("id").unwrap());
            documents.iter().partition(is_known)
        };
        for document in known {
            self.upsert(document);
        }
        if !new.is_empty() {
            self.insert(new.into_iter().cloned());
        }
        let ids: Vec<_> = documents.iter().filter_map(|it| it.get("id")).collect();
        self.delete(doc! { "id": { "$nin": ids } });
    }
}
