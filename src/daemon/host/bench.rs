//! Loads on devices of the running host.

use super::super::load::{JobSpec, has_room, report_json};
use super::super::log::log;
use super::super::rpc::{Params, RpcError};
use super::super::view::HeadView;
use super::{Host, LOOK};
use anabranch_lab::load::{Device, LoadVerb};
use serde::Deserialize;
use serde_json::{Value, json};

#[derive(Deserialize)]
#[serde(deny_unknown_fields)]
struct LoadParams {
    /// The run of the host that began it, as `bench_start` has told.
    instance: Option<String>,
}

impl Host {
    pub(super) fn call_bench(&self, method: &str, params: Params<'_>) -> Result<Value, RpcError> {
        match method {
            "bench_start" => {
                let spec: JobSpec = params.read()?;
                spec.check().map_err(RpcError::invalid)?;
                let (head, data_workers) = self.await_head(&spec.device)?;
                has_room(spec.iodepth, spec.numjobs, data_workers).map_err(RpcError::invalid)?;
                let device = Device { block_bytes: head.block_bytes, blocks: head.blocks };
                let (limit, writes) = (spec.limit(), spec.writes());
                if writes && !spec.allow_mounted_write {
                    self.check_unused(&head)?;
                }
                let job = Box::new(spec.job());
                job.check(device, data_workers)
                    .map_err(|why| RpcError::invalid(why.to_string()))?;
                let verb = match limit {
                    Some(limit) => LoadVerb::StartFor(job, limit),
                    None => LoadVerb::Start(job),
                };
                self.load(verb, LOOK)?;
                if writes {
                    log(format_args!("{}: a bench writes to it", head.name));
                }
                Ok(json!({ "instance": self.instance }))
            }
            "bench_report" | "bench_stop" => {
                let LoadParams { instance } = params.read()?;
                if instance.is_some_and(|instance| instance != self.instance) {
                    let text = "the host was restarted, and the load has gone with it";
                    return Err(RpcError::failed(text));
                }
                let report = self.load_report(method == "bench_stop")?;
                Ok(report_json(&report))
            }
            _ => Err(RpcError::no_method(method)),
        }
    }

    /// What a load writes is lost to those that use the device. (fio asks the same of mounted
    /// devices.)
    fn check_unused(&self, head: &HeadView) -> Result<(), RpcError> {
        let (exports, _) = self.exports(LOOK)?;
        let of_it = exports.iter().filter(|(it, _)| it.leads_to(&head.name, &head.wwid));
        let used = of_it.map(|(it, _)| (&it.name, self.clients.of(&it.name).len()));
        match used.into_iter().find(|(_, clients)| *clients > 0) {
            Some((export, clients)) => Err(RpcError::failed(format!(
                "{} is in use, its export \"{export}\" has NBD clients ({clients}): this load \
                 would overwrite what they have there (--allow-mounted-write does so all the same)",
                head.name
            ))),
            None => Ok(()),
        }
    }
}
