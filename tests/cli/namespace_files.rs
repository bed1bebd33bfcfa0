//! Files behind namespaces: only regular files, only whole blocks, only one target (C72).

use anabranch::daemon::backing::{Backend, NamespaceSpec, Opened, open_file};
use anabranch::daemon::control::Handler;
use anabranch::daemon::rpc::Params;
use anabranch::daemon::target::{PortSpec, RunningTarget, SubsystemSpec, TargetSetup};
use anabranch::failure::Failure;
use anabranch_proto::nvme::Nqn;
use std::fs;
use std::net::TcpListener;
use std::os::unix::fs::{PermissionsExt, symlink};
use std::os::unix::net::UnixListener;
use std::path::{Path, PathBuf};
use std::process::Command;

struct Place(PathBuf);

impl Place {
    fn new(name: &str) -> Place {
        let path = std::env::temp_dir().join(format!("anabranch-{name}-{}", std::process::id()));
        let _ = fs::remove_dir_all(&path);
        fs::create_dir(&path).expect("a directory");
        Place(path)
    }

    fn file(&self, name: &str, bytes: u64) -> PathBuf {
        let path = self.0.join(name);
        fs::File::create(&path).and_then(|file| file.set_len(bytes)).expect("a file");
        path
    }
}

impl Drop for Place {
    fn drop(&mut self) {
        let _ = fs::remove_dir_all(&self.0);
    }
}

#[test]
fn a_regular_file_is_taken() {
    let place = Place::new("regular");
    let path = place.file("disk", 1 << 20);
    let Opened { bytes, made, .. } = open_file(&path, None, 4096).expect("a regular file");
    assert_eq!((bytes, made), (1 << 20, false));
}

#[test]
fn everything_else_is_refused() {
    let place = Place::new("else");
    let disk = place.file("disk", 1 << 20);
    let at = |name: &str| place.0.join(name);
    symlink(&disk, at("link")).expect("a link");
    symlink("/dev/null", at("link-to-device")).expect("a link");
    let _listener = UnixListener::bind(at("socket")).expect("a socket");
    let made = Command::new("mkfifo").arg(at("fifo")).status().expect("mkfifo runs");
    assert!(made.success(), "a FIFO");
    let cases = [
        (at("link"), "symbolic link"),
        (at("link-to-device"), "symbolic link"),
        (PathBuf::from("/dev/null"), "device"),
        (PathBuf::from("/dev/zero"), "device"),
        (at("fifo"), "FIFO"),
        (at("socket"), "socket"),
        (place.0.clone(), "directory"),
        (at("missing"), "does not exist"),
        (place.0.join("../x"), ".."),
        (place.0.join("sub/../disk"), ".."),
        (place.file("empty", 0), "multiple of 512"),
        (place.file("ragged", 1000), "multiple of 512"),
    ];
    for (path, why) in cases {
        match open_file(&path, None, 512) {
            Err(told) => {
                assert!(matches!(&told, Failure::Usage(text) if text.contains(why)), "{told:?}");
            }
            Ok(_) => panic!("{} was taken", path.display()),
        }
    }
}

#[test]
fn a_file_is_made_only_with_a_size() {
    let place = Place::new("made");
    let path = place.0.join("new");
    let ragged = open_file(&path, Some(1000), 512).expect_err("no whole blocks");
    assert!(ragged.to_string().contains("multiple of 512"), "{ragged}");
    assert!(!path.exists(), "nothing is left behind");
    let Opened { file: _file, bytes, made } = open_file(&path, Some(1 << 20), 512).expect("made");
    assert!(made);
    assert_eq!((bytes, fs::metadata(&path).expect("there").len()), (1 << 20, 1 << 20));
    let other = open_file(&place.file("old", 1 << 19), Some(1 << 20), 512);
    assert!(
        other.expect_err("another size").to_string().contains("not the"),
        "an existing file keeps its size"
    );
}

#[test]
fn two_targets_do_not_share_a_file() {
    let place = Place::new("share");
    let path = place.file("disk", 1 << 20);
    let first = open_file(&path, None, 512).expect("the first");
    let second = open_file(&path, None, 512).expect_err("the second");
    let why = format!("{} is in use by another target", path.display());
    assert_eq!(second, Failure::Failed(why.clone()));
    // A service manager starts one that was killed again, but not one that was started wrongly.
    let output = Command::new(env!("CARGO_BIN_EXE_anabranch"))
        .args(["target", "--listen", "127.0.0.1:0", "--namespace"])
        .arg(format!("file:{}", path.display()))
        .arg("--socket")
        .arg(place.0.join("run/t.sock"))
        .output()
        .expect("the binary runs");
    let told = String::from_utf8_lossy(&output.stderr);
    assert!(output.status.code() == Some(1) && told.contains(&why), "{output:?}");
    drop(first);
    assert!(comes_free(&path), "free again");
}

/// Another test may just be starting a program, which has the file until it is another program.
fn comes_free(path: &Path) -> bool {
    (0..100_000).any(|_| {
        std::thread::yield_now();
        open_file(path, None, 512).is_ok()
    })
}

/// Two runs of a target, or two targets with the same name: a host must see whether the blocks are
/// the same.
#[test]
fn other_blocks_have_other_identifiers() {
    let place = Place::new("identifiers");
    let nqn: Nqn = "nqn.2026-01.org.anabranch:target".parse().expect("an NQN");
    let of = |text: &str| {
        let spec: NamespaceSpec = text.parse().expect("a namespace");
        spec.identifiers(&nqn, 1).expect("identifiers")
    };
    let (a, b) = (place.file("a", 1 << 20), place.file("b", 1 << 20));
    let [a, b] = [a, b].map(|path| format!("file:{}", path.display()));
    assert_eq!(of(&a), of(&a), "a file keeps them");
    let all = [of(&a), of(&b), of("mem:1m"), of("mem:1m")];
    for (at, one) in all.iter().enumerate() {
        for other in &all[..at] {
            assert!(one.0 != other.0 && one.1 != other.1, "{one:?} and {other:?}");
        }
    }
    let chosen = "mem:1m,uuid=12345678-9abc-def0-1234-56789abcdef0";
    assert_eq!(of(chosen), of(chosen), "who chooses answers for it");
}

/// One that was lost has lost what was written; one that has another name has not. Where the file
/// system does not know when a file was made, its place is all that there is.
#[test]
fn a_file_that_is_made_again_is_another_namespace() {
    let place = Place::new("made-again");
    let path = place.file("a", 1 << 20);
    let of = |path: &Path| {
        let spec: NamespaceSpec = format!("file:{}", path.display()).parse().expect("a namespace");
        let nqn = "nqn.2026-01.org.anabranch:target".parse().expect("an NQN");
        spec.identifiers(&nqn, 1).expect("identifiers")
    };
    let born = |path: &Path| std::fs::metadata(path).expect("it is there").created().ok();
    let (first, before) = (born(&path), of(&path));
    let moved = path.with_extension("moved");
    std::fs::rename(&path, &moved).expect("renamed");
    assert_eq!(of(&moved) == before, first.is_some());
    std::fs::remove_file(&moved).expect("it goes");
    place.file("a", 1 << 20);
    // Until the clock of the file system has moved on.
    while first.is_some() && born(&path) == first {
        std::fs::remove_file(&path).expect("it goes");
        std::thread::yield_now();
        place.file("a", 1 << 20);
    }
    let after = of(&path);
    assert_eq!(after.0 != before.0 && after.1 != before.1, first.is_some(), "{after:?}");
}

/// A file that is copied keeps its UUID because somebody wrote it down. Hosts compare the NGUID,
/// too.
#[test]
fn a_namespace_whose_uuid_is_given_is_the_same_wherever_it_stands() {
    let place = Place::new("pinned");
    let file = format!("file:{}", place.file("a", 1 << 20).display());
    let at = |text: &str, nqn: &str, nsid| {
        let spec: NamespaceSpec = text.parse().expect("a namespace");
        spec.identifiers(&nqn.parse().expect("an NQN"), nsid).expect("identifiers")
    };
    let (here, there) = ("nqn.2026-01.org.example:here", "nqn.2026-01.org.example:there");
    let before = at(&file, here, 1);
    let pinned = |uuid| format!("mem:1m,uuid={uuid}");
    assert_eq!(at(&pinned(before.0), here, 1), before, "its own UUID, written down");
    assert_eq!(at(&pinned(before.0), there, 7), before, "under another NSID, elsewhere");
    let other = at("mem:1m,uuid=12345678-9abc-def0-1234-56789abcdef0", here, 1);
    assert_ne!(other.1, before.1, "another namespace in its place");
}

#[test]
fn namespace_texts() {
    let spec: NamespaceSpec = "mem:64MiB,bs=4096,anagrp=3".parse().expect("memory");
    assert_eq!((spec.backend.clone(), spec.bs, spec.anagrp), (Backend::Memory(64 << 20), 4096, 3));
    spec.check().expect("whole blocks");
    let uuid = "file:/tmp/x,uuid=12345678-9abc-def0-1234-56789abcdef0,nsid=7";
    let spec: NamespaceSpec = uuid.parse().expect("a file");
    assert_eq!((spec.nsid, spec.backend), (Some(7), Backend::File("/tmp/x".into())));
    for (text, why) in [
        ("", "neither mem:SIZE nor file:PATH"),
        ("disk:/tmp/x", "neither"),
        ("file:", "neither"),
        ("mem:", "not a size"),
        ("mem:1GB", "not a size"),
        ("mem:99999999999g", "64 bits"),
        ("mem:1m,bs", "KEY=VALUE"),
        ("mem:1m,bs=512,bs=512", "twice"),
        ("mem:1m,colour=red", "no key"),
        ("mem:1m,anagrp=-1", "no number"),
        ("mem:1m,uuid=zz", "uuid"),
    ] {
        let error = text.parse::<NamespaceSpec>().expect_err(text);
        assert!(error.contains(why), "{text}: {error}");
    }
    for (text, why) in [
        ("mem:1m,bs=1k", "512 or 4096"),
        ("mem:1000", "multiple of 512"),
        ("mem:0", "multiple of 512"),
        ("mem:1m,size=1m", "mem:SIZE"),
        ("mem:17t", "mem has 18691697672192 bytes, must not exceed 16 TiB"),
        ("file:/x,size=17t", "size has 18691697672192 bytes, must not exceed 16 TiB"),
        ("file:/x,size=1000", "size has 1000 bytes, must be a multiple of 512"),
        ("mem:1m,nsid=0", "nsid is 0, must lie between 1 and 1024"),
        ("mem:1m,anagrp=129", "anagrp is 129, must lie between 1 and 128"),
        ("file:../x", ".."),
    ] {
        let spec: NamespaceSpec = text.parse().expect(text);
        let error = spec.check().expect_err(text);
        assert!(error.contains(why), "{text}: {error}");
    }
}

/// It would be in the way of the next attempt, which may ask for another size.
#[test]
fn a_target_that_is_refused_leaves_no_file_behind() {
    let place = Place::new("refused");
    fs::set_permissions(&place.0, fs::Permissions::from_mode(0o700)).expect("ours alone");
    let old = place.file("old", 1 << 20);
    let new = place.0.join("new");
    for (namespaces, why) in [
        ([format!("file:{},size=1m,nsid=7", new.display()), "mem:1m,nsid=7".into()], "twice"),
        ([format!("file:{},size=17t", new.display()), "mem:1m".into()], "16 TiB"),
        ([format!("file:{},size=1m,nsid=7", old.display()), "mem:1m,nsid=7".into()], "twice"),
    ] {
        let output = Command::new(env!("CARGO_BIN_EXE_anabranch"))
            .args(["target", "--listen", "127.0.0.1:0", "--socket"])
            .arg(place.0.join("t.sock"))
            .args(namespaces.iter().flat_map(|spec| ["--namespace", spec]))
            .output()
            .expect("the binary runs");
        let told = String::from_utf8_lossy(&output.stderr);
        assert_eq!(output.status.code(), Some(2), "{told}");
        assert!(told.contains(why), "{told}");
        let mut left = fs::read_dir(&place.0)
            .expect("a directory")
            .map(|entry| entry.expect("an entry").file_name().into_string().expect("a name"));
        assert_eq!((left.next().as_deref(), left.next()), (Some("old"), None), "{told}");
    }
}

/// A shell's limit ends what does not mind the signal.
#[test]
fn a_file_that_may_not_grow_so_far_is_an_error_and_no_end() {
    let place = Place::new("limit");
    let path = place.0.join("new");
    let run = format!(
        "ulimit -f 8 && exec {} --socket {}/s target --listen 127.0.0.1:0 --namespace \
         file:{},size=1m",
        env!("CARGO_BIN_EXE_anabranch"),
        place.0.display(),
        path.display()
    );
    let output = Command::new("sh").args(["-c", &run]).output().expect("a shell");
    let told = String::from_utf8_lossy(&output.stderr);
    assert!(matches!(output.status.code(), Some(1 | 2)), "{:?}: {told}", output.status);
    assert!(told.contains("cannot make") && told.contains("too large"), "{told}");
    assert!(!path.exists(), "nothing is left behind");
}

/// The same when the target runs: a file that a refused namespace would have had goes, one that
/// was there stays and is nobody's.
#[test]
fn a_namespace_that_is_refused_leaves_no_file_behind() {
    const UUID: &str = "12345678-9abc-def0-1234-56789abcdef0";
    let place = Place::new("refused-later");
    let (new, old) = (place.0.join("new"), place.file("old", 1 << 20));
    let setup = TargetSetup {
        ports: vec![PortSpec { listen: "127.0.0.1:0".to_owned(), ..PortSpec::default() }],
        subsystems: vec![SubsystemSpec {
            namespaces: vec![format!("mem:1m,uuid={UUID}").parse().expect("a namespace")],
            ..SubsystemSpec::named("nqn.2026-01.org.anabranch:refused")
        }],
        cpus: None,
    };
    let target = RunningTarget::start(&setup, |_| {}).expect("a target");
    let add = |path: &Path, more: &str| {
        let params = format!(r#"{{"namespace":{{"backend":"file:{}"{more}}}}}"#, path.display());
        target.call("ns_add", Params::from_text(&params)).map_err(|error| error.message)
    };
    let taken = format!(r#","uuid":"{UUID}""#);
    let why = add(&new, &format!(r#","size":"1m"{taken}"#)).expect_err("the UUID is taken");
    assert!(why.contains("uuid: is that of namespace 1"), "{why}");
    assert!(!new.exists(), "{why}");
    add(&old, &taken).expect_err("the UUID is taken");
    assert!(old.exists(), "it was there before");
    assert!(comes_free(&old), "nobody has it");
    // The next attempt may want another size, and what it gets stays.
    add(&new, r#","size":"2m""#).expect("a namespace");
    add(&new, "").expect_err("it is behind a namespace");
    assert_eq!(fs::metadata(&new).expect("it stays").len(), 2 << 20);
    target.stop().expect("an orderly end");
}

/// An address in use is told after the files were made.
#[test]
fn a_target_that_cannot_listen_leaves_no_file_behind() {
    let place = Place::new("in-use");
    let new = place.0.join("new");
    let taken = TcpListener::bind("127.0.0.1:0").expect("a listener");
    let listen = taken.local_addr().expect("an address").to_string();
    let setup = TargetSetup {
        ports: vec![PortSpec { listen, ..PortSpec::default() }],
        subsystems: vec![SubsystemSpec {
            namespaces: vec![format!("file:{},size=1m", new.display()).parse().expect("a file")],
            ..SubsystemSpec::named("nqn.2026-01.org.anabranch:in-use")
        }],
        cpus: None,
    };
    let why = RunningTarget::start(&setup, |_| {}).expect_err("the address is in use");
    assert!(why.to_string().contains("cannot listen"), "{why}");
    assert!(!new.exists(), "{why}");
}
