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
            (Err(why), Some(text)) => assert!(why.contains(text), "{why}"),
            (got, wrong) => panic!("{more}: {got:?}, not {wrong:?}"),
        }
        if nsid > 1 {
            files.release(&nqn, 1);
        }
    }
    std::fs::remove_file(&path).expect("it goes");
}
