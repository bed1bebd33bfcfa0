//! Controllers with as many namespaces as a host takes, and more.

use crate::fake::{Fake, Say, Space};
use crate::rig::{NAMESPACES_CHANGED, NQN, Rig};
use anabranch_host::mail::ToControl;
use anabranch_host::topology::{Association, ControllerId};
use anabranch_proto::nvme::status::Status;
use std::cell::Cell;
use std::collections::BTreeMap;
use std::rc::Rc;

/// What one controller may show.
const MOST: u32 = 1024;

pub(crate) fn spaces(nsids: impl IntoIterator<Item = u32>) -> BTreeMap<u32, Space> {
    let space = |nsid: u32| {
        let mut space = Space::new(0, 64);
        space.uuid[..4].copy_from_slice(&nsid.to_le_bytes());
        (nsid, space)
    };
    nsids.into_iter().map(space).collect()
}

fn connected(nsids: impl IntoIterator<Item = u32>) -> Rig {
    let mut rig = Rig::new(1);
    let mut fake = Fake::new(NQN, 1);
    fake.spaces = spaces(nsids);
    rig.put(1, fake);
    rig.connect_ok(1, |_| ());
    rig
}

fn nsids(rig: &Rig) -> Vec<u32> {
    let mut nsids: Vec<u32> =
        rig.heads().iter().flat_map(|head| &head.paths).map(|path| path.nsid).collect();
    nsids.sort_unstable();
    nsids
}

#[test]
fn many_namespaces_are_all_found() {
    let mut rig = connected(1..=MOST);
    assert_eq!(rig.heads().len(), 1024);
    // The limit, plus one.
    rig.fake(1).spaces.insert(5000, Space::new(0xab, 64));
    rig.raise(1, NAMESPACES_CHANGED);
    assert_eq!(rig.heads().len(), 1024);
    assert_eq!(rig.event_count("more than 1024 namespaces"), 1);
}

/// SPDK's target has as many places for admin commands as for others, and an event request, Keep
/// Alive and the ANA log have theirs.
#[test]
fn a_scan_asks_no_more_at_once_than_the_controller_has_places_for() {
    for (maxcmd, most) in [(0_u16, 8), (2, 1), (4, 1), (8, 5), (128, 8)] {
        let mut rig = Rig::new(1);
        let mut fake = Fake::new(NQN, 1);
        fake.spaces = spaces(1..=12);
        fake.patch_identify = Some(Box::new(move |data| {
            data[514..516].copy_from_slice(&maxcmd.to_le_bytes());
        }));
        fake.hook = Some(Box::new(|c| c.is_identify(3).then_some(Say::Nothing)));
        rig.put(1, fake);
        rig.connect(1, |_| ());
        rig.advance_s(1);
        assert_eq!(rig.fake(1).count(|c| c.is_identify(3)), most, "MAXCMD {maxcmd}");
    }
}

/// Whoever adds a namespace takes none away.
#[test]
fn devices_stay_when_namespaces_beyond_the_limit_come_before_them() {
    // With some places left, on several pages of the list.
    let far = 0xffff_ff00;
    let known: Vec<u32> = (1000..2000).chain(far..far + 20).collect();
    let mut rig = connected(known.iter().copied());
    assert_eq!(nsids(&rig), known);
    rig.fake(1).spaces.extend(spaces(1..999));
    rig.fake(1).spaces.extend(spaces(3000..9000));
    rig.raise(1, NAMESPACES_CHANGED);
    let kept: Vec<u32> = (1..=4).chain(known.iter().copied()).collect();
    assert_eq!(nsids(&rig), kept, "and the first of the new ones");
    assert_eq!(rig.event_count("more than 1024 namespaces"), 1);
    assert_eq!(rig.event_count("path nvme0c0n1 removed"), 0, "{:?}", rig.events);
    // One goes: its place is another's.
    rig.fake(1).spaces.remove(&(far + 7));
    rig.raise(1, NAMESPACES_CHANGED);
    let kept: Vec<u32> =
        (1..=5).chain(known.iter().copied().filter(|&nsid| nsid != far + 7)).collect();
    assert_eq!(nsids(&rig), kept);
}

#[test]
fn a_list_without_an_end_is_read_where_known_namespaces_would_stand_and_nowhere_else() {
    let mut rig = connected([7, 50_000, 0xffff_fffe]);
    let pages = Rc::new(Cell::new(0));
    let asked = pages.clone();
    rig.fake(1).hook = Some(Box::new(move |c| {
        c.is_identify(2).then(|| {
            asked.set(asked.get() + 1);
            let page = (1..=1024).map_while(|nsid| c.nsid.checked_add(nsid));
            let page: Vec<u32> = page.filter(|&nsid| nsid != u32::MAX).collect();
            let mut data: Vec<u8> = page.iter().flat_map(|nsid| nsid.to_le_bytes()).collect();
            data.resize(4096, 0);
            Say::Data(data)
        })
    }));
    rig.raise(1, NAMESPACES_CHANGED);
    assert_eq!(nsids(&rig), [7, 50_000, 0xffff_fffe]);
    assert_eq!(pages.get(), 4, "two that are full, and one for each known one behind them");
}

/// Each worker says so of each path, at once: a picture for each would keep all of them from their
/// work.
#[test]
fn errors_of_many_paths_that_come_at_once_make_one_picture() {
    let mut rig = connected(1..=100);
    let (controller, association) = (ControllerId(0), Association(1));
    let heads = || rig.heads().iter().map(|head| head.id).collect::<Vec<_>>();
    let (ana, gone) = (heads(), heads());
    let status = Status::ANA_INACCESSIBLE;
    let ana = ana.into_iter();
    let ana = ana.map(|head| ToControl::AnaError { controller, association, head, status });
    let gone = gone.into_iter();
    let gone = gone.map(|head| ToControl::NamespaceSuspect { controller, association, head });
    // They are about to be looked at: what is sent to the controller comes of that.
    rig.fake(1).hook = Some(Box::new(|c| c.is_identify(2).then_some(Say::Nothing)));
    for mail in [ana.collect::<Vec<_>>(), gone.collect()] {
        let before = rig.mail_count("Topology");
        rig.post_together(mail);
        assert_eq!(rig.mail_count("Topology"), before + 1);
        let out_of_use = rig.heads().iter().all(|head| {
            let path = &head.paths[0];
            path.ana_pending || !path.ready
        });
        assert!(out_of_use);
    }
}
