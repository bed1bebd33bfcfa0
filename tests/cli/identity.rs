//! Who the host is: what is given, what the system says, and what is made once and kept.

use anabranch::daemon::identity::{Identity, Places};
use anabranch::failure::Failure;
use rustix::mount::{MountFlags, UnmountFlags};
use std::ffi::CString;
use std::fs;
use std::path::PathBuf;
use std::sync::Barrier;
use std::thread;

struct Home(PathBuf);

impl Home {
    fn new(name: &str) -> (Home, Places) {
        let path = std::env::temp_dir().join(format!("anabranch-{name}-{}", std::process::id()));
        let _ = fs::remove_dir_all(&path);
        fs::create_dir_all(path.join("etc")).expect("a directory");
        let places = Places { system: path.join("etc"), state: Some(path.join("state")) };
        (Home(path), places)
    }
}

impl Drop for Home {
    fn drop(&mut self) {
        let _ = fs::remove_dir_all(&self.0);
    }
}

#[test]
fn the_host_is_generated_once_and_kept() {
    let (_home, places) = Home::new("kept");
    let first = Identity::find(None, None, &places).expect("generated");
    assert_eq!(Identity::find(None, None, &places).expect("kept"), first);
    assert_ne!(Identity::fresh().expect("another"), first);
}

/// As a machine's services do.
#[test]
fn several_that_start_for_the_first_time_at_once_are_one_host() {
    const THREADS: usize = 8;
    for round in 0..20 {
        let (_home, places) = Home::new(&format!("at-once-{round}"));
        let together = Barrier::new(THREADS);
        let found: Vec<Identity> = thread::scope(|scope| {
            let find = || {
                together.wait();
                Identity::find(None, None, &places).expect("generated")
            };
            let threads: Vec<_> = (0..THREADS).map(|_| scope.spawn(find)).collect();
            threads.into_iter().map(|thread| thread.join().expect("an end")).collect()
        });
        assert!(found.iter().all(|one| *one == found[0]), "{found:?}");
        assert_eq!(Identity::find(None, None, &places).expect("kept"), found[0]);
    }
}

/// In a place that is everybody's, somebody else could say who we are.
#[test]
fn the_host_is_kept_in_a_place_of_the_users_own_or_not_at_all() {
    let kept = |uid, state: Option<&str>, home: Option<&str>| {
        let place = Places::of(uid, state.map(PathBuf::from), home.map(PathBuf::from)).state;
        place.map(|path| path.display().to_string())
    };
    assert_eq!(kept(0, Some("/s"), Some("/h")).as_deref(), Some("/var/lib/anabranch"));
    assert_eq!(kept(1, Some("/s"), Some("/h")).as_deref(), Some("/s/anabranch"));
    assert_eq!(kept(1, None, Some("/h")).as_deref(), Some("/h/.local/state/anabranch"));
    assert_eq!(kept(1, Some("s"), Some("h")), None);
    let (_home, mut places) = Home::new("homeless");
    places.state = None;
    let told = Identity::find(None, None, &places).expect_err("nowhere to keep it").to_string();
    assert!(told.contains("HOME") && told.contains("--hostnqn"), "{told}");
}

#[test]
fn a_place_that_cannot_be_had_is_told() {
    let (_home, places) = Home::new("no-place");
    let state = places.state.clone().expect("a place");
    fs::write(&state, "").expect("a file in its place");
    let Err(Failure::Failed(told)) = Identity::find(None, None, &places) else {
        panic!("nothing can be kept");
    };
    assert!(told.contains(&state.display().to_string()), "{told}");
    fs::remove_file(&state).expect("it goes");
    Identity::find(None, None, &places).expect("there is a place again");
}

/// A disk of so many bytes, until the end of this.
struct Disk(PathBuf);

impl Disk {
    /// `None` where this process may not mount one.
    fn new(at: PathBuf, bytes: u32) -> Option<Disk> {
        fs::create_dir_all(&at).expect("a directory");
        let size = CString::new(format!("size={bytes}")).expect("text");
        let flags = MountFlags::empty();
        match rustix::mount::mount("tmpfs", &at, "tmpfs", flags, size.as_c_str()) {
            Ok(()) => Some(Disk(at)),
            Err(error) => {
                println!("NOT RUN: a disk that is soon full cannot be mounted: {error}");
                None
            }
        }
    }
}

impl Drop for Disk {
    fn drop(&mut self) {
        let _ = rustix::mount::unmount(&self.0, UnmountFlags::DETACH);
    }
}

#[test]
fn a_full_disk_is_left_as_it_was() {
    let (_home, places) = Home::new("full");
    let state = places.state.clone().expect("a place");
    let Some(_disk) = Disk::new(state.clone(), 4096) else { return };
    fs::write(state.join("all"), [1; 4096]).expect("it fits");
    let Err(Failure::Failed(told)) = Identity::find(None, None, &places) else {
        panic!("nothing can be kept");
    };
    assert!(told.contains("No space left") && told.contains("--hostid"), "{told}");
    assert_eq!(fs::read_dir(&state).expect("the directory").count(), 1);
    fs::write(state.join("all"), "").expect("there is room again");
    fs::remove_file(state.join("all")).expect("it goes");
    let error = Identity::find(None, None, &places).expect_err("for one, not for both").to_string();
    assert!(error.contains("No space left"), "{error}");
}

/// As when the power failed between the two.
#[test]
fn an_identifier_without_its_nqn_is_kept() {
    let (_home, places) = Home::new("half");
    let first = Identity::find(None, None, &places).expect("generated");
    let state = places.state.clone().expect("a place");
    fs::remove_file(state.join("hostnqn")).expect("it goes");
    assert_eq!(Identity::find(None, None, &places).expect("made again"), first);
    for empty in ["hostid", "hostnqn"] {
        fs::write(state.join(empty), "").expect("it is empty");
        assert_eq!(Identity::find(None, None, &places).expect("made again"), first, "{empty}");
        assert_eq!(Identity::find(None, None, &places).expect("kept"), first, "{empty}");
    }
    assert_eq!(fs::read_dir(&state).expect("the directory").count(), 2, "nothing else is there");
}

/// Somebody has put it there; who is let in by it would be locked out under another one.
#[test]
fn an_nqn_without_its_identifier_is_kept() {
    let (_home, places) = Home::new("other-half");
    let state = places.state.clone().expect("a place");
    fs::create_dir_all(&state).expect("made");
    let id = "12345678-9abc-def0-1234-56789abcdef0";
    let nqn = format!("nqn.2014-08.org.nvmexpress:uuid:{id}");
    fs::write(state.join("hostnqn"), format!("{nqn}\n")).expect("written");
    let found = Identity::find(None, None, &places).expect("the NQN says it");
    assert_eq!((found.nqn.to_string(), found.id.to_string()), (nqn, id.to_owned()));
    assert_eq!(Identity::find(None, None, &places).expect("kept"), found);
    assert!(fs::read_to_string(state.join("hostid")).is_ok_and(|text| text.trim() == id));
    // One that says none.
    fs::remove_file(state.join("hostid")).expect("it goes");
    fs::write(state.join("hostnqn"), "nqn.2026-01.org.example:me\n").expect("written");
    let Err(Failure::Failed(told)) = Identity::find(None, None, &places) else {
        panic!("nobody knows the identifier");
    };
    assert!(told.contains("nqn.2026-01.org.example:me") && told.contains("hostid"), "{told}");
    let kept = fs::read_to_string(state.join("hostnqn")).expect("it is there");
    assert_eq!(kept, "nqn.2026-01.org.example:me\n");
}

#[test]
fn options_precede_files_and_files_precede_generation() {
    let (_home, places) = Home::new("order");
    let (a, b) = ("12345678-9abc-def0-1234-56789abcdef0", "22345678-9abc-def0-1234-56789abcdef0");
    let nqn = format!("nqn.2014-08.org.nvmexpress:uuid:{a}");
    fs::write(places.system.join("hostnqn"), format!("{nqn}\n")).expect("hostnqn");
    let found = Identity::find(None, None, &places).expect("of the system");
    assert_eq!((found.nqn.as_str(), found.id.to_string().as_str()), (nqn.as_str(), a));
    fs::write(places.system.join("hostid"), format!("{b}\n")).expect("hostid");
    let found = Identity::find(None, None, &places).expect("of the system");
    assert_eq!(found.id.to_string(), b);
    let found = Identity::find(Some("nqn.2026-01.org.example:me"), Some(a), &places);
    let found = found.expect("of the options");
    assert_eq!(found.nqn.as_str(), "nqn.2026-01.org.example:me");
    assert_eq!(found.id.to_string(), a);
    assert!(matches!(Identity::find(Some("me"), None, &places), Err(Failure::Usage(_))));
    fs::write(places.system.join("hostnqn"), "not an NQN\n").expect("hostnqn");
    assert!(matches!(Identity::find(None, None, &places), Err(Failure::Failed(_))));
}
