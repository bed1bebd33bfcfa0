//! Names of objects as numbers: finding one among many costs comparisons, not texts.

use super::{MODULE, ObjectKind};

/// An object's name, taken apart. The first number of a device is its subsystem's.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Name {
    /// `nvme_core`.
    Module,
    /// `nvme-subsysN`.
    Subsystem(u32),
    /// `nvmeN`.
    Controller(u32),
    /// `nvmeXnY`.
    Head(u32, u32),
    /// `nvmeXcYnZ`.
    Path(u32, u32, u32),
}

impl Name {
    pub(super) fn kind(self) -> ObjectKind {
        match self {
            Name::Module => ObjectKind::Module,
            Name::Subsystem(_) => ObjectKind::Subsystem,
            Name::Controller(_) => ObjectKind::Controller,
            Name::Head(..) => ObjectKind::Head,
            Name::Path(..) => ObjectKind::Path,
        }
    }

    /// `None` when no object is called so.
    pub(super) fn parse(text: &str) -> Option<Name> {
        if text == MODULE {
            return Some(Name::Module);
        }
        if let Some(number) = text.strip_prefix("nvme-subsys") {
            return Some(Name::Subsystem(whole(number)?));
        }
        let rest = text.strip_prefix("nvme")?;
        let Some((first, namespace)) = rest.split_once('n') else {
            return Some(Name::Controller(whole(rest)?));
        };
        let namespace = whole(namespace)?;
        Some(match first.split_once('c') {
            None => Name::Head(whole(first)?, namespace),
            Some((first, controller)) => Name::Path(whole(first)?, whole(controller)?, namespace),
        })
    }
}

/// A number in the one way in which names have it.
fn whole(text: &str) -> Option<u32> {
    let plain = text.bytes().all(|byte| byte.is_ascii_digit());
    let leading = text.len() > 1 && text.starts_with('0');
    text.parse().ok().filter(|_| plain && !leading)
}

#[cfg(test)]
mod tests {
    use super::Name;

    #[test]
    fn names_are_taken_apart_and_nothing_else_is_one() {
        for (text, name) in [
            ("nvme_core", Name::Module),
            ("nvme-subsys0", Name::Subsystem(0)),
            ("nvme12", Name::Controller(12)),
            ("nvme1n2", Name::Head(1, 2)),
            ("nvme1c20n3", Name::Path(1, 20, 3)),
        ] {
            assert_eq!(Name::parse(text), Some(name), "{text}");
        }
        for text in [
            "",
            "nvme",
            "nvme-subsys",
            "nvme01",
            "nvme+1",
            "nvme1n",
            "nvmen1",
            "nvme1c2",
            "nvme1cn1",
            "nvme1c2n03",
            "nvme1n1p1",
            "nvme1n1n1",
            "nvme1c1c1n1",
            "nvme1 ",
            "Nvme1",
            "nvme4294967296",
            "nvme-1",
            "ng0n1",
        ] {
            assert_eq!(Name::parse(text), None, "{text}");
        }
    }
}
