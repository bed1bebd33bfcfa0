//! `demo --keep`: goes on serving, and says how to attach.

use super::progress::beside;
use super::{HEAD, Stage, failed};
use crate::cli::args::Global;
use crate::daemon::control::{ControlServer, Limits};
use crate::daemon::export::listen_endpoint;
use crate::daemon::host::nbd_uri;
use crate::daemon::socket::{BoundSocket, Role, default_path};
use crate::failure::Failure;
use anabranch_export::nbd::{Access, Export};
use std::path::PathBuf;
use std::sync::Arc;

/// The sockets that `--keep` needs, taken before the demo starts.
pub(super) struct Keeper {
    host: BoundSocket,
    target: BoundSocket,
    nbd: PathBuf,
}

impl Keeper {
    pub(super) fn prepare(global: &Global) -> Result<Keeper, Failure> {
        let bind = |path: PathBuf| BoundSocket::bind(&path).map_err(Failure::from);
        let host = global.socket.clone().unwrap_or_else(|| default_path(Role::Host));
        let beside = |name: &str| host.with_file_name(name);
        let (target, nbd) = (beside("target.sock"), beside("demo-nbd.sock"));
        Ok(Keeper { target: bind(target)?, nbd, host: bind(host)? })
    }

    /// Serves until a signal comes, then ends in order.
    pub(super) fn serve(self, global: &Global, stage: Stage) -> Result<(), Failure> {
        let Stage { target, host, termination } = stage;
        let at = listen_endpoint(&self.nbd.to_string_lossy()).map_err(Failure::Failed)?;
        let export = Export {
            name: HEAD.to_owned(),
            description: "the demo's device".to_owned(),
            device: HEAD.to_owned(),
            ..Export::default()
        };
        let at = host.export(export, &at, Access::default()).map_err(failed)?;
        let (host, target) = (Arc::new(host), Arc::new(target));
        let limits = Limits::default();
        let controls = [
            ControlServer::serve(self.host, Arc::clone(&host) as _, limits)?,
            ControlServer::serve(self.target, Arc::clone(&target) as _, limits)?,
        ];
        let own = std::env::args().next();
        let text = instructions(
            own.as_deref().unwrap_or("anabranch"),
            &nbd_uri(&at, HEAD),
            &controls[0].path().display().to_string(),
            &controls[1].path().display().to_string(),
        );
        beside(global.json(), &text);
        host.wait(&termination)?;
        drop(controls);
        match host.shut_down().map_err(failed)? {
            0 => Ok(()),
            unanswered => {
                Err(Failure::failed(format!("{unanswered} I/Os were not answered at the end")))
            }
        }
    }
}

/// `own` is what this program was started as.
fn instructions(own: &str, uri: &str, host: &str, target: &str) -> String {
    format!(
        "\n{HEAD} is served until Ctrl-C. To attach, in another terminal:\n\
         \x20 nbdinfo '{uri}'\n\
         \x20 nbdcopy '{uri}' /tmp/copy.img\n\
         \x20 qemu-img info '{uri}'\n\
         \x20 fio --name=try --ioengine=nbd --uri='{uri}' --rw=randrw --bs=4k --iodepth=8 \
         --size=64m --verify=crc32c\n\
         To look, and to break and mend a path:\n\
         \x20 {own} show-topology --socket {host}\n\
         \x20 {own} target ctl cut 1 --socket {target}\n\
         \x20 {own} target ctl restore 1 --socket {target}\n"
    )
}
