use super::*;

fn spec(path: &Path, more: &str) -> NamespaceSpec {
    format!("file:{}{more}", path.display()).parse().expect("a namespace")
}

#[test]
fn a_file_that_is_still_open_is_checked_like_one_that_is_not() {
    let path = std::env::temp_dir().join(format!("anabranch-again-{}", std::process::id()));
    File::create(&path).and_then(|file| file.set_len(3 << 9)).expect("a file");
    let nqn: Nqn = "nqn.2026-01.org.anabranch:target".parse().expect("a name");
    let files = FileTable::new();
    for (more, nsid, wrong) in [
        ("", 1, None),
        ("", 2, Some("is behind namespace 1")),
        (",size=4096", 3, Some("exists with 1536 bytes, not the 4096 asked for")),
        (",bs=4096", 4, Some("must be a multiple of 4096")),
        (",size=1536", 5, None),
    ] {
        let got = files.backend(&spec(&path, more), &nqn, nsid);
        match (got, wrong) {
            (Ok(backend), None) => assert_eq!(backend.bytes(), 1536),
            (Err(why), Some(text)) => assert!(why.to_string().contains(text), "{why}"),
            (got, wrong) => panic!("{more}: {got:?}, not {wrong:?}"),
        }
        if nsid > 1 {
            // As when its namespace is removed, and something is still being done to it.
            files.opened.lock().expect("nobody panics")[0].user = None;
        }
    }
    std::fs::remove_file(&path).expect("it goes");
}

#[test]
fn the_file_of_a_namespace_that_was_removed_is_free() {
    let path = std::env::temp_dir().join(format!("anabranch-freed-{}", std::process::id()));
    File::create(&path).and_then(|file| file.set_len(1 << 12)).expect("a file");
    let nqn: Nqn = "nqn.2026-01.org.anabranch:target".parse().expect("a name");
    let (files, other) = (FileTable::new(), FileTable::new());
    files.settle(&files.backend(&spec(&path, ""), &nqn, 1).expect("a back end"), None);
    let told = other.backend(&spec(&path, ""), &nqn, 1).expect_err("it is in use");
    assert!(told.to_string().contains("in use by another target"), "{told}");
    files.release(&files.behind(&nqn, 1), RELEASE);
    // Another test may just be starting a program, which has the file until it is another program.
    assert!((0..100_000).any(|_| {
        std::thread::yield_now();
        other.backend(&spec(&path, ""), &nqn, 1).is_ok()
    }));
    std::fs::remove_file(&path).expect("it goes");
}

#[test]
fn a_file_that_is_worked_on_when_its_namespace_goes_is_free_after_that() {
    let path = std::env::temp_dir().join(format!("anabranch-slow-{}", std::process::id()));
    File::create(&path).and_then(|file| file.set_len(1 << 12)).expect("a file");
    let nqn: Nqn = "nqn.2026-01.org.anabranch:target".parse().expect("a name");
    let (files, other) = (FileTable::new(), FileTable::new());
    files.settle(&files.backend(&spec(&path, ""), &nqn, 1).expect("a back end"), None);
    let gone = files.behind(&nqn, 1);
    let work = files.files.get(gone[0]).expect("it is open");
    files.release(&gone, Duration::ZERO);
    // Whoever takes it here meanwhile comes after what is done to it.
    let again = files.backend(&spec(&path, ""), &nqn, 2).expect("a back end");
    assert!(matches!(again, BackendConfig::File { file, .. } if file == gone[0]));
    files.release(&gone, Duration::ZERO);
    let told = other.backend(&spec(&path, ""), &nqn, 1).expect_err("it is worked on");
    assert!(told.to_string().contains("in use by another target"), "{told}");
    drop(work);
    // Each attempt waits for a while.
    assert!((0..100).any(|_| other.backend(&spec(&path, ""), &nqn, 1).is_ok()));
    std::fs::remove_file(&path).expect("it goes");
}

#[test]
fn a_namespace_in_the_place_of_one_that_was_removed_keeps_its_file() {
    let path = |of: &str| {
        let name = format!("anabranch-place-{of}-{}", std::process::id());
        let path = std::env::temp_dir().join(name);
        File::create(&path).and_then(|file| file.set_len(1 << 12)).expect("a file");
        path
    };
    let (former, later) = (path("former"), path("later"));
    let nqn: Nqn = "nqn.2026-01.org.anabranch:target".parse().expect("a name");
    let (files, other) = (FileTable::new(), FileTable::new());
    files.settle(&files.backend(&spec(&former, ""), &nqn, 1).expect("a back end"), None);
    let gone = files.behind(&nqn, 1);
    files.settle(&files.backend(&spec(&later, ""), &nqn, 1).expect("a back end"), None);
    files.release(&gone, RELEASE);
    other.backend(&spec(&former, ""), &nqn, 1).expect("it was let go");
    let told = other.backend(&spec(&later, ""), &nqn, 2).expect_err("it is in use");
    assert!(told.to_string().contains("in use by another target"), "{told}");
    [former, later].iter().for_each(|path| std::fs::remove_file(path).expect("it goes"));
}

#[test]
fn a_file_is_given_up_when_its_namespace_turns_out_to_be_gone() {
    let path = std::env::temp_dir().join(format!("anabranch-unsure-{}", std::process::id()));
    File::create(&path).and_then(|file| file.set_len(1 << 12)).expect("a file");
    let nqn: Nqn = "nqn.2026-01.org.anabranch:target".parse().expect("a name");
    let files = FileTable::new();
    let silence = RpcError::new(RpcError::TIMEOUT, "no answer");
    let backend = files.backend(&spec(&path, ""), &nqn, 1).expect("a back end");
    files.settle(&backend, None);
    let behind = files.behind(&nqn, 1);
    assert_eq!(files.doubtful(behind.clone()), [], "it is there");
    files.doubt(&behind);
    assert_eq!(files.doubtful(behind.clone()), behind, "as nobody has said that it was removed");
    files.release(&behind, RELEASE);
    files.settle(&files.backend(&spec(&path, ""), &nqn, 1).expect("a back end"), Some(&silence));
    let behind = files.behind(&nqn, 1);
    assert_eq!(files.doubtful(behind.clone()), behind, "as nobody has said that it was added");
    std::fs::remove_file(&path).expect("it goes");
}

#[test]
fn a_file_grows_with_its_namespace() {
    let path = std::env::temp_dir().join(format!("anabranch-grows-{}", std::process::id()));
    File::create(&path).and_then(|file| file.set_len(1 << 12)).expect("a file");
    let nqn: Nqn = "nqn.2026-01.org.anabranch:target".parse().expect("a name");
    let files = FileTable::new();
    files.backend(&spec(&path, ""), &nqn, 1).expect("a back end");
    let length = || std::fs::metadata(&path).expect("it is there").len();
    let has = |bytes| move || Ok(Some(bytes));
    let refused = || Err::<(), RpcError>(RpcError::invalid("no whole blocks"));
    assert!(files.resize(&nqn, 1, 5000, has(1 << 12), refused).is_err());
    assert_eq!(length(), 1 << 12, "as before");
    let before = files.resize(&nqn, 1, 1 << 20, has(1 << 12), || Ok(length())).expect("it grows");
    assert_eq!(before, 1 << 20, "the file first");
    files.resize(&nqn, 1, 1 << 12, has(1 << 20), || Ok(())).expect("the namespace shrinks");
    assert_eq!(length(), 1 << 20, "nothing is cut off");
    files.resize(&nqn, 2, 1 << 30, has(1), || Ok(())).expect("another one, in memory");
    assert_eq!(length(), 1 << 20);
    let error = files.resize(&nqn, 1, u64::MAX, has(1 << 12), || Ok(()));
    let error = error.expect_err("no file is that long");
    assert!(error.message.contains("cannot make the file of namespace 1 that long"));
    std::fs::remove_file(&path).expect("it goes");
}

#[test]
fn a_file_that_a_namespace_may_have_had_is_never_taken_away() {
    let path = std::env::temp_dir().join(format!("anabranch-settled-{}", std::process::id()));
    let nqn: Nqn = "nqn.2026-01.org.anabranch:target".parse().expect("a name");
    let (conflict, silence) =
        (RpcError::new(RpcError::CONFLICT, "taken"), RpcError::new(RpcError::TIMEOUT, "no answer"));
    let made = |files: &FileTable, nsid| {
        files.backend(&spec(&path, ",size=4096"), &nqn, nsid).expect("a back end")
    };
    let files = FileTable::new();
    files.settle(&made(&files, 1), Some(&conflict));
    assert!(!path.exists(), "the engine did not want it");
    for answer in [None, Some(&silence)] {
        let files = FileTable::new();
        files.settle(&made(&files, 1), answer);
        files.release(&files.behind(&nqn, 1), RELEASE);
        files.settle(&made(&files, 2), Some(&conflict));
        assert!(path.exists(), "it was that of namespace 1, after {answer:?}");
        std::fs::remove_file(&path).expect("it goes");
    }
}

/// A file system that is frozen, or away, does not answer for as long as it likes.
#[test]
fn a_file_that_hangs_keeps_nobody_from_the_others() {
    let path = std::env::temp_dir().join(format!("anabranch-hangs-{}", std::process::id()));
    File::create(&path).and_then(|file| file.set_len(1 << 12)).expect("a file");
    let nqn: Nqn = "nqn.2026-01.org.anabranch:target".parse().expect("a name");
    let files = FileTable::new();
    files.backend(&spec(&path, ""), &nqn, 1).expect("a back end");
    let is_free = |files: &FileTable| files.opened.try_lock().is_ok();
    let size = || {
        assert!(is_free(&files), "the engine is asked");
        Ok(Some(1 << 12))
    };
    let change = || {
        assert!(is_free(&files), "the engine is asked");
        let told = files.resize(&nqn, 1, 1 << 12, || Ok(None), || Ok(()));
        Ok(told.expect_err("the file is worked on").code)
    };
    let told = files.resize(&nqn, 1, 1 << 13, size, change).expect("it grows");
    assert_eq!(told, RpcError::BUSY);
    files.resize(&nqn, 1, 1 << 12, || Ok(Some(1 << 13)), || Ok(())).expect("that has ended");
    // Opening it takes a while, as it is locked here already.
    let other = FileTable::new();
    let again = (other.clone(), spec(&path, ""), nqn);
    let adding = std::thread::spawn(move || again.0.backend(&again.1, &again.2, 1).is_err());
    let (mut free, mut held) = (0, 0);
    while !adding.is_finished() {
        *(if is_free(&other) { &mut free } else { &mut held }) += 1;
        std::thread::yield_now();
    }
    assert!(adding.join().expect("it ends"), "the file is in use");
    assert!(free > held, "free {free} times, held {held} times");
    std::fs::remove_file(&path).expect("it goes");
}

/// Each would find what the other has not finished.
#[test]
fn a_namespace_and_a_file_are_worked_on_by_one_at_a_time() {
    let (a, b) = (spec(Path::new("/a"), ""), spec(Path::new("/b"), ""));
    let memory: NamespaceSpec = "mem:1m".parse().expect("memory");
    let name = |text: &str| text.parse::<Nqn>().expect("a name");
    let (here, there) = (name("nqn.2026-01.org.example:a"), name("nqn.2026-01.org.example:b"));
    let files = FileTable::new();
    let busy = |nqn: &Nqn, nsid, spec: Option<&NamespaceSpec>| {
        let told = files.claim(nqn, nsid, spec).err()?;
        assert_eq!(told.code, RpcError::BUSY);
        Some(told.message)
    };
    let first = files.claim(&here, 1, Some(&a)).expect("nobody works");
    let memory_too = files.claim(&here, 2, Some(&memory)).expect("another one");
    let of = |what| Some(format!("{what} is being worked on: try again when that has ended"));
    assert_eq!(busy(&here, 1, None), of("namespace 1"));
    assert_eq!(busy(&here, 3, Some(&a)), of("/a"));
    for (nqn, nsid, spec) in [(&there, 1, &b), (&here, 3, &b), (&here, 3, &memory)] {
        assert_eq!(busy(nqn, nsid, Some(spec)), None);
    }
    drop(first);
    assert_eq!((busy(&here, 1, Some(&a)), busy(&here, 2, None)), (None, of("namespace 2")));
    drop(memory_too);
    assert_eq!(busy(&here, 2, None), None);
}

/// Its name may have gone while whoever wanted it waited for its lock: what is written would be
/// lost with the last who has it open.
#[test]
fn a_file_that_was_taken_away_while_it_was_opened_is_not_had() {
    let path = std::env::temp_dir().join(format!("anabranch-unlinked-{}", std::process::id()));
    let file = File::create(&path).expect("a file");
    numbers(&file, &path).expect("it is there");
    std::fs::remove_file(&path).expect("it goes");
    let told = numbers(&file, &path).expect_err("it has no name");
    assert!(told.ends_with("was taken away while it was opened"), "{told}");
    File::create(&path).expect("another file");
    numbers(&file, &path).expect_err("its name is another's");
    std::fs::remove_file(&path).expect("it goes");
}
