//! `fluxgate run`: the composition root. Opens the listeners of the config, serves them,
//! and shuts down gracefully.

mod certificate;
mod gateway;
mod greeting;
mod reach_store;

use std::net::TcpListener;
use std::sync::Arc;
use std::thread::{self, JoinHandle};
use std::time::Duration;

use tokio::runtime::{Builder, Runtime};
use tokio_util::sync::CancellationToken;

use crate::admin::Admin;
use crate::api::Api;
use crate::config::{Config, RawConfig, Secrets};
use crate::engine::{AnyStore, Engine, Filters};
use crate::failure::{Exit, Failure};
use crate::grpc::Grpc;
use crate::http::{DescriptorShare, Listener, raise_descriptor_limit};
use crate::reload::{ConfigFile, RuleReloader, Source};
use crate::resp::RespServer;
use crate::serve::{Acceptor, HttpServer, MAX_CONNECTIONS, listen};
use crate::telemetry::{Exporter, Telemetry, log};
use crate::watch::Signals;
use gateway::GatewayListener;

/// How long requests in flight may take once the service shuts down.
const GRACE: Duration = Duration::from_secs(25);

/// How long the exit waits for a file that is being read: a file system that hangs would
/// hold it forever.
const LAST_READ: Duration = Duration::from_secs(1);

/// Serves until SIGTERM or Ctrl-C.
pub(crate) fn run(raw: &RawConfig, file: Option<ConfigFile>) -> Result<(), Failure> {
    let config = raw.check()?;
    let secrets = Secrets::load(&config).map_err(|error| Failure::new(Exit::Config, error))?;
    let _flush = log::init(&config.telemetry);
    let (telemetry, exporter) = Telemetry::new(&config.telemetry);
    let telemetry = Arc::new(telemetry);
    let store = AnyStore::new(&config, &secrets);
    let store = store.map_err(|error| Failure::new(Exit::Config, error))?;
    let engine = Arc::new(Engine::new(store, config.call_limits.on_error, telemetry));
    let source = Source::new(&config, raw, file, engine.store());
    let (mut reloader, reload_handle) = RuleReloader::new(Arc::clone(&engine), source);
    let rules = reloader.read_first()?;
    let admin = Admin::new(&config, reload_handle);
    let admin = admin.map_err(|error| Failure::new(Exit::Config, error))?;
    let closing = CancellationToken::new();
    let filters = Filters::new(&config);
    let [api, grpc, resp, clients, upstreams] = DescriptorShare::new(raise_descriptor_limit());
    let gateway = GatewayListener::new(&config, &filters, &engine, upstreams)?;
    // In the order of the listeners.
    let descriptors = [api, grpc, resp, clients];
    let api = Api::new(Arc::clone(&engine), admin, filters, closing.clone());
    // This runtime reloads rules and handles signals. Requests are served by the cores.
    let main = runtime()?;
    let cores = thread::available_parallelism().map_or(1, usize::from);
    // Once an address is open, requests and signals may come.
    if let Some(rules) = rules {
        reloader.swap_rules(rules);
    }
    let signals = {
        let _entered = main.enter();
        Signals::listen()
    };
    let open = open(&config, cores)?;
    greeting::log_addresses(&config, &open);
    if raw.is_demo() {
        greeting::print_demo(&open);
    }

    let acceptors = Acceptor::for_cores(cores, &closing, descriptors, |listener| match listener {
        Listener::Gateway => max_connections(&config),
        _ => MAX_CONNECTIONS,
    });
    let services = Services {
        engine: Arc::clone(&engine),
        api: Arc::clone(&api),
        gateway: gateway.clone(),
    };
    let cores = acceptors.into_iter().zip(sockets_by_core(open, cores));
    let cores = cores.map(|(acceptor, sockets)| core(acceptor, sockets, services.clone()));
    let cores = cores.collect::<Result<Vec<_>, _>>()?;
    main.block_on(async {
        let traces = exporter.map(Exporter::start);
        tokio::spawn(reloader.run(signals.hangup));
        tokio::spawn(reach_store::reach(Arc::clone(&engine)));
        tokio::spawn(async move { api.keep_current().await });
        if let Some(gateway) = gateway {
            tokio::spawn(async move { gateway.reload_certificate().await });
        }
        signals.shutdown.wait().await;
        closing.cancel();
        tracing::info!("closing");
        // The cores use connections to Redis that live on this runtime, so it runs until
        // they have ended.
        let left = tokio::task::spawn_blocking(|| {
            for core in cores {
                // A panic has been logged.
                let _ = core.join();
            }
        });
        let _ = left.await;
        if let Some(traces) = traces {
            traces.end().await;
        }
    });
    main.shutdown_timeout(LAST_READ);
    Ok(())
}

fn runtime() -> Result<Runtime, Failure> {
    let runtime = Builder::new_current_thread().enable_all().build();
    runtime.map_err(|error| Failure::new(Exit::System, format!("no runtime: {error}")))
}

/// What serves the listeners.
#[derive(Clone)]
struct Services {
    engine: Arc<Engine>,
    api: Arc<Api>,
    gateway: Option<GatewayListener>,
}

/// Returns the most connections of the gateway.
fn max_connections(config: &Config) -> usize {
    let max = config.gateway.limits.connections;
    max.map_or(usize::MAX, |max| {
        usize::try_from(max.get()).unwrap_or(usize::MAX)
    })
}

/// The sockets of each listener, one for each core.
type Open = Vec<(Listener, Vec<TcpListener>)>;

/// Opens every address that the config names.
fn open(config: &Config, cores: usize) -> Result<Open, Failure> {
    let named = [
        (Listener::Gateway, config.listen.gateway),
        (Listener::Api, config.listen.api),
        (Listener::Grpc, config.listen.grpc),
        (Listener::Resp, config.listen.resp),
    ];
    let named = named
        .into_iter()
        .filter_map(|(listener, address)| Some((listener, address?)));
    let opened = named.map(|(listener, address)| {
        let sockets = listen(address, cores).map_err(|error| {
            let name = listener.name();
            Failure::new(
                Exit::Unavailable,
                format!("listen.{name}: {address}: {error}"),
            )
        })?;
        Ok((listener, sockets))
    });
    opened.collect()
}

/// The sockets of each core.
fn sockets_by_core(open: Open, cores: usize) -> Vec<Vec<(Listener, TcpListener)>> {
    let mut by_core: Vec<Vec<_>> = (0..cores).map(|_| Vec::new()).collect();
    for (listener, sockets) in open {
        for (core, socket) in by_core.iter_mut().zip(sockets) {
            core.push((listener, socket));
        }
    }
    by_core
}

/// Starts a core: a thread with a runtime of its own and a socket for each listener. It
/// ends when the service shuts down and all connections have ended.
fn core(
    acceptor: Acceptor,
    sockets: Vec<(Listener, TcpListener)>,
    services: Services,
) -> Result<JoinHandle<()>, Failure> {
    let runtime = runtime()?;
    let serve = move || {
        runtime.block_on(async {
            for (listener, socket) in sockets {
                let served = serve(listener, socket, &acceptor, &services);
                if let Err(error) = served {
                    tracing::error!(listener = listener.name(), %error, "cannot serve");
                }
            }
            acceptor.closing.cancelled().await;
            if tokio::time::timeout(GRACE, acceptor.wait()).await.is_err() {
                tracing::warn!("requests in flight took too long; closing their connections");
            }
        });
    };
    let thread = thread::Builder::new()
        .name("fluxgate-core".into())
        .spawn(serve);
    thread.map_err(|error| Failure::new(Exit::System, format!("no thread: {error}")))
}

/// Serves a listener on this core.
fn serve(
    listener: Listener,
    socket: TcpListener,
    acceptor: &Acceptor,
    services: &Services,
) -> std::io::Result<()> {
    let Services {
        engine,
        api,
        gateway,
    } = services;
    let socket = tokio::net::TcpListener::from_std(socket)?;
    match listener {
        Listener::Api => {
            let server = HttpServer::new(api.router(), Arc::clone(engine.telemetry()), listener);
            let (api, closing) = (Arc::clone(api), acceptor.closing.clone());
            acceptor.spawn(listener, socket, move |mut stream, _| {
                let (server, api, closing) = (server.clone(), Arc::clone(&api), closing.clone());
                async move {
                    if let Some(prefix) = api.serve_fast_path(&mut stream, &closing).await {
                        server.serve(prefix, stream, closing).await;
                    }
                }
            });
        }
        Listener::Grpc => {
            let closing = acceptor.closing.clone();
            let grpc = Grpc::new(Arc::clone(engine), closing.clone());
            let server = HttpServer::new(grpc.router(), Arc::clone(engine.telemetry()), listener);
            acceptor.spawn(listener, socket, move |stream, _| {
                server.clone().serve(Vec::new(), stream, closing.clone())
            });
        }
        Listener::Resp => {
            let server = RespServer::new(Arc::clone(engine), acceptor.closing.clone());
            acceptor.spawn(listener, socket, move |stream, peer| {
                server.clone().serve(stream, peer)
            });
        }
        Listener::Gateway => {
            // There is a gateway if there is an address for it.
            if let Some(gateway) = gateway.clone() {
                let (idle, closing) = (gateway.clone(), acceptor.closing.clone());
                tokio::spawn(async move { idle.close_idle_upstreams().await });
                acceptor.spawn(listener, socket, move |stream, peer| {
                    gateway.serve(stream, peer, closing.clone())
                });
            }
        }
    }
    Ok(())
}
