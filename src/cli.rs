//! The command line: parse, call, print.

pub mod args;
pub mod client;
pub mod print;

mod host;
mod lab;
pub(crate) mod shown;
mod target;

use crate::daemon::log::log;
use crate::daemon::serve::{Ready, ServeOptions};
use crate::failure::Failure;
use anabranch_lab::shown::Shown;
use args::fabrics::Disconnect;
use args::{Cli, Global, Verb};
use clap::Parser;
use serde_json::{Value, json};
use std::io::{self, Write};
use std::process::ExitCode;
use std::sync::mpsc::sync_channel;
use std::thread;
use std::time::Duration;

/// How long a daemon waits until what it says when it is ready was taken.
const HEARD: Duration = Duration::from_millis(500);

/// Runs the program: exit status 0 done, 1 failed, 2 usage.
#[must_use]
pub fn main() -> ExitCode {
    let done = match Cli::try_parse() {
        Ok(cli) => run(cli),
        // On a wrong command line clap explains on standard error and ends with status 2.
        Err(told) if told.use_stderr() => told.exit(),
        // Help, or the version: asked for as any other output is.
        Err(told) => taken(told.print().and_then(|()| io::stdout().flush())).map(drop),
    };
    match done {
        Ok(()) => {
            crate::daemon::log::flush();
            ExitCode::SUCCESS
        }
        Err(failure) => {
            crate::daemon::log::last(&failure);
            ExitCode::from(failure.status())
        }
    }
}

fn run(cli: Cli) -> Result<(), Failure> {
    let global = &cli.global;
    match cli.verb {
        Verb::Demo(demo) => crate::demo::run(global, &demo),
        Verb::Target(target) => target::run(global, &target),
        Verb::Serve(serve) => {
            let options = ServeOptions {
                config: serve.config,
                hostnqn: serve.hostnqn,
                hostid: serve.hostid,
                workers: serve.workers,
                socket: global.socket.clone(),
                attr_fs: serve.attr_fs,
                metrics: serve.metrics,
            };
            let json = global.json();
            crate::daemon::serve::run(&options, |ready| say_ready(json, ready))
        }
        Verb::Connect(connect) => host::connect(global, &connect),
        Verb::ConnectAll(all) => host::connect_all(global, &all),
        Verb::Disconnect(disconnect) => host::disconnect(global, &disconnect),
        Verb::DisconnectAll => host::disconnect(global, &Disconnect::all()),
        Verb::Reset(one) => host::have(global, "reset", &one.controller),
        Verb::NsRescan(one) => host::have(global, "ns-rescan", &one.controller),
        Verb::Discover(discover) => host::discover(global, &discover),
        Verb::List(args) => host::list(global, args),
        Verb::ListSubsys(args) => host::list_subsys(global, &args),
        Verb::ShowTopology(topology) => host::show_topology(global, &topology),
        Verb::AnaLog(one) => host::ana_log(global, &one.controller),
        Verb::IdCtrl(one) => host::id_ctrl(global, &one.controller),
        Verb::IdNs(one) => host::id_ns(global, &one.device),
        Verb::Get(get) => host::get(global, &get),
        Verb::Set(set) => host::set(global, &set),
        Verb::Export(export) => host::export(global, export.verb),
        Verb::Explain(explain) => host::explain(global, &explain),
        Verb::Top(top) => crate::top::run(global, &top),
        Verb::Lab(lab) => lab::run(global, &lab),
        Verb::Bench(bench) => crate::bench::run(global, &bench),
    }
}

/// Prints what standard output is for, in the format that was asked for.
///
/// # Errors
/// Standard output cannot be written. Whoever has closed it has read enough.
pub fn print(
    global: &Global,
    text: impl FnOnce() -> String,
    json: impl FnOnce() -> Value,
) -> Result<(), Failure> {
    write(&output(global, text, json))
}

fn output(global: &Global, text: impl FnOnce() -> String, json: impl FnOnce() -> Value) -> String {
    if global.json() { shown::json(&format!("{:#}\n", json())) } else { text() }
}

/// A line beside the result, on standard error. Whether anybody reads it does not matter: the exit
/// status is that of what was asked for.
pub(crate) fn aside(line: &str) {
    let _ = writeln!(io::stderr(), "{}", Shown(line));
}

fn say_ready(json: bool, ready: &Ready) {
    let (asked, live) = ready.controllers;
    let text = if json {
        let object = json!({
            "hostnqn": ready.hostnqn,
            "hostid": ready.hostid,
            "socket": ready.socket,
            "workers": ready.workers,
            "iopolicy": ready.policy,
            "fence": "fast",
            "controllers": asked,
            "live": live,
            "exports": ready.exports,
            "attr_fs": ready.attr_fs,
            "metrics": ready.metrics,
        });
        format!("{object:#}\n")
    } else {
        let mut text = format!(
            "host {}\ncontrol socket {}\n{} data workers, policy {}, {live} of {asked} controllers \
             live\n",
            ready.hostnqn,
            ready.socket.display(),
            ready.workers,
            ready.policy
        );
        for uri in &ready.exports {
            text.push_str(&format!("export {uri}\n"));
        }
        if let Some(dir) = &ready.attr_fs {
            text.push_str(&format!("attributes {}\n", dir.display()));
        }
        if let Some(at) = &ready.metrics {
            text.push_str(&format!("metrics http://{at}/metrics\n"));
        }
        text
    };
    announce(text);
}

/// Says that a daemon is ready. Whoever started it may not want to hear that, or not read it now:
/// it serves all the same, and ends when it is asked to.
fn announce(text: String) {
    let (told, heard) = sync_channel(1);
    let say = move || {
        if let Err(failure) = write(&text) {
            log(failure);
        }
        let _ = told.try_send(());
    };
    match thread::Builder::new().name("ready".to_owned()).spawn(say) {
        Ok(_) => drop(heard.recv_timeout(HEARD)),
        Err(why) => log(format_args!("nobody is told here that it is ready: no thread: {why}")),
    }
}

fn write(output: &str) -> Result<(), Failure> {
    write_or_closed(output).map(drop)
}

/// Whether somebody still reads, as far as can be seen.
///
/// # Errors
/// Standard output cannot be written for another reason.
pub(crate) fn write_or_closed(output: &str) -> Result<bool, Failure> {
    let mut stdout = io::stdout().lock();
    taken(stdout.write_all(output.as_bytes()).and_then(|()| stdout.flush()))
}

/// Whether somebody still reads standard output, from what came of writing there.
fn taken(written: io::Result<()>) -> Result<bool, Failure> {
    match written {
        Ok(()) => Ok(true),
        Err(error) if error.kind() == io::ErrorKind::BrokenPipe => Ok(false),
        Err(error) => Err(Failure::failed(format!("cannot write to standard output: {error}"))),
    }
}
