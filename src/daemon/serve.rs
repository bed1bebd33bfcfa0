//! `serve`: the host in the foreground.

use super::attr_fs::AttrFs;
use super::config::{ServeConfig, Source};
use super::control::{ControlServer, Limits};
use super::ending;
use super::export::listen_endpoint;
use super::files;
use super::front::FrontEvent;
use super::host::{Host, HostSetup, nbd_uri, usual_workers};
use super::identity::{Identity, Places};
use super::log::{self, log, log_of};
use super::metrics::{self, BoundMetrics, MetricsServer};
use super::names::{Found, failures, follow, look_up_all, one_each};
use super::path::NamedPath;
use super::rpc::RpcError;
use super::service;
use super::socket::{BoundSocket, Role, default_path};
use crate::failure::Failure;
use anabranch_host::Event;
use anabranch_host::verb::Selection;
use std::net::SocketAddr;
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::time::{Duration, Instant};
use toml::Spanned;

/// How long `serve` waits for name services before it connects to what is known by then.
const FIRST_LOOK: Duration = Duration::from_secs(2);

/// How long `serve` waits for the first attempts before it says that it is ready.
const FIRST_ATTEMPTS: Duration = Duration::from_secs(2);

/// What `serve` says about fencing until there is any.
pub const FENCE_NOTICE: &str = "fence=fast: after a path failure, writes whose outcome is unknown \
     are sent again at once, as Linux does; there is no fencing yet";

/// Options of `serve`; they override the configuration.
#[derive(Clone, Debug, Default)]
pub struct ServeOptions {
    /// Configuration file.
    pub config: Option<PathBuf>,
    /// Host NQN.
    pub hostnqn: Option<String>,
    /// Host identifier.
    pub hostid: Option<String>,
    /// Data workers.
    pub workers: Option<u16>,
    /// Control socket.
    pub socket: Option<PathBuf>,
    /// Where the attributes stand as files.
    pub attr_fs: Option<PathBuf>,
    /// Where metrics are served.
    pub metrics: Option<SocketAddr>,
}

/// What `serve` tells when it is ready.
#[derive(Clone, Debug)]
pub struct Ready {
    /// Host NQN.
    pub hostnqn: String,
    /// Host identifier.
    pub hostid: String,
    /// Control socket.
    pub socket: PathBuf,
    /// Data workers.
    pub workers: u16,
    /// I/O policy of new subsystems.
    pub policy: String,
    /// Controllers that were asked for, and how many of them are live.
    pub controllers: (usize, usize),
    /// Exports as URIs.
    pub exports: Vec<String>,
    /// Where the attributes stand as files.
    pub attr_fs: Option<PathBuf>,
    /// Where metrics are served.
    pub metrics: Option<SocketAddr>,
}

/// Runs until a signal comes. `ready` is called once everything is set up.
///
/// # Errors
/// A configuration that makes no sense, something the system refuses, or I/Os that were not
/// answered at the end.
pub fn run(options: &ServeOptions, ready: impl FnOnce(&Ready)) -> Result<(), Failure> {
    anabranch_rt::heap::give_back_what_is_free();
    // While a pipe that stands for the file has nothing to say, signals still end the process.
    let (config, source) = match &options.config {
        Some(path) => ServeConfig::load(path)?,
        None => (ServeConfig::default(), Source::new(Path::new("defaults"), String::new())),
    };
    config.check_machine(&source)?;
    let termination = ending::prepare()?;
    let paths = look_up(&config, &source)?;
    files::raise();
    let path = options.socket.clone().unwrap_or_else(|| default_path(Role::Host));
    let socket = BoundSocket::bind(&path)?;
    let metrics = metrics_at(options, &config).map(BoundMetrics::bind).transpose()?;
    let setup = setup(options, &config, &source)?;
    let (failed, failures) = failures();
    let told = move |event| {
        failed.see(&event);
        if !matches!(&event, Event::Host(event) if !event.is_news()) {
            log_of(kind(&event), event);
        }
    };
    let host = Arc::new(Host::start(&setup, told)?);
    follow(&host, failures).map_err(Failure::Failed)?;
    let dir = options.attr_fs.as_ref().or(config.attr_fs.as_ref());
    let attr_fs = dir.map(|dir| AttrFs::mount(dir, &host)).transpose()?;
    log(FENCE_NOTICE);
    super::memory::wording(setup.workers).into_iter().for_each(log);
    let asked = paths.len();
    connect_all(&host, paths, &source)?;
    let exports = export_all(&host, &config, &source)?;
    let server = ControlServer::serve(socket, Arc::clone(&host) as _, Limits::default())?;
    let limits = metrics::Limits::default();
    let metrics = metrics.map(|at| at.serve(Arc::downgrade(&host), limits)).transpose()?;
    let live = await_first_attempts(&host, asked - host.names().count());
    log::flush();
    ready(&Ready {
        hostnqn: host.identity().nqn.to_string(),
        hostid: host.identity().id.to_string(),
        socket: server.path().to_owned(),
        workers: setup.workers,
        policy: setup.policy.to_string(),
        controllers: (asked, live),
        exports,
        attr_fs: attr_fs.as_ref().map(|tree| tree.dir().to_owned()),
        metrics: metrics.as_ref().map(MetricsServer::at),
    });
    service::ready();
    host.wait(&termination)?;
    service::stopping();
    log(format!(
        "ending: no new I/O is taken, what is in flight has {} s at most",
        setup.shutdown_timeout.mul_f64(2.5).as_secs_f64()
    ));
    host.names().forget(&Selection::All);
    drop(attr_fs);
    let ended = finish(&host, setup.shutdown_timeout);
    // Until here a write that nobody has answered may be sent again. Whoever began in our place
    // before could have newer ones undone.
    drop(metrics);
    drop(server);
    ended
}

/// Where metrics are to be served; that the text is an address was checked with the file.
fn metrics_at(options: &ServeOptions, config: &ServeConfig) -> Option<SocketAddr> {
    let of_file = config.metrics.as_deref().and_then(|text| metrics::address(text).ok());
    options.metrics.or(of_file)
}

fn setup(
    options: &ServeOptions,
    config: &ServeConfig,
    source: &Source,
) -> Result<HostSetup, Failure> {
    let identity = Identity::find(
        options.hostnqn.as_deref().or(config.hostnqn.as_deref()),
        options.hostid.as_deref().or(config.hostid.as_deref()),
        &Places::default(),
    )?;
    let mut setup = HostSetup::new(identity);
    // That it fits was checked with the file.
    let workers = config.workers.and_then(|workers| u16::try_from(workers).ok());
    let cpus = config.cpus.as_deref();
    setup.workers = options.workers.or(workers).unwrap_or_else(|| usual_workers(cpus));
    setup.cpus.clone_from(&config.cpus);
    setup.pin = config.pin;
    setup.shared_queue = config.shared_queue;
    setup.kernel_exact = config.kernel_exact;
    setup.subsystems = config.settings(source)?;
    if let Some(policy) = config.iopolicy {
        setup.policy = policy;
    }
    let paths = config.subsystems.iter().flat_map(|subsystem| &subsystem.paths);
    let of_paths: usize =
        paths.map(|path| files::of_path(path.get_ref(), setup.workers, setup.shared_queue)).sum();
    setup.planned_files = of_paths + config.exports.len() * files::OF_EXPORT;
    if let Some(spin) = config.spin {
        setup.spin = spin.0;
    }
    if let Some(limit) = config.shutdown_timeout {
        setup.shutdown_timeout = limit.0;
    }
    Ok(setup)
}

/// A path of the configuration, and where its name leads now.
struct LookedUp {
    /// Where it stands in the file.
    at: usize,
    named: NamedPath,
    found: Found,
}

/// Looks every path's name up, which may take seconds: while there is nothing of ours yet that
/// would have to be taken back.
///
/// # Errors
/// Two of them have one address.
fn look_up(config: &ServeConfig, source: &Source) -> Result<Vec<LookedUp>, Failure> {
    let (mut places, mut named) = (Vec::new(), Vec::new());
    for subsystem in &config.subsystems {
        for path in &subsystem.paths {
            let (at, spec, nqn) = (path.span().start, path.get_ref(), subsystem.nqn.get_ref());
            places.push(at);
            named.push(spec.named(nqn, true).map_err(|why| source.wrong_in(at, &why))?);
        }
    }
    let all = look_up_all(&named, NamedPath::addresses, FIRST_LOOK).map_err(Failure::Failed)?;
    let all = one_each(&named, all).map_err(|second| {
        let name = named[second].traddr.escape_debug();
        source.wrong_in(places[second], &format!("traddr: '{name}': this path stands here twice"))
    })?;
    let paths = places.into_iter().zip(named).zip(all);
    Ok(paths.map(|((at, named), found)| LookedUp { at, named, found }).collect())
}

/// Asks for every path of the configuration; whatever does not answer is tried again by the host,
/// and what has no address yet is looked for.
fn connect_all(host: &Arc<Host>, paths: Vec<LookedUp>, source: &Source) -> Result<(), Failure> {
    for LookedUp { at, named, found } in paths {
        let pause = named.options.reconnect_delay.as_secs_f64();
        let (why, under_way) = match found {
            Found::At(to) => match host.connect_path(&named, to[0]) {
                Ok(_) => continue,
                // A name that was looked up meanwhile has led there.
                Err(error) if error.code == RpcError::CONNECTED => {
                    (format!("{}; it is tried again every {pause} s", error.message), None)
                }
                Err(error) => return Err(source.wrong(Some(at), &error.message)),
            },
            Found::Nowhere(why) => (format!("{why}; it is tried again every {pause} s"), None),
            Found::NotYet(look_up) => {
                let name = &named.traddr;
                let why =
                    format!("traddr '{name}': no name service has answered, it is waited for");
                (why, Some(look_up))
            }
        };
        log(why);
        host.names().await_address(named, under_way, host).map_err(Failure::Failed)?;
    }
    Ok(())
}

fn export_all(host: &Host, config: &ServeConfig, source: &Source) -> Result<Vec<String>, Failure> {
    let sockets = config.access(source)?;
    let mut uris = Vec::new();
    for export in config.exports.iter().map(Spanned::get_ref) {
        let failed = |why: &str| Failure::failed(format!("export of {}: {why}", export.device));
        let at = listen_endpoint(&export.nbd).map_err(|why| failed(&why))?;
        let access = sockets.get(&at).copied().unwrap_or_default();
        let offered = export.offered();
        let name = offered.name.clone();
        let at = host.export(offered, &at, access).map_err(|error| failed(&error.message))?;
        uris.push(nbd_uri(&at, &name));
    }
    Ok(uris)
}

/// Waits until each controller is live or has failed once, for a moment. How many are live.
fn await_first_attempts(host: &Host, asked: usize) -> usize {
    let until = Instant::now() + FIRST_ATTEMPTS;
    loop {
        let Ok(view) = host.view() else { return 0 };
        let controllers = || view.subsystems.iter().flat_map(|subsystem| &subsystem.controllers);
        let live = controllers().filter(|controller| controller.state == "live").count();
        let failed = controllers()
            .filter(|controller| controller.state != "live" && controller.last_error.is_some())
            .count();
        if live + failed >= asked || Instant::now() >= until {
            return live;
        }
        std::thread::sleep(Duration::from_millis(10));
    }
}

/// What an event is one of, when peers can make it happen as often as they like.
fn kind(event: &Event<FrontEvent>) -> Option<String> {
    match event {
        Event::Host(event) => event.kind(),
        Event::User(FrontEvent::Nbd(event)) => event.kind(),
        Event::User(FrontEvent::Load(_)) => None,
    }
}

/// Ends in order.
fn finish(host: &Host, limit: Duration) -> Result<(), Failure> {
    match host.shut_down() {
        Ok(0) => Ok(()),
        Ok(unanswered) => {
            let were = if unanswered == 1 { "I/O was" } else { "I/Os were" };
            let limit = limit.as_secs_f64();
            Err(Failure::failed(format!("{unanswered} {were} not answered within {limit} s")))
        }
        Err(error) => Err(Failure::failed(format!("the host did not end: {}", error.message))),
    }
}
