//! Which objects there are, what belongs to what, and everything that they show: what a tree of
//! files is made of.

use super::{Attribute, Figures, MODULE, ObjectKind, Target, all};
use crate::control::Control;
use crate::control::subsystem::Subsystem;
use crate::verb::{Object, ObjectAttributes, ShownAttribute, VerbError, no_device_yet};
use alloc::format;
use alloc::string::{String, ToString};
use alloc::vec::Vec;

/// So many objects are named to whoever asked for one that is not there.
const NAMED: usize = 8;

impl Control {
    /// Every object that has attributes.
    pub(in crate::control) fn objects(&self) -> Vec<Object> {
        self.targets().iter().map(|target| self.object(target)).collect()
    }

    /// An object and which attributes it shows: no figures are needed for that.
    pub(in crate::control) fn describe(
        &self,
        object: &str,
    ) -> Result<(Object, Vec<&'static Attribute>), VerbError> {
        let target = self.target(object)?;
        let (kind, view) = (target.kind(), self.view(&target, &[]));
        let shows = all().filter(|entry| entry.object == kind && (entry.read)(&view).is_some());
        Ok((self.object(&target), shows.collect()))
    }

    /// What an object shows, or every object.
    pub(in crate::control) fn list_attributes(
        &self,
        object: Option<&str>,
        figures: &Figures<'_>,
    ) -> Result<Vec<ObjectAttributes>, VerbError> {
        let targets = match object {
            Some(name) => alloc::vec![self.target(name)?],
            None => self.targets(),
        };
        Ok(targets.iter().map(|target| self.shown(target, figures)).collect())
    }

    /// What whoever has named something that is not there is told: what is.
    pub(in crate::control) fn no_such(&self, kind: ObjectKind, name: &str) -> VerbError {
        if let Some(paths) = self.paths_of_unborn(name).filter(|_| kind == ObjectKind::Head) {
            return VerbError::Invalid(no_device_yet(name, paths));
        }
        let targets = self.targets();
        let of_kind = targets.iter().filter(|target| target.kind() == kind);
        let names: Vec<String> = of_kind.map(|target| self.object(target).name).collect();
        let known = match &names[..] {
            [] => String::from(", nor any other"),
            [only] => format!(": there is {only}"),
            few if few.len() <= NAMED => format!(": there are {}", few.join(", ")),
            many => {
                let first = many[..NAMED].join(", ");
                format!(": there are {first} and {} more", many.len() - NAMED)
            }
        };
        VerbError::Invalid(format!("there is no {} {name}{known}", kind.word()))
    }

    /// How many paths a namespace has of which none has been usable yet.
    fn paths_of_unborn(&self, name: &str) -> Option<usize> {
        let of = |subsystem: &Subsystem| {
            let mut heads = subsystem.heads.iter();
            let head = heads.find(|head| !head.visible && subsystem.head_name(head) == name)?;
            Some(head.paths.len())
        };
        self.subsystems.iter().find_map(of)
    }

    fn targets(&self) -> Vec<Target> {
        let mut targets = alloc::vec![Target::Module];
        let mut subsystems: Vec<_> = self.subsystems.iter().enumerate().collect();
        subsystems.sort_unstable_by_key(|(_, subsystem)| subsystem.instance);
        for (at, subsystem) in subsystems {
            targets.push(Target::Subsystem(at));
            for (index, head) in subsystem.heads.iter().enumerate().filter(|(_, h)| h.visible) {
                targets.push(Target::Head(at, index));
                let paths = head.paths.iter();
                targets.extend(paths.map(|path| Target::Path(at, index, path.controller)));
            }
        }
        let controllers = self.controllers.values().filter(|c| !c.is_discovery());
        let mut controllers: Vec<_> = controllers.map(|c| (c.instance, c.id)).collect();
        controllers.sort_unstable();
        targets.extend(controllers.into_iter().map(|(_, id)| Target::Controller(id)));
        targets
    }

    fn shown(&self, target: &Target, figures: &Figures<'_>) -> ObjectAttributes {
        let kind = target.kind();
        let view = self.view(target, figures);
        let attributes = all()
            .filter(|entry| entry.object == kind && entry.is_readable())
            .filter_map(|entry| {
                Some(ShownAttribute {
                    name: entry.name,
                    dir: entry.dir,
                    mode: entry.mode(),
                    text: (entry.read)(&view)?,
                })
            })
            .collect();
        ObjectAttributes { object: self.object(target), attributes }
    }

    fn object(&self, target: &Target) -> Object {
        let view = self.view(target, &[]);
        // A controller that has never said who it is stands with the others of its NQN.
        let by_nqn = || {
            let nqn = &view.controller?.request.subsystem_nqn;
            self.subsystems.iter().find(|subsystem| subsystem.identity.nqn == *nqn)
        };
        let subsystem = view.subsystem.or_else(by_nqn).map(Subsystem::name);
        let head = view.subsystem.zip(view.head).map(|(of, head)| of.head_name(head));
        let controller = match view.path {
            Some(path) => Some(format!("nvme{}", path.controller_instance)),
            None => view.controller.map(super::Controller::name),
        };
        let kind = target.kind();
        let name = match kind {
            ObjectKind::Module => Some(MODULE.to_string()),
            ObjectKind::Subsystem => subsystem.clone(),
            ObjectKind::Controller => controller.clone(),
            ObjectKind::Head => head.clone(),
            ObjectKind::Path => view
                .path
                .zip(view.head)
                .zip(view.subsystem)
                .map(|((path, head), of)| of.path_name(head, path.controller_instance)),
        };
        Object { name: name.unwrap_or_default(), kind, subsystem, controller, head }
    }
}
