//! `fluxgate run`: opens what the config names, serves, and ends well.

mod begun;
mod buffers;
mod content_length;
mod descriptors;
mod door;
mod express;
mod http;
mod instead;
mod kept;
mod leave;
mod listen;
mod own_error;
mod reach_store;
pub(crate) mod request_id;
mod send;
mod signals;
mod start;
mod telling;
mod wall_clock;

use std::net::TcpListener;
use std::sync::Arc;
use std::thread::{self, JoinHandle};
use std::time::Duration;

use tokio::runtime::{Builder, Runtime};
use tokio_util::sync::CancellationToken;

pub(crate) use begun::Begun;
pub(crate) use buffers::{Buffers, INPUT};
pub(crate) use content_length::content_length;
pub(crate) use descriptors::{DescriptorPermit, DescriptorShare};
#[cfg(any(test, feature = "fuzzing"))]
pub(crate) use express::any_bytes;
pub(crate) use http::{LINGER, REQUEST_ID, until_closing};
pub(crate) use instead::Instead;
pub(crate) use kept::{Files, Kept};
pub(crate) use leave::leave;
pub(crate) use own_error::{last_answer, own_error};
pub(crate) use send::send;
pub(crate) use signals::next as next_signal;
pub(crate) use wall_clock::{wall_clock, write_date};

use crate::admin::Admin;
use crate::api::Api;
use crate::cli::{Exit, Failure};
use crate::config::{Config, Draft, Secrets};
use crate::engine::{AnyStore, Engine, Listener};
use crate::filters::Filters;
use crate::gateway::Gateway;
use crate::grpc::Grpc;
use crate::reload::{ConfigFile, Keeper, Source};
use crate::resp::RespServer;
use crate::telemetry::{Exporter, Telemetry, log};
use door::{Door, MOST_CONNECTIONS};
use http::HttpServer;
use signals::Signals;

/// How long those inside have to finish once the service is told to end.
const GRACE: Duration = Duration::from_secs(25);

/// How long a file that is being read is waited for at the end. One on a file
/// system that does not answer may take for ever.
const LAST_READ: Duration = Duration::from_secs(1);

/// Runs until it is told to end.
pub(crate) fn run(draft: &Draft, file: Option<ConfigFile>) -> Result<(), Failure> {
    let config = draft.check()?;
    let secrets = Secrets::load(&config).map_err(|error| Failure::new(Exit::Config, error))?;
    let _flush = log::init(&config.telemetry);
    let (telemetry, exporter) = Telemetry::new(&config.telemetry);
    let telemetry = Arc::new(telemetry);
    let store = AnyStore::new(&config, &secrets);
    let store = store.map_err(|error| Failure::new(Exit::Config, error))?;
    let engine = Arc::new(Engine::new(store, config.call_limits.on_error, telemetry));
    let source = Source::new(&config, draft, file, engine.store());
    let (mut keeper, reloader) = Keeper::new(Arc::clone(&engine), source);
    let rules = keeper.read_first()?;
    let admin = Admin::new(&config, reloader);
    let admin = admin.map_err(|error| Failure::new(Exit::Config, error))?;
    let closing = CancellationToken::new();
    let filters = Filters::new(&config);
    let [api, grpc, resp, clients, upstreams] = DescriptorShare::new(descriptors::raise_limit());
    let gateway = gateway(&config, &filters, &engine, upstreams)?;
    // In the order of the listeners.
    let descriptors = [api, grpc, resp, clients];
    let api = Api::new(Arc::clone(&engine), admin, filters, closing.clone());
    // Rules, signals and the like are looked after here; requests are not.
    let main = runtime()?;
    let cores = thread::available_parallelism().map_or(1, usize::from);
    // Whoever sees an open address may ask, and may send a signal.
    if let Some(rules) = rules {
        keeper.swap_rules(rules);
    }
    let signals = {
        let _entered = main.enter();
        Signals::listen()
    };
    let open = open(&config, cores)?;
    start::tell(&config, &open);
    if draft.is_demo() {
        start::tell_of_demo(&open);
    }

    let doors = Door::for_cores(cores, &closing, descriptors, |listener| match listener {
        Listener::Gateway => most_connections(&config),
        _ => MOST_CONNECTIONS,
    });
    let answering = Answering {
        engine: Arc::clone(&engine),
        api: Arc::clone(&api),
        gateway: gateway.clone(),
    };
    let cores = doors.into_iter().zip(sockets_by_core(open, cores));
    let cores = cores.map(|(door, sockets)| core(door, sockets, answering.clone()));
    let cores = cores.collect::<Result<Vec<_>, _>>()?;
    main.block_on(async {
        let traces = exporter.map(Exporter::start);
        tokio::spawn(keeper.run(signals.hang_up));
        tokio::spawn(reach_store::reach(Arc::clone(&engine)));
        tokio::spawn(async move { api.keep_fresh().await });
        if let Some(gateway) = gateway {
            tokio::spawn(async move { gateway.keep_fresh().await });
        }
        signals.end.wait().await;
        closing.cancel();
        tracing::info!("closing");
        // Until all have left, this runtime looks after what they use: a
        // connection to Redis lives where it was made.
        let left = tokio::task::spawn_blocking(|| {
            for core in cores {
                // One that panicked has said so.
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

/// Who answers on the listeners.
#[derive(Clone)]
struct Answering {
    engine: Arc<Engine>,
    api: Arc<Api>,
    gateway: Option<Arc<Gateway>>,
}

/// The gateway, if it is to be opened.
fn gateway(
    config: &Config,
    filters: &Filters,
    engine: &Arc<Engine>,
    descriptors: DescriptorShare,
) -> Result<Option<Arc<Gateway>>, Failure> {
    let gateway = config.listen.gateway.is_some();
    let gateway = gateway.then(|| Gateway::new(config, filters, Arc::clone(engine), descriptors));
    let gateway = gateway.transpose();
    gateway.map_err(|error| Failure::new(Exit::Config, error))
}

/// How many connections the gateway holds at most.
fn most_connections(config: &Config) -> usize {
    let most = config.gateway.limits.connections;
    most.map_or(usize::MAX, |most| {
        usize::try_from(most.get()).unwrap_or(usize::MAX)
    })
}

/// A listener's sockets, one for each core.
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
        let sockets = listen::listen(address, cores).map_err(|error| {
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

/// Starts a core: a thread with a runtime of its own and a socket for each
/// listener. It ends when the door closes and everybody has left.
fn core(
    door: Door,
    sockets: Vec<(Listener, TcpListener)>,
    answering: Answering,
) -> Result<JoinHandle<()>, Failure> {
    let runtime = runtime()?;
    let serve = move || {
        runtime.block_on(async {
            for (listener, socket) in sockets {
                let served = serve(listener, socket, &door, &answering);
                if let Err(error) = served {
                    tracing::error!(listener = listener.name(), %error, "cannot serve");
                }
            }
            door.closing.cancelled().await;
            if tokio::time::timeout(GRACE, door.emptied()).await.is_err() {
                tracing::warn!("the time to finish is over; connections are cut");
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
    door: &Door,
    answering: &Answering,
) -> std::io::Result<()> {
    let Answering {
        engine,
        api,
        gateway,
    } = answering;
    let socket = tokio::net::TcpListener::from_std(socket)?;
    match listener {
        Listener::Api => {
            let server = HttpServer::api(api, Arc::clone(engine));
            let closing = door.closing.clone();
            door.open(listener, socket, move |stream, _| {
                server.clone().serve(stream, closing.clone())
            });
        }
        Listener::Grpc => {
            let closing = door.closing.clone();
            let grpc = Grpc::new(Arc::clone(engine), closing.clone());
            let server = HttpServer::new(grpc.router(), Arc::clone(engine), listener);
            door.open(listener, socket, move |stream, _| {
                server.clone().serve(stream, closing.clone())
            });
        }
        Listener::Resp => {
            let server = RespServer::new(Arc::clone(engine), door.closing.clone());
            door.open(listener, socket, move |stream, peer| {
                server.clone().serve(stream, peer)
            });
        }
        Listener::Gateway => {
            // It is there if its address is.
            if let Some(gateway) = gateway.clone() {
                let (tidied, closing) = (Arc::clone(&gateway), door.closing.clone());
                tokio::spawn(async move { tidied.tidy_core().await });
                door.open(listener, socket, move |stream, peer| {
                    Arc::clone(&gateway).serve(stream, peer, closing.clone())
                });
            }
        }
    }
    Ok(())
}
