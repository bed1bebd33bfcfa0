//! What shards noted about their choices, put together for a caller.

use super::Control;
use super::publish::Condition;
use super::subsystem::{Head, Subsystem};
use crate::explain::{
    Contender, DECISIONS_MAX, Decision, ExplainReport, PathChoices, PathExplain, Sample,
};
use crate::mail::ShardStats;
use crate::topology::{ControllerId, HeadId};
use crate::verb::VerbError;
use alloc::collections::BTreeMap;
use alloc::format;
use alloc::string::String;
use alloc::sync::Arc;
use alloc::vec::Vec;
use anabranch_policy::{FinishTimeReport, Policy};
use anabranch_proto::machine::WorkerId;

type Names = BTreeMap<ControllerId, Arc<str>>;

impl Control {
    /// Why the commands of a head went where they went, from what the shards reported.
    pub(super) fn explain(
        &self,
        id: HeadId,
        got: &[(WorkerId, ShardStats)],
    ) -> Result<ExplainReport, VerbError> {
        let mut all = self
            .subsystems
            .iter()
            .flat_map(|subsystem| subsystem.heads.iter().map(move |head| (subsystem, head)));
        let (subsystem, head) = all
            .find(|(_, head)| head.id == id)
            .ok_or_else(|| VerbError::Failed(String::from("the device was removed")))?;
        let mut names = Names::new();
        let paths = head.paths.iter().map(|path| {
            let name = self.path_name_of(subsystem, head, path.controller);
            names.insert(path.controller, name.clone());
            let PathChoices { choices, seen } = sum(got, path.controller);
            let usable = Condition::of(head, path, &self.controllers).usable();
            let finish_time = of_path(got, id, path.controller);
            let in_force = subsystem.parameters.policy == Policy::FinishTime;
            let finish_time = finish_time.filter(|_| in_force);
            PathExplain { id: path.id, name, usable, choices, seen, finish_time }
        });
        let paths = paths.collect();
        let explained = got.iter().filter_map(|(_, stats)| stats.explain.as_ref());
        Ok(ExplainReport {
            device: subsystem.head_name(head),
            at: self.env.now,
            policy: subsystem.parameters.policy,
            kernel_exact: subsystem.parameters.kernel_exact,
            explain_sample: head.settings.explain_sample,
            paths,
            decisions: self.decisions((subsystem, head), got, names),
            noted: explained.map(|explain| explain.noted).sum(),
        })
    }

    /// The newest of what the workers noted, in order of time.
    fn decisions(
        &self,
        (subsystem, head): (&Subsystem, &Head),
        got: &[(WorkerId, ShardStats)],
        mut names: Names,
    ) -> Vec<Decision> {
        let mut noted: Vec<(WorkerId, &Sample)> = got
            .iter()
            .filter_map(|(worker, stats)| Some((*worker, stats.explain.as_ref()?)))
            .flat_map(|(worker, explain)| explain.samples.iter().map(move |s| (worker, s)))
            .collect();
        noted.sort_by_key(|(_, sample)| sample.at);
        let newest = &noted[noted.len().saturating_sub(DECISIONS_MAX)..];
        let mut name = |id: ControllerId| {
            let name = names.entry(id).or_insert_with(|| self.path_name_of(subsystem, head, id));
            Arc::clone(name)
        };
        let decisions = newest.iter().map(|&(worker, sample)| Decision {
            at: sample.at,
            worker,
            op: sample.op,
            bytes: sample.bytes,
            policy: sample.policy,
            reason: sample.reason,
            path: name(sample.chosen),
            paths: sample.paths,
            candidates: sample
                .candidates()
                .map(|(id, inputs)| Contender { path: name(id), inputs })
                .collect(),
        });
        decisions.collect()
    }

    fn path_name_of(&self, subsystem: &Subsystem, head: &Head, id: ControllerId) -> Arc<str> {
        let name = match self.controllers.get(&id) {
            Some(controller) => subsystem.path_name(head, controller.instance),
            None => format!("#{}", id.0),
        };
        Arc::from(name)
    }
}

/// What `finish-time` knows: all workers share it, so what one has said is all.
fn of_path(
    got: &[(WorkerId, ShardStats)],
    head: HeadId,
    path: ControllerId,
) -> Option<FinishTimeReport> {
    let paths = got.iter().flat_map(|(_, stats)| &stats.paths);
    let mut known = paths.filter(|known| known.head == head && known.controller == path);
    known.find_map(|known| known.finish_time.as_deref().copied())
}

fn sum(got: &[(WorkerId, ShardStats)], path: ControllerId) -> PathChoices {
    let mut sum = PathChoices::default();
    let explained = got.iter().filter_map(|(_, stats)| stats.explain.as_ref());
    for (_, choices) in explained.flat_map(|e| &e.paths).filter(|(id, _)| *id == path) {
        sum.add(choices);
    }
    sum
}
