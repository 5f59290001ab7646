//! `fluxgate run`: the composition root. Opens the listeners of the config, serves them,
//! and shuts down gracefully.

mod connections;
mod gateway;
mod greeting;
mod settings;

use std::net::TcpListener;
use std::sync::{Arc, Mutex};
use std::thread::{self, JoinHandle};
use std::time::Duration;

use fluxgate_core::StoreError;
use fluxgate_gateway::{Gateway, RequestObserver};
use fluxgate_http::server::{DescriptorShare, Listener, raise_descriptor_limit};
use fluxgate_redis::{BackOff, RedisStore};
use tokio::runtime::{Builder, Runtime};
use tokio_util::sync::CancellationToken;

use crate::admin::AdminAccess;
use crate::api::{self, ApiState};
use crate::config::{Config, RawConfig, Secrets};
use crate::engine::{AnyStore, Engine, Filters, LiveFilters};
use crate::events::Events;
use crate::failure::{Exit, Failure};
use crate::grpc;
use crate::history::{History, HistorySources};
use crate::identities::Identities;
use crate::instances::Instances;
use crate::recording;
use crate::reload::{ConfigFile, RuleReloader, Settings, SettingsReloader, rule_source};
use crate::resp::RespServer;
use crate::serve::{Acceptor, HttpServer, ListenerTls, MAX_CONNECTIONS, ProxyProtocol, listen};
use crate::telemetry::{Telemetry, log};
use crate::watch::Signals;
use connections::{ApiConnections, GatewayConnections, GrpcConnections, ListeningPort};
use settings::{ActiveSettings, KEY_WAIT, LiveSettings};

/// How long shutdown waits for a file read, which a hanging file system could block forever.
const READ_GRACE: Duration = Duration::from_secs(1);

/// The field that names the access log.
const ACCESS_LOG: &str = "gateway.access_log.file";

/// How long shutdown waits for the last events to be logged.
const EVENTS_GRACE: Duration = Duration::from_secs(2);

/// The longest wait between attempts to reach the store at the start, before the first
/// request needs a connection. Requests also connect on their own.
const MAX_PING_WAIT: Duration = Duration::from_secs(1);

/// Serves until SIGTERM or Ctrl-C.
pub(crate) fn run(raw: &RawConfig, file: Option<ConfigFile>) -> Result<(), Failure> {
    serve_config(raw, file).map_err(|failure| failure.located_in(raw))
}

fn serve_config(raw: &RawConfig, file: Option<ConfigFile>) -> Result<(), Failure> {
    let config = raw.check()?;
    let secrets = Secrets::load(&config)?;
    let _flush = log::init(&config.telemetry);
    let (telemetry, exporter) = Telemetry::new(&config.telemetry, config.admin.record);
    let telemetry = Arc::new(telemetry);
    let store =
        AnyStore::new(&config, &secrets).map_err(|error| Failure::new(Exit::Config, error))?;
    let identities = Identities::new(
        &config,
        secrets.hash_secret.as_ref(),
        store.redis().cloned(),
    );
    let on_error = config.call_limits.on_error;
    let engine = Arc::new(Engine::new(
        store,
        on_error,
        telemetry,
        Arc::new(identities),
    ));
    let instances = Instances::default();
    let (id, hostname) = (instances.id(), instances.hostname());
    let events = Events::new(Arc::clone(&engine), &config, &secrets, id, hostname)?;
    let file = file.map(Arc::new);
    let source = rule_source(&config, raw, file.clone(), engine.store())?;
    let (mut reloader, reload_handle) = RuleReloader::new(Arc::clone(&events), source);
    // This runtime reloads rules and handles signals. The cores serve requests.
    let main = runtime()?;
    let rules = main.block_on(reloader.read_first())?;
    let admin = AdminAccess::new(&config, reload_handle, Arc::clone(&events))?;
    let closing = CancellationToken::new();
    let filters = Filters::new(&config).map_err(|error| Failure::new(Exit::Config, error))?;
    let [api, grpc, resp, clients, upstreams] = DescriptorShare::new(raise_descriptor_limit());
    let access_log = config.gateway.access_log.as_ref();
    let access_log = access_log.filter(|_| config.listen.gateway.is_some());
    let access_log = access_log.map(|log| {
        let identities = Arc::clone(engine.identities());
        let opened = engine.telemetry().open_access_log(log, identities);
        opened.map_err(|error| Failure::of_field(Exit::Config, ACCESS_LOG, error))
    });
    let (access_log, access_writer) = access_log.transpose()?.unzip();
    let access_log = access_log.map(|log| Arc::new(log) as Arc<dyn RequestObserver>);
    let requests = gateway::observers(access_log, engine.telemetry());
    let gateway = gateway::gateway(&config, &filters, &events, requests, upstreams)?;
    let mut tls = [const { None }; Listener::ALL.len()];
    for listener in Listener::ALL {
        tls[listener as usize] = ListenerTls::new(listener, &config, engine.telemetry())?;
    }
    // In the order of the listeners.
    let descriptors = [api, grpc, resp, clients];
    let history = config.history.map(|history| {
        let sources = HistorySources {
            engine: Arc::clone(&engine),
            rule_store: admin.reloader.source.rule_store().cloned(),
            hides_identities: admin.hides_identities,
            runtime: main.handle().clone(),
        };
        History::new(sources, history, instances.id())
    });
    let api_filters = LiveFilters::new(filters.trusting_their_peers());
    let grpc_filters = LiveFilters::new(filters.clone());
    let live = Arc::new(LiveSettings {
        gateway: gateway.clone(),
        api_filters: api_filters.clone(),
        grpc_filters: grpc_filters.clone(),
        tls: tls.clone(),
        events: Arc::clone(&events),
        headers_timeout: config.gateway.timeouts.headers,
        active: Mutex::new(ActiveSettings {
            raw: raw.clone(),
            filters: filters.clone(),
            filter_configs: config.filters.clone(),
        }),
    });
    let live: Arc<dyn Settings> = live;
    let settings = file.filter(|_| !reloader.follow(Arc::clone(&live)));
    let settings = settings.map(|file| {
        file.set_settings(&live);
        SettingsReloader::new(file, Arc::clone(&events))
    });
    let api = ApiState::new(
        Arc::clone(&engine),
        admin,
        api_filters,
        instances,
        history.clone(),
        Arc::clone(&events),
        gateway.clone(),
        closing.clone(),
    );
    let cores = thread::available_parallelism().map_or(1, usize::from);
    // Before the addresses are open, because requests may arrive at once.
    if let Some(rules) = rules {
        reloader.swap_rules(rules);
    }
    let signals = {
        let _entered = main.enter();
        Signals::listen()
    };
    main.block_on(filters.load_keys(KEY_WAIT));
    let open = open(&config, cores)?;
    greeting::log_addresses(&config, &open);
    if let Some(address) = greeting::address_of(Listener::Api, &open) {
        api.instances.set_address(address);
    }
    if raw.is_demo() {
        greeting::print_demo(&open);
    }

    let acceptors = Acceptor::for_cores(cores, &closing, descriptors, |listener| match listener {
        Listener::Gateway => max_connections(&config),
        _ => MAX_CONNECTIONS,
    });
    let watched = gateway.clone();
    let services = Services {
        engine: Arc::clone(&engine),
        api: Arc::clone(&api),
        filters: grpc_filters,
        gateway,
        proxy: ProxyProtocol::of_gateway(&config, engine.telemetry()),
        tls: tls.clone(),
    };
    let grace = config.shutdown.grace;
    let workers = acceptors
        .into_iter()
        .zip(sockets_by_core(open, cores))
        .map(|(acceptor, sockets)| core(acceptor, sockets, services.clone(), grace))
        .collect::<Result<Vec<_>, _>>()?;
    main.block_on(async {
        let exported = Arc::clone(&api);
        let exporter = exporter.map(|exporter| {
            let collect = move || {
                let telemetry = exported.engine.telemetry();
                telemetry.otlp_request(&exported.metric_sources())
            };
            exporter.start(collect)
        });
        tokio::spawn(reloader.run(signals.hangup));
        if let Some(settings) = settings {
            tokio::spawn(settings.run());
        }
        tokio::spawn(ping_store(Arc::clone(&engine)));
        let (identities, until) = (Arc::clone(engine.identities()), closing.clone());
        tokio::spawn(async move { identities.keep_secret(&until).await });
        let live = Arc::clone(&api);
        tokio::spawn(async move { live.live.run(&live.engine, &live.closing).await });
        let counting = Arc::clone(&api);
        tokio::spawn(async move {
            let ApiState {
                engine,
                instances,
                closing,
                ..
            } = &*counting;
            counting.usage.run(engine, instances, closing).await;
        });
        let sharing = Arc::clone(&api);
        tokio::spawn(async move {
            let ApiState {
                engine,
                instances,
                closing,
                ..
            } = &*sharing;
            recording::share_when_wanted(engine, instances, closing).await;
        });
        let counted = Arc::clone(&api);
        let alive = Arc::clone(&api);
        let alive = tokio::spawn(async move {
            let (instances, closing) = (&alive.instances, &alive.closing);
            instances.keep_alive(alive.sources(), closing).await;
        });
        tokio::spawn(async move { api.admin.keep_current().await });
        if let Some(history) = &history {
            let (collecting, writing) = (Arc::clone(history), Arc::clone(history));
            tokio::spawn(async move { collecting.collect_each_second().await });
            tokio::spawn(async move { writing.write_regularly().await });
            let following = Arc::clone(history);
            tokio::spawn(async move { following.follow_rules().await });
        }
        if let Some(writer) = &access_writer {
            tokio::spawn(writer.reopen_on_hangup());
        }
        if let Some(gateway) = watched {
            let until = closing.clone();
            tokio::spawn(async move { gateway.watch(&until).await });
        }
        for tls in tls.into_iter().flatten() {
            tokio::spawn(async move { tls.keep_current().await });
        }
        let events_closing = CancellationToken::new();
        let events = tokio::spawn(events.run(events_closing.clone()));
        signals.shutdown.wait().await;
        engine.stop();
        let delay = config.shutdown.delay;
        if !delay.is_zero() {
            tracing::info!(?delay, "not ready: connections are accepted for a while");
            // Load balancers notice it after a while, and send connections until then.
            tokio::time::sleep(delay).await;
        }
        closing.cancel();
        tracing::info!("shutting down");
        // Rules that come from Redis are followed until the cores have ended.
        let joined = tokio::task::spawn_blocking(|| {
            for worker in workers {
                // A panic is already logged.
                let _ = worker.join();
            }
        });
        let _ = joined.await;
        counted.usage.finish(&engine, &counted.instances).await;
        if let Some(history) = &history {
            history.write_last().await;
        }
        // After the cores: their last decisions may have reached a share.
        events_closing.cancel();
        let _ = tokio::time::timeout(EVENTS_GRACE, events).await;
        // This task removes the instance from the list.
        let _ = alive.await;
        if let Some(store) = engine.store().redis() {
            // Other instances may need the units.
            store.return_leases().await;
        }
        if let Some(exporter) = exporter {
            exporter.end().await;
        }
    });
    main.shutdown_timeout(READ_GRACE);
    Ok(())
}

fn runtime() -> Result<Runtime, Failure> {
    let runtime = Builder::new_current_thread().enable_all().build();
    runtime.map_err(|error| Failure::new(Exit::System, format!("cannot create a runtime: {error}")))
}

/// Pings the store until it answers, and records that.
async fn ping_store(engine: Arc<Engine>) {
    let Some(store) = engine.store().redis() else {
        return;
    };
    let mut logged = false;
    let log_first = |error: StoreError| {
        if !std::mem::replace(&mut logged, true) {
            let reason = error.reason.name();
            tracing::warn!(reason, %error, "the store does not answer yet");
        }
    };
    ping_until_answered(store, log_first).await;
    engine.mark_store_reached();
    if logged {
        tracing::info!("the store answers");
    }
}

/// Pings the store until it answers: each core has a connection of its own.
async fn connect_core(engine: Arc<Engine>) {
    if let Some(store) = engine.store().redis() {
        ping_until_answered(store, drop).await;
    }
}

async fn ping_until_answered(store: &RedisStore, mut failed: impl FnMut(StoreError)) {
    let mut back_off = BackOff::up_to(MAX_PING_WAIT);
    while let Err(error) = store.ping().await {
        failed(error);
        tokio::time::sleep(back_off.next_wait()).await;
    }
}

/// The services behind the listeners.
#[derive(Clone)]
struct Services {
    engine: Arc<Engine>,
    api: Arc<ApiState>,
    filters: LiveFilters,
    gateway: Option<Arc<Gateway<Engine>>>,
    /// How connections to the gateway name their clients, if they do.
    proxy: Option<ProxyProtocol>,
    /// TLS of the listeners that use it.
    tls: [Option<ListenerTls>; Listener::ALL.len()],
}

/// Returns the maximum number of connections to the gateway.
fn max_connections(config: &Config) -> usize {
    let max = config.gateway.limits.connections;
    max.map_or(usize::MAX, |max| {
        usize::try_from(max.get()).unwrap_or(usize::MAX)
    })
}

/// The sockets of each listener, one per core.
type OpenSockets = Vec<(Listener, Vec<TcpListener>)>;

/// Opens the listeners of the config.
fn open(config: &Config, cores: usize) -> Result<OpenSockets, Failure> {
    // The order in which they are reported.
    let listeners = [
        Listener::Gateway,
        Listener::Api,
        Listener::Grpc,
        Listener::Resp,
    ];
    let addresses = listeners
        .into_iter()
        .filter_map(|listener| Some((listener, config.listen.of(listener)?.address)));
    let opened = addresses.map(|(listener, address)| {
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

/// Distributes the sockets to the cores.
fn sockets_by_core(open: OpenSockets, cores: usize) -> Vec<Vec<(Listener, TcpListener)>> {
    let mut by_core: Vec<Vec<_>> = (0..cores).map(|_| Vec::new()).collect();
    for (listener, sockets) in open {
        for (core, socket) in by_core.iter_mut().zip(sockets) {
            core.push((listener, socket));
        }
    }
    by_core
}

/// Starts a core: a thread with a runtime of its own and a socket for each listener. It
/// ends when the service shuts down and all connections have ended, at most `grace` later.
fn core(
    acceptor: Acceptor,
    sockets: Vec<(Listener, TcpListener)>,
    services: Services,
    grace: Duration,
) -> Result<JoinHandle<()>, Failure> {
    let runtime = runtime()?;
    let serve = move || {
        runtime.block_on(async {
            tokio::spawn(connect_core(Arc::clone(&services.engine)));
            for (listener, socket) in sockets {
                let served = serve(listener, socket, &acceptor, &services);
                if let Err(error) = served {
                    let listener = listener.name();
                    tracing::error!(listener, %error, "cannot serve the listener");
                }
            }
            acceptor.closing.cancelled().await;
            if tokio::time::timeout(grace, acceptor.wait()).await.is_err() {
                tracing::warn!("requests in flight took too long; closing their connections");
            }
        });
    };
    let thread = thread::Builder::new()
        .name("fluxgate-worker".into())
        .spawn(serve);
    thread.map_err(|error| Failure::new(Exit::System, format!("cannot start a thread: {error}")))
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
        filters,
        gateway,
        proxy,
        tls,
    } = services;
    let socket = tokio::net::TcpListener::from_std(socket)?;
    let closing = acceptor.closing.clone();
    let http_server = |router| HttpServer::new(router, Arc::clone(engine.telemetry()), listener);
    let port = ListeningPort {
        listener,
        socket,
        tls: tls[listener as usize].clone(),
        proxy: proxy.clone().filter(|_| listener == Listener::Gateway),
    };
    match listener {
        Listener::Api => port.serve(
            acceptor,
            ApiConnections {
                server: http_server(api::router(api)),
                api: Arc::clone(api),
                closing,
            },
        ),
        Listener::Grpc => {
            let server = http_server(grpc::router(engine, filters, closing.clone()));
            port.serve(acceptor, GrpcConnections { server, closing });
        }
        Listener::Resp => port.serve(acceptor, RespServer::new(Arc::clone(engine), closing)),
        Listener::Gateway => {
            // There is a gateway whenever there is an address for it.
            if let Some(gateway) = gateway.clone() {
                let idle = gateway.clone();
                tokio::spawn(async move { idle.close_idle_upstreams().await });
                port.serve(acceptor, GatewayConnections { gateway, closing });
            }
        }
    }
    Ok(())
}
